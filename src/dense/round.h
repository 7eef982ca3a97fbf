// SPDX-License-Identifier: Apache-2.0
/* A round of an upload with reduce=dense: its phases, and the forms that chunks get in them.
 *
 *   dx    the difference to an earlier version of the chunk: lineage.h says which
 *   twin  fp32 numbers beside the bf16 ones that they were rounded to: these are found by their
 *         content, in chunks that were sent in the last minutes
 *
 * A chunk for which there is neither stands alone, as a matrix (codec/fx.h) where that is smaller.
 *
 * The bases of a chunk were needed at the cut, and have their places in the remote, or before the
 * chunk in its own pack: so no head names the one without the other. They are read from NVMe alone.
 * Each form is decoded and compared before it is used. */
#pragma once

#include "dense/chains.h"
#include "dense/dense.h"

struct pool;
struct view_cut;

/* A phase of a round. All chunks of the ones before are sent when it begins, so bases are there
 * before what refers to them. */
struct dense_phase {
    enum { PHASE_FIRST, PHASE_BF16, PHASE_FP32 } kind; /* FIRST: any but fp32, without a base */
    unsigned level;   /* in the lineage, or more in the last phase of the kind */
    unsigned shrinks; /* chunks to about such a part of their lengths on NVMe */
    bool begins_anew; /* a pack that is open does not go on in it */
};

/* In their order. Images are all there before fp32 numbers come, which may be twins of them. */
#define DENSE_PHASES (1 + CHAIN_DEPTH_MAX + 3)
extern const struct dense_phase dense_phases[DENSE_PHASES];

/* --- round.c ---------------------------------------------------------------------------------- */

/* The cut of the newest head, where lineages look for earlier versions. The uploader's thread. */

/* A head was published: the cut stays open, or is closed if it serves for nothing. NULL: none is
 * known any more. */
void dense_keep_published(struct dense *dense, struct view_cut *cut);
/* After the start: what is here may be what the newest head says. */
void dense_find_published(struct dense *dense);

/* Looks for what chunks of the cut could be stored by, and sorts those that the remote lacks into
 * phases, in up to `threads` jobs of the pool. Blocks. *ret NULL: without reduce=dense, or where it
 * failed, which is said: then all are of the first phase, as they are on NVMe. -ECANCELED: the
 * upload is to stop. */
struct dense_round;
CAIRN_MUST_CHECK int dense_round_new(struct dense *dense, struct view_cut *cut, struct pool *pool,
                                     unsigned threads, struct dense_round **ret);
void dense_round_free(struct dense_round *round); /* NULL is fine, as below */

/* Phase of the cut's pending chunk with this number, in order of name. */
unsigned dense_round_phase(const struct dense_round *round, size_t number);
/* Has it chunks of that phase? */
bool dense_round_has(const struct dense_round *round, unsigned phase);

/* --- encode.c --------------------------------------------------------------------------------- */

/* One thread's. */
struct dense_work;
struct dense_work *dense_work_new(struct dense_round *round);
void dense_work_free(struct dense_work *work); /* NULL is fine */

/* Chunks of the pack that is being filled, which may be bases, too. */
struct dense_pack {
    const struct chunk_entry *entries;
    uint32_t count;
};

/* *entry is how a chunk is stored that needs no other, `raw` are its bytes. Where another chunk
 * makes it smaller, *entry becomes that, and the bytes to be stored are returned, which stay until
 * the next call; else NULL. */
const uint8_t *dense_encode(struct dense_work *work, const struct dense_phase *phase,
                            struct dense_pack pack, struct chunk_entry *entry, const uint8_t *raw);
