// SPDX-License-Identifier: Apache-2.0
/* The reference: plain C for every processor. */
#include "codec/twin_kernels.h"
#include "format/le.h"

static inline uint16_t higher_half(uint16_t low, uint16_t image)
{
    return (uint16_t)(image - (low > 0x8000));
}

static void split_elements(const uint8_t *src, const uint8_t *image, size_t count, uint8_t *lows,
                           uint64_t *masks)
{
    for (size_t i = 0; i < count; i += TWIN_GROUP) {
        uint64_t mask = 0;
        for (size_t k = i; k < i + TWIN_GROUP && k < count; k++) {
            uint16_t low = get_le16(src + 4 * k), high = get_le16(src + 4 * k + 2);
            put_le16(lows + 2 * k, low);
            mask |= (uint64_t)(high != higher_half(low, get_le16(image + 2 * k))) << (k - i);
        }
        masks[i / TWIN_GROUP] = mask;
    }
}

static void join_elements(const uint8_t *lows, const uint8_t *image, size_t count, uint8_t *dst)
{
    for (size_t i = 0; i < count; i++) {
        uint16_t low = get_le16(lows + 2 * i);
        put_le32(dst + 4 * i, (uint32_t)higher_half(low, get_le16(image + 2 * i)) << 16 | low);
    }
}

static void round_all(const uint8_t *src, size_t count, uint8_t *ret)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t x = get_le32(src + 4 * i);
        put_le16(ret + 2 * i, (uint16_t)((x + 0x7fff + (x >> 16 & 1)) >> 16));
    }
}

static size_t find_landmarks(const uint8_t *values, size_t count, uint16_t *ret)
{
    static const uint16_t factors[4] = TWIN_FACTORS;
    size_t found = 0;
    for (size_t i = 0; i < count; i++) {
        uint32_t sum = TWIN_ADDEND;
        for (size_t k = 0; k < 4; k++)
            sum += (uint32_t)get_le16(values + 2 * (i + k)) * factors[k];
        ret[found] = (uint16_t)i;
        found += (uint16_t)sum < TWIN_LANDMARK;
    }
    return found;
}

const struct twin_kernels twin_scalar = {split_elements, join_elements, round_all, find_landmarks};
