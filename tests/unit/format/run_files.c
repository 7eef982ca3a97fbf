// SPDX-License-Identifier: Apache-2.0
#include "run_files.h"
#include "../expect.h"

#include <stdio.h>

#include "base/crc.h"
#include "format/le.h"

int run_file_put(const void *buf, size_t len, void *arg)
{
    struct run_file *file = arg;
    if (file->fail_with && file->len + len > file->fail_from)
        return file->fail_with;
    file->data = xrealloc(file->data, file->len + len);
    memcpy(file->data + file->len, buf, len);
    file->len += len;
    return 0;
}

int run_file_get(uint64_t offset, void *buf, size_t len, void *arg)
{
    struct run_file *file = arg;
    cr_assert(offset <= file->len && len <= file->len - offset, "asks for bytes outside the file");
    if (file->fail_with && offset + len > file->fail_from)
        return file->fail_with;
    if (len > file->largest_get)
        file->largest_get = len;
    memcpy(buf, file->data + offset, len);
    return 0;
}

void run_file_done(struct run_file *file)
{
    free(file->data);
    *file = (struct run_file){.len = 0};
}

struct run_info sample_run_info(void)
{
    struct run_info info = {.id = 0x0003000007000011, .base_cut = 40, .cut = 99};
    for (uint8_t i = 0; i < sizeof info.history; i++)
        info.history[i] = (uint8_t)(0xa0 + i);
    return info;
}

struct run_row row_of_number(size_t i, char *buf)
{
    snprintf(buf, 9, "%08u", (unsigned)(i % 100000000));
    size_t value_len = i * 37 % 301;
    memset(buf + 9, (int)('a' + i % 26), value_len);
    bool removed = i % 7 == 3;
    return (struct run_row){.key = buf,
                            .key_len = 8,
                            .value = removed ? NULL : buf + 9,
                            .value_len = removed ? 0 : value_len};
}

struct run_file run_file_of(const struct run_info *info, const struct run_row *rows, size_t count)
{
    struct run_file file = {.len = 0};
    struct run_info done = *info;
    struct run_writer *writer = run_writer_new(info, run_file_put, &file);
    for (size_t i = 0; i < count; i++)
        assert_i64(run_writer_add(writer, &rows[i]), 0);
    assert_i64(run_writer_finish(writer, &done), 0);
    run_writer_free(writer);
    assert_u64(done.rows, count);
    assert_u64(done.length, file.len);
    return file;
}

struct run_file run_file_numbered(const struct run_info *info, size_t count)
{
    _cleanup_free_ struct run_row *rows = xcalloc(count, sizeof *rows);
    _cleanup_free_ char *bufs = xcalloc(count, 320);
    for (size_t i = 0; i < count; i++)
        rows[i] = row_of_number(i, bufs + 320 * i);
    struct run_file file = run_file_of(info, rows, count);
    return file;
}

struct run_file run_file_crafted(const void *rows, size_t rows_len, uint32_t row_count)
{
    struct run_info info = sample_run_info();
    struct run_file file = run_file_of(&info, NULL, 0);
    uint8_t trailer[RUN_TRAILER_LEN], head[BLOCK_HEADER], crc[4] = {0};
    memcpy(trailer, file.data + RUN_HEADER_LEN, sizeof trailer);
    file.len = RUN_HEADER_LEN;
    put_le32(head, (uint32_t)rows_len);
    put_le32(head + 4, row_count);
    put_le64(head + 8, RUN_HEADER_LEN);
    assert_i64(run_file_put(head, sizeof head, &file), 0);
    assert_i64(run_file_put(rows, rows_len, &file), 0);
    assert_i64(run_file_put(crc, sizeof crc, &file), 0);
    run_fix_block(&file, RUN_HEADER_LEN);
    put_le64(trailer + 16, row_count);
    put_le64(trailer + 24, file.len + sizeof trailer);
    assert_i64(run_file_put(trailer, sizeof trailer, &file), 0);
    run_fix_trailer(&file);
    return file;
}

size_t run_block_at(const struct run_file *file, size_t n)
{
    size_t at = RUN_HEADER_LEN;
    for (; n > 0; n--)
        at += BLOCK_HEADER + get_le32(file->data + at) + 4;
    return at;
}

size_t run_block_count(const struct run_file *file)
{
    size_t n = 0;
    while (run_block_at(file, n) < file->len - RUN_TRAILER_LEN)
        n++;
    return n;
}

void run_fix_header(struct run_file *file)
{
    put_le32(file->data + 124, crc32_of(0, file->data, 124));
    uint8_t *trailer = file->data + file->len - RUN_TRAILER_LEN;
    memcpy(trailer + 32, file->data + 124, 4);
    run_fix_trailer(file);
}

void run_fix_block(struct run_file *file, size_t at)
{
    size_t len = BLOCK_HEADER + get_le32(file->data + at);
    put_le32(file->data + at + len, crc32_of(get_le32(file->data + 124), file->data + at, len));
}

void run_fix_trailer(struct run_file *file)
{
    uint8_t *trailer = file->data + file->len - RUN_TRAILER_LEN;
    put_le32(trailer + 60, crc32_of(0, trailer, 60));
}

struct run_reader *run_file_open(struct run_file *file)
{
    struct run_reader *reader = NULL;
    assert_i64(run_reader_new(file->len, run_file_get, file, &reader), 0);
    return reader;
}

int run_file_read(struct run_file *file, uint64_t *ret_rows)
{
    struct run_reader *reader = NULL;
    struct run_row row;
    uint64_t ignored;
    uint64_t *rows = ret_rows ? ret_rows : &ignored;
    *rows = 0;
    int r = run_reader_new(file->len, run_file_get, file, &reader);
    if (r < 0)
        return r;
    while ((r = run_reader_next(reader, &row)) == 0)
        ++*rows;
    assert_i64(run_reader_next(reader, &row), r, "an error, and the end, stay");
    run_reader_free(reader);
    return r == -ENODATA ? 0 : r;
}
