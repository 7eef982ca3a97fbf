// SPDX-License-Identifier: Apache-2.0
/* The inner loops of twin, once for each set of instructions; all do the same as the scalar ones.
 * Nothing need be aligned. Pure; any thread.
 *
 * The lower half of a number and the higher half of what it is rounded to, to nearest, ties to
 * even, tell its higher half: one less where the lower half is more than 0x8000, else the same. */
#pragma once

#include "base/base.h"
#include "base/cpu.h"

#define TWIN_GROUP 64u /* elements that share a mask */

#define TWIN_LANDMARK 6u /* of 2^16: one in 10,923, or 21.3 KiB of bf16 */
#define TWIN_FACTORS                                                                               \
    {                                                                                              \
        0x9e37, 0x79b1, 0x85eb, 0xca6b                                                             \
    }
#define TWIN_ADDEND 0x27d5u /* so that zeros are none */

struct twin_kernels {
    /* The lower halves of `count` fp32 at `src` go to `lows`; `masks` gets a bit for each, 64 in a
     * mask: its higher half is not the one that `image` tells. */
    void (*split)(const uint8_t *src, const uint8_t *image, size_t count, uint8_t *lows,
                  uint64_t *masks);
    /* The reverse, for elements that the image tells. `lows` may be the second half of `dst`:
     * nothing is written there before it was read. */
    void (*join)(const uint8_t *lows, const uint8_t *image, size_t count, uint8_t *dst);
    /* The `count` fp32 at `src` as bf16. What a NaN becomes is some number. */
    void (*round)(const uint8_t *src, size_t count, uint8_t *ret);
    /* At which of the first `count` bf16 values a landmark begins: where they and the next three,
     * each times its factor, add up to less than TWIN_LANDMARK modulo 2^16. Reads `count` + 3
     * values; at most 2^16. Returns how many; ascending. */
    size_t (*landmarks)(const uint8_t *values, size_t count, uint16_t *ret);
};

CPU_KERNELS(twin)
