// SPDX-License-Identifier: Apache-2.0
/* What the tests of the stage share: a stage in a folder of its own on a tmpfs, and the world
 * around it (files below, chunks, a log's pending operations) in plain memory. */
#pragma once

#include <criterion/criterion.h>
#include <criterion/new/assert.h>

#include "stage/stage.h"

#define BOX_CHUNKS 4096u

struct box_chunk {
    uint64_t pack; /* 0: no such chunk */
    uint8_t *bytes;
    size_t len;
};

/* What the view would say of a file. */
struct box_below {
    bool exists;
    uint64_t version, size;
    uint8_t *bytes;
};

#define BOX_FILES 16u /* inodes 1 to 15 */

struct box {
    char dir[64];
    struct stage_config config;
    struct stage *stage;
    uint64_t epoch;
    struct box_below below[BOX_FILES];
    struct box_chunk chunks[BOX_CHUNKS];
    unsigned chunk_count;
    uint8_t *pending; /* encoded operations that are not durable */
    size_t pending_len, pending_max;
};

void box_create(struct box *box, uint64_t size_bytes);
void box_remove(struct box *box);
/* The daemon dies: nothing is put in order. */
void box_die(struct box *box);
/* The next daemon up to stage_rebuild_layers(); then as a whole, with the log written anew. */
int box_reopen(struct box *box);
void box_adopt(struct box *box);
void box_recover(struct box *box);
int box_compact(struct box *box);

/* A write from a buffer, or stolen from a slab if it is large. */
int box_write(struct box *box, uint64_t ino, uint64_t offset, const void *data, uint32_t length);
/* The same, or -EAGAIN where it would have to wait for a slab. */
int box_try_write(struct box *box, uint64_t ino, uint64_t offset, const void *data,
                  uint32_t length);
void box_write_ok(struct box *box, uint64_t ino, uint64_t offset, const void *data,
                  uint32_t length);
/* `length` times `byte`. */
void box_fill(struct box *box, uint64_t ino, uint64_t offset, char byte, uint32_t length);
void box_cut(struct box *box, uint64_t ino, uint64_t offset, uint64_t length, uint64_t new_size);
/* The size of the file as it is now, and the number of its last sealed version. */
uint64_t box_size(struct box *box, uint64_t ino);

/* Seals the draft as the version after `version`, with its record in the log. False: there was
 * none. */
bool box_seal(struct box *box, uint64_t ino);
/* The same, but the daemon dies before the record. */
void box_seal_unlogged(struct box *box, uint64_t ino);
/* Writeback: the pinned layer over what is below becomes what is below. */
void box_pin(struct box *box, uint64_t ino);
void box_done(struct box *box, uint64_t ino);
/* Content of a sealed version as writeback would store it: caller frees. */
uint8_t *box_layer_content(struct box *box, const struct stage_sealed *sealed);
/* Writes one piece of the draft into a new chunk of a new pack; returns its bytes. */
uint64_t box_piece(struct box *box, uint64_t ino, uint64_t max_bytes);

/* Content of [offset, offset + length) as a reader sees it. */
void box_read(struct box *box, uint64_t ino, uint64_t offset, void *buf, size_t length);
/* `text` has a '.' for each zero byte. */
void box_expect(struct box *box, uint64_t ino, uint64_t offset, const char *text);
/* Everything sealed, written, forgotten; then the stage must be empty. */
void box_expect_drains(struct box *box);
