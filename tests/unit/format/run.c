// SPDX-License-Identifier: Apache-2.0
#include "format/run.h"

#include <signal.h>
#include <stdio.h>

#include "../expect.h"
#include "format/le.h"
#include "run_files.h"

static void expect_row(struct run_reader *reader, const struct run_row *expected)
{
    struct run_row row;
    assert_i64(run_reader_next(reader, &row), 0);
    assert_u64(row.key_len, expected->key_len);
    assert_i64(memcmp(row.key, expected->key, row.key_len), 0);
    assert_i64(row.value == NULL, expected->value == NULL);
    assert_u64(row.value_len, expected->value_len);
    if (row.value_len)
        assert_i64(memcmp(row.value, expected->value, row.value_len), 0);
}

static void expect_end(struct run_reader *reader)
{
    struct run_row row;
    assert_i64(run_reader_next(reader, &row), -ENODATA);
    assert_i64(run_reader_next(reader, &row), -ENODATA);
    run_reader_free(reader);
}

/* --- round trips ------------------------------------------------------------------------------ */

Test(run, round_trips)
{
    static uint8_t longest[RUN_KEY_MAX], largest[RUN_VALUE_MAX];
    memset(longest, 0xff, sizeof longest);
    memset(largest, 0x5a, sizeof largest);
    const struct run_row rows[] = {
        {"\0", 1, "zero byte", 9},
        {"\0\0", 2, "", 0},
        {"a", 1, NULL, 0},
        {"ab", 2, largest, sizeof largest},
        {"abc", 3, "after the largest", 17},
        {"b", 1, largest, RUN_BLOCK_ROOM - 9 - 1},
        {"b\xff", 2, "x", 1},
        {longest, sizeof longest - 1, largest, sizeof largest},
        {longest, sizeof longest, NULL, 0},
    };
    struct run_info in = sample_run_info();
    struct run_file file = run_file_of(&in, rows, ARRAY_LEN(rows));
    struct run_reader *reader = run_file_open(&file);
    const struct run_info *out = run_reader_info(reader);
    assert_u64(out->id, in.id);
    cr_assert_arr_eq(out->history, in.history, sizeof in.history);
    assert_u64(out->base_cut, in.base_cut);
    assert_u64(out->cut, in.cut);
    assert_u64(out->rows, ARRAY_LEN(rows));
    assert_u64(out->length, file.len);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        expect_row(reader, &rows[i]);
    expect_end(reader);
    cr_assert_leq(file.largest_get, RUN_BLOCK_ROOM + 8 + RUN_KEY_MAX + RUN_VALUE_MAX + 4);
    run_file_done(&file);
}

Test(run, many_rows_in_many_blocks)
{
    enum { COUNT = 5000 };
    struct run_info info = sample_run_info();
    struct run_file file = run_file_numbered(&info, COUNT);
    cr_assert_gt(run_block_count(&file), 5);
    struct run_reader *reader = run_file_open(&file);
    char buf[320];
    for (size_t i = 0; i < COUNT; i++) {
        struct run_row row = row_of_number(i, buf);
        expect_row(reader, &row);
    }
    expect_end(reader);
    cr_assert_leq(file.largest_get, RUN_BLOCK_ROOM + 400);
    run_file_done(&file);
}

Test(run, keys_share_what_they_begin_with)
{
    struct run_row rows[1000];
    char keys[ARRAY_LEN(rows)][101];
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        memset(keys[i], 'k', 96);
        snprintf(keys[i] + 96, 5, "%04u", (unsigned)(i % 10000));
        rows[i] = (struct run_row){keys[i], 100, "v", 1};
    }
    struct run_info info = sample_run_info();
    struct run_file file = run_file_of(&info, rows, ARRAY_LEN(rows));
    cr_assert_lt(file.len, ARRAY_LEN(rows) * 12);
    run_file_done(&file);
}

Test(run, block_ends_with_the_row_that_fills_it)
{
    static uint8_t value[RUN_BLOCK_ROOM];
    for (size_t less = 0; less < 2; less++) {
        const struct run_row rows[] = {{"a", 1, value, RUN_BLOCK_ROOM - 9 - less},
                                       {"b", 1, value, 10}};
        struct run_info info = sample_run_info();
        struct run_file file = run_file_of(&info, rows, ARRAY_LEN(rows));
        assert_u64(run_block_count(&file), less ? 1 : 2);
        assert_i64(run_file_read(&file, NULL), 0);
        run_file_done(&file);
    }
}

Test(run, without_rows)
{
    struct run_info info = sample_run_info();
    info.base_cut = info.cut;
    struct run_file file = run_file_of(&info, NULL, 0);
    assert_u64(file.len, RUN_HEADER_LEN + RUN_TRAILER_LEN);
    expect_end(run_file_open(&file));
    run_file_done(&file);
}

/* --- the writer ------------------------------------------------------------------------------- */

/* Whatever put() fails at, the writer stops there and says so until its end. */
static void write_until_error(size_t fail_from)
{
    struct run_file file = {.fail_with = -ENOSPC, .fail_from = fail_from};
    struct run_info info = sample_run_info(), done = info;
    struct run_writer *writer = run_writer_new(&info, run_file_put, &file);
    char buf[320];
    int r = 0;
    for (size_t i = 0; i < 2000; i++) {
        struct run_row row = row_of_number(i, buf);
        int added = run_writer_add(writer, &row);
        cr_assert(added == r || (r == 0 && added == -ENOSPC));
        r = added;
    }
    assert_i64(run_writer_finish(writer, &done), -ENOSPC);
    cr_assert_leq(file.len, fail_from);
    assert_u64(done.length, info.length, "only a run that was written has a length");
    run_writer_free(writer);
    run_file_done(&file);
}

Test(run, error_of_put_ends_the_writing)
{
    struct run_info info = sample_run_info();
    struct run_file whole = run_file_numbered(&info, 2000);
    size_t second = run_block_at(&whole, 1), trailer = whole.len - RUN_TRAILER_LEN;
    const size_t places[] = {0, RUN_HEADER_LEN, second, trailer};
    for (size_t i = 0; i < ARRAY_LEN(places); i++)
        write_until_error(places[i]);
    run_file_done(&whole);
    run_writer_free(NULL);
    run_reader_free(NULL);
}

static void add_keys(const char *first, const char *second)
{
    struct run_file file = {.len = 0};
    struct run_info info = sample_run_info();
    struct run_writer *writer = run_writer_new(&info, run_file_put, &file);
    assert_i64(run_writer_add(writer, &(struct run_row){first, strlen(first), "", 0}), 0);
    (void)!run_writer_add(writer, &(struct run_row){second, strlen(second), "", 0});
}

Test(run, writer_refuses_a_smaller_key, .signal = SIGABRT)
{
    add_keys("b", "a");
}

Test(run, writer_refuses_the_same_key, .signal = SIGABRT)
{
    add_keys("same", "same");
}

Test(run, writer_refuses_a_shorter_key, .signal = SIGABRT)
{
    add_keys("long", "lon");
}

/* --- header and trailer ----------------------------------------------------------------------- */

static int open_only(struct run_file *file, size_t length)
{
    struct run_reader *reader = NULL;
    int r = run_reader_new(length, run_file_get, file, &reader);
    assert_i64(reader == NULL, r < 0);
    run_reader_free(reader);
    return r;
}

Test(run, every_byte_of_header_and_trailer_counts)
{
    struct run_info info = sample_run_info();
    struct run_file file = run_file_numbered(&info, 10);
    size_t trailer = file.len - RUN_TRAILER_LEN;
    for (size_t i = 0; i < RUN_HEADER_LEN; i++) {
        file.data[i] ^= 0x40;
        assert_i64(open_only(&file, file.len), i < 8 ? -EUCLEAN : -EBADMSG);
        file.data[i] ^= 0x40;
    }
    for (size_t i = 0; i < RUN_TRAILER_LEN; i++) {
        file.data[trailer + i] ^= 0x40;
        assert_i64(open_only(&file, file.len), i < 4 ? -EUCLEAN : -EBADMSG);
        file.data[trailer + i] ^= 0x40;
    }
    assert_i64(open_only(&file, file.len), 0);
    run_file_done(&file);
}

static int open_changed(bool in_trailer, size_t at, uint64_t value, size_t len)
{
    struct run_info info = sample_run_info();
    struct run_file file = run_file_numbered(&info, 10);
    uint8_t field[8];
    put_le64(field, value);
    memcpy(file.data + (in_trailer ? file.len - RUN_TRAILER_LEN : 0) + at, field, len);
    if (in_trailer)
        run_fix_trailer(&file);
    else
        run_fix_header(&file);
    int r = open_only(&file, file.len);
    run_file_done(&file);
    return r;
}

Test(run, fields_of_the_header_are_checked)
{
    assert_i64(open_changed(false, 8, RUN_VERSION, 4), 0);
    assert_i64(open_changed(false, 8, RUN_VERSION + 1, 4), -EPROTONOSUPPORT);
    assert_i64(open_changed(false, 8, 0, 4), -EUCLEAN);
    assert_i64(open_changed(false, 12, 1, 4), -EUCLEAN);
    assert_i64(open_changed(false, 16, 0, 8), -EUCLEAN, "run 0");
    assert_i64(open_changed(false, 16, 5, 8), -EUCLEAN, "not the id of the trailer");
    assert_i64(open_changed(false, 24, 5, 8), 0, "any history");
    assert_i64(open_changed(false, 40, 99, 8), 0);
    assert_i64(open_changed(false, 40, 100, 8), -EUCLEAN, "a base after the cut");
    assert_i64(open_changed(false, 56, 1, 1), -EUCLEAN);
    assert_i64(open_changed(false, 123, 1, 1), -EUCLEAN);
}

Test(run, fields_of_the_trailer_are_checked)
{
    assert_i64(open_changed(true, 4, RUN_VERSION, 4), 0);
    assert_i64(open_changed(true, 4, RUN_VERSION + 1, 4), -EPROTONOSUPPORT);
    assert_i64(open_changed(true, 4, 0, 4), -EUCLEAN);
    assert_i64(open_changed(true, 8, 5, 8), -EUCLEAN, "another id");
    assert_i64(open_changed(true, 16, UINT64_MAX, 8), -EUCLEAN, "more rows than bytes");
    assert_i64(open_changed(true, 24, 0, 8), -EUCLEAN);
    assert_i64(open_changed(true, 24, UINT64_MAX, 8), -EUCLEAN);
    assert_i64(open_changed(true, 32, 5, 4), -EUCLEAN, "of another header");
    assert_i64(open_changed(true, 36, 1, 1), -EUCLEAN);
    assert_i64(open_changed(true, 59, 1, 1), -EUCLEAN);
}

Test(run, trailer_of_another_run)
{
    struct run_info info = sample_run_info(), other = info;
    other.history[3] ^= 1;
    struct run_file a = run_file_numbered(&info, 10), b = run_file_numbered(&other, 10);
    assert_u64(a.len, b.len);
    memcpy(a.data + a.len - RUN_TRAILER_LEN, b.data + b.len - RUN_TRAILER_LEN, RUN_TRAILER_LEN);
    assert_i64(open_only(&a, a.len), -EUCLEAN, "same id and length, another history");
    run_file_done(&a);
    run_file_done(&b);
}

Test(run, wrong_number_of_rows)
{
    for (uint64_t rows = 0; rows < 20; rows++) {
        struct run_info info = sample_run_info();
        struct run_file file = run_file_numbered(&info, 10);
        put_le64(file.data + file.len - RUN_TRAILER_LEN + 16, rows);
        run_fix_trailer(&file);
        assert_i64(run_file_read(&file, NULL), rows == 10 ? 0 : -EUCLEAN);
        run_file_done(&file);
    }
}

Test(run, lengths_that_no_run_has)
{
    struct run_info info = sample_run_info();
    struct run_file file = run_file_of(&info, NULL, 0);
    for (size_t len = 0; len < file.len; len++)
        assert_i64(open_only(&file, len), -EUCLEAN);
    assert_i64(open_only(&file, SIZE_MAX), -EUCLEAN);
    run_file_done(&file);
}

Test(run, error_of_get_is_handed_on)
{
    struct run_info info = sample_run_info();
    struct run_file file = run_file_numbered(&info, 1000);
    file.fail_with = -EIO;
    assert_i64(run_file_read(&file, NULL), -EIO);
    file.fail_from = RUN_HEADER_LEN;
    assert_i64(run_file_read(&file, NULL), -EIO, "the trailer");
    file.fail_with = 0;
    struct run_reader *reader = run_file_open(&file);
    struct run_row row;
    file.fail_with = -EIO;
    assert_i64(run_reader_next(reader, &row), -EIO);
    file.fail_with = 0;
    assert_i64(run_reader_next(reader, &row), -EIO, "stays");
    run_reader_free(reader);
    reader = run_file_open(&file);
    file.fail_with = -ETIMEDOUT;
    file.fail_from = RUN_HEADER_LEN + BLOCK_HEADER;
    assert_i64(run_reader_next(reader, &row), -ETIMEDOUT, "the rows of a block");
    run_reader_free(reader);
    file.fail_with = 0;
    reader = run_file_open(&file);
    file.fail_with = -ENODATA;
    assert_i64(run_reader_next(reader, &row), -EIO, "that is not the end");
    run_reader_free(reader);
    run_file_done(&file);
}
