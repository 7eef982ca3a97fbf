// SPDX-License-Identifier: Apache-2.0
/* Code:
 *
 *   OFFSET SIZE
 *        0    1  number of symbols, 1 to 32
 *        1       the frequency of each symbol: one byte if it is less than 128;
 *                else 128 + its upper bits, and its lowest 8. Their sum is 2048.
 *
 * Symbols:
 *
 *   4 bytes for each of 16 states, at least 2^16
 *   words of 2 bytes
 *
 * Symbol i is read from state i modulo 16. The lowest 11 bits of the state x are the slot. Slots
 * are assigned to symbols in ascending order, to each as many as its frequency in its code. The
 * next state is frequency * (x >> 11) + slot - the symbol's first slot. If it is less than 2^16, it
 * is shifted left by 16, and the next word is added. Behind the last symbol all states are 2^16,
 * and no word is left. */
#include "codec/ans.h"

#include "codec/log2.h"

#define LONG 128u /* from this frequency on it takes two bytes */

/* --- codes ------------------------------------------------------------------------------------ */

static uint64_t sum_of(const uint32_t counts[ANS_SYMBOLS_MAX])
{
    uint64_t sum = 0;
    for (unsigned s = 0; s < ANS_SYMBOLS_MAX; s++)
        sum += counts[s];
    return sum;
}

uint64_t ans_entropy(const uint32_t counts[ANS_SYMBOLS_MAX])
{
    uint64_t sum = sum_of(counts), bits = sum ? sum * log2_of((uint32_t)sum) : 0;
    for (unsigned s = 0; s < ANS_SYMBOLS_MAX; s++)
        if (counts[s])
            bits -= (uint64_t)counts[s] * log2_of(counts[s]);
    return bits;
}

static unsigned symbols_of(const uint32_t counts[ANS_SYMBOLS_MAX])
{
    unsigned symbols = ANS_SYMBOLS_MAX;
    while (symbols > 1 && counts[symbols - 1] == 0)
        symbols--;
    return symbols;
}

size_t ans_code_len(const uint32_t counts[ANS_SYMBOLS_MAX])
{
    uint64_t sum = sum_of(counts);
    size_t len = 1 + symbols_of(counts);
    for (unsigned s = 0; s < ANS_SYMBOLS_MAX; s++)
        len += counts[s] >= sum / (ANS_SUM / LONG);
    return len;
}

/* Fills in the other members from the frequencies. */
static void fill_from_frequencies(struct ans_code *code)
{
    unsigned sum = 0;
    for (unsigned s = 0; s < ANS_SYMBOLS_MAX; s++) {
        code->starts[s] = (uint16_t)sum;
        sum += code->frequencies[s];
        code->inverses[s] = 0;
        if (code->frequencies[s])
            code->inverses[s] = ((1ull << ANS_INVERSE_BITS) - 1) / code->frequencies[s] + 1;
    }
    check(sum == ANS_SUM);
}

/* Every symbol that occurs gets a frequency of at least 1; the most frequent one absorbs the
 * rounding error. */
uint64_t ans_code_make(const uint32_t counts[ANS_SYMBOLS_MAX], struct ans_code *ret)
{
    uint64_t sum = sum_of(counts), bits = 0;
    unsigned most = 0, given = 0;
    check(sum > 0);
    for (unsigned s = 0; s < ANS_SYMBOLS_MAX; s++) {
        uint64_t rounded = (counts[s] * (uint64_t)ANS_SUM + sum / 2) / sum;
        ret->frequencies[s] = (uint16_t)(counts[s] ? max_u64(1, rounded) : 0);
        given += ret->frequencies[s];
        most = counts[s] > counts[most] ? s : most;
    }
    check(ret->frequencies[most] + ANS_SUM > given);
    ret->frequencies[most] = (uint16_t)(ret->frequencies[most] + ANS_SUM - given);
    fill_from_frequencies(ret);
    for (unsigned s = 0; s < ANS_SYMBOLS_MAX; s++)
        if (counts[s])
            bits += counts[s] * (uint64_t)((ANS_BITS << 16) - log2_of(ret->frequencies[s]));
    return bits;
}

bool ans_put_code(struct writer *w, const struct ans_code *code)
{
    uint8_t bytes[1 + 2 * ANS_SYMBOLS_MAX];
    unsigned symbols = ANS_SYMBOLS_MAX;
    size_t len = 0;
    while (code->frequencies[symbols - 1] == 0)
        symbols--;
    bytes[len++] = (uint8_t)symbols;
    for (unsigned s = 0; s < symbols; s++) {
        unsigned frequency = code->frequencies[s];
        if (frequency >= LONG)
            bytes[len++] = (uint8_t)(LONG + (frequency >> 8));
        bytes[len++] = (uint8_t)frequency;
    }
    return writer_put(w, bytes, len);
}

bool ans_get_code(struct cursor *c, struct ans_code *ret)
{
    unsigned symbols = cursor_u8(c), sum = 0;
    memset(ret, 0, sizeof *ret);
    if (symbols > ANS_SYMBOLS_MAX)
        return false;
    for (unsigned s = 0; s < symbols; s++) {
        unsigned frequency = cursor_u8(c);
        if (frequency >= LONG)
            frequency = (frequency - LONG) << 8 | cursor_u8(c);
        sum += frequency;
        ret->frequencies[s] = (uint16_t)frequency;
    }
    if (c->failed || sum != ANS_SUM)
        return false;
    fill_from_frequencies(ret);
    return true;
}

/* --- writing ---------------------------------------------------------------------------------- */

void ans_writer_init(struct ans_writer *w, uint8_t *from, uint8_t *end)
{
    *w = (struct ans_writer){.at = end, .first = from};
    for (unsigned i = 0; i < ANS_STATES; i++)
        w->states[i] = ANS_STATE_MIN;
}

bool ans_writer_end(struct ans_writer *w)
{
    if ((size_t)(w->at - w->first) < ANS_STATES_LEN)
        return false;
    w->at -= ANS_STATES_LEN;
    for (size_t i = 0; i < ANS_STATES; i++)
        put_le32(w->at + 4 * i, w->states[i]);
    return true;
}

/* --- reading ---------------------------------------------------------------------------------- */

void ans_table_fill(struct ans_table *table, const struct ans_code *code)
{
    for (unsigned s = 0; s < ANS_SYMBOLS_MAX; s++) {
        table->of[s].frequency = code->frequencies[s];
        table->of[s].start = code->starts[s];
        memset(table->symbols + code->starts[s], (int)s, code->frequencies[s]);
    }
}

bool ans_reader_init(struct ans_reader *r, struct cursor *c)
{
    const uint8_t *p = cursor_bytes(c, ANS_STATES_LEN);
    if (!p)
        return false;
    for (size_t i = 0; i < ANS_STATES; i++) {
        r->states[i] = get_le32(p + 4 * i);
        if (r->states[i] < ANS_STATE_MIN)
            return false;
    }
    r->at = c->at;
    r->end = c->end;
    r->is_tail = false;
    return true;
}

bool ans_reader_go_on(struct ans_reader *r)
{
    _Static_assert(sizeof r->tail >= 2 * (size_t)2 * ANS_GROUP, "a group may be read at its end");
    if (r->at > r->end)
        return false;
    size_t left = (size_t)(r->end - r->at);
    if (!r->is_tail && left < 2 * (size_t)ANS_GROUP) {
        memset(r->tail, 0, sizeof r->tail);
        memcpy(r->tail, r->at, left);
        r->at = r->tail;
        r->end = r->tail + left;
        r->is_tail = true;
    }
    return true;
}

bool ans_reader_end(const struct ans_reader *r)
{
    for (unsigned i = 0; i < ANS_STATES; i++)
        if (r->states[i] != ANS_STATE_MIN)
            return false;
    return r->at == r->end;
}
