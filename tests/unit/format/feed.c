// SPDX-License-Identifier: Apache-2.0
#include "format/feed.h"

#include <signal.h>

#include "../expect.h"
#include "samples.h"

enum { FIXED = 256, RUN = 72, TAIL = 8 };

/* The caller frees it. */
static uint8_t *encode(const struct feed *feed, size_t *ret_len)
{
    *ret_len = feed_encoded_len(feed);
    uint8_t *buf = xmalloc(*ret_len);
    memset(buf, 0xee, *ret_len);
    feed_encode(feed, buf);
    return buf;
}

static void expect_same_feed(const struct feed *a, const struct feed *b)
{
    cr_assert_arr_eq(a->history, b->history, sizeof a->history);
    assert_u64(a->epoch, b->epoch);
    assert_u64(a->node, b->node);
    assert_u64(a->flags, b->flags);
    assert_u64(a->generation, b->generation);
    assert_u64(a->from, b->from);
    assert_u64(a->to, b->to);
    assert_u64(a->lo, b->lo);
    assert_u64(a->hi, b->hi);
    cr_assert_arr_eq(a->previous, b->previous, sizeof a->previous);
    assert_i64(a->time, b->time);
    assert_u64(a->clock.error, b->clock.error);
    assert_u64(a->clock.before, b->clock.before);
    assert_u64(a->clock.after, b->clock.after);
    assert_u64(a->max_ino, b->max_ino);
    assert_u64(a->max_id, b->max_id);
    assert_u64(a->chunks, b->chunks);
    assert_u64(a->stored_bytes, b->stored_bytes);
    assert_u64(a->packs, b->packs);
    assert_u64(a->pack_bytes, b->pack_bytes);
    assert_u64(a->head, b->head);
    assert_u64(a->run_count, b->run_count);
    for (uint32_t i = 0; i < a->run_count; i++) {
        assert_u64(a->runs[i].id, b->runs[i].id);
        cr_assert_arr_eq(a->runs[i].hash, b->runs[i].hash, sizeof a->runs[i].hash);
    }
    assert_u64(a->record_count, b->record_count);
    assert_u64(a->records_len, b->records_len);
    if (a->records_len > 0)
        cr_assert_arr_eq(a->records, b->records, a->records_len);
}

Test(feed, round_trips)
{
    for (uint32_t runs = 0; runs <= RUN_LIST_MAX; runs += 16) {
        uint8_t room[FEED_SAMPLE_LEN];
        struct feed in = sample_feed(runs, room), out;
        size_t len;
        _cleanup_free_ uint8_t *buf = encode(&in, &len);
        assert_u64(len, FIXED + (size_t)RUN * runs + in.records_len + TAIL);
        assert_i64(feed_decode(buf, len, &out), 0);
        expect_same_feed(&in, &out);
    }
}

Test(feed, records_are_read_in_their_order)
{
    uint8_t room[FEED_SAMPLE_LEN];
    struct feed in = sample_feed(2, room), out;
    size_t len, at = 0;
    _cleanup_free_ uint8_t *buf = encode(&in, &len);
    assert_i64(feed_decode(buf, len, &out), 0);
    struct record rec;
    for (uint32_t i = 0; i < in.record_count; i++) {
        cr_assert(feed_next(&out, &at, &rec));
        assert_u64(rec.seq, in.from + 1 + i);
    }
    cr_assert(!feed_next(&out, &at, &rec));
}

/* An idle node: the same number at a later round. */
Test(feed, without_records)
{
    uint8_t room[FEED_SAMPLE_LEN];
    struct feed in = sample_feed(2, room), out;
    in.records = NULL;
    in.records_len = in.record_count = 0;
    in.from = in.to;
    size_t len;
    _cleanup_free_ uint8_t *buf = encode(&in, &len);
    assert_i64(feed_decode(buf, len, &out), 0);
    expect_same_feed(&in, &out);
}

Test(feed, fields_are_checked)
{
    uint8_t room[FEED_SAMPLE_LEN];
    const struct feed feed = sample_feed(3, room);
    const struct change changes[] = {
        {8, FEED_VERSION, 4, 0, "this version"},
        {8, FEED_VERSION + 1, 4, -EPROTONOSUPPORT, "a later version"},
        {8, 0, 4, -EUCLEAN, "version 0"},
        {12, 1, 4, -EPROTONOSUPPORT, "a feature that is not known"},
        {32, 0, 8, -EUCLEAN, "no epoch"},
        {32, 1 << 24, 8, -EUCLEAN, "epochs have 24 bits"},
        {40, 8, 4, -EUCLEAN, "a first epoch above this one"},
        {44, FEED_LEAVES, 4, -EUCLEAN, "it leaves, and not for ever"},
        {44, 2, 4, -EUCLEAN, ""},
        {48, 1 << 24, 8, -EUCLEAN, "generations have 24 bits"},
        {56, feed.to + 1, 8, -EUCLEAN, "backwards"},
        {72, 0, 8, -EUCLEAN, "round 0"},
        {72, feed.hi, 8, 0, ""},
        {72, feed.hi + 1, 8, -EUCLEAN, ""},
        {80, ROUND_MAX, 8, -EUCLEAN, "for ever, and it does not leave"},
        {80, ROUND_MAX + 1, 8, -EUCLEAN, ""},
        {120, UINT64_MAX, 8, -EUCLEAN, ""},
        {204, 1, 1, -EUCLEAN, "reserved"},
        {255, 1, 1, -EUCLEAN, "reserved"},
    };
    expect_changes(SAMPLE_FEED, changes, ARRAY_LEN(changes));
}

Test(feed, lists_are_checked)
{
    uint8_t room[FEED_SAMPLE_LEN];
    const struct feed feed = sample_feed(3, room);
    for (uint32_t count = 0; count <= 5; count++)
        assert_i64(sample_decode_changed(SAMPLE_FEED, 140, count, 4), count == 3 ? 0 : -EUCLEAN);
    const struct change changes[] = {
        {140, UINT32_MAX, 4, -EUCLEAN, ""},
        {192, feed.records_len + 8, 8, -EUCLEAN, ""},
        {192, UINT64_MAX, 8, -EUCLEAN, ""},
        {200, feed.record_count - 1, 4, -EUCLEAN, ""},
        {FIXED, 0, 8, -EUCLEAN, "run 0"},
        {FIXED + RUN + 8, feed.runs[0].cut + 1, 8, -EUCLEAN, "a gap"},
        {FIXED + 2 * RUN + 16, feed.to, 8, 0, ""},
        {FIXED + 2 * RUN + 16, feed.to + 1, 8, -EUCLEAN,
         "content of operations that it does not have"},
    };
    expect_changes(SAMPLE_FEED, changes, ARRAY_LEN(changes));
}

/* The records of a feed with the one of this type and number in the place of its last. */
static int decode_with_record(uint16_t type, uint64_t seq)
{
    uint8_t room[FEED_SAMPLE_LEN];
    struct feed feed = sample_feed(1, room);
    struct record rec = sample_record(type);
    rec.seq = seq;
    record_encode(&rec, room);
    feed.records_len = record_encoded_len(&rec);
    feed.record_count = 1;
    size_t len;
    _cleanup_free_ uint8_t *buf = encode(&feed, &len);
    return feed_decode(buf, len, &feed);
}

Test(feed, records_are_checked)
{
    uint8_t room[FEED_SAMPLE_LEN];
    const struct feed feed = sample_feed(1, room);
    assert_i64(decode_with_record(REC_VERSION, feed.to), 0);
    assert_i64(decode_with_record(REC_VERSION, feed.from), -EUCLEAN, "of the feed before");
    assert_i64(decode_with_record(REC_VERSION, feed.to + 1), -EUCLEAN);
    static const uint16_t others[] = {REC_SEAL, REC_EXTENTS, REC_PACK, REC_STAND_IN,
                                      REC_DROP, REC_NASCENT, REC_PIECE};
    for (size_t i = 0; i < ARRAY_LEN(others); i++)
        assert_i64(decode_with_record(others[i], feed.to), -EUCLEAN, "%s",
                   record_type_name(others[i]));
}

Test(feed, records_ascend)
{
    uint8_t room[FEED_SAMPLE_LEN];
    struct feed feed = sample_feed(1, room);
    struct record rec = sample_record(REC_UNLINK);
    rec.seq = feed.from + 1;
    size_t one = record_encoded_len(&rec), len;
    record_encode(&rec, room);
    record_encode(&rec, room + one);
    feed.records_len = 2 * one;
    feed.record_count = 2;
    _cleanup_free_ uint8_t *buf = encode(&feed, &len);
    assert_i64(feed_decode(buf, len, &feed), -EUCLEAN, "one number twice");
}

Test(feed, names)
{
    char name[FEED_NAME_LEN];
    uint64_t round, epoch;
    feed_name(0x32a9f880, 7, name);
    assert_str(name, "feeds/0000000032a9f880-0000000000000007");
    cr_assert(feed_numbers(name, &round, &epoch));
    assert_u64(round, 0x32a9f880);
    assert_u64(epoch, 7);
    static const char *const others[] = {"",
                                         "feeds/",
                                         "feeds/0000000032a9f880",
                                         "feeds/0000000032A9f880-0000000000000007",
                                         "feeds/0000000032a9f880-000000000000007",
                                         "feeds/0000000032a9f880-00000000000000070",
                                         "heads/0000000032a9f880-0000000000000007",
                                         "feeds/0000000032a9f880_0000000000000007",
                                         "feeds/ 000000032a9f880-0000000000000007",
                                         "feeds/0000000032a9f880-+000000000000007"};
    for (size_t i = 0; i < ARRAY_LEN(others); i++)
        cr_assert(!feed_numbers(others[i], &round, &epoch), "%s", others[i]);
}

Test(feed, encoder_takes_no_round_0, .signal = SIGABRT)
{
    uint8_t room[FEED_SAMPLE_LEN];
    struct feed feed = sample_feed(0, room);
    size_t len;
    feed.lo = 0;
    free(encode(&feed, &len));
}
