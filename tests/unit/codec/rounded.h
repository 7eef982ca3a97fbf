// SPDX-License-Identifier: Apache-2.0
/* bf16 images of fp32 numbers, as torch makes them. */
#pragma once

#include "format/le.h"

/* To nearest, ties to even; one NaN for all. */
static inline uint16_t rounded(uint32_t x)
{
    if ((x & 0x7fffffff) > 0x7f800000)
        return 0x7fc0;
    return (uint16_t)((x + 0x7fff + (x >> 16 & 1)) >> 16);
}

/* `src` has 4 bytes for each element, `image` gets 2. */
static inline void round_all(const uint8_t *src, size_t count, uint8_t *image)
{
    for (size_t i = 0; i < count; i++)
        put_le16(image + 2 * i, rounded(get_le32(src + 4 * i)));
}
