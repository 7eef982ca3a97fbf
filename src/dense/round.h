// SPDX-License-Identifier: Apache-2.0
/* A round of an upload with reduce=dense: its phases, and the forms of chunks in them.
 *
 * dx    the difference to an earlier version of the chunk: lineage.h says which
 * twin  fp32 numbers stored with the help of the bf16 numbers to which they were rounded. These are
 *       found by content, in chunks sent in the last minutes
 *
 * A chunk with neither is stored without bases, as a matrix (codec/fx.h) if that is smaller.
 *
 * The bases of a chunk were needed at the cut, and have their places in the remote, or before the
 * chunk in its own pack: so a head that names the chunk also names them. They are read only from
 * NVMe. Each form is decoded and compared before it is used. */
#pragma once

#include "dense/chains.h"
#include "dense/dense.h"

struct pool;
struct view_cut;

/* A phase of a round. When it begins all chunks of earlier phases are sent, so bases are in the
 * remote before their dependents. */
struct dense_phase {
    /* FIRST: any chunk but fp32, without a base */
    enum { PHASE_FIRST, PHASE_BF16, PHASE_FP32 } kind;
    unsigned level;   /* in the lineage; the last phase of a kind also has all higher levels */
    unsigned shrinks; /* chunks shrink to about this part of their length on NVMe */
    bool begins_anew; /* a pack begun in an earlier phase is not continued */
};

/* In order. All images precede the fp32 numbers, which may be their twins. */
#define DENSE_PHASES (1 + CHAIN_DEPTH_MAX + 3)
extern const struct dense_phase dense_phases[DENSE_PHASES];

/* --- round.c ---------------------------------------------------------------------------------- */

/* The cut of the newest head, in which lineages search for earlier versions. Uploader's thread. */

/* A head was published: keeps its cut open, or closes it if it is of no use. NULL: the newest
 * head's cut is no longer known. */
void dense_keep_published(struct dense *dense, struct view_cut *cut);
/* Call after the start: the view's current state may be that of the newest head. */
void dense_find_published(struct dense *dense);

/* Finds bases for chunks of the cut, and sorts the chunks that the remote lacks into phases, in up
 * to `threads` jobs of the pool. Blocks. *ret NULL: without reduce=dense, or it failed, which is
 * logged: then all chunks are in the first phase, in their form on NVMe. -ECANCELED: the upload is
 * to stop. */
struct dense_round;
CAIRN_MUST_CHECK int dense_round_new(struct dense *dense, struct view_cut *cut, struct pool *pool,
                                     unsigned threads, struct dense_round **ret);
void dense_round_free(struct dense_round *round); /* NULL is fine, as below */

/* The phase of the cut's pending chunk with this index, in order of name. */
unsigned dense_round_phase(const struct dense_round *round, size_t number);
/* Are there chunks in that phase? */
bool dense_round_has(const struct dense_round *round, unsigned phase);

/* --- encode.c --------------------------------------------------------------------------------- */

/* The buffers of one encoding thread. */
struct dense_work;
struct dense_work *dense_work_new(struct dense_round *round);
void dense_work_free(struct dense_work *work); /* NULL is fine */

/* The chunks of the pack being filled, which may be bases, too. */
struct dense_pack {
    const struct chunk_entry *entries;
    uint32_t count;
};

/* *entry is the entry of a chunk without bases, `raw` are its bytes. If a base makes it smaller,
 * changes *entry accordingly, and returns the bytes to be stored, valid until the next call; else
 * returns NULL. */
const uint8_t *dense_encode(struct dense_work *work, const struct dense_phase *phase,
                            struct dense_pack pack, struct chunk_entry *entry, const uint8_t *raw);
