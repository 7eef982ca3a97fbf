// SPDX-License-Identifier: Apache-2.0
/* The kernels of dx in vectors, written once for all instruction sets. A file that includes this
 * header defines before it a vector type and the operations that depend on the instruction set:
 *
 *   vec                        a vector of bytes, as the intrinsics have it
 *   look_up(table, v)          for each byte, which is less than 16, its entry of the 16-byte table
 *   narrow_2(p, v), _4         stores the lowest bytes of numbers of 16 or 32 bits
 *   widen_2(p), _4             the reverse: numbers of 16 or 32 bits from bytes
 *   lengths_2(v), _4           how many bits a number has below and with its highest one
 *   power_2(n)                 2^n, of numbers of 16 bits less than 16
 *   exponents_of(base, width)  highest 8 bits below the sign; as many as a vector has bytes
 *   larger_bytes(a, b)         the larger one of each two bytes
 *   sums_of_fields(n)          the sum of each 8 bytes, each byte less by one if it is not 0
 *   class_of(e, first, last)   e - first, from 0 to last
 *
 * The arithmetic that is the same for all is written with the compiler's vectors. */
#pragma once

#include "codec/dx_kernels.h"
#include "codec/dx_lanes.h"

typedef uint8_t vec_8 __attribute__((vector_size(sizeof(vec))));
typedef uint16_t vec_16 __attribute__((vector_size(sizeof(vec))));
typedef int16_t vec_s16 __attribute__((vector_size(sizeof(vec))));
typedef uint32_t vec_32 __attribute__((vector_size(sizeof(vec))));
typedef int32_t vec_s32 __attribute__((vector_size(sizeof(vec))));
typedef uint64_t vec_64 __attribute__((vector_size(sizeof(vec))));

/* Elements of one batch: a batch of lanes is written one by one, and only later read as vectors. */
#define BATCH 512u
/* Elements in a vector. */
#define OF_2 (sizeof(vec) / 2)
#define OF_4 (sizeof(vec) / 4)
#define UNROLLED static inline __attribute__((always_inline))

static inline vec load_vec(const void *p)
{
    vec v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline void store_vec(void *p, vec v)
{
    memcpy(p, &v, sizeof v);
}

static inline vec_64 pair_bits_4(vec_32 bits)
{
    return ((vec_64)bits & UINT32_MAX) + ((vec_64)bits >> 32);
}

/* Joins pairs of numbers of 32 bits, `bits` of which are used, into lanes. */
static inline void join_pairs(vec_32 v, vec_32 bits, uint64_t *lanes, uint64_t *lane_bits)
{
    vec_64 second = ((vec_64)v >> 32) << ((vec_64)bits & UINT32_MAX);
    store_vec(lanes, (vec)(((vec_64)v & UINT32_MAX) | second));
    store_vec(lane_bits, (vec)pair_bits_4(bits));
}

/* The reverse; above the bits of a number are those of the row that follow. */
static inline vec_32 part_pairs(const uint64_t *lanes, vec_32 bits)
{
    vec_64 v = (vec_64)load_vec(lanes), second = v >> ((vec_64)bits & UINT32_MAX);
    return (vec_32)((v & UINT32_MAX) | second << 32);
}

/* --- elements of 2 bytes ---------------------------------------------------------------------- */

/* Maps floats to integers in the same order; its own reverse. */
static inline vec_16 in_order_2(vec v)
{
    return (vec_16)v ^ ((vec_16)((vec_s16)v >> 15) & 0x7fff);
}

static inline vec_16 difference_2(const uint8_t *src, const uint8_t *base)
{
    vec_16 d = in_order_2(load_vec(src)) - in_order_2(load_vec(base));
    return d << 1 ^ (vec_16)((vec_s16)d >> 15);
}

static inline vec add_2(const uint8_t *base, vec_16 z)
{
    vec_16 d = z >> 1 ^ -(z & 1);
    return (vec)in_order_2((vec)(in_order_2(load_vec(base)) + d));
}

/* Returns the bits of the fields: one less than the lengths, or 0. A comparison is -1 where it
 * holds. */
static inline vec_16 bits_of_2(vec lengths)
{
    return (vec_16)lengths + (vec_16)((vec_s16)lengths > 0);
}

static inline vec_32 pair_bits_2(vec_16 bits)
{
    return ((vec_32)bits & UINT16_MAX) + ((vec_32)bits >> 16);
}

static inline void join_fields_2(vec_16 z, vec_16 bits, uint64_t *lanes, uint64_t *lane_bits)
{
    vec_32 fields = (vec_32)(z & ((vec_16)power_2((vec)bits) - 1));
    vec_32 second = fields >> 16 << ((vec_32)bits & UINT16_MAX);
    join_pairs((fields & UINT16_MAX) | second, pair_bits_2(bits), lanes, lane_bits);
}

/* Returns the fields with their highest bit, which the row does not store. */
static inline vec_16 part_fields_2(const uint64_t *lanes, vec lengths, vec_16 bits)
{
    vec_32 pairs = part_pairs(lanes, pair_bits_2(bits));
    vec_32 second = pairs >> ((vec_32)bits & UINT16_MAX);
    vec_16 fields = (vec_16)((pairs & UINT16_MAX) | second << 16),
           highest = (vec_16)power_2((vec)bits);
    return (fields & (highest - 1)) | (highest & (vec_16)((vec_16)lengths != 0));
}

UNROLLED size_t take_apart_2(const struct dx_elements *elements, const uint8_t *src,
                             const unsigned low_planes)
{
    const struct dx_elements e = *elements;
    struct lane_writer w = {.at = e.fields};
    for (size_t i = 0; i < e.count; i += FX_GROUP) {
        uint64_t lanes[FX_GROUP / 4], lane_bits[FX_GROUP / 4];
        for (size_t k = 0; k < FX_GROUP; k += OF_2) {
            size_t at = i + k;
            vec_16 z = difference_2(src + 2 * at, e.base + 2 * at);
            if (low_planes) {
                narrow_2(e.low[0] + at, (vec)z);
                z >>= 8;
            }
            vec length = lengths_2((vec)z);
            narrow_2(e.lengths + at, length);
            join_fields_2(z, bits_of_2(length), lanes + k / 4, lane_bits + k / 4);
        }
        put_lanes(&w, lanes, lane_bits, FX_GROUP / 4);
    }
    return end_lanes(&w, e.fields);
}

UNROLLED void put_together_2(const struct dx_elements *elements, uint8_t *dst,
                             const unsigned low_planes)
{
    const struct dx_elements e = *elements;
    size_t bit = 0;
    for (size_t i = 0; i < e.count; i += BATCH) {
        uint64_t lanes[BATCH / 4], lane_bits[BATCH / 4];
        size_t len = e.count - i < BATCH ? e.count - i : BATCH;
        for (size_t k = 0; k < len; k += OF_2)
            store_vec(lane_bits + k / 4,
                      (vec)pair_bits_4(pair_bits_2(bits_of_2(widen_2(e.lengths + i + k)))));
        bit = take_lanes(e.fields, bit, lane_bits, lanes, len / 4);
        for (size_t k = 0; k < len; k += OF_2) {
            vec length = widen_2(e.lengths + i + k);
            vec_16 z = part_fields_2(lanes + k / 4, length, bits_of_2(length));
            if (low_planes)
                z = z << 8 | (vec_16)widen_2(e.low[0] + i + k);
            store_vec(dst + 2 * (i + k), add_2(e.base + 2 * (i + k), z));
        }
    }
}

/* --- elements of 4 bytes ---------------------------------------------------------------------- */

static inline vec_32 in_order_4(vec v)
{
    return (vec_32)v ^ ((vec_32)((vec_s32)v >> 31) & 0x7fffffff);
}

static inline vec_32 difference_4(const uint8_t *src, const uint8_t *base)
{
    vec_32 d = in_order_4(load_vec(src)) - in_order_4(load_vec(base));
    return d << 1 ^ (vec_32)((vec_s32)d >> 31);
}

static inline vec add_4(const uint8_t *base, vec_32 z)
{
    vec_32 d = z >> 1 ^ -(z & 1);
    return (vec)in_order_4((vec)(in_order_4(load_vec(base)) + d));
}

static inline vec_32 bits_of_4(vec lengths)
{
    return (vec_32)lengths + (vec_32)((vec_s32)lengths > 0);
}

static inline vec_32 power_4(vec_32 n)
{
    return ((vec_32){0} + 1) << n;
}

static inline vec_32 part_fields_4(const uint64_t *lanes, vec lengths, vec_32 bits)
{
    vec_32 fields = part_pairs(lanes, bits), highest = power_4(bits);
    return (fields & (highest - 1)) | (highest & (vec_32)((vec_32)lengths != 0));
}

UNROLLED size_t take_apart_4(const struct dx_elements *elements, const uint8_t *src,
                             const unsigned low_planes)
{
    const struct dx_elements e = *elements;
    struct lane_writer w = {.at = e.fields};
    for (size_t i = 0; i < e.count; i += FX_GROUP) {
        uint64_t lanes[FX_GROUP / 2], lane_bits[FX_GROUP / 2];
        for (size_t k = 0; k < FX_GROUP; k += OF_4) {
            size_t at = i + k;
            vec_32 z = difference_4(src + 4 * at, e.base + 4 * at);
            for (unsigned p = 0; p < low_planes; p++, z >>= 8)
                narrow_4(e.low[p] + at, (vec)z);
            vec length = lengths_4((vec)z);
            vec_32 bits = bits_of_4(length);
            narrow_4(e.lengths + at, length);
            join_pairs(z & (power_4(bits) - 1), bits, lanes + k / 2, lane_bits + k / 2);
        }
        put_lanes(&w, lanes, lane_bits, FX_GROUP / 2);
    }
    return end_lanes(&w, e.fields);
}

UNROLLED void put_together_4(const struct dx_elements *elements, uint8_t *dst,
                             const unsigned low_planes)
{
    const struct dx_elements e = *elements;
    size_t bit = 0;
    for (size_t i = 0; i < e.count; i += BATCH) {
        uint64_t lanes[BATCH / 2], lane_bits[BATCH / 2];
        size_t len = e.count - i < BATCH ? e.count - i : BATCH;
        for (size_t k = 0; k < len; k += OF_4)
            store_vec(lane_bits + k / 2, (vec)pair_bits_4(bits_of_4(widen_4(e.lengths + i + k))));
        bit = take_lanes(e.fields, bit, lane_bits, lanes, len / 2);
        for (size_t k = 0; k < len; k += OF_4) {
            vec length = widen_4(e.lengths + i + k);
            vec_32 z = part_fields_4(lanes + k / 2, length, bits_of_4(length));
            for (unsigned p = low_planes; p-- > 0;)
                z = z << 8 | (vec_32)widen_4(e.low[p] + i + k);
            store_vec(dst + 4 * (i + k), add_4(e.base + 4 * (i + k), z));
        }
    }
}

/* --- all elements ----------------------------------------------------------------------------- */

#define TAKE_APART(e, src, width, low) take_apart_##width(e, src, low)
#define PUT_TOGETHER(e, dst, width, low) put_together_##width(e, dst, low)

static size_t take_apart(const struct dx_elements *elements, const uint8_t *src)
{
    return DX_BY_LAYOUT(TAKE_APART, dx_scalar.take_apart(elements, src), elements, src);
}

static void put_together(const struct dx_elements *elements, uint8_t *dst)
{
    DX_BY_LAYOUT(PUT_TOGETHER, dx_scalar.put_together(elements, dst), elements, dst);
}

static void add_classes(const uint8_t *base, size_t count, unsigned width,
                        const struct dx_classes *classes, uint8_t *values)
{
    check(classes->count >= 1 && classes->count <= DX_CLASSES_MAX);
    if (width == 8) {
        dx_scalar.add_classes(base, count, width, classes, values);
        return;
    }
    const unsigned shift = classes->shift;
    const vec_8 zero = {0}, first = zero + classes->first,
                last = zero + (uint8_t)(classes->count - 1), left = zero + (uint8_t)(0xff >> shift);
    uint8_t times[DX_CLASSES_MAX];
    for (unsigned i = 0; i < DX_CLASSES_MAX; i++)
        times[i] = (uint8_t)(i * classes->lengths);
    for (size_t i = 0; i < count; i += sizeof(vec)) {
        vec_8 e = (vec_8)((vec_16)exponents_of(base + i * width, width) >> shift) & left;
        vec_8 more = (vec_8)look_up(times, class_of((vec)e, (vec)first, (vec)last));
        store_vec(values + i, (vec)((vec_8)load_vec(values + i) + more));
    }
}

static bool field_bits(const uint8_t *lengths, size_t count, uint8_t most, size_t *ret)
{
    vec_64 sum = {0};
    vec longest = (vec)sum;
    for (size_t i = 0; i < count; i += sizeof(vec)) {
        vec v = load_vec(lengths + i);
        sum += (vec_64)sums_of_fields(v);
        longest = larger_bytes(longest, v);
    }
    *ret = 0;
    for (size_t k = 0; k < sizeof(vec) / 8; k++)
        *ret += sum[k];
    bool is_longer = false;
    for (size_t k = 0; k < sizeof(vec); k++)
        is_longer |= ((vec_8)longest)[k] > most;
    return !is_longer;
}
