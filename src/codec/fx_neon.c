// SPDX-License-Identifier: Apache-2.0
/* With NEON, which every little-endian aarch64 has. */
#include <arm_neon.h>

#include "codec/fx_kernels.h"
#include "codec/neon_masks.h"
#include "format/le.h"

/* Rotates the elements by one bit after they are split: a shift of each plane, into which one bit
 * of the neighbouring plane is shifted. */
static inline void rotate_planes(uint8x16_t *planes, const unsigned width)
{
    uint8x16_t last = planes[width - 1];
    for (unsigned p = width - 1; p > 0; p--)
        planes[p] = vsriq_n_u8(vshlq_n_u8(planes[p], 1), planes[p - 1], 7);
    planes[0] = vsriq_n_u8(vshlq_n_u8(planes[0], 1), last, 7);
}

static inline void rotate_back(uint8x16_t *planes, const unsigned width)
{
    uint8x16_t first = planes[0];
    for (unsigned p = 0; p < width - 1; p++)
        planes[p] = vsliq_n_u8(vshrq_n_u8(planes[p], 1), planes[p + 1], 7);
    planes[width - 1] = vsliq_n_u8(vshrq_n_u8(planes[width - 1], 1), first, 7);
}

/* For 16 elements. */
static inline void take_apart(const uint8_t *src, const unsigned width, uint8x16_t *ret)
{
    if (width == 2) {
        uint8x16x2_t v = vld2q_u8(src);
        ret[0] = v.val[0];
        ret[1] = v.val[1];
        return;
    }
    uint8x16x4_t a = vld4q_u8(src), b = width == 8 ? vld4q_u8(src + 64) : a;
    for (unsigned p = 0; p < 4; p++) {
        ret[p] = width == 8 ? vuzp1q_u8(a.val[p], b.val[p]) : a.val[p];
        if (width == 8)
            ret[p + 4] = vuzp2q_u8(a.val[p], b.val[p]);
    }
}

static inline void put_together(const uint8x16_t *planes, const unsigned width, uint8_t *dst)
{
    if (width == 2) {
        vst2q_u8(dst, (uint8x16x2_t){{planes[0], planes[1]}});
        return;
    }
    uint8x16x4_t a, b;
    for (unsigned p = 0; p < 4; p++) {
        a.val[p] = width == 8 ? vzip1q_u8(planes[p], planes[p + 4]) : planes[p];
        b.val[p] = width == 8 ? vzip2q_u8(planes[p], planes[p + 4]) : planes[p];
    }
    vst4q_u8(dst, a);
    if (width == 8)
        vst4q_u8(dst + 64, b);
}

static inline __attribute__((always_inline)) void split_by(const uint8_t *src, size_t count,
                                                           const unsigned width, bool rotated,
                                                           uint8_t *const planes[8])
{
    for (size_t i = 0; i < count; i += 16) {
        uint8x16_t v[8];
        take_apart(src + i * width, width, v);
        if (rotated)
            rotate_planes(v, width);
        for (unsigned p = 0; p < width; p++)
            vst1q_u8(planes[p] + i, v[p]);
    }
}

static inline __attribute__((always_inline)) void join_by(const uint8_t *const planes[8],
                                                          size_t count, const unsigned width,
                                                          bool rotated, uint8_t *dst)
{
    for (size_t i = 0; i < count; i += 16) {
        uint8x16_t v[8];
        for (unsigned p = 0; p < width; p++)
            v[p] = vld1q_u8(planes[p] + i);
        if (rotated)
            rotate_back(v, width);
        put_together(v, width, dst + i * width);
    }
}

static void level_bytes(uint8_t *bytes, size_t count, uint8_t *means)
{
    for (size_t i = 0; i < count; i += FX_GROUP) {
        uint8x16x4_t v = vld1q_u8_x4(bytes + i);
        unsigned sum = FX_GROUP / 2;
        for (unsigned k = 0; k < 4; k++)
            sum += vaddlvq_u8(v.val[k]);
        uint8_t mean = (uint8_t)(sum / FX_GROUP);
        means[i / FX_GROUP] = mean;
        for (unsigned k = 0; k < 4; k++)
            v.val[k] = vsubq_u8(v.val[k], vdupq_n_u8((uint8_t)(mean - 128)));
        vst1q_u8_x4(bytes + i, v);
    }
}

static void unlevel_bytes(uint8_t *bytes, size_t count, const uint8_t *means)
{
    for (size_t i = 0; i < count; i += 16) {
        uint8x16_t off = vdupq_n_u8((uint8_t)(means[i / FX_GROUP] - 128));
        vst1q_u8(bytes + i, vaddq_u8(vld1q_u8(bytes + i), off));
    }
}

static void translate_bytes(uint8_t *bytes, size_t count, const uint8_t table[256])
{
    uint8x16x4_t quarters[4];
    for (unsigned q = 0; q < 4; q++)
        quarters[q] = vld1q_u8_x4(table + 64 * (size_t)q);
    for (size_t i = 0; i < count; i += 16) {
        uint8x16_t v = vld1q_u8(bytes + i), found = vqtbl4q_u8(quarters[0], v);
        for (unsigned q = 1; q < 4; q++)
            found = vqtbx4q_u8(found, quarters[q], vsubq_u8(v, vdupq_n_u8((uint8_t)(64 * q))));
        vst1q_u8(bytes + i, found);
    }
}

/* --- escapes ---------------------------------------------------------------------------------- */

/* Byte k: how many of the bits before bit k are set, of 8 bits with one byte each; if bit k is not
 * set, a number that is no index. */
#define BEFORE(bits, k)                                                                            \
    ((bits) >> (k)&1 ? __builtin_popcount((unsigned)(bits) & ((1u << (k)) - 1)) : 0x80)
/* Returns the set bit that has k set bits before it; 8: none. */
#define IS_TOO_FEW(bits, k, last)                                                                  \
    (__builtin_popcount((unsigned)(bits) & ((2u << (last)) - 1)) <= (k))
#define WHICH(bits, k)                                                                             \
    (IS_TOO_FEW(bits, k, 0) + IS_TOO_FEW(bits, k, 1) + IS_TOO_FEW(bits, k, 2) +                    \
     IS_TOO_FEW(bits, k, 3) + IS_TOO_FEW(bits, k, 4) + IS_TOO_FEW(bits, k, 5) +                    \
     IS_TOO_FEW(bits, k, 6) + IS_TOO_FEW(bits, k, 7))

#define ROW(of, bits)                                                                              \
    {                                                                                              \
        of(bits, 0), of(bits, 1), of(bits, 2), of(bits, 3), of(bits, 4), of(bits, 5), of(bits, 6), \
            of(bits, 7)                                                                            \
    }
#define ROWS_4(of, bits)                                                                           \
    ROW(of, bits), ROW(of, (bits) + 1), ROW(of, (bits) + 2), ROW(of, (bits) + 3)
#define ROWS_16(of, bits)                                                                          \
    ROWS_4(of, bits), ROWS_4(of, (bits) + 4), ROWS_4(of, (bits) + 8), ROWS_4(of, (bits) + 12)
#define ROWS_64(of, bits)                                                                          \
    ROWS_16(of, bits), ROWS_16(of, (bits) + 16), ROWS_16(of, (bits) + 32), ROWS_16(of, (bits) + 48)

static const uint8_t to_front[256][8] = {ROWS_64(WHICH, 0), ROWS_64(WHICH, 64), ROWS_64(WHICH, 128),
                                         ROWS_64(WHICH, 192)};
static const uint8_t from_front[256][8] = {ROWS_64(BEFORE, 0), ROWS_64(BEFORE, 64),
                                           ROWS_64(BEFORE, 128), ROWS_64(BEFORE, 192)};

/* Byte k: how many bits are set in bytes 0 to k. */
static inline uint64_t counts_up_to(uint64_t mask)
{
    return vget_lane_u64(vreinterpret_u64_u8(vcnt_u8(vcreate_u8(mask))), 0) * 0x0101010101010101ull;
}

/* Stores those bytes of `values` that the mask selects, one after the other. Returns how many. */
static inline size_t compress_bytes(const uint8_t *values, uint64_t mask, uint8_t *ret)
{
    uint64_t counts = counts_up_to(mask);
    for (size_t k = 0, used = 0; k < 8; k++) {
        vst1_u8(ret + used,
                vtbl1_u8(vld1_u8(values + 8 * k), vld1_u8(to_front[mask >> 8 * k & 0xff])));
        used = counts >> 8 * k & 0xff;
    }
    return counts >> 56;
}

/* The reverse; the other bytes become zeros. */
static inline size_t expand_bytes(const uint8_t *values, uint64_t mask, uint8_t *ret)
{
    uint64_t counts = counts_up_to(mask);
    for (size_t k = 0, used = 0; k < 8; k++) {
        vst1_u8(ret + 8 * k,
                vtbl1_u8(vld1_u8(values + used), vld1_u8(from_front[mask >> 8 * k & 0xff])));
        used = counts >> 8 * k & 0xff;
    }
    return counts >> 56;
}

static inline __attribute__((always_inline)) size_t
pack_by(const uint8_t *values, size_t count, const unsigned bits, uint8_t *masks, uint8_t *escaped)
{
    const uint8x16_t all = vdupq_n_u8((uint8_t)((1u << bits) - 1));
    size_t used = 0;
    for (size_t i = 0; i < count; i += FX_GROUP) {
        uint8x16x4_t v = vld1q_u8_x4(values + i), low, is_escape, has_bit;
        for (unsigned k = 0; k < 4; k++) {
            low.val[k] = vminq_u8(v.val[k], all);
            is_escape.val[k] = vcgeq_u8(v.val[k], all);
        }
        for (unsigned b = 0; b < bits; b++, masks += 8) {
            for (unsigned k = 0; k < 4; k++)
                has_bit.val[k] = vtstq_u8(low.val[k], vdupq_n_u8((uint8_t)(1u << b)));
            put_le64(masks, mask_of(has_bit));
        }
        uint64_t escapes = mask_of(is_escape);
        if (escapes) {
            uint8_t rest[FX_GROUP];
            for (unsigned k = 0; k < 4; k++)
                vst1q_u8(rest + 16 * (size_t)k, vsubq_u8(v.val[k], all));
            used += compress_bytes(rest, escapes, escaped + used);
        }
    }
    return used;
}

static inline __attribute__((always_inline)) size_t unpack_by(const uint8_t *masks, size_t count,
                                                              const unsigned bits,
                                                              const uint8_t *escaped,
                                                              uint8_t *values)
{
    const uint8x16_t all = vdupq_n_u8((uint8_t)((1u << bits) - 1));
    size_t used = 0;
    for (size_t i = 0; i < count; i += FX_GROUP) {
        uint8x16x4_t v, is_escape;
        for (unsigned k = 0; k < 4; k++)
            v.val[k] = vdupq_n_u8(0);
        for (unsigned b = 0; b < bits; b++, masks += 8) {
            uint8x16x4_t has_bit = bytes_of(get_le64(masks));
            for (unsigned k = 0; k < 4; k++)
                v.val[k] =
                    vorrq_u8(v.val[k], vandq_u8(has_bit.val[k], vdupq_n_u8((uint8_t)(1u << b))));
        }
        for (unsigned k = 0; k < 4; k++)
            is_escape.val[k] = vceqq_u8(v.val[k], all);
        uint64_t escapes = mask_of(is_escape);
        if (escapes) {
            uint8_t rest[FX_GROUP];
            used += expand_bytes(escaped + used, escapes, rest);
            for (unsigned k = 0; k < 4; k++)
                v.val[k] = vaddq_u8(v.val[k], vld1q_u8(rest + 16 * (size_t)k));
        }
        vst1q_u8_x4(values + i, v);
    }
    return used;
}

#define SPLITS_ALL_WIDTHS
#include "codec/fx_entries.h"

const struct fx_kernels fx_neon = {split_elements,  join_elements, level_bytes,  unlevel_bytes,
                                   translate_bytes, pack_values,   unpack_values};
