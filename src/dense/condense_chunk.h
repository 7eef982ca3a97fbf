// SPDX-License-Identifier: Apache-2.0
/* Inside condensing: one chunk. */
#pragma once

#include "format/chunk.h"

#define CONDENSE_DEPTH_MAX 2u /* on NVMe */

struct store;

struct condense_chunk {
    struct store *store;
    struct chunk_entry entry;  /* the chunk's entry on NVMe; after condense_encode() the new one */
    struct chunk_entry remote; /* its entry in the remote: the form, and the references */
    uint8_t *encoded;          /* the caller frees it; NULL: the chunk stays as it is */
};

/* May the chunk, to which a file refers `uses` times, be condensed now? 1, 0 or -errno. */
CAIRN_MUST_CHECK int condense_choose(struct store *store, const struct chunk_name *name,
                                     uint64_t uses, struct condense_chunk *ret);

/* Encodes a chosen chunk; decodes and compares the result. Any thread. */
void condense_encode(struct condense_chunk *chunk);
