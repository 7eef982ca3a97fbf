// SPDX-License-Identifier: Apache-2.0
/* With AVX2 and BMI2; compiled for these. */
#include <immintrin.h>

#include "codec/dx_kernels.h"
#include "codec/dx_lanes.h"

#define BATCH                                                                                      \
    512u /* elements: lanes are written one by one and read as vectors, and not at once            \
          */

static inline __m256i load(const void *p)
{
    return _mm256_loadu_si256(p);
}

static inline void store(void *p, __m256i v)
{
    _mm256_storeu_si256(p, v);
}

static inline __m128i load_half(const void *p)
{
    return _mm_loadu_si128(p);
}

/* For each byte of 128 bits what the table has for its number, less than 16. */
static inline __m256i look_up(__m128i table, __m256i v)
{
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table), v);
}

/* Of each byte, how many bits it has below and with its highest one. */
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

/* Joins pairs of numbers of 32 bits, `bits` of which are used, into lanes. */
static inline void join_pairs(__m256i v, __m256i bits, uint64_t *lanes, uint64_t *lane_bits)
{
    __m256i first_bits = low_halves(bits);
    __m256i second = _mm256_sllv_epi64(_mm256_srli_epi64(v, 32), first_bits);
    store(lanes, _mm256_or_si256(low_halves(v), second));
    store(lane_bits, _mm256_add_epi64(first_bits, _mm256_srli_epi64(bits, 32)));
}

/* The reverse; above the bits lies what follows. */
static inline __m256i part_pairs(const uint64_t *lanes, __m256i bits)
{
    __m256i v = load(lanes), second = _mm256_srlv_epi64(v, low_halves(bits));
    return _mm256_blend_epi32(v, _mm256_slli_epi64(second, 32), 0xaa);
}

static inline void store_lane_bits(uint64_t *lane_bits, __m256i bits)
{
    store(lane_bits, _mm256_add_epi64(low_halves(bits), _mm256_srli_epi64(bits, 32)));
}

static inline void put_any_lanes(struct lane_writer *w, const uint64_t *lanes, const uint64_t *bits,
                                 size_t count)
{
    const __m256i most = _mm256_set1_epi64x(SHORT_LANE);
    __m256i too_long = _mm256_setzero_si256();
    for (size_t i = 0; i < count; i += 4)
        too_long = _mm256_or_si256(too_long, _mm256_cmpgt_epi64(load(bits + i), most));
    if (_mm256_testz_si256(too_long, too_long))
        put_short_lanes(w, lanes, bits, count, 1);
    else
        put_lanes(w, lanes, bits, count);
}

/* --- elements of 2 bytes ---------------------------------------------------------------------- */

static inline __m256i in_order_2(__m256i v)
{
    return _mm256_xor_si256(v, _mm256_srli_epi16(_mm256_srai_epi16(v, 15), 1));
}

static inline __m256i difference_2(const uint8_t *src, const uint8_t *base)
{
    __m256i d = _mm256_sub_epi16(in_order_2(load(src)), in_order_2(load(base)));
    return _mm256_xor_si256(_mm256_slli_epi16(d, 1), _mm256_srai_epi16(d, 15));
}

static inline __m256i add_2(const uint8_t *base, __m256i z)
{
    __m256i odd = _mm256_and_si256(z, _mm256_set1_epi16(1));
    __m256i d =
        _mm256_xor_si256(_mm256_srli_epi16(z, 1), _mm256_sub_epi16(_mm256_setzero_si256(), odd));
    return in_order_2(_mm256_add_epi16(in_order_2(load(base)), d));
}

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

static inline void join_fields_2(__m256i z, __m256i bits, uint64_t *lanes, uint64_t *lane_bits)
{
    __m256i fields = low_bits_2(z, bits);
    __m256i second = _mm256_sllv_epi32(_mm256_srli_epi32(fields, 16), low_quarters(bits));
    join_pairs(_mm256_or_si256(low_quarters(fields), second), pair_bits_2(bits), lanes, lane_bits);
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
    return _mm256_cvtepu8_epi16(load_half(bytes));
}

static inline __attribute__((always_inline)) size_t take_apart_2(const uint8_t *src,
                                                                 const uint8_t *base, size_t count,
                                                                 const bool has_low, uint8_t *low,
                                                                 uint8_t *lengths, uint8_t *fields)
{
    struct lane_writer w = {.at = fields};
    for (size_t i = 0; i < count; i += FX_GROUP) {
        uint64_t lanes[16], lane_bits[16];
        for (size_t k = 0; k < 4; k++) {
            size_t at = i + 16 * k;
            __m256i z = difference_2(src + 2 * at, base + 2 * at);
            if (has_low) {
                narrow_2(low + at, z);
                z = _mm256_srli_epi16(z, 8);
            }
            __m256i length = lengths_2(z);
            narrow_2(lengths + at, length);
            join_fields_2(z, bits_of_2(length), lanes + 4 * k, lane_bits + 4 * k);
        }
        put_any_lanes(&w, lanes, lane_bits, 16);
    }
    return end_lanes(&w, fields);
}

static inline __attribute__((always_inline)) void
put_together_2(const uint8_t *low, const uint8_t *lengths, const uint8_t *fields,
               const uint8_t *base, size_t count, const bool has_low, uint8_t *dst)
{
    size_t bit = 0;
    for (size_t i = 0; i < count; i += BATCH) {
        uint64_t lanes[BATCH / 4], lane_bits[BATCH / 4];
        size_t len = count - i < BATCH ? count - i : BATCH;
        for (size_t k = 0; k < len; k += 16)
            store_lane_bits(lane_bits + k / 4, pair_bits_2(bits_of_2(widen_2(lengths + i + k))));
        bit = take_lanes(fields, bit, lane_bits, lanes, len / 4);
        for (size_t k = 0; k < len; k += 16) {
            __m256i length = widen_2(lengths + i + k);
            __m256i z = part_fields_2(lanes + k / 4, length, bits_of_2(length));
            if (has_low)
                z = _mm256_or_si256(_mm256_slli_epi16(z, 8), widen_2(low + i + k));
            store(dst + 2 * (i + k), add_2(base + 2 * (i + k), z));
        }
    }
}

/* --- elements of 4 bytes ---------------------------------------------------------------------- */

static inline __m256i in_order_4(__m256i v)
{
    return _mm256_xor_si256(v, _mm256_srli_epi32(_mm256_srai_epi32(v, 31), 1));
}

static inline __m256i difference_4(const uint8_t *src, const uint8_t *base)
{
    __m256i d = _mm256_sub_epi32(in_order_4(load(src)), in_order_4(load(base)));
    return _mm256_xor_si256(_mm256_slli_epi32(d, 1), _mm256_srai_epi32(d, 31));
}

static inline __m256i add_4(const uint8_t *base, __m256i z)
{
    __m256i odd = _mm256_and_si256(z, _mm256_set1_epi32(1));
    __m256i d =
        _mm256_xor_si256(_mm256_srli_epi32(z, 1), _mm256_sub_epi32(_mm256_setzero_si256(), odd));
    return in_order_4(_mm256_add_epi32(in_order_4(load(base)), d));
}

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

static inline __attribute__((always_inline)) size_t
take_apart_4(const uint8_t *src, const uint8_t *base, size_t count, const unsigned low_planes,
             uint8_t *const low[8], uint8_t *lengths, uint8_t *fields)
{
    struct lane_writer w = {.at = fields};
    for (size_t i = 0; i < count; i += FX_GROUP) {
        uint64_t lanes[32], lane_bits[32];
        for (size_t k = 0; k < 8; k++) {
            size_t at = i + 8 * k;
            __m256i z = difference_4(src + 4 * at, base + 4 * at);
            for (unsigned p = 0; p < low_planes; p++)
                z = narrow_4(low[p] + at, z);
            __m256i length = lengths_4(z), bits = bits_of_4(length);
            (void)narrow_4(lengths + at, length);
            join_pairs(low_bits_4(z, bits), bits, lanes + 4 * k, lane_bits + 4 * k);
        }
        put_any_lanes(&w, lanes, lane_bits, 32);
    }
    return end_lanes(&w, fields);
}

static inline __attribute__((always_inline)) void
put_together_4(const uint8_t *const low[8], const uint8_t *lengths, const uint8_t *fields,
               const uint8_t *base, size_t count, const unsigned low_planes, uint8_t *dst)
{
    size_t bit = 0;
    for (size_t i = 0; i < count; i += BATCH) {
        uint64_t lanes[BATCH / 2], lane_bits[BATCH / 2];
        size_t len = count - i < BATCH ? count - i : BATCH;
        for (size_t k = 0; k < len; k += 8)
            store_lane_bits(lane_bits + k / 2, bits_of_4(widen_4(lengths + i + k)));
        bit = take_lanes(fields, bit, lane_bits, lanes, len / 2);
        for (size_t k = 0; k < len; k += 8) {
            __m256i length = widen_4(lengths + i + k);
            __m256i z = part_fields_4(lanes + k / 2, length, bits_of_4(length));
            for (unsigned p = low_planes; p-- > 0;)
                z = _mm256_or_si256(_mm256_slli_epi32(z, 8), widen_4(low[p] + i + k));
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

/* Highest 8 bits below the sign, of 32 elements. */
static inline __m256i exponents(const uint8_t *base, unsigned width)
{
    if (width == 2) {
        const __m256i low = _mm256_set1_epi16(0xff);
        __m256i a = _mm256_and_si256(_mm256_srli_epi16(load(base), 7), low),
                b = _mm256_and_si256(_mm256_srli_epi16(load(base + 32), 7), low);
        return _mm256_permute4x64_epi64(_mm256_packus_epi16(a, b), 0xd8);
    }
    __m256i v[4];
    for (size_t k = 0; k < 4; k++)
        v[k] =
            _mm256_and_si256(_mm256_srli_epi32(load(base + 32 * k), 23), _mm256_set1_epi32(0xff));
    __m256i packed =
        _mm256_packus_epi16(_mm256_packus_epi32(v[0], v[1]), _mm256_packus_epi32(v[2], v[3]));
    return _mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
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
    const __m128i add = load_half(times);
    const __m256i first = _mm256_set1_epi8((char)classes->first),
                  last = _mm256_set1_epi8((char)(classes->count - 1)),
                  left = _mm256_set1_epi8((char)(0xff >> classes->shift));
    const __m128i shift = _mm_cvtsi32_si128(classes->shift);
    for (size_t i = 0; i < count; i += 32) {
        __m256i e =
            _mm256_and_si256(_mm256_srl_epi16(exponents(base + i * width, width), shift), left);
        __m256i class = _mm256_min_epu8(_mm256_subs_epu8(e, first), last);
        store(values + i, _mm256_add_epi8(load(values + i), look_up(add, class)));
    }
}

static size_t field_bits(const uint8_t *lengths, size_t count, uint8_t *ret_longest)
{
    const __m256i one = _mm256_set1_epi8(1), zero = _mm256_setzero_si256();
    __m256i sum = zero, longest = zero;
    for (size_t i = 0; i < count; i += 32) {
        __m256i v = load(lengths + i);
        sum = _mm256_add_epi64(sum, _mm256_sad_epu8(_mm256_subs_epu8(v, one), zero));
        longest = _mm256_max_epu8(longest, v);
    }
    uint8_t each[32], most = 0;
    uint64_t sums[4];
    store(each, longest);
    store(sums, sum);
    for (size_t k = 0; k < 32; k++)
        most = each[k] > most ? each[k] : most;
    *ret_longest = most;
    return sums[0] + sums[1] + sums[2] + sums[3];
}

const struct dx_kernels dx_avx2 = {&fx_avx2, take_apart, put_together, add_classes, field_bits};
