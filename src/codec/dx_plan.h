// SPDX-License-Identifier: Apache-2.0
/* The plan by which dx writes a chunk. Integers only, so every machine makes the same plan of the
 * same bytes. Pure; any thread. */
#pragma once

#include "codec/dx.h"
#include "codec/lx.h"

#define DX_LENGTH_NONE 255u /* in length_of, for ranks that do not exist */
#define DX_NEVER UINT32_MAX
#define DX_DEPTH_MAX 2u /* 16,384 lengths become 256 bytes */

struct dx_plan {
    uint8_t width, phase;
    uint8_t low_planes; /* number of planes that are stored as they are */
    uint8_t depth;      /* how often zeros are taken out of the ranks */
    struct dx_classes classes;
    /* length_of: by class * classes.lengths + rank, the length; rank_of: by class * classes.lengths
     * + length, the rank. The most frequent length of a class has rank 0. */
    uint8_t length_of[256], rank_of[256];
    /* codes[depth] is for the masks that remain after the last step, or for the ranks; codes[i] for
     * the values that are not zero in step i. */
    struct lx_code codes[DX_DEPTH_MAX + 1];
};

/* Lengths or ranks, and the results of the steps on them. */
struct dx_lengths {
    /* [0]: the lengths or ranks; [i + 1]: for each byte of [i] one bit: whether it is not zero. */
    uint8_t *values[DX_DEPTH_MAX + 1];
    size_t counts[DX_DEPTH_MAX + 1];
    /* The bytes at values[i] that are not zero, less 1. */
    uint8_t *present[DX_DEPTH_MAX];
    size_t present_counts[DX_DEPTH_MAX];
    uint8_t room[2 * (LX_VALUES_MAX + LX_VALUES_MAX / 8) + LX_VALUES_MAX / 64 + 5 * FX_SLACK]
        __attribute__((aligned(64)));
};

/* Begins with `count` lengths, which the caller fills in at values[0]. */
void dx_lengths_init(struct dx_lengths *lengths, size_t count);

/* Does step i. */
void dx_lengths_step(const struct dx_kernels *kernels, struct dx_lengths *lengths, unsigned i);

/* Returns how many lengths the upper part of an element can have, including 0. */
static inline unsigned dx_length_count(unsigned width, unsigned low_planes)
{
    return 8 * (width - low_planes) + 1;
}

/* A part of the chunk that represents all of it: `blocks` blocks of `count` elements, a multiple of
 * FX_GROUP, at most 256, evenly spread; fewer blocks if the chunk has fewer. */
struct dx_sample {
    size_t blocks, count;
};

#define DX_PARTS 1000000u

/* Finds the best plan for the sample. Returns the stored bits for each DX_PARTS raw ones; DX_NEVER:
 * no plan stores less. */
uint32_t dx_plan_make(const struct dx_kernels *kernels, const struct fx_guess *guess,
                      const struct dx_pair *pair, struct dx_sample sample, struct dx_plan *ret);
