// SPDX-License-Identifier: Apache-2.0
/* With AVX2; compiled for it. */
#include <immintrin.h>

#include "codec/twin_kernels.h"
#include "format/le.h"

#define STEP 16u /* elements */

static inline __m256i load_vec(const void *p)
{
    return _mm256_loadu_si256(p);
}

static inline void store_vec(void *p, __m256i v)
{
    _mm256_storeu_si256(p, v);
}

/* Puts what `packus` and `packs` interleaved by quarters in order again; its own reverse. */
static inline __m256i in_order(__m256i v)
{
    return _mm256_permute4x64_epi64(v, 0xd8);
}

static inline __m256i lower_halves(__m256i a, __m256i b)
{
    const __m256i low = _mm256_set1_epi32(0xffff);
    return in_order(_mm256_packus_epi32(_mm256_and_si256(a, low), _mm256_and_si256(b, low)));
}

static inline __m256i upper_halves(__m256i a, __m256i b)
{
    return in_order(_mm256_packus_epi32(_mm256_srli_epi32(a, 16), _mm256_srli_epi32(b, 16)));
}

/* Comparisons are of signed numbers, hence the turn of the sign. */
static inline __m256i higher_halves(__m256i lows, __m256i image)
{
    __m256i turned = _mm256_xor_si256(lows, _mm256_set1_epi16((short)0x8000));
    return _mm256_add_epi16(image, _mm256_cmpgt_epi16(turned, _mm256_setzero_si256()));
}

/* Splits STEP elements: ones where they fit. */
static inline __m256i split_step(const uint8_t *src, const uint8_t *image, uint8_t *lows)
{
    __m256i a = load_vec(src), b = load_vec(src + 32), low = lower_halves(a, b);
    store_vec(lows, low);
    return _mm256_cmpeq_epi16(upper_halves(a, b), higher_halves(low, load_vec(image)));
}

/* Splits 32 elements: bits where they do not fit. */
static inline uint32_t split_two(const uint8_t *src, const uint8_t *image, uint8_t *lows)
{
    __m256i a = split_step(src, image, lows);
    __m256i b = split_step(src + 4 * STEP, image + 2 * STEP, lows + 2 * STEP);
    return ~(uint32_t)_mm256_movemask_epi8(in_order(_mm256_packs_epi16(a, b)));
}

static void split_elements(const uint8_t *src, const uint8_t *image, size_t count, uint8_t *lows,
                           uint64_t *masks)
{
    size_t whole = align_down(count, TWIN_GROUP);
    for (size_t i = 0; i < whole; i += TWIN_GROUP) {
        size_t half = i + TWIN_GROUP / 2;
        masks[i / TWIN_GROUP] =
            split_two(src + 4 * i, image + 2 * i, lows + 2 * i) |
            (uint64_t)split_two(src + 4 * half, image + 2 * half, lows + 2 * half) << 32;
    }
    twin_scalar.split(src + 4 * whole, image + 2 * whole, count - whole, lows + 2 * whole,
                      masks + whole / TWIN_GROUP);
}

static void join_elements(const uint8_t *lows, const uint8_t *image, size_t count, uint8_t *dst)
{
    size_t whole = align_down(count, STEP);
    for (size_t i = 0; i < whole; i += STEP) {
        __m256i low = load_vec(lows + 2 * i), high = higher_halves(low, load_vec(image + 2 * i));
        __m256i a = _mm256_unpacklo_epi16(low, high), b = _mm256_unpackhi_epi16(low, high);
        store_vec(dst + 4 * i, _mm256_permute2x128_si256(a, b, 0x20));
        store_vec(dst + 4 * i + 32, _mm256_permute2x128_si256(a, b, 0x31));
    }
    twin_scalar.join(lows + 2 * whole, image + 2 * whole, count - whole, dst + 4 * whole);
}

static inline __m256i round_step(__m256i v)
{
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(v, 16), _mm256_set1_epi32(1));
    return _mm256_add_epi32(v, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
}

static void round_all(const uint8_t *src, size_t count, uint8_t *ret)
{
    size_t whole = align_down(count, STEP);
    for (size_t i = 0; i < whole; i += STEP)
        store_vec(ret + 2 * i, upper_halves(round_step(load_vec(src + 4 * i)),
                                            round_step(load_vec(src + 4 * i + 32))));
    twin_scalar.round(src + 4 * whole, count - whole, ret + 2 * whole);
}

static size_t find_landmarks(const uint8_t *values, size_t count, uint16_t *ret)
{
    static const uint16_t factors[4] = TWIN_FACTORS;
    const __m256i most = _mm256_set1_epi16(TWIN_LANDMARK - 1);
    size_t found = 0, whole = align_down(count, STEP);
    for (size_t i = 0; i < whole; i += STEP) {
        __m256i sum = _mm256_set1_epi16((short)TWIN_ADDEND);
        for (size_t k = 0; k < 4; k++)
            sum = _mm256_add_epi16(sum, _mm256_mullo_epi16(load_vec(values + 2 * (i + k)),
                                                           _mm256_set1_epi16((short)factors[k])));
        __m256i is_less = _mm256_cmpeq_epi16(_mm256_max_epu16(sum, most), most);
        uint32_t mask = (uint32_t)_mm256_movemask_epi8(is_less) & 0x55555555;
        for (; mask; mask &= mask - 1)
            ret[found++] = (uint16_t)(i + (size_t)__builtin_ctz(mask) / 2);
    }
    size_t rest = twin_scalar.landmarks(values + 2 * whole, count - whole, ret + found);
    for (size_t i = 0; i < rest; i++)
        ret[found + i] = (uint16_t)(ret[found + i] + whole);
    return found + rest;
}

const struct twin_kernels twin_avx2 = {split_elements, join_elements, round_all, find_landmarks};
