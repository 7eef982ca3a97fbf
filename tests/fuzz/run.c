// SPDX-License-Identifier: Apache-2.0
/* Runs: what is read is in order, and what is written of it reads the same. */
#include "format/run.h"

#include "fuzz.h"
#include "mend.h"
#include "run_file.h"

#define BLOCK_HEADER_LEN 16u
#define BLOCK_CRC_LEN 4u

static bool same_row(const struct run_row *a, const struct run_row *b)
{
    return a->key_len == b->key_len && memcmp(a->key, b->key, a->key_len) == 0 &&
           !a->value == !b->value && a->value_len == b->value_len &&
           (a->value_len == 0 || memcmp(a->value, b->value, a->value_len) == 0);
}

/* `written` was made of what `file` holds. */
static void compare(struct run_file *file, struct run_file *written, const struct run_info *info)
{
    struct run_reader *a, *b;
    struct run_row row_a, row_b;
    check(run_reader_new(file->len, run_file_get, file, &a) == 0);
    check(run_reader_new(written->len, run_file_get, written, &b) == 0);
    check(run_reader_info(b)->rows == info->rows && run_reader_info(b)->length == written->len);
    int r;
    do {
        r = run_reader_next(a, &row_a);
        check(run_reader_next(b, &row_b) == r);
        check(r < 0 || same_row(&row_a, &row_b));
    } while (r == 0);
    check(r == -ENODATA);
    run_reader_free(a);
    run_reader_free(b);
}

static void decode(struct run_file *file)
{
    struct run_reader *reader;
    if (run_reader_new(file->len, run_file_get, file, &reader) < 0)
        return;
    struct run_info info = *run_reader_info(reader);
    struct run_file written = {0};
    struct run_writer *writer = run_writer_new(&info, run_file_put, &written);
    struct run_row row;
    int r;
    while ((r = run_reader_next(reader, &row)) == 0)
        check(run_writer_add(writer, &row) == 0); /* which insists on the order of keys */
    check(run_reader_next(reader, &row) == r);
    if (r == -ENODATA) {
        check(run_writer_finish(writer, &info) == 0);
        compare(file, &written, &info);
    }
    run_reader_free(reader);
    run_writer_free(writer);
    free(written.at);
}

static void mend(struct run_file *file)
{
    uint8_t *p = file->at, *trailer = p + file->len - RUN_TRAILER_LEN;
    uint64_t rows = 0;
    size_t at = RUN_HEADER_LEN, end = file->len - RUN_TRAILER_LEN;
    mend_frame(p, RUN_HEADER_LEN);
    uint32_t header_crc = get_le32(p + RUN_HEADER_LEN - 4);
    while (end - at >= BLOCK_HEADER_LEN + BLOCK_CRC_LEN) {
        size_t room = end - at - BLOCK_HEADER_LEN - BLOCK_CRC_LEN;
        if (get_le32(p + at) > room)
            put_le32(p + at, (uint32_t)room);
        size_t len = BLOCK_HEADER_LEN + get_le32(p + at);
        rows += get_le32(p + at + 4);
        put_le64(p + at + 8, at);
        put_le32(p + at + len, crc32_of(header_crc, p + at, len));
        at += len + BLOCK_CRC_LEN;
    }
    memcpy(trailer + 8, p + 16, 8);
    put_le64(trailer + 16, rows);
    put_le64(trailer + 24, file->len);
    put_le32(trailer + 32, header_crc);
    mend_frame(trailer, RUN_TRAILER_LEN);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct run_file file = {exact_copy(data, size), size};
    decode(&file);
    if (size >= RUN_HEADER_LEN + RUN_TRAILER_LEN) {
        mend(&file);
        decode(&file);
    }
    free(file.at);
    return 0;
}
