// SPDX-License-Identifier: Apache-2.0
#include "format/segment.h"

#include "../expect.h"
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

Test(segment, fields_are_checked)
{
    static const struct change segment[] = {
        {8, SEGMENT_VERSION + 1, 4, -EPROTONOSUPPORT, "a later version"},
        {8, 0, 4, -EUCLEAN, "version 0"},
        {14, 1, 2, -EUCLEAN, "reserved"},
        {32, 0, 8, -EUCLEAN, "segment 0"},
        {40, 1 << 24, 8, -EUCLEAN, "epochs have 24 bits"},
        {88, 1, 1, 0, ""},
        {88, UINT64_MAX, 8, -EUCLEAN, "a length that no file has"},
        {8, 1, 4, -EUCLEAN, "version 1 tells no length"},
        {96, 1, 1, -EUCLEAN, "reserved"},
    };
    expect_changes(SAMPLE_SEGMENT, segment, ARRAY_LEN(segment));
    static const struct change batch[] = {
        {4, SEGMENT_VERSION + 1, 4, -EPROTONOSUPPORT, "a later version"},
        {4, 0, 4, -EUCLEAN, "version 0"},
        {8, 401, 8, -EUCLEAN, ""},
        {8, 5 * 32, 8, 0, ""},
        {8, 5 * 32 - 8, 8, -EUCLEAN, "too short for its records"},
        {8, UINT64_MAX - 7, 8, -EUCLEAN, ""},
        {20, 0, 4, -EUCLEAN, "payload of no records"},
        {20, UINT32_MAX, 4, -EUCLEAN, ""},
        {32, 0, 8, -EUCLEAN, "horizon that goes back"},
        {40, 1 << 24, 8, -EUCLEAN, ""},
        {58, 1, 1, -EUCLEAN, "reserved"},
        {4, 1, 4, -EUCLEAN, "version 1 has no tag"},
        {96, 1, 1, 0, ""},
        {120, 1, 1, -EUCLEAN, "reserved"},
    };
    expect_changes(SAMPLE_BATCH, batch, ARRAY_LEN(batch));
}
