// SPDX-License-Identifier: Apache-2.0
#include "codec/ans.h"

#include "../base/seeded.h"
#include "../expect.h"
#include "exact.h"

#define MOST 20000u /* symbols */

/* How symbols are drawn: of 2^20, how many are symbol s. */
struct source {
    const char *name;
    uint32_t of[ANS_SYMBOLS_MAX];
};

static const struct source sources[] = {
    {"one symbol", {1 << 20}},
    {"one symbol, the last", {[ANS_SYMBOLS_MAX - 1] = 1 << 20}},
    {"even", {1 << 19, 1 << 19}},
    {"one in a hundred", {1038090, 10486}},
    {"one in ten thousand", {1048471, 50, 55}},
    {"alike",
     {1 << 16, 1 << 16, 1 << 16, 1 << 16, 1 << 16, 1 << 16, 1 << 16, 1 << 16, 1 << 16, 1 << 16,
      1 << 16, 1 << 16, 1 << 16, 1 << 16, 1 << 16, 1 << 16}},
    {"halves", {1 << 19, 1 << 18, 1 << 17, 1 << 16, 1 << 15, 1 << 14, 1 << 13, 1 << 13}},
    {"the middle", {[3] = 9, [9] = 1048500, [14] = 1, [20] = 66}},
};

static uint8_t symbols[MOST];

static void draw(const struct source *source, struct seeded *s, size_t count,
                 uint32_t counts[ANS_SYMBOLS_MAX])
{
    memset(counts, 0, ANS_SYMBOLS_MAX * sizeof *counts);
    for (size_t i = 0; i < count; i++) {
        uint32_t x = (uint32_t)seeded_below(s, 1 << 20);
        uint8_t symbol = 0;
        while (x >= source->of[symbol])
            x -= source->of[symbol++];
        symbols[i] = symbol;
        counts[symbol]++;
    }
}

/* Symbol i by code i % codes. Empty: no room. */
static struct exact put(const struct ans_code *codes, size_t n_codes, size_t count, size_t limit)
{
    struct exact room = exact_new(limit), ret = {0};
    struct ans_writer w;
    bool fits = true;
    ans_writer_init(&w, room.bytes, room.bytes + limit);
    for (size_t i = count; fits && i-- > 0;)
        fits = ans_put(&w, &codes[i % n_codes], i, symbols[i]);
    if (fits && ans_writer_end(&w))
        ret = exact_of(w.at, (size_t)(room.bytes + limit - w.at));
    exact_done(&room);
    return ret;
}

/* False: these are not `count` symbols. `ret_same`: they are those that were put. */
static bool get_any(const struct ans_code *codes, size_t n_codes, size_t count,
                    const struct exact *stored, bool *ret_same)
{
    struct cursor c = {.at = stored->bytes, .end = stored->bytes + stored->len};
    struct ans_reader r;
    static struct ans_table tables[2];
    *ret_same = true;
    for (size_t i = 0; i < n_codes; i++)
        ans_table_fill(&tables[i], &codes[i]);
    if (!ans_reader_init(&r, &c))
        return false;
    for (size_t i = 0; i < count; i++) {
        if (i % ANS_GROUP == 0 && !ans_reader_go_on(&r))
            return false;
        *ret_same &= ans_get(&r, &tables[i % n_codes], i) == symbols[i];
    }
    return ans_reader_end(&r);
}

static bool get(const struct ans_code *codes, size_t n_codes, size_t count, const uint8_t *bytes,
                size_t len)
{
    _cleanup_exact_ struct exact stored = exact_of(bytes, len);
    bool same;
    return get_any(codes, n_codes, count, &stored, &same) && same;
}

static void expect_round_trip(const struct ans_code *codes, size_t n_codes, size_t count,
                              size_t most)
{
    _cleanup_exact_ struct exact stored = put(codes, n_codes, count, 4 * MOST);
    cr_assert_gt(stored.len, 0);
    cr_assert_leq(stored.len, most, "%zu, at most %zu", stored.len, most);
    cr_assert(get(codes, n_codes, count, stored.bytes, stored.len));
    cr_assert_not(get(codes, n_codes, count, stored.bytes, stored.len - 1));
    _cleanup_exact_ struct exact longer = exact_new(stored.len + 1);
    memcpy(longer.bytes, stored.bytes, stored.len);
    longer.bytes[stored.len] = 0;
    cr_assert_not(get(codes, n_codes, count, longer.bytes, longer.len));
    _cleanup_exact_ struct exact tight = put(codes, n_codes, count, stored.len),
                                 too_tight = put(codes, n_codes, count, stored.len - 1);
    assert_u64(tight.len, stored.len);
    assert_u64(too_tight.len, 0);
}

/* Within a percent of the entropy, and 64 bytes of states: also far below a bit a symbol. */
Test(ans, symbols_take_their_entropy)
{
    struct seeded s = {1};
    static const size_t counts_of[] = {1, 15, 16, 17, 63, 64, 65, 1000, 6007, MOST};
    for (size_t k = 0; k < ARRAY_LEN(sources); k++)
        for (size_t i = 0; i < ARRAY_LEN(counts_of); i++) {
            uint32_t counts[ANS_SYMBOLS_MAX];
            struct ans_code code;
            draw(&sources[k], &s, counts_of[i], counts);
            uint64_t ideal = ans_entropy(counts), bits = ans_code_make(counts, &code);
            cr_assert_geq(bits + (counts_of[i] << 2), ideal, "%s", sources[k].name);
            cr_assert_leq(bits, ideal + ideal / 100 + (counts_of[i] << 16) / 500, "%s",
                          sources[k].name);
            expect_round_trip(&code, 1, counts_of[i], ANS_STATES_LEN + (bits >> 19) + 3);
        }
}

Test(ans, codes_take_turns)
{
    struct seeded s = {2};
    uint32_t first[ANS_SYMBOLS_MAX], second[ANS_SYMBOLS_MAX];
    struct ans_code codes[2];
    static uint8_t kept[MOST];
    draw(&sources[3], &s, MOST, first);
    uint64_t bits = ans_code_make(first, &codes[0]) / 2;
    memcpy(kept, symbols, MOST);
    draw(&sources[5], &s, MOST, second);
    bits += ans_code_make(second, &codes[1]) / 2;
    for (size_t i = 0; i < MOST; i += 2)
        symbols[i] = kept[i];
    expect_round_trip(codes, 2, MOST, ANS_STATES_LEN + (bits >> 19) * 102 / 100);
}

Test(ans, codes_are_read_as_they_were_written)
{
    struct seeded s = {3};
    for (size_t k = 0; k < ARRAY_LEN(sources); k++) {
        uint32_t counts[ANS_SYMBOLS_MAX];
        struct ans_code code, again;
        uint8_t bytes[100];
        draw(&sources[k], &s, 5000, counts);
        (void)ans_code_make(counts, &code);
        struct writer w = {.at = bytes, .end = bytes + sizeof bytes};
        cr_assert(ans_put_code(&w, &code));
        size_t len = (size_t)(w.at - bytes);
        cr_assert_leq(len, ans_code_len(counts) + 1);
        for (size_t part = 0; part <= len; part++) {
            _cleanup_exact_ struct exact stored = exact_of(bytes, part);
            struct cursor c = {.at = stored.bytes, .end = stored.bytes + part};
            assert_u64(ans_get_code(&c, &again), part == len, "%zu of %zu", part, len);
            w = (struct writer){.at = stored.bytes, .end = stored.bytes + part};
            assert_u64(ans_put_code(&w, &code), part == len);
        }
        cr_assert_arr_eq(&again, &code, sizeof code);
    }
}

static void expect_no_code(const void *bytes, size_t len)
{
    struct ans_code code;
    struct cursor c = {.at = bytes, .end = (const uint8_t *)bytes + len};
    cr_assert_not(ans_get_code(&c, &code));
}

Test(ans, codes_that_make_no_sense)
{
    static const uint8_t none[] = {0, 136, 0}, less[] = {1, 135, 255}, more[] = {1, 136, 1},
                         twice[] = {2, 136, 0, 136, 0}, many[36] = {33, 136, 0},
                         wide[] = {1, 255, 255};
    expect_no_code(none, sizeof none);
    expect_no_code(less, sizeof less);
    expect_no_code(more, sizeof more);
    expect_no_code(twice, sizeof twice);
    expect_no_code(many, sizeof many);
    expect_no_code(wide, sizeof wide);
    static const uint8_t good[] = {1, 136, 0};
    struct ans_code code;
    struct cursor c = {.at = good, .end = good + sizeof good};
    cr_assert(ans_get_code(&c, &code));
    assert_u64(code.frequencies[0], ANS_SUM);
}

/* Else a symbol could leave a state that none was written with. */
Test(ans, states_that_are_too_low)
{
    uint32_t counts[ANS_SYMBOLS_MAX] = {1, 1};
    struct ans_code code;
    (void)ans_code_make(counts, &code);
    memset(symbols, 0, 64);
    _cleanup_exact_ struct exact stored = put(&code, 1, 64, MOST);
    cr_assert(get(&code, 1, 64, stored.bytes, stored.len));
    for (size_t i = 0; i < ANS_STATES; i++) {
        _cleanup_exact_ struct exact bad = exact_of(stored.bytes, stored.len);
        put_le32(bad.bytes + 4 * i, ANS_STATE_MIN - 1);
        struct cursor c = {.at = bad.bytes, .end = bad.bytes + bad.len};
        struct ans_reader r;
        cr_assert_not(ans_reader_init(&r, &c));
    }
}

/* The states at the end tell: nearly all flips leave as many words to read. */
Test(ans, flipped_bits_are_noticed)
{
    struct seeded s = {4};
    uint32_t counts[ANS_SYMBOLS_MAX];
    struct ans_code code;
    draw(&sources[6], &s, 500, counts);
    (void)ans_code_make(counts, &code);
    _cleanup_exact_ struct exact stored = put(&code, 1, 500, MOST);
    for (size_t bit = 0; bit < 8 * stored.len; bit++) {
        bool same;
        stored.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        cr_assert_not(get_any(&code, 1, 500, &stored, &same), "bit %zu of %zu", bit,
                      8 * stored.len);
        stored.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
}

/* States are up to frequency * 2^21. */
Test(ans, inverses_divide_exactly)
{
    struct seeded s = {5};
    for (uint32_t frequency = 1; frequency < ANS_SUM; frequency++) {
        uint32_t counts[ANS_SYMBOLS_MAX] = {frequency, ANS_SUM - frequency};
        struct ans_code code;
        (void)ans_code_make(counts, &code);
        assert_u64(code.frequencies[0], frequency);
        for (unsigned i = 0; i < 400; i++) {
            uint64_t whole = i < 200 ? (1 << 21) - i : 1 + seeded_below(&s, 1 << 21);
            for (uint64_t x = whole * frequency - 1; x < whole * frequency + 1; x++)
                if (x < (uint64_t)frequency << 21)
                    assert_u64(x * code.inverses[0] >> ANS_INVERSE_BITS, x / frequency);
        }
    }
}
