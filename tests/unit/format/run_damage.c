// SPDX-License-Identifier: Apache-2.0
/* Runs that are not what a writer made: blocks and rows that were forged, flipped bits, files
 * cut short. */

#include "../expect.h"
#include "../base/seeded.h"
#include "format/le.h"
#include "format/run.h"
#include "run_files.h"

/* --- blocks and rows -------------------------------------------------------------------------- */

/* A file whose first two blocks have the same length. */
static struct run_file two_equal_blocks(uint64_t id)
{
    static uint8_t value[RUN_BLOCK_ROOM];
    struct run_info info = sample_run_info();
    info.id = id;
    const struct run_row rows[] = {{"a", 1, value, sizeof value},
                                   {"b", 1, value, sizeof value},
                                   {"c", 1, value, sizeof value}};
    struct run_file file = run_file_of(&info, rows, ARRAY_LEN(rows));
    assert_u64(run_block_count(&file), 3);
    return file;
}

static void swap_blocks(struct run_file *file, size_t i, size_t j)
{
    size_t a = run_block_at(file, i), b = run_block_at(file, j),
           len = run_block_at(file, 1) - run_block_at(file, 0);
    _cleanup_free_ uint8_t *keep = xmalloc(len);
    memcpy(keep, file->data + a, len);
    memcpy(file->data + a, file->data + b, len);
    memcpy(file->data + b, keep, len);
}

Test(run, swapped_blocks)
{
    for (size_t i = 0; i < 3; i++) {
        struct run_file file = two_equal_blocks(1);
        swap_blocks(&file, i, (i + 1) % 3);
        assert_i64(run_file_read(&file, NULL), -EUCLEAN, "a block tells where it lies");
        for (size_t n = 0; n < 3; n++) {
            put_le64(file.data + run_block_at(&file, n) + 8, run_block_at(&file, n));
            run_fix_block(&file, run_block_at(&file, n));
        }
        assert_i64(run_file_read(&file, NULL), -EUCLEAN, "keys ascend over blocks too");
        run_file_done(&file);
    }
}

Test(run, repeated_block)
{
    struct run_file file = two_equal_blocks(1);
    size_t first = run_block_at(&file, 0), second = run_block_at(&file, 1);
    memcpy(file.data + second, file.data + first, second - first);
    put_le64(file.data + second + 8, second);
    run_fix_block(&file, second);
    assert_i64(run_file_read(&file, NULL), -EUCLEAN);
    run_file_done(&file);
}

Test(run, block_of_another_run)
{
    struct run_file a = two_equal_blocks(1), b = two_equal_blocks(2);
    size_t second = run_block_at(&a, 1), third = run_block_at(&a, 2);
    memcpy(a.data + second, b.data + second, third - second);
    assert_i64(run_file_read(&a, NULL), -EBADMSG);
    run_file_done(&a);
    run_file_done(&b);
}

static int read_changed_block(size_t at, uint64_t value, size_t len)
{
    struct run_info info = sample_run_info();
    struct run_file file = run_file_numbered(&info, 10);
    uint8_t field[8];
    put_le64(field, value);
    memcpy(file.data + RUN_HEADER_LEN + at, field, len);
    if (run_block_at(&file, 1) <= file.len - RUN_TRAILER_LEN)
        run_fix_block(&file, RUN_HEADER_LEN);
    int r = run_file_read(&file, NULL);
    cr_assert_leq(file.largest_get, 4096, "what is longer than the file is not asked for");
    run_file_done(&file);
    return r;
}

Test(run, fields_of_a_block_are_checked)
{
    assert_i64(read_changed_block(4, 10, 4), 0);
    assert_i64(read_changed_block(0, 0, 4), -EUCLEAN);
    assert_i64(read_changed_block(0, UINT32_MAX, 4), -EUCLEAN);
    assert_i64(read_changed_block(0, 1 << 20, 4), -EUCLEAN);
    assert_i64(read_changed_block(0, 20, 4), -EUCLEAN);
    assert_i64(read_changed_block(4, 0, 4), -EUCLEAN);
    assert_i64(read_changed_block(4, 9, 4), -EUCLEAN, "bytes after the last row");
    assert_i64(read_changed_block(4, 11, 4), -EUCLEAN);
    assert_i64(read_changed_block(4, UINT32_MAX, 4), -EUCLEAN);
    assert_i64(read_changed_block(8, 0, 8), -EUCLEAN);
    assert_i64(read_changed_block(8, UINT64_MAX, 8), -EUCLEAN);
}

Test(run, block_without_rows)
{
    struct run_file file = run_file_crafted("\0\0\1\0\1\0\0\0kv", 10, 0);
    uint64_t rows;
    assert_i64(run_file_read(&file, &rows), -EUCLEAN);
    assert_u64(rows, 0);
    run_file_done(&file);
}

/* With a checksum that lies in the trailer: whoever can choose that could hide bytes there. */
Test(run, block_that_runs_into_the_trailer)
{
    for (uint32_t more = 1; more <= RUN_TRAILER_LEN + 20; more++) {
        struct run_info info = sample_run_info();
        struct run_file file = run_file_numbered(&info, 10);
        put_le32(file.data + RUN_HEADER_LEN, get_le32(file.data + RUN_HEADER_LEN) + more);
        assert_i64(run_file_read(&file, NULL), -EUCLEAN);
        run_file_done(&file);
    }
}

Test(run, block_longer_than_any_writer_makes)
{
    size_t len = RUN_BLOCK_ROOM + RUN_VALUE_MAX + RUN_KEY_MAX + 8;
    _cleanup_free_ uint8_t *rows = xcalloc(1, len);
    struct run_file file = run_file_crafted(rows, len, 1);
    assert_i64(run_file_read(&file, NULL), -EUCLEAN);
    cr_assert_leq(file.largest_get, RUN_HEADER_LEN);
    run_file_done(&file);
}

Test(run, bytes_that_are_no_block)
{
    struct run_info info = sample_run_info();
    for (size_t extra = 1; extra < 40; extra++) {
        struct run_file file = run_file_of(&info, NULL, 0);
        uint8_t trailer[RUN_TRAILER_LEN], zeros[40] = {0};
        memcpy(trailer, file.data + RUN_HEADER_LEN, sizeof trailer);
        file.len = RUN_HEADER_LEN;
        put_le64(trailer + 24, file.len + extra + sizeof trailer);
        assert_i64(run_file_put(zeros, extra, &file), 0);
        assert_i64(run_file_put(trailer, sizeof trailer, &file), 0);
        run_fix_trailer(&file);
        assert_i64(run_file_read(&file, NULL), -EUCLEAN);
        run_file_done(&file);
    }
}

/* Two rows as they stand in a block: each shared, rest, value length and key; values are zeros. */
static int read_two_rows(uint16_t shared, const char *rest, uint32_t value_len)
{
    uint8_t rows[256] = {0};
    memcpy(rows, "\0\0\3\0\1\0\0\0mmmv", 12);
    put_le16(rows + 12, shared);
    put_le16(rows + 14, (uint16_t)strlen(rest));
    put_le32(rows + 16, value_len);
    memcpy(rows + 20, rest, strlen(rest));
    size_t len = 20 + strlen(rest) + (value_len < 100 ? value_len : 0);
    struct run_file file = run_file_crafted(rows, len, 2);
    int r = run_file_read(&file, NULL);
    run_file_done(&file);
    return r;
}

Test(run, rows_are_checked)
{
    assert_i64(read_two_rows(0, "n", 0), 0);
    assert_i64(read_two_rows(3, "a", 9), 0);
    assert_i64(read_two_rows(2, "n", UINT32_MAX), 0);
    assert_i64(read_two_rows(2, "mm", 0), 0, "less shared than could be");
    assert_i64(read_two_rows(0, "mmm", 0), -EUCLEAN, "the same key");
    assert_i64(read_two_rows(0, "mm", 0), -EUCLEAN, "a shorter one");
    assert_i64(read_two_rows(2, "l", 0), -EUCLEAN, "a smaller one");
    assert_i64(read_two_rows(3, "", 0), -EUCLEAN);
    assert_i64(read_two_rows(0, "", 0), -EUCLEAN);
    assert_i64(read_two_rows(4, "a", 0), -EUCLEAN, "more shared than there is");
    assert_i64(read_two_rows(UINT16_MAX, "a", 0), -EUCLEAN);
    assert_i64(read_two_rows(3, "a", 101), -EUCLEAN, "a value past the block");
    assert_i64(read_two_rows(3, "a", RUN_VALUE_MAX + 1), -EUCLEAN);
    assert_i64(read_two_rows(3, "a", UINT32_MAX - 1), -EUCLEAN);
}

Test(run, bytes_after_the_last_row)
{
    struct run_file file = run_file_crafted("\0\0\1\0\1\0\0\0kv", 10, 1);
    uint64_t rows;
    assert_i64(run_file_read(&file, &rows), 0);
    assert_u64(rows, 1);
    run_file_done(&file);
    file = run_file_crafted("\0\0\1\0\1\0\0\0kv+", 11, 1);
    assert_i64(run_file_read(&file, NULL), -EUCLEAN);
    run_file_done(&file);
}

Test(run, value_longer_than_any)
{
    size_t len = 8 + 1 + RUN_VALUE_MAX + 1;
    _cleanup_free_ uint8_t *rows = xcalloc(1, len);
    put_le16(rows + 2, 1);
    put_le32(rows + 4, RUN_VALUE_MAX + 1);
    struct run_file file = run_file_crafted(rows, len, 1);
    assert_i64(run_file_read(&file, NULL), -EUCLEAN);
    run_file_done(&file);
    put_le32(rows + 4, RUN_VALUE_MAX);
    file = run_file_crafted(rows, len - 1, 1);
    assert_i64(run_file_read(&file, NULL), 0);
    run_file_done(&file);
}

Test(run, first_key_of_a_block_stands_alone)
{
    struct run_file file = two_equal_blocks(1);
    size_t second = run_block_at(&file, 1);
    put_le16(file.data + second + BLOCK_HEADER, 1); /* "ab": in order, but not by itself */
    run_fix_block(&file, second);
    assert_i64(run_file_read(&file, NULL), -EUCLEAN);
    run_file_done(&file);
}

Test(run, keys_are_checked)
{
    struct run_file file = run_file_crafted("\1\0\1\0\0\0\0\0k", 9, 1);
    assert_i64(run_file_read(&file, NULL), -EUCLEAN, "the first key of all shares nothing");
    run_file_done(&file);
    file = run_file_crafted("\0\0\0\0\1\0\0\0k", 9, 1);
    assert_i64(run_file_read(&file, NULL), -EUCLEAN, "an empty key");
    run_file_done(&file);
    file = run_file_crafted("\0\0\xff\xff\0\0\0\0k", 9, 1);
    assert_i64(run_file_read(&file, NULL), -EUCLEAN, "a key past the block");
    run_file_done(&file);
}

Test(run, longest_key)
{
    for (size_t extra = 0; extra < 2; extra++) {
        uint8_t rows[8 + RUN_KEY_MAX + 1] = {0};
        put_le16(rows + 2, (uint16_t)(RUN_KEY_MAX + extra));
        struct run_file file = run_file_crafted(rows, 8 + RUN_KEY_MAX + extra, 1);
        assert_i64(run_file_read(&file, NULL), extra ? -EUCLEAN : 0);
        run_file_done(&file);
    }
}

/* --- random damage ---------------------------------------------------------------------------- */

Test(run, flipped_bits_are_found)
{
    struct seeded seeded = {11};
    struct run_info info = sample_run_info();
    struct run_file file = run_file_numbered(&info, 1200);
    cr_assert_gt(run_block_count(&file), 2);
    assert_i64(run_file_read(&file, NULL), 0);
    for (int round = 0; round < 3000; round++) {
        size_t at = seeded_below(&seeded, file.len);
        if (round % 3 == 0) /* what frames the rows is short: it gets its share */
            at =
                run_block_at(&file, seeded_below(&seeded, 3)) + seeded_below(&seeded, BLOCK_HEADER);
        uint8_t bit = (uint8_t)(1u << seeded_below(&seeded, 8));
        file.data[at] ^= bit;
        int r = run_file_read(&file, NULL);
        cr_assert(r == -EUCLEAN || r == -EBADMSG, "bit %#x of byte %zu: %d", bit, at, r);
        file.data[at] ^= bit;
    }
    run_file_done(&file);
}

Test(run, truncated_files_are_found)
{
    struct seeded seeded = {12};
    struct run_info info = sample_run_info();
    struct run_file whole = run_file_numbered(&info, 1200);
    for (int round = 0; round < 500; round++) {
        size_t len = round < 200 ? whole.len - 1 - (size_t)round : seeded_below(&seeded, whole.len);
        struct run_file cut = {.data = xmalloc(len), .len = len};
        memcpy(cut.data, whole.data, len);
        int r = run_file_read(&cut, NULL);
        cr_assert(r == -EUCLEAN || r == -EBADMSG, "cut to %zu: %d", len, r);
        run_file_done(&cut);
    }
    run_file_done(&whole);
}

/* Whoever can make checksums gets errors too, or rows that are in order; never anything else. */
static void read_hostile(struct run_file *file)
{
    struct run_reader *reader = NULL;
    uint8_t last[RUN_KEY_MAX];
    size_t last_len = 0;
    int r = run_reader_new(file->len, run_file_get, file, &reader);
    struct run_row row;
    while (r == 0 && (r = run_reader_next(reader, &row)) == 0) {
        cr_assert(row.key_len > 0 && row.key_len <= RUN_KEY_MAX && row.value_len <= RUN_VALUE_MAX);
        int order = memcmp(last, row.key, last_len < row.key_len ? last_len : row.key_len);
        cr_assert(order < 0 || (order == 0 && last_len < row.key_len));
        last_len = row.key_len;
        memcpy(last, row.key, last_len);
        _cleanup_free_ uint8_t *copy = xmalloc(row.value_len);
        if (row.value_len)
            memcpy(copy, row.value, row.value_len);
    }
    cr_assert(r == -ENODATA || r == -EUCLEAN || r == -EBADMSG || r == -EPROTONOSUPPORT, "%d", r);
    run_reader_free(reader);
}

Test(run, hostile_bytes_never_reach_outside)
{
    struct seeded seeded = {13};
    struct run_info info = sample_run_info();
    struct run_file whole = run_file_numbered(&info, 30);
    for (int round = 0; round < 30000; round++) {
        struct run_file file = {.data = xmalloc(whole.len), .len = whole.len};
        memcpy(file.data, whole.data, whole.len);
        for (uint64_t flips = 1 + seeded_below(&seeded, 3); flips > 0; flips--) {
            /* Often among lengths: the first rows have short values. */
            size_t among = seeded_below(&seeded, 2) ? 300 : file.len;
            file.data[seeded_below(&seeded, among)] = (uint8_t)seeded_u64(&seeded);
        }
        run_fix_header(&file);
        if (run_block_at(&file, 1) <= file.len - RUN_TRAILER_LEN)
            run_fix_block(&file, RUN_HEADER_LEN);
        read_hostile(&file);
        run_file_done(&file);
    }
    run_file_done(&whole);
}
