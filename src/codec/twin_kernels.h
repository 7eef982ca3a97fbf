// SPDX-License-Identifier: Apache-2.0
/* The inner loops of twin, once for each instruction set; all return the same as the scalar ones.
 * Buffers need not be aligned. Pure; any thread.
 *
 * The higher half of a number follows from its lower half and the higher half of the rounded number
 * (to nearest, ties to even): it is one less where the lower half is more than 0x8000, else the
 * same. */
#pragma once

#include "base/base.h"
#include "base/cpu.h"

#define TWIN_GROUP 64u /* elements that share a mask */

#define TWIN_LANDMARK 6u /* of 2^16: one in 10,923, or 21.3 KiB of bf16 */
#define TWIN_FACTORS                                                                               \
    {                                                                                              \
        0x9e37, 0x79b1, 0x85eb, 0xca6b                                                             \
    }
#define TWIN_ADDEND 0x27d5u /* so that zeros are no landmark */

struct twin_kernels {
    /* Stores the lower halves of the `count` fp32 at `src` in `lows`; `masks` gets one bit for each
     * element, 64 in a mask: whether its higher half differs from the one predicted by `image`. */
    void (*split)(const uint8_t *src, const uint8_t *image, size_t count, uint8_t *lows,
                  uint64_t *masks);
    /* The reverse, for elements that `image` predicts. `lows` may be the second half of `dst`: no
     * byte is written there before it was read. */
    void (*join)(const uint8_t *lows, const uint8_t *image, size_t count, uint8_t *dst);
    /* Stores the `count` fp32 at `src` as bf16. A NaN becomes an unspecified number. */
    void (*round)(const uint8_t *src, size_t count, uint8_t *ret);
    /* Finds at which of the first `count` bf16 values a landmark begins: where the value and the
     * next three, each times its factor, add up to less than TWIN_LANDMARK modulo 2^16. Reads
     * `count` + 3 values; at most 2^16. Returns how many; ascending. */
    size_t (*landmarks)(const uint8_t *values, size_t count, uint16_t *ret);
};

CPU_KERNELS(twin)
