// SPDX-License-Identifier: Apache-2.0
/* Files made by hand for the chunker, and what it makes of them. */
#pragma once

#include "base/base.h"

struct file {
    uint8_t *data;
    size_t len, room;
    uint64_t entry_data; /* of the last entry */
    uint64_t writes[4096];
    size_t write_count;
    struct {
        uint64_t header, len;
    } entries[256]; /* of which file_directory() tells; what comes behind them is left out */
    size_t entry_count;
};

struct borders {
    uint64_t *at;
    size_t count;
};

struct seeded;

void file_noise(struct file *f, size_t len);
void file_write(struct file *f, size_t len);        /* noise that the application writes at once */
void file_text(struct file *f, const char *header); /* a safetensors header */
void file_entry(struct file *f, size_t len, uint16_t padding, unsigned descriptor_len);
void file_central(struct file *f);
/* A whole directory and its end, with values in zip64's fields, too. */
void file_directory(struct file *f, bool zip64);
void file_done(struct file *f);
#define _cleanup_file_ __attribute__((cleanup(file_done)))

struct borders chunk_whole(const struct file *f);
/* Looked ahead at; then in calls of random length. */
struct borders chunk_ahead(const struct file *f, struct seeded *s);

/* The same content in calls of random length, and in buffers of random length. */
struct borders chunk_pieces(const struct file *f, struct seeded *s, size_t call_max,
                            size_t buffer_max);
/* In two calls, of which the first has the content up to `end`; no writes. */
struct borders chunk_in_two(const struct file *f, uint64_t end);
void borders_done(struct borders *b);
#define _cleanup_borders_ __attribute__((cleanup(borders_done)))
void expect_same(const struct borders *a, const struct borders *b);

/* In one call, and in many ways of splitting. */
void expect_borders(const struct file *f, const uint64_t *at, size_t count);
