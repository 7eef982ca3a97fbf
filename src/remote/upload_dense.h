// SPDX-License-Identifier: Apache-2.0
/* Inside the upload: chunks that are stored by means of others, which the remote has
 * (reduce=dense).
 *
 *   dx    what an earlier version of the chunk does not tell: remote/lineage.h says which
 *   twin  fp32 numbers beside the bf16 ones that they were rounded to: these are found by their
 *         content, in chunks that were sent in the last minutes
 *
 * A chunk for which there is neither stands alone, as a matrix (codec/fx.h) where that is smaller.
 *
 * What a chunk is stored by was needed at the cut, and has its place in the remote, or before it in
 * its own pack: so no head names the one without the other. It is read from NVMe alone. What is
 * encoded is decoded and compared before it is used. */
#pragma once

#include "remote/upload.h"

/* Most memory: of one thread's work, and of what all share, with a round's lineage and phases. */
#define DENSE_WORK_BYTES (9 * MIB)
#define DENSE_BYTES (33 * MIB + 16 * MIB + 16 * MIB)

/* State that a remote's rounds share: bf16 chunks that were sent lately. Any thread. */
struct dense;
struct dense *dense_new(void);
void dense_free(struct dense *dense); /* NULL is fine */
/* Between two rounds: what was not used for long is forgotten. `now`: monotonic ns. */
void dense_tick(struct dense *dense, int64_t now);

/* One thread's; NULL: without reduce=dense. */
struct dense_work;
struct dense_work *dense_work_new(struct upload *up);
void dense_work_free(struct dense_work *work);

/* Chunks of the pack that is being filled, which may be bases, too. */
struct dense_pack {
    const struct chunk_entry *entries;
    uint32_t count;
};

/* *entry is how a chunk is stored that needs no other, `raw` are its bytes. Where another chunk
 * makes it smaller, *entry becomes that, and the bytes to be stored are returned, which stay until
 * the next call; else NULL. */
const uint8_t *dense_encode(struct dense_work *work, struct dense_pack pack,
                            struct chunk_entry *entry, const uint8_t *raw);
