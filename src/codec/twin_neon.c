// SPDX-License-Identifier: Apache-2.0
/* With NEON, which every little-endian aarch64 has. */
#include <arm_neon.h>

#include "codec/neon_masks.h"

typedef uint8x16_t vec;

static inline uint8x16_t lower_halves(uint8x16_t a, uint8x16_t b)
{
    return vreinterpretq_u8_u16(vuzp1q_u16(vreinterpretq_u16_u8(a), vreinterpretq_u16_u8(b)));
}

static inline uint8x16_t upper_halves(uint8x16_t a, uint8x16_t b)
{
    return vreinterpretq_u8_u16(vuzp2q_u16(vreinterpretq_u16_u8(a), vreinterpretq_u16_u8(b)));
}

static inline uint8x16_t first_pairs(uint8x16_t low, uint8x16_t high)
{
    return vreinterpretq_u8_u16(vzip1q_u16(vreinterpretq_u16_u8(low), vreinterpretq_u16_u8(high)));
}

static inline uint8x16_t second_pairs(uint8x16_t low, uint8x16_t high)
{
    return vreinterpretq_u8_u16(vzip2q_u16(vreinterpretq_u16_u8(low), vreinterpretq_u16_u8(high)));
}

static inline uint64_t mask_of_group(const uint8x16_t is[8])
{
    uint8x16x4_t bytes;
    for (unsigned k = 0; k < 4; k++)
        bytes.val[k] = vuzp1q_u8(is[2 * k], is[2 * k + 1]);
    return mask_of(bytes);
}

#include "codec/twin_vectors.h"

const struct twin_kernels twin_neon = {split_elements, join_elements, round_all, find_landmarks};
