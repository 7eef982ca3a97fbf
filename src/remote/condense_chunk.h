// SPDX-License-Identifier: Apache-2.0
/* Inside condensing: one chunk. */
#pragma once

#include "format/chunk.h"

#define CONDENSE_DEPTH_MAX 2u /* on NVMe */

struct store;

struct condense_chunk {
    struct store *store;
    struct chunk_entry entry;  /* on NVMe, as it is; after condense_encode() as it becomes */
    struct chunk_entry remote; /* its place there: the form, and what it refers to */
    uint8_t *encoded;          /* the caller frees; NULL: it stays as it is */
};

/* May the chunk, which a file refers to `uses` times, be condensed now? 1, 0 or -errno. */
CAIRN_MUST_CHECK int condense_choose(struct store *store, const struct chunk_name *name,
                                     uint64_t uses, struct condense_chunk *ret);

/* A job for the threads of writeback: `arg` is a chosen condense_chunk. What is encoded is decoded
 * and compared. Nothing, if a caller waits. */
void condense_encode(void *arg);

/* condense.c: no thread writes, waits or reads. Any thread. */
bool condense_may_go_on(struct store *store);
