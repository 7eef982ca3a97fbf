// SPDX-License-Identifier: Apache-2.0
#include "codec/dx.h"

#include "../base/campaign.h"
#include "../expect.h"
#include "coder.h"
#include "format/chunk.h"
#include "steps.h"

#define HEAD 300u /* bytes: the header and the first counts */

static uint8_t raw[CHUNK_SIZE_MAX], base[CHUNK_SIZE_MAX];

/* A guess, and dx with it, from `base`. */
struct guessed {
    struct coder coder;
    struct fx_guess guess;
};

static size_t encode(const struct coder *coder, enum cpu_level level, const uint8_t *src,
                     size_t raw_len, uint8_t *dst, size_t limit)
{
    const struct fx_guess *guess = &container_of(coder, const struct guessed, coder)->guess;
    const struct dx_kernels *kernels = dx_kernels_of(level);
    _cleanup_exact_ struct exact from = exact_of(base, raw_len);
    const struct dx_pair pair = {src, from.bytes, raw_len};
    assert_u64(dx_gate(kernels, guess, &pair), dx_gate(&dx_scalar, guess, &pair));
    return dx_encode(kernels, guess, &pair, dst, limit);
}

static int decode(const struct coder *coder, enum cpu_level level, const uint8_t *src, size_t len,
                  uint8_t *dst, size_t raw_len)
{
    (void)coder;
    _cleanup_exact_ struct exact from = exact_of(base, raw_len);
    const struct iovec all = {from.bytes, raw_len};
    return dx_decode(dx_kernels_of(level), src, len, &all, dst, raw_len);
}

static const struct guessed any = {{encode, decode}, {0}}; /* decoding needs no guess */

static struct guessed dx_with(struct fx_guess guess)
{
    return (struct guessed){{encode, decode}, guess};
}

/* Makes `base` of `kind`, and `raw` of it. The guess is that of fx for `raw`. */
static struct guessed fill(enum numbers kind, enum step step, struct seeded *s, size_t len,
                           size_t shift)
{
    struct fx_guess guess;
    numbers_fill(kind, s, base, len, shift);
    memcpy(raw, base, len);
    fx_look(raw, len, &guess);
    step_take(step, s, raw, len, &guess);
    return dx_with(guess);
}

static const size_t lengths[] = {FX_RAW_MIN, 4097,   5003,   65536 + 4095,
                                 131072 + 2, 300001, 524288, CHUNK_SIZE_MAX};

Test(dx, all_content_comes_back_the_same_from_all_kernels, .timeout = 600)
{
    struct seeded s = {1};
    unsigned count = 0, tried = 0, coded = 0;
    for (enum numbers kind = 0; kind < NUMBERS_KINDS; kind++)
        for (enum step step = 0; step < STEPS; step++)
            for (size_t i = 0; i < ARRAY_LEN(lengths); i++)
                for (size_t shift = 0; shift < 8; shift += 1 + lengths[i] / 16384) {
                    if (!campaign_takes(&count))
                        continue;
                    struct guessed dx = fill(kind, step, &s, lengths[i], shift);
                    tried++;
                    coded += coder_permille(&dx.coder, raw, lengths[i]) < 1000;
                }
    cr_assert_gt(coded, tried / 5, "%u of %u", coded, tried);
}

/* Whatever the guess is, and whatever is between the two chunks, it only costs room. */
Test(dx, a_guess_may_be_wrong, .timeout = 600)
{
    struct seeded s = {2};
    FOR_CAMPAIGN(round, 600)
    {
        size_t len =
            FX_RAW_MIN + seeded_below(&s, round % 10 ? 40000 : CHUNK_SIZE_MAX - FX_RAW_MIN + 1);
        enum step step = (enum step)seeded_below(&s, STEPS);
        struct guessed dx =
            fill((enum numbers)(round % NUMBERS_KINDS), step, &s, len, seeded_below(&s, 8));
        dx.guess.width = (uint8_t)(2u << seeded_below(&s, 3));
        dx.guess.phase = (uint8_t)seeded_below(&s, dx.guess.width);
        (void)coder_round_trip(&dx.coder, raw, len);
    }
}

/* The corner of all corners: each pattern of 16 bits after each of some others. */
Test(dx, every_element_of_16_bits_comes_back)
{
    static const uint16_t from[] = {0, 1, 0x7f80, 0x7fff, 0x8000, 0x8001, 0xff80, 0xffff, 0x3f80};
    struct guessed dx = dx_with((struct fx_guess){.width = 2});
    for (size_t k = 0; k < ARRAY_LEN(from); k++) {
        for (size_t i = 0; i < 65536; i++) {
            memcpy(raw + 2 * i, &(uint16_t){(uint16_t)i}, 2);
            memcpy(base + 2 * i, &from[k], 2);
        }
        (void)coder_round_trip(&dx.coder, raw, 131072);
        memcpy(raw, base, 131072); /* and back: nothing is left of a sample of zeros */
        cr_assert_lt(coder_permille(&dx.coder, raw, 131072), 5);
    }
}

/* What no sample foretells: elsewhere all is other than there. */
Test(dx, a_sample_that_misleads_costs_no_bytes_past_the_limit)
{
    struct seeded s = {3};
    for (size_t len = 65536; len <= CHUNK_SIZE_MAX; len *= 4) {
        struct guessed dx = fill(NUMBERS_F32, STEP_FEW, &s, len, 0);
        for (size_t i = 0; i < len; i += 4)
            if (i / 1024 % 4)
                seeded_fill(&s, raw + i, 4);
        (void)coder_round_trip(&dx.coder, raw, len);
    }
}

static void expect_ratio(enum numbers kind, enum step step, size_t permille_max)
{
    struct seeded s = {4};
    for (size_t shift = 0; shift < 8; shift++) {
        struct guessed dx = fill(kind, step, &s, sizeof raw, shift);
        const struct dx_pair pair = {raw, base, sizeof raw};
        uint32_t gate = dx_gate(&dx_scalar, &dx.guess, &pair);
        size_t permille = coder_permille(&dx.coder, raw, sizeof raw);
        cr_assert_leq(permille, permille_max, "kind %d, step %d: %zu", kind, step, permille);
        cr_assert_leq(permille, gate + 25, "kind %d, step %d: %zu, gate %u", kind, step, permille,
                      gate);
        cr_assert_leq(gate, permille + 25, "kind %d, step %d: %zu, gate %u", kind, step, permille,
                      gate);
    }
}

/* 2 % of elements that change by one have an entropy of 0.16 bits an element: 0.010 of 16 bits. */
Test(dx, what_hardly_changes_takes_hardly_any_room, .timeout = 300)
{
    expect_ratio(NUMBERS_BF16, STEP_FEW, 11);
    expect_ratio(NUMBERS_F32, STEP_FEW, 9);
    expect_ratio(NUMBERS_F64, STEP_FEW, 7);
    expect_ratio(NUMBERS_BF16, STEP_ONE, 2);
    expect_ratio(NUMBERS_F32, STEP_ONE, 2);
    expect_ratio(NUMBERS_F64, STEP_NONE, 1);
    expect_ratio(NUMBERS_NANS, STEP_NONE, 1);
}

/* nudge() draws the bits of a change between 1 and 7 of 8 each as often: half the bits, and their
 * number. */
Test(dx, changes_take_their_bits_and_little_more, .timeout = 300)
{
    expect_ratio(NUMBERS_BF16, STEP_SMALL, 720);
    expect_ratio(NUMBERS_F32, STEP_SMALL, 650);
}

Test(dx, the_gate_refuses_what_has_nothing_to_do_with_each_other)
{
    struct seeded s = {5};
    struct fx_guess guess;
    for (size_t i = 0; i < ARRAY_LEN(lengths); i++) {
        numbers_fill(NUMBERS_NOISE, &s, base, lengths[i], 0);
        numbers_fill(NUMBERS_F32, &s, raw, lengths[i], 0);
        fx_look(raw, lengths[i], &guess);
        const struct dx_pair pair = {raw, base, lengths[i]};
        cr_assert_gt(dx_gate(&dx_scalar, &guess, &pair), 970);
        guess.width = 1;
        assert_u64(dx_gate(&dx_scalar, &guess, &pair), 1000);
        struct guessed dx = dx_with(guess);
        assert_u64(coder_round_trip(&dx.coder, raw, lengths[i]), 0);
    }
}

static struct exact sample(enum numbers kind, enum step step, uint64_t seed, size_t len,
                           size_t shift)
{
    struct seeded s = {seed};
    struct guessed dx = fill(kind, step, &s, len, shift);
    return coder_encode(&dx.coder, raw, len, 2 * len);
}

static const struct {
    enum numbers kind;
    enum step step;
} some[] = {{NUMBERS_BF16, STEP_SMALL}, {NUMBERS_BF16, STEP_FEW},   {NUMBERS_F32, STEP_SMALL},
            {NUMBERS_F32, STEP_FEW},    {NUMBERS_F64, STEP_SMALL},  {NUMBERS_F64, STEP_ONE},
            {NUMBERS_BF16, STEP_PATCH}, {NUMBERS_MIXED, STEP_SMALL}};

Test(dx, truncated_and_longer, .timeout = 300)
{
    for (size_t k = 0; k < ARRAY_LEN(some); k++) {
        _cleanup_exact_ struct exact stored = sample(some[k].kind, some[k].step, 6, 6001, 1);
        coder_expect_whole(&any.coder, &stored, 6001);
    }
}

Test(dx, a_base_of_another_length)
{
    _cleanup_exact_ struct exact stored = sample(NUMBERS_BF16, STEP_SMALL, 7, 6000, 0);
    static uint8_t again[6000];
    static const size_t wrong[] = {0, 1, 5999, 6001, 12000};
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        _cleanup_exact_ struct exact other = exact_of(base, wrong[i]);
        const struct iovec all = {other.bytes, wrong[i]};
        assert_i64(dx_decode(&dx_scalar, stored.bytes, stored.len, &all, again, 6000), -EBADMSG);
    }
}

/* Not an error here: it is the chunk's name that tells. */
Test(dx, a_base_of_other_content_gives_other_content)
{
    for (size_t k = 0; k < ARRAY_LEN(some); k++) {
        _cleanup_exact_ struct exact stored = sample(some[k].kind, some[k].step, 8, 5000, 0),
                                     again = {0};
        seeded_fill(&(struct seeded){9}, base, 5000);
        assert_i64(coder_decode(&any.coder, stored.bytes, stored.len, &again, 5000), 0);
        cr_assert_neq(memcmp(again.bytes, raw, 5000), 0);
    }
}

static void expect_refused(const struct exact *stored, size_t at, uint8_t byte)
{
    _cleanup_exact_ struct exact bad = exact_of(stored->bytes, stored->len);
    bad.bytes[at] = byte;
    assert_i64(coder_try(&any.coder, bad.bytes, bad.len, 6000), -EBADMSG, "%u at %zu", byte, at);
}

/* Where the first code is. */
static size_t code_at(const struct exact *stored)
{
    size_t lengths_of_a_class = 8u * ((1u << stored->bytes[0]) - stored->bytes[2]) + 1;
    return 7 + stored->bytes[4] * lengths_of_a_class;
}

Test(dx, headers_that_make_no_sense)
{
    _cleanup_exact_ struct exact stored = sample(NUMBERS_F32, STEP_SMALL, 10, 6000, 0);
    assert_u64(stored.bytes[0], 2);
    expect_refused(&stored, 0, 0);
    expect_refused(&stored, 0, 4);
    expect_refused(&stored, 0, 0x12);
    expect_refused(&stored, 1, 4);
    expect_refused(&stored, 2, 4);
    expect_refused(&stored, 3, 3);
    expect_refused(&stored, 4, 0);
    expect_refused(&stored, 4, 17);
    expect_refused(&stored, 4, 255);
    expect_refused(&stored, 5, 8);
    size_t code = code_at(&stored);
    expect_refused(&stored, code, 0);
    expect_refused(&stored, code, 7);
    expect_refused(&stored, code + 1, 0);
    expect_refused(&stored, code + 1, 5);
}

/* Longer ones would make fields of more bits than an element has. */
Test(dx, lengths_that_an_element_does_not_have)
{
    _cleanup_exact_ struct exact stored = sample(NUMBERS_F32, STEP_SMALL, 11, 6000, 0);
    unsigned longest = 8u * (4u - stored.bytes[2]);
    for (size_t at = 7; at < code_at(&stored); at++)
        cr_assert_leq(stored.bytes[at], longest);
    expect_refused(&stored, 7, (uint8_t)(longest + 1));
    expect_refused(&stored, 7, 64);
    expect_refused(&stored, 7, 255);
}

/* One class has few ranks; the others mean nothing there. */
Test(dx, ranks_that_there_are_not)
{
    _cleanup_exact_ struct exact stored = sample(NUMBERS_BF16, STEP_FEW, 18, 6000, 0);
    assert_u64(stored.bytes[4], 1, "a class");
    size_t code = code_at(&stored);
    stored.bytes[3] = 0; /* as if they were ranks */
    expect_refused(&stored, code + 1 + stored.bytes[code], 18);
}

/* A change of one size is a longer difference where the base is less. One ranking for all takes
 * 687 here: the lengths are as many, and as frequent, as the exponents. */
Test(dx, a_change_of_one_size_is_foretold_by_the_exponent)
{
    struct seeded s = {19};
    struct guessed dx = dx_with((struct fx_guess){.width = 4});
    for (size_t i = 0; i < sizeof raw; i += 4) {
        uint64_t small = 4096 + seeded_below(&s, 4096);
        float x = (float)(small << seeded_below(&s, 12));
        float y = seeded_below(&s, 2) ? x + 4096 : x - 4096;
        memcpy(base + i, &x, 4);
        memcpy(raw + i, &y, 4);
    }
    size_t permille = coder_permille(&dx.coder, raw, sizeof raw);
    cr_assert_lt(permille, 630, "%zu", permille);
}

Test(dx, flipped_bits_reach_nothing_outside, .timeout = 600)
{
    struct seeded s = {12};
    unsigned well = 0;
    struct exact stored = {0};
    for (unsigned round = 0; round < 20000; round++) {
        if (round % 200 == 0) {
            exact_done(&stored);
            stored =
                sample(some[round / 200 % ARRAY_LEN(some)].kind,
                       some[round / 200 % ARRAY_LEN(some)].step, round, 4500, seeded_below(&s, 8));
        }
        if (stored.len == 0)
            continue;
        _cleanup_exact_ struct exact bad = coder_flip(&s, &stored, round, HEAD);
        well += coder_try(&any.coder, bad.bytes, bad.len, 4500) == 0;
    }
    exact_done(&stored);
    cr_assert_gt(well, 100, "flips in fields are seen by the chunk's name only: %u", well);
}

static void expect_golden(const char *name, enum numbers kind, enum step step, uint64_t seed,
                          size_t len, size_t shift)
{
    _cleanup_exact_ struct exact stored = sample(kind, step, seed, len, shift);
    coder_expect_golden(&any.coder, name, &stored, raw, len);
}

Test(dx, golden)
{
    expect_golden("dx_bf16", NUMBERS_BF16, STEP_SMALL, 13, 5000, 0);
    expect_golden("dx_bf16_few", NUMBERS_BF16, STEP_FEW, 14, 40001, 1);
    expect_golden("dx_f32", NUMBERS_F32, STEP_SMALL, 15, 5003, 3);
    expect_golden("dx_f32_few", NUMBERS_F32, STEP_FEW, 16, 40000, 0);
    expect_golden("dx_f64", NUMBERS_F64, STEP_SMALL, 17, 5001, 5);
}
