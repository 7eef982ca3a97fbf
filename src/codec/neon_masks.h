// SPDX-License-Identifier: Apache-2.0
/* Converts 64 bytes, each all zeros or all ones, to a mask of 64 bits; NEON has no instruction for
 * this. */
#pragma once

#include <arm_neon.h>

/* byte k: bit k modulo 8 */
#define NEON_EACH_BIT vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201ull))

static inline uint64_t mask_of(uint8x16x4_t v)
{
    const uint8x16_t bit = NEON_EACH_BIT;
    uint8x16_t a = vpaddq_u8(vandq_u8(v.val[0], bit), vandq_u8(v.val[1], bit)),
               b = vpaddq_u8(vandq_u8(v.val[2], bit), vandq_u8(v.val[3], bit));
    a = vpaddq_u8(a, b);
    return vgetq_lane_u64(vreinterpretq_u64_u8(vpaddq_u8(a, a)), 0);
}

static inline uint8x16x4_t bytes_of(uint64_t mask)
{
    const uint8x16_t first = vcombine_u8(vdup_n_u8(0), vdup_n_u8(1)), bit = NEON_EACH_BIT;
    const uint8x16_t bytes = vreinterpretq_u8_u64(vdupq_n_u64(mask));
    uint8x16x4_t ret;
    for (unsigned k = 0; k < 4; k++)
        ret.val[k] =
            vtstq_u8(vqtbl1q_u8(bytes, vaddq_u8(first, vdupq_n_u8((uint8_t)(2 * k)))), bit);
    return ret;
}
