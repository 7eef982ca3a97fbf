// SPDX-License-Identifier: Apache-2.0
/* Code:
 *
 *   OFFSET SIZE
 *        0    1  number of levels, 1 to 6
 *        1    1  for each level: its bits, 1 to 4
 *                symbols: 2^bits - 1 of each level together, all different; rank 0 is the first of
 *                them. The other values have the ranks behind these, in ascending order.
 *
 * Values:
 *
 *   2 bytes for each level: how many values escape it
 *   for each level its values in groups of 64, zeros behind the last: `bits` masks of 8 bytes, mask
 *   b has bit b of each value
 *   the values that escape the last level, a byte each
 *
 * The values of the first level are the ranks of the bytes. A value of 2^bits - 1 or more escapes:
 * its bits are ones, and its difference to 2^bits - 1 is a value of the next level. If there are no
 * values, nothing is stored, not even counts. */
#include "codec/lx.h"

/* --- codes ------------------------------------------------------------------------------------ */

/* Returns how many ranks the levels cover: fewer than 256. */
static size_t code_ranks(const struct lx_code *code)
{
    size_t ranks = 0;
    for (unsigned i = 0; i < code->levels; i++)
        ranks += (1u << code->bits[i]) - 1;
    return ranks;
}

/* Completes `symbols` behind its first `count` entries: the other values follow in ascending order.
 * False: two entries are the same. */
static bool code_complete(struct lx_code *code, const uint8_t *first, size_t count)
{
    bool used[256] = {false};
    for (size_t i = 0; i < count; i++) {
        if (used[first[i]])
            return false;
        used[first[i]] = true;
        code->symbols[i] = first[i];
    }
    for (unsigned value = 0; value < 256; value++)
        if (!used[value])
            code->symbols[count++] = (uint8_t)value;
    return true;
}

/* The values that occur, by frequency, then by value. */
struct ranking {
    uint8_t values[256];
    unsigned distinct;
};

/* A value's place is the number of keys before its key: no two keys are equal. */
static void rank_values(const uint32_t counts[256], struct ranking *ret)
{
    int32_t keys[256];
    unsigned n = 0;
    for (int32_t value = 0; value < 256; value++) {
        keys[n] = (int32_t)(counts[value] << 8 | (255u - (uint32_t)value));
        n += counts[value] > 0;
    }
    for (unsigned i = 0; i < n; i++) {
        unsigned place = 0;
        for (unsigned k = 0; k < n; k++)
            place += keys[k] > keys[i];
        ret->values[place] = (uint8_t)(255 - (keys[i] & 255));
    }
    ret->distinct = n;
}

/* The least bits of all values from a rank on with a number of levels left, times 8; the three
 * lowest bits hold the bits of the first of these levels; 0: no level. So the smaller of two is the
 * better choice. */
typedef uint32_t choice_t;

#define CHOICE_BITS 7u
/* choices behind the last rank: no value is left to code */
#define BEHIND_ALL (1u << LX_BITS_MAX)

/* `behind`: for each rank, how many values have this rank or a later one. */
static void choose_level(const uint32_t *restrict behind, unsigned distinct, uint32_t each_level,
                         const choice_t *restrict next, choice_t *restrict ret)
{
    for (unsigned s = 0; s < distinct; s++)
        ret[s] = 8 * behind[s] * 8;
    for (uint32_t bits = 1; bits <= LX_BITS_MAX; bits++) {
        const choice_t *rest = next + (1u << bits) - 1;
        for (unsigned s = 0; s < distinct; s++) {
            choice_t choice =
                ((bits * behind[s] + each_level) * 8 | bits) + (rest[s] & ~CHOICE_BITS);
            ret[s] = choice < ret[s] ? choice : ret[s];
        }
    }
    memset(ret + distinct, 0, BEHIND_ALL * sizeof *ret);
}

void lx_count(const uint8_t *bytes, size_t len, uint32_t ret[256])
{
    /* equal bytes often follow each other, and an increment would wait for the one before */
    uint32_t counts[4][256] = {0};
    size_t i = 0;
    for (; i + 4 <= len; i += 4)
        for (size_t k = 0; k < 4; k++)
            counts[k][bytes[i + k]]++;
    for (; i < len; i++)
        counts[0][bytes[i]]++;
    for (unsigned v = 0; v < 256; v++)
        ret[v] = counts[0][v] + counts[1][v] + counts[2][v] + counts[3][v];
}

uint64_t lx_code_make(const uint32_t counts[256], size_t len, struct lx_code *ret)
{
    struct ranking ranking;
    choice_t choices[LX_LEVELS_MAX + 1][256 + BEHIND_ALL];
    uint32_t behind[256], sum = 0;
    rank_values(counts, &ranking);
    for (unsigned s = ranking.distinct; s-- > 0;) {
        sum += counts[ranking.values[s]];
        behind[s] = sum;
        choices[0][s] = 8 * sum * 8;
    }
    memset(choices[0] + ranking.distinct, 0, BEHIND_ALL * sizeof(choice_t));
    for (unsigned l = 1; l <= LX_LEVELS_MAX; l++)
        choose_level(behind, ranking.distinct, (uint32_t)(len / 512 + 1), choices[l - 1],
                     choices[l]);
    ret->levels = 0;
    size_t ranks = 0;
    for (unsigned l = LX_LEVELS_MAX; l > 0 && ranks < ranking.distinct; l--) {
        uint8_t bits = choices[l][ranks] & CHOICE_BITS;
        if (bits == 0)
            break;
        ret->bits[ret->levels++] = bits;
        ranks += (1u << bits) - 1;
    }
    /* Levels may cover more values than occur. The others follow in ascending order, so that a
     * reader knows them. */
    check(code_complete(ret, ranking.values, (size_t)min_u64(ranks, ranking.distinct)));
    return choices[LX_LEVELS_MAX][0] / 8;
}

uint64_t lx_code_make_of_many(const uint32_t counts[256], size_t len, struct lx_code *ret)
{
    uint32_t scaled[256];
    unsigned shift = 0;
    while (len >> shift > UINT16_MAX / 2)
        shift++;
    for (unsigned value = 0; value < 256; value++)
        scaled[value] = (counts[value] + (1u << shift) - 1) >> shift;
    return lx_code_make(scaled, len >> shift, ret) << shift;
}

void lx_code_make_of_one(uint8_t value, struct lx_code *ret)
{
    ret->levels = ret->bits[0] = 1;
    check(code_complete(ret, &value, 1));
}

static bool is_in_order(const struct lx_code *code)
{
    for (unsigned rank = 0; rank < 256; rank++)
        if (code->symbols[rank] != rank)
            return false;
    return true;
}

void lx_code_rank(struct lx_code *code)
{
    code->is_in_order = is_in_order(code);
    for (unsigned rank = 0; rank < 256; rank++)
        code->ranks[code->symbols[rank]] = (uint8_t)rank;
}

/* --- writing ---------------------------------------------------------------------------------- */

uint8_t *writer_take(struct writer *w, size_t len)
{
    if ((size_t)(w->end - w->at) < len)
        return NULL;
    w->at += len;
    return w->at - len;
}

bool writer_put(struct writer *w, const void *bytes, size_t len)
{
    uint8_t *p = writer_take(w, len);
    if (p && len)
        memcpy(p, bytes, len);
    return p != NULL;
}

static size_t groups_of(size_t count)
{
    return (count + FX_GROUP - 1) / FX_GROUP;
}

/* Returns the bytes of the masks of a level with `count` values. */
static size_t masks_len(size_t count, unsigned bits)
{
    return groups_of(count) * 8 * bits;
}

bool lx_put_code(struct writer *w, const struct lx_code *code)
{
    check(code->levels >= 1 && code->levels <= LX_LEVELS_MAX);
    return writer_put(w, &code->levels, 1) && writer_put(w, code->bits, code->levels) &&
           writer_put(w, code->symbols, code_ranks(code));
}

bool lx_put_begin(struct lx_put *put, size_t count)
{
    const struct lx_code *code = put->code;
    check(count <= LX_VALUES_MAX && code->levels >= 1 && code->levels <= LX_LEVELS_MAX);
    put->escaped = 0;
    put->counts = writer_take(put->to, 2 * (size_t)code->levels);
    put->masks = put->counts ? writer_take(put->to, masks_len(count, code->bits[0])) : NULL;
    return put->masks != NULL;
}

/* Stores the escaping values in `escaped`; returns how many. */
static size_t put_level(const struct fx_kernels *kernels, uint8_t *values, size_t count,
                        unsigned bits, uint8_t *masks, uint8_t *escaped)
{
    size_t whole = FX_GROUP * groups_of(count);
    memset(values + count, 0, whole - count);
    return kernels->pack(values, whole, bits, masks, escaped);
}

void lx_put_piece(struct lx_put *put, uint8_t *values, size_t count)
{
    const struct lx_code *code = put->code;
    if (!code->is_in_order)
        put->kernels->translate(values, FX_GROUP * groups_of(count), code->ranks);
    put->escaped += put_level(put->kernels, values, count, code->bits[0], put->masks,
                              put->work->values[0] + put->escaped);
    put->masks += masks_len(count, code->bits[0]);
}

bool lx_put_end(struct lx_put *put)
{
    const struct lx_code *code = put->code;
    uint8_t *values = put->work->values[0];
    size_t count = put->escaped;
    put_le16(put->counts, (uint16_t)count);
    for (unsigned i = 1; i < code->levels; i++) {
        uint8_t *masks = writer_take(put->to, masks_len(count, code->bits[i]));
        if (!masks)
            return false;
        uint8_t *escaped = put->work->values[i & 1];
        count = put_level(put->kernels, values, count, code->bits[i], masks, escaped);
        put_le16(put->counts + 2 * (size_t)i, (uint16_t)count);
        values = escaped;
    }
    return writer_put(put->to, values, count);
}

bool lx_put(struct writer *w, const struct fx_kernels *kernels, const struct lx_code *code,
            uint8_t *values, size_t count, struct lx_work *work)
{
    struct lx_put put = {.to = w, .kernels = kernels, .code = code, .work = work};
    if (count == 0)
        return true;
    if (!lx_put_begin(&put, count))
        return false;
    lx_put_piece(&put, values, count);
    return lx_put_end(&put);
}

/* --- reading ---------------------------------------------------------------------------------- */

bool cursor_copy(struct cursor *c, uint8_t *dst, size_t len)
{
    const uint8_t *p = cursor_bytes(c, len);
    if (p && len)
        memcpy(dst, p, len);
    return p != NULL;
}

bool lx_get_code(struct cursor *c, struct lx_code *ret)
{
    ret->levels = cursor_u8(c);
    const uint8_t *bits = ret->levels <= LX_LEVELS_MAX ? cursor_bytes(c, ret->levels) : NULL;
    if (!bits || ret->levels == 0)
        return false;
    for (unsigned i = 0; i < ret->levels; i++) {
        ret->bits[i] = bits[i];
        if (bits[i] == 0 || bits[i] > LX_BITS_MAX)
            return false;
    }
    size_t ranks = code_ranks(ret);
    const uint8_t *symbols = cursor_bytes(c, ranks);
    if (!symbols || !code_complete(ret, symbols, ranks))
        return false;
    ret->is_in_order = is_in_order(ret);
    return true;
}

/* The masks and the number of values of each level; the last count is that of the values that
 * escape the last level. */
struct levels {
    const uint8_t *masks[LX_LEVELS_MAX];
    size_t counts[LX_LEVELS_MAX + 1];
};

static bool get_levels(struct cursor *c, const struct lx_code *code, size_t count,
                       struct levels *ret)
{
    const uint8_t *counts = cursor_bytes(c, 2 * (size_t)code->levels);
    ret->counts[0] = count;
    for (unsigned i = 0; counts && i < code->levels; i++) {
        ret->masks[i] = cursor_bytes(c, masks_len(ret->counts[i], code->bits[i]));
        ret->counts[i + 1] = get_le16(counts + 2 * (size_t)i);
        if (!ret->masks[i] || ret->counts[i + 1] > ret->counts[i])
            return false;
    }
    return counts != NULL;
}

/* Decodes the values that escape the first level. */
bool lx_get_begin(struct lx_get *get, struct cursor *c, size_t count)
{
    const struct lx_code *code = get->code;
    struct levels levels;
    check(count > 0 && count <= LX_VALUES_MAX);
    if (!get_levels(c, code, count, &levels))
        return false;
    size_t last = levels.counts[code->levels];
    uint8_t *escaped = get->work->values[code->levels & 1];
    if (!cursor_copy(c, escaped, last))
        return false;
    memset(escaped + last, 0, FX_GROUP);
    for (unsigned i = code->levels; i-- > 1;) {
        uint8_t *these = get->work->values[i & 1];
        size_t whole = FX_GROUP * groups_of(levels.counts[i]);
        if (get->kernels->unpack(levels.masks[i], whole, code->bits[i], escaped, these) !=
            levels.counts[i + 1])
            return false;
        escaped = these;
    }
    get->masks = levels.masks[0];
    get->escaped = escaped;
    get->values_left = count;
    get->escaped_left = levels.counts[1];
    return true;
}

bool lx_get_piece(struct lx_get *get, uint8_t *values, size_t count)
{
    const struct lx_code *code = get->code;
    size_t whole = FX_GROUP * groups_of(count);
    size_t used = get->kernels->unpack(get->masks, whole, code->bits[0], get->escaped, values);
    get->values_left -= count;
    if (used > get->escaped_left || (get->values_left == 0 && used != get->escaped_left))
        return false;
    get->masks += masks_len(count, code->bits[0]);
    get->escaped += used;
    get->escaped_left -= used;
    if (!code->is_in_order)
        get->kernels->translate(values, whole, code->symbols);
    return true;
}

bool lx_get(struct cursor *c, const struct fx_kernels *kernels, const struct lx_code *code,
            uint8_t *values, size_t count, struct lx_work *work)
{
    struct lx_get get = {.kernels = kernels, .code = code, .work = work};
    return count == 0 || (lx_get_begin(&get, c, count) && lx_get_piece(&get, values, count));
}
