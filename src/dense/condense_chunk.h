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

/* Encodes a chosen chunk; the result is decoded and compared. Any thread. */
void condense_encode(struct condense_chunk *chunk);
