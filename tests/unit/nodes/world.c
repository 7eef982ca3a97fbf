// SPDX-License-Identifier: Apache-2.0
#include "world.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>

#include "../expect.h"
#include "../stopped_time.h"
#include "base/clock.h"
#include "base/io.h"
#include "codec/hash.h"
#include "commit/run_file.h"
#include "format/feed.h"

struct odd odd;

void world_stamp(const char *path)
{
    int64_t ns = clock_realtime_ns();
    struct timespec now = {.tv_sec = ns / SECOND_NS, .tv_nsec = ns % SECOND_NS};
    assert_i64(utimensat(AT_FDCWD, path, (struct timespec[]){now, now}, 0), 0, "%s", path);
}

static void stamp_object(const struct world *w, const char *object)
{
    _cleanup_free_ char *path = world_path(w, "%s", object);
    world_stamp(path);
}

/* --- the mergers' tier ------------------------------------------------------------------------ */

struct odd_tier {
    struct tier tier;
    struct tier_ops ops;
    struct tier *below;
    const struct world *world;
};

static struct tier *below(struct tier *tier)
{
    return container_of(tier, struct odd_tier, tier)->below;
}

/* The result of a put. */
static int stamped(struct tier *tier, const char *object, int r)
{
    if (r == 0)
        stamp_object(container_of(tier, struct odd_tier, tier)->world, object);
    return r;
}

static int odd_put(struct tier *tier, const char *object, const void *buf, size_t len)
{
    return stamped(tier, object, below(tier)->ops->put(below(tier), object, buf, len));
}

static int odd_put_from(struct tier *tier, const char *object, struct tier_source *source)
{
    return stamped(tier, object, below(tier)->ops->put_from(below(tier), object, source));
}

static int odd_put_new(struct tier *tier, const char *object, const void *buf, size_t len)
{
    void (*before)(void *arg) = odd.before_head;
    bool is_head = strncmp(object, "heads/", 6) == 0;
    odd.before_head = is_head ? NULL : before;
    if (is_head && before)
        before(odd.arg);
    if (is_head && odd.fails_heads)
        return -EACCES;
    int r = stamped(tier, object, below(tier)->ops->put_new(below(tier), object, buf, len));
    int lost = is_head ? odd.lost_answer : 0;
    odd.lost_answer = is_head ? 0 : odd.lost_answer;
    return lost ? lost : r;
}

static int odd_get_range(struct tier *tier, const char *object, uint64_t offset, void *buf,
                         size_t len)
{
    if (strncmp(object, "feeds/", 6) == 0)
        time_pass(odd.slow_ns);
    return below(tier)->ops->get_range(below(tier), object, offset, buf, len);
}

static int odd_stat(struct tier *tier, const char *object, uint64_t *ret_len)
{
    return below(tier)->ops->stat(below(tier), object, ret_len);
}

struct listing {
    int (*fn)(const struct tier_object *object, void *arg);
    void *arg;
};

static int give_unless_hidden(const struct tier_object *object, void *arg)
{
    const struct listing *listing = arg;
    bool is_hidden = odd.hidden && strcmp(object->name, odd.hidden) == 0;
    return is_hidden ? 0 : listing->fn(object, listing->arg);
}

static int odd_list(struct tier *tier, const char *directory, const char *after,
                    int (*fn)(const struct tier_object *object, void *arg), void *arg)
{
    struct listing listing = {fn, arg};
    return below(tier)->ops->list(below(tier), directory, after, give_unless_hidden, &listing);
}

static int odd_remove(struct tier *tier, const char *object)
{
    return below(tier)->ops->remove(below(tier), object);
}

static int odd_sync(struct tier *tier)
{
    void (*before)(void *arg) = odd.before_sync;
    odd.before_sync = NULL;
    if (before)
        before(odd.arg);
    return below(tier)->ops->sync(below(tier));
}

static int odd_now(struct tier *tier, int64_t *ret_ns)
{
    (void)tier;
    *ret_ns = clock_realtime_ns() + odd.ahead;
    return 0;
}

static struct odd_tier *odd_new(const struct world *w)
{
    struct odd_tier *odd_tier = xcalloc(1, sizeof *odd_tier);
    odd_tier->ops = (struct tier_ops){.name = "odd",
                                      .put = odd_put,
                                      .put_from = odd_put_from,
                                      .put_new = odd_put_new,
                                      .get_range = odd_get_range,
                                      .stat = odd_stat,
                                      .list = odd_list,
                                      .remove = odd_remove,
                                      .sync = odd_sync,
                                      .now = odd_now};
    odd_tier->tier.ops = &odd_tier->ops;
    odd_tier->below = w->tier;
    odd_tier->world = w;
    return odd_tier;
}

/* --- the prefix ------------------------------------------------------------------------------- */

void world_open(struct world *w)
{
    char *error = NULL;
    memset(w, 0, sizeof *w);
    odd = (struct odd){0};
    strcpy(w->path, "/tmp/cairn-world-XXXXXX");
    cr_assert_not_null(mkdtemp(w->path));
    assert_i64(dir_tier_open(&(struct dir_options){.path = w->path}, &w->tier, &error), 0, "%s",
               error);
    w->sb.created = T0;
    memcpy(w->sb.history, "common history..", 16);
    w->sb.incompat = SUPERBLOCK_INCOMPAT_NODES;
    w->round = FIRST_ROUND;
    w->time = (int64_t)w->round * ROUND_NS + CLOCK_ERROR_NS;
    for (unsigned i = 0; i < WORLD_NODES; i++)
        w->nodes[i].world = w;
}

static void leave_view(struct world_node *n)
{
    if (n->is_there)
        fixture_close(&n->peer.own);
    n->is_there = false;
}

void world_close(struct world *w)
{
    for (unsigned i = 0; i < WORLD_NODES; i++) {
        leave_view(&w->nodes[i]);
        vector_free(&w->nodes[i].pending);
    }
    for (size_t i = 0; i < w->ops.count; i++)
        free(w->ops.at[i].bytes);
    vector_free(&w->ops);
    if (w->remote.tier)
        free(container_of(w->remote.tier, struct odd_tier, tier));
    w->tier->ops->close(w->tier);
    remove_tree(w->path);
}

char *world_path(const struct world *w, const char *format, ...)
{
    char *object;
    va_list ap;
    va_start(ap, format);
    cr_assert_geq(vasprintf(&object, format, ap), 0);
    va_end(ap);
    char *path = xasprintf("%s/%s", w->path, object);
    free(object);
    return path;
}

bool world_has(const struct world *w, const char *object)
{
    uint64_t len;
    return w->tier->ops->stat(w->tier, object, &len) == 0;
}

static int count_object(const struct tier_object *object, void *arg)
{
    (void)object;
    ++*(size_t *)arg;
    return 0;
}

size_t world_count(const struct world *w, const char *directory)
{
    size_t count = 0;
    assert_i64(w->tier->ops->list(w->tier, directory, NULL, count_object, &count), 0);
    return count;
}

static void put_new(struct world *w, const char *object, const void *bytes, size_t len)
{
    uint8_t *aligned = aligned_alloc(4096, align_up(len, 4096));
    memcpy(aligned, bytes, len);
    assert_i64(w->tier->ops->put_new(w->tier, object, aligned, len), 0, "%s", object);
    stamp_object(w, object);
    free(aligned);
}

/* --- nodes ------------------------------------------------------------------------------------ */

static uint64_t number_of(const struct world_node *n)
{
    return (n->peer.node.epoch << SEQ_EPOCH_SHIFT) + n->peer.node.ops;
}

static void note_op(struct peer *peer, const struct record *told)
{
    struct world_node *n = peer->arg;
    struct record rec = *told;
    peer->node.ops++;
    rec.seq = number_of(n);
    rec.time = n->world->time += 1000;
    size_t len = record_encoded_len(&rec);
    struct world_op op = {rec.time, peer->node.epoch, rec.seq, n->node, xmalloc(len), len};
    record_encode(&rec, op.bytes);
    memcpy(bytes_extend(&n->pending, len), op.bytes, len);
    vector_add(&n->world->ops, op);
}

void world_join(struct world *w, unsigned i)
{
    struct world_node *n = &w->nodes[i];
    uint8_t bytes[WRITER_ENTRY_LEN];
    char object[OBJECT_NAME_LEN];
    uint64_t number = 16 * ++w->numbers;
    struct writer_entry entry = {.number = number, .epoch = number};
    if (n->joined++ == 0)
        n->node = (uint32_t)number;
    entry.node = n->node;
    cr_assert_lt(w->numbers, WORLD_NUMBERS);
    w->owners[w->numbers] = n->node;
    memcpy(entry.history, w->sb.history, sizeof entry.history);
    memset(entry.store, (int)(100 + i), sizeof entry.store);
    (void)snprintf(entry.holder, sizeof entry.holder, "node %u", i);
    writer_entry_encode(&entry, bytes);
    object_name("writers", number, object);
    put_new(w, object, bytes, sizeof bytes);
    if (n->has_left) /* its store goes on: with what it had */
        n->peer.node.epoch = number;
    else
        peer_open(&n->peer, number);
    n->peer.node.ops = 0;
    n->peer.tell = note_op;
    n->peer.arg = n;
    n->from = number_of(n);
    n->hi = 0;
    memset(n->hash, 0, sizeof n->hash);
    memset(n->noted, 0, sizeof n->noted);
    n->is_there = true;
    n->has_left = false;
}

void world_work(struct world *w, struct seeded *seeded, unsigned steps)
{
    for (unsigned i = 0; i < steps; i++) {
        struct world_node *n = &w->nodes[seeded_below(seeded, WORLD_NODES)];
        if (n->is_there && !n->has_left && !n->is_still && n->peer.count < PEER_INOS_MAX)
            peer_step(&n->peer, seeded);
    }
}

void world_tick(struct world *w)
{
    w->round++;
    cr_assert_lt(w->round - FIRST_ROUND, (unsigned)WORLD_ROUNDS);
    w->time = (int64_t)w->round * ROUND_NS + CLOCK_ERROR_NS;
    for (unsigned i = 0; i < WORLD_NODES; i++)
        if (w->nodes[i].is_there)
            w->nodes[i].noted[w->round - FIRST_ROUND] = number_of(&w->nodes[i]);
}

/* The records of the first operations that are pending, up to number `to`. */
static size_t pending_up_to(const struct world_node *n, uint64_t to, uint32_t *ret_count)
{
    size_t at = 0, len;
    struct record rec;
    for (*ret_count = 0; at < n->pending.count; at += len, ++*ret_count) {
        assert_i64(record_decode(n->pending.at + at, n->pending.count - at, &rec, &len), 0);
        if (rec.seq > to)
            break;
    }
    return at;
}

static void put_feed(struct world *w, struct world_node *n, uint64_t lo, uint64_t hi, uint64_t to)
{
    struct feed *feed = xcalloc(1, sizeof *feed);
    char object[FEED_NAME_LEN];
    feed->epoch = n->peer.node.epoch;
    feed->node = n->node;
    feed->generation = n->generation;
    feed->flags = hi == ROUND_MAX ? FEED_LEAVES : 0;
    feed->from = n->from;
    feed->to = to;
    feed->lo = lo;
    feed->hi = hi;
    feed->max_ino = n->peer.node.epoch << 24 | n->peer.node.inos;
    feed->max_id = n->peer.node.epoch << 24;
    feed->chunks = to & ((1ull << SEQ_EPOCH_SHIFT) - 1);
    feed->packs = 1;
    feed->records_len = pending_up_to(n, to, &feed->record_count);
    feed->records = n->pending.at;
    memcpy(feed->history, w->sb.history, sizeof feed->history);
    memcpy(feed->previous, n->hash, sizeof feed->previous);
    const uint64_t told = feed->records_len;
    if (n->forge)
        n->forge(feed);
    n->forge = NULL;
    size_t len = feed_encoded_len(feed);
    _cleanup_free_ uint8_t *bytes = xmalloc(len);
    feed_encode(feed, bytes);
    feed_name(hi, n->peer.node.epoch, object);
    put_new(w, object, bytes, len);
    hash_parts(&(struct iovec){bytes, len}, 1, n->hash);
    n->pending.count -= told;
    if (told > 0)
        memmove(n->pending.at, n->pending.at + told, n->pending.count);
    n->from = to;
    n->hi = hi;
    free(feed);
}

void world_tell(struct world *w, unsigned i, uint64_t round)
{
    struct world_node *n = &w->nodes[i];
    uint64_t to = n->noted[round - FIRST_ROUND], lo = round;
    cr_assert(to != 0 && round > n->hi && !n->has_left);
    while (lo - 1 > n->hi && lo > FIRST_ROUND && n->noted[lo - 1 - FIRST_ROUND] == to)
        lo--;
    put_feed(w, n, lo, round, to);
}

void world_tell_round(struct world *w)
{
    world_tick(w);
    for (unsigned i = 0; i < WORLD_NODES; i++)
        if (w->nodes[i].is_there && !w->nodes[i].has_left)
            world_tell(w, i, w->round);
}

void world_leave(struct world *w, unsigned i)
{
    struct world_node *n = &w->nodes[i];
    put_feed(w, n, w->round + 1, ROUND_MAX, number_of(n));
    n->has_left = true;
}

void world_die(struct world *w, unsigned i)
{
    leave_view(&w->nodes[i]);
    w->nodes[i].is_dead = true;
}

/* --- mergers ---------------------------------------------------------------------------------- */

int64_t world_now(const struct world *w)
{
    return (int64_t)w->round * ROUND_NS + CLOCK_ERROR_NS + 1000000;
}

struct merger *world_merger(struct world *w, unsigned store, int64_t lease_ns, int64_t grace_ns)
{
    _cleanup_free_ char *path = world_path(w, "union-%u", store);
    struct superblock sb = w->sb;
    memset(sb.store, (int)store, sizeof sb.store);
    if (!w->remote.tier)
        w->remote = (struct remote_options){
            .name = "dir:/world", .tier = &odd_new(w)->tier, .holder = "merger"};
    w->remote.lease_ns = lease_ns;
    w->remote.gc_grace_ns = grace_ns;
    return merger_new(&(struct merger_options){.path = path,
                                               .sb = &sb,
                                               .epoch = 16 * ++w->numbers,
                                               .remote = &w->remote,
                                               .told_bytes_max = w->keeps_nothing ? 1 : 0,
                                               .round_ns = ROUND_NS,
                                               .on_head = w->on_head});
}

void world_turn(struct world *w, struct merger *merger)
{
    struct merger_status status;
    assert_i64(merger_turn(merger, world_now(w)), 0);
    merger_status(merger, &status);
    merger_status_done(&status);
    assert_u64(status.counts.impossible, 0);
}
