// SPDX-License-Identifier: Apache-2.0
#include "format/segment.h"

#include "../expect.h"
#include "../base/seeded.h"
#include "base/crc.h"
#include "format/le.h"
#include "samples.h"

Test(segment, header_round_trips)
{
    uint8_t buf[SEGMENT_HEADER_LEN];
    struct segment_header in = sample_segment(), out;
    memset(buf, 0xee, sizeof buf);
    segment_encode_header(&in, buf);
    assert_i64(segment_decode_header(buf, sizeof buf, &out), 0);
    assert_u64(out.number, in.number);
    assert_u64(out.epoch, in.epoch);
    assert_u64(out.base_seq, in.base_seq);
    assert_u64(out.writer, in.writer);
    cr_assert_arr_eq(out.store, in.store, sizeof in.store);
    cr_assert_arr_eq(out.prev, in.prev, sizeof in.prev);
    assert_u64(out.version, SEGMENT_VERSION);
    assert_u64(out.length, in.length);
    assert_i64(segment_decode_header(buf, sizeof buf - 1, &out), -EUCLEAN);
    for (size_t i = 0; i < sizeof buf; i++) {
        buf[i] ^= 0x40;
        assert_i64(segment_decode_header(buf, sizeof buf, &out), i < 8 ? -EUCLEAN : -EBADMSG);
        buf[i] ^= 0x40;
    }
}

Test(segment, batch_round_trips)
{
    uint8_t buf[BATCH_HEADER_LEN];
    struct batch_header in = sample_batch(), out;
    memset(buf, 0xee, sizeof buf);
    batch_encode_header(&in, buf);
    assert_i64(batch_decode_header(buf, sizeof buf, &out), 0);
    assert_u64(out.payload_len, in.payload_len);
    assert_u64(out.payload_crc, in.payload_crc);
    assert_u64(out.count, in.count);
    assert_u64(out.base_seq, in.base_seq);
    assert_u64(out.cut_seq, in.cut_seq);
    assert_u64(out.epoch, in.epoch);
    assert_u64(out.writer, in.writer);
    assert_i64(out.time, in.time);
    cr_assert_arr_eq(out.prev, in.prev, sizeof in.prev);
    assert_u64(out.version, SEGMENT_VERSION);
    cr_assert_arr_eq(out.tag, in.tag, sizeof in.tag);
    for (size_t i = 0; i < sizeof buf; i++) {
        buf[i] ^= 0x40;
        assert_i64(batch_decode_header(buf, sizeof buf, &out), i < 4 ? -EUCLEAN : -EBADMSG);
        buf[i] ^= 0x40;
    }
}

Test(segment, zeros_are_the_end)
{
    uint8_t buf[BATCH_HEADER_LEN] = {0};
    struct batch_header h;
    assert_i64(batch_decode_header(buf, sizeof buf, &h), -ENODATA);
    assert_i64(batch_decode_header(buf, 17, &h), -ENODATA);
    assert_i64(batch_decode_header(buf, 0, &h), -ENODATA);
    buf[5] = 1;
    assert_i64(batch_decode_header(buf, 17, &h), -EUCLEAN);
    struct batch_header in = sample_batch();
    batch_encode_header(&in, buf);
    assert_i64(batch_decode_header(buf, sizeof buf - 1, &h), -EUCLEAN);
}

static int decode_changed_segment(size_t at, uint64_t value, size_t len)
{
    uint8_t buf[SEGMENT_HEADER_LEN], field[8];
    struct segment_header h = sample_segment();
    segment_encode_header(&h, buf);
    put_le64(field, value);
    memcpy(buf + at, field, len);
    put_le32(buf + 124, crc32_of(0, buf, 124));
    return segment_decode_header(buf, sizeof buf, &h);
}

static int decode_changed_batch(size_t at, uint64_t value, size_t len)
{
    uint8_t buf[BATCH_HEADER_LEN], field[8];
    struct batch_header h = sample_batch();
    batch_encode_header(&h, buf);
    put_le64(field, value);
    memcpy(buf + at, field, len);
    put_le32(buf + 124, crc32_of(0, buf, 124));
    return batch_decode_header(buf, sizeof buf, &h);
}

Test(segment, fields_are_checked)
{
    assert_i64(decode_changed_segment(8, SEGMENT_VERSION + 1, 4), -EPROTONOSUPPORT);
    assert_i64(decode_changed_segment(8, 0, 4), -EUCLEAN);
    assert_i64(decode_changed_segment(14, 1, 2), -EUCLEAN);
    assert_i64(decode_changed_segment(32, 0, 8), -EUCLEAN, "segment 0");
    assert_i64(decode_changed_segment(40, 1 << 24, 8), -EUCLEAN, "epochs have 24 bits");
    assert_i64(decode_changed_segment(88, 1, 1), 0);
    assert_i64(decode_changed_segment(88, UINT64_MAX, 8), -EUCLEAN, "a length that no file has");
    assert_i64(decode_changed_segment(8, 1, 4), -EUCLEAN, "version 1 tells no length");
    assert_i64(decode_changed_segment(96, 1, 1), -EUCLEAN);
    assert_i64(decode_changed_batch(4, SEGMENT_VERSION + 1, 4), -EPROTONOSUPPORT);
    assert_i64(decode_changed_batch(4, 0, 4), -EUCLEAN);
    assert_i64(decode_changed_batch(8, 401, 8), -EUCLEAN);
    assert_i64(decode_changed_batch(8, 5 * 32, 8), 0);
    assert_i64(decode_changed_batch(8, 5 * 32 - 8, 8), -EUCLEAN, "too short for its records");
    assert_i64(decode_changed_batch(8, UINT64_MAX - 7, 8), -EUCLEAN);
    assert_i64(decode_changed_batch(20, 0, 4), -EUCLEAN, "payload of no records");
    assert_i64(decode_changed_batch(20, UINT32_MAX, 4), -EUCLEAN);
    assert_i64(decode_changed_batch(32, 0, 8), -EUCLEAN, "horizon that goes back");
    assert_i64(decode_changed_batch(40, 1 << 24, 8), -EUCLEAN);
    assert_i64(decode_changed_batch(58, 1, 1), -EUCLEAN);
    assert_i64(decode_changed_batch(4, 1, 4), -EUCLEAN, "version 1 has no tag");
    assert_i64(decode_changed_batch(96, 1, 1), 0);
    assert_i64(decode_changed_batch(120, 1, 1), -EUCLEAN);
}

Test(segment, hostile_headers_never_reach_outside)
{
    struct seeded seeded = {3};
    for (int round = 0; round < 50000; round++) {
        size_t len = seeded_below(&seeded, 3) ? BATCH_HEADER_LEN
                                              : seeded_below(&seeded, BATCH_HEADER_LEN + 1);
        uint8_t whole[BATCH_HEADER_LEN];
        struct batch_header b = sample_batch();
        struct segment_header s = sample_segment();
        bool batch = seeded_below(&seeded, 2);
        if (batch)
            batch_encode_header(&b, whole);
        else
            segment_encode_header(&s, whole);
        whole[seeded_below(&seeded, sizeof whole)] ^= (uint8_t)seeded_u64(&seeded);
        if (seeded_below(&seeded, 2))
            put_le32(whole + 124, crc32_of(0, whole, 124));
        _cleanup_free_ uint8_t *exact = xmalloc(len);
        memcpy(exact, whole, len);
        int r = batch ? batch_decode_header(exact, len, &b) : segment_decode_header(exact, len, &s);
        cr_assert(r == 0 || r == -EUCLEAN || r == -EBADMSG || r == -EPROTONOSUPPORT ||
                  r == -ENODATA);
    }
}
