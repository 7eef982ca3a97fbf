// SPDX-License-Identifier: Apache-2.0
/* With NEON, which every little-endian aarch64 has. */
#include <arm_neon.h>

#include "codec/dx_lanes.h"

#define LANES 2u /* of a vector */

typedef uint8x16_t vec;

static inline vec load_vec(const void *p)
{
    return vld1q_u8(p);
}

static inline void store_vec(void *p, vec v)
{
    vst1q_u8(p, v);
}

static inline void put_any_lanes(struct lane_writer *w, const uint64_t *lanes, const uint64_t *bits,
                                 size_t count)
{
    uint64x2_t too_long = vdupq_n_u64(0);
    for (size_t i = 0; i < count; i += LANES)
        too_long = vorrq_u64(too_long, vcgtq_u64(vld1q_u64(bits + i), vdupq_n_u64(SHORT_LANE)));
    if (vmaxvq_u32(vreinterpretq_u32_u64(too_long)) == 0)
        put_short_lanes(w, lanes, bits, count, 1);
    else
        put_lanes(w, lanes, bits, count);
}

/* Negative counts shift to the right. */
static inline uint64x2_t shift_right_64(uint64x2_t v, uint64x2_t by)
{
    return vshlq_u64(v, vnegq_s64(vreinterpretq_s64_u64(by)));
}

static inline uint64x2_t first_bits(uint32x4_t bits)
{
    return vandq_u64(vreinterpretq_u64_u32(bits), vdupq_n_u64(UINT32_MAX));
}

/* The reverse of join_pairs(); above the bits lies what follows. */
static inline uint32x4_t part_pairs(const uint64_t *lanes, uint32x4_t bits)
{
    uint64x2_t v = vld1q_u64(lanes);
    return vreinterpretq_u32_u64(vsliq_n_u64(v, shift_right_64(v, first_bits(bits)), 32));
}

/* --- elements of 2 bytes ---------------------------------------------------------------------- */

static inline vec lengths_2(vec v)
{
    return (vec)vsubq_u16(vdupq_n_u16(16), vclzq_u16((uint16x8_t)v));
}

static inline vec bits_of_2(vec lengths)
{
    return (vec)vqsubq_u16((uint16x8_t)lengths, vdupq_n_u16(1));
}

static inline uint16x8_t power_2(uint16x8_t n)
{
    return vshlq_u16(vdupq_n_u16(1), vreinterpretq_s16_u16(n));
}

/* The lowest `bits` of numbers. */
static inline vec low_bits_2(vec v, vec bits)
{
    return vandq_u8(v, (vec)vsubq_u16(power_2((uint16x8_t)bits), vdupq_n_u16(1)));
}

static inline vec pair_bits_2(vec bits)
{
    return (vec)vpaddlq_u16((uint16x8_t)bits);
}

static inline uint32x4_t low_halves(uint16x8_t v)
{
    return vandq_u32(vreinterpretq_u32_u16(v), vdupq_n_u32(UINT16_MAX));
}

static inline vec part_fields_2(const uint64_t *lanes, vec lengths, vec bits)
{
    uint32x4_t pairs = part_pairs(lanes, (uint32x4_t)pair_bits_2(bits));
    int32x4_t first = (int32x4_t)low_halves((uint16x8_t)bits);
    uint32x4_t second = vshlq_u32(pairs, vnegq_s32(first));
    vec fields = (vec)vsliq_n_u32(pairs, second, 16);
    uint16x8_t highest = vbicq_u16(power_2((uint16x8_t)bits), vceqzq_u16((uint16x8_t)lengths));
    return vorrq_u8(low_bits_2(fields, bits), (vec)highest);
}

static inline void narrow_2(uint8_t *bytes, vec v)
{
    vst1_u8(bytes, vmovn_u16((uint16x8_t)v));
}

static inline vec widen_2(const uint8_t *bytes)
{
    return (vec)vmovl_u8(vld1_u8(bytes));
}

/* --- elements of 4 bytes ---------------------------------------------------------------------- */

static inline vec lengths_4(vec v)
{
    return (vec)vsubq_u32(vdupq_n_u32(32), vclzq_u32((uint32x4_t)v));
}

static inline vec bits_of_4(vec lengths)
{
    return (vec)vqsubq_u32((uint32x4_t)lengths, vdupq_n_u32(1));
}

static inline uint32x4_t power_4(vec n)
{
    return vshlq_u32(vdupq_n_u32(1), (int32x4_t)n);
}

static inline vec low_bits_4(vec v, vec bits)
{
    return vandq_u8(v, (vec)vsubq_u32(power_4(bits), vdupq_n_u32(1)));
}

static inline vec part_fields_4(const uint64_t *lanes, vec lengths, vec bits)
{
    vec pairs = (vec)part_pairs(lanes, (uint32x4_t)bits);
    uint32x4_t highest = vbicq_u32(power_4(bits), vceqzq_u32((uint32x4_t)lengths));
    return vorrq_u8(low_bits_4(pairs, bits), (vec)highest);
}

/* The lowest bytes of 4 numbers. Returns the others. */
static inline vec narrow_4(uint8_t *bytes, vec v)
{
    uint16x4_t halves = vmovn_u32((uint32x4_t)v);
    uint8x8_t narrow = vmovn_u16(vcombine_u16(halves, vdup_n_u16(0)));
    put_le32(bytes, vget_lane_u32(vreinterpret_u32_u8(narrow), 0));
    return (vec)vshrq_n_u32((uint32x4_t)v, 8);
}

static inline vec widen_4(const uint8_t *bytes)
{
    return (vec)vmovl_u16(vget_low_u16(vmovl_u8(vcreate_u8(get_le32(bytes)))));
}

/* --- all elements ----------------------------------------------------------------------------- */

typedef uint8x16_t table_16;

static inline table_16 load_table(const uint8_t *bytes)
{
    return vld1q_u8(bytes);
}

static inline vec look_up(table_16 from, vec v)
{
    return vqtbl1q_u8(from, v);
}

static inline vec all_bytes(uint8_t b)
{
    return vdupq_n_u8(b);
}

static inline vec larger_bytes(vec a, vec b)
{
    return vmaxq_u8(a, b);
}

/* The highest 2 bytes of 8 elements. */
static inline uint16x8_t highest_halves(const uint8_t *base, unsigned width)
{
    uint16x8_t first = (uint16x8_t)load_vec(base);
    return width == 2 ? first : vuzp2q_u16(first, (uint16x8_t)load_vec(base + 16));
}

/* Of 16 elements. */
static inline vec exponents_of(const uint8_t *base, unsigned width)
{
    return vshrn_high_n_u16(vshrn_n_u16(highest_halves(base, width), 7),
                            highest_halves(base + 8 * width, width), 7);
}

static inline vec class_of(vec e, vec first, vec last)
{
    return vminq_u8(vqsubq_u8(e, first), last);
}

static inline vec sums_of_fields(vec lengths)
{
    vec bits = vqsubq_u8(lengths, vdupq_n_u8(1));
    return (vec)vpaddlq_u32(vpaddlq_u16(vpaddlq_u8(bits)));
}

#include "codec/dx_vectors.h"
#include "codec/dx_vector_lengths.h"

const struct dx_kernels dx_neon = {&fx_neon, take_apart, put_together, add_classes, field_bits};
