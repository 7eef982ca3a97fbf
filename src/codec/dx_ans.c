// SPDX-License-Identifier: Apache-2.0
/*   header | bytes before the first element | the rest as it is | fields | codes | symbols
 *
 * Header:
 *
 *   OFFSET SIZE
 *        0    1  0x11: this form, elements of 2 bytes
 *        1    1  phase: bytes before the first element, 0 or 1
 *        2    1  number of codes, 1 to 16
 *        3    1  zero
 *        4    4  bytes of the fields
 *
 * The difference of an element to the base's element is made as in the other form (dx.c), zigzag.
 * If it is less than 16, it is the symbol. Else the symbol is 11 more than the number of its bits,
 * and its bits below the highest one are a field: the first element in the lowest bits, with less
 * than 8 unused bits behind the last.
 *
 * The exponent of the base's element, its highest 8 bits behind the sign, selects the code. Codes
 * cover exponents in ascending order. The codes part has the last exponent of each code but the
 * last one, a byte each, and then all codes (ans.c). Symbols are those of all elements; fewer than
 * 64 elements at the end of the chunk are the rest. */
#include "codec/dx_ans.h"

#include "codec/fx_plan.h"

#define HEADER_LEN 8u

static inline uint16_t in_order(uint16_t x)
{
    return (uint16_t)(x ^ ((0 - (x >> 15)) & 0x7fff));
}

static inline uint16_t to_zigzag(uint16_t x)
{
    return (uint16_t)(x << 1 ^ (0 - (x >> 15)));
}

static inline uint16_t from_zigzag(uint16_t x)
{
    return (uint16_t)(x >> 1 ^ (0 - (x & 1)));
}

/* Returns the bits of a symbol's field. */
static inline unsigned dx_ans_field_bits(unsigned symbol)
{
    return symbol < DX_ANS_DIRECT ? 0 : symbol - 12;
}

static void take_exponents(const uint8_t *restrict base, uint8_t *restrict exponents)
{
    for (size_t i = 0; i < ANS_GROUP; i++)
        exponents[i] = (uint8_t)(get_le16(base + 2 * i) >> 7);
}

void dx_ans_group_take(const uint8_t *src, const uint8_t *base, struct dx_ans_group *ret)
{
    take_exponents(base, ret->exponents);
    for (size_t i = 0; i < ANS_GROUP; i++)
        ret->differences[i] = to_zigzag(
            (uint16_t)(in_order(get_le16(src + 2 * i)) - in_order(get_le16(base + 2 * i))));
    for (size_t i = 0; i < ANS_GROUP; i++) {
        /* The exponent of a float is one less than the number of bits of an integer; for one of 16
         * bits this is exact. */
        int32_t d = ret->differences[i], bits;
        float number = (float)d;
        memcpy(&bits, &number, sizeof bits);
        int32_t is_large = -(int32_t)(d >= (int32_t)DX_ANS_DIRECT);
        ret->symbols[i] = (uint8_t)((((bits >> 23) - 115) & is_large) | (d & ~is_large));
    }
}

/* --- encoding --------------------------------------------------------------------------------- */

/* False: no room left. */
static bool put_fields(struct writer *w, const uint8_t *src, const uint8_t *base, size_t count)
{
    uint64_t sum = 0;
    unsigned held = 0; /* bits of `sum` */
    for (size_t i = 0; i < count; i += ANS_GROUP) {
        struct dx_ans_group group;
        dx_ans_group_take(src + 2 * i, base + 2 * i, &group);
        for (size_t k = 0; k < ANS_GROUP; k++) {
            unsigned bits = dx_ans_field_bits(group.symbols[k]);
            sum |= (group.differences[k] & ((1ull << bits) - 1)) << held;
            held += bits;
            if (held < 32)
                continue;
            uint8_t *p = writer_take(w, 4);
            if (!p)
                return false;
            put_le32(p, (uint32_t)sum);
            sum >>= 32;
            held -= 32;
        }
    }
    uint8_t last[4];
    put_le32(last, (uint32_t)sum);
    return writer_put(w, last, (held + 7) / 8);
}

static bool put_codes(struct writer *w, const struct dx_ans_plan *plan)
{
    if (!writer_put(w, plan->last, plan->codes - 1u))
        return false;
    for (unsigned i = 0; i < plan->codes; i++)
        if (!ans_put_code(w, &plan->code[i]))
            return false;
    return true;
}

/* From the last symbol to the first. */
static bool put_symbols(struct writer *w, const struct dx_ans_plan *plan, const uint8_t *src,
                        const uint8_t *base, size_t count)
{
    struct ans_writer symbols;
    const struct ans_code *of[256];
    for (unsigned e = 0, i = 0; e < 256; e++) {
        of[e] = &plan->code[i];
        i += e == plan->last[i];
    }
    ans_writer_init(&symbols, w->at, w->end);
    for (size_t i = count; i > 0; i -= ANS_GROUP) {
        struct dx_ans_group group;
        dx_ans_group_take(src + 2 * (i - ANS_GROUP), base + 2 * (i - ANS_GROUP), &group);
        for (size_t k = ANS_GROUP; k-- > 0;)
            if (!ans_put(&symbols, of[group.exponents[k]], k, group.symbols[k]))
                return false;
    }
    if (!ans_writer_end(&symbols))
        return false;
    size_t len = (size_t)(w->end - symbols.at);
    memmove(w->at, symbols.at, len);
    w->at += len;
    return true;
}

size_t dx_ans_encode(const struct dx_ans_plan *plan, const void *src, const void *base,
                     size_t raw_len, void *dst, size_t limit)
{
    struct writer w = {.at = dst, .end = (uint8_t *)dst + limit};
    const uint8_t *from = (const uint8_t *)src + plan->phase,
                  *by = (const uint8_t *)base + plan->phase;
    size_t count = fx_elements(2, plan->phase, raw_len), len = 2 * count;
    uint8_t *header = writer_take(&w, HEADER_LEN);
    if (!header || !writer_put(&w, src, plan->phase) ||
        !writer_put(&w, from + len, raw_len - plan->phase - len))
        return 0;
    const uint8_t *fields = w.at;
    if (!put_fields(&w, from, by, count))
        return 0;
    memcpy(header, (uint8_t[]){DX_ANS | 1, plan->phase, plan->codes, 0}, 4);
    put_le32(header + 4, (uint32_t)(w.at - fields));
    return put_codes(&w, plan) && put_symbols(&w, plan, from, by, count)
               ? (size_t)(w.at - (uint8_t *)dst)
               : 0;
}

/* --- decoding --------------------------------------------------------------------------------- */

struct decoder {
    struct ans_reader symbols;
    const uint8_t *fields;           /* 8 bytes behind the fields may be read, too */
    size_t field_bits, at;           /* bits of all fields; the next bit to read */
    const struct ans_table *of[256]; /* by exponent */
    struct ans_table tables[DX_ANS_CODES_MAX];
};

static bool get_codes(struct cursor *c, unsigned codes, struct decoder *d)
{
    const uint8_t *last =
        codes >= 1 && codes <= DX_ANS_CODES_MAX ? cursor_bytes(c, codes - 1) : NULL;
    if (!last)
        return false;
    unsigned e = 0;
    for (unsigned i = 0; i < codes; i++) {
        struct ans_code code;
        unsigned end = i + 1 < codes ? last[i] + 1u : 256;
        if (!ans_get_code(c, &code) || end <= e)
            return false;
        for (unsigned s = DX_ANS_SYMBOLS; s < ANS_SYMBOLS_MAX; s++)
            if (code.frequencies[s])
                return false;
        ans_table_fill(&d->tables[i], &code);
        while (e < end)
            d->of[e++] = &d->tables[i];
    }
    return true;
}

static void get_symbols(struct decoder *d, const uint8_t exponents[ANS_GROUP],
                        uint8_t symbols[ANS_GROUP])
{
    for (size_t i = 0; i < ANS_GROUP; i += ANS_STATES)
        for (size_t k = 0; k < ANS_STATES; k++)
            symbols[i + k] = (uint8_t)ans_get(&d->symbols, d->of[exponents[i + k]], k);
}

/* Replaces symbols by differences. False: the symbols need more bits of fields than are stored. */
static bool get_differences(struct decoder *d, const uint8_t symbols[ANS_GROUP],
                            uint16_t differences[ANS_GROUP])
{
    uint8_t bits[ANS_GROUP];
    size_t sum = 0;
    for (size_t i = 0; i < ANS_GROUP; i++) {
        bits[i] = (uint8_t)dx_ans_field_bits(symbols[i]);
        differences[i] = symbols[i];
        sum += bits[i];
    }
    if (sum > d->field_bits - d->at)
        return false;
    for (size_t i = 0; sum > 0 && i < ANS_GROUP; i++) {
        uint32_t ones = (1u << bits[i]) - 1;
        uint32_t field = (uint32_t)(get_le64(d->fields + d->at / 8) >> d->at % 8) & ones;
        differences[i] = bits[i] ? (uint16_t)(field | (ones + 1)) : differences[i];
        d->at += bits[i];
    }
    return true;
}

static bool get_group(struct decoder *d, const uint8_t *base, uint8_t *dst)
{
    uint8_t exponents[ANS_GROUP], symbols[ANS_GROUP];
    uint16_t differences[ANS_GROUP];
    take_exponents(base, exponents);
    if (!ans_reader_go_on(&d->symbols))
        return false;
    get_symbols(d, exponents, symbols);
    if (!get_differences(d, symbols, differences))
        return false;
    for (size_t i = 0; i < ANS_GROUP; i++)
        put_le16(dst + 2 * i, in_order((uint16_t)(in_order(get_le16(base + 2 * i)) +
                                                  from_zigzag(differences[i]))));
    return true;
}

static int get_ans_elements(struct cursor *c, const uint8_t *base, struct decoder *d, size_t count,
                            uint8_t *dst)
{
    if (!ans_reader_init(&d->symbols, c))
        return -EBADMSG;
    for (size_t i = 0; i < count; i += ANS_GROUP)
        if (!get_group(d, base + 2 * i, dst + 2 * i))
            return -EBADMSG;
    bool is_whole = ans_reader_end(&d->symbols) && d->field_bits - d->at < 8;
    return is_whole ? 0 : -EBADMSG;
}

int dx_ans_decode(const void *src, size_t stored_len, const void *base, void *dst, size_t raw_len)
{
    struct cursor c = {.at = src, .end = (const uint8_t *)src + stored_len};
    struct decoder d;
    const uint8_t *header = cursor_bytes(&c, HEADER_LEN);
    uint8_t *to = dst;
    if (!header || header[0] != (DX_ANS | 1) || header[1] > 1 || header[1] > raw_len || header[3])
        return -EBADMSG;
    const size_t phase = header[1], count = fx_elements(2, (unsigned)phase, raw_len),
                 rest = phase + 2 * count, fields = get_le32(header + 4);
    if (!cursor_copy(&c, to, phase) || !cursor_copy(&c, to + rest, raw_len - rest))
        return -EBADMSG;
    d.fields = cursor_bytes(&c, fields);
    d.field_bits = 8 * fields;
    d.at = 0;
    if (!d.fields || !get_codes(&c, header[2], &d))
        return -EBADMSG;
    return get_ans_elements(&c, (const uint8_t *)base + phase, &d, count, to + phase);
}
