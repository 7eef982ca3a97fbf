// SPDX-License-Identifier: Apache-2.0
#include "format/record.h"

#include "../expect.h"
#include "../base/seeded.h"
#include "base/crc.h"
#include "format/le.h"
#include "samples.h"

static uint8_t *encode(const struct record *rec, size_t *ret_len)
{
    *ret_len = record_encoded_len(rec);
    uint8_t *buf = xmalloc(*ret_len);
    memset(buf, 0xee, *ret_len);
    record_encode(rec, buf);
    return buf;
}

static void fix_crc(uint8_t *buf, size_t len)
{
    put_le32(buf, crc32_of(0, buf + 4, len - 4));
}

Test(record, every_type_round_trips)
{
    for (size_t i = 0; i < ARRAY_LEN(sample_types); i++) {
        struct record in = sample_record(sample_types[i]), out;
        size_t len, decoded_len;
        _cleanup_free_ uint8_t *buf = encode(&in, &len);
        assert_u64(len % 8, 0);
        assert_i64(record_decode(buf, len, &out, &decoded_len), 0, "%s", record_type_name(in.type));
        assert_u64(decoded_len, len);
        assert_u64(out.type, in.type);
        assert_u64(out.writer, in.writer);
        assert_u64(out.flags, in.flags);
        assert_u64(out.seq, in.seq);
        assert_i64(out.time, in.time);
        size_t again_len;
        _cleanup_free_ uint8_t *again = encode(&out, &again_len);
        assert_u64(again_len, len);
        cr_assert_arr_eq(again, buf, len, "%s", record_type_name(in.type));
    }
}

/* One state has one encoding. */
Test(record, what_no_encoder_writes_is_refused)
{
    struct record in = sample_record(REC_SEAL), out;
    size_t len, decoded_len, fields_end = 32 + 5 * 8 + 56 + 2 + 7 + 4 + 6 + 4 + 3 * 48;
    in.name_len = 7;
    _cleanup_free_ uint8_t *buf = encode(&in, &len);
    cr_assert_lt(fields_end, len, "the sample is padded");
    const size_t zeros[] = {len - 1, fields_end - 48 + 21, fields_end - 1,
                            fields_end - 3 * 48 + 47};
    for (size_t i = 0; i < ARRAY_LEN(zeros); i++) {
        assert_u64(buf[zeros[i]], 0);
        buf[zeros[i]] = 1;
        fix_crc(buf, len);
        expect_i64(record_decode(buf, len, &out, &decoded_len), -EUCLEAN, "byte %zu", zeros[i]);
        buf[zeros[i]] = 0;
    }
    _cleanup_free_ uint8_t *longer = xcalloc(1, len + 8);
    memcpy(longer, buf, len);
    put_le32(longer + 4, (uint32_t)len + 8);
    fix_crc(longer, len + 8);
    expect_i64(record_decode(longer, len + 8, &out, &decoded_len), -EUCLEAN);
    fix_crc(buf, len);
    expect_i64(record_decode(buf, len, &out, &decoded_len), 0);
}

Test(record, fields_of_a_seal)
{
    struct record in = sample_record(REC_SEAL), out;
    size_t len, decoded_len;
    _cleanup_free_ uint8_t *buf = encode(&in, &len);
    assert_i64(record_decode(buf, len, &out, &decoded_len), 0);
    assert_u64(out.ino, in.ino);
    assert_u64(out.version, in.version);
    assert_u64(out.parent, in.parent);
    assert_u64(out.cookie, in.cookie);
    assert_u64(out.keep, in.keep);
    assert_u64(out.pack, 0);
    assert_i64(memcmp(&out.attrs, &in.attrs, sizeof in.attrs), 0);
    assert_u64(out.name_len, in.name_len);
    cr_assert_arr_eq(out.name, in.name, in.name_len);
    assert_u64(out.value_len, in.value_len);
    cr_assert_arr_eq(out.value, in.value, in.value_len);
    assert_u64(out.extent_count, in.extent_count);
    for (uint32_t i = 0; i < in.extent_count; i++) {
        struct extent e = record_extent(&out, i);
        assert_u64(e.offset, in.extents[i].offset);
        assert_u64(e.length, in.extents[i].length);
        assert_u64(e.kind, in.extents[i].kind);
        assert_u64(e.chunk_offset, in.extents[i].chunk_offset);
        cr_assert(chunk_name_equal(&e.chunk, &in.extents[i].chunk));
    }
}

Test(record, flags_stay)
{
    struct record in = sample_record(REC_DROP), out;
    in.flags = RECORD_EVICTED;
    size_t len, decoded_len;
    _cleanup_free_ uint8_t *buf = encode(&in, &len);
    assert_i64(record_decode(buf, len, &out, &decoded_len), 0);
    assert_u64(out.flags, RECORD_EVICTED);
    assert_u64(out.pack, in.pack);
}

Test(record, structure_is_checked)
{
    struct record in = sample_record(REC_LINK), out;
    size_t len, n;
    _cleanup_free_ uint8_t *buf = encode(&in, &len);
    for (size_t i = 0; i < len; i++)
        assert_i64(record_decode(buf, i, &out, &n), -EUCLEAN, "cut to %zu", i);
    buf[20] ^= 1;
    assert_i64(record_decode(buf, len, &out, &n), -EBADMSG);
    buf[20] ^= 1;
    put_le16(buf + 8, 999);
    fix_crc(buf, len);
    assert_i64(record_decode(buf, len, &out, &n), -EPROTONOSUPPORT);
    assert_str(record_type_name(999), "unknown");
    assert_str(record_type_name(REC_SEAL), "SEAL");
}

static int decode_link_named(const char *name, uint16_t name_len)
{
    struct record in = sample_record(REC_LINK), out;
    in.name = name;
    in.name_len = name_len;
    size_t len, n;
    _cleanup_free_ uint8_t *buf = encode(&in, &len);
    return record_decode(buf, len, &out, &n);
}

Test(record, names_are_checked)
{
    char longest[NAME_LEN_MAX];
    memset(longest, 'n', sizeof longest);
    assert_i64(decode_link_named(longest, sizeof longest), 0);
    assert_i64(decode_link_named("...", 3), 0);
    assert_i64(decode_link_named("\xff\x01\n", 3), 0, "any bytes but these");
    assert_i64(decode_link_named("a/b", 3), -EUCLEAN);
    assert_i64(decode_link_named("a\0b", 3), -EUCLEAN);
    assert_i64(decode_link_named("", 0), -EUCLEAN);
    assert_i64(decode_link_named(".", 1), -EUCLEAN);
    assert_i64(decode_link_named("..", 2), -EUCLEAN);
}

static int decode_extent(struct extent e)
{
    struct record in = sample_record(REC_SEAL), out;
    in.extents = &e;
    in.extent_count = 1;
    size_t len, n;
    _cleanup_free_ uint8_t *buf = encode(&in, &len);
    return record_decode(buf, len, &out, &n);
}

Test(record, extents_are_checked)
{
    assert_i64(decode_extent((struct extent){.offset = 0, .length = INT64_MAX}), 0);
    assert_i64(decode_extent((struct extent){.offset = 1, .length = INT64_MAX}), -EUCLEAN);
    assert_i64(decode_extent((struct extent){.offset = UINT64_MAX, .length = 1}), -EUCLEAN);
    assert_i64(decode_extent((struct extent){.offset = 0, .length = 0}), -EUCLEAN);
    assert_i64(decode_extent((struct extent){.length = 1, .kind = (enum extent_kind)3}), -EUCLEAN);
    assert_i64(decode_extent((struct extent){
                   .length = 1, .kind = EXTENT_CHUNK, .chunk_offset = CHUNK_SIZE_MAX - 1}),
               0);
    assert_i64(decode_extent((struct extent){
                   .length = 2, .kind = EXTENT_CHUNK, .chunk_offset = CHUNK_SIZE_MAX - 1}),
               -EUCLEAN);
    assert_i64(decode_extent((struct extent){.length = CHUNK_SIZE_MAX + 1, .kind = EXTENT_CHUNK}),
               -EUCLEAN);
    assert_i64(decode_extent((struct extent){.length = 6, .kind = EXTENT_INLINE}), 0);
    assert_i64(decode_extent((struct extent){.length = 7, .kind = EXTENT_INLINE}), -EUCLEAN,
               "more than the value has");
}

/* Reads all of what decoding handed out, for the sanitizers to see. */
static uint8_t touch(const struct record *rec)
{
    uint8_t sum = 0;
    for (size_t i = 0; i < rec->name_len; i++)
        sum ^= (uint8_t)rec->name[i];
    for (size_t i = 0; i < rec->name2_len; i++)
        sum ^= (uint8_t)rec->name2[i];
    for (size_t i = 0; i < rec->value_len; i++)
        sum ^= ((const uint8_t *)rec->value)[i];
    for (uint32_t i = 0; i < rec->extent_count; i++)
        sum ^= (uint8_t)record_extent(rec, i).length;
    return sum;
}

Test(record, hostile_bytes_never_reach_outside)
{
    struct seeded seeded = {1};
    volatile uint8_t sum = 0;
    for (int round = 0; round < 60000; round++) {
        struct record in = sample_record(
                          sample_types[seeded_below(&seeded, ARRAY_LEN(sample_types))]),
                      out;
        size_t len, n;
        _cleanup_free_ uint8_t *buf = encode(&in, &len);
        for (uint64_t flips = 1 + seeded_below(&seeded, 4); flips > 0; flips--)
            buf[4 + seeded_below(&seeded, len - 4)] = (uint8_t)seeded_u64(&seeded);
        uint64_t said = get_le32(buf + 4);
        if (said >= RECORD_HEADER_LEN && said <= len)
            fix_crc(buf, (size_t)said);
        /* A copy of its own, cut anywhere, so that reading past it shows. */
        size_t cut = seeded_below(&seeded, 4) ? len : seeded_below(&seeded, len + 1);
        _cleanup_free_ uint8_t *exact = xmalloc(cut);
        memcpy(exact, buf, cut);
        int r = record_decode(exact, cut, &out, &n);
        cr_assert(r == 0 || r == -EUCLEAN || r == -EBADMSG || r == -EPROTONOSUPPORT);
        if (r == 0) {
            cr_assert_leq(n, cut);
            sum = sum ^ touch(&out);
        }
    }
}

Test(record, what_a_setattr_changes)
{
    const struct attrs all = {.mode = 0777777,
                              .uid = 1,
                              .gid = 2,
                              .rdev = 3,
                              .size = 4,
                              .atime = 5,
                              .mtime = 6,
                              .ctime = 7,
                              .btime = 8};
    struct record rec = {.type = REC_SETATTR, .attrs = all};
    struct attrs attrs = {.mode = 0100600, .size = 9};
    record_set_attrs(&rec, &attrs);
    expect_u64(attrs.mode, 0100600);
    expect_i64(attrs.ctime, 0);
    rec.mask = ATTR_UID | ATTR_ATIME;
    record_set_attrs(&rec, &attrs);
    cr_expect(attrs.uid == 1 && attrs.atime == 5 && attrs.gid == 0 && attrs.mtime == 0 &&
              attrs.mode == 0100600);
    rec.mask = ATTR_MODE | ATTR_GID | ATTR_MTIME | ATTR_CTIME;
    record_set_attrs(&rec, &attrs);
    expect_u64(attrs.mode, 0107777, "it stays a file");
    cr_expect(attrs.gid == 2 && attrs.mtime == 6 && attrs.ctime == 7);
    cr_expect(attrs.size == 9 && attrs.rdev == 0 && attrs.btime == 0, "what no mask names");
}
