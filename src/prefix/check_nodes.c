// SPDX-License-Identifier: Apache-2.0
/* The checks of `cairn fsck` in a prefix that several nodes write, beside the objects that its
 * heads name: the nodes' entries, feeds that no head has yet, and the heads of the nodes. Of
 * ended/EPOCH only the name counts. */
#include <stdio.h>

#include "base/pool.h"
#include "base/vector.h"
#include "format/feed.h"
#include "format/object.h"
#include "prefix/check.h"
#include "prefix/heads.h"

#define QUEUE 64u
#define NAME_LEN 64u /* of each object that is checked here */

enum looked_kind { ENTRY, FEED, MARKER, NODE_HEAD };

struct looked_at {
    enum looked_kind kind;
    char object[NAME_LEN];
    uint64_t number;      /* as in the name; for a feed its round */
    uint64_t epoch, node; /* epoch: of a feed; node: of an object of a node */
    int result;
};

struct nodes_check {
    struct prefix *prefix;
    struct prefix_check *check;
    /* the newest head that can be decoded; the one that is shown may be an older one */
    struct head *newest;
    VECTOR(struct looked_at) all;
    struct numbers nodes; /* nodes that have an entry, or a row of the newest head */
};

struct nodes_job {
    struct nodes_check *c;
    struct looked_at *at;
};

/* --- which objects are checked --- */

static struct looked_at *add(struct nodes_check *c, enum looked_kind kind)
{
    struct looked_at *at = vector_next(&c->all);
    *at = (struct looked_at){.kind = kind};
    return at;
}

static int add_entry(uint64_t number, const struct tier_object *object, void *arg)
{
    struct looked_at *at = add(arg, ENTRY);
    (void)snprintf(at->object, sizeof at->object, "%s", object->name);
    at->number = number;
    return 0;
}

/* Feeds up to the writer's row are in the head, which check.c checks, or wait for gc. */
static bool is_in_head(const struct head *head, uint64_t round, uint64_t epoch)
{
    const struct head_writer *writer = head_writer_of(head, epoch);
    return writer && round <= writer->feed_round;
}

static int add_feed(const struct tier_object *object, void *arg)
{
    struct nodes_check *c = arg;
    uint64_t round, epoch;
    if (!feed_numbers(object->name, &round, &epoch) || is_in_head(c->newest, round, epoch))
        return 0;
    struct looked_at *at = add(c, FEED);
    (void)snprintf(at->object, sizeof at->object, "%s", object->name);
    at->number = round;
    at->epoch = epoch;
    return 0;
}

struct heads_of_node {
    struct nodes_check *c;
    char directory[NAME_LEN];
    uint64_t node;
};

static int add_node_head(const struct tier_object *object, void *arg)
{
    struct heads_of_node *heads = arg;
    uint64_t number;
    if (!object_number(object->name, heads->directory, &number))
        return 0; /* heads/cairn, the copy of the marker */
    struct looked_at *at = add(heads->c, NODE_HEAD);
    (void)snprintf(at->object, sizeof at->object, "%s", object->name);
    at->number = number;
    at->node = heads->node;
    return 0;
}

/* A node whose prefix is empty did not publish yet. */
static int add_node(struct nodes_check *c, uint64_t node)
{
    struct tier *tier = c->prefix->tier;
    struct heads_of_node heads = {.c = c, .node = node};
    size_t before = c->all.count;
    (void)snprintf(heads.directory, sizeof heads.directory, "nodes/%016llx/heads",
                   (unsigned long long)node);
    TRY(tier->ops->list(tier, heads.directory, NULL, add_node_head, &heads));
    if (c->all.count == before)
        return 0;
    struct looked_at *at = add(c, MARKER);
    (void)snprintf(at->object, sizeof at->object, "nodes/%016llx/cairn", (unsigned long long)node);
    at->node = node;
    return 0;
}

static int add_nodes(struct nodes_check *c)
{
    const struct head *head = c->newest;
    for (uint32_t i = 0; i < head->writer_count; i++)
        vector_add(&c->nodes, head->writers[i].node);
    vector_sort_unique(&c->nodes);
    for (size_t i = 0; i < c->nodes.count; i++)
        TRY(add_node(c, c->nodes.at[i]));
    return 0;
}

/* --- looking ---------------------------------------------------------------------------------- */

static bool is_of_history(const struct nodes_job *job, const uint8_t history[16])
{
    return memcmp(history, job->c->prefix->marker.history, 16) == 0;
}

static int look_at_entry(const void *buf, size_t len, void *arg)
{
    const struct nodes_job *job = arg;
    struct writer_entry entry;
    TRY(writer_entry_decode(buf, len, &entry));
    return entry.number == job->at->number && is_of_history(job, entry.history) ? 0 : -EUCLEAN;
}

static int look_at_feed(const void *buf, size_t len, void *arg)
{
    const struct nodes_job *job = arg;
    _cleanup_free_ struct feed *feed = xmalloc(sizeof *feed);
    TRY(feed_decode(buf, len, feed));
    bool is_its = feed->hi == job->at->number && feed->epoch == job->at->epoch;
    return is_its && is_of_history(job, feed->history) ? 0 : -EUCLEAN;
}

static int look_at_marker(const void *buf, size_t len, void *arg)
{
    const struct nodes_job *job = arg;
    struct prefix_info info;
    TRY(prefix_info_decode(buf, len, &info));
    bool is_its = is_of_history(job, info.history);
    explicit_bzero(&info, sizeof info);
    return is_its ? 0 : -EUCLEAN;
}

static int look_at_head(const void *buf, size_t len, void *arg)
{
    const struct nodes_job *job = arg;
    _cleanup_free_ struct head *head = xmalloc(sizeof *head);
    TRY(head_decode(buf, len, head));
    return head->number == job->at->number && is_of_history(job, head->history) ? 0 : -EUCLEAN;
}

static void run_job(void *arg)
{
    static const struct {
        int (*look)(const void *buf, size_t len, void *arg);
        size_t max;
    } kinds[] = {
        [ENTRY] = {look_at_entry, WRITER_ENTRY_LEN},
        [FEED] = {look_at_feed, FEED_LEN_MAX},
        [MARKER] = {look_at_marker, PREFIX_INFO_LEN},
        [NODE_HEAD] = {look_at_head, HEAD_LEN_MAX},
    };
    struct nodes_job *job = arg;
    struct looked_at *at = job->at;
    at->result = job->c->check->is_interrupted()
                     ? -EINTR
                     : prefix_read_object(job->c->prefix, at->object, kinds[at->kind].max,
                                          kinds[at->kind].look, job);
    if (at->result == -ENOENT && at->kind != MARKER)
        at->result = 0; /* it was listed, and deleted since */
    free(job);
}

static int look_at_all(struct nodes_check *c)
{
    struct pool *pool;
    TRY(pool_new("cairn-check", c->check->threads, QUEUE, NULL, NULL, &pool));
    for (size_t i = 0; i < c->all.count; i++) {
        struct nodes_job *job = xmalloc(sizeof *job);
        *job = (struct nodes_job){c, &c->all.at[i]};
        pool_submit(pool, run_job, job);
    }
    pool_free(pool);
    return 0;
}

/* --- messages --------------------------------------------------------------------------------- */

static void report(const struct nodes_check *c, const struct looked_at *at)
{
    char what[192];
    const char *damage = at->result == -ENOENT            ? "is missing"
                         : at->result == -EUCLEAN         ? "is truncated or malformed"
                         : at->result == -EPROTONOSUPPORT ? "is of a newer version of CairnFS"
                                                          : "is damaged";
    unsigned long long node = at->node;
    switch (at->kind) {
    case ENTRY:
        (void)snprintf(what, sizeof what,
                       "%s: the node writes it again while it is mounted; until then nobody knows "
                       "who has these numbers",
                       damage);
        break;
    case FEED:
        (void)snprintf(what, sizeof what,
                       "%s, and no head has what it tells: the union of all nodes goes no further",
                       damage);
        break;
    case MARKER:
        (void)snprintf(what, sizeof what, "%s: node %llu needs it, or its copy heads/cairn there",
                       damage, node);
        break;
    case NODE_HEAD:
        (void)snprintf(what, sizeof what,
                       "%s: node %llu cannot go back to it, and its gc cannot know what it named",
                       damage, node);
        break;
    }
    c->check->problem(at->object, what, c->check->arg);
}

static int report_all(const struct nodes_check *c)
{
    for (size_t i = 0; i < c->all.count; i++) {
        int r = c->all.at[i].result;
        if (r < 0 && !prefix_object_is_lost(r) && r != -EPROTONOSUPPORT)
            return r;
        if (r < 0)
            report(c, &c->all.at[i]);
    }
    return 0;
}

static int find_newest(struct nodes_check *c)
{
    int r = heads_newest(c->prefix, c->prefix->head.number, c->newest);
    if (r < 0)
        *c->newest = c->prefix->head;
    return r == -EAGAIN || prefix_object_is_lost(r) ? 0 : r;
}

int prefix_check_of_nodes(struct prefix *prefix, struct prefix_check *check)
{
    _cleanup_free_ struct head *newest = xmalloc(sizeof *newest);
    struct nodes_check c = {.prefix = prefix, .check = check, .newest = newest};
    if (!(prefix->marker.incompat & SUPERBLOCK_INCOMPAT_NODES))
        return 0;
    int r = find_newest(&c);
    if (r == 0)
        r = prefix_list(prefix, "writers", 0, add_entry, &c);
    if (r == 0)
        r = prefix->tier->ops->list(prefix->tier, "feeds", NULL, add_feed, &c);
    if (r == 0)
        r = add_nodes(&c);
    if (r == 0)
        r = look_at_all(&c);
    if (r == 0)
        r = report_all(&c);
    vector_free(&c.all);
    vector_free(&c.nodes);
    return r;
}
