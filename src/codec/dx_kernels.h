// SPDX-License-Identifier: Apache-2.0
/* The inner loops of dx, once for each set of instructions; all do the same as the scalar ones.
 * `count` is a multiple of FX_GROUP everywhere, `width` 2, 4 or 8. Pure; any thread. */
#pragma once

#include "codec/fx_kernels.h"

#define DX_SLACK 64u /* bytes that must be readable, or writable, behind fields */

struct dx_kernels {
    const struct fx_kernels *fx;
    /* Of each element of `src` the difference to that of `base`, zigzag: byte p of it goes to
     * low[p], for p < `low_planes`, which is less than `width`. The rest of it has lengths[i] bits;
     * those below the highest one, its field, go to `fields`, the first element's lowest. Returns
     * how many bits these are. */
    size_t (*take_apart)(const uint8_t *src, const uint8_t *base, size_t count, unsigned width,
                         unsigned low_planes, uint8_t *const low[8], uint8_t *lengths,
                         uint8_t *fields);
    /* The reverse. Lengths are at most 8 * (width - low_planes). */
    void (*put_together)(const uint8_t *const low[8], const uint8_t *lengths, const uint8_t *fields,
                         const uint8_t *base, size_t count, unsigned width, unsigned low_planes,
                         uint8_t *dst);
    /* Bits of the fields of elements of these lengths, and the longest of these. */
    size_t (*field_bits)(const uint8_t *lengths, size_t count, uint8_t *ret_longest);
};

extern const struct dx_kernels dx_scalar;

/* Those of a level that the machine has. */
static inline const struct dx_kernels *dx_kernels_of(enum cpu_level level)
{
    (void)level;
    return &dx_scalar;
}
