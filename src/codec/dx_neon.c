// SPDX-License-Identifier: Apache-2.0
/* With NEON, which every little-endian aarch64 has. */
#include <arm_neon.h>

#include "codec/dx_kernels.h"
#include "codec/dx_lanes.h"

#define BATCH 512u /* elements: lanes are written one by one and read as vectors, not at once */
#define LANES 2u   /* of a vector */

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

/* Joins pairs of numbers of 32 bits, `bits` of which are used, into lanes. */
static inline void join_pairs(uint32x4_t v, uint32x4_t bits, uint64_t *lanes, uint64_t *lane_bits)
{
    uint64x2_t both = vreinterpretq_u64_u32(v);
    uint64x2_t second = vshlq_u64(vshrq_n_u64(both, 32), vreinterpretq_s64_u64(first_bits(bits)));
    vst1q_u64(lanes, vorrq_u64(first_bits(v), second));
    vst1q_u64(lane_bits, vpaddlq_u32(bits));
}

/* The reverse; above the bits lies what follows. */
static inline uint32x4_t part_pairs(const uint64_t *lanes, uint32x4_t bits)
{
    uint64x2_t v = vld1q_u64(lanes);
    return vreinterpretq_u32_u64(vsliq_n_u64(v, shift_right_64(v, first_bits(bits)), 32));
}

/* --- elements of 2 bytes ---------------------------------------------------------------------- */

static inline uint16x8_t load_2(const uint8_t *p)
{
    return vreinterpretq_u16_u8(vld1q_u8(p));
}

/* All ones where the highest bit is set. */
static inline uint16x8_t sign_2(uint16x8_t v)
{
    return vreinterpretq_u16_s16(vshrq_n_s16(vreinterpretq_s16_u16(v), 15));
}

static inline uint16x8_t in_order_2(uint16x8_t v)
{
    return veorq_u16(v, vshrq_n_u16(sign_2(v), 1));
}

static inline uint16x8_t difference_2(const uint8_t *src, const uint8_t *base)
{
    uint16x8_t d = vsubq_u16(in_order_2(load_2(src)), in_order_2(load_2(base)));
    return veorq_u16(vshlq_n_u16(d, 1), sign_2(d));
}

static inline uint16x8_t add_2(const uint8_t *base, uint16x8_t z)
{
    uint16x8_t is_odd = vtstq_u16(z, vdupq_n_u16(1));
    uint16x8_t d = veorq_u16(vshrq_n_u16(z, 1), is_odd);
    return in_order_2(vaddq_u16(in_order_2(load_2(base)), d));
}

static inline uint16x8_t bits_of_2(uint16x8_t lengths)
{
    return vqsubq_u16(lengths, vdupq_n_u16(1));
}

static inline uint16x8_t power_2(uint16x8_t n)
{
    return vshlq_u16(vdupq_n_u16(1), vreinterpretq_s16_u16(n));
}

/* The lowest `bits` of numbers. */
static inline uint16x8_t low_bits_2(uint16x8_t v, uint16x8_t bits)
{
    return vandq_u16(v, vsubq_u16(power_2(bits), vdupq_n_u16(1)));
}

static inline uint32x4_t low_halves(uint16x8_t v)
{
    return vandq_u32(vreinterpretq_u32_u16(v), vdupq_n_u32(UINT16_MAX));
}

static inline void join_fields_2(uint16x8_t z, uint16x8_t bits, uint64_t *lanes,
                                 uint64_t *lane_bits)
{
    uint16x8_t fields = low_bits_2(z, bits);
    uint32x4_t second = vshlq_u32(vshrq_n_u32(vreinterpretq_u32_u16(fields), 16),
                                  vreinterpretq_s32_u32(low_halves(bits)));
    join_pairs(vorrq_u32(low_halves(fields), second), vpaddlq_u16(bits), lanes, lane_bits);
}

static inline uint16x8_t part_fields_2(const uint64_t *lanes, uint16x8_t lengths)
{
    uint16x8_t bits = bits_of_2(lengths);
    uint32x4_t pairs = part_pairs(lanes, vpaddlq_u16(bits));
    uint32x4_t second = vshlq_u32(pairs, vnegq_s32(vreinterpretq_s32_u32(low_halves(bits))));
    uint16x8_t fields = vreinterpretq_u16_u32(vsliq_n_u32(pairs, second, 16));
    uint16x8_t highest = vbicq_u16(power_2(bits), vceqzq_u16(lengths));
    return vorrq_u16(low_bits_2(fields, bits), highest);
}

static inline uint16x8_t widen_2(const uint8_t *bytes)
{
    return vmovl_u8(vld1_u8(bytes));
}

static inline __attribute__((always_inline)) size_t take_apart_2(const uint8_t *src,
                                                                 const uint8_t *base, size_t count,
                                                                 const bool has_low, uint8_t *low,
                                                                 uint8_t *lengths, uint8_t *fields)
{
    struct lane_writer w = {.at = fields};
    for (size_t i = 0; i < count; i += FX_GROUP) {
        uint64_t lanes[FX_GROUP / 4], lane_bits[FX_GROUP / 4];
        for (size_t k = 0; k < FX_GROUP; k += 8) {
            uint16x8_t z = difference_2(src + 2 * (i + k), base + 2 * (i + k));
            if (has_low) {
                vst1_u8(low + i + k, vmovn_u16(z));
                z = vshrq_n_u16(z, 8);
            }
            uint16x8_t length = vsubq_u16(vdupq_n_u16(16), vclzq_u16(z));
            vst1_u8(lengths + i + k, vmovn_u16(length));
            join_fields_2(z, bits_of_2(length), lanes + k / 4, lane_bits + k / 4);
        }
        put_any_lanes(&w, lanes, lane_bits, FX_GROUP / 4);
    }
    return end_lanes(&w, fields);
}

static inline __attribute__((always_inline)) void
put_together_2(const uint8_t *low, const uint8_t *lengths, const uint8_t *fields,
               const uint8_t *base, size_t count, const bool has_low, uint8_t *dst)
{
    size_t bit = 0;
    for (size_t i = 0; i < count; i += BATCH) {
        uint64_t lanes[BATCH / 4], lane_bits[BATCH / 4];
        size_t len = count - i < BATCH ? count - i : BATCH;
        for (size_t k = 0; k < len; k += 8)
            vst1q_u64(lane_bits + k / 4,
                      vpaddlq_u32(vpaddlq_u16(bits_of_2(widen_2(lengths + i + k)))));
        bit = take_lanes(fields, bit, lane_bits, lanes, len / 4);
        for (size_t k = 0; k < len; k += 8) {
            uint16x8_t z = part_fields_2(lanes + k / 4, widen_2(lengths + i + k));
            if (has_low)
                z = vsliq_n_u16(widen_2(low + i + k), z, 8);
            vst1q_u8(dst + 2 * (i + k), vreinterpretq_u8_u16(add_2(base + 2 * (i + k), z)));
        }
    }
}

/* --- elements of 4 bytes ---------------------------------------------------------------------- */

static inline uint32x4_t load_4(const uint8_t *p)
{
    return vreinterpretq_u32_u8(vld1q_u8(p));
}

static inline uint32x4_t sign_4(uint32x4_t v)
{
    return vreinterpretq_u32_s32(vshrq_n_s32(vreinterpretq_s32_u32(v), 31));
}

static inline uint32x4_t in_order_4(uint32x4_t v)
{
    return veorq_u32(v, vshrq_n_u32(sign_4(v), 1));
}

static inline uint32x4_t difference_4(const uint8_t *src, const uint8_t *base)
{
    uint32x4_t d = vsubq_u32(in_order_4(load_4(src)), in_order_4(load_4(base)));
    return veorq_u32(vshlq_n_u32(d, 1), sign_4(d));
}

static inline uint32x4_t add_4(const uint8_t *base, uint32x4_t z)
{
    uint32x4_t is_odd = vtstq_u32(z, vdupq_n_u32(1));
    uint32x4_t d = veorq_u32(vshrq_n_u32(z, 1), is_odd);
    return in_order_4(vaddq_u32(in_order_4(load_4(base)), d));
}

static inline uint32x4_t bits_of_4(uint32x4_t lengths)
{
    return vqsubq_u32(lengths, vdupq_n_u32(1));
}

static inline uint32x4_t power_4(uint32x4_t n)
{
    return vshlq_u32(vdupq_n_u32(1), vreinterpretq_s32_u32(n));
}

static inline uint32x4_t low_bits_4(uint32x4_t v, uint32x4_t bits)
{
    return vandq_u32(v, vsubq_u32(power_4(bits), vdupq_n_u32(1)));
}

static inline uint32x4_t part_fields_4(const uint64_t *lanes, uint32x4_t lengths)
{
    uint32x4_t bits = bits_of_4(lengths);
    uint32x4_t highest = vbicq_u32(power_4(bits), vceqzq_u32(lengths));
    return vorrq_u32(low_bits_4(part_pairs(lanes, bits), bits), highest);
}

/* The lowest bytes of 4 numbers. */
static inline void narrow_4(uint8_t *bytes, uint32x4_t v)
{
    uint8x8_t narrow = vmovn_u16(vcombine_u16(vmovn_u32(v), vdup_n_u16(0)));
    put_le32(bytes, vget_lane_u32(vreinterpret_u32_u8(narrow), 0));
}

static inline uint32x4_t widen_4(const uint8_t *bytes)
{
    return vmovl_u16(vget_low_u16(vmovl_u8(vcreate_u8(get_le32(bytes)))));
}

static inline __attribute__((always_inline)) size_t
take_apart_4(const uint8_t *src, const uint8_t *base, size_t count, const unsigned low_planes,
             uint8_t *const low[8], uint8_t *lengths, uint8_t *fields)
{
    struct lane_writer w = {.at = fields};
    for (size_t i = 0; i < count; i += FX_GROUP) {
        uint64_t lanes[FX_GROUP / 2], lane_bits[FX_GROUP / 2];
        for (size_t k = 0; k < FX_GROUP; k += 4) {
            uint32x4_t z = difference_4(src + 4 * (i + k), base + 4 * (i + k));
            for (unsigned p = 0; p < low_planes; p++) {
                narrow_4(low[p] + i + k, z);
                z = vshrq_n_u32(z, 8);
            }
            uint32x4_t length = vsubq_u32(vdupq_n_u32(32), vclzq_u32(z)), bits = bits_of_4(length);
            narrow_4(lengths + i + k, length);
            join_pairs(low_bits_4(z, bits), bits, lanes + k / 2, lane_bits + k / 2);
        }
        put_any_lanes(&w, lanes, lane_bits, FX_GROUP / 2);
    }
    return end_lanes(&w, fields);
}

static inline __attribute__((always_inline)) void
put_together_4(const uint8_t *const low[8], const uint8_t *lengths, const uint8_t *fields,
               const uint8_t *base, size_t count, const unsigned low_planes, uint8_t *dst)
{
    size_t bit = 0;
    for (size_t i = 0; i < count; i += BATCH) {
        uint64_t lanes[BATCH / 2], lane_bits[BATCH / 2];
        size_t len = count - i < BATCH ? count - i : BATCH;
        for (size_t k = 0; k < len; k += 4)
            vst1q_u64(lane_bits + k / 2, vpaddlq_u32(bits_of_4(widen_4(lengths + i + k))));
        bit = take_lanes(fields, bit, lane_bits, lanes, len / 2);
        for (size_t k = 0; k < len; k += 4) {
            uint32x4_t z = part_fields_4(lanes + k / 2, widen_4(lengths + i + k));
            for (unsigned p = low_planes; p-- > 0;)
                z = vsliq_n_u32(widen_4(low[p] + i + k), z, 8);
            vst1q_u8(dst + 4 * (i + k), vreinterpretq_u8_u32(add_4(base + 4 * (i + k), z)));
        }
    }
}

/* --- all elements ----------------------------------------------------------------------------- */

static size_t take_apart(const uint8_t *src, const uint8_t *base, size_t count, unsigned width,
                         unsigned low_planes, uint8_t *const low[8], uint8_t *lengths,
                         uint8_t *fields)
{
    switch (8 * width + low_planes) {
    case 16:
        return take_apart_2(src, base, count, false, NULL, lengths, fields);
    case 17:
        return take_apart_2(src, base, count, true, low[0], lengths, fields);
    case 32:
        return take_apart_4(src, base, count, 0, low, lengths, fields);
    case 33:
        return take_apart_4(src, base, count, 1, low, lengths, fields);
    case 34:
        return take_apart_4(src, base, count, 2, low, lengths, fields);
    case 35:
        return take_apart_4(src, base, count, 3, low, lengths, fields);
    default:
        return dx_scalar.take_apart(src, base, count, width, low_planes, low, lengths, fields);
    }
}

static void put_together(const uint8_t *const low[8], const uint8_t *lengths, const uint8_t *fields,
                         const uint8_t *base, size_t count, unsigned width, unsigned low_planes,
                         uint8_t *dst)
{
    switch (8 * width + low_planes) {
    case 16:
        put_together_2(NULL, lengths, fields, base, count, false, dst);
        break;
    case 17:
        put_together_2(low[0], lengths, fields, base, count, true, dst);
        break;
    case 32:
        put_together_4(low, lengths, fields, base, count, 0, dst);
        break;
    case 33:
        put_together_4(low, lengths, fields, base, count, 1, dst);
        break;
    case 34:
        put_together_4(low, lengths, fields, base, count, 2, dst);
        break;
    case 35:
        put_together_4(low, lengths, fields, base, count, 3, dst);
        break;
    default:
        dx_scalar.put_together(low, lengths, fields, base, count, width, low_planes, dst);
    }
}

/* The highest 2 bytes of 8 elements. */
static inline uint16x8_t highest_halves(const uint8_t *base, unsigned width)
{
    return width == 2 ? load_2(base) : vuzp2q_u16(load_2(base), load_2(base + 16));
}

static void add_classes(const uint8_t *base, size_t count, unsigned width,
                        const struct dx_classes *classes, uint8_t *values)
{
    check(classes->count >= 1 && classes->count <= DX_CLASSES_MAX);
    if (width == 8) {
        dx_scalar.add_classes(base, count, width, classes, values);
        return;
    }
    uint8_t times[DX_CLASSES_MAX];
    for (unsigned i = 0; i < DX_CLASSES_MAX; i++)
        times[i] = (uint8_t)(i * classes->lengths);
    const uint8x16_t add = vld1q_u8(times), first = vdupq_n_u8(classes->first),
                     last = vdupq_n_u8((uint8_t)(classes->count - 1));
    const int8x16_t shift = vdupq_n_s8((int8_t)-classes->shift);
    for (size_t i = 0; i < count; i += 16) {
        const uint8_t *p = base + i * width;
        uint8x16_t exponents = vshrn_high_n_u16(vshrn_n_u16(highest_halves(p, width), 7),
                                                highest_halves(p + 8 * width, width), 7);
        uint8x16_t class = vminq_u8(vqsubq_u8(vshlq_u8(exponents, shift), first), last);
        vst1q_u8(values + i, vaddq_u8(vld1q_u8(values + i), vqtbl1q_u8(add, class)));
    }
}

static size_t field_bits(const uint8_t *lengths, size_t count, uint8_t *ret_longest)
{
    uint8x16_t longest = vdupq_n_u8(0);
    size_t sum = 0;
    for (size_t i = 0; i < count; i += 16) {
        uint8x16_t v = vld1q_u8(lengths + i);
        sum += vaddlvq_u8(vqsubq_u8(v, vdupq_n_u8(1)));
        longest = vmaxq_u8(longest, v);
    }
    *ret_longest = vmaxvq_u8(longest);
    return sum;
}

const struct dx_kernels dx_neon = {&fx_neon, take_apart, put_together, add_classes, field_bits};
