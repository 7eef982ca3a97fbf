// SPDX-License-Identifier: Apache-2.0
#include "codec/fx.h"

#include "../base/campaign.h"
#include "../expect.h"
#include "coder.h"
#include "format/chunk.h"
#include "guessed.h"
#include "numbers.h"

#define HEAD 300u /* bytes: the header and the first counts */

static uint8_t raw[CHUNK_SIZE_MAX];

static size_t encode(const struct coder *coder, enum cpu_level level, const uint8_t *src,
                     size_t raw_len, uint8_t *dst, size_t limit)
{
    const struct guessed *fx = container_of(coder, const struct guessed, coder);
    return fx_encode(fx_kernels_of(level), &fx->guess, src, raw_len, dst, limit);
}

static const struct guessed any = {{encode, guessed_decode}, {0}}; /* decoding needs no guess */

static struct guessed fx_with(struct fx_guess guess)
{
    return (struct guessed){{encode, guessed_decode}, guess};
}

/* Makes `raw` of `kind`. */
static struct guessed fill(enum numbers kind, struct seeded *s, size_t len, size_t shift)
{
    struct fx_guess guess;
    numbers_fill(kind, s, raw, len, shift);
    fx_look(raw, len, &guess);
    return fx_with(guess);
}

static const size_t lengths[] = {FX_RAW_MIN,    4097,       5003,   65536,
                                 65536 + 4095,  131072 + 2, 300001, CHUNK_SIZE_MAX - 1,
                                 CHUNK_SIZE_MAX};

Test(fx, all_content_comes_back_the_same_from_all_kernels, .timeout = 300)
{
    struct seeded s = {1};
    unsigned count = 0;
    for (enum numbers kind = 0; kind < NUMBERS_KINDS; kind++)
        for (size_t i = 0; i < ARRAY_LEN(lengths); i++)
            for (size_t shift = 0; shift < 8; shift += 1 + lengths[i] / 65536) {
                if (!campaign_takes_here(&count))
                    continue;
                struct guessed fx = fill(kind, &s, lengths[i], shift);
                if (fx.guess.coded[0] | fx.guess.coded[1])
                    (void)coder_round_trip(&fx.coder, raw, lengths[i]);
            }
}

static bool decodes_to(const struct exact *stored, const uint8_t *bytes, size_t len)
{
    struct iovec iov[3] = {{(void *)(uintptr_t)bytes, 1},
                           {(void *)(uintptr_t)(bytes + 1), len / 2},
                           {(void *)(uintptr_t)(bytes + 1 + len / 2), len - 1 - len / 2}};
    bool results[CPU_LEVELS];
    for (enum cpu_level level = CPU_SCALAR; level <= cpu_level_of_machine(); level++) {
        struct rope rope;
        rope_init(&rope, iov, 3, 0);
        results[level] = fx_decodes_to(fx_kernels_of(level), stored->bytes, stored->len, &rope);
        assert_u64(results[level], results[CPU_SCALAR]);
    }
    return results[CPU_SCALAR];
}

Test(fx, it_decodes_to_its_own_bytes_alone, .timeout = 300)
{
    struct seeded s = {9};
    for (enum numbers kind = 0; kind < NUMBERS_KINDS; kind++) {
        size_t len = 131072 + 2 + seeded_below(&s, 70000);
        struct guessed fx = fill(kind, &s, len, kind);
        if (!fx_pays(&fx.guess))
            continue;
        _cleanup_exact_ struct exact stored = coder_encode(&fx.coder, raw, len, len);
        cr_assert(decodes_to(&stored, raw, len));
        cr_assert(!decodes_to(&stored, raw, len - 1));
        for (unsigned i = 0; i < 100; i++) {
            size_t at = i == 0 ? 0 : i == 1 ? len - 1 : seeded_below(&s, len);
            raw[at] ^= 1;
            cr_assert(!decodes_to(&stored, raw, len), "byte %zu", at);
            raw[at] ^= 1;
        }
        stored.len--;
        cr_assert(!decodes_to(&stored, raw, len));
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
        struct guessed fx = fx_with(guess);
        (void)coder_round_trip(&fx.coder, raw, len);
    }
}

/* What no sample foretells: values that the code was not made for, in all of the rest. */
Test(fx, a_sample_that_misleads_costs_no_bytes_past_the_limit)
{
    struct seeded s = {3};
    for (size_t len = 65536; len <= CHUNK_SIZE_MAX; len *= 4) {
        struct guessed fx = fill(NUMBERS_F32, &s, len, 0);
        for (size_t i = 0; i < len; i += 4)
            if (i / 256 % 4)
                raw[i + 3] = (uint8_t)seeded_u64(&s);
        (void)coder_round_trip(&fx.coder, raw, len);
        _cleanup_exact_ struct exact stored = coder_encode(&fx.coder, raw, len, len * 97 / 100);
        assert_u64(stored.len, 0);
    }
}

static void expect_guess(enum numbers kind, size_t shift, unsigned width, unsigned permille_max)
{
    struct seeded s = {4};
    struct guessed fx = fill(kind, &s, sizeof raw, shift);
    struct fx_guess guess = fx.guess;
    assert_u64(guess.width, width, "kind %d, shift %zu: width %u", kind, shift, guess.width);
    if (kind != NUMBERS_I64)
        assert_u64(guess.phase, (width - shift % width) % width, "kind %d, shift %zu: phase %u",
                   kind, shift, guess.phase);
    size_t permille = coder_permille(&fx.coder, raw, sizeof raw);
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
    for (size_t i = 0; i < ARRAY_LEN(lengths); i++) {
        struct fx_guess guess = fill(NUMBERS_NOISE, &s, lengths[i], 0).guess;
        cr_assert((guess.coded[0] | guess.coded[1]) == 0 || guess.permille > 970,
                  "%zu bytes: width %u, %u", lengths[i], guess.width, guess.permille);
    }
}

static struct exact sample(enum numbers kind, uint64_t seed, size_t len, size_t shift)
{
    struct seeded s = {seed};
    struct guessed fx = fill(kind, &s, len, shift);
    return coder_encode(&fx.coder, raw, len, len);
}

Test(fx, truncated_and_longer)
{
    static const enum numbers kinds[] = {NUMBERS_BF16, NUMBERS_F32_ROWS, NUMBERS_I64,
                                         NUMBERS_MIXED};
    for (size_t k = 0; k < ARRAY_LEN(kinds); k++) {
        _cleanup_exact_ struct exact stored = sample(kinds[k], 6, 6001, 1);
        coder_expect_whole(&any.coder, &stored, 6001);
    }
}

/* A mask that says of more or fewer values that they escape than are there shifts all behind it: it
 * is refused by each decoder. */
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
        _cleanup_exact_ struct exact bad = exact_of(stored.bytes, stored.len);
        bad.bytes[masks + i / 8] ^= (uint8_t)(1u << i % 8);
        assert_i64(coder_try(&any.coder, bad.bytes, bad.len, 4096), -EBADMSG, "value %zu", i);
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
        _cleanup_exact_ struct exact bad = coder_flip(&s, &stored, round, HEAD);
        (void)coder_try(&any.coder, bad.bytes, bad.len, 4500);
    }
}

static void expect_golden(const char *name, enum numbers kind, uint64_t seed, size_t len,
                          size_t shift)
{
    _cleanup_exact_ struct exact stored = sample(kind, seed, len, shift);
    coder_expect_golden(&any.coder, name, &stored, raw, len);
}

Test(fx, golden)
{
    expect_golden("fx_bf16", NUMBERS_BF16, 11, 5000, 0);
    expect_golden("fx_f32_rows", NUMBERS_F32_ROWS, 12, 5003, 3);
    expect_golden("fx_f64", NUMBERS_F64, 13, 5001, 5);
    expect_golden("fx_i64", NUMBERS_I64, 14, 5000, 0);
    expect_golden("fx_bytes", NUMBERS_BYTES, 15, 5001, 0);
}
