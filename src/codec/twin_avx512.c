// SPDX-License-Identifier: Apache-2.0
/* With AVX-512 F, BW and VL; compiled for these. */
#include <immintrin.h>
#include <stdint.h>

typedef __m512i vec;
typedef uint16_t halves __attribute__((vector_size(64)));

static inline __m512i lower_halves(__m512i a, __m512i b)
{
    return (__m512i)__builtin_shufflevector((halves)a, (halves)b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18,
                                            20, 22, 24, 26, 28, 30, 32, 34, 36, 38, 40, 42, 44, 46,
                                            48, 50, 52, 54, 56, 58, 60, 62);
}

static inline __m512i upper_halves(__m512i a, __m512i b)
{
    return (__m512i)__builtin_shufflevector((halves)a, (halves)b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19,
                                            21, 23, 25, 27, 29, 31, 33, 35, 37, 39, 41, 43, 45, 47,
                                            49, 51, 53, 55, 57, 59, 61, 63);
}

static inline __m512i first_pairs(__m512i low, __m512i high)
{
    return (__m512i)__builtin_shufflevector((halves)low, (halves)high, 0, 32, 1, 33, 2, 34, 3, 35,
                                            4, 36, 5, 37, 6, 38, 7, 39, 8, 40, 9, 41, 10, 42, 11,
                                            43, 12, 44, 13, 45, 14, 46, 15, 47);
}

static inline __m512i second_pairs(__m512i low, __m512i high)
{
    return (__m512i)__builtin_shufflevector((halves)low, (halves)high, 16, 48, 17, 49, 18, 50, 19,
                                            51, 20, 52, 21, 53, 22, 54, 23, 55, 24, 56, 25, 57, 26,
                                            58, 27, 59, 28, 60, 29, 61, 30, 62, 31, 63);
}

static inline uint64_t mask_of_group(const __m512i is[2])
{
    return _mm512_movepi16_mask(is[0]) | (uint64_t)_mm512_movepi16_mask(is[1]) << 32;
}

#include "codec/twin_vectors.h"

const struct twin_kernels twin_avx512 = {split_elements, join_elements, round_all, find_landmarks};
