// SPDX-License-Identifier: Apache-2.0
/*   OFFSET SIZE
 *        0    8  "CAIRNFED"
 *        8    4  version
 *       12    4  features that a reader must know; none yet
 *       16   16  history
 *       32    8  epoch
 *       40    4  node
 *       44    4  flags
 *       48    8  generation
 *       56    8  from
 *       64    8  to
 *       72    8  lo
 *       80    8  hi
 *       88   32  previous
 *      120    8  when it was made, ns since 1970
 *      128    4  error of the clock, ms
 *      132    4  distance of the operation before hi, ms
 *      136    4  distance of the operation after hi, ms
 *      140    4  number of runs
 *      144    8  largest inode number, without writer slot
 *      152    8  largest id of a pack or run
 *      160    8  chunks
 *      168    8  stored bytes
 *      176    8  packs
 *      184    8  bytes of packs
 *      192    8  length of the records
 *      200    4  number of records
 *      204    4  zero
 *      208    8  number of the node's own head that has these runs
 *      216   40  zero
 *      256       runs, 72 bytes each: run_list.c
 *                records
 *                4  zero
 *                4  crc32 of everything before it */
#include "format/feed.h"

#include <stdio.h>

#include "format/le.h"
#include "format/object.h"

static const uint8_t feed_magic[8] = {'C', 'A', 'I', 'R', 'N', 'F', 'E', 'D'};

#define RUNS_AT 256u
#define TAIL_LEN 8u
#define FIELDS_END 216u

/* --- name ------------------------------------------------------------------------------------- */

void feed_name(uint64_t round, uint64_t epoch, char buf[FEED_NAME_LEN])
{
    (void)snprintf(buf, FEED_NAME_LEN, "feeds/%016llx-%016llx", (unsigned long long)round,
                   (unsigned long long)epoch);
}

bool feed_numbers(const char *name, uint64_t *ret_round, uint64_t *ret_epoch)
{
    char digits[17] = "", again[FEED_NAME_LEN];
    if (strlen(name) != FEED_NAME_LEN - 1)
        return false;
    memcpy(digits, name + 6, 16);
    if (!object_digits(digits, ret_round) || !object_digits(name + 23, ret_epoch))
        return false;
    feed_name(*ret_round, *ret_epoch, again);
    return strcmp(name, again) == 0;
}

/* --- invariants ------------------------------------------------------------------------------- */

static bool rounds_sane(const struct feed *feed)
{
    bool leaves = feed->flags & FEED_LEAVES;
    return feed->lo > 0 && feed->lo <= feed->hi && feed->hi <= ROUND_MAX &&
           leaves == (feed->hi == ROUND_MAX);
}

/* Content changes only with operations, so no run has a cut after `to`. */
static bool runs_sane(const struct feed *feed)
{
    uint64_t cut;
    return feed->run_count <= RUN_LIST_MAX &&
           run_list_is_sane(feed->runs, feed->run_count, feed->history, &cut) && cut <= feed->to;
}

static bool feed_sane(const struct feed *feed)
{
    return feed->epoch > 0 && feed->epoch <= EPOCH_MAX && feed->node <= feed->epoch &&
           (feed->flags & ~FEED_LEAVES) == 0 && feed->generation <= EPOCH_MAX &&
           feed->from <= feed->to && feed->to >> SEQ_EPOCH_SHIFT <= EPOCH_MAX && feed->time >= 0 &&
           rounds_sane(feed) && runs_sane(feed);
}

static bool type_is_fed(uint16_t type)
{
    switch (type) {
    case REC_VERSION:
    case REC_MAKE:
    case REC_LINK:
    case REC_UNLINK:
    case REC_RENAME:
    case REC_SETATTR:
    case REC_SETXATTR:
    case REC_REMOVEXATTR:
    case REC_REAP:
        return true;
    default:
        return false;
    }
}

static int check_records(const struct feed *feed)
{
    uint64_t seq = feed->from;
    uint32_t count = 0;
    for (size_t at = 0, len; at < feed->records_len; at += len, count++) {
        struct record rec;
        TRY(record_decode(feed->records + at, feed->records_len - at, &rec, &len));
        if (!type_is_fed(rec.type) || rec.seq <= seq || rec.seq > feed->to)
            return -EUCLEAN;
        seq = rec.seq;
    }
    return count == feed->record_count ? 0 : -EUCLEAN;
}

/* --- bytes ------------------------------------------------------------------------------------ */

static size_t records_at(const struct feed *feed)
{
    return RUNS_AT + (size_t)feed->run_count * RUN_LIST_ITEM_LEN;
}

size_t feed_encoded_len(const struct feed *feed)
{
    return records_at(feed) + feed->records_len + TAIL_LEN;
}

static void encode_fixed(const struct feed *feed, uint8_t *p)
{
    memset(p, 0, RUNS_AT);
    memcpy(p + 16, feed->history, sizeof feed->history);
    put_le64(p + 32, feed->epoch);
    put_le32(p + 40, feed->node);
    put_le32(p + 44, feed->flags);
    put_le64(p + 48, feed->generation);
    put_le64(p + 56, feed->from);
    put_le64(p + 64, feed->to);
    put_le64(p + 72, feed->lo);
    put_le64(p + 80, feed->hi);
    memcpy(p + 88, feed->previous, sizeof feed->previous);
    put_le64(p + 120, (uint64_t)feed->time);
    put_le32(p + 128, feed->clock.error);
    put_le32(p + 132, feed->clock.before);
    put_le32(p + 136, feed->clock.after);
    put_le32(p + 140, feed->run_count);
    put_le64(p + 144, feed->max_ino);
    put_le64(p + 152, feed->max_id);
    put_le64(p + 160, feed->chunks);
    put_le64(p + 168, feed->stored_bytes);
    put_le64(p + 176, feed->packs);
    put_le64(p + 184, feed->pack_bytes);
    put_le64(p + 192, feed->records_len);
    put_le32(p + 200, feed->record_count);
    put_le64(p + 208, feed->head);
}

void feed_encode(const struct feed *feed, void *buf)
{
    size_t len = feed_encoded_len(feed);
    check(feed_sane(feed) && len <= FEED_LEN_MAX);
    uint8_t *p = buf;
    encode_fixed(feed, p);
    run_list_encode(feed->runs, feed->run_count, p + RUNS_AT);
    if (feed->records_len > 0)
        memcpy(p + records_at(feed), feed->records, feed->records_len);
    memset(p + len - TAIL_LEN, 0, TAIL_LEN);
    frame_put(p, len, feed_magic, FEED_VERSION);
}

static void decode_fixed(const uint8_t *p, struct feed *feed)
{
    *feed = (struct feed){.epoch = get_le64(p + 32),
                          .node = get_le32(p + 40),
                          .flags = get_le32(p + 44),
                          .generation = get_le64(p + 48),
                          .from = get_le64(p + 56),
                          .to = get_le64(p + 64),
                          .lo = get_le64(p + 72),
                          .hi = get_le64(p + 80),
                          .time = (int64_t)get_le64(p + 120),
                          .clock = {.error = get_le32(p + 128),
                                    .before = get_le32(p + 132),
                                    .after = get_le32(p + 136)},
                          .run_count = get_le32(p + 140),
                          .max_ino = get_le64(p + 144),
                          .max_id = get_le64(p + 152),
                          .chunks = get_le64(p + 160),
                          .stored_bytes = get_le64(p + 168),
                          .packs = get_le64(p + 176),
                          .pack_bytes = get_le64(p + 184),
                          .records_len = get_le64(p + 192),
                          .record_count = get_le32(p + 200),
                          .head = get_le64(p + 208)};
    memcpy(feed->history, p + 16, sizeof feed->history);
    memcpy(feed->previous, p + 88, sizeof feed->previous);
}

int feed_decode(const void *buf, size_t len, struct feed *ret_feed)
{
    const uint8_t *p = buf;
    if (len < RUNS_AT + TAIL_LEN || len > FEED_LEN_MAX)
        return -EUCLEAN;
    TRY(frame_check(p, len, feed_magic, FEED_VERSION));
    TRY(format_check_known(FEED_VERSION, FEED_VERSION, get_le32(p + 12), 0));
    struct feed feed;
    decode_fixed(p, &feed);
    if (feed.run_count > RUN_LIST_MAX || feed.records_len > len || len != feed_encoded_len(&feed) ||
        !bytes_are_zero(p + 204, 4) || !bytes_are_zero(p + FIELDS_END, RUNS_AT - FIELDS_END) ||
        !bytes_are_zero(p + len - TAIL_LEN, 4))
        return -EUCLEAN;
    run_list_decode(p + RUNS_AT, feed.run_count, feed.history, feed.runs);
    feed.records = p + records_at(&feed);
    if (!feed_sane(&feed))
        return -EUCLEAN;
    TRY(check_records(&feed));
    *ret_feed = feed;
    return 0;
}

bool feed_next(const struct feed *feed, size_t *at, struct record *ret_rec)
{
    size_t len;
    if (*at >= feed->records_len)
        return false;
    /* cannot fail: feed_decode() has decoded it before */
    check(record_decode(feed->records + *at, feed->records_len - *at, ret_rec, &len) == 0);
    *at += len;
    return true;
}
