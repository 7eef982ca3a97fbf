// SPDX-License-Identifier: Apache-2.0
/* The form of dx with a code for each class of exponents. dx.c has what holds of both forms. */
#include "codec/dx_ans.h"

#include "../base/campaign.h"
#include "../expect.h"
#include "codec/dx.h"
#include "coder.h"
#include "format/chunk.h"
#include "steps.h"

#define HEAD 300u /* bytes: the header, fields and codes of a chunk of few */
#define HEADER_LEN 8u

static uint8_t raw[CHUNK_SIZE_MAX], base[CHUNK_SIZE_MAX];

/* Always in this form, with elements that begin at a phase. */
struct form {
    struct coder coder;
    uint8_t phase;
};

static size_t encode(const struct coder *coder, enum cpu_level level, const uint8_t *src,
                     size_t raw_len, uint8_t *dst, size_t limit)
{
    (void)level;
    struct dx_ans_plan plan;
    _cleanup_exact_ struct exact from = exact_of(base, raw_len);
    size_t planned = dx_ans_plan_make(src, from.bytes, raw_len,
                                      container_of(coder, const struct form, coder)->phase, &plan);
    size_t len = dx_ans_encode(&plan, src, from.bytes, raw_len, dst, limit);
    if (len)
        cr_assert(len <= planned + planned / 100 + 20 && planned <= len + len / 100 + 20,
                  "%zu, planned %zu", len, planned);
    return len;
}

static int decode(const struct coder *coder, enum cpu_level level, const uint8_t *src, size_t len,
                  uint8_t *dst, size_t raw_len)
{
    (void)coder;
    _cleanup_exact_ struct exact from = exact_of(base, raw_len);
    const struct iovec all = {from.bytes, raw_len};
    return dx_decode(dx_kernels_of(level), src, len, &all, dst, raw_len);
}

static const struct form forms[2] = {{{encode, decode}, 0}, {{encode, decode}, 1}};
static const struct coder *const any = &forms[0].coder; /* to decode with */

static void fill(enum numbers kind, enum step step, struct seeded *s, size_t len, size_t shift)
{
    struct fx_guess guess = {.width = 2, .phase = shift % 2};
    numbers_fill(kind, s, base, len, shift);
    memcpy(raw, base, len);
    step_take(step, s, raw, len, &guess);
}

static struct exact sample(enum numbers kind, enum step step, uint64_t seed, size_t len,
                           size_t shift)
{
    struct seeded s = {seed};
    fill(kind, step, &s, len, shift);
    struct exact ret = coder_encode(&forms[shift % 2].coder, raw, len, 2 * len);
    cr_assert_gt(ret.len, 0);
    return ret;
}

static const size_t lengths[] = {FX_RAW_MIN, 4097, 5003, 65536 + 127, 300001, CHUNK_SIZE_MAX};

/* Also where nothing is as it was: then nearly every element has a field. */
Test(dx_ans, all_content_comes_back, .timeout = 300)
{
    struct seeded s = {1};
    unsigned count = 0;
    for (enum numbers kind = 0; kind < NUMBERS_KINDS; kind++)
        for (enum step step = 0; step < STEPS; step++)
            for (size_t i = 0; i < ARRAY_LEN(lengths); i++) {
                if (!campaign_takes(&count))
                    continue;
                size_t shift = (size_t)step + i;
                fill(kind, step, &s, lengths[i], shift);
                (void)coder_round_trip(&forms[shift % 2].coder, raw, lengths[i]);
            }
}

/* Each pattern of 16 bits after each of some others, and the other way round. */
Test(dx_ans, every_element_comes_back)
{
    static const uint16_t from[] = {0, 1, 0x7f80, 0x7fff, 0x8000, 0x8001, 0xff80, 0xffff, 0x3f80};
    for (size_t k = 0; k < ARRAY_LEN(from); k++)
        for (unsigned turn = 0; turn < 2; turn++) {
            for (size_t i = 0; i < 65536; i++) {
                put_le16((turn ? base : raw) + 2 * i, (uint16_t)i);
                put_le16((turn ? raw : base) + 2 * i, from[k]);
            }
            cr_assert_gt(coder_round_trip(any, raw, 131072), 0);
        }
}

/* Half of the elements never change. The others do, by one of 256: 8 bits each, and half of that
 * for all. One code for all would take half a bit more. */
Test(dx_ans, exponents_tell_what_changes)
{
    struct seeded s = {2};
    for (size_t i = 0; i < CHUNK_SIZE_MAX; i += 2) {
        bool is_small = seeded_below(&s, 2);
        uint64_t x = (is_small ? 0x3a00 : 0x3c00) + seeded_below(&s, 128);
        put_le16(base + i, (uint16_t)x);
        put_le16(raw + i, (uint16_t)(x + (is_small ? seeded_below(&s, 256) - 128 : 0)));
    }
    size_t permille = coder_permille(any, raw, CHUNK_SIZE_MAX);
    cr_assert_leq(permille, 255, "%zu", permille);
}

/* Elements of all exponents; the larger one is, the more does it change. */
static void fill_all_exponents(struct seeded *s, size_t len)
{
    for (size_t i = 0; i + 2 <= len; i += 2) {
        uint64_t e = seeded_below(s, 256), by = seeded_below(s, 1 + e / 4), x = e << 7 | 64;
        put_le16(base + i, (uint16_t)x);
        put_le16(raw + i, (uint16_t)(seeded_below(s, 2) ? x + by : x - by));
    }
}

/* The logarithm of 1 + e / 4 is 4.7 on average, and a sign has a bit: 0.355 of 16 bits. */
Test(dx_ans, exponents_that_are_alike_share_a_code)
{
    struct seeded s = {3};
    fill_all_exponents(&s, CHUNK_SIZE_MAX);
    _cleanup_exact_ struct exact stored = coder_encode(any, raw, CHUNK_SIZE_MAX, CHUNK_SIZE_MAX);
    assert_u64(stored.bytes[2], DX_ANS_CODES_MAX);
    size_t permille = coder_permille(any, raw, CHUNK_SIZE_MAX);
    cr_assert_leq(permille, 365, "%zu", permille);
}

/* The smaller form is chosen, whatever room there is. */
Test(dx_ans, it_is_chosen_where_it_is_smaller)
{
    static const struct {
        enum numbers kind;
        enum step step;
        bool is_chosen;
    } cases[] = {{NUMBERS_BF16, STEP_FEW, true},    {NUMBERS_BF16, STEP_SMALL, false},
                 {NUMBERS_BF16, STEP_NONE, true},   {NUMBERS_F32, STEP_FEW, false},
                 {NUMBERS_BF16, STEP_NOISE, false}, {NUMBERS_F64, STEP_FEW, false}};
    for (size_t k = 0; k < ARRAY_LEN(cases); k++) {
        struct seeded s = {4};
        struct fx_guess guess;
        static uint8_t stored[2 * CHUNK_SIZE_MAX];
        numbers_fill(cases[k].kind, &s, base, sizeof base, 0);
        memcpy(raw, base, sizeof raw);
        fx_look(raw, sizeof raw, &guess);
        step_take(cases[k].step, &s, raw, sizeof raw, &guess);
        const struct dx_pair pair = {raw, base, sizeof raw};
        size_t len = dx_encode(&dx_scalar, &guess, &pair, stored, sizeof stored);
        assert_u64(len > 0 && (stored[0] & DX_ANS), cases[k].is_chosen, "case %zu", k);
        assert_u64(dx_encode(&dx_scalar, &guess, &pair, stored, len), len);
        assert_u64(dx_encode(&dx_scalar, &guess, &pair, stored, len - 1), 0);
    }
}

/* --- what is no such form --------------------------------------------------------------------- */

Test(dx_ans, truncated_and_longer, .timeout = 300)
{
    static const enum step steps[] = {STEP_NONE, STEP_FEW, STEP_SMALL, STEP_PATCH};
    for (size_t k = 0; k < ARRAY_LEN(steps); k++) {
        _cleanup_exact_ struct exact stored = sample(NUMBERS_BF16, steps[k], 5, 6001, 1);
        coder_expect_whole(any, &stored, 6001);
    }
}

/* Symbols are read by other codes then: it ends in other states, if there are several codes. */
Test(dx_ans, another_base_is_noticed)
{
    fill_all_exponents(&(struct seeded){6}, 300000);
    _cleanup_exact_ struct exact stored = coder_encode(any, raw, 300000, 300000);
    seeded_fill(&(struct seeded){7}, base, 300000);
    _cleanup_exact_ struct exact again = {0};
    int r = coder_decode(any, stored.bytes, stored.len, &again, 300000);
    cr_assert(r == -EBADMSG || memcmp(again.bytes, raw, 300000) != 0);
    _cleanup_exact_ struct exact other = exact_of(base, 299999);
    const struct iovec all = {other.bytes, 299999};
    assert_i64(dx_decode(&dx_scalar, stored.bytes, stored.len, &all, again.bytes, 300000),
               -EBADMSG);
}

#define LEN 40001u

static void expect_refused(const struct exact *stored, size_t at, uint8_t byte)
{
    _cleanup_exact_ struct exact bad = exact_of(stored->bytes, stored->len);
    cr_assert_neq(bad.bytes[at], byte);
    bad.bytes[at] = byte;
    assert_i64(coder_try(any, bad.bytes, bad.len, LEN), -EBADMSG, "%u at %zu", byte, at);
}

/* Where the codes are. */
static size_t codes_at(const struct exact *stored)
{
    size_t rest = (LEN - stored->bytes[1]) % 128;
    return HEADER_LEN + stored->bytes[1] + rest + get_le32(stored->bytes + 4);
}

Test(dx_ans, headers_that_make_no_sense)
{
    _cleanup_exact_ struct exact stored = sample(NUMBERS_BF16, STEP_SMALL, 8, LEN, 1);
    assert_u64(stored.bytes[0], DX_ANS | 1);
    assert_u64(stored.bytes[1], 1);
    expect_refused(&stored, 0, DX_ANS);
    expect_refused(&stored, 0, DX_ANS | 2);
    expect_refused(&stored, 0, DX_ANS | 0x21);
    expect_refused(&stored, 1, 2);
    expect_refused(&stored, 1, 255);
    expect_refused(&stored, 2, 0);
    expect_refused(&stored, 2, DX_ANS_CODES_MAX + 1);
    expect_refused(&stored, 2, 255);
    expect_refused(&stored, 3, 1);
    expect_refused(&stored, 4, (uint8_t)(stored.bytes[4] - 1));
    expect_refused(&stored, 4, (uint8_t)(stored.bytes[4] + 1));
    expect_refused(&stored, 7, 255);
}

/* 64 elements, all with the last symbol of so many; each code is of it alone, so that the states
 * stay as they are. Fields are zeros. */
static int try_made(unsigned symbols, const uint8_t *last, uint8_t codes)
{
    uint8_t stored[512] = {DX_ANS | 1, 0, codes}, *p = stored + HEADER_LEN;
    size_t fields = symbols > DX_ANS_DIRECT ? 8 * (symbols - 1 - 12) : 0;
    put_le32(stored + 4, (uint32_t)fields);
    p += fields;
    memcpy(p, last, codes - 1u);
    p += codes - 1;
    for (unsigned i = 0; i < codes; i++) {
        *p = (uint8_t)symbols;
        p[symbols] = 128 + (ANS_SUM >> 8);
        p += symbols + 2;
    }
    for (size_t i = 0; i < ANS_STATES; i++, p += 4)
        put_le32(p, ANS_STATE_MIN);
    return coder_try(any, stored, (size_t)(p - stored), 128);
}

/* Their differences would have 17 bits and more. */
Test(dx_ans, symbols_that_there_are_not)
{
    for (unsigned symbols = 1; symbols <= ANS_SYMBOLS_MAX; symbols++)
        assert_i64(try_made(symbols, (const uint8_t[1]){0}, 1),
                   symbols <= DX_ANS_SYMBOLS ? 0 : -EBADMSG, "%u", symbols);
}

Test(dx_ans, codes_of_no_exponent)
{
    assert_i64(try_made(1, (const uint8_t[]){0, 254}, 3), 0);
    assert_i64(try_made(1, (const uint8_t[]){5, 5}, 3), -EBADMSG);
    assert_i64(try_made(1, (const uint8_t[]){5, 4}, 3), -EBADMSG);
    assert_i64(try_made(1, (const uint8_t[]){5, 255}, 3), -EBADMSG);
}

static void expect_fields_refused(const struct exact *stored, size_t at, size_t len)
{
    _cleanup_exact_ struct exact bad = exact_new(stored->len + len);
    memcpy(bad.bytes, stored->bytes, at);
    memset(bad.bytes + at, 0, len);
    memcpy(bad.bytes + at + len, stored->bytes + at, stored->len - at);
    put_le32(bad.bytes + 4, (uint32_t)(get_le32(bad.bytes + 4) + len));
    assert_i64(coder_try(any, bad.bytes, bad.len, LEN), -EBADMSG, "%zu more", len);
}

Test(dx_ans, fields_are_exactly_as_many_as_symbols_say)
{
    _cleanup_exact_ struct exact stored = sample(NUMBERS_BF16, STEP_SMALL, 10, LEN, 0);
    size_t at = codes_at(&stored);
    cr_assert_gt(get_le32(stored.bytes + 4), 100);
    expect_fields_refused(&stored, at, 1);
    expect_fields_refused(&stored, at, 100);
    _cleanup_exact_ struct exact less = exact_new(stored.len - 1);
    memcpy(less.bytes, stored.bytes, at - 1);
    memcpy(less.bytes + at - 1, stored.bytes + at, stored.len - at);
    put_le32(less.bytes + 4, get_le32(less.bytes + 4) - 1);
    assert_i64(coder_try(any, less.bytes, less.len, LEN), -EBADMSG);
}

Test(dx_ans, flipped_bits_reach_nothing_outside, .timeout = 600)
{
    struct seeded s = {11};
    struct exact stored = {0};
    unsigned well = 0;
    for (unsigned round = 0; round < 10000; round++) {
        if (round % 200 == 0) {
            exact_done(&stored);
            stored = sample(NUMBERS_BF16, (enum step)(round / 200 % STEPS), round, 4500,
                            seeded_below(&s, 8));
        }
        _cleanup_exact_ struct exact bad = coder_flip(&s, &stored, round, HEAD);
        well += coder_try(any, bad.bytes, bad.len, 4500) == 0;
    }
    exact_done(&stored);
    cr_assert_gt(well, 100, "flips in fields are seen by the chunk's name only: %u", well);
    cr_assert_lt(well, 7000, "and most others here: %u", well);
}

/* --- golden files ----------------------------------------------------------------------------- */

Test(dx_ans, golden)
{
    _cleanup_exact_ struct exact few = sample(NUMBERS_BF16, STEP_FEW, 12, LEN, 1);
    coder_expect_golden(any, "dx_ans_few", &few, raw, LEN);
    _cleanup_exact_ struct exact small = sample(NUMBERS_BF16, STEP_SMALL, 13, 5000, 0);
    coder_expect_golden(any, "dx_ans_small", &small, raw, 5000);
}
