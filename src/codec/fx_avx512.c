// SPDX-License-Identifier: Apache-2.0
/* With AVX-512 F, BW, VL, DQ, VBMI, VBMI2 and GFNI; compiled for these. */
#include <immintrin.h>

#include "codec/fx_kernels.h"
#include "format/le.h"

static inline __m512i load_vec(const void *p)
{
    return _mm512_loadu_si512(p);
}

static inline void store_vec(void *p, __m512i v)
{
    _mm512_storeu_si512(p, v);
}

/* Transposes the quarters of four vectors: the first quarter of each, the second ones... Its own
 * reverse. */
static inline void transpose_quarters(__m512i v[4])
{
    __m512i a = _mm512_shuffle_i32x4(v[0], v[1], 0x44), b = _mm512_shuffle_i32x4(v[2], v[3], 0x44);
    __m512i c = _mm512_shuffle_i32x4(v[0], v[1], 0xee), d = _mm512_shuffle_i32x4(v[2], v[3], 0xee);
    v[0] = _mm512_shuffle_i32x4(a, b, 0x88);
    v[1] = _mm512_shuffle_i32x4(a, b, 0xdd);
    v[2] = _mm512_shuffle_i32x4(c, d, 0x88);
    v[3] = _mm512_shuffle_i32x4(c, d, 0xdd);
}

/* An order of 64 bytes: the first bytes of elements of `width` bytes, then their second bytes... */
struct order {
    uint8_t at[64];
};

#define EACH_4(base, step) (base), (base) + (step), (base) + 2 * (step), (base) + 3 * (step)
#define EACH_16(base, step)                                                                        \
    EACH_4(base, step), EACH_4((base) + 4 * (step), step), EACH_4((base) + 8 * (step), step),      \
        EACH_4((base) + 12 * (step), step)
#define QUARTETS_4(base)                                                                           \
    EACH_4(base, 16), EACH_4((base) + 1, 16), EACH_4((base) + 2, 16), EACH_4((base) + 3, 16)
#define PAIRS_4(base)                                                                              \
    (base), (base) + 32, (base) + 1, (base) + 33, (base) + 2, (base) + 34, (base) + 3, (base) + 35
#define PAIRS_16(base) PAIRS_4(base), PAIRS_4((base) + 4), PAIRS_4((base) + 8), PAIRS_4((base) + 12)

static const struct order apart_4 = {{EACH_16(0, 4), EACH_16(1, 4), EACH_16(2, 4), EACH_16(3, 4)}};
static const struct order together_4 = {
    {QUARTETS_4(0), QUARTETS_4(4), QUARTETS_4(8), QUARTETS_4(12)}};
static const struct order apart_2 = {
    {EACH_16(0, 2), EACH_16(32, 2), EACH_16(1, 2), EACH_16(33, 2)}};
static const struct order together_2 = {{PAIRS_16(0), PAIRS_16(16)}};

static void split_4(const uint8_t *src, size_t count, bool rotate, uint8_t *const planes[8])
{
    const __m512i order = load_vec(apart_4.at);
    uint8_t *const own[4] = {planes[0], planes[1], planes[2], planes[3]};
    for (size_t i = 0; i < count; i += FX_GROUP) {
        __m512i v[4];
        for (size_t k = 0; k < 4; k++) {
            __m512i x = load_vec(src + 4 * i + 64 * k);
            v[k] = _mm512_permutexvar_epi8(order, rotate ? _mm512_rol_epi32(x, 1) : x);
        }
        transpose_quarters(v);
        for (size_t p = 0; p < 4; p++)
            store_vec(own[p] + i, v[p]);
    }
}

static inline __m512i rotate_2(__m512i v)
{
    return _mm512_shldi_epi16(v, v, 1);
}

static void split_2(const uint8_t *src, size_t count, bool rotate, uint8_t *const planes[8])
{
    const __m512i order = load_vec(apart_2.at);
    uint8_t *const low = planes[0], *const high = planes[1];
    for (size_t i = 0; i < count; i += FX_GROUP) {
        __m512i a = load_vec(src + 2 * i), b = load_vec(src + 2 * i + 64);
        a = _mm512_permutexvar_epi8(order, rotate ? rotate_2(a) : a);
        b = _mm512_permutexvar_epi8(order, rotate ? rotate_2(b) : b);
        store_vec(low + i, _mm512_shuffle_i64x2(a, b, 0x44));
        store_vec(high + i, _mm512_shuffle_i64x2(a, b, 0xee));
    }
}

static void join_4(const uint8_t *const planes[8], size_t count, bool rotate, uint8_t *dst)
{
    const __m512i order = load_vec(together_4.at);
    for (size_t i = 0; i < count; i += FX_GROUP) {
        __m512i v[4];
        for (size_t p = 0; p < 4; p++)
            v[p] = load_vec(planes[p] + i);
        transpose_quarters(v);
        for (size_t k = 0; k < 4; k++) {
            __m512i x = _mm512_permutexvar_epi8(order, v[k]);
            store_vec(dst + 4 * i + 64 * k, rotate ? _mm512_ror_epi32(x, 1) : x);
        }
    }
}

static inline __m512i rotate_back_2(__m512i v)
{
    return _mm512_shrdi_epi16(v, v, 1);
}

static void join_2(const uint8_t *const planes[8], size_t count, bool rotate, uint8_t *dst)
{
    const __m512i order = load_vec(together_2.at);
    for (size_t i = 0; i < count; i += FX_GROUP) {
        __m512i low = load_vec(planes[0] + i), high = load_vec(planes[1] + i);
        __m512i a = _mm512_permutexvar_epi8(order, _mm512_shuffle_i64x2(low, high, 0x44));
        __m512i b = _mm512_permutexvar_epi8(order, _mm512_shuffle_i64x2(low, high, 0xee));
        store_vec(dst + 2 * i, rotate ? rotate_back_2(a) : a);
        store_vec(dst + 2 * i + 64, rotate ? rotate_back_2(b) : b);
    }
}

static void level_bytes(uint8_t *bytes, size_t count, uint8_t *means)
{
    for (size_t i = 0; i < count; i += FX_GROUP) {
        __m512i v = load_vec(bytes + i);
        uint64_t sum =
            (uint64_t)_mm512_reduce_add_epi64(_mm512_sad_epu8(v, _mm512_setzero_si512()));
        uint8_t mean = (uint8_t)((sum + FX_GROUP / 2) / FX_GROUP);
        means[i / FX_GROUP] = mean;
        store_vec(bytes + i, _mm512_sub_epi8(v, _mm512_set1_epi8((char)(mean - 128))));
    }
}

static void unlevel_bytes(uint8_t *bytes, size_t count, const uint8_t *means)
{
    for (size_t i = 0; i < count; i += FX_GROUP)
        store_vec(bytes + i, _mm512_add_epi8(load_vec(bytes + i),
                                             _mm512_set1_epi8((char)(means[i / FX_GROUP] - 128))));
}

static void translate_bytes(uint8_t *bytes, size_t count, const uint8_t table[256])
{
    const __m512i t0 = load_vec(table), t1 = load_vec(table + 64), t2 = load_vec(table + 128),
                  t3 = load_vec(table + 192);
    for (size_t i = 0; i < count; i += FX_GROUP) {
        __m512i v = load_vec(bytes + i);
        __mmask64 upper = _mm512_movepi8_mask(v);
        __m512i low = _mm512_permutex2var_epi8(t0, v, t1),
                high = _mm512_permutex2var_epi8(t2, v, t3);
        store_vec(bytes + i, _mm512_mask_mov_epi8(low, upper, high));
    }
}

/* Transposes each 8 bytes as a bit matrix, the last byte first: bit b of byte k becomes bit 7 - k
 * of byte b. */
static inline __m512i transpose_bits(__m512i v)
{
    return _mm512_gf2p8affine_epi64_epi8(_mm512_set1_epi64((long long)0x8040201008040201ull), v, 0);
}

/* Reverses the bits of each byte. */
static inline __m256i reverse_bits(__m256i v)
{
    return _mm256_gf2p8affine_epi64_epi8(v, _mm256_set1_epi64x((long long)0x8040201008040201ull),
                                         0);
}

#define EACH_8(base) EACH_4(base, 8), EACH_4((base) + 32, 8)
/* Byte 0 of each 8 bytes, then byte 1... */
static const struct order masks_apart = {{EACH_8(0), EACH_8(1), EACH_8(2), EACH_8(3)}};

/* Stores the masks of 64 values. */
static inline void store_masks(__m512i v, const int bits, uint8_t *masks)
{
    __m256i apart = reverse_bits(_mm512_castsi512_si256(
        _mm512_permutexvar_epi8(load_vec(masks_apart.at), transpose_bits(v))));
    if (bits <= 2)
        _mm_mask_storeu_epi64(masks, (__mmask8)((1 << bits) - 1), _mm256_castsi256_si128(apart));
    else
        _mm256_mask_storeu_epi64(masks, (__mmask8)((1 << bits) - 1), apart);
}

static inline __attribute__((always_inline)) size_t
pack_by(const uint8_t *values, size_t count, const int bits, uint8_t *masks, uint8_t *escaped)
{
    const __m512i all = _mm512_set1_epi8((char)((1 << bits) - 1));
    size_t used = 0;
    for (size_t i = 0; i < count; i += FX_GROUP, masks += 8 * bits) {
        __m512i v = load_vec(values + i), low = _mm512_min_epu8(v, all);
        __mmask64 is_escape = _mm512_cmpge_epu8_mask(v, all);
        if (bits == 1)
            put_le64(masks, _mm512_test_epi8_mask(low, all));
        else
            store_masks(low, bits, masks);
        __m512i more = _mm512_maskz_compress_epi8(is_escape, _mm512_sub_epi8(v, all));
        size_t n = (size_t)__builtin_popcountll(is_escape);
        /* A store across a cache line's end costs twice as much: mostly a store of half a vector is
         * enough. */
        if (bits == 1 || n > 32)
            store_vec(escaped + used, more);
        else
            _mm256_storeu_si256((void *)(escaped + used), _mm512_castsi512_si256(more));
        used += n;
    }
    return used;
}

/* The reverse of masks_apart, byte 0 last: so after the transposition the first value is first. */
#define EACH_TOGETHER(base) 32, 32, 32, 32, (base) + 24, (base) + 16, (base) + 8, (base)
static const struct order masks_together = {{EACH_TOGETHER(0), EACH_TOGETHER(1), EACH_TOGETHER(2),
                                             EACH_TOGETHER(3), EACH_TOGETHER(4), EACH_TOGETHER(5),
                                             EACH_TOGETHER(6), EACH_TOGETHER(7)}};

/* Returns the 64 values of masks. */
static inline __m512i load_masks(const uint8_t *masks, const int bits)
{
    __mmask8 these = (__mmask8)((1 << bits) - 1);
    __m512i v = _mm512_zextsi256_si512(_mm256_maskz_loadu_epi64(these, masks));
    return transpose_bits(_mm512_permutexvar_epi8(load_vec(masks_together.at), v));
}

static inline __attribute__((always_inline)) size_t unpack_by(const uint8_t *masks, size_t count,
                                                              const int bits,
                                                              const uint8_t *escaped,
                                                              uint8_t *values)
{
    const __m512i all = _mm512_set1_epi8((char)((1 << bits) - 1));
    size_t used = 0;
    for (size_t i = 0; i < count; i += FX_GROUP, masks += 8 * bits) {
        __m512i v = load_masks(masks, bits);
        __mmask64 is_escape = _mm512_cmpeq_epi8_mask(v, all);
        v = _mm512_add_epi8(v, _mm512_maskz_expand_epi8(is_escape, load_vec(escaped + used)));
        used += (size_t)__builtin_popcountll(is_escape);
        store_vec(values + i, v);
    }
    return used;
}

#include "codec/fx_entries.h"

const struct fx_kernels fx_avx512 = {split_elements,  join_elements, level_bytes,  unlevel_bytes,
                                     translate_bytes, pack_values,   unpack_values};
