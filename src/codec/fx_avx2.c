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

/* 8 numbers that `packus` interleaved by halves, in order again. */
static inline __m256i in_order(__m256i v)
{
    return _mm256_permutevar8x32_epi32(v, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

static inline __m256i byte_of_4(const __m256i v[4], int shift)
{
    const __m256i low = _mm256_set1_epi32(0xff);
    __m256i x[4];
    for (int k = 0; k < 4; k++)
        x[k] = _mm256_and_si256(_mm256_srli_epi32(v[k], shift), low);
    return in_order(
        _mm256_packus_epi16(_mm256_packus_epi32(x[0], x[1]), _mm256_packus_epi32(x[2], x[3])));
}

static void split_4(const uint8_t *src, size_t count, bool rotate, uint8_t *const planes[8])
{
    for (size_t i = 0; i < count; i += 32) {
        __m256i v[4];
        for (size_t k = 0; k < 4; k++) {
            v[k] = load_vec(src + 4 * i + 32 * k);
            if (rotate)
                v[k] = _mm256_or_si256(_mm256_slli_epi32(v[k], 1), _mm256_srli_epi32(v[k], 31));
        }
        store_vec(planes[0] + i, byte_of_4(v, 0));
        store_vec(planes[1] + i, byte_of_4(v, 8));
        store_vec(planes[2] + i, byte_of_4(v, 16));
        store_vec(planes[3] + i, byte_of_4(v, 24));
    }
}

static void split_2(const uint8_t *src, size_t count, bool rotate, uint8_t *const planes[8])
{
    const __m256i low = _mm256_set1_epi16(0xff);
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
        store_vec(planes[0] + i, _mm256_permute4x64_epi64(even, 0xd8));
        store_vec(planes[1] + i, _mm256_permute4x64_epi64(odd, 0xd8));
    }
}

static void split_elements(const uint8_t *src, size_t count, unsigned width, bool rotate,
                           uint8_t *const planes[8])
{
    if (width == 4)
        split_4(src, count, rotate, planes);
    else if (width == 2)
        split_2(src, count, rotate, planes);
    else
        fx_scalar.split(src, count, width, rotate, planes);
}

/* Loads 32 bytes, in the order in which unpacklo and unpackhi of two such take them. */
static inline __m256i load_halves(const uint8_t *p)
{
    return _mm256_permute4x64_epi64(load_vec(p), 0xd8);
}

static inline __m256i rotate_back_4(__m256i v, bool rotate)
{
    return rotate ? _mm256_or_si256(_mm256_srli_epi32(v, 1), _mm256_slli_epi32(v, 31)) : v;
}

/* 16 elements from their lower and their higher halves. */
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

static void join_elements(const uint8_t *const planes[8], size_t count, unsigned width, bool rotate,
                          uint8_t *dst)
{
    if (width == 4)
        join_4(planes, count, rotate, dst);
    else if (width == 2)
        join_2(planes, count, rotate, dst);
    else
        fx_scalar.join(planes, count, width, rotate, dst);
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

/* A table of 256 has no vector form here. */
static void translate_bytes(uint8_t *bytes, size_t count, const uint8_t table[256])
{
    for (size_t i = 0; i < count; i += 8) {
        uint64_t x = get_le64(bytes + i), y = 0;
        for (unsigned k = 0; k < 64; k += 8)
            y |= (uint64_t)table[(uint8_t)(x >> k)] << k;
        put_le64(bytes + i, y);
    }
}

static inline uint64_t mask_of(__m256i a, __m256i b)
{
    return (uint32_t)_mm256_movemask_epi8(a) | (uint64_t)(uint32_t)_mm256_movemask_epi8(b) << 32;
}

/* 8 bits as 8 bytes of zeros or ones. */
static inline uint64_t bytes_of(uint64_t bits)
{
    return _pdep_u64(bits, 0x0101010101010101ull) * 0xff;
}

static inline __attribute__((always_inline)) size_t
pack_by(const uint8_t *values, size_t count, const int bits, uint8_t *masks, uint8_t *escaped)
{
    const __m256i all = _mm256_set1_epi8((char)((1 << bits) - 1));
    size_t used = 0;
    for (size_t i = 0; i < count; i += FX_GROUP) {
        __m256i a = load_vec(values + i), b = load_vec(values + i + 32);
        __m256i low_a = _mm256_min_epu8(a, all), low_b = _mm256_min_epu8(b, all);
        uint64_t is_escape = mask_of(_mm256_cmpeq_epi8(low_a, all), _mm256_cmpeq_epi8(low_b, all));
        for (int bit = 0; bit < bits; bit++, masks += 8)
            put_le64(masks,
                     mask_of(_mm256_slli_epi16(low_a, 7 - bit), _mm256_slli_epi16(low_b, 7 - bit)));
        uint8_t rest[FX_GROUP];
        store_vec(rest, _mm256_sub_epi8(a, all));
        store_vec(rest + 32, _mm256_sub_epi8(b, all));
        for (size_t k = 0; is_escape; k += 8, is_escape >>= 8) {
            uint64_t eight = is_escape & 0xff;
            put_le64(escaped + used, _pext_u64(get_le64(rest + k), bytes_of(eight)));
            used += (size_t)__builtin_popcountll(eight);
        }
    }
    return used;
}

static size_t pack_values(const uint8_t *values, size_t count, unsigned bits, uint8_t *masks,
                          uint8_t *escaped)
{
    return FX_BY_BITS(pack_by, bits, values, count, masks, escaped);
}

/* 32 bits as 32 bytes of zeros or ones. */
static inline __m256i spread_bits(uint32_t bits)
{
    const __m256i which =
        _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    const __m256i bit = _mm256_set1_epi64x((long long)0x8040201008040201ull);
    __m256i bytes = _mm256_shuffle_epi8(_mm256_set1_epi32((int)bits), which);
    return _mm256_cmpeq_epi8(_mm256_and_si256(bytes, bit), bit);
}

static inline __attribute__((always_inline)) size_t unpack_by(const uint8_t *masks, size_t count,
                                                              const int bits,
                                                              const uint8_t *escaped,
                                                              uint8_t *values)
{
    const __m256i all = _mm256_set1_epi8((char)((1 << bits) - 1));
    size_t used = 0;
    for (size_t i = 0; i < count; i += FX_GROUP) {
        __m256i a = _mm256_setzero_si256(), b = a;
        for (int bit = 0; bit < bits; bit++, masks += 8) {
            const __m256i one = _mm256_set1_epi8((char)(1 << bit));
            a = _mm256_or_si256(a, _mm256_and_si256(spread_bits(get_le32(masks)), one));
            b = _mm256_or_si256(b, _mm256_and_si256(spread_bits(get_le32(masks + 4)), one));
        }
        uint64_t is_escape = mask_of(_mm256_cmpeq_epi8(a, all), _mm256_cmpeq_epi8(b, all));
        if (is_escape) {
            uint8_t rest[FX_GROUP];
            for (size_t k = 0; k < FX_GROUP; k += 8) {
                uint64_t eight = is_escape >> k & 0xff;
                put_le64(rest + k, _pdep_u64(get_le64(escaped + used), bytes_of(eight)));
                used += (size_t)__builtin_popcountll(eight);
            }
            a = _mm256_add_epi8(a, load_vec(rest));
            b = _mm256_add_epi8(b, load_vec(rest + 32));
        }
        store_vec(values + i, a);
        store_vec(values + i + 32, b);
    }
    return used;
}

static size_t unpack_values(const uint8_t *masks, size_t count, unsigned bits,
                            const uint8_t *escaped, uint8_t *values)
{
    return FX_BY_BITS(unpack_by, bits, masks, count, escaped, values);
}

const struct fx_kernels fx_avx2 = {split_elements,  join_elements, level_bytes,  unlevel_bytes,
                                   translate_bytes, pack_values,   unpack_values};
