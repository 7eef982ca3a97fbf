// SPDX-License-Identifier: Apache-2.0
/* With NEON, which every little-endian aarch64 has. */
#include <arm_neon.h>

#include "format/le.h"

typedef uint8x16_t vec;

static inline vec look_up(const uint8_t table[16], vec v)
{
    return vqtbl1q_u8(vld1q_u8(table), v);
}

static inline vec lengths_2(vec v)
{
    return (vec)vsubq_u16(vdupq_n_u16(16), vclzq_u16((uint16x8_t)v));
}

static inline vec lengths_4(vec v)
{
    return (vec)vsubq_u32(vdupq_n_u32(32), vclzq_u32((uint32x4_t)v));
}

static inline vec power_2(vec n)
{
    return (vec)vshlq_u16(vdupq_n_u16(1), (int16x8_t)n);
}

static inline void narrow_2(uint8_t *bytes, vec v)
{
    vst1_u8(bytes, vmovn_u16((uint16x8_t)v));
}

static inline void narrow_4(uint8_t *bytes, vec v)
{
    uint16x4_t halves = vmovn_u32((uint32x4_t)v);
    uint8x8_t narrow = vmovn_u16(vcombine_u16(halves, vdup_n_u16(0)));
    put_le32(bytes, vget_lane_u32(vreinterpret_u32_u8(narrow), 0));
}

static inline vec widen_2(const uint8_t *bytes)
{
    return (vec)vmovl_u8(vld1_u8(bytes));
}

static inline vec widen_4(const uint8_t *bytes)
{
    return (vec)vmovl_u16(vget_low_u16(vmovl_u8(vcreate_u8(get_le32(bytes)))));
}

/* Returns the highest 2 bytes of 8 elements. */
static inline uint16x8_t highest_halves(const uint8_t *base, unsigned width)
{
    uint16x8_t first = (uint16x8_t)vld1q_u8(base);
    return width == 2 ? first : vuzp2q_u16(first, (uint16x8_t)vld1q_u8(base + 16));
}

/* For 16 elements. */
static inline vec exponents_of(const uint8_t *base, unsigned width)
{
    return vshrn_high_n_u16(vshrn_n_u16(highest_halves(base, width), 7),
                            highest_halves(base + 8 * width, width), 7);
}

static inline vec class_of(vec e, vec first, vec last)
{
    return vminq_u8(vqsubq_u8(e, first), last);
}

static inline vec larger_bytes(vec a, vec b)
{
    return vmaxq_u8(a, b);
}

static inline vec sums_of_fields(vec lengths)
{
    vec bits = vqsubq_u8(lengths, vdupq_n_u8(1));
    return (vec)vpaddlq_u32(vpaddlq_u16(vpaddlq_u8(bits)));
}

#include "codec/dx_vectors.h"

const struct dx_kernels dx_neon = {&fx_neon, take_apart, put_together, add_classes, field_bits};
