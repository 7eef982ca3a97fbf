// SPDX-License-Identifier: Apache-2.0
/* fx of matrices: what rows and columns tell of exponents is not stored again. */
#include "../expect.h"
#include "codec/fx.h"
#include "codec/fx_columns.h"
#include "coder.h"
#include "format/chunk.h"
#include "guessed.h"
#include "numbers.h"

#define HEAD 400u /* bytes: the header and the first tables */
#define COLUMNS 0x20u
#define SIGNLESS 0x40u

static uint8_t raw[CHUNK_SIZE_MAX];

static size_t encode(const struct coder *coder, enum cpu_level level, const uint8_t *src,
                     size_t raw_len, uint8_t *dst, size_t limit)
{
    const struct guessed *fx = container_of(coder, const struct guessed, coder);
    _cleanup_free_ void *scratch = xmalloc(FX_MATRIX_SCRATCH_LEN);
    memset(scratch, (int)level, FX_MATRIX_SCRATCH_LEN); /* nothing depends on what it was */
    size_t len =
        fx_encode_matrix(fx_kernels_of(level), &fx->guess, src, raw_len, scratch, dst, limit);
    return len;
}

static const struct guessed any = {{encode, guessed_decode}, {0}}; /* decoding needs no guess */

/* Makes `raw` of `kind`. */
static struct guessed fill(enum numbers kind, struct seeded *s, size_t len, size_t shift)
{
    struct guessed ret = {{encode, guessed_decode}, {0}};
    numbers_fill(kind, s, raw, len, shift);
    fx_look(raw, len, &ret.guess);
    return ret;
}

static const size_t lengths[] = {FX_RAW_MIN, 65536, 65536 + 4095, 300001, CHUNK_SIZE_MAX};

Test(matrix, all_content_comes_back_the_same_from_all_kernels, .timeout = 300)
{
    struct seeded s = {1};
    unsigned coded = 0;
    for (enum numbers kind = 0; kind < NUMBERS_KINDS; kind++)
        for (size_t i = 0; i < ARRAY_LEN(lengths); i++)
            for (size_t shift = 0; shift < 8; shift += 3) {
                struct guessed fx = fill(kind, &s, lengths[i], shift);
                coded += coder_round_trip(&fx.coder, raw, lengths[i]) > 0;
            }
    cr_assert_gt(coded, 20);
}

/* Whatever the guess is, it only costs room. */
Test(matrix, a_guess_may_be_wrong, .timeout = 300)
{
    struct seeded s = {2};
    for (unsigned round = 0; round < 200; round++) {
        size_t len = FX_RAW_MIN + seeded_below(&s, round % 4 ? 80000 : CHUNK_SIZE_MAX - FX_RAW_MIN);
        struct guessed fx =
            fill((enum numbers)(round % NUMBERS_KINDS), &s, len, seeded_below(&s, 8));
        fx.guess.width = (uint8_t)(1u << seeded_below(&s, 4));
        fx.guess.phase = (uint8_t)seeded_below(&s, fx.guess.width);
        fx.guess.coded[1] = UINT8_MAX;
        (void)coder_round_trip(&fx.coder, raw, len);
    }
}

static size_t without_columns(const struct fx_guess *guess, size_t len)
{
    static uint8_t stored[CHUNK_SIZE_MAX];
    size_t ret = fx_encode(fx_kernels_of(cpu_level()), guess, raw, len, stored, sizeof stored);
    return ret * 1000 / len;
}

/* The exponents have an entropy of 2 bits beside their rows and columns. 25 of 32 bits are left
 * where no element has a sign (0.781), 10 of 16 (0.625) of the others, and a little. */
Test(matrix, rows_are_found_and_exponents_shrink)
{
    static const struct {
        enum numbers kind;
        size_t permille, less; /* than fx without columns */
    } cases[] = {{NUMBERS_F32_MATRIX, 793, 40}, {NUMBERS_BF16_MATRIX, 648, 50}};
    struct seeded s = {3};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        for (size_t shift = 0; shift < 4; shift++) {
            struct guessed fx = fill(cases[i].kind, &s, sizeof raw, shift);
            size_t permille = coder_permille(&fx.coder, raw, sizeof raw);
            _cleanup_exact_ struct exact stored =
                coder_encode(&fx.coder, raw, sizeof raw, sizeof raw);
            cr_assert_leq(permille, cases[i].permille, "%zu: %zu", i, permille);
            cr_assert_leq(permille + cases[i].less, without_columns(&fx.guess, sizeof raw));
            assert_u64(get_le16(stored.bytes + 4), 192, "%zu: the length of a row", i);
        }
}

/* A number without a sign, at least as large as its row and its column make it. */
static void put_element(struct seeded *s, size_t i, uint64_t of_row, uint64_t of_column)
{
    uint64_t exponent =
        60 + of_row + of_column + (uint64_t)__builtin_ctzll(seeded_u64(s) | 1ull << 40);
    put_le32(raw + 4 * i, (uint32_t)(exponent << 23 | seeded_below(s, 1u << 23)));
}

/* As in embeddings, whose words are more or less frequent: means of rows that no code makes less of
 * do no harm. */
Test(matrix, rows_of_all_sizes)
{
    struct seeded s = {9};
    struct guessed fx = {{encode, guessed_decode}, {0}};
    for (size_t i = 0; i < sizeof raw / 4; i++)
        put_element(&s, i, i / 192 % 64, i % 192 * 2654435761u % 1019 % 13);
    fx_look(raw, sizeof raw, &fx.guess);
    size_t permille = coder_permille(&fx.coder, raw, sizeof raw);
    cr_assert_leq(permille, 800, "%zu", permille);
}

/* A slice that crosses tensors: a quarter of it is a matrix, the rest has no columns, but each 256
 * elements are of one size. Rows as long as those of the matrix do not help there. */
Test(matrix, shorter_rows_where_slices_cross_tensors)
{
    struct seeded s = {10};
    struct guessed fx = {{encode, guessed_decode}, {0}};
    numbers_fill(NUMBERS_F32_MATRIX, &s, raw, sizeof raw / 4, 0);
    for (size_t i = sizeof raw / 16; i < sizeof raw / 4; i++)
        put_element(&s, i, i / 256 * 2654435761u % 1021 % 20, 0);
    fx_look(raw, sizeof raw, &fx.guess);
    size_t permille = coder_permille(&fx.coder, raw, sizeof raw);
    _cleanup_exact_ struct exact stored = coder_encode(&fx.coder, raw, sizeof raw, sizeof raw);
    cr_assert_leq(permille, 825, "%zu", permille);
    assert_u64(get_le16(stored.bytes + 4), 128, "the length of a row");
}

/* Elements that were never touched say nothing of those beside them. */
Test(matrix, zeros_hide_no_rows)
{
    struct seeded s = {4};
    struct guessed fx = fill(NUMBERS_F32_MATRIX, &s, sizeof raw, 0);
    for (size_t row = 0; row < sizeof raw / 768; row++)
        if (seeded_below(&s, 5) == 0)
            memset(raw + 768 * row, 0, 768);
    size_t permille = coder_permille(&fx.coder, raw, sizeof raw);
    cr_assert_leq(permille + 10, without_columns(&fx.guess, sizeof raw), "%zu", permille);
}

Test(matrix, what_is_no_matrix_of_floats_is_left_to_fx)
{
    struct seeded s = {5};
    struct guessed few = fill(NUMBERS_F32_MATRIX, &s, FX_RAW_MIN, 0),
                   noise = fill(NUMBERS_NOISE, &s, sizeof raw, 0);
    assert_u64(coder_round_trip(&noise.coder, raw, sizeof raw), 0);
    struct guessed doubles = fill(NUMBERS_F64, &s, sizeof raw, 0);
    assert_u64(coder_round_trip(&doubles.coder, raw, sizeof raw), 0);
    assert_u64(coder_round_trip(&few.coder, raw, FX_RAW_MIN), 0, "too few rows");
}

static struct exact sample(enum numbers kind, uint64_t seed, size_t len)
{
    struct seeded s = {seed};
    struct guessed fx = fill(kind, &s, len, 1);
    struct exact ret = coder_encode(&fx.coder, raw, len, len);
    cr_assert_gt(ret.len, 0);
    return ret;
}

#define LEN 24001u /* with rows enough */

Test(matrix, truncated_and_longer, .timeout = 300)
{
    _cleanup_exact_ struct exact stored = sample(NUMBERS_F32_MATRIX, 6, LEN);
    for (size_t len = 0; len < stored.len; len += len < HEAD ? 1 : 997)
        assert_i64(coder_try(&any.coder, stored.bytes, len, LEN), -EBADMSG, "%zu", len);
    assert_i64(coder_try(&any.coder, stored.bytes, stored.len, LEN - 1), -EBADMSG);
    assert_i64(coder_try(&any.coder, stored.bytes, stored.len, LEN + 1), -EBADMSG);
    assert_i64(coder_try(&any.coder, stored.bytes, stored.len, CHUNK_SIZE_MAX), -EBADMSG);
}

static void expect_refused(const struct exact *stored, size_t at, uint8_t byte)
{
    _cleanup_exact_ struct exact bad = exact_of(stored->bytes, stored->len);
    bad.bytes[at] = byte;
    assert_i64(coder_try(&any.coder, bad.bytes, bad.len, LEN), -EBADMSG, "byte %zu: %u", at, byte);
}

Test(matrix, header)
{
    _cleanup_exact_ struct exact stored = sample(NUMBERS_F32_MATRIX, 7, LEN);
    assert_u64(stored.bytes[0], 2 | 0x10 | COLUMNS | SIGNLESS);
    expect_refused(&stored, 0, 2 | COLUMNS | SIGNLESS); /* signs are elsewhere */
    expect_refused(&stored, 0, 2 | 0x10 | 0x80 | COLUMNS | SIGNLESS);
    expect_refused(&stored, 2, 9); /* plane 0 is coded, too */
    expect_refused(&stored, 2, 2); /* the highest is not */
    expect_refused(&stored, 4, FX_ROW_MIN - 1);
    expect_refused(&stored, 5, FX_ROW_MAX >> 8); /* and 192 */
}

/* More rows than there is room for. */
Test(matrix, rows_are_counted)
{
    static uint8_t many[4096] = {0 | COLUMNS, 0, 1, 0, FX_ROW_MIN, 0};
    assert_i64(coder_try(&any.coder, many, sizeof many, CHUNK_SIZE_MAX), -EBADMSG);
}

Test(matrix, flipped_bits_reach_nothing_outside, .timeout = 300)
{
    struct seeded s = {8};
    for (unsigned round = 0; round < 4000; round++) {
        static struct exact stored;
        if (round % 200 == 0) {
            exact_done(&stored);
            stored = sample(round / 200 % 2 ? NUMBERS_F32_MATRIX : NUMBERS_BF16_MATRIX, round, LEN);
        }
        _cleanup_exact_ struct exact bad = coder_flip(&s, &stored, round, HEAD);
        (void)coder_try(&any.coder, bad.bytes, bad.len, LEN);
    }
}

static void expect_golden(const char *name, enum numbers kind, uint64_t seed)
{
    _cleanup_exact_ struct exact stored = sample(kind, seed, LEN);
    coder_expect_golden(&any.coder, name, &stored, raw, LEN);
}

Test(matrix, golden)
{
    expect_golden("fx_matrix_f32", NUMBERS_F32_MATRIX, 11);
    expect_golden("fx_matrix_bf16", NUMBERS_BF16_MATRIX, 12);
}
