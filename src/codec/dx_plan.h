// SPDX-License-Identifier: Apache-2.0
/* The plan by which dx writes a chunk. Integers only, so every machine makes the same of the same
 * bytes. Pure; any thread. */
#pragma once

#include "codec/dx.h"
#include "codec/lx.h"

#define DX_LENGTH_NONE 255u /* in length_of, for ranks that there are not */
#define DX_NEVER UINT32_MAX
#define DX_DEPTH_MAX 2u /* 16,384 lengths become 256 bytes */

struct dx_plan {
    uint8_t width, phase;
    uint8_t low_planes; /* stored as they are */
    uint8_t depth;      /* how often zeros are taken out of the ranks */
    struct dx_classes classes;
    /* By class * classes.lengths + rank, or length: the other one. A class has its most frequent
     * length first. */
    uint8_t length_of[256], rank_of[256];
    /* codes[depth] is of the masks that are left in the end, or of the ranks; codes[i] of what is
     * not zero in step i. */
    struct lx_code codes[DX_DEPTH_MAX + 1];
};

/* Lengths or ranks, and what steps make of them. */
struct dx_lengths {
    /* [0]: these; [i + 1]: of each of the bytes at [i], whether it is not zero: a bit each. */
    uint8_t *values[DX_DEPTH_MAX + 1];
    size_t counts[DX_DEPTH_MAX + 1];
    /* The bytes at values[i] that are not zero, less 1. */
    uint8_t *present[DX_DEPTH_MAX];
    size_t present_counts[DX_DEPTH_MAX];
    uint8_t room[2 * (LX_VALUES_MAX + LX_VALUES_MAX / 8) + LX_VALUES_MAX / 64 + 5 * FX_SLACK]
        __attribute__((aligned(64)));
};

/* `count` lengths are to be filled in at values[0]. */
void dx_lengths_init(struct dx_lengths *lengths, size_t count);

/* Does step i. */
void dx_lengths_step(const struct dx_kernels *kernels, struct dx_lengths *lengths, unsigned i);

/* Lengths that the rest of an element can have, 0 among them. */
static inline unsigned dx_length_count(unsigned width, unsigned low_planes)
{
    return 8 * (width - low_planes) + 1;
}

/* A part of the chunk that stands for all of it: `blocks` blocks of `count` elements, a multiple of
 * FX_GROUP, at most 256, evenly spread; fewer blocks where the chunk has fewer. */
struct dx_sample {
    size_t blocks, count;
};

#define DX_PARTS 1000000u

/* Finds the best plan for the sample. Returns the bits that elements take, for DX_PARTS raw ones;
 * DX_NEVER: there is none. */
uint32_t dx_plan_make(const struct dx_kernels *kernels, const struct fx_guess *guess,
                      const struct dx_pair *pair, struct dx_sample sample, struct dx_plan *ret);
