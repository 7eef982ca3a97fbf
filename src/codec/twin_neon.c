// SPDX-License-Identifier: Apache-2.0
/* With NEON, which every little-endian aarch64 has. */
#include <arm_neon.h>

#include "codec/neon_masks.h"
#include "codec/twin_kernels.h"
#include "format/le.h"

#define STEP 16u /* elements */

static inline uint16x8_t load_vec(const uint8_t *p)
{
    return vreinterpretq_u16_u8(vld1q_u8(p));
}

static inline void store_vec(uint8_t *p, uint16x8_t v)
{
    vst1q_u8(p, vreinterpretq_u8_u16(v));
}

/* A comparison is ones, or -1, where it holds. */
static inline uint16x8_t higher_halves(uint16x8_t lows, uint16x8_t image)
{
    return vaddq_u16(image, vcgtq_u16(lows, vdupq_n_u16(0x8000)));
}

/* Lower halves, and higher ones. Bytes, since nothing is aligned. */
static inline uint16x8x2_t halves_of(const uint8_t *src)
{
    uint16x8_t a = load_vec(src), b = load_vec(src + 16);
    return (uint16x8x2_t){{vuzp1q_u16(a, b), vuzp2q_u16(a, b)}};
}

/* Splits 8 elements: ones where they do not fit. */
static inline uint16x8_t split_8(const uint8_t *src, const uint8_t *image, uint8_t *lows)
{
    uint16x8x2_t v = halves_of(src);
    store_vec(lows, v.val[0]);
    return vmvnq_u16(vceqq_u16(v.val[1], higher_halves(v.val[0], load_vec(image))));
}

static void split_elements(const uint8_t *src, const uint8_t *image, size_t count, uint8_t *lows,
                           uint64_t *masks)
{
    size_t whole = align_down(count, TWIN_GROUP);
    for (size_t i = 0; i < whole; i += TWIN_GROUP) {
        uint8x16x4_t differs;
        for (size_t k = 0; k < 4; k++) {
            size_t at = i + STEP * k;
            uint16x8_t a = split_8(src + 4 * at, image + 2 * at, lows + 2 * at);
            at += STEP / 2;
            uint16x8_t b = split_8(src + 4 * at, image + 2 * at, lows + 2 * at);
            differs.val[k] = vuzp1q_u8(vreinterpretq_u8_u16(a), vreinterpretq_u8_u16(b));
        }
        masks[i / TWIN_GROUP] = mask_of(differs);
    }
    twin_scalar.split(src + 4 * whole, image + 2 * whole, count - whole, lows + 2 * whole,
                      masks + whole / TWIN_GROUP);
}

static void join_elements(const uint8_t *lows, const uint8_t *image, size_t count, uint8_t *dst)
{
    size_t whole = align_down(count, STEP / 2);
    for (size_t i = 0; i < whole; i += STEP / 2) {
        uint16x8_t low = load_vec(lows + 2 * i), high = higher_halves(low, load_vec(image + 2 * i));
        store_vec(dst + 4 * i, vzip1q_u16(low, high));
        store_vec(dst + 4 * i + 16, vzip2q_u16(low, high));
    }
    twin_scalar.join(lows + 2 * whole, image + 2 * whole, count - whole, dst + 4 * whole);
}

static inline uint32x4_t round_4(const uint8_t *src)
{
    uint32x4_t v = vreinterpretq_u32_u8(vld1q_u8(src));
    uint32x4_t odd = vandq_u32(vshrq_n_u32(v, 16), vdupq_n_u32(1));
    return vaddq_u32(v, vaddq_u32(odd, vdupq_n_u32(0x7fff)));
}

static void round_all(const uint8_t *src, size_t count, uint8_t *ret)
{
    size_t whole = align_down(count, STEP / 2);
    for (size_t i = 0; i < whole; i += STEP / 2)
        store_vec(ret + 2 * i, vuzp2q_u16(vreinterpretq_u16_u32(round_4(src + 4 * i)),
                                          vreinterpretq_u16_u32(round_4(src + 4 * i + 16))));
    twin_scalar.round(src + 4 * whole, count - whole, ret + 2 * whole);
}

static inline uint16x8_t is_landmark(const uint8_t *values)
{
    static const uint16_t factors[4] = TWIN_FACTORS;
    uint16x8_t sum = vdupq_n_u16(TWIN_ADDEND);
    for (size_t k = 0; k < 4; k++)
        sum = vmlaq_n_u16(sum, load_vec(values + 2 * k), factors[k]);
    return vcltq_u16(sum, vdupq_n_u16(TWIN_LANDMARK));
}

static size_t find_landmarks(const uint8_t *values, size_t count, uint16_t *ret)
{
    size_t found = 0, whole = align_down(count, TWIN_GROUP);
    for (size_t i = 0; i < whole; i += TWIN_GROUP) {
        uint8x16x4_t is;
        for (size_t k = 0; k < 4; k++) {
            const uint8_t *p = values + 2 * (i + STEP * k);
            is.val[k] = vuzp1q_u8(vreinterpretq_u8_u16(is_landmark(p)),
                                  vreinterpretq_u8_u16(is_landmark(p + STEP)));
        }
        for (uint64_t mask = mask_of(is); mask; mask &= mask - 1)
            ret[found++] = (uint16_t)(i + (size_t)__builtin_ctzll(mask));
    }
    size_t rest = twin_scalar.landmarks(values + 2 * whole, count - whole, ret + found);
    for (size_t i = 0; i < rest; i++)
        ret[found + i] = (uint16_t)(ret[found + i] + whole);
    return found + rest;
}

const struct twin_kernels twin_neon = {split_elements, join_elements, round_all, find_landmarks};
