// SPDX-License-Identifier: Apache-2.0
/*   header | bytes before the first element | block | block | ... | the rest as it is
 *
 * Header:
 *
 *   OFFSET SIZE
 *        0    1  bits 0 and 1: width of an element, 1 << them; bit 4: elements are rotated left by
 * one bit; others zero 1    1  phase: bytes before the first element, less than the width 2    1
 * coded: bit p: plane p (byte p of the elements) is coded; not 0 3    1  levelled: bit p: plane p
 * is levelled; only coded ones are 4       the codes of the coded planes, in ascending order
 *
 * Code:
 *
 *   OFFSET SIZE
 *        0    1  number of levels, 1 to 6
 *        1    1  of each level: its bits, 1 to 4
 *                symbols: 2^bits - 1 of each level together, all different; rank 0 is the first of
 * them. The other values have the ranks behind, in ascending order.
 *
 * Blocks have 16,384 elements, or 8,192 of width 8; the last one has what is left, a multiple
 * of 64. What is less than 64 elements is the rest. A block has its planes, in ascending order. One
 * that is not coded is stored as it is; of one that is coded:
 *
 *   if it is levelled: of each 64 bytes their mean. The bytes are less by it, and more by 128.
 *   of each level 2 bytes: how many values escape it
 *   of each level its values in groups of 64, zeros behind the last: `bits` masks of 8 bytes, mask
 * b has bit b of each value what escapes the last level, a byte each
 *
 * The values of the first level are the ranks of the plane's bytes. A value of 2^bits - 1 or more
 * escapes: its bits are ones, and what it is more is a value of the
 * next level. */
#include "codec/fx.h"

#include "codec/fx_plan.h"
#include "format/chunk.h"
#include "format/le.h"

#define ROTATED 0x10u
#define WIDTH_BITS 0x03u

/* Elements of a block, at most 64 KiB. */
static size_t block_len(unsigned width)
{
    return width == 8 ? FX_BLOCK / 2 : FX_BLOCK;
}

struct work {
    uint8_t planes[4 * FX_BLOCK] __attribute__((aligned(64)));
    uint8_t values[2][FX_BLOCK + FX_SLACK] __attribute__((aligned(64)));
};

static size_t groups_of(size_t count)
{
    return (count + FX_GROUP - 1) / FX_GROUP;
}

/* Bytes of the masks of a level with `count` values. */
static size_t masks_len(size_t count, unsigned bits)
{
    return groups_of(count) * 8 * bits;
}

/* --- encoding --------------------------------------------------------------------------------- */

struct writer {
    const struct fx_kernels *kernels;
    const struct fx_plan *plan;
    uint8_t *at, *end;
};

/* NULL: there is no room for it. */
static uint8_t *take(struct writer *w, size_t len)
{
    if ((size_t)(w->end - w->at) < len)
        return NULL;
    w->at += len;
    return w->at - len;
}

static bool put_bytes(struct writer *w, const void *bytes, size_t len)
{
    uint8_t *p = take(w, len);
    if (p && len)
        memcpy(p, bytes, len);
    return p != NULL;
}

static bool put_code(struct writer *w, const struct fx_code *code)
{
    return put_bytes(w, &code->levels, 1) && put_bytes(w, code->bits, code->levels) &&
           put_bytes(w, code->symbols, fx_code_ranks(code));
}

static bool put_header(struct writer *w)
{
    const struct fx_plan *plan = w->plan;
    uint8_t *p = take(w, 4);
    if (!p)
        return false;
    p[0] = (uint8_t)(__builtin_ctz(plan->width) | (plan->rotated ? ROTATED : 0));
    p[1] = plan->phase;
    p[2] = plan->coded;
    p[3] = plan->levelled;
    for (unsigned i = 0; i < plan->width; i++)
        if ((plan->coded & 1u << i) && !put_code(w, &plan->codes[i]))
            return false;
    return true;
}

/* The plane's bytes are changed. */
static bool put_coded(struct writer *w, unsigned p, uint8_t *bytes, size_t count, struct work *work)
{
    const struct fx_code *code = &w->plan->codes[p];
    if (w->plan->levelled & 1u << p) {
        uint8_t *means = take(w, count / FX_GROUP);
        if (!means)
            return false;
        w->kernels->level(bytes, count, means);
    }
    w->kernels->translate(bytes, count, code->ranks);
    uint8_t *counts = take(w, 2 * (size_t)code->levels);
    if (!counts)
        return false;
    const uint8_t *values = bytes;
    for (unsigned i = 0; i < code->levels; i++) {
        uint8_t *masks = take(w, masks_len(count, code->bits[i])), *escaped = work->values[i & 1];
        if (!masks)
            return false;
        count =
            w->kernels->pack(values, FX_GROUP * groups_of(count), code->bits[i], masks, escaped);
        put_le16(counts + 2 * (size_t)i, (uint16_t)count);
        memset(escaped + count, 0, FX_GROUP);
        values = escaped;
    }
    return put_bytes(w, values, count);
}

static bool put_block(struct writer *w, const uint8_t *src, size_t count, struct work *work)
{
    const struct fx_plan *plan = w->plan;
    uint8_t *planes[8];
    size_t raw = 0;
    /* Planes that are stored as they are go straight to their place: it is known where no coded
     * plane lies before them, the case of floats. */
    bool direct = plan->coded == 1u << (plan->width - 1);
    if (direct && (size_t)(w->end - w->at) < (plan->width - 1) * count)
        return false;
    for (unsigned p = 0; p < plan->width; p++)
        planes[p] =
            direct && p < plan->width - 1u ? w->at + raw++ * count : work->planes + p * count;
    w->kernels->split(src, count, plan->width, plan->rotated, planes);
    w->at += raw * count;
    for (unsigned p = (unsigned)raw; p < plan->width; p++)
        if (!(plan->coded & 1u << p ? put_coded(w, p, planes[p], count, work)
                                    : put_bytes(w, planes[p], count)))
            return false;
    return true;
}

size_t fx_encode(const struct fx_kernels *kernels, const struct fx_guess *guess, const void *src,
                 size_t raw_len, void *dst, size_t limit)
{
    check(raw_len >= FX_RAW_MIN && raw_len <= CHUNK_SIZE_MAX);
    struct fx_plan plan;
    struct work work;
    const uint8_t *at = src, *end = at + raw_len;
    fx_plan_make(kernels, guess, src, raw_len, work.planes, &plan);
    struct writer w = {.kernels = kernels, .plan = &plan, .at = dst, .end = (uint8_t *)dst + limit};
    if (!plan.coded || !put_header(&w) || !put_bytes(&w, at, plan.phase))
        return 0;
    at += plan.phase;
    for (size_t left = fx_elements(&plan, raw_len); left > 0;) {
        size_t count = (size_t)min_u64(left, block_len(plan.width));
        if (!put_block(&w, at, count, &work))
            return 0;
        at += count * plan.width;
        left -= count;
    }
    return put_bytes(&w, at, (size_t)(end - at)) ? (size_t)(w.at - (uint8_t *)dst) : 0;
}

/* --- decoding --------------------------------------------------------------------------------- */

static bool get_code(struct cursor *c, struct fx_code *code)
{
    code->levels = cursor_u8(c);
    const uint8_t *bits = code->levels <= FX_LEVELS_MAX ? cursor_bytes(c, code->levels) : NULL;
    if (!bits || code->levels == 0)
        return false;
    for (unsigned i = 0; i < code->levels; i++) {
        code->bits[i] = bits[i];
        if (bits[i] == 0 || bits[i] > FX_BITS_MAX)
            return false;
    }
    size_t ranks = fx_code_ranks(code);
    const uint8_t *symbols = cursor_bytes(c, ranks);
    return symbols && fx_code_complete(code, symbols, ranks);
}

static bool get_header(struct cursor *c, size_t raw_len, struct fx_plan *plan)
{
    const uint8_t *p = cursor_bytes(c, 4);
    if (!p || (p[0] & ~(ROTATED | WIDTH_BITS)))
        return false;
    *plan = (struct fx_plan){.width = (uint8_t)(1u << (p[0] & WIDTH_BITS)),
                             .phase = p[1],
                             .rotated = p[0] & ROTATED,
                             .coded = p[2],
                             .levelled = p[3]};
    if (plan->phase >= plan->width || plan->phase > raw_len || plan->coded == 0 ||
        plan->coded >> plan->width || (plan->levelled & ~plan->coded))
        return false;
    for (unsigned i = 0; i < plan->width; i++)
        if ((plan->coded & 1u << i) && !get_code(c, &plan->codes[i]))
            return false;
    return true;
}

/* Where the masks of each level are, and how many values each has, that of what escapes the last
 * one behind them. */
struct levels {
    const uint8_t *masks[FX_LEVELS_MAX];
    size_t counts[FX_LEVELS_MAX + 1];
};

static bool get_levels(struct cursor *c, const struct fx_code *code, size_t count,
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

static bool get_coded(struct cursor *c, const struct fx_kernels *kernels,
                      const struct fx_plan *plan, unsigned p, uint8_t *bytes, size_t count,
                      struct work *work)
{
    const struct fx_code *code = &plan->codes[p];
    const uint8_t *means = plan->levelled & 1u << p ? cursor_bytes(c, count / FX_GROUP) : NULL;
    struct levels levels;
    if (c->failed || !get_levels(c, code, count, &levels))
        return false;
    size_t last = levels.counts[code->levels];
    const uint8_t *rest = cursor_bytes(c, last);
    if (!rest)
        return false;
    uint8_t *escaped = work->values[code->levels & 1];
    memcpy(escaped, rest, last);
    memset(escaped + last, 0, FX_GROUP);
    for (unsigned i = code->levels; i-- > 0;) {
        uint8_t *values = i ? work->values[i & 1] : bytes;
        size_t whole = FX_GROUP * groups_of(levels.counts[i]);
        if (kernels->unpack(levels.masks[i], whole, code->bits[i], escaped, values) !=
            levels.counts[i + 1])
            return false;
        escaped = values;
    }
    kernels->translate(bytes, count, code->symbols);
    if (means)
        kernels->unlevel(bytes, count, means);
    return true;
}

static bool get_block(struct cursor *c, const struct fx_kernels *kernels,
                      const struct fx_plan *plan, size_t count, struct work *work, uint8_t *dst)
{
    const uint8_t *planes[8];
    for (unsigned p = 0; p < plan->width; p++) {
        uint8_t *coded = work->planes + p * count;
        bool is_coded = plan->coded & 1u << p;
        planes[p] = is_coded ? coded : cursor_bytes(c, count);
        if (is_coded ? !get_coded(c, kernels, plan, p, coded, count, work) : !planes[p])
            return false;
    }
    kernels->join(planes, count, plan->width, plan->rotated, dst);
    return true;
}

static bool get_bytes(struct cursor *c, uint8_t *dst, size_t len)
{
    const uint8_t *p = cursor_bytes(c, len);
    if (p && len)
        memcpy(dst, p, len);
    return p != NULL;
}

int fx_decode(const struct fx_kernels *kernels, const void *src, size_t stored_len, void *dst,
              size_t raw_len)
{
    struct cursor c = {.at = src, .end = (const uint8_t *)src + stored_len};
    struct fx_plan plan;
    struct work work;
    uint8_t *at = dst, *end = at + raw_len;
    if (!get_header(&c, raw_len, &plan) || !get_bytes(&c, at, plan.phase))
        return -EBADMSG;
    at += plan.phase;
    for (size_t left = fx_elements(&plan, raw_len); left > 0;) {
        size_t count = (size_t)min_u64(left, block_len(plan.width));
        if (!get_block(&c, kernels, &plan, count, &work, at))
            return -EBADMSG;
        at += count * plan.width;
        left -= count;
    }
    return get_bytes(&c, at, (size_t)(end - at)) && c.at == c.end ? 0 : -EBADMSG;
}
