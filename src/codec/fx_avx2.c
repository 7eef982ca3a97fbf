// SPDX-License-Identifier: Apache-2.0
/* With AVX2 and BMI2; compiled for these. */
#include <immintrin.h>

#include "codec/fx_kernels.h"
#include "format/le.h"

static inline __m256i load_vec(const void *p)
{
    return _mm256_loadu_si256(p);
}

static inline void store_vec(void *p, __m256i v)
{
    _mm256_storeu_si256(p, v);
}

/* Returns 8 numbers in order; the two halves of `v` have the even and the odd ones. */
static inline __m256i in_order(__m256i v)
{
    return _mm256_permutevar8x32_epi32(v, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

static inline __m256i rotate_4(__m256i v)
{
    return _mm256_or_si256(_mm256_slli_epi32(v, 1), _mm256_srli_epi32(v, 31));
}

/* Reorders each four elements of four bytes: their first bytes, then their second ones... */
static inline __m256i apart_4(__m256i v)
{
    return _mm256_shuffle_epi8(v, _mm256_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11,
                                                   15, 0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7,
                                                   11, 15));
}

static void split_4(const uint8_t *src, size_t count, bool rotate, uint8_t *const planes[8])
{
    uint8_t *const own[4] = {planes[0], planes[1], planes[2], planes[3]};
    for (size_t i = 0; i < count; i += 32) {
        __m256i v[4];
        for (size_t k = 0; k < 4; k++) {
            v[k] = load_vec(src + 4 * i + 32 * k);
            v[k] = apart_4(rotate ? rotate_4(v[k]) : v[k]);
        }
        __m256i a = _mm256_unpacklo_epi32(v[0], v[1]), b = _mm256_unpacklo_epi32(v[2], v[3]);
        __m256i c = _mm256_unpackhi_epi32(v[0], v[1]), d = _mm256_unpackhi_epi32(v[2], v[3]);
        store_vec(own[0] + i, in_order(_mm256_unpacklo_epi64(a, b)));
        store_vec(own[1] + i, in_order(_mm256_unpackhi_epi64(a, b)));
        store_vec(own[2] + i, in_order(_mm256_unpacklo_epi64(c, d)));
        store_vec(own[3] + i, in_order(_mm256_unpackhi_epi64(c, d)));
    }
}

static void split_2(const uint8_t *src, size_t count, bool rotate, uint8_t *const planes[8])
{
    const __m256i low = _mm256_set1_epi16(0xff);
    uint8_t *const own[2] = {planes[0], planes[1]};
    for (size_t i = 0; i < count; i += 32) {
        __m256i v[2];
        for (size_t k = 0; k < 2; k++) {
            v[k] = load_vec(src + 2 * i + 32 * k);
            if (rotate)
                v[k] = _mm256_or_si256(_mm256_slli_epi16(v[k], 1), _mm256_srli_epi16(v[k], 15));
        }
        __m256i even =
            _mm256_packus_epi16(_mm256_and_si256(v[0], low), _mm256_and_si256(v[1], low));
        __m256i odd = _mm256_packus_epi16(_mm256_srli_epi16(v[0], 8), _mm256_srli_epi16(v[1], 8));
        store_vec(own[0] + i, _mm256_permute4x64_epi64(even, 0xd8));
        store_vec(own[1] + i, _mm256_permute4x64_epi64(odd, 0xd8));
    }
}

/* Loads 32 bytes in the order in which unpacklo and unpackhi of two such vectors need them. */
static inline __m256i load_halves(const uint8_t *p)
{
    return _mm256_permute4x64_epi64(load_vec(p), 0xd8);
}

static inline __m256i rotate_back_4(__m256i v, bool rotate)
{
    return rotate ? _mm256_or_si256(_mm256_srli_epi32(v, 1), _mm256_slli_epi32(v, 31)) : v;
}

/* Joins 16 elements from their lower and their higher halves. */
static inline void join_halves(__m256i low, __m256i high, bool rotate, uint8_t *dst)
{
    __m256i a = _mm256_unpacklo_epi16(low, high), b = _mm256_unpackhi_epi16(low, high);
    store_vec(dst, rotate_back_4(_mm256_permute2x128_si256(a, b, 0x20), rotate));
    store_vec(dst + 32, rotate_back_4(_mm256_permute2x128_si256(a, b, 0x31), rotate));
}

static void join_4(const uint8_t *const planes[8], size_t count, bool rotate, uint8_t *dst)
{
    for (size_t i = 0; i < count; i += 32) {
        __m256i p0 = load_halves(planes[0] + i), p1 = load_halves(planes[1] + i);
        __m256i p2 = load_halves(planes[2] + i), p3 = load_halves(planes[3] + i);
        join_halves(_mm256_unpacklo_epi8(p0, p1), _mm256_unpacklo_epi8(p2, p3), rotate,
                    dst + 4 * i);
        join_halves(_mm256_unpackhi_epi8(p0, p1), _mm256_unpackhi_epi8(p2, p3), rotate,
                    dst + 4 * i + 64);
    }
}

static inline __m256i rotate_back_2(__m256i v, bool rotate)
{
    return rotate ? _mm256_or_si256(_mm256_srli_epi16(v, 1), _mm256_slli_epi16(v, 15)) : v;
}

static void join_2(const uint8_t *const planes[8], size_t count, bool rotate, uint8_t *dst)
{
    for (size_t i = 0; i < count; i += 32) {
        __m256i p0 = load_halves(planes[0] + i), p1 = load_halves(planes[1] + i);
        store_vec(dst + 2 * i, rotate_back_2(_mm256_unpacklo_epi8(p0, p1), rotate));
        store_vec(dst + 2 * i + 32, rotate_back_2(_mm256_unpackhi_epi8(p0, p1), rotate));
    }
}

static void level_bytes(uint8_t *bytes, size_t count, uint8_t *means)
{
    const __m256i zero = _mm256_setzero_si256();
    for (size_t i = 0; i < count; i += FX_GROUP) {
        __m256i a = load_vec(bytes + i), b = load_vec(bytes + i + 32);
        __m256i sums = _mm256_add_epi64(_mm256_sad_epu8(a, zero), _mm256_sad_epu8(b, zero));
        uint64_t parts[4];
        store_vec(parts, sums);
        uint8_t mean =
            (uint8_t)((parts[0] + parts[1] + parts[2] + parts[3] + FX_GROUP / 2) / FX_GROUP);
        __m256i off = _mm256_set1_epi8((char)(mean - 128));
        means[i / FX_GROUP] = mean;
        store_vec(bytes + i, _mm256_sub_epi8(a, off));
        store_vec(bytes + i + 32, _mm256_sub_epi8(b, off));
    }
}

static void unlevel_bytes(uint8_t *bytes, size_t count, const uint8_t *means)
{
    for (size_t i = 0; i < count; i += 32) {
        __m256i off = _mm256_set1_epi8((char)(means[i / FX_GROUP] - 128));
        store_vec(bytes + i, _mm256_add_epi8(load_vec(bytes + i), off));
    }
}

static inline uint64_t or_of(__m256i v)
{
    uint64_t parts[4];
    store_vec(parts, v);
    uint64_t x = parts[0] | parts[1] | parts[2] | parts[3];
    x |= x >> 32;
    x |= x >> 16;
    return (x | x >> 8) & 0xff;
}

/* Returns which rows of a table with 16 values each are used: bit r is row r. */
static uint64_t rows_of(const uint8_t *bytes, size_t count)
{
    const __m256i lower = _mm256_set_epi64x(0, (long long)0x8040201008040201ull, 0,
                                            (long long)0x8040201008040201ull),
                  upper = _mm256_set_epi64x((long long)0x8040201008040201ull, 0,
                                            (long long)0x8040201008040201ull, 0),
                  four = _mm256_set1_epi8(15);
    __m256i low = _mm256_setzero_si256(), high = low;
    for (size_t i = 0; i < count; i += 32) {
        __m256i row = _mm256_and_si256(_mm256_srli_epi16(load_vec(bytes + i), 4), four);
        low = _mm256_or_si256(low, _mm256_shuffle_epi8(lower, row));
        high = _mm256_or_si256(high, _mm256_shuffle_epi8(upper, row));
    }
    return or_of(low) | or_of(high) << 8;
}

/* A shuffle looks a byte up among 16 values, and returns 0 if the byte's highest bit is set: it is
 * set for bytes of another row. */
static void translate_bytes(uint8_t *bytes, size_t count, const uint8_t table[256])
{
    const __m256i others = _mm256_set1_epi8(0x70);
    __m256i rows[16], first[16];
    size_t used = 0;
    for (uint64_t left = rows_of(bytes, count); left; left &= left - 1, used++) {
        size_t row = (size_t)__builtin_ctzll(left);
        rows[used] = _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)(table + 16 * row)));
        first[used] = _mm256_set1_epi8((char)(16 * row));
    }
    for (size_t i = 0; i < count; i += FX_GROUP) {
        __m256i a = load_vec(bytes + i), b = load_vec(bytes + i + 32);
        __m256i sum_a = _mm256_setzero_si256(), sum_b = sum_a;
        for (size_t k = 0; k < used; k++) {
            __m256i at_a = _mm256_adds_epu8(_mm256_xor_si256(a, first[k]), others);
            __m256i at_b = _mm256_adds_epu8(_mm256_xor_si256(b, first[k]), others);
            sum_a = _mm256_or_si256(sum_a, _mm256_shuffle_epi8(rows[k], at_a));
            sum_b = _mm256_or_si256(sum_b, _mm256_shuffle_epi8(rows[k], at_b));
        }
        store_vec(bytes + i, sum_a);
        store_vec(bytes + i + 32, sum_b);
    }
}

static inline uint64_t mask_of(__m256i a, __m256i b)
{
    return (uint32_t)_mm256_movemask_epi8(a) | (uint64_t)(uint32_t)_mm256_movemask_epi8(b) << 32;
}

/* Stores those of 64 bytes for which `which` has ones, one after the other. Returns how many. */
static inline size_t compress_bytes(const __m256i v[2], const __m256i which[2], uint8_t *to)
{
    uint8_t bytes[FX_GROUP], ones[FX_GROUP];
    size_t n = 0;
    for (size_t k = 0; k < 2; k++) {
        store_vec(bytes + 32 * k, v[k]);
        store_vec(ones + 32 * k, which[k]);
    }
    for (size_t k = 0; k < FX_GROUP; k += 8) {
        uint64_t eight = get_le64(ones + k);
        put_le64(to + n, _pext_u64(get_le64(bytes + k), eight));
        n += (size_t)__builtin_popcountll(eight) / 8;
    }
    return n;
}

static inline __attribute__((always_inline)) size_t
pack_by(const uint8_t *values, size_t count, const int bits, uint8_t *masks, uint8_t *escaped)
{
    const __m256i all = _mm256_set1_epi8((char)((1 << bits) - 1));
    size_t used = 0;
    for (size_t i = 0; i < count; i += FX_GROUP) {
        __m256i more[2], which[2], low[2];
        for (size_t k = 0; k < 2; k++) {
            __m256i v = load_vec(values + i + 32 * k);
            low[k] = _mm256_min_epu8(v, all);
            which[k] = _mm256_cmpeq_epi8(low[k], all);
            more[k] = _mm256_sub_epi8(v, all);
        }
        for (int bit = 0; bit < bits; bit++, masks += 8)
            put_le64(masks, mask_of(_mm256_slli_epi16(low[0], 7 - bit),
                                    _mm256_slli_epi16(low[1], 7 - bit)));
        if (mask_of(which[0], which[1]))
            used += compress_bytes(more, which, escaped + used);
    }
    return used;
}

/* Returns 32 bits as 32 bytes of zeros or ones. */
static inline __m256i spread_bits(uint32_t bits)
{
    const __m256i which =
        _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    const __m256i bit = _mm256_set1_epi64x((long long)0x8040201008040201ull);
    __m256i bytes = _mm256_shuffle_epi8(_mm256_set1_epi32((int)bits), which);
    return _mm256_cmpeq_epi8(_mm256_and_si256(bytes, bit), bit);
}

/* The reverse of compress_bytes(), with zeros for the other bytes. */
static inline size_t expand_bytes(const uint8_t *from, const __m256i which[2], __m256i ret[2])
{
    uint8_t ones[FX_GROUP];
    size_t n = 0;
    store_vec(ones, which[0]);
    store_vec(ones + 32, which[1]);
    for (size_t k = 0; k < 2; k++) {
        uint64_t x[4];
        for (size_t j = 0; j < 4; j++) {
            uint64_t eight = get_le64(ones + 32 * k + 8 * j);
            x[j] = _pdep_u64(get_le64(from + n), eight);
            n += (size_t)__builtin_popcountll(eight) / 8;
        }
        ret[k] =
            _mm256_set_epi64x((long long)x[3], (long long)x[2], (long long)x[1], (long long)x[0]);
    }
    return n;
}

static inline __attribute__((always_inline)) size_t unpack_by(const uint8_t *masks, size_t count,
                                                              const int bits,
                                                              const uint8_t *escaped,
                                                              uint8_t *values)
{
    const __m256i all = _mm256_set1_epi8((char)((1 << bits) - 1));
    size_t used = 0;
    for (size_t i = 0; i < count; i += FX_GROUP) {
        __m256i v[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()}, which[2], more[2];
        for (int bit = 0; bit < bits; bit++, masks += 8) {
            const __m256i one = _mm256_set1_epi8((char)(1 << bit));
            for (size_t k = 0; k < 2; k++)
                v[k] = _mm256_or_si256(v[k],
                                       _mm256_and_si256(spread_bits(get_le32(masks + 4 * k)), one));
        }
        for (size_t k = 0; k < 2; k++)
            which[k] = _mm256_cmpeq_epi8(v[k], all);
        if (mask_of(which[0], which[1])) {
            used += expand_bytes(escaped + used, which, more);
            for (size_t k = 0; k < 2; k++)
                v[k] = _mm256_add_epi8(v[k], more[k]);
        }
        for (size_t k = 0; k < 2; k++)
            store_vec(values + i + 32 * k, v[k]);
    }
    return used;
}

#include "codec/fx_entries.h"

const struct fx_kernels fx_avx2 = {split_elements,  join_elements, level_bytes,  unlevel_bytes,
                                   translate_bytes, pack_values,   unpack_values};
