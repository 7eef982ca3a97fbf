// SPDX-License-Identifier: Apache-2.0
/* With AVX2; compiled for it. */
#include <immintrin.h>
#include <stdint.h>

typedef __m256i vec;

/* Restores the order of bytes after `packus` and `packs`, which interleave by quarters; its own
 * reverse. */
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

static inline __m256i first_pairs(__m256i low, __m256i high)
{
    return _mm256_permute2x128_si256(_mm256_unpacklo_epi16(low, high),
                                     _mm256_unpackhi_epi16(low, high), 0x20);
}

static inline __m256i second_pairs(__m256i low, __m256i high)
{
    return _mm256_permute2x128_si256(_mm256_unpacklo_epi16(low, high),
                                     _mm256_unpackhi_epi16(low, high), 0x31);
}

static inline uint64_t mask_of_group(const __m256i is[4])
{
    uint32_t first = (uint32_t)_mm256_movemask_epi8(in_order(_mm256_packs_epi16(is[0], is[1])));
    uint32_t second = (uint32_t)_mm256_movemask_epi8(in_order(_mm256_packs_epi16(is[2], is[3])));
    return first | (uint64_t)second << 32;
}

#include "codec/twin_vectors.h"

const struct twin_kernels twin_avx2 = {split_elements, join_elements, round_all, find_landmarks};
