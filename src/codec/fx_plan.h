// SPDX-License-Identifier: Apache-2.0
/* The plan by which fx writes a chunk: the code of each plane. Integers only, so every machine
 * makes the same plan of the same bytes. Pure; any thread. */
#pragma once

#include "codec/fx.h"
#include "codec/fx_columns.h"
#include "codec/lx.h"

#define FX_BLOCK 16384u /* elements */

struct fx_plan {
    uint8_t width, phase;
    bool rotated;
    uint8_t coded, levelled;    /* bit p: plane p */
    bool is_signless;           /* rotated, and no element has a sign */
    struct fx_columns *columns; /* of the highest plane, which is coded; NULL: none */
    struct lx_code codes[8];
};

/* Returns the elements of a block, at most 64 KiB. */
static inline size_t fx_block_len(unsigned width)
{
    return width == 8 ? FX_BLOCK / 2 : FX_BLOCK;
}

/* Returns how many elements the blocks hold: a multiple of FX_GROUP. */
static inline size_t fx_elements(unsigned width, unsigned phase, size_t raw_len)
{
    return align_down((raw_len - phase) / width, FX_GROUP);
}

/* Makes the codes from a sample of the chunk. `scratch` has 4 * FX_BLOCK bytes. Planes of the guess
 * for which a code saves nothing are left uncoded; possibly none is left. */
void fx_plan_make(const struct fx_kernels *kernels, const struct fx_guess *guess, struct rope *src,
                  uint8_t *scratch, struct fx_plan *ret);
