// SPDX-License-Identifier: Apache-2.0
/* The work of dx on elements in vectors, written once for all sets of instructions. A file that
 * includes this says before it what a vector is, and what its instructions do best:
 *
 *   vec                        a vector of bytes, as the intrinsics have it
 *   load_vec(p)                from any place
 *   store_vec(p, v)            to any place
 *   narrow_2(p, v)             stores the lower bytes of numbers of 16 bits
 *   narrow_4(p, v)             the lowest bytes of numbers of 32 bits; returns the other three
 *   widen_2(p), widen_4(p)     numbers of these bytes
 *   lengths_2(v), _4           how many bits a number has below and with its highest one
 *   bits_of_2(n), _4           one less than these lengths, or 0
 *   low_bits_2(v, n), _4       the lowest n bits
 *   pair_bits_2(n)             sums of neighbours, of 32 bits
 *   part_fields_2(lanes, length, n), _4
 *                              fields from lanes, each with the highest one that it lacks there
 *   put_any_lanes(w, lanes, n, count)
 *                              put_lanes(), or what is faster where these are short
 *
 * The arithmetic that is the same for all is written with the compiler's vectors. */
#pragma once

#include "codec/dx_kernels.h"
#include "codec/dx_lanes.h"

typedef uint16_t vec_16 __attribute__((vector_size(sizeof(vec))));
typedef int16_t vec_s16 __attribute__((vector_size(sizeof(vec))));
typedef uint32_t vec_32 __attribute__((vector_size(sizeof(vec))));
typedef int32_t vec_s32 __attribute__((vector_size(sizeof(vec))));
typedef uint64_t vec_64 __attribute__((vector_size(sizeof(vec))));

/* Elements: lanes are written one by one and read as vectors, and not at once. */
#define BATCH 512u
/* Elements of a vector. */
#define OF_2 (sizeof(vec) / 2)
#define OF_4 (sizeof(vec) / 4)
#define UNROLLED static inline __attribute__((always_inline))

/* Joins pairs of numbers of 32 bits, `bits` of which are used, into lanes. */
static inline void join_pairs(vec v, vec bits, uint64_t *lanes, uint64_t *lane_bits)
{
    vec_64 first_bits = (vec_64)bits & 0xffffffff;
    vec_64 second = ((vec_64)v >> 32) << first_bits;
    store_vec(lanes, (vec)(((vec_64)v & 0xffffffff) | second));
    store_vec(lane_bits, (vec)(first_bits + ((vec_64)bits >> 32)));
}

static inline void store_lane_bits(uint64_t *lane_bits, vec bits)
{
    store_vec(lane_bits, (vec)(((vec_64)bits & 0xffffffff) + ((vec_64)bits >> 32)));
}

/* --- elements of 2 bytes ---------------------------------------------------------------------- */

/* Floats in their order as integers; its own reverse. */
static inline vec_16 in_order_2(vec v)
{
    return (vec_16)v ^ ((vec_16)((vec_s16)v >> 15) & 0x7fff);
}

static inline vec difference_2(const uint8_t *src, const uint8_t *base)
{
    vec_16 d = in_order_2(load_vec(src)) - in_order_2(load_vec(base));
    return (vec)(d << 1 ^ (vec_16)((vec_s16)d >> 15));
}

static inline vec add_2(const uint8_t *base, vec z)
{
    vec_16 d = (vec_16)z >> 1 ^ -((vec_16)z & 1);
    return (vec)in_order_2((vec)(in_order_2(load_vec(base)) + d));
}

static inline void join_fields_2(vec z, vec bits, uint64_t *lanes, uint64_t *lane_bits)
{
    vec_32 fields = (vec_32)low_bits_2(z, bits);
    vec_32 second = fields >> 16 << ((vec_32)bits & 0xffff);
    join_pairs((vec)((fields & 0xffff) | second), pair_bits_2(bits), lanes, lane_bits);
}

UNROLLED size_t take_apart_2(const uint8_t *src, const uint8_t *base, size_t count,
                             const bool has_low, uint8_t *low, uint8_t *lengths, uint8_t *fields)
{
    struct lane_writer w = {.at = fields};
    for (size_t i = 0; i < count; i += FX_GROUP) {
        uint64_t lanes[FX_GROUP / 4], lane_bits[FX_GROUP / 4];
        for (size_t k = 0; k < FX_GROUP; k += OF_2) {
            size_t at = i + k;
            vec z = difference_2(src + 2 * at, base + 2 * at);
            if (has_low) {
                narrow_2(low + at, z);
                z = (vec)((vec_16)z >> 8);
            }
            vec length = lengths_2(z);
            narrow_2(lengths + at, length);
            join_fields_2(z, bits_of_2(length), lanes + k / 4, lane_bits + k / 4);
        }
        put_any_lanes(&w, lanes, lane_bits, FX_GROUP / 4);
    }
    return end_lanes(&w, fields);
}

UNROLLED void put_together_2(const uint8_t *low, const uint8_t *lengths, const uint8_t *fields,
                             const uint8_t *base, size_t count, const bool has_low, uint8_t *dst)
{
    size_t bit = 0;
    for (size_t i = 0; i < count; i += BATCH) {
        uint64_t lanes[BATCH / 4], lane_bits[BATCH / 4];
        size_t len = count - i < BATCH ? count - i : BATCH;
        for (size_t k = 0; k < len; k += OF_2)
            store_lane_bits(lane_bits + k / 4, pair_bits_2(bits_of_2(widen_2(lengths + i + k))));
        bit = take_lanes(fields, bit, lane_bits, lanes, len / 4);
        for (size_t k = 0; k < len; k += OF_2) {
            vec length = widen_2(lengths + i + k);
            vec z = part_fields_2(lanes + k / 4, length, bits_of_2(length));
            if (has_low)
                z = (vec)((vec_16)z << 8 | (vec_16)widen_2(low + i + k));
            store_vec(dst + 2 * (i + k), add_2(base + 2 * (i + k), z));
        }
    }
}

/* --- elements of 4 bytes ---------------------------------------------------------------------- */

static inline vec_32 in_order_4(vec v)
{
    return (vec_32)v ^ ((vec_32)((vec_s32)v >> 31) & 0x7fffffff);
}

static inline vec difference_4(const uint8_t *src, const uint8_t *base)
{
    vec_32 d = in_order_4(load_vec(src)) - in_order_4(load_vec(base));
    return (vec)(d << 1 ^ (vec_32)((vec_s32)d >> 31));
}

static inline vec add_4(const uint8_t *base, vec z)
{
    vec_32 d = (vec_32)z >> 1 ^ -((vec_32)z & 1);
    return (vec)in_order_4((vec)(in_order_4(load_vec(base)) + d));
}

UNROLLED size_t take_apart_4(const uint8_t *src, const uint8_t *base, size_t count,
                             const unsigned low_planes, uint8_t *const low[8], uint8_t *lengths,
                             uint8_t *fields)
{
    struct lane_writer w = {.at = fields};
    for (size_t i = 0; i < count; i += FX_GROUP) {
        uint64_t lanes[FX_GROUP / 2], lane_bits[FX_GROUP / 2];
        for (size_t k = 0; k < FX_GROUP; k += OF_4) {
            size_t at = i + k;
            vec z = difference_4(src + 4 * at, base + 4 * at);
            for (unsigned p = 0; p < low_planes; p++)
                z = narrow_4(low[p] + at, z);
            vec length = lengths_4(z), bits = bits_of_4(length);
            (void)narrow_4(lengths + at, length);
            join_pairs(low_bits_4(z, bits), bits, lanes + k / 2, lane_bits + k / 2);
        }
        put_any_lanes(&w, lanes, lane_bits, FX_GROUP / 2);
    }
    return end_lanes(&w, fields);
}

UNROLLED void put_together_4(const uint8_t *const low[8], const uint8_t *lengths,
                             const uint8_t *fields, const uint8_t *base, size_t count,
                             const unsigned low_planes, uint8_t *dst)
{
    size_t bit = 0;
    for (size_t i = 0; i < count; i += BATCH) {
        uint64_t lanes[BATCH / 2], lane_bits[BATCH / 2];
        size_t len = count - i < BATCH ? count - i : BATCH;
        for (size_t k = 0; k < len; k += OF_4)
            store_lane_bits(lane_bits + k / 2, bits_of_4(widen_4(lengths + i + k)));
        bit = take_lanes(fields, bit, lane_bits, lanes, len / 2);
        for (size_t k = 0; k < len; k += OF_4) {
            vec length = widen_4(lengths + i + k);
            vec z = part_fields_4(lanes + k / 2, length, bits_of_4(length));
            for (unsigned p = low_planes; p-- > 0;)
                z = (vec)((vec_32)z << 8 | (vec_32)widen_4(low[p] + i + k));
            store_vec(dst + 4 * (i + k), add_4(base + 4 * (i + k), z));
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
