// SPDX-License-Identifier: Apache-2.0
/* A prefix that one store wrote becomes one of several nodes, in place: packs stay where they are.
 * What was written so far belongs to a node that has left, number CONVERTED_NODE, from then on. The
 * store that converts the prefix takes that node's place (replace.c), so the files have an owner.
 *
 *   1. the node's own prefix: its marker, the runs in both places, the head as it is;
 *   2. entries in writers/ for all epochs that were used, and the node's last feed;
 *   3. a run with the names alone, and the first head of all nodes, which names both. It has the
 *      number of the writer's next head: whoever still writes alone is fenced by it;
 *   4. the marker: other stores join from then on.
 *
 * A crash before 3 leaves a prefix of one writer, and objects that nothing looks at. Converting it
 * again writes these anew. A crash between 3 and 4 is mended by another try, which writes the
 * marker. Entries of a conversion have no lease, which tells them from those of stores. */
#include <stdio.h>
#include <sys/stat.h>

#include "base/cause.h"
#include "base/io.h"
#include "base/log.h"
#include "commit/run_lists.h"
#include "nodes/node_internal.h"
#include "nodes/node_tier.h"
#include "nodes/stays.h"
#include "prefix/heads.h"
#include "prefix/lease.h"
#include "prefix/named.h"
#include "prefix/runs.h"

#define ENTRIES_MAX 4096u
#define UNION_RUN (1ull << 23) /* no node makes as many runs of its own in an epoch */

struct conversion {
    struct node *node;
    char *path;                        /* STORE/convert, for as long as it takes */
    struct local local;                /* there; it has no view */
    struct prefix common, own;         /* own: that of node CONVERTED_NODE */
    struct remote_options own_options; /* whose tier is the node's */
    struct head before;                /* of the one writer */
    uint64_t round;                    /* the first state of all nodes */
    uint64_t newest_epoch;
    uint8_t feed_hash[HASH_LEN];
};

static int conversion_begin(struct conversion *c, struct node *node)
{
    const struct prefix_info *marker = &node->common.marker;
    const struct prefix_user user = {.arg = node, .pause = node_pause};
    *c = (struct conversion){.node = node, .path = xasprintf("%s/convert", node->local->path)};
    c->local = (struct local){.path = c->path, .sb = {.key = marker->key}};
    c->local.sb.incompat = marker->incompat | SUPERBLOCK_INCOMPAT_NODES;
    memcpy(c->local.sb.history, marker->history, sizeof c->local.sb.history);
    memcpy(c->local.sb.key_id, marker->key_id, sizeof c->local.sb.key_id);
    memcpy(c->local.sb.store, node->store, sizeof c->local.sb.store);
    c->own_options = node->options;
    c->own_options.tier = node->own;
    node_tier_set_node(node->own, CONVERTED_NODE);
    prefix_init(&c->common, &c->local, node->commit->room, &node->options, &user);
    prefix_init(&c->own, &c->local, node->commit->room, &c->own_options, &user);
    TRY(io_remove_tree(c->path));
    if (mkdir(c->path, 0700) < 0)
        return -errno;
    return run_directory_make(&c->local);
}

static void conversion_done(struct conversion *c)
{
    prefix_done(&c->own);
    prefix_done(&c->common);
    if (io_remove_tree(c->path) < 0)
        log_warn("nodes: %s is of no use, and could not be removed", c->path);
    explicit_bzero(&c->local.sb.key, sizeof c->local.sb.key);
    free(c->path);
}

/* --- checks ----------------------------------------------------------------------------------- */

static int check_is_free(struct conversion *c, char **ret_text)
{
    struct lease_seen seen;
    int64_t now;
    TRY(lease_look(&c->common, &seen));
    TRY(c->common.tier->ops->now(c->common.tier, &now));
    if (!seen.exists || now - seen.modified > c->node->options.lease_ns)
        return 0;
    *ret_text = xasprintf("%s is in use by %s: unmount it there first, with 'cairn umount --drain "
                          "remote'",
                          c->common.name, seen.lease.holder);
    return -EBUSY;
}

/* Names belong to earlier states, which several nodes do not keep. */
static int check_has_no_names(struct conversion *c, char **ret_text)
{
    _cleanup_vector_ struct named_list names = {0};
    TRY(named_list(&c->common, &names));
    if (names.count == 0)
        return 0;
    *ret_text = xasprintf("%s has snapshots with names, the first is '%s', and several nodes keep "
                          "none: copy what you need with 'cairn cp --at', and delete them with "
                          "'cairn snapshot delete', on a mount without -o nodes",
                          c->common.name, names.at[0].name);
    return -ENOTEMPTY;
}

static int find_newest_epoch(struct conversion *c, char **ret_text)
{
    _cleanup_vector_ struct numbers packs = {0};
    TRY(prefix_list_numbers(&c->common, "packs", 0, &packs)); /* some are in no head yet */
    c->newest_epoch = max_u64(c->before.epoch, ID_EPOCH(c->before.max_ino));
    for (size_t i = 0; i < packs.count; i++)
        c->newest_epoch = max_u64(c->newest_epoch, ID_EPOCH(packs.at[i]));
    if (c->newest_epoch / NODE_BLOCK <= ENTRIES_MAX)
        return 0;
    *ret_text =
        xasprintf("%s was mounted %llu times, and at most %u can be converted", c->common.name,
                  (unsigned long long)c->newest_epoch, ENTRIES_MAX * NODE_BLOCK);
    return -EOVERFLOW;
}

/* --- steps ------------------------------------------------------------------------------------ */

static int put_marker(const struct conversion *c, struct prefix *prefix)
{
    static const char *const places[] = {"heads/cairn", "cairn"};
    struct prefix_info info = c->node->common.marker;
    uint8_t bytes[PREFIX_INFO_LEN];
    int r = 0;
    info.incompat |= SUPERBLOCK_INCOMPAT_NODES;
    prefix_info_encode(&info, bytes);
    for (size_t i = 0; i < ARRAY_LEN(places) && r == 0; i++)
        r = prefix_put_object(prefix, places[i], bytes, sizeof bytes, false);
    explicit_bzero(&info.key, sizeof info.key);
    explicit_bzero(bytes, sizeof bytes);
    return r;
}

static int put_own(struct conversion *c)
{
    _cleanup_free_ uint8_t *bytes = xcalloc(1, HEAD_LEN_MAX);
    char object[OBJECT_NAME_LEN];
    struct lost_object lost;
    TRY(runs_fetch(&c->common, c->before.runs, c->before.run_count, &lost));
    TRY(put_marker(c, &c->own));
    for (uint32_t i = 0; i < c->before.run_count; i++)
        TRY(run_put(&c->own, &c->before.runs[i]));
    object_name("heads", c->before.number, object);
    return prefix_put_object(&c->own, object, bytes, head_encode(&c->before, bytes), false);
}

static int put_entries(struct conversion *c)
{
    struct writer_entry entry = {.epoch = CONVERTED_NODE, .node = CONVERTED_NODE};
    memcpy(entry.history, c->local.sb.history, sizeof entry.history);
    memcpy(entry.store, c->before.store, sizeof entry.store);
    memcpy(entry.holder, c->before.holder, sizeof entry.holder);
    for (uint64_t number = CONVERTED_NODE; number <= max_u64(c->newest_epoch, CONVERTED_NODE);
         number += NODE_BLOCK) {
        uint8_t bytes[WRITER_ENTRY_LEN];
        char object[OBJECT_NAME_LEN];
        entry.number = number;
        writer_entry_encode(&entry, bytes);
        object_name(WRITERS, number, object);
        TRY(prefix_put_object(&c->common, object, bytes, sizeof bytes, false));
    }
    return 0;
}

/* The node has left, and its feed has no operations: the first head of all nodes contains them. */
static int put_feed(struct conversion *c)
{
    const struct head *head = &c->before;
    _cleanup_free_ struct feed *feed = xcalloc(1, sizeof *feed);
    char object[FEED_NAME_LEN];
    *feed = (struct feed){.epoch = CONVERTED_NODE,
                          .node = CONVERTED_NODE,
                          .flags = FEED_LEAVES,
                          .from = head->cut,
                          .to = head->cut,
                          .lo = c->round + 1,
                          .hi = ROUND_MAX,
                          .time = head->time,
                          .max_ino = head->max_ino,
                          .max_id = head->max_id,
                          .chunks = head->chunks,
                          .stored_bytes = head->stored_bytes,
                          .packs = head->packs,
                          .pack_bytes = head->pack_bytes,
                          .head = head->number,
                          .run_count = head->run_count};
    memcpy(feed->history, head->history, sizeof feed->history);
    memcpy(feed->runs, head->runs, head->run_count * sizeof head->runs[0]);
    size_t len = feed_encoded_len(feed);
    _cleanup_free_ uint8_t *bytes = xmalloc(len);
    feed_encode(feed, bytes);
    hash_parts(&(struct iovec){bytes, len}, 1, c->feed_hash);
    feed_name(ROUND_MAX, CONVERTED_NODE, object);
    return prefix_put_object(&c->common, object, bytes, len, false);
}

/* The rows of names of all runs. */
static int write_names(struct conversion *c, struct run_info *info)
{
    const struct run_list list = {
        .types = VIEW_ROWS_OF_NAMES, .count = c->before.run_count, .runs = c->before.runs};
    struct run_lists lists = {0};
    struct run_file file;
    vector_add(&lists.lists, list);
    int r = run_file_begin(&file, &c->local, c->node->commit->room, info);
    if (r == 0)
        r = run_lists_read(&c->local, &lists, run_file_add, &file);
    if (r == 0)
        r = run_file_finish(&file, info);
    run_file_done(&file);
    vector_free(&lists.lists);
    return r;
}

static void describe_head(const struct conversion *c, struct head *ret)
{
    const struct head *before = &c->before;
    *ret = (struct head){.number = before->number + 1,
                         .incompat = (before->incompat & SUPERBLOCK_INCOMPAT_ENCODINGS) |
                                     SUPERBLOCK_INCOMPAT_NODES,
                         .epoch = max_u64(c->newest_epoch, CONVERTED_NODE),
                         .time = (int64_t)c->round * NODE_ROUND_NS,
                         .cut = head_cut_of(0, c->round),
                         .max_ino = before->max_ino,
                         .max_id = before->max_id,
                         .files = before->files,
                         .logical_bytes = before->logical_bytes,
                         .chunks = before->chunks,
                         .stored_bytes = before->stored_bytes,
                         .packs = before->packs,
                         .pack_bytes = before->pack_bytes,
                         .writer_count = 1};
    ret->writers[0] = (struct head_writer){.epoch = CONVERTED_NODE,
                                           .node = CONVERTED_NODE,
                                           .state = HEAD_WRITER_ENDED,
                                           .merged = before->cut,
                                           .feed_round = ROUND_MAX};
    memcpy(ret->writers[0].feed_hash, c->feed_hash, sizeof c->feed_hash);
    memcpy(ret->history, before->history, sizeof ret->history);
    memcpy(ret->store, c->local.sb.store, sizeof ret->store);
    (void)snprintf(ret->holder, sizeof ret->holder, "%s", c->common.holder);
}

static int put_head(struct conversion *c, char **ret_text)
{
    _cleanup_free_ struct head *head = xmalloc(sizeof *head);
    struct run_info names = {.id = CONVERTED_NODE << 24 | UNION_RUN |
                                   (c->round & (UNION_RUN - 1)) /* of another try: another */};
    describe_head(c, head);
    names.cut = head->cut;
    memcpy(names.history, head->history, sizeof names.history);
    TRY(write_names(c, &names));
    TRY(run_put(&c->common, &names));
    head->runs[0] = names;
    head->run_count = 1;
    int r = head_put(&c->common, head);
    if (r == -ESTALE)
        *ret_text = xasprintf("%s was written by %s just now: unmount it there first, and try "
                              "again",
                              c->common.name, head_writer_text(head));
    return r == -ESTALE ? -EBUSY : r;
}

/* A round that has passed. */
static int choose_round(struct conversion *c)
{
    int64_t now;
    TRY(c->common.tier->ops->now(c->common.tier, &now));
    c->round = (uint64_t)(now / NODE_ROUND_NS) - 1;
    return 0;
}

static int convert_state(struct conversion *c, char **ret_text)
{
    TRY(check_is_free(c, ret_text));
    TRY(check_has_no_names(c, ret_text));
    TRY(prefix_probe_exclusive(&c->common, ret_text));
    TRY(find_newest_epoch(c, ret_text));
    TRY(choose_round(c));
    TRY(put_own(c));
    TRY(put_entries(c));
    TRY(put_feed(c));
    return put_head(c, ret_text);
}

static int convert(struct conversion *c, char **ret_text)
{
    int r = heads_newest(&c->common, 0, &c->before);
    if (r == -ENOENT) {
        *ret_text =
            xasprintf("%s has no state yet: give an empty one, without convert", c->common.name);
        return -EINVAL;
    }
    TRY(r);
    TRY(head_has_nodes(&c->before) ? 0 : convert_state(c, ret_text));
    TRY(put_marker(c, &c->common));
    log_info("nodes: %s is one of several nodes now; what was written so far is node %u's",
             c->common.name, CONVERTED_NODE);
    return prefix_meet(&c->node->common);
}

int node_convert(struct node *node, char **ret_text)
{
    struct conversion *c = xcalloc(1, sizeof *c);
    int r = conversion_begin(c, node);
    if (r == 0)
        r = convert(c, ret_text);
    if (r < 0 && !*ret_text)
        *ret_text = xasprintf("%s cannot be converted: %s", node->common.name,
                              *cause_text() ? cause_text() : strerror(-r));
    conversion_done(c);
    free(c);
    return r;
}
