// SPDX-License-Identifier: Apache-2.0
/* With AVX-512 F, BW, VL, DQ, VBMI and VBMI2; compiled for these. */
#include <immintrin.h>
#include <stdint.h>

typedef __m512i vec;

static inline __m512i look_up(const uint8_t table[16], __m512i v)
{
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128((const void *)table)), v);
}

static inline __m512i lengths_2(__m512i z)
{
    static const uint8_t of_low[16] = {0, 1, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 4, 4, 4, 4},
                         of_high[16] = {0, 5, 6, 6, 7, 7, 7, 7, 8, 8, 8, 8, 8, 8, 8, 8};
    const __m512i low_nibble = _mm512_set1_epi8(15);
    __m512i high = _mm512_and_si512(_mm512_srli_epi16(z, 4), low_nibble);
    __m512i of_bytes =
        _mm512_max_epu8(look_up(of_low, _mm512_and_si512(z, low_nibble)), look_up(of_high, high));
    __mmask64 upper = _mm512_test_epi8_mask(z, _mm512_set1_epi16((short)0xff00));
    of_bytes = _mm512_mask_add_epi8(of_bytes, upper, of_bytes, _mm512_set1_epi8(8));
    return _mm512_max_epu16(_mm512_and_si512(of_bytes, _mm512_set1_epi16(0xff)),
                            _mm512_srli_epi16(of_bytes, 8));
}

/* By the exponent of the number as a float, rounded towards zero. */
static inline __m512i lengths_4(__m512i z)
{
    const __m512i of_a_half = _mm512_set1_epi32(126);
    __m512 f = _mm512_cvt_roundepu32_ps(z, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
    __m512i exponent = _mm512_srli_epi32(_mm512_castps_si512(f), 23);
    return _mm512_sub_epi32(_mm512_max_epu32(exponent, of_a_half), of_a_half);
}

static inline __m512i power_2(__m512i n)
{
    return _mm512_sllv_epi16(_mm512_set1_epi16(1), n);
}

static inline void narrow_2(uint8_t *bytes, __m512i v)
{
    _mm256_storeu_si256((void *)bytes, _mm512_cvtepi16_epi8(v));
}

static inline void narrow_4(uint8_t *bytes, __m512i v)
{
    _mm_storeu_si128((void *)bytes, _mm512_cvtepi32_epi8(v));
}

static inline __m512i widen_2(const uint8_t *bytes)
{
    return _mm512_cvtepu8_epi16(_mm256_loadu_si256((const void *)bytes));
}

static inline __m512i widen_4(const uint8_t *bytes)
{
    return _mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)bytes));
}

/* Returns the highest 8 bits below the sign, of 64 elements. */
static inline __m512i exponents_of(const uint8_t *base, unsigned width)
{
    if (width == 2)
        return _mm512_inserti64x4(
            _mm512_castsi256_si512(
                _mm512_cvtepi16_epi8(_mm512_srli_epi16(_mm512_loadu_si512(base), 7))),
            _mm512_cvtepi16_epi8(_mm512_srli_epi16(_mm512_loadu_si512(base + 64), 7)), 1);
    __m128i v[4];
    for (size_t k = 0; k < 4; k++)
        v[k] = _mm512_cvtepi32_epi8(_mm512_srli_epi32(_mm512_loadu_si512(base + 64 * k), 23));
    __m256i low = _mm256_inserti128_si256(_mm256_castsi128_si256(v[0]), v[1], 1),
            high = _mm256_inserti128_si256(_mm256_castsi128_si256(v[2]), v[3], 1);
    return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

static inline __m512i class_of(__m512i e, __m512i first, __m512i last)
{
    return _mm512_min_epu8(_mm512_subs_epu8(e, first), last);
}

static inline __m512i larger_bytes(__m512i a, __m512i b)
{
    return _mm512_max_epu8(a, b);
}

static inline __m512i sums_of_fields(__m512i lengths)
{
    __m512i bits = _mm512_subs_epu8(lengths, _mm512_set1_epi8(1));
    return _mm512_sad_epu8(bits, _mm512_setzero_si512());
}

#include "codec/dx_vectors.h"

const struct dx_kernels dx_avx512 = {&fx_avx512, take_apart, put_together, add_classes, field_bits};
