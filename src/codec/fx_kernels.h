// SPDX-License-Identifier: Apache-2.0
/* The inner loops of fx, once for each instruction set; all return the same as the scalar ones.
 * `count` is always a multiple of 64. Pure; any thread. */
#pragma once

#include "base/base.h"
#include "base/cpu.h"

#define FX_GROUP 64u /* elements in one step of the loops */
/* Bytes that must be readable and writable behind a buffer of escaped values. */
#define FX_SLACK 128u

/* Expands `function` for each number of bits, 1 to 4, so that the number is a constant in the
 * loop. */
#define FX_BY_BITS(function, bits, from, count, ...)                                               \
    ((bits) == 1   ? function(from, count, 1, __VA_ARGS__)                                         \
     : (bits) == 2 ? function(from, count, 2, __VA_ARGS__)                                         \
     : (bits) == 3 ? function(from, count, 3, __VA_ARGS__)                                         \
                   : function(from, count, 4, __VA_ARGS__))

/* The same for each width of more than one byte. */
#define FX_BY_WIDTH(function, width, from, count, ...)                                             \
    ((width) == 8   ? function(from, count, 8, __VA_ARGS__)                                        \
     : (width) == 4 ? function(from, count, 4, __VA_ARGS__)                                        \
                    : function(from, count, 2, __VA_ARGS__))

struct fx_kernels {
    /* Byte p of each of the `count` elements of `width` bytes at `src` is stored in planes[p];
     * `rotate`: of the element rotated left by one bit. */
    void (*split)(const uint8_t *src, size_t count, unsigned width, bool rotate,
                  uint8_t *const planes[8]);
    /* The reverse. */
    void (*join)(const uint8_t *const planes[8], size_t count, unsigned width, bool rotate,
                 uint8_t *dst);
    /* Subtracts from each group of 64 bytes its mean (rounded), which is stored in `means`, and
     * adds 128; modulo 256. */
    void (*level)(uint8_t *bytes, size_t count, uint8_t *means);
    void (*unlevel)(uint8_t *bytes, size_t count, const uint8_t *means);
    /* Replaces each byte by its entry in the table. */
    void (*translate)(uint8_t *bytes, size_t count, const uint8_t table[256]);
    /* Packs values: for each 64, `bits` masks of 64 bits are stored in `masks`. Mask b has bit b of
     * each value, or ones for all values of 2^bits - 1 and more. These escape: the difference of
     * each of them to 2^bits - 1 is stored in `escaped`. Returns how many values escape. */
    size_t (*pack)(const uint8_t *values, size_t count, unsigned bits, uint8_t *masks,
                   uint8_t *escaped);
    /* The reverse. `escaped` has at least `count` + FX_SLACK bytes. Returns how many of them were
     * used. */
    size_t (*unpack)(const uint8_t *masks, size_t count, unsigned bits, const uint8_t *escaped,
                     uint8_t *values);
};

/* Packs bytes whose lowest bit is 0 as 7 bits each: 56 bytes for 64. The first 56 stay as they are,
 * except that their lowest bits hold the bits of the last 8. The same code for all instruction
 * sets. */
void fx_pack_even(const uint8_t *bytes, size_t count, uint8_t *packed);
void fx_unpack_even(const uint8_t *packed, size_t count, uint8_t *bytes);

static inline size_t fx_packed_len(size_t count)
{
    return count / 8 * 7;
}

CPU_KERNELS(fx)
