// SPDX-License-Identifier: Apache-2.0
/* How fx writes a chunk: which code each plane gets. Integers only, so every machine makes the same
 * of the same bytes. Pure; any thread. */
#pragma once

#include "codec/fx.h"

#define FX_BLOCK 16384u /* elements */
#define FX_LEVELS_MAX 6u
#define FX_BITS_MAX 4u

struct fx_code {
    uint8_t levels;
    uint8_t bits[FX_LEVELS_MAX];
    uint8_t symbols[256]; /* rank to value, all of them */
    uint8_t ranks[256];   /* value to rank; only for encoding */
};

struct fx_plan {
    uint8_t width, phase;
    bool rotated;
    uint8_t coded, levelled; /* bit p: plane p */
    struct fx_code codes[8];
};

/* How many ranks the levels cover: fewer than 256. */
size_t fx_code_ranks(const struct fx_code *code);

/* Fills in `symbols` from its first `count` ones: the other values follow in ascending order.
 * False: two are the same. */
CAIRN_MUST_CHECK bool fx_code_complete(struct fx_code *code, const uint8_t *first, size_t count);

/* Elements that blocks hold: a multiple of FX_GROUP. */
static inline size_t fx_elements(const struct fx_plan *plan, size_t raw_len)
{
    return align_down((raw_len - plan->phase) / plan->width, FX_GROUP);
}

/* The best code for `len` bytes of which each value occurs so often. Returns the bits that all of
 * them take; the code has no levels where it would take 8 each. */
uint64_t fx_code_make(const uint16_t counts[256], size_t len, struct fx_code *ret);

/* Makes the codes from a sample of the chunk. `scratch` has 4 * FX_BLOCK bytes. Planes of the guess
 * that do not pay are not coded; there may be none left. */
void fx_plan_make(const struct fx_kernels *kernels, const struct fx_guess *guess, const void *src,
                  size_t raw_len, uint8_t *scratch, struct fx_plan *ret);
