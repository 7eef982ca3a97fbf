// SPDX-License-Identifier: Apache-2.0
/* The inner loops of dx, once for each set of instructions; all do the same as the scalar ones.
 * `count` is a multiple of FX_GROUP everywhere, `width` 2, 4 or 8. Pure; any thread. */
#pragma once

#include "codec/fx_kernels.h"

#define DX_CLASSES_MAX 16u
#define DX_SLACK 64u /* bytes that must be readable, or writable, behind fields */

/* Elements of the base by their exponent, of which the highest 8 bits count: those below `first`
 * or at it are class 0, of the next one class 1, those at first + count - 1 and above the last. */
struct dx_classes {
    uint8_t count;   /* 1: all elements are of one; up to DX_CLASSES_MAX */
    uint8_t shift;   /* lowest bits of the 8 that do not count */
    uint8_t first;   /* of what is left after that */
    uint8_t lengths; /* of an element; count * lengths is less than 256 */
};

struct dx_kernels {
    const struct fx_kernels *fx;
    /* Takes apart the difference of each element of `src` to that of `base`, zigzag: byte p of it
     * goes to low[p], for p < `low_planes`, which is less than `width`. The rest of it has
     * lengths[i] bits; those below the highest one, its field, go to `fields`, the first element's
     * lowest. Returns how many bits these are. */
    size_t (*take_apart)(const uint8_t *src, const uint8_t *base, size_t count, unsigned width,
                         unsigned low_planes, uint8_t *const low[8], uint8_t *lengths,
                         uint8_t *fields);
    /* The reverse. Lengths are at most 8 * (width - low_planes). */
    void (*put_together)(const uint8_t *const low[8], const uint8_t *lengths, const uint8_t *fields,
                         const uint8_t *base, size_t count, unsigned width, unsigned low_planes,
                         uint8_t *dst);
    /* Adds to each value what the element's class is times `classes->lengths`, modulo 256. */
    void (*add_classes)(const uint8_t *base, size_t count, unsigned width,
                        const struct dx_classes *classes, uint8_t *values);
    /* Bits of the fields of elements of these lengths, and the longest of these. */
    size_t (*field_bits)(const uint8_t *lengths, size_t count, uint8_t *ret_longest);
};

extern const struct dx_kernels dx_scalar;
#if defined __x86_64__
extern const struct dx_kernels dx_avx2, dx_avx512;
#elif defined __AARCH64EL__
extern const struct dx_kernels dx_neon;
#endif

/* The kernels of a level that the machine has. */
static inline const struct dx_kernels *dx_kernels_of(enum cpu_level level)
{
    static const struct dx_kernels *const of[CPU_LEVELS] = {
        [CPU_SCALAR] = &dx_scalar,
#if defined __x86_64__
        [CPU_AVX2] = &dx_avx2,
        [CPU_AVX512] = &dx_avx512,
#elif defined __AARCH64EL__
        [CPU_NEON] = &dx_neon,
#endif
    };
    return of[level];
}
