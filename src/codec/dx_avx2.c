// SPDX-License-Identifier: Apache-2.0
/* With AVX2 and BMI2; compiled for these. */
#include <immintrin.h>
#include <stdint.h>

typedef __m256i vec;

static inline __m256i look_up(const uint8_t table[16], __m256i v)
{
    __m128i from = _mm_loadu_si128((const void *)table);
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(from), v);
}

/* Returns for each byte the number of bits up to the highest one that is set. */
static inline __m256i lengths_of_bytes(__m256i v)
{
    static const uint8_t of_low[16] = {0, 1, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 4, 4, 4, 4},
                         of_high[16] = {0, 5, 6, 6, 7, 7, 7, 7, 8, 8, 8, 8, 8, 8, 8, 8};
    const __m256i low_nibble = _mm256_set1_epi8(15);
    __m256i high = _mm256_and_si256(_mm256_srli_epi16(v, 4), low_nibble);
    return _mm256_max_epu8(look_up(of_low, _mm256_and_si256(v, low_nibble)),
                           look_up(of_high, high));
}

/* Returns the same for whole numbers: `below` says for each byte how many bits of the number are
 * below it. */
static inline __m256i lengths_from(__m256i v, __m256i below)
{
    __m256i is_zero = _mm256_cmpeq_epi8(v, _mm256_setzero_si256());
    return _mm256_add_epi8(lengths_of_bytes(v), _mm256_andnot_si256(is_zero, below));
}

static inline __m256i lengths_2(__m256i z)
{
    __m256i of_bytes = lengths_from(z, _mm256_set1_epi16(8 << 8));
    return _mm256_max_epu8(_mm256_and_si256(of_bytes, _mm256_set1_epi16(0xff)),
                           _mm256_srli_epi16(of_bytes, 8));
}

static inline __m256i lengths_4(__m256i z)
{
    __m256i of_bytes = lengths_from(z, _mm256_set1_epi32(24 << 24 | 16 << 16 | 8 << 8));
    of_bytes = _mm256_max_epu8(of_bytes, _mm256_srli_epi32(of_bytes, 16));
    of_bytes = _mm256_max_epu8(of_bytes, _mm256_srli_epi32(of_bytes, 8));
    return _mm256_and_si256(of_bytes, _mm256_set1_epi32(0xff));
}

static inline __m256i power_2(__m256i n)
{
    static const uint8_t low[16] = {1, 2, 4, 8, 16, 32, 64, 128},
                         high[16] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 4, 8, 16, 32, 64, 128};
    __m256i of_low = _mm256_and_si256(look_up(low, n), _mm256_set1_epi16(0xff));
    return _mm256_or_si256(of_low, _mm256_slli_epi16(look_up(high, n), 8));
}

static inline void narrow_2(uint8_t *bytes, __m256i v)
{
    v = _mm256_and_si256(v, _mm256_set1_epi16(0xff));
    __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi16(v, v), 0x08);
    _mm_storeu_si128((void *)bytes, _mm256_castsi256_si128(packed));
}

static inline void narrow_4(uint8_t *bytes, __m256i v)
{
    const __m256i lowest =
        _mm256_setr_epi8(0, 4, 8, 12, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 0, 4, 8, 12,
                         -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1);
    __m256i each = _mm256_permutevar8x32_epi32(_mm256_shuffle_epi8(v, lowest),
                                               _mm256_setr_epi32(0, 4, 1, 1, 1, 1, 1, 1));
    _mm_storel_epi64((void *)bytes, _mm256_castsi256_si128(each));
}

static inline __m256i widen_2(const uint8_t *bytes)
{
    return _mm256_cvtepu8_epi16(_mm_loadu_si128((const void *)bytes));
}

static inline __m256i widen_4(const uint8_t *bytes)
{
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)bytes));
}

/* Returns the highest 8 bits below the sign, of 32 elements. */
static inline __m256i exponents_of(const uint8_t *base, unsigned width)
{
    if (width == 2) {
        const __m256i low = _mm256_set1_epi16(0xff);
        __m256i a = _mm256_and_si256(_mm256_srli_epi16(_mm256_loadu_si256((const void *)base), 7),
                                     low),
                b = _mm256_and_si256(
                    _mm256_srli_epi16(_mm256_loadu_si256((const void *)(base + 32)), 7), low);
        return _mm256_permute4x64_epi64(_mm256_packus_epi16(a, b), 0xd8);
    }
    __m256i v[4];
    for (size_t k = 0; k < 4; k++)
        v[k] = _mm256_and_si256(
            _mm256_srli_epi32(_mm256_loadu_si256((const void *)(base + 32 * k)), 23),
            _mm256_set1_epi32(0xff));
    __m256i packed =
        _mm256_packus_epi16(_mm256_packus_epi32(v[0], v[1]), _mm256_packus_epi32(v[2], v[3]));
    return _mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

static inline __m256i class_of(__m256i e, __m256i first, __m256i last)
{
    return _mm256_min_epu8(_mm256_subs_epu8(e, first), last);
}

static inline __m256i larger_bytes(__m256i a, __m256i b)
{
    return _mm256_max_epu8(a, b);
}

static inline __m256i sums_of_fields(__m256i lengths)
{
    __m256i bits = _mm256_subs_epu8(lengths, _mm256_set1_epi8(1));
    return _mm256_sad_epu8(bits, _mm256_setzero_si256());
}

#include "codec/dx_vectors.h"

const struct dx_kernels dx_avx2 = {&fx_avx2, take_apart, put_together, add_classes, field_bits};
