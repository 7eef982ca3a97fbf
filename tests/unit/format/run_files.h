// SPDX-License-Identifier: Apache-2.0
/* Runs in memory, for the tests: written, damaged, crafted by hand and read. */
#pragma once

#include "format/run.h"

#define BLOCK_HEADER 16u

struct run_file {
    uint8_t *data;
    size_t len;
    int fail_with; /* what put and get return from `fail_from` on */
    size_t fail_from;
    size_t largest_get;
};

int run_file_put(const void *buf, size_t len, void *arg);
int run_file_get(uint64_t offset, void *buf, size_t len, void *arg);
void run_file_done(struct run_file *file);

struct run_info sample_run_info(void);

/* A whole run of these rows. */
struct run_file run_file_of(const struct run_info *info, const struct run_row *rows, size_t count);
/* A run of `count` numbered rows over several blocks: row_of_number() i to i + count - 1. */
struct run_file run_file_numbered(const struct run_info *info, size_t count);
/* Key of 8 digits; values of 0 to 300 bytes, each 7th row is a removal. `buf` has room for 320
 * bytes. */
struct run_row row_of_number(size_t i, char *buf);
/* A run with one block of these bytes, all checksums right. */
struct run_file run_file_crafted(const void *rows, size_t rows_len, uint32_t row_count);

/* Offset of block `n`, and of the one after it: the trailer after the last. */
size_t run_block_at(const struct run_file *file, size_t n);
size_t run_block_count(const struct run_file *file);
/* Makes the checksums right after a change. */
void run_fix_header(struct run_file *file);
void run_fix_block(struct run_file *file, size_t at);
void run_fix_trailer(struct run_file *file);

struct run_reader *run_file_open(struct run_file *file);
/* Reads to the end or to an error: 0 if it was the end. *ret_rows (may be NULL): how many rows
 * came. */
int run_file_read(struct run_file *file, uint64_t *ret_rows);
