// SPDX-License-Identifier: Apache-2.0
#include <stdio.h>
#include <sys/random.h>

#include "base/cause.h"
#include "base/clock.h"
#include "base/log.h"
#include "nodes/merger.h"
#include "nodes/node_internal.h"
#include "nodes/node_tier.h"
#include "nodes/stays.h"

#define TRIES 16
/* attempts; each fails only if another of the concurrently joining stores got its place */
#define PLACE_TRIES 64
#define TOLD_MAX (64u * MIB) /* for feeds that wait to be merged; others are read again */
#define TRIES_MAX 1024
#define RESERVE_AGAIN_NS (60ll * SECOND_NS)

/* --- life ------------------------------------------------------------------------------------- */

static void note_trouble(void *arg, int error, const char *text)
{
    (void)error;
    struct node *node = arg;
    LOCK_SCOPE(&node->feeder.lock);
    if (strcmp(node->feeder.trouble, text) != 0)
        log_warn("nodes: %s", text);
    (void)snprintf(node->feeder.trouble, sizeof node->feeder.trouble, "%s", text);
}

static bool is_own_epoch(uint64_t epoch, void *arg)
{
    return node_has_epoch(arg, epoch);
}

struct node *node_new(struct commit *commit, struct local *local,
                      const struct remote_options *options)
{
    struct node *node = xcalloc(1, sizeof *node);
    const struct prefix_user user = {node, node_pause, note_trouble, NULL,
                                     NULL}; /* feeds are small */
    node->opened_at = clock_monotonic_ns();
    node->commit = commit;
    node->local = local;
    node->options = *options;
    node->own = node_tier_new(options->tier, is_own_epoch, node);
    feeder_init(&node->feeder);
    roll_call_init(node);
    news_init(&node->news);
    mutex_init(&node->blocks_lock, LOCK_LEAF);
    prefix_init(&node->common, local, commit->room, &node->options, &user);
    looker_init(node);
    timekeeper_init(node);
    return node;
}

void node_free(struct node *node)
{
    if (!node)
        return;
    roll_call_done(node);
    looker_done(node);
    merger_free(node->merger);
    timekeeper_done(node);
    prefix_done(&node->common);
    feeder_done(&node->feeder);
    news_done(&node->news);
    mutex_done(&node->blocks_lock);
    vector_free(&node->file.blocks);
    node->options.tier->ops->close(node->options.tier);
    free(node);
}

void node_stop(struct node *node)
{
    looker_stop(node);
    if (node->merger)
        merger_stop(node->merger);
    LOCK_SCOPE(&node->feeder.lock);
    node->feeder.stops = true;
    (void)pthread_cond_broadcast(&node->feeder.changed);
}

void node_let_leave(struct node *node)
{
    atomic_store(&node->may_leave, true);
}

uint64_t node_memory(const struct node *node)
{
    return node ? UNION_CACHE_BYTES + TOLD_MAX + 3 * FEED_LEN_MAX : 0;
}

static void describe_entry(const struct node *node, uint64_t number, struct writer_entry *ret)
{
    const struct node_file *file = &node->file;
    *ret =
        (struct writer_entry){.number = number,
                              .epoch = file->stay ? file->stay : number,
                              .node = (uint32_t)(file->blocks.count ? file->blocks.at[0] : number),
                              .lease_ms = (uint32_t)(node->options.lease_ns / MS_NS)};
    memcpy(ret->history, node->common.marker.history, sizeof ret->history);
    memcpy(ret->store, node->store, sizeof ret->store);
    (void)snprintf(ret->holder, sizeof ret->holder, "%s", node->common.holder);
}

int node_start(struct node *node)
{
    _cleanup_free_ char *path = xasprintf("%s/union", node->local->path);
    const struct merger_options options = {.path = path,
                                           .sb = &node->local->sb,
                                           .epoch = node->local->epoch,
                                           .room = node->commit->room,
                                           .remote = &node->options,
                                           .round_ns = NODE_ROUND_NS,
                                           .time_passed = node_time_passed,
                                           .told_bytes_max = TOLD_MAX,
                                           .on_head = node_note_head,
                                           .is_active = node_is_active,
                                           .arg = node};
    struct writer_entry entry;
    node->merger = merger_new(&options);
    describe_entry(node, node->file.blocks.at[node->file.blocks.count - 1], &entry);
    memcpy(entry.history, node->local->sb.history, sizeof entry.history);
    TRY(timekeeper_start(node));
    TRY(looker_start(node, &entry));
    return merger_start(node->merger);
}

void node_end_merging(struct node *node)
{
    if (node->merger)
        merger_end(node->merger);
}

void node_merger_status(struct node *node, struct merger_status *ret)
{
    *ret = (struct merger_status){0};
    if (node->merger)
        merger_status(node->merger, ret);
}

struct tier *node_tier(struct node *node)
{
    return node->own;
}

void node_trouble(struct node *node, char *buf, size_t size)
{
    node_clock_trouble(node, buf, size);
    if (*buf)
        return;
    LOCK_SCOPE(&node->feeder.lock);
    (void)snprintf(buf, size, "%s", node->feeder.trouble);
}

static bool is_set(const uint8_t id[16])
{
    static const uint8_t none[16];
    return memcmp(id, none, sizeof none) != 0;
}

/* --- the common prefix ------------------------------------------------------------------------ */

static bool is_of_nodes(const struct prefix *prefix)
{
    return prefix->marker.incompat & SUPERBLOCK_INCOMPAT_NODES;
}

/* Makes a new history, for a prefix that has none yet. */
static int make_identity(struct superblock *sb)
{
    uint8_t hash[HASH_LEN];
    if (getrandom(sb->history, sizeof sb->history, 0) != (ssize_t)sizeof sb->history ||
        getrandom(&sb->key, sizeof sb->key, 0) != (ssize_t)sizeof sb->key)
        return -EIO;
    hash_parts(&(struct iovec){&sb->key, sizeof sb->key}, 1, hash);
    memcpy(sb->key_id, hash, sizeof sb->key_id);
    sb->incompat |= SUPERBLOCK_INCOMPAT_NODES;
    return 0;
}

/* A store without a superblock creates the prefix. -EAGAIN: another one may have created it. */
static int make_common(struct node *node, char **ret_text)
{
    TRY(prefix_look(&node->common, false, ret_text));
    if (node->common.has_marker)
        return 0;
    check(!is_set(node->local->sb.store));
    TRY(make_identity(&node->local->sb));
    int r = prefix_prepare(&node->common, ret_text);
    explicit_bzero(&node->local->sb, sizeof node->local->sb);
    return r;
}

static int meet_one_writer(struct node *node, char **ret_text)
{
    if (node->options.converts && node->file.blocks.count == 0)
        return node_convert(node, ret_text);
    *ret_text = xasprintf("%s was begun by a mount without -o nodes, and takes one writer: give an "
                          "empty one; or unmount it there, and mount an empty STORE with -o "
                          "nodes,convert",
                          node->common.name);
    return -EINVAL;
}

/* A node that is missing in a list of writers is missing in the union, though others rely on it. */
static int check_lists(const struct node *node, char **ret_text)
{
    struct tier *tier = node->options.tier;
    struct tier_place place;
    if (!tier->ops->place || tier->ops->place(tier, &place) < 0 || !place.lists_may_lag)
        return 0;
    *ret_text = xasprintf("%s is on %s, whose client remembers for a while what a directory lists, "
                          "so readers could see torn states: mount that with the options noac and "
                          "lookupcache=none on each node",
                          node->common.name, place.shown);
    return -EINVAL;
}

/* Reads the marker, or creates the prefix. If another node creates it at the same time, this one
 * uses that node's history. */
static int meet_common(struct node *node, char **ret_text)
{
    TRY(check_lists(node, ret_text));
    int r = prefix_meet(&node->common);
    if (r == -ENOENT && node->file.blocks.count) {
        *ret_text = xasprintf("%s has lost its marker, the object 'cairn'; restore it, or its copy "
                              "heads/cairn, from a copy or an older version",
                              node->common.name);
        return -EBUSY;
    }
    for (int i = 0; i < TRIES && (r == -ENOENT || r == -EAGAIN); i++)
        r = make_common(node, ret_text);
    if (r == 0 && !is_of_nodes(&node->common))
        r = meet_one_writer(node, ret_text);
    if (r == 0 && node->options.converts && node->options.replaces == 0)
        r = node_converted_place(node, &node->options.replaces);
    if (r < 0 && !*ret_text)
        *ret_text = xasprintf("%s cannot be used (%s): a node that joins needs it",
                              node->common.name, *cause_text() ? cause_text() : strerror(-r));
    return r;
}

/* --- numbers ---------------------------------------------------------------------------------- */

static bool is_same_entry(const struct writer_entry *a, const struct writer_entry *b)
{
    return a->number == b->number && a->epoch == b->epoch && a->node == b->node &&
           memcmp(a->store, b->store, sizeof a->store) == 0;
}

/* 0: the number is ours now; -EEXIST: another store's. An earlier attempt may have succeeded, or an
 * earlier daemon may have created it. */
static int take_number(struct node *node, uint64_t number)
{
    char object[OBJECT_NAME_LEN];
    uint8_t bytes[WRITER_ENTRY_LEN];
    struct writer_entry entry, found;
    object_name(WRITERS, number, object);
    describe_entry(node, number, &entry);
    writer_entry_encode(&entry, bytes);
    int r = prefix_put_object(&node->common, object, bytes, sizeof bytes, true);
    if (r != -EEXIST)
        return r;
    TRY(writer_entry_read(&node->common, number, &found));
    return is_same_entry(&found, &entry) ? 0 : -EEXIST;
}

/* Written to the file before the prefix: an entry unknown to any store would hold the union back
 * for ever. */
static int try_number(struct node *node, uint64_t number)
{
    node->file.wanted = number;
    TRY(node_file_write(node));
    TRY(take_number(node, number));
    mutex_lock(&node->blocks_lock);
    vector_add(&node->file.blocks, number);
    mutex_unlock(&node->blocks_lock);
    node->file.wanted = 0;
    if (node->file.stay == 0)
        node->file.stay = number;
    return node_file_write(node);
}

static int find_number(struct node *node, char **ret_text)
{
    _cleanup_vector_ struct numbers taken = {0};
    TRY(prefix_list_numbers(&node->common, WRITERS, 0, &taken));
    uint64_t newest = taken.count ? taken.at[taken.count - 1] : 0;
    uint64_t number = (newest / NODE_BLOCK + 1) * NODE_BLOCK;
    int r = node->file.wanted ? try_number(node, node->file.wanted) : -EEXIST;
    for (int i = 0; r == -EEXIST && i < TRIES_MAX; i++, number += NODE_BLOCK) {
        if (number + NODE_BLOCK > EPOCH_LAST) {
            *ret_text = xasprintf("%s has no numbers left for more nodes", node->common.name);
            return -EOVERFLOW;
        }
        r = try_number(node, number);
    }
    return r;
}

/* Reserves the next number that no store has. */
static int reserve_block(struct node *node, char **ret_text)
{
    TRY(meet_common(node, ret_text));
    int r = node_check_place(node, ret_text);
    if (r == 0 && node->file.stay == 0)
        r = node_check_copies(node, ret_text);
    if (r == 0)
        r = find_number(node, ret_text);
    if (r < 0 && !*ret_text)
        *ret_text = xasprintf("no number can be reserved in %s, or noted in %s/node: %s",
                              node->common.name, node->local->path, strerror(-r));
    return r;
}

int node_begin_stay(struct node *node, char **ret_text)
{
    return reserve_block(node, ret_text);
}

void node_note_lost(struct node *node)
{
    node->is_lost = node->goes_on;
}

void node_reserve_ahead(struct node *node)
{
    const struct numbers *blocks = &node->file.blocks;
    int64_t now = clock_monotonic_ns();
    if (now < node->reserve_at ||
        node->local->epoch < blocks->at[blocks->count - 1] + NODE_BLOCK / 2)
        return;
    char *text = NULL;
    node->reserve_at = now + RESERVE_AGAIN_NS;
    if (reserve_block(node, &text) < 0)
        log_debug("nodes: %s", text);
    free(text);
}

/* Others may know already that the stay is over: nothing more is numbered in it. */
static int end_stay(struct node *node, char **ret_text)
{
    int r = node_end_stay(node);
    if (r < 0)
        *ret_text =
            xasprintf("%s: the last mount of this node was leaving %s when it ended, which must be "
                      "reached now: %s",
                      node->local->path, node->common.name, strerror(-r));
    return r;
}

static int try_place(struct node *node, char **ret_text)
{
    const struct node_file *file = &node->file;
    if (file->blocks.count == 0 && !file->wanted)
        TRY(node_choose_place(node, ret_text));
    TRY(file->stay == 0 ? reserve_block(node, ret_text) : 0);
    return file->replaces ? node_check_place(node, ret_text) : node_check_room(node);
}

/* A new store joins with a number of its own, or takes the place of a node that is over. Others may
 * do the same concurrently. */
static int find_place(struct node *node, char **ret_text)
{
    int r = -ESTALE;
    for (int i = 0; i < PLACE_TRIES && r == -ESTALE; i++) {
        free(*ret_text);
        *ret_text = NULL;
        r = try_place(node, ret_text);
        if (r == -ESTALE)
            TRY(node_give_up_place(node));
    }
    if (r < 0 && !*ret_text)
        *ret_text = xasprintf("no place among the nodes of %s could be found: %s",
                              node->common.name, strerror(-r));
    return r;
}

/* Determines its number: its own, or that of the node whose place it takes. */
static int settle_place(struct node *node, bool is_new, char **ret_text)
{
    const struct numbers *blocks = &node->file.blocks;
    uint64_t wanted = node->options.replaces;
    if (wanted == 0)
        return is_new ? find_place(node, ret_text) : 0;
    if (blocks->count && blocks->at[0] == wanted)
        return 0;
    if (is_new && blocks->count == 0 && !node->file.wanted)
        return node_take_place(node, ret_text);
    *ret_text =
        xasprintf("%s is a node already: option replaces is for an empty STORE", node->local->path);
    return -EINVAL;
}

int node_join(struct node *node, bool is_new, char **ret_text)
{
    int r = node_file_read(node);
    if (r == -ENOENT && !is_new) {
        *ret_text = xasprintf("%s was made without -o nodes, or has lost its file 'node'; a node "
                              "that joins needs an empty STORE",
                              node->local->path);
        return -EINVAL;
    }
    if (r < 0 && r != -ENOENT) {
        *ret_text = xasprintf("%s/node cannot be used: %s; restore it from a copy, or join with an "
                              "empty STORE",
                              node->local->path, strerror(-r));
        return r;
    }
    if (!is_set(node->store) &&
        getrandom(node->store, sizeof node->store, 0) != (ssize_t)sizeof node->store)
        return -EIO;
    if (is_new)
        TRY(meet_common(node, ret_text));
    if (node->file.leaves)
        TRY(end_stay(node, ret_text));
    node->is_new = is_new;
    node->goes_on = node->file.stay != 0;
    TRY(settle_place(node, is_new, ret_text));
    if (node->file.stay == 0)
        TRY(reserve_block(node, ret_text));
    TRY(node->file.replaces ? node_check_place(node, ret_text) : 0);
    node_tier_set_node(node->own, node->file.blocks.at[0]);
    return 0;
}

void node_give_identity(const struct node *node, struct superblock *sb)
{
    memcpy(sb->store, node->store, sizeof sb->store);
    memcpy(sb->history, node->common.marker.history, sizeof sb->history);
    sb->key = node->common.marker.key;
    sb->incompat |= SUPERBLOCK_INCOMPAT_NODES;
    sb->node = (uint32_t)node->file.blocks.at[0];
}

int node_check_superblock(const struct node *node, char **ret_text)
{
    const struct superblock *sb = &node->local->sb;
    if (sb->incompat & SUPERBLOCK_INCOMPAT_NODES && sb->node == node->file.blocks.at[0])
        return 0;
    *ret_text = xasprintf("%s/node is not of this store: it is that of node %llx",
                          node->local->path, (unsigned long long)node->file.blocks.at[0]);
    return -EINVAL;
}

int node_next_epoch(struct node *node, uint64_t last, uint64_t *ret_epoch, char **ret_text)
{
    last = max_u64(last, node->file.used);
    for (int i = 0; i < 2; i++) {
        for (size_t b = 0; b < node->file.blocks.count; b++) {
            uint64_t block = node->file.blocks.at[b];
            *ret_epoch = max_u64(last + 1, max_u64(block, node->file.stay));
            if (*ret_epoch < block + NODE_BLOCK)
                return 0;
        }
        TRY(reserve_block(node, ret_text));
    }
    *ret_text = xasprintf("%s: its numbers are beyond those that it reserved in %s",
                          node->local->path, node->common.name);
    return -EOVERFLOW;
}
