// SPDX-License-Identifier: Apache-2.0
/* With AVX2 and BMI2; compiled for these. */
#include <immintrin.h>

#include "codec/dx_lanes.h"

typedef __m256i vec;
typedef __m128i table_16;

static inline __m256i load_vec(const void *p)
{
    return _mm256_loadu_si256(p);
}

static inline void store_vec(void *p, __m256i v)
{
    _mm256_storeu_si256(p, v);
}

static inline __m128i load_table(const uint8_t *bytes)
{
    return _mm_loadu_si128((const void *)bytes);
}

static inline __m256i all_bytes(uint8_t b)
{
    return _mm256_set1_epi8((char)b);
}

static inline __m256i larger_bytes(__m256i a, __m256i b)
{
    return _mm256_max_epu8(a, b);
}

/* For each byte of 128 bits what the table has for its number, less than 16. */
static inline __m256i look_up(__m128i from, __m256i v)
{
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(from), v);
}

/* Counts, in each byte, the bits up to the highest one that is set. */
static inline __m256i lengths_of_bytes(__m256i v)
{
    const __m256i low_nibble = _mm256_set1_epi8(15);
    const __m128i of_low = _mm_setr_epi8(0, 1, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 4, 4, 4, 4);
    const __m128i of_high = _mm_setr_epi8(0, 5, 6, 6, 7, 7, 7, 7, 8, 8, 8, 8, 8, 8, 8, 8);
    __m256i high = _mm256_and_si256(_mm256_srli_epi16(v, 4), low_nibble);
    return _mm256_max_epu8(look_up(of_low, _mm256_and_si256(v, low_nibble)),
                           look_up(of_high, high));
}

/* The same of a number, of whose bytes `below` says how many bits are below them. */
static inline __m256i lengths_from(__m256i v, __m256i below)
{
    __m256i is_zero = _mm256_cmpeq_epi8(v, _mm256_setzero_si256());
    return _mm256_add_epi8(lengths_of_bytes(v), _mm256_andnot_si256(is_zero, below));
}

static inline __m256i low_halves(__m256i v)
{
    return _mm256_and_si256(v, _mm256_set1_epi64x(0xffffffff));
}

/* The reverse of join_pairs(); above the bits lies what follows. */
static inline __m256i part_pairs(const uint64_t *lanes, __m256i bits)
{
    __m256i v = load_vec(lanes), second = _mm256_srlv_epi64(v, low_halves(bits));
    return _mm256_blend_epi32(v, _mm256_slli_epi64(second, 32), 0xaa);
}

static inline void put_any_lanes(struct lane_writer *w, const uint64_t *lanes, const uint64_t *bits,
                                 size_t count)
{
    const __m256i most = _mm256_set1_epi64x(SHORT_LANE);
    __m256i too_long = _mm256_setzero_si256();
    for (size_t i = 0; i < count; i += 4)
        too_long = _mm256_or_si256(too_long, _mm256_cmpgt_epi64(load_vec(bits + i), most));
    if (_mm256_testz_si256(too_long, too_long))
        put_short_lanes(w, lanes, bits, count, 1);
    else
        put_lanes(w, lanes, bits, count);
}

/* --- elements of 2 bytes ---------------------------------------------------------------------- */

static inline __m256i lengths_2(__m256i z)
{
    __m256i of_bytes = lengths_from(z, _mm256_set1_epi16(8 << 8));
    return _mm256_max_epu8(_mm256_and_si256(of_bytes, _mm256_set1_epi16(0xff)),
                           _mm256_srli_epi16(of_bytes, 8));
}

static inline __m256i bits_of_2(__m256i lengths)
{
    return _mm256_subs_epu16(lengths, _mm256_set1_epi16(1));
}

/* 2^n, of numbers less than 16. */
static inline __m256i power_2(__m256i n)
{
    const __m128i low = _mm_setr_epi8(1, 2, 4, 8, 16, 32, 64, -128, 0, 0, 0, 0, 0, 0, 0, 0);
    const __m128i high = _mm_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 4, 8, 16, 32, 64, -128);
    __m256i of_low = _mm256_and_si256(look_up(low, n), _mm256_set1_epi16(0xff));
    return _mm256_or_si256(of_low, _mm256_slli_epi16(look_up(high, n), 8));
}

/* The lowest `bits` of numbers. */
static inline __m256i low_bits_2(__m256i v, __m256i bits)
{
    return _mm256_and_si256(v, _mm256_sub_epi16(power_2(bits), _mm256_set1_epi16(1)));
}

static inline __m256i pair_bits_2(__m256i bits)
{
    return _mm256_madd_epi16(bits, _mm256_set1_epi16(1));
}

static inline __m256i low_quarters(__m256i v)
{
    return _mm256_and_si256(v, _mm256_set1_epi32(0xffff));
}

static inline __m256i part_fields_2(const uint64_t *lanes, __m256i lengths, __m256i bits)
{
    __m256i pairs = part_pairs(lanes, pair_bits_2(bits));
    __m256i second = _mm256_srlv_epi32(pairs, low_quarters(bits));
    __m256i fields = _mm256_blend_epi16(pairs, _mm256_slli_epi32(second, 16), 0xaa);
    __m256i is_zero = _mm256_cmpeq_epi16(lengths, _mm256_setzero_si256());
    return _mm256_or_si256(low_bits_2(fields, bits), _mm256_andnot_si256(is_zero, power_2(bits)));
}

/* The lower bytes of 16 numbers. */
static inline void narrow_2(uint8_t *bytes, __m256i v)
{
    v = _mm256_and_si256(v, _mm256_set1_epi16(0xff));
    __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi16(v, v), 0x08);
    _mm_storeu_si128((void *)bytes, _mm256_castsi256_si128(packed));
}

static inline __m256i widen_2(const uint8_t *bytes)
{
    return _mm256_cvtepu8_epi16(_mm_loadu_si128((const void *)bytes));
}

/* --- elements of 4 bytes ---------------------------------------------------------------------- */

static inline __m256i lengths_4(__m256i z)
{
    __m256i of_bytes = lengths_from(z, _mm256_set1_epi32(24 << 24 | 16 << 16 | 8 << 8));
    of_bytes = _mm256_max_epu8(of_bytes, _mm256_srli_epi32(of_bytes, 16));
    of_bytes = _mm256_max_epu8(of_bytes, _mm256_srli_epi32(of_bytes, 8));
    return _mm256_and_si256(of_bytes, _mm256_set1_epi32(0xff));
}

static inline __m256i bits_of_4(__m256i lengths)
{
    const __m256i one = _mm256_set1_epi32(1);
    return _mm256_sub_epi32(_mm256_max_epu32(lengths, one), one);
}

static inline __m256i power_4(__m256i n)
{
    return _mm256_sllv_epi32(_mm256_set1_epi32(1), n);
}

static inline __m256i low_bits_4(__m256i v, __m256i bits)
{
    return _mm256_and_si256(v, _mm256_sub_epi32(power_4(bits), _mm256_set1_epi32(1)));
}

static inline __m256i part_fields_4(const uint64_t *lanes, __m256i lengths, __m256i bits)
{
    __m256i is_zero = _mm256_cmpeq_epi32(lengths, _mm256_setzero_si256());
    return _mm256_or_si256(low_bits_4(part_pairs(lanes, bits), bits),
                           _mm256_andnot_si256(is_zero, power_4(bits)));
}

/* The lowest bytes of 8 numbers. Returns the others. */
static inline __m256i narrow_4(uint8_t *bytes, __m256i v)
{
    const __m256i lowest =
        _mm256_setr_epi8(0, 4, 8, 12, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 0, 4, 8, 12,
                         -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1);
    __m256i each = _mm256_permutevar8x32_epi32(_mm256_shuffle_epi8(v, lowest),
                                               _mm256_setr_epi32(0, 4, 1, 1, 1, 1, 1, 1));
    _mm_storel_epi64((void *)bytes, _mm256_castsi256_si128(each));
    return _mm256_srli_epi32(v, 8);
}

static inline __m256i widen_4(const uint8_t *bytes)
{
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)bytes));
}

/* --- all elements ----------------------------------------------------------------------------- */

/* Highest 8 bits below the sign, of 32 elements. */
static inline __m256i exponents_of(const uint8_t *base, unsigned width)
{
    if (width == 2) {
        const __m256i low = _mm256_set1_epi16(0xff);
        __m256i a = _mm256_and_si256(_mm256_srli_epi16(load_vec(base), 7), low),
                b = _mm256_and_si256(_mm256_srli_epi16(load_vec(base + 32), 7), low);
        return _mm256_permute4x64_epi64(_mm256_packus_epi16(a, b), 0xd8);
    }
    __m256i v[4];
    for (size_t k = 0; k < 4; k++)
        v[k] = _mm256_and_si256(_mm256_srli_epi32(load_vec(base + 32 * k), 23),
                                _mm256_set1_epi32(0xff));
    __m256i packed =
        _mm256_packus_epi16(_mm256_packus_epi32(v[0], v[1]), _mm256_packus_epi32(v[2], v[3]));
    return _mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

static inline __m256i class_of(__m256i e, __m256i first, __m256i last)
{
    return _mm256_min_epu8(_mm256_subs_epu8(e, first), last);
}

static inline __m256i sums_of_fields(__m256i lengths)
{
    __m256i bits = _mm256_subs_epu8(lengths, _mm256_set1_epi8(1));
    return _mm256_sad_epu8(bits, _mm256_setzero_si256());
}

#include "codec/dx_vectors.h"
#include "codec/dx_vector_lengths.h"

const struct dx_kernels dx_avx2 = {&fx_avx2, take_apart, put_together, add_classes, field_bits};
