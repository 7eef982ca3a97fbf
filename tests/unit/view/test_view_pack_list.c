// SPDX-License-Identifier: Apache-2.0
/* Lists of packs: names of chunks that begin alike, chunks that left, packs that come and go in one
 * batch. */
#include "../expect.h"
#include "remote_fixture.h"
#include "view/pack_list.h"

TestSuite(pack_list, .init = begin_remote, .fini = end_remote);

/* Chunk `id` under a name that begins as all others of these. */
static struct chunk_name alike(uint32_t id)
{
    struct chunk_name name = chunk_of(1);
    memcpy(name.bytes + LISTED_LEN, &id, sizeof id);
    return name;
}

/* A pack of such chunks, from `first` on. */
static void add_pack_alike(uint64_t pack, uint32_t first, uint32_t count)
{
    uint32_t ids[16] = {0};
    for (uint32_t i = 0; i < count; i++)
        ids[i] = first + i;
    add_pack(&f, pack, ids, count);
    for (uint32_t i = 0; i < count; i++)
        f.packs[f.pack_count - 1].entries[i].name = alike(first + i);
}

static uint64_t pack_of(const struct chunk_name *name)
{
    struct chunk_entry entry = {0};
    uint64_t refs;
    int r = view_chunk(f.view, name, &entry, &refs);
    cr_assert(r == 0 || r == -ENOENT);
    return entry.pack;
}

static void expect_packs(uint32_t first, uint32_t count, uint64_t pack)
{
    for (uint32_t i = first; i < first + count; i++) {
        struct chunk_name name = alike(i);
        expect_u64(pack_of(&name), pack, "chunk %u", i);
    }
    expect_check_ok(f.view);
}

Test(pack_list, names_that_begin_alike_are_told_apart)
{
    add_pack_alike(1, 10, 3);
    add_pack_alike(2, 20, 3);
    apply_ok(&f);
    expect_packs(10, 3, 1);
    expect_packs(20, 3, 2);
    add_drop(&f, 1);
    apply_ok(&f);
    expect_packs(10, 3, 0);
    expect_packs(20, 3, 2);
    add_drop(&f, 2);
    apply_ok(&f);
    expect_packs(20, 3, 0);
    expect_replay_same(&f);
}

Test(pack_list, what_moved_stays_when_its_first_pack_goes)
{
    add_pack_alike(1, 10, 4);
    apply_ok(&f);
    add_pack_alike(2, 10, 2);
    apply_ok(&f);
    expect_packs(10, 2, 2);
    expect_packs(12, 2, 1);
    add_drop(&f, 1);
    apply_ok(&f);
    expect_packs(10, 2, 2);
    expect_packs(12, 2, 0);
}

Test(pack_list, packs_come_and_go_in_one_batch)
{
    add_pack_alike(1, 10, 3);
    add_pack_alike(2, 11, 2);
    add_drop(&f, 1);
    add_pack_alike(3, 12, 2);
    add_drop(&f, 2);
    apply_ok(&f);
    expect_packs(10, 2, 0);
    expect_packs(12, 2, 3);
}

static void expect_bytes(const void *is, size_t len, const uint8_t *wanted, size_t wanted_len)
{
    assert_u64(len, wanted_len);
    cr_assert_arr_eq(is, wanted, wanted_len);
}

/* docs/on-disk-format.md, "The view". */
Test(pack_list, rows_are_as_documented)
{
    static const uint8_t plain[] = {2, 2, 0, 0, 1, 0,    0,    0,    1,    0,
                                    0, 3, 0, 0, 9, 0x80, 0x20, 0xe8, 0x87, 0x2c},
                         dense[] = {2,  4,  3,  1,  0,  0x81, 0x01, 0xff, 0xff, 0x3f, 0,  0,
                                    0,  0,  0,  0,  0,  5,    0x40, 0x0a, 1,    2,    3,  4,
                                    5,  6,  7,  8,  9,  10,   11,   12,   13,   14,   15, 16,
                                    17, 18, 19, 20, 21, 22,   23,   24,   3,    1},
                         list[] = {1, 0, 0, 0, 0, 9, 7, 0, 0, 0, 0};
    struct chunk_name name = {{7}}, other = {{0, 0, 0, 0, 9}}, base;
    struct chunk_row row = {.refs = 1, .entry = {.encoding = 2}}, again;
    struct listed_chunks listed = {0};
    struct bytes value = {0};
    uint8_t out[CHUNK_VALUE_LEN_MAX];
    row.entry.pack = 1ull << 48 | 3ull << 24 | 9;
    row.entry.offset = 4096;
    row.entry.stored_len = 721896;
    row.entry.raw_len = CHUNK_SIZE_MAX;
    expect_bytes(out, chunk_row_encode(&row, out), plain, sizeof plain);
    assert_i64(chunk_row_decode(&name, plain, sizeof plain, &again), 0);
    for (uint8_t i = 0; i < sizeof base.bytes; i++)
        base.bytes[i] = i + 1;
    row =
        (struct chunk_row){.dependents = 129, .entry = {.encoding = 4, .depth = 3, .ref_count = 1}};
    row.entry.pack = 5;
    row.entry.offset = 64;
    row.entry.stored_len = 10;
    row.entry.raw_len = 1;
    row.entry.refs[0] = (struct chunk_ref){base, 3, CHUNK_SIZE_MAX - 1};
    expect_bytes(out, chunk_row_encode(&row, out), dense, sizeof dense);
    for (size_t len = 0; len < sizeof dense; len++)
        assert_i64(chunk_row_decode(&name, dense, len, &again), -EUCLEAN);
    assert_i64(chunk_row_decode(&name, dense, sizeof dense, &again), 0);
    expect_u64(chunk_row_encode(&again, out), sizeof dense);
    vector_add(&listed, listed_of(&name));
    vector_add(&listed, listed_of(&other));
    vector_add(&listed, listed_of(&name));
    list_encode(&listed, &value);
    expect_bytes(value.at, value.count, list, sizeof list);
    vector_free(&listed);
    vector_free(&value);
}

/* A number of a row has one form, and fits. */
Test(pack_list, other_forms_of_numbers_are_damage)
{
    static const uint8_t longer[] = {2, 2, 0, 0, 0x81, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9, 64, 10},
                         too_large[] = {2,    2,    0,    0,    0xff, 0xff, 0xff, 0xff, 0xff,
                                        0xff, 0xff, 0xff, 0xff, 0x7f, 0,    0,    0,    0,
                                        0,    0,    0,    0,    0,    9,    64,   10};
    const struct chunk_name name = {{7}};
    struct chunk_row row;
    assert_i64(chunk_row_decode(&name, longer, sizeof longer, &row), -EUCLEAN);
    assert_i64(chunk_row_decode(&name, too_large, sizeof too_large, &row), -EUCLEAN);
}

static int note_chunk(const struct chunk_entry *entry, bool is_needed, void *arg)
{
    expect_i64(is_needed, false);
    *(uint64_t *)arg += (uint64_t)entry->name.bytes[LISTED_LEN];
    return 0;
}

static void place_alike(uint64_t pack, uint32_t first, uint32_t count)
{
    struct chunk_entry entries[16];
    for (uint32_t i = 0; i < count; i++) {
        entries[i] = remote_entry(pack, first + i, 64 + 2000ull * i);
        entries[i].name = alike(first + i);
    }
    assert_i64(view_remote_placed(f.view, pack, 64 + 2000ull * count, entries, count), 0);
}

static uint64_t sum_of(uint64_t pack)
{
    uint64_t sum = 0;
    assert_i64(view_remote_pack_chunks(f.view, pack, note_chunk, &sum), 0);
    return sum;
}

Test(pack_list, remote_packs_whose_chunks_begin_alike)
{
    assert_i64(view_track(f.view), 0);
    place_alike(100, 10, 3);
    place_alike(101, 20, 2);
    place_alike(102, 12, 1);
    expect_check_ok(f.view);
    expect_u64(sum_of(100), 10 + 11);
    expect_u64(sum_of(101), 20 + 21);
    expect_u64(sum_of(102), 12);
    give_up_pack(100);
    expect_check_ok(f.view);
    expect_u64(sum_of(100), 0);
    expect_u64(sum_of(101), 20 + 21);
    expect_u64(sum_of(102), 12);
    give_up_pack(102);
    expect_u64(sum_of(101), 20 + 21);
    expect_check_ok(f.view);
}
