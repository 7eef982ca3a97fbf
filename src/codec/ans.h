// SPDX-License-Identifier: Apache-2.0
/* ANS: asymmetric numeral systems (rANS), a code that takes what the entropy says within a percent,
 * also where that is far below a bit a symbol. Which code a symbol has is up to the caller, symbol
 * by symbol. 16 states take turns, so that a processor works on several symbols at once. The layout
 * stands at the top of ans.c. Integers only. Pure; any thread. */
#pragma once

#include "codec/lx.h"

#define ANS_SYMBOLS_MAX 32u
#define ANS_BITS 11u
#define ANS_SUM (1u << ANS_BITS) /* of a code's frequencies */
#define ANS_INVERSE_BITS (32 + ANS_BITS)
#define ANS_STATES 16u
#define ANS_STATE_MIN 0x10000u /* between two symbols */
#define ANS_STATES_LEN (4 * ANS_STATES)

struct ans_code {
    uint16_t frequencies[ANS_SYMBOLS_MAX];
    uint16_t starts[ANS_SYMBOLS_MAX];   /* sums of those before */
    uint64_t inverses[ANS_SYMBOLS_MAX]; /* 2^ANS_INVERSE_BITS / frequency, rounded up */
};

/* Bits, 16 of them behind the point, that symbols of which each occurs so often take at best. */
uint64_t ans_entropy(const uint32_t counts[ANS_SYMBOLS_MAX]);

/* The code for them; not all are 0. Returns the bits that they take with it, 16 of them behind the
 * point. */
uint64_t ans_code_make(const uint32_t counts[ANS_SYMBOLS_MAX], struct ans_code *ret);

/* Bytes of a code, about. */
size_t ans_code_len(const uint32_t counts[ANS_SYMBOLS_MAX]);

/* Writes and reads the code itself. False: no room; no code. */
CAIRN_MUST_CHECK bool ans_put_code(struct writer *w, const struct ans_code *code);
CAIRN_MUST_CHECK bool ans_get_code(struct cursor *c, struct ans_code *ret);

/* --- writing ---------------------------------------------------------------------------------- */

/* From the last symbol to the first one: what is read first is written last. */
struct ans_writer {
    uint32_t states[ANS_STATES];
    uint8_t *at;          /* the bytes behind it are written */
    const uint8_t *first; /* nothing is written before it */
};

void ans_writer_init(struct ans_writer *w, uint8_t *from, uint8_t *end);

/* Symbol number `i` of all, which has a frequency. False: no room. */
static inline bool ans_put(struct ans_writer *w, const struct ans_code *code, size_t i,
                           unsigned symbol)
{
    uint32_t frequency = code->frequencies[symbol], x = w->states[i % ANS_STATES];
    if (x >= (uint64_t)frequency << (32 - ANS_BITS)) {
        if (w->at - w->first < 2)
            return false;
        w->at -= 2;
        put_le16(w->at, (uint16_t)x);
        x >>= 16;
    }
    /* x / frequency, exactly: it is less than 2^21 here, the frequency at most 2^11, and the
     * inverse more than it should be by less than 1. So the product has 64 bits, and is too large
     * by less than 2^32, which is at most what it lacks to the next whole number. */
    uint32_t whole = (uint32_t)(x * code->inverses[symbol] >> ANS_INVERSE_BITS);
    w->states[i % ANS_STATES] = (whole << ANS_BITS) + x - whole * frequency + code->starts[symbol];
    return true;
}

/* Writes the states, behind the last symbol. False: no room. */
CAIRN_MUST_CHECK bool ans_writer_end(struct ans_writer *w);

/* --- reading ---------------------------------------------------------------------------------- */

/* The part of a code that reading asks for. */
struct ans_table {
    struct {
        uint16_t frequency, start;
    } of[ANS_SYMBOLS_MAX];
    uint8_t symbols[ANS_SUM];
};

void ans_table_fill(struct ans_table *table, const struct ans_code *code);

#define ANS_GROUP 64u /* symbols between two looks at what is left to read */

struct ans_reader {
    uint32_t states[ANS_STATES];
    const uint8_t *at, *end;
    bool is_tail; /* they are in `tail`, with zeros behind */
    uint8_t tail[4 * ANS_GROUP];
};

/* Reads the states; all bytes behind them are the reader's. False: they are none. */
CAIRN_MUST_CHECK bool ans_reader_init(struct ans_reader *r, struct cursor *c);

/* Before each group. False: more was read than there is. */
CAIRN_MUST_CHECK bool ans_reader_go_on(struct ans_reader *r);

/* Were all bytes read, and nothing but what was written? */
CAIRN_MUST_CHECK bool ans_reader_end(const struct ans_reader *r);

/* Symbol number `i` of all. Of the next state, less than 32 bits, 16 are read where it is short of
 * them, without a branch: there is nothing that would foretell it. */
static inline unsigned ans_get(struct ans_reader *r, const struct ans_table *table, size_t i)
{
    uint32_t x = r->states[i % ANS_STATES], slot = x & (ANS_SUM - 1);
    unsigned symbol = table->symbols[slot];
    x = table->of[symbol].frequency * (x >> ANS_BITS) + slot - table->of[symbol].start;
    uint32_t is_short = x < ANS_STATE_MIN;
    x = x << (16 * is_short) | (get_le16(r->at) & (0 - is_short));
    r->at += (size_t)2 * is_short;
    r->states[i % ANS_STATES] = x;
    return symbol;
}
