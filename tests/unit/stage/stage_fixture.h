// SPDX-License-Identifier: Apache-2.0
/* What the tests of the stage share: a stage in a directory of its own on a tmpfs, and the world
 * around it (files below, chunks, a log's pending operations) in plain memory. */
#pragma once

#include <criterion/criterion.h>
#include <criterion/new/assert.h>

#include "stage/stage.h"

#define FIXTURE_CHUNKS 4096u

struct fixture_chunk {
    uint64_t pack; /* 0: no such chunk */
    uint8_t *bytes;
    size_t len;
};

/* What the view would say of a file. */
struct fixture_below {
    bool exists;
    uint64_t version, size;
    uint8_t *bytes;
};

#define FIXTURE_FILES 16u /* inodes 1 to 15 */

struct stage_fixture {
    char dir[64];
    char ctl[128], slabs[128]; /* files of the stage */
    struct stage_config config;
    struct stage *stage;
    uint64_t epoch;
    struct fixture_below below[FIXTURE_FILES];
    struct fixture_chunk chunks[FIXTURE_CHUNKS];
    unsigned chunk_count;
    uint8_t *pending; /* encoded operations that are not durable */
    size_t pending_len, pending_max;
};

extern struct stage_fixture fixture;

/* For test suites: a stage of 32 MiB, which must drain in the end. */
void stage_setup(void);
void stage_teardown(void);

void fixture_create(struct stage_fixture *f, uint64_t size_bytes);
void fixture_remove(struct stage_fixture *f);
/* The daemon dies: nothing is put in order. */
void fixture_die(struct stage_fixture *f);
/* The next daemon up to stage_rebuild_layers(); then as a whole, with the log written anew. */
int fixture_reopen(struct stage_fixture *f);
void fixture_adopt(struct stage_fixture *f);
void fixture_recover(struct stage_fixture *f);
/* The daemon dies, and the next one recovers. */
void fixture_crash(struct stage_fixture *f);
int fixture_compact(struct stage_fixture *f);

/* A write from a buffer, or stolen from a slab if it is large. */
int fixture_write(struct stage_fixture *f, uint64_t ino, uint64_t offset, const void *data,
                  uint32_t length);
/* The same, or -EAGAIN where it would have to wait for a slab. */
int fixture_try_write(struct stage_fixture *f, uint64_t ino, uint64_t offset, const void *data,
                      uint32_t length);
void fixture_write_ok(struct stage_fixture *f, uint64_t ino, uint64_t offset, const void *data,
                      uint32_t length);
void fixture_put(struct stage_fixture *f, uint64_t ino, uint64_t offset, const char *text);
/* `length` times `byte`. */
void fixture_fill(struct stage_fixture *f, uint64_t ino, uint64_t offset, char byte,
                  uint32_t length);
void fixture_cut(struct stage_fixture *f, uint64_t ino, uint64_t offset, uint64_t length,
                 uint64_t new_size);
/* The size of the file as it is now, and the number of its last sealed version. */
uint64_t fixture_size(struct stage_fixture *f, uint64_t ino);

/* Seals the draft as the version after `version`, with its record in the log. False: there was
 * none. */
bool fixture_seal(struct stage_fixture *f, uint64_t ino);
/* The same, but the daemon dies before the record. */
void fixture_seal_unlogged(struct stage_fixture *f, uint64_t ino);
/* A version of its own; the second is on its way to what is below. */
void fixture_put_sealed(struct stage_fixture *f, uint64_t ino, uint64_t offset, const char *text);
void fixture_put_pinned(struct stage_fixture *f, uint64_t ino, uint64_t offset, const char *text);
/* Writeback: the pinned layer over what is below becomes what is below. */
void fixture_pin(struct stage_fixture *f, uint64_t ino);
void fixture_done(struct stage_fixture *f, uint64_t ino);
/* The draft is sealed, pinned and done. */
void fixture_write_back(struct stage_fixture *f, uint64_t ino);
/* Content of a sealed version as writeback would store it: caller frees. */
uint8_t *fixture_layer_content(struct stage_fixture *f, const struct stage_sealed *sealed);
/* Writes one piece of the draft into a new chunk of a new pack; returns its bytes. */
uint64_t fixture_piece(struct stage_fixture *f, uint64_t ino, uint64_t max_bytes);

/* Content of [offset, offset + length) as a reader sees it. */
void fixture_read(struct stage_fixture *f, uint64_t ino, uint64_t offset, void *buf, size_t length);
/* `text` has a '.' for each zero byte. */
void fixture_expect(struct stage_fixture *f, uint64_t ino, uint64_t offset, const char *text);
/* Everything sealed, written, forgotten; then the stage must be empty. */
void fixture_expect_drains(struct stage_fixture *f);
