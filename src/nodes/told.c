// SPDX-License-Identifier: Apache-2.0
#include "nodes/told.h"

#include "base/log.h"
#include "base/pool.h"
#include "format/hint.h"

#define INO_MAX ((1ull << 48) - 1)

struct reading {
    uint8_t *bytes;
    size_t len;
    struct feed *feed;
};

static int take_feed(const void *buf, size_t len, void *arg)
{
    struct reading *reading = arg;
    free(reading->bytes);
    reading->bytes = xmalloc_large(len);
    reading->len = len;
    memcpy(reading->bytes, buf, len);
    return feed_decode(reading->bytes, len, reading->feed);
}

static int read_feed(struct prefix *prefix, uint64_t round, uint64_t epoch, struct feed *ret,
                     uint8_t **ret_bytes, size_t *ret_len)
{
    struct reading reading = {.feed = ret};
    char object[FEED_NAME_LEN];
    feed_name(round, epoch, object);
    int r = prefix_read_object(prefix, object, FEED_LEN_MAX, take_feed, &reading);
    if (r < 0)
        free(reading.bytes);
    *ret_bytes = r < 0 ? NULL : reading.bytes;
    *ret_len = reading.len;
    return r;
}

/* Numbers that no store can assign would make the next head unreadable. */
static bool numbers_are_possible(const struct feed *feed)
{
    return feed->epoch < EPOCH_LAST && feed->max_ino <= INO_MAX &&
           ID_EPOCH(feed->max_ino) < EPOCH_LAST && feed->max_id <= INO_MAX &&
           ID_EPOCH(feed->max_id) < EPOCH_LAST && feed->generation <= GENERATION_MAX;
}

static bool record_is_possible(const struct feed *feed, const struct record *rec)
{
    if (rec->time < 0)
        return false;
    return !record_makes_inode(rec) || (rec->ino > 0 && rec->ino <= feed->max_ino);
}

static bool is_possible(const struct prefix *prefix, const struct feed *feed, uint64_t round,
                        uint64_t epoch, bool *ret_has_hints)
{
    struct record rec;
    size_t at = 0;
    bool is = feed->hi == round && feed->epoch == epoch && numbers_are_possible(feed) &&
              memcmp(feed->history, prefix->local->sb.history, sizeof feed->history) == 0;
    *ret_has_hints = false;
    while (is && feed_next(feed, &at, &rec)) {
        is = record_is_possible(feed, &rec);
        *ret_has_hints = *ret_has_hints || record_is_hint(&rec);
    }
    return is;
}

static void note_feed(const struct feed *feed, struct told *ret)
{
    *ret = (struct told){.epoch = feed->epoch,
                         .node = feed->node,
                         .flags = feed->flags,
                         .generation = feed->generation,
                         .from = feed->from,
                         .to = feed->to,
                         .lo = feed->lo,
                         .hi = feed->hi,
                         .record_count = feed->record_count,
                         .head = feed->head,
                         .totals = {.chunks = feed->chunks,
                                    .stored_bytes = feed->stored_bytes,
                                    .packs = feed->packs,
                                    .pack_bytes = feed->pack_bytes,
                                    .max_ino = feed->max_ino,
                                    .max_id = feed->max_id}};
    memcpy(ret->previous, feed->previous, sizeof ret->previous);
}

static void hash_feed(const uint8_t *bytes, size_t len, uint8_t ret[HASH_LEN])
{
    const struct iovec iov = {(void *)bytes, len};
    hash_parts(&iov, 1, ret);
}

int told_read(struct prefix *prefix, uint64_t round, uint64_t epoch, struct told *ret)
{
    _cleanup_free_ struct feed *feed = xmalloc(sizeof *feed);
    uint8_t *bytes;
    size_t len;
    bool has_hints;
    TRY(read_feed(prefix, round, epoch, feed, &bytes, &len));
    if (!is_possible(prefix, feed, round, epoch, &has_hints)) {
        free(bytes);
        return -EUCLEAN;
    }
    note_feed(feed, ret);
    ret->has_hints = has_hints;
    hash_feed(bytes, len, ret->hash);
    ret->bytes = bytes;
    ret->len = len;
    return 0;
}

struct told_job {
    struct prefix *prefix;
    struct told_wish *wish;
};

static void read_wish(void *arg)
{
    const struct told_job *job = arg;
    struct told_wish *wish = job->wish;
    wish->told = (struct told){0};
    wish->result = told_read(job->prefix, wish->round, wish->epoch, &wish->told);
}

void told_read_all(struct prefix *prefix, struct told_wish *wishes, size_t count)
{
    struct told_job jobs[TOLD_AT_ONCE];
    struct pool *pool = NULL;
    check(count <= TOLD_AT_ONCE);
    if (count > 1 &&
        pool_new("cairn-feeds", (unsigned)count, (unsigned)count, NULL, NULL, &pool) < 0)
        log_debug("nodes: feeds are read one after the other");
    for (size_t i = 0; i < count; i++) {
        jobs[i] = (struct told_job){prefix, &wishes[i]};
        if (pool)
            pool_submit(pool, read_wish, &jobs[i]);
        else
            read_wish(&jobs[i]);
    }
    pool_free(pool);
}

static int read_again(struct prefix *prefix, struct told *told, struct feed *ret_feed)
{
    uint8_t hash[HASH_LEN];
    TRY(read_feed(prefix, told->hi, told->epoch, ret_feed, &told->bytes, &told->len));
    hash_feed(told->bytes, told->len, hash);
    if (memcmp(hash, told->hash, sizeof hash) == 0)
        return 0;
    told_forget(told);
    return -EUCLEAN;
}

int told_open(struct prefix *prefix, struct told *told, struct feed *ret_feed)
{
    return told->bytes ? feed_decode(told->bytes, told->len, ret_feed)
                       : read_again(prefix, told, ret_feed);
}

void told_forget(struct told *told)
{
    free(told->bytes);
    told->bytes = NULL;
}
