// SPDX-License-Identifier: Apache-2.0
/* The kernels of twin in vectors, written once for all instruction sets. A file that includes this
 * header defines before it a vector type and the operations that depend on the instruction set:
 *
 *   vec                          a vector of bytes, as the intrinsics have it
 *   lower_halves(a, b), upper_   halves of the numbers of 32 bits in two vectors, in order
 *   first_pairs(low, high), second_
 *                                the reverse: the first and the second vector of such numbers
 *   mask_of_group(is)            the bits of TWIN_GROUP numbers of 16 bits, each ones or zeros
 *
 * The arithmetic that is the same for all is written with the compiler's vectors. */
#pragma once

#include "codec/twin_kernels.h"
#include "format/le.h"

typedef uint16_t vec_16 __attribute__((vector_size(sizeof(vec))));
typedef uint32_t vec_32 __attribute__((vector_size(sizeof(vec))));

#define STEP (sizeof(vec) / 2) /* elements whose halves fill a vector */

static inline vec load_vec(const uint8_t *p)
{
    vec v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline void store_vec(uint8_t *p, vec v)
{
    memcpy(p, &v, sizeof v);
}

/* Returns the predicted higher halves. A comparison is ones, or -1, where it holds. */
static inline vec_16 higher_halves(vec lows, const uint8_t *image)
{
    return (vec_16)load_vec(image) + (vec_16)((vec_16)lows > 0x8000);
}

/* Splits STEP elements; returns ones where the prediction holds. */
static inline vec split_step(const uint8_t *src, const uint8_t *image, uint8_t *lows)
{
    vec a = load_vec(src), b = load_vec(src + sizeof(vec)), low = lower_halves(a, b);
    store_vec(lows, low);
    return (vec)((vec_16)upper_halves(a, b) == higher_halves(low, image));
}

static void split_elements(const uint8_t *src, const uint8_t *image, size_t count, uint8_t *lows,
                           uint64_t *masks)
{
    size_t whole = align_down(count, TWIN_GROUP);
    for (size_t i = 0; i < whole; i += TWIN_GROUP) {
        vec fits[TWIN_GROUP / STEP];
        for (size_t k = 0; k < ARRAY_LEN(fits); k++) {
            size_t at = i + STEP * k;
            fits[k] = split_step(src + 4 * at, image + 2 * at, lows + 2 * at);
        }
        masks[i / TWIN_GROUP] = ~mask_of_group(fits);
    }
    twin_scalar.split(src + 4 * whole, image + 2 * whole, count - whole, lows + 2 * whole,
                      masks + whole / TWIN_GROUP);
}

static void join_elements(const uint8_t *lows, const uint8_t *image, size_t count, uint8_t *dst)
{
    size_t whole = align_down(count, STEP);
    for (size_t i = 0; i < whole; i += STEP) {
        vec low = load_vec(lows + 2 * i), high = (vec)higher_halves(low, image + 2 * i);
        store_vec(dst + 4 * i, first_pairs(low, high));
        store_vec(dst + 4 * i + sizeof(vec), second_pairs(low, high));
    }
    twin_scalar.join(lows + 2 * whole, image + 2 * whole, count - whole, dst + 4 * whole);
}

static inline vec round_step(const uint8_t *src)
{
    vec_32 v = (vec_32)load_vec(src);
    return (vec)(v + (v >> 16 & 1) + 0x7fff);
}

static void round_all(const uint8_t *src, size_t count, uint8_t *ret)
{
    size_t whole = align_down(count, STEP);
    for (size_t i = 0; i < whole; i += STEP)
        store_vec(ret + 2 * i,
                  upper_halves(round_step(src + 4 * i), round_step(src + 4 * i + sizeof(vec))));
    twin_scalar.round(src + 4 * whole, count - whole, ret + 2 * whole);
}

static inline vec is_landmark(const uint8_t *values)
{
    static const uint16_t factors[4] = TWIN_FACTORS;
    vec_16 sum = (vec_16){0} + TWIN_ADDEND;
    for (size_t k = 0; k < 4; k++)
        sum += (vec_16)load_vec(values + 2 * k) * factors[k];
    return (vec)(sum < TWIN_LANDMARK);
}

static size_t find_landmarks(const uint8_t *values, size_t count, uint16_t *ret)
{
    size_t found = 0, whole = align_down(count, TWIN_GROUP);
    for (size_t i = 0; i < whole; i += TWIN_GROUP) {
        vec is[TWIN_GROUP / STEP];
        for (size_t k = 0; k < ARRAY_LEN(is); k++)
            is[k] = is_landmark(values + 2 * (i + STEP * k));
        for (uint64_t mask = mask_of_group(is); mask; mask &= mask - 1)
            ret[found++] = (uint16_t)(i + (size_t)__builtin_ctzll(mask));
    }
    size_t rest = twin_scalar.landmarks(values + 2 * whole, count - whole, ret + found);
    for (size_t i = 0; i < rest; i++)
        ret[found + i] = (uint16_t)(ret[found + i] + whole);
    return found + rest;
}
