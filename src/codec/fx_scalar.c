// SPDX-License-Identifier: Apache-2.0
/* The reference: plain C for every processor. */
#include "codec/fx_kernels.h"
#include "format/le.h"

#define EACH_BYTE 0x0101010101010101ull

/* A function with restricted pointers: otherwise a written byte might be part of the pointers, and
 * the compiler would load the pointers again for each byte. */
static inline __attribute__((always_inline)) void split_by(const uint8_t *restrict src,
                                                           size_t count, const unsigned width,
                                                           bool rotate, uint8_t *const planes[8])
{
    const unsigned shift = rotate ? 1 : 0, top = 8 * width - shift;
    uint8_t *restrict own[8];
    for (unsigned p = 0; p < width; p++)
        own[p] = planes[p];
    for (size_t i = 0; i < count; i++) {
        uint64_t x = width == 8   ? get_le64(src + 8 * i)
                     : width == 4 ? get_le32(src + 4 * i)
                                  : get_le16(src + 2 * i);
        if (rotate)
            x = x << shift | x >> top;
        for (unsigned p = 0; p < width; p++)
            own[p][i] = (uint8_t)(x >> (8 * p));
    }
}

static void split_elements(const uint8_t *src, size_t count, unsigned width, bool rotate,
                           uint8_t *const planes[8])
{
    if (width > 1)
        FX_BY_WIDTH(split_by, width, src, count, rotate, planes);
    else
        memcpy(planes[0], src, count);
}

static inline __attribute__((always_inline)) void join_by(const uint8_t *const planes[8],
                                                          size_t count, const unsigned width,
                                                          bool rotate, uint8_t *restrict dst)
{
    const unsigned shift = rotate ? 1 : 0, top = 8 * width - shift;
    const uint8_t *restrict own[8];
    for (unsigned p = 0; p < width; p++)
        own[p] = planes[p];
    for (size_t i = 0; i < count; i++) {
        uint64_t x = 0;
        for (unsigned p = 0; p < width; p++)
            x |= (uint64_t)own[p][i] << (8 * p);
        if (rotate)
            x = x >> shift | x << top;
        if (width == 8)
            put_le64(dst + 8 * i, x);
        else if (width == 4)
            put_le32(dst + 4 * i, (uint32_t)x);
        else
            put_le16(dst + 2 * i, (uint16_t)x);
    }
}

static void join_elements(const uint8_t *const planes[8], size_t count, unsigned width, bool rotate,
                          uint8_t *dst)
{
    if (width > 1)
        FX_BY_WIDTH(join_by, width, planes, count, rotate, dst);
    else
        memcpy(dst, planes[0], count);
}

static void level_bytes(uint8_t *bytes, size_t count, uint8_t *means)
{
    for (size_t i = 0; i < count; i += FX_GROUP) {
        unsigned sum = FX_GROUP / 2;
        for (size_t k = 0; k < FX_GROUP; k++)
            sum += bytes[i + k];
        uint8_t mean = (uint8_t)(sum / FX_GROUP), off = (uint8_t)(mean - 128);
        means[i / FX_GROUP] = mean;
        for (size_t k = 0; k < FX_GROUP; k++)
            bytes[i + k] = (uint8_t)(bytes[i + k] - off);
    }
}

static void unlevel_bytes(uint8_t *bytes, size_t count, const uint8_t *means)
{
    for (size_t i = 0; i < count; i += FX_GROUP) {
        uint8_t off = (uint8_t)(means[i / FX_GROUP] - 128);
        for (size_t k = 0; k < FX_GROUP; k++)
            bytes[i + k] = (uint8_t)(bytes[i + k] + off);
    }
}

static void translate_bytes(uint8_t *bytes, size_t count, const uint8_t table[256])
{
    for (size_t i = 0; i < count; i++)
        bytes[i] = table[bytes[i]];
}

/* Returns bit 0 of each of 8 bytes, the first byte in the lowest bit. */
static inline uint64_t gather_bits(uint64_t bytes)
{
    return ((bytes & EACH_BYTE) * 0x0102040810204080ull) >> 56;
}

/* The reverse. */
static inline uint64_t spread_bits(uint64_t bits)
{
    uint64_t x = (bits & 0xff) * EACH_BYTE & 0x8040201008040201ull;
    return (((x + 0x7f7f7f7f7f7f7f7full) | x) >> 7) & EACH_BYTE;
}

/* Values that escape have all bits set, and so a one in each mask. */
static size_t pack_values(const uint8_t *values, size_t count, unsigned bits, uint8_t *masks,
                          uint8_t *escaped)
{
    const uint8_t all = (uint8_t)((1u << bits) - 1);
    size_t used = 0;
    for (size_t i = 0; i < count; i += FX_GROUP) {
        uint8_t low[FX_GROUP];
        uint64_t escapes = UINT64_MAX;
        for (size_t k = 0; k < FX_GROUP; k++)
            low[k] = values[i + k] < all ? values[i + k] : all;
        for (unsigned b = 0; b < bits; b++, masks += 8) {
            uint64_t mask = 0;
            for (size_t k = 0; k < FX_GROUP; k += 8)
                mask |= gather_bits(get_le64(low + k) >> b) << k;
            put_le64(masks, mask);
            escapes &= mask;
        }
        for (; escapes; escapes &= escapes - 1)
            escaped[used++] = (uint8_t)(values[i + (size_t)__builtin_ctzll(escapes)] - all);
    }
    return used;
}

static size_t unpack_values(const uint8_t *masks, size_t count, unsigned bits,
                            const uint8_t *escaped, uint8_t *values)
{
    size_t used = 0;
    for (size_t i = 0; i < count; i += FX_GROUP, masks += 8 * (size_t)bits) {
        uint64_t escapes = UINT64_MAX;
        for (unsigned b = 0; b < bits; b++)
            escapes &= get_le64(masks + 8 * (size_t)b);
        for (size_t k = 0; k < FX_GROUP; k += 8) {
            uint64_t x = 0;
            for (unsigned b = 0; b < bits; b++)
                x |= spread_bits(get_le64(masks + 8 * (size_t)b) >> k) << b;
            put_le64(values + i + k, x);
        }
        for (; escapes; escapes &= escapes - 1) {
            uint8_t *value = values + i + (size_t)__builtin_ctzll(escapes);
            *value = (uint8_t)(*value + escaped[used++]);
        }
    }
    return used;
}

void fx_pack_even(const uint8_t *bytes, size_t count, uint8_t *packed)
{
    for (size_t i = 0; i < count; i += FX_GROUP, packed += 56) {
        uint64_t last = 0;
        for (unsigned k = 0; k < 8; k++)
            last |= (uint64_t)(bytes[i + 56 + k] >> 1) << (7 * k);
        for (unsigned k = 0; k < 7; k++)
            put_le64(packed + 8 * (size_t)k,
                     get_le64(bytes + i + 8 * (size_t)k) | spread_bits(last >> (8 * k)));
    }
}

void fx_unpack_even(const uint8_t *packed, size_t count, uint8_t *bytes)
{
    for (size_t i = 0; i < count; i += FX_GROUP, packed += 56) {
        uint64_t last = 0;
        for (unsigned k = 0; k < 7; k++) {
            uint64_t x = get_le64(packed + 8 * (size_t)k);
            last |= gather_bits(x) << (8 * k);
            put_le64(bytes + i + 8 * (size_t)k, x & ~EACH_BYTE);
        }
        for (unsigned k = 0; k < 8; k++)
            bytes[i + 56 + k] = (uint8_t)(last >> (7 * k) << 1);
    }
}

const struct fx_kernels fx_scalar = {split_elements,  join_elements, level_bytes,  unlevel_bytes,
                                     translate_bytes, pack_values,   unpack_values};
