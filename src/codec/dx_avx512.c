// SPDX-License-Identifier: Apache-2.0
/* With AVX-512 F, BW, VL, DQ, VBMI and VBMI2; compiled for these. */
#include <immintrin.h>

#include "codec/dx_lanes.h"

typedef __m512i vec;
typedef __m128i table_16;

static inline __m512i load_vec(const void *p)
{
    return _mm512_loadu_si512(p);
}

static inline void store_vec(void *p, __m512i v)
{
    _mm512_storeu_si512(p, v);
}

static inline __m128i load_table(const uint8_t *bytes)
{
    return _mm_loadu_si128((const void *)bytes);
}

static inline __m512i all_bytes(uint8_t b)
{
    return _mm512_set1_epi8((char)b);
}

static inline __m512i larger_bytes(__m512i a, __m512i b)
{
    return _mm512_max_epu8(a, b);
}

/* For each byte of 128 bits what the table has for its number, less than 16. */
static inline __m512i look_up(__m128i from, __m512i v)
{
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(from), v);
}

/* --- elements of 2 bytes ---------------------------------------------------------------------- */

/* Counts, in each number of 16 bits, the bits up to the highest one that is set. */
static inline __m512i lengths_2(__m512i z)
{
    const __m512i low_nibble = _mm512_set1_epi8(15);
    const __m512i of_low =
        _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 4, 4, 4, 4));
    const __m512i of_high =
        _mm512_broadcast_i32x4(_mm_setr_epi8(0, 5, 6, 6, 7, 7, 7, 7, 8, 8, 8, 8, 8, 8, 8, 8));
    __m512i high = _mm512_and_si512(_mm512_srli_epi16(z, 4), low_nibble);
    __m512i of_bytes = _mm512_max_epu8(_mm512_shuffle_epi8(of_low, _mm512_and_si512(z, low_nibble)),
                                       _mm512_shuffle_epi8(of_high, high));
    __mmask64 upper = _mm512_test_epi8_mask(z, _mm512_set1_epi16((short)0xff00));
    of_bytes = _mm512_mask_add_epi8(of_bytes, upper, of_bytes, _mm512_set1_epi8(8));
    return _mm512_max_epu16(_mm512_and_si512(of_bytes, _mm512_set1_epi16(0xff)),
                            _mm512_srli_epi16(of_bytes, 8));
}

/* The reverse of join_pairs(); above the bits lies what follows. */
static inline __m512i part_pairs(const uint64_t *lanes, __m512i bits)
{
    __m512i v = load_vec(lanes);
    __m512i second = _mm512_srlv_epi64(v, _mm512_and_si512(bits, _mm512_set1_epi64(0xffffffff)));
    return _mm512_mask_blend_epi32(0xaaaa, v, _mm512_slli_epi64(second, 32));
}

/* Joins pairs of lanes where all of them have few bits: then every second one is left. */
static inline void put_any_lanes(struct lane_writer *w, const uint64_t *lanes, const uint64_t *bits,
                                 size_t count)
{
    const __m512i most = _mm512_set1_epi64(SHORT_LANE);
    uint64_t joined[32], joined_bits[32];
    __mmask8 too_long = 0, too_long_joined = 0;
    for (size_t i = 0; i < count; i += 8) {
        __m512i v = load_vec(lanes + i), n = load_vec(bits + i);
        too_long |= _mm512_cmpgt_epu64_mask(n, most);
        __m512i second = _mm512_sllv_epi64(_mm512_shuffle_epi32(v, _MM_PERM_BADC), n);
        n = _mm512_add_epi64(n, _mm512_shuffle_epi32(n, _MM_PERM_BADC));
        store_vec(joined + i, _mm512_or_si512(v, second));
        store_vec(joined_bits + i, n);
        too_long_joined |= _mm512_cmpgt_epu64_mask(n, most);
    }
    if (!too_long_joined)
        put_short_lanes(w, joined, joined_bits, count, 2);
    else if (!too_long)
        put_short_lanes(w, lanes, bits, count, 1);
    else
        put_lanes(w, lanes, bits, count);
}

/* Sums of neighbours. */
static inline __m512i pair_bits_2(__m512i bits)
{
    return _mm512_madd_epi16(bits, _mm512_set1_epi16(1));
}

static inline __m512i bits_of_2(__m512i lengths)
{
    return _mm512_subs_epu16(lengths, _mm512_set1_epi16(1));
}

/* The lowest `bits` of numbers. */
static inline __m512i low_bits_2(__m512i v, __m512i bits)
{
    return _mm512_andnot_si512(_mm512_sllv_epi16(_mm512_set1_epi16(-1), bits), v);
}

static inline __m512i part_fields_2(const uint64_t *lanes, __m512i lengths, __m512i bits)
{
    const __m512i one = _mm512_set1_epi16(1);
    __m512i pairs = part_pairs(lanes, pair_bits_2(bits));
    __m512i second = _mm512_srlv_epi32(pairs, _mm512_and_si512(bits, _mm512_set1_epi32(0xffff)));
    __m512i fields = _mm512_mask_blend_epi16(0xaaaaaaaa, pairs, _mm512_slli_epi32(second, 16));
    __mmask32 has_highest = _mm512_test_epi16_mask(lengths, lengths);
    return _mm512_or_si512(low_bits_2(fields, bits),
                           _mm512_maskz_sllv_epi16(has_highest, one, bits));
}

static inline void narrow_2(uint8_t *bytes, __m512i v)
{
    _mm256_storeu_si256((void *)bytes, _mm512_cvtepi16_epi8(v));
}

static inline __m512i widen_2(const uint8_t *bytes)
{
    return _mm512_cvtepu8_epi16(_mm256_loadu_si256((const void *)bytes));
}

/* --- elements of 4 bytes ---------------------------------------------------------------------- */

/* The exponent of the number as a float, rounded towards zero. */
static inline __m512i lengths_4(__m512i z)
{
    const __m512i of_a_half = _mm512_set1_epi32(126);
    __m512 f = _mm512_cvt_roundepu32_ps(z, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
    __m512i exponent = _mm512_srli_epi32(_mm512_castps_si512(f), 23);
    return _mm512_sub_epi32(_mm512_max_epu32(exponent, of_a_half), of_a_half);
}

static inline __m512i bits_of_4(__m512i lengths)
{
    const __m512i one = _mm512_set1_epi32(1);
    return _mm512_sub_epi32(_mm512_max_epu32(lengths, one), one);
}

static inline __m512i widen_4(const uint8_t *bytes)
{
    return _mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)bytes));
}

static inline __m512i narrow_4(uint8_t *bytes, __m512i v)
{
    _mm_storeu_si128((void *)bytes, _mm512_cvtepi32_epi8(v));
    return _mm512_srli_epi32(v, 8);
}

static inline __m512i low_bits_4(__m512i v, __m512i bits)
{
    return _mm512_andnot_si512(_mm512_sllv_epi32(_mm512_set1_epi32(-1), bits), v);
}

static inline __m512i part_fields_4(const uint64_t *lanes, __m512i lengths, __m512i bits)
{
    __mmask16 has_highest = _mm512_test_epi32_mask(lengths, lengths);
    return _mm512_or_si512(low_bits_4(part_pairs(lanes, bits), bits),
                           _mm512_maskz_sllv_epi32(has_highest, _mm512_set1_epi32(1), bits));
}

/* --- all elements ----------------------------------------------------------------------------- */

/* Highest 8 bits below the sign, of 64 elements. */
static inline __m512i exponents_of(const uint8_t *base, unsigned width)
{
    if (width == 2)
        return _mm512_inserti64x4(
            _mm512_castsi256_si512(_mm512_cvtepi16_epi8(_mm512_srli_epi16(load_vec(base), 7))),
            _mm512_cvtepi16_epi8(_mm512_srli_epi16(load_vec(base + 64), 7)), 1);
    __m128i v[4];
    for (size_t k = 0; k < 4; k++)
        v[k] = _mm512_cvtepi32_epi8(_mm512_srli_epi32(load_vec(base + 64 * k), 23));
    __m256i low = _mm256_inserti128_si256(_mm256_castsi128_si256(v[0]), v[1], 1),
            high = _mm256_inserti128_si256(_mm256_castsi128_si256(v[2]), v[3], 1);
    return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

static inline __m512i class_of(__m512i e, __m512i first, __m512i last)
{
    return _mm512_min_epu8(_mm512_subs_epu8(e, first), last);
}

static inline __m512i sums_of_fields(__m512i lengths)
{
    __m512i bits = _mm512_subs_epu8(lengths, _mm512_set1_epi8(1));
    return _mm512_sad_epu8(bits, _mm512_setzero_si512());
}

#include "codec/dx_vectors.h"
#include "codec/dx_vector_lengths.h"

const struct dx_kernels dx_avx512 = {&fx_avx512, take_apart, put_together, add_classes, field_bits};
