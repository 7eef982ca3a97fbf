// SPDX-License-Identifier: Apache-2.0
/* The reference: plain C for every processor. */
#include "codec/dx_kernels.h"
#include "format/le.h"

#define INLINE static inline __attribute__((always_inline))

INLINE uint64_t element_at(const uint8_t *p, const unsigned width)
{
    return width == 8 ? get_le64(p) : width == 4 ? get_le32(p) : get_le16(p);
}

INLINE void put_element(uint8_t *p, uint64_t x, const unsigned width)
{
    if (width == 8)
        put_le64(p, x);
    else if (width == 4)
        put_le32(p, (uint32_t)x);
    else
        put_le16(p, (uint16_t)x);
}

/* Returns all ones if the highest bit of an element is set. */
INLINE uint64_t sign_of(uint64_t x, const unsigned width)
{
    return 0 - (x >> (8 * width - 1) & 1);
}

INLINE uint64_t all_bits(const unsigned width)
{
    return UINT64_MAX >> (64 - 8 * width);
}

/* Maps floats in ascending order to integers in ascending order. Its own reverse. */
INLINE uint64_t in_order(uint64_t x, const unsigned width)
{
    return x ^ (sign_of(x, width) & all_bits(width) >> 1);
}

/* Maps small differences, of either sign, to small numbers. */
INLINE uint64_t element_zigzag(uint64_t x, const unsigned width)
{
    return (x << 1 ^ sign_of(x, width)) & all_bits(width);
}

INLINE uint64_t element_unzigzag(uint64_t x)
{
    return x >> 1 ^ (0 - (x & 1));
}

INLINE size_t take_apart_by(const struct dx_elements *elements, const uint8_t *restrict src,
                            const unsigned width, const unsigned low_planes)
{
    const struct dx_elements e = *elements;
    const uint8_t *restrict base = e.base;
    uint8_t *restrict lengths = e.lengths, *restrict fields = e.fields;
    uint64_t sum = 0;
    unsigned held = 0; /* bits of `sum` */
    for (size_t i = 0; i < e.count; i++) {
        uint64_t x = in_order(element_at(src + i * width, width), width),
                 y = in_order(element_at(base + i * width, width), width);
        uint64_t z = element_zigzag(x - y, width);
        for (unsigned p = 0; p < low_planes; p++)
            e.low[p][i] = (uint8_t)(z >> (8 * p));
        z >>= 8 * low_planes;
        unsigned bits = 63u - (unsigned)__builtin_clzll(z | 1);
        lengths[i] = (uint8_t)(bits + (z != 0));
        z &= (1ull << bits) - 1;
        sum |= z << held;
        held += bits;
        if (held >= 64) {
            put_le64(fields, sum);
            fields += 8;
            held -= 64;
            sum = z >> (bits - held);
        }
    }
    put_le64(fields, sum);
    return 8 * (size_t)(fields - e.fields) + held;
}

static size_t take_apart(const struct dx_elements *elements, const uint8_t *src)
{
    return DX_BY_LAYOUT(take_apart_by, take_apart_by(elements, src, 8, elements->low_planes),
                        elements, src);
}

/* Returns up to 63 bits that begin at bit `at`. */
INLINE uint64_t bits_at(const uint8_t *bytes, size_t at, const unsigned width)
{
    const uint8_t *p = bytes + at / 8;
    unsigned shift = at % 8;
    uint64_t x = get_le64(p) >> shift;
    return width == 8 ? x | (uint64_t)p[8] << 1 << (63 - shift) : x;
}

/* The field of a number is its bits below the highest one, which is not stored. */
struct number {
    uint64_t highest[65], below[65]; /* by length */
};

static void fill_number(struct number *ret)
{
    ret->highest[0] = ret->below[0] = 0;
    for (unsigned length = 1; length <= 64; length++) {
        ret->highest[length] = 1ull << (length - 1);
        ret->below[length] = ret->highest[length] - 1;
    }
}

#define STRETCH FX_GROUP

/* Reads the fields of numbers with STRETCH lengths. Returns where the next field begins. */
INLINE size_t get_numbers(const struct number *number, const uint8_t *restrict lengths,
                          const uint8_t *restrict fields, size_t at, const unsigned width,
                          uint64_t *restrict ret)
{
    for (size_t i = 0; i < STRETCH; i++) {
        unsigned length = lengths[i];
        ret[i] = (bits_at(fields, at, width) & number->below[length]) | number->highest[length];
        at += length - (length > 0);
    }
    return at;
}

INLINE void put_together_by(const struct dx_elements *elements, uint8_t *restrict dst,
                            const unsigned width, const unsigned low_planes)
{
    const struct dx_elements e = *elements;
    const uint8_t *restrict base = e.base;
    struct number number;
    uint64_t numbers[STRETCH];
    const uint8_t *restrict low[8];
    size_t at = 0;
    fill_number(&number);
    for (unsigned p = 0; p < low_planes; p++)
        low[p] = e.low[p];
    for (size_t i = 0; i < e.count; i += STRETCH) {
        at = get_numbers(&number, e.lengths + i, e.fields, at, width, numbers);
        for (size_t k = 0; k < STRETCH; k++) {
            uint64_t z = numbers[k] << (8 * low_planes);
            for (unsigned p = 0; p < low_planes; p++)
                z |= (uint64_t)low[p][i + k] << (8 * p);
            uint64_t y = in_order(element_at(base + (i + k) * width, width), width);
            put_element(dst + (i + k) * width,
                        in_order((y + element_unzigzag(z)) & all_bits(width), width), width);
        }
    }
}

static void put_together(const struct dx_elements *elements, uint8_t *dst)
{
    DX_BY_LAYOUT(put_together_by, put_together_by(elements, dst, 8, elements->low_planes), elements,
                 dst);
}

static void add_classes(const uint8_t *base, size_t count, unsigned width,
                        const struct dx_classes *classes, uint8_t *values)
{
    check(classes->count >= 1 && classes->count <= DX_CLASSES_MAX);
    const uint8_t *highest = base + width - 2;
    uint8_t add[256];
    for (unsigned exponent = 0; exponent < 256; exponent++) {
        unsigned counts = exponent >> classes->shift, last = classes->count - 1u;
        unsigned above = counts > classes->first ? counts - classes->first : 0;
        add[exponent] = (uint8_t)((above < last ? above : last) * classes->lengths);
    }
    for (size_t i = 0; i < count; i++)
        values[i] = (uint8_t)(values[i] + add[get_le16(highest + i * width) >> 7 & 0xff]);
}

static bool field_bits(const uint8_t *lengths, size_t count, uint8_t most, size_t *ret)
{
    bool is_longer = false;
    *ret = 0;
    for (size_t i = 0; i < count; i++) {
        *ret += lengths[i] - (size_t)(lengths[i] > 0);
        is_longer |= lengths[i] > most;
    }
    return !is_longer;
}

const struct dx_kernels dx_scalar = {&fx_scalar, take_apart, put_together, add_classes, field_bits};
