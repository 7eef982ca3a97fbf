// SPDX-License-Identifier: Apache-2.0
/* ANS: asymmetric numeral systems (rANS), an entropy code within a percent of the entropy, also
 * where that is far below one bit a symbol. The caller chooses the code of each symbol. 16
 * interleaved states let a processor work on several symbols at once. The layout is at the top of
 * ans.c. Integers only. Pure; any thread. */
#pragma once

#include "codec/lx.h"

#define ANS_SYMBOLS_MAX 32u
#define ANS_BITS 11u
#define ANS_SUM (1u << ANS_BITS) /* of a code's frequencies */
#define ANS_INVERSE_BITS (32 + ANS_BITS)
#define ANS_STATES 16u
#define ANS_STATE_MIN 0x10000u /* the least state between two symbols */
#define ANS_STATES_LEN (4 * ANS_STATES)

struct ans_code {
    uint16_t frequencies[ANS_SYMBOLS_MAX];
    uint16_t starts[ANS_SYMBOLS_MAX];   /* the sum of the frequencies of the symbols before */
    uint64_t inverses[ANS_SYMBOLS_MAX]; /* 2^ANS_INVERSE_BITS / frequency, rounded up */
};

/* Returns the entropy of symbols with these counts, in bits: the lowest 16 bits of the result are
 * the fraction. */
uint64_t ans_entropy(const uint32_t counts[ANS_SYMBOLS_MAX]);

/* Makes the code for symbols with these counts, of which at least one is not 0. Returns the bits
 * that they take with this code, as ans_entropy() does. */
uint64_t ans_code_make(const uint32_t counts[ANS_SYMBOLS_MAX], struct ans_code *ret);

/* Returns about how many bytes the stored code takes. */
size_t ans_code_len(const uint32_t counts[ANS_SYMBOLS_MAX]);

/* Write and read the code itself. False: no room left; the bytes are no valid code. */
CAIRN_MUST_CHECK bool ans_put_code(struct writer *w, const struct ans_code *code);
CAIRN_MUST_CHECK bool ans_get_code(struct cursor *c, struct ans_code *ret);

/* --- writing ---------------------------------------------------------------------------------- */

/* Writes symbols from the last one to the first: a reader reads in the reverse order of writing. */
struct ans_writer {
    uint32_t states[ANS_STATES];
    uint8_t *at;          /* the bytes behind it are written */
    const uint8_t *first; /* no byte before it is written */
};

void ans_writer_init(struct ans_writer *w, uint8_t *from, uint8_t *end);

/* Writes symbol number `i` of all, whose frequency is not 0. False: no room left. */
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
    /* x / frequency, exactly: the quotient is less than 2^21 here, the frequency at most 2^11, and
     * the inverse too large by less than 1. So the product has 64 bits and is too large by less
     * than 2^32, which is at most its distance to the next whole number. */
    uint32_t whole = (uint32_t)(x * code->inverses[symbol] >> ANS_INVERSE_BITS);
    w->states[i % ANS_STATES] = (whole << ANS_BITS) + x - whole * frequency + code->starts[symbol];
    return true;
}

/* Writes the states, behind the last symbol. False: no room left. */
CAIRN_MUST_CHECK bool ans_writer_end(struct ans_writer *w);

/* --- reading ---------------------------------------------------------------------------------- */

/* The part of a code that the reader needs. */
struct ans_table {
    struct {
        uint16_t frequency, start;
    } of[ANS_SYMBOLS_MAX];
    uint8_t symbols[ANS_SUM];
};

void ans_table_fill(struct ans_table *table, const struct ans_code *code);

#define ANS_GROUP 64u /* symbols between two checks of how many bytes are left */

struct ans_reader {
    uint32_t states[ANS_STATES];
    const uint8_t *at, *end;
    bool is_tail; /* the last bytes were copied to `tail`, with zeros behind */
    uint8_t tail[4 * ANS_GROUP];
};

/* Reads the states; the reader uses all bytes behind them. False: the bytes are no valid states. */
CAIRN_MUST_CHECK bool ans_reader_init(struct ans_reader *r, struct cursor *c);

/* Called before each group. False: more bytes were read than exist. */
CAIRN_MUST_CHECK bool ans_reader_go_on(struct ans_reader *r);

/* Returns whether all bytes were read and every state is the one that a writer begins with. */
CAIRN_MUST_CHECK bool ans_reader_end(const struct ans_reader *r);

/* Returns symbol number `i` of all. The next state has less than 32 bits; where it is too small, 16
 * bits are read into it. Without a branch, which the processor could not predict. */
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
