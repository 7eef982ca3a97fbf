// SPDX-License-Identifier: Apache-2.0
/* With AVX-512 F, BW and VL; compiled for these. */
#include <immintrin.h>

#include "codec/twin_kernels.h"
#include "format/le.h"

#define STEP 32u /* elements */

static inline __m512i load_vec(const void *p)
{
    return _mm512_loadu_si512(p);
}

static inline void store_vec(void *p, __m512i v)
{
    _mm512_storeu_si512(p, v);
}

/* The order of the halves of 32 elements in two vectors: 0, 2, 4..., and 0, 32, 1, 33... */
struct order {
    uint16_t at[32];
};

#define EACH_8(base, step)                                                                         \
    (base), (base) + (step), (base) + 2 * (step), (base) + 3 * (step), (base) + 4 * (step),        \
        (base) + 5 * (step), (base) + 6 * (step), (base) + 7 * (step)
#define EACH_32(base, step)                                                                        \
    EACH_8(base, step), EACH_8((base) + 8 * (step), step), EACH_8((base) + 16 * (step), step),     \
        EACH_8((base) + 24 * (step), step)
#define PAIRS_4(base)                                                                              \
    (base), (base) + 32, (base) + 1, (base) + 33, (base) + 2, (base) + 34, (base) + 3, (base) + 35
#define PAIRS_16(base) PAIRS_4(base), PAIRS_4((base) + 4), PAIRS_4((base) + 8), PAIRS_4((base) + 12)

static const struct order lower = {{EACH_32(0, 2)}}, higher = {{EACH_32(1, 2)}};
static const struct order first = {{PAIRS_16(0)}}, second = {{PAIRS_16(16)}};

static inline __m512i higher_halves(__m512i lows, __m512i image)
{
    __mmask32 is_up = _mm512_cmpgt_epu16_mask(lows, _mm512_set1_epi16((short)0x8000));
    return _mm512_mask_sub_epi16(image, is_up, image, _mm512_set1_epi16(1));
}

/* Of STEP elements. */
static inline uint32_t split_step(const uint8_t *src, const uint8_t *image, uint8_t *lows)
{
    __m512i a = load_vec(src), b = load_vec(src + 64);
    __m512i low = _mm512_permutex2var_epi16(a, load_vec(lower.at), b);
    __m512i high = _mm512_permutex2var_epi16(a, load_vec(higher.at), b);
    store_vec(lows, low);
    return _mm512_cmpneq_epi16_mask(high, higher_halves(low, load_vec(image)));
}

static void split_elements(const uint8_t *src, const uint8_t *image, size_t count, uint8_t *lows,
                           uint64_t *masks)
{
    size_t whole = align_down(count, TWIN_GROUP);
    for (size_t i = 0; i < whole; i += TWIN_GROUP)
        masks[i / TWIN_GROUP] = split_step(src + 4 * i, image + 2 * i, lows + 2 * i) |
                                (uint64_t)split_step(src + 4 * (i + STEP), image + 2 * (i + STEP),
                                                     lows + 2 * (i + STEP))
                                    << STEP;
    twin_scalar.split(src + 4 * whole, image + 2 * whole, count - whole, lows + 2 * whole,
                      masks + whole / TWIN_GROUP);
}

static void join_elements(const uint8_t *lows, const uint8_t *image, size_t count, uint8_t *dst)
{
    size_t whole = align_down(count, STEP);
    for (size_t i = 0; i < whole; i += STEP) {
        __m512i low = load_vec(lows + 2 * i), high = higher_halves(low, load_vec(image + 2 * i));
        store_vec(dst + 4 * i, _mm512_permutex2var_epi16(low, load_vec(first.at), high));
        store_vec(dst + 4 * i + 64, _mm512_permutex2var_epi16(low, load_vec(second.at), high));
    }
    twin_scalar.join(lows + 2 * whole, image + 2 * whole, count - whole, dst + 4 * whole);
}

static inline __m512i round_step(__m512i v)
{
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(v, 16), _mm512_set1_epi32(1));
    return _mm512_add_epi32(v, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
}

static void round_all(const uint8_t *src, size_t count, uint8_t *ret)
{
    size_t whole = align_down(count, STEP);
    for (size_t i = 0; i < whole; i += STEP) {
        __m512i a = round_step(load_vec(src + 4 * i)), b = round_step(load_vec(src + 4 * i + 64));
        store_vec(ret + 2 * i, _mm512_permutex2var_epi16(a, load_vec(higher.at), b));
    }
    twin_scalar.round(src + 4 * whole, count - whole, ret + 2 * whole);
}

static size_t find_landmarks(const uint8_t *values, size_t count, uint16_t *ret)
{
    static const uint16_t factors[4] = TWIN_FACTORS;
    size_t found = 0, whole = align_down(count, STEP);
    for (size_t i = 0; i < whole; i += STEP) {
        __m512i sum = _mm512_set1_epi16((short)TWIN_ADDEND);
        for (size_t k = 0; k < 4; k++)
            sum = _mm512_add_epi16(sum, _mm512_mullo_epi16(load_vec(values + 2 * (i + k)),
                                                           _mm512_set1_epi16((short)factors[k])));
        uint32_t mask = _mm512_cmplt_epu16_mask(sum, _mm512_set1_epi16(TWIN_LANDMARK));
        for (; mask; mask &= mask - 1)
            ret[found++] = (uint16_t)(i + (size_t)__builtin_ctz(mask));
    }
    size_t rest = twin_scalar.landmarks(values + 2 * whole, count - whole, ret + found);
    for (size_t i = 0; i < rest; i++)
        ret[found + i] = (uint16_t)(ret[found + i] + whole);
    return found + rest;
}

const struct twin_kernels twin_avx512 = {split_elements, join_elements, round_all, find_landmarks};
