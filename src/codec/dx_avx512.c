// SPDX-License-Identifier: Apache-2.0
/* With AVX-512 F, BW, VL, DQ, VBMI and VBMI2; compiled for these. */
#include <immintrin.h>

#include "codec/dx_kernels.h"
#include "codec/dx_lanes.h"

#define BATCH 512u /* elements: what is written as lanes is read as vectors, and not at once */

static inline __m512i load(const void *p)
{
    return _mm512_loadu_si512(p);
}

static inline void store(void *p, __m512i v)
{
    _mm512_storeu_si512(p, v);
}

/* --- elements of 2 bytes ---------------------------------------------------------------------- */

static inline __m512i in_order_2(__m512i v)
{
    const __m512i rest = _mm512_set1_epi16(0x7fff);
    return _mm512_xor_si512(v, _mm512_and_si512(_mm512_srai_epi16(v, 15), rest));
}

static inline __m512i difference_2(const uint8_t *src, const uint8_t *base)
{
    __m512i d = _mm512_sub_epi16(in_order_2(load(src)), in_order_2(load(base)));
    return _mm512_xor_si512(_mm512_slli_epi16(d, 1), _mm512_srai_epi16(d, 15));
}

static inline __m512i add_2(const uint8_t *base, __m512i z)
{
    __m512i odd = _mm512_and_si512(z, _mm512_set1_epi16(1));
    __m512i d =
        _mm512_xor_si512(_mm512_srli_epi16(z, 1), _mm512_sub_epi16(_mm512_setzero_si512(), odd));
    return in_order_2(_mm512_add_epi16(in_order_2(load(base)), d));
}

/* Of each number of 16 bits, how many it has below and with its highest one. */
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

/* Joins pairs of numbers of 32 bits, `bits` of which are used, into lanes. */
static inline void join_pairs(__m512i v, __m512i bits, uint64_t *lanes, uint64_t *lane_bits)
{
    const __m512i low = _mm512_set1_epi64(0xffffffff);
    __m512i first_bits = _mm512_and_si512(bits, low);
    __m512i second = _mm512_sllv_epi64(_mm512_srli_epi64(v, 32), first_bits);
    store(lanes, _mm512_or_si512(_mm512_and_si512(v, low), second));
    store(lane_bits, _mm512_add_epi64(first_bits, _mm512_srli_epi64(bits, 32)));
}

/* The reverse; above the bits lies what follows. */
static inline __m512i part_pairs(const uint64_t *lanes, __m512i bits)
{
    __m512i v = load(lanes);
    __m512i second = _mm512_srlv_epi64(v, _mm512_and_si512(bits, _mm512_set1_epi64(0xffffffff)));
    return _mm512_mask_blend_epi32(0xaaaa, v, _mm512_slli_epi64(second, 32));
}

/* Joins pairs of lanes where all of them have few bits: then every second one is left. */
static inline void put_joined(struct lane_writer *w, const uint64_t *lanes, const uint64_t *bits,
                              size_t count)
{
    const __m512i most = _mm512_set1_epi64(SHORT_LANE);
    uint64_t joined[32], joined_bits[32];
    __mmask8 too_long = 0, too_long_joined = 0;
    for (size_t i = 0; i < count; i += 8) {
        __m512i v = load(lanes + i), n = load(bits + i);
        too_long |= _mm512_cmpgt_epu64_mask(n, most);
        __m512i second = _mm512_sllv_epi64(_mm512_shuffle_epi32(v, _MM_PERM_BADC), n);
        n = _mm512_add_epi64(n, _mm512_shuffle_epi32(n, _MM_PERM_BADC));
        store(joined + i, _mm512_or_si512(v, second));
        store(joined_bits + i, n);
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

static inline void join_fields_2(__m512i z, __m512i bits, uint64_t *lanes, uint64_t *lane_bits)
{
    const __m512i ones = _mm512_set1_epi16(-1), low = _mm512_set1_epi32(0xffff);
    __m512i fields = _mm512_andnot_si512(_mm512_sllv_epi16(ones, bits), z);
    __m512i second = _mm512_sllv_epi32(_mm512_srli_epi32(fields, 16), _mm512_and_si512(bits, low));
    join_pairs(_mm512_or_si512(_mm512_and_si512(fields, low), second), pair_bits_2(bits), lanes,
               lane_bits);
}

static inline __m512i part_fields_2(const uint64_t *lanes, __m512i lengths, __m512i bits)
{
    const __m512i one = _mm512_set1_epi16(1), ones = _mm512_set1_epi16(-1);
    __m512i pairs = part_pairs(lanes, pair_bits_2(bits));
    __m512i second = _mm512_srlv_epi32(pairs, _mm512_and_si512(bits, _mm512_set1_epi32(0xffff)));
    __m512i fields = _mm512_mask_blend_epi16(0xaaaaaaaa, pairs, _mm512_slli_epi32(second, 16));
    fields = _mm512_andnot_si512(_mm512_sllv_epi16(ones, bits), fields);
    __mmask32 has_highest = _mm512_test_epi16_mask(lengths, lengths);
    return _mm512_or_si512(fields, _mm512_maskz_sllv_epi16(has_highest, one, bits));
}

static inline __attribute__((always_inline)) size_t take_apart_2(const uint8_t *src,
                                                                 const uint8_t *base, size_t count,
                                                                 const bool has_low, uint8_t *low,
                                                                 uint8_t *lengths, uint8_t *fields)
{
    struct lane_writer w = {.at = fields};
    for (size_t i = 0; i < count; i += FX_GROUP) {
        uint64_t lanes[16], lane_bits[16];
        for (size_t k = 0; k < 2; k++) {
            size_t at = i + 32 * k;
            __m512i z = difference_2(src + 2 * at, base + 2 * at);
            if (has_low) {
                _mm256_storeu_si256((void *)(low + at), _mm512_cvtepi16_epi8(z));
                z = _mm512_srli_epi16(z, 8);
            }
            __m512i length = lengths_2(z);
            _mm256_storeu_si256((void *)(lengths + at), _mm512_cvtepi16_epi8(length));
            join_fields_2(z, _mm512_subs_epu16(length, _mm512_set1_epi16(1)), lanes + 8 * k,
                          lane_bits + 8 * k);
        }
        put_joined(&w, lanes, lane_bits, 16);
    }
    return end_lanes(&w, fields);
}

static inline __m512i widen_2(const uint8_t *bytes)
{
    return _mm512_cvtepu8_epi16(_mm256_loadu_si256((const void *)bytes));
}

static inline __m512i bits_of_2(__m512i lengths)
{
    return _mm512_subs_epu16(lengths, _mm512_set1_epi16(1));
}

static inline __attribute__((always_inline)) void
put_together_2(const uint8_t *low, const uint8_t *lengths, const uint8_t *fields,
               const uint8_t *base, size_t count, const bool has_low, uint8_t *dst)
{
    size_t bit = 0;
    for (size_t i = 0; i < count; i += BATCH) {
        uint64_t lanes[BATCH / 4], lane_bits[BATCH / 4];
        size_t len = count - i < BATCH ? count - i : BATCH;
        for (size_t k = 0; k < len; k += 32) {
            __m512i pairs = pair_bits_2(bits_of_2(widen_2(lengths + i + k)));
            store(lane_bits + k / 4,
                  _mm512_add_epi64(_mm512_and_si512(pairs, _mm512_set1_epi64(0xffffffff)),
                                   _mm512_srli_epi64(pairs, 32)));
        }
        bit = take_lanes(fields, bit, lane_bits, lanes, len / 4);
        for (size_t k = 0; k < len; k += 32) {
            __m512i length = widen_2(lengths + i + k);
            __m512i z = part_fields_2(lanes + k / 4, length, bits_of_2(length));
            if (has_low)
                z = _mm512_or_si512(_mm512_slli_epi16(z, 8), widen_2(low + i + k));
            store(dst + 2 * (i + k), add_2(base + 2 * (i + k), z));
        }
    }
}

/* --- elements of 4 bytes ---------------------------------------------------------------------- */

static inline __m512i in_order_4(__m512i v)
{
    const __m512i rest = _mm512_set1_epi32(0x7fffffff);
    return _mm512_xor_si512(v, _mm512_and_si512(_mm512_srai_epi32(v, 31), rest));
}

static inline __m512i difference_4(const uint8_t *src, const uint8_t *base)
{
    __m512i d = _mm512_sub_epi32(in_order_4(load(src)), in_order_4(load(base)));
    return _mm512_xor_si512(_mm512_slli_epi32(d, 1), _mm512_srai_epi32(d, 31));
}

static inline __m512i add_4(const uint8_t *base, __m512i z)
{
    __m512i odd = _mm512_and_si512(z, _mm512_set1_epi32(1));
    __m512i d =
        _mm512_xor_si512(_mm512_srli_epi32(z, 1), _mm512_sub_epi32(_mm512_setzero_si512(), odd));
    return in_order_4(_mm512_add_epi32(in_order_4(load(base)), d));
}

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

static inline __attribute__((always_inline)) size_t
take_apart_4(const uint8_t *src, const uint8_t *base, size_t count, const unsigned low_planes,
             uint8_t *const low[8], uint8_t *lengths, uint8_t *fields)
{
    const __m512i ones = _mm512_set1_epi32(-1);
    struct lane_writer w = {.at = fields};
    for (size_t i = 0; i < count; i += FX_GROUP) {
        uint64_t lanes[32], lane_bits[32];
        for (size_t k = 0; k < 4; k++) {
            size_t at = i + 16 * k;
            __m512i z = difference_4(src + 4 * at, base + 4 * at);
            for (unsigned p = 0; p < low_planes; p++)
                z = narrow_4(low[p] + at, z);
            __m512i length = lengths_4(z), bits = bits_of_4(length);
            (void)narrow_4(lengths + at, length);
            join_pairs(_mm512_andnot_si512(_mm512_sllv_epi32(ones, bits), z), bits, lanes + 8 * k,
                       lane_bits + 8 * k);
        }
        put_joined(&w, lanes, lane_bits, 32);
    }
    return end_lanes(&w, fields);
}

static inline __m512i part_fields_4(const uint64_t *lanes, __m512i lengths, __m512i bits)
{
    const __m512i one = _mm512_set1_epi32(1), ones = _mm512_set1_epi32(-1);
    __m512i fields = _mm512_andnot_si512(_mm512_sllv_epi32(ones, bits), part_pairs(lanes, bits));
    __mmask16 has_highest = _mm512_test_epi32_mask(lengths, lengths);
    return _mm512_or_si512(fields, _mm512_maskz_sllv_epi32(has_highest, one, bits));
}

static inline __attribute__((always_inline)) void
put_together_4(const uint8_t *const low[8], const uint8_t *lengths, const uint8_t *fields,
               const uint8_t *base, size_t count, const unsigned low_planes, uint8_t *dst)
{
    size_t bit = 0;
    for (size_t i = 0; i < count; i += BATCH) {
        uint64_t lanes[BATCH / 2], lane_bits[BATCH / 2];
        size_t len = count - i < BATCH ? count - i : BATCH;
        for (size_t k = 0; k < len; k += 16) {
            __m512i bits = bits_of_4(widen_4(lengths + i + k));
            store(lane_bits + k / 2,
                  _mm512_add_epi64(_mm512_and_si512(bits, _mm512_set1_epi64(0xffffffff)),
                                   _mm512_srli_epi64(bits, 32)));
        }
        bit = take_lanes(fields, bit, lane_bits, lanes, len / 2);
        for (size_t k = 0; k < len; k += 16) {
            __m512i length = widen_4(lengths + i + k);
            __m512i z = part_fields_4(lanes + k / 2, length, bits_of_4(length));
            for (unsigned p = low_planes; p-- > 0;)
                z = _mm512_or_si512(_mm512_slli_epi32(z, 8), widen_4(low[p] + i + k));
            store(dst + 4 * (i + k), add_4(base + 4 * (i + k), z));
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

/* Highest 8 bits below the sign, of 64 elements. */
static inline __m512i exponents(const uint8_t *base, unsigned width)
{
    if (width == 2)
        return _mm512_inserti64x4(
            _mm512_castsi256_si512(_mm512_cvtepi16_epi8(_mm512_srli_epi16(load(base), 7))),
            _mm512_cvtepi16_epi8(_mm512_srli_epi16(load(base + 64), 7)), 1);
    __m128i v[4];
    for (size_t k = 0; k < 4; k++)
        v[k] = _mm512_cvtepi32_epi8(_mm512_srli_epi32(load(base + 64 * k), 23));
    __m256i low = _mm256_inserti128_si256(_mm256_castsi128_si256(v[0]), v[1], 1),
            high = _mm256_inserti128_si256(_mm256_castsi128_si256(v[2]), v[3], 1);
    return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

static void add_classes(const uint8_t *base, size_t count, unsigned width,
                        const struct dx_classes *classes, uint8_t *values)
{
    check(classes->count >= 1 && classes->count <= DX_CLASSES_MAX);
    if (width == 8) {
        dx_scalar.add_classes(base, count, width, classes, values);
        return;
    }
    uint8_t times[DX_CLASSES_MAX];
    for (unsigned i = 0; i < DX_CLASSES_MAX; i++)
        times[i] = (uint8_t)(i * classes->lengths);
    const __m512i add = _mm512_broadcast_i32x4(_mm_loadu_si128((const void *)times));
    const __m512i first = _mm512_set1_epi8((char)classes->first),
                  last = _mm512_set1_epi8((char)(classes->count - 1)),
                  left = _mm512_set1_epi8((char)(0xff >> classes->shift));
    const __m128i shift = _mm_cvtsi32_si128(classes->shift);
    for (size_t i = 0; i < count; i += FX_GROUP) {
        __m512i e =
            _mm512_and_si512(_mm512_srl_epi16(exponents(base + i * width, width), shift), left);
        __m512i class = _mm512_min_epu8(_mm512_subs_epu8(e, first), last);
        store(values + i, _mm512_add_epi8(load(values + i), _mm512_shuffle_epi8(add, class)));
    }
}

static size_t field_bits(const uint8_t *lengths, size_t count, uint8_t *ret_longest)
{
    __m512i sum = _mm512_setzero_si512(), longest = sum;
    for (size_t i = 0; i < count; i += FX_GROUP) {
        __m512i v = load(lengths + i);
        __m512i bits = _mm512_subs_epu8(v, _mm512_set1_epi8(1));
        sum = _mm512_add_epi64(sum, _mm512_sad_epu8(bits, _mm512_setzero_si512()));
        longest = _mm512_max_epu8(longest, v);
    }
    uint8_t each[64], most = 0;
    store(each, longest);
    for (size_t k = 0; k < 64; k++)
        most = each[k] > most ? each[k] : most;
    *ret_longest = most;
    return (size_t)_mm512_reduce_add_epi64(sum);
}

const struct dx_kernels dx_avx512 = {&fx_avx512, take_apart, put_together, add_classes, field_bits};
