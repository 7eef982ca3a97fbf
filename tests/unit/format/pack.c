// SPDX-License-Identifier: Apache-2.0
#include "format/pack.h"

#include "../expect.h"
#include "../base/seeded.h"
#include "format/le.h"
#include "samples.h"

Test(pack, header_round_trips)
{
    uint8_t buf[PACK_HEADER_LEN];
    struct pack_header in = sample_pack_header(), out;
    memset(buf, 0xee, sizeof buf);
    pack_encode_header(&in, buf);
    assert_i64(pack_decode_header(buf, sizeof buf, &out), 0);
    assert_u64(out.pack, in.pack);
    assert_u64(out.version, PACK_VERSION);
    cr_assert_arr_eq(out.store, in.store, 16);
}

Test(pack, header_versions_and_reserved_bytes)
{
    static const struct change changes[] = {
        {8, PACK_VERSION, 4, 0, "this version"},
        {8, 1, 4, 0, "the first version"},
        {8, PACK_VERSION + 1, 4, -EPROTONOSUPPORT, "a later version"},
        {8, 0, 4, -EUCLEAN, "version 0"},
        {12, 1, 4, -EUCLEAN, "reserved"},
        {16, 0, 4, -EUCLEAN, "pack 0"},
        {56, 1, 4, -EUCLEAN, "reserved"},
    };
    expect_changes(SAMPLE_PACK_HEADER, changes, ARRAY_LEN(changes));
}

Test(pack, trailer_round_trips)
{
    uint8_t buf[PACK_TRAILER_LEN];
    struct pack_trailer in = sample_trailer(), out;
    pack_encode_trailer(&in, buf);
    assert_i64(pack_decode_trailer(buf, sizeof buf, &out), 0);
    assert_i64(memcmp(&in, &out, sizeof in), 0);
}

Test(pack, trailer_lengths_are_checked)
{
    static const struct change changes[] = {
        {4, PACK_VERSION + 1, 4, -EPROTONOSUPPORT, "a later version"},
        {4, 0, 4, -EUCLEAN, "version 0"},
        {8, 0, 8, -EUCLEAN, "pack 0"},
        {16, PACK_HEADER_LEN - 1, 8, -EUCLEAN, "index in the header"},
        {16, 4096 - PACK_TRAILER_LEN - 48, 8, 0, "index that ends where the trailer begins"},
        {16, 4096 - PACK_TRAILER_LEN - 47, 8, -EUCLEAN, "index in the trailer"},
        {16, UINT64_MAX, 8, -EUCLEAN, ""},
        {24, 0, 8, -EUCLEAN, ""},
        {24, 4097, 8, -EUCLEAN, ""},
        {24, 1ull << 63, 8, -EUCLEAN, ""},
        {48, 47, 4, -EUCLEAN, "index too short for its count"},
        {48, PACK_ENTRY_LEN_MAX + 1, 4, -EUCLEAN, ""},
        {52, PACK_CHUNKS_MAX + 1, 4, -EUCLEAN, ""},
        {52, UINT32_MAX, 4, -EUCLEAN, ""},
    };
    expect_changes(SAMPLE_TRAILER, changes, ARRAY_LEN(changes));
}

struct seen {
    struct chunk_entry entries[8];
    uint32_t count;
    int result;
};

static int see(const struct chunk_entry *entry, void *arg)
{
    struct seen *seen = arg;
    if (seen->count < ARRAY_LEN(seen->entries))
        seen->entries[seen->count] = *entry;
    seen->count++;
    return seen->result;
}

static struct pack_trailer trailer_for(size_t index_len, uint32_t count)
{
    struct pack_trailer t = sample_trailer();
    t.index_len = (uint32_t)index_len;
    t.count = count;
    t.index_offset = 1064;
    return t;
}

Test(pack, index_round_trips)
{
    uint8_t buf[8 * PACK_ENTRY_LEN_MAX];
    size_t len = 0;
    for (uint8_t refs = 0; refs <= CHUNK_REFS_MAX; refs++) {
        struct chunk_entry e = sample_entry(refs);
        size_t n = pack_encode_entry(&e, buf + len);
        assert_u64(n, 48u + 32u * refs);
        len += n;
    }
    struct pack_trailer t = trailer_for(len, 5);
    struct seen seen = {.count = 0};
    assert_i64(pack_decode_index(&t, buf, len, see, &seen), 0);
    assert_u64(seen.count, 5);
    for (uint8_t refs = 0; refs <= CHUNK_REFS_MAX; refs++) {
        struct chunk_entry e = sample_entry(refs);
        assert_i64(memcmp(&seen.entries[refs], &e, sizeof e), 0);
    }
    seen = (struct seen){.result = -ECANCELED};
    assert_i64(pack_decode_index(&t, buf, len, see, &seen), -ECANCELED);
    assert_u64(seen.count, 1);
    assert_i64(pack_decode_index(&t, buf, len - 1, see, &seen), -EUCLEAN,
               "not the length that the trailer says");
    t.count = 4;
    seen.result = 0;
    assert_i64(pack_decode_index(&t, buf, len, see, &seen), -EUCLEAN, "bytes after the last entry");
    t.count = 6;
    assert_i64(pack_decode_index(&t, buf, len, see, &seen), -EUCLEAN);
}

static int decode_changed_entry(size_t at, uint64_t value, size_t len)
{
    uint8_t buf[PACK_ENTRY_LEN_MAX], field[8];
    struct chunk_entry e = sample_entry(1);
    struct pack_trailer t = trailer_for(pack_encode_entry(&e, buf), 1);
    put_le64(field, value);
    memcpy(buf + at, field, len);
    struct seen seen = {.count = 0};
    int r = pack_decode_index(&t, buf, t.index_len, see, &seen);
    assert_u64(seen.count, r == 0);
    return r;
}

Test(pack, entries_are_checked)
{
    assert_i64(decode_changed_entry(24, PACK_HEADER_LEN, 8), 0);
    assert_i64(decode_changed_entry(24, PACK_HEADER_LEN - 1, 8), -EUCLEAN);
    assert_i64(decode_changed_entry(24, PACK_HEADER_LEN + 1, 8), -EUCLEAN, "runs into the index");
    assert_i64(decode_changed_entry(24, UINT64_MAX, 8), -EUCLEAN);
    assert_i64(decode_changed_entry(32, 0, 4), -EUCLEAN);
    assert_i64(decode_changed_entry(32, UINT32_MAX, 4), -EUCLEAN);
    assert_i64(decode_changed_entry(36, 0, 4), -EUCLEAN);
    assert_i64(decode_changed_entry(36, CHUNK_SIZE_MAX, 4), 0);
    assert_i64(decode_changed_entry(36, CHUNK_SIZE_MAX + 1, 4), -EUCLEAN);
    assert_i64(decode_changed_entry(40, ENCODING_RAW, 1), -EUCLEAN,
               "raw and not of its raw length");
    assert_i64(decode_changed_entry(40, 200, 1), 0,
               "an unknown encoding is for the reader to report");
    assert_i64(decode_changed_entry(41, 0, 1), -EUCLEAN, "references and no depth");
    assert_i64(decode_changed_entry(42, CHUNK_REFS_MAX + 1, 1), -EUCLEAN);
    assert_i64(decode_changed_entry(43, 1, 1), -EUCLEAN);
    assert_i64(decode_changed_entry(72, CHUNK_SIZE_MAX, 4), -EUCLEAN, "reference past the chunk");
    assert_i64(decode_changed_entry(76, 0, 4), -EUCLEAN);
    assert_i64(decode_changed_entry(76, UINT32_MAX, 4), -EUCLEAN);
}

Test(pack, hostile_index_never_reaches_outside)
{
    struct seeded seeded = {2};
    for (int round = 0; round < 50000; round++) {
        size_t len = 0;
        uint8_t buf[4 * PACK_ENTRY_LEN_MAX];
        uint32_t count = 1 + (uint32_t)seeded_below(&seeded, 4);
        for (uint32_t i = 0; i < count; i++) {
            struct chunk_entry e = sample_entry((uint8_t)seeded_below(&seeded, CHUNK_REFS_MAX + 1));
            len += pack_encode_entry(&e, buf + len);
        }
        for (uint64_t flips = 1 + seeded_below(&seeded, 3); flips > 0; flips--)
            buf[seeded_below(&seeded, len)] = (uint8_t)seeded_u64(&seeded);
        size_t cut = seeded_below(&seeded, 3) ? len : seeded_below(&seeded, len + 1);
        _cleanup_free_ uint8_t *exact = xmalloc(cut);
        memcpy(exact, buf, cut);
        struct pack_trailer t = trailer_for(cut, count);
        struct seen seen = {.count = 0};
        int r = pack_decode_index(&t, exact, cut, see, &seen);
        cr_assert(r == -EUCLEAN || (r == 0 && seen.count == count));
    }
}

Test(pack, frames_round_trip)
{
    for (uint8_t refs = 0; refs <= CHUNK_REFS_MAX; refs++) {
        uint8_t buf[PACK_FRAME_LEN_MAX], tag[PACK_TAG_LEN];
        struct chunk_entry in = sample_entry(refs), out;
        const uint8_t *made = (const uint8_t *)"a tag of 24 bytes, made.";
        size_t len = pack_frame_len(&in);
        in.offset = 64 + len;
        const struct pack_frame_place place = {9, 1 << 20, 64}, wrong = {9, 1 << 20, 72},
                                      beyond = {9, in.offset + in.stored_len - 1, 64};
        assert_u64(pack_encode_frame(&in, made, buf), len);
        assert_i64(pack_decode_frame(&place, buf, len, &out, tag), 0);
        cr_assert_arr_eq(tag, made, sizeof tag);
        cr_assert(chunk_name_equal(&in.name, &out.name) && out.offset == in.offset &&
                  out.pack == 9 && out.ref_count == refs);
        assert_i64(pack_decode_frame(&wrong, buf, len, &out, tag), -EUCLEAN, "not where it says");
        assert_i64(pack_decode_frame(&place, buf, len - 1, &out, tag), -EUCLEAN);
        assert_i64(pack_decode_frame(&beyond, buf, len, &out, tag), -EUCLEAN, "beyond the file");
        buf[0] ^= 1;
        assert_i64(pack_decode_frame(&place, buf, len, &out, tag), -EUCLEAN);
    }
}
