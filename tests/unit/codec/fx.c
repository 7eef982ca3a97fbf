// SPDX-License-Identifier: Apache-2.0
#include "codec/fx.h"

#include "../expect.h"
#include "../base/golden.h"
#include "exact.h"
#include "format/chunk.h"
#include "numbers.h"

static uint8_t raw[CHUNK_SIZE_MAX];

/* With the kernels of all levels that the machine has; they must agree. Empty where it does not fit
 * in `limit`. */
static struct exact encode(const struct fx_guess *guess, size_t raw_len, size_t limit)
{
    _cleanup_exact_ struct exact src = exact_of(raw, raw_len);
    struct exact first = {xmalloc(limit ? limit : 1), 0};
    first.len = fx_encode(&fx_scalar, guess, src.bytes, raw_len, first.bytes, limit);
    cr_assert_leq(first.len, limit);
    for (enum cpu_level level = CPU_SCALAR + 1; level <= cpu_level_of_machine(); level++) {
        _cleanup_free_ uint8_t *other = xmalloc(limit ? limit : 1);
        size_t len = fx_encode(fx_kernels_of(level), guess, src.bytes, raw_len, other, limit);
        assert_u64(len, first.len, "%s: %zu, scalar: %zu", cpu_level_name(level), len, first.len);
        cr_assert_arr_eq(other, first.bytes, len, "%s", cpu_level_name(level));
    }
    return first;
}

/* The same result from all, and the same bytes where it is 0. */
static int decode(const uint8_t *bytes, size_t len, struct exact *ret, size_t raw_len)
{
    _cleanup_exact_ struct exact src = exact_of(bytes, len);
    *ret = (struct exact){xmalloc(raw_len ? raw_len : 1), raw_len};
    int r = fx_decode(&fx_scalar, src.bytes, len, ret->bytes, raw_len);
    cr_assert(r == 0 || r == -EBADMSG);
    for (enum cpu_level level = CPU_SCALAR + 1; level <= cpu_level_of_machine(); level++) {
        _cleanup_free_ uint8_t *other = xmalloc(raw_len ? raw_len : 1);
        assert_i64(fx_decode(fx_kernels_of(level), src.bytes, len, other, raw_len), r, "%s",
                   cpu_level_name(level));
        if (r == 0)
            cr_assert_arr_eq(other, ret->bytes, raw_len, "%s", cpu_level_name(level));
    }
    return r;
}

/* Returns stored bytes for 1,000 raw ones; 1000: it cannot be coded. */
static size_t round_trip(const struct fx_guess *guess, size_t raw_len)
{
    _cleanup_exact_ struct exact stored = encode(guess, raw_len, 2 * raw_len);
    if (stored.len == 0)
        return 1000;
    _cleanup_exact_ struct exact again = {0};
    assert_i64(decode(stored.bytes, stored.len, &again, raw_len), 0);
    cr_assert_arr_eq(again.bytes, raw, raw_len);
    _cleanup_exact_ struct exact tight = encode(guess, raw_len, stored.len);
    assert_u64(tight.len, stored.len);
    _cleanup_exact_ struct exact too_tight = encode(guess, raw_len, stored.len - 1);
    assert_u64(too_tight.len, 0);
    return stored.len * 1000 / raw_len;
}

static const size_t lengths[] = {FX_RAW_MIN,    4097,       5003,   65536,
                                 65536 + 4095,  131072 + 2, 300001, CHUNK_SIZE_MAX - 1,
                                 CHUNK_SIZE_MAX};

Test(fx, all_content_comes_back_the_same_from_all_kernels, .timeout = 300)
{
    struct seeded s = {1};
    for (enum numbers kind = 0; kind < NUMBERS_KINDS; kind++)
        for (size_t i = 0; i < ARRAY_LEN(lengths); i++)
            for (size_t shift = 0; shift < 8; shift += 1 + lengths[i] / 65536) {
                struct fx_guess guess;
                numbers_fill(kind, &s, raw, lengths[i], shift);
                fx_look(raw, lengths[i], &guess);
                if (guess.coded[0] | guess.coded[1])
                    (void)round_trip(&guess, lengths[i]);
            }
}

/* Whatever the guess is, it only costs room. */
Test(fx, a_guess_may_be_wrong, .timeout = 300)
{
    struct seeded s = {2};
    for (unsigned round = 0; round < 600; round++) {
        size_t len =
            FX_RAW_MIN + seeded_below(&s, round % 10 ? 40000 : CHUNK_SIZE_MAX - FX_RAW_MIN + 1);
        struct fx_guess guess = {.width = (uint8_t)(1u << seeded_below(&s, 4))};
        guess.phase = (uint8_t)seeded_below(&s, guess.width);
        guess.coded[seeded_below(&s, 2)] = (uint8_t)(1 + seeded_below(&s, (1u << guess.width) - 1));
        numbers_fill((enum numbers)(round % NUMBERS_KINDS), &s, raw, len, seeded_below(&s, 8));
        (void)round_trip(&guess, len);
    }
}

/* What no sample foretells: values that the code was not made for, in all of the rest. */
Test(fx, a_sample_that_misleads_costs_no_bytes_past_the_limit)
{
    struct seeded s = {3};
    struct fx_guess guess;
    for (size_t len = 65536; len <= CHUNK_SIZE_MAX; len *= 4) {
        numbers_fill(NUMBERS_F32, &s, raw, len, 0);
        fx_look(raw, len, &guess);
        for (size_t i = 0; i < len; i += 4)
            if (i / 256 % 4)
                raw[i + 3] = (uint8_t)seeded_u64(&s);
        (void)round_trip(&guess, len);
        _cleanup_exact_ struct exact stored = encode(&guess, len, len * 97 / 100);
        assert_u64(stored.len, 0);
    }
}

static void expect_guess(enum numbers kind, size_t shift, unsigned width, unsigned permille_max)
{
    struct seeded s = {4};
    struct fx_guess guess;
    numbers_fill(kind, &s, raw, sizeof raw, shift);
    fx_look(raw, sizeof raw, &guess);
    assert_u64(guess.width, width, "kind %d, shift %zu: width %u", kind, shift, guess.width);
    if (kind != NUMBERS_I64)
        assert_u64(guess.phase, (width - shift % width) % width, "kind %d, shift %zu: phase %u",
                   kind, shift, guess.phase);
    size_t permille = round_trip(&guess, sizeof raw);
    cr_assert_leq(permille, permille_max, "kind %d, shift %zu: %zu", kind, shift, permille);
    cr_assert_leq(permille, guess.permille + 20, "kind %d: %zu, guessed %u", kind, permille,
                  guess.permille);
}

/* The exponents here have an entropy of 2 bits: 10 of 16 and 26 of 32 bits are left (0.625, 0.8125
 * and a little). */
Test(fx, width_and_phase_are_found_and_exponents_shrink)
{
    for (size_t shift = 0; shift < 8; shift++) {
        expect_guess(NUMBERS_BF16, shift, 2, 640);
        expect_guess(NUMBERS_F32, shift, 4, 820);
        expect_guess(NUMBERS_F32_ROWS, shift, 4, 815);
        expect_guess(NUMBERS_F64, shift, 8, 895);
        expect_guess(NUMBERS_I64, shift, 8, 400);
        expect_guess(NUMBERS_BYTES, shift, 1, 420);
    }
}

Test(fx, noise_is_not_coded)
{
    struct seeded s = {5};
    struct fx_guess guess;
    for (size_t i = 0; i < ARRAY_LEN(lengths); i++) {
        numbers_fill(NUMBERS_NOISE, &s, raw, lengths[i], 0);
        fx_look(raw, lengths[i], &guess);
        cr_assert((guess.coded[0] | guess.coded[1]) == 0 || guess.permille > 970,
                  "%zu bytes: width %u, %u", lengths[i], guess.width, guess.permille);
    }
}

static struct exact sample(enum numbers kind, uint64_t seed, size_t len, size_t shift)
{
    struct seeded s = {seed};
    struct fx_guess guess;
    numbers_fill(kind, &s, raw, len, shift);
    fx_look(raw, len, &guess);
    return encode(&guess, len, len);
}

Test(fx, truncated_and_longer)
{
    static const enum numbers kinds[] = {NUMBERS_BF16, NUMBERS_F32_ROWS, NUMBERS_I64,
                                         NUMBERS_MIXED};
    for (size_t k = 0; k < ARRAY_LEN(kinds); k++) {
        _cleanup_exact_ struct exact stored = sample(kinds[k], 6, 6001, 1);
        cr_assert_gt(stored.len, 0);
        for (size_t len = 0; len < stored.len; len++) {
            _cleanup_exact_ struct exact again = {0};
            assert_i64(decode(stored.bytes, len, &again, 6001), -EBADMSG, "%zu of %zu", len,
                       stored.len);
        }
        _cleanup_exact_ struct exact shorter = {0}, longer = {0}, none = {0};
        assert_i64(decode(stored.bytes, stored.len, &shorter, 6000), -EBADMSG);
        assert_i64(decode(stored.bytes, stored.len, &longer, 6002), -EBADMSG);
        assert_i64(decode(stored.bytes, stored.len, &none, 1), -EBADMSG);
    }
}

/* A mask that says of more or fewer values that they escape than are there shifts all behind it: it
 * is refused, whoever decodes. */
Test(fx, masks_and_counts_agree)
{
    _cleanup_exact_ struct exact stored = sample(NUMBERS_BF16, 8, 4096, 0);
    const uint8_t *code = stored.bytes + 4;
    size_t ranks = 0, levels = code[0], elements = 4096 / 2;
    for (size_t i = 1; i <= levels; i++)
        ranks += (1u << code[i]) - 1;
    assert_u64(code[1], 1, "the first level has one bit, so each bit is an escape");
    size_t masks = 4 + 1 + levels + ranks + elements + 2 * levels;
    for (size_t i = 0; i < elements; i++) {
        _cleanup_exact_ struct exact bad = exact_of(stored.bytes, stored.len), again = {0};
        bad.bytes[masks + i / 8] ^= (uint8_t)(1u << i % 8);
        assert_i64(decode(bad.bytes, bad.len, &again, 4096), -EBADMSG, "value %zu", i);
    }
}

Test(fx, flipped_bits_reach_nothing_outside, .timeout = 300)
{
    struct seeded s = {7};
    for (unsigned round = 0; round < 20000; round++) {
        static struct exact stored;
        if (round % 200 == 0) {
            exact_done(&stored);
            stored = sample((enum numbers)(1 + round / 200 % (NUMBERS_KINDS - 1)), round, 4500,
                            seeded_below(&s, 8));
        }
        if (stored.len == 0)
            continue;
        _cleanup_exact_ struct exact bad = exact_of(stored.bytes, stored.len), again = {0};
        size_t among = round % 2 ? min_u64(stored.len, 300)
                                 : stored.len; /* the header and the first counts, or all */
        for (uint64_t flips = 1 + seeded_below(&s, 4); flips > 0; flips--)
            bad.bytes[seeded_below(&s, among)] ^= (uint8_t)(1u << seeded_below(&s, 8));
        (void)decode(bad.bytes, bad.len, &again, 4500);
    }
}

static void expect_golden(const char *name, enum numbers kind, uint64_t seed, size_t len,
                          size_t shift)
{
    _cleanup_exact_ struct exact stored = sample(kind, seed, len, shift), again = {0};
    golden_compare(name, stored.bytes, stored.len);
    size_t golden_len;
    _cleanup_free_ char *golden = golden_read(name, &golden_len);
    assert_i64(decode((const uint8_t *)golden, golden_len, &again, len), 0);
    cr_assert_arr_eq(again.bytes, raw, len);
}

Test(fx, golden)
{
    expect_golden("fx_bf16", NUMBERS_BF16, 11, 5000, 0);
    expect_golden("fx_f32_rows", NUMBERS_F32_ROWS, 12, 5003, 3);
    expect_golden("fx_f64", NUMBERS_F64, 13, 5001, 5);
    expect_golden("fx_i64", NUMBERS_I64, 14, 5000, 0);
    expect_golden("fx_bytes", NUMBERS_BYTES, 15, 5001, 0);
}
