// SPDX-License-Identifier: Apache-2.0
/*   header | bytes before the first element | block | block | ... | the rest as it is
 *
 * Header:
 *
 *   OFFSET SIZE
 *        0    1  bits 0 and 1: width of an element, 1 << them; bit 4: elements are rotated left by
 *                one bit; others zero
 *        1    1  phase: bytes before the first element, less than the width
 *        2    1  coded: bit p: plane p (byte p of the elements) is coded; not 0
 *        3    1  levelled: bit p: plane p is levelled; only coded ones are
 *        4       the codes (lx.c) of the coded planes, in ascending order
 *
 * Blocks have 16,384 elements, or 8,192 of width 8; the last one has what is left, a multiple
 * of 64. What is less than 64 elements is the rest. A block has its planes, in ascending order. One
 * that is not coded is stored as it is; of one that is coded:
 *
 *   if it is levelled: of each 64 bytes their mean. The bytes are less by it, and more by 128.
 *   the bytes as values of its code */
#include "codec/fx.h"

#include "codec/fx_plan.h"
#include "format/chunk.h"
#include "format/le.h"

#define ROTATED 0x10u
#define WIDTH_BITS 0x03u

struct work {
    uint8_t planes[4 * FX_BLOCK] __attribute__((aligned(64)));
    uint8_t seam[4 * FX_BLOCK]; /* a block that lies in more than one buffer */
    struct lx_work lx;
};

/* --- encoding --------------------------------------------------------------------------------- */

struct encoder {
    const struct fx_kernels *kernels;
    const struct fx_plan *plan;
    struct writer to;
    struct work work;
};

static bool put_header(struct encoder *e)
{
    const struct fx_plan *plan = e->plan;
    uint8_t *p = writer_take(&e->to, 4);
    if (!p)
        return false;
    p[0] = (uint8_t)(__builtin_ctz(plan->width) | (plan->rotated ? ROTATED : 0));
    p[1] = plan->phase;
    p[2] = plan->coded;
    p[3] = plan->levelled;
    for (unsigned i = 0; i < plan->width; i++)
        if ((plan->coded & 1u << i) && !lx_put_code(&e->to, &plan->codes[i]))
            return false;
    return true;
}

/* The plane's bytes are changed. */
static bool put_coded(struct encoder *e, unsigned p, uint8_t *bytes, size_t count)
{
    if (e->plan->levelled & 1u << p) {
        uint8_t *means = writer_take(&e->to, count / FX_GROUP);
        if (!means)
            return false;
        e->kernels->level(bytes, count, means);
    }
    return lx_put(&e->to, e->kernels, &e->plan->codes[p], bytes, count, &e->work.lx);
}

static bool put_block(struct encoder *e, const uint8_t *src, size_t count)
{
    const struct fx_plan *plan = e->plan;
    struct writer *to = &e->to;
    uint8_t *planes[8];
    size_t raw = 0;
    /* Planes that are stored as they are go straight to their place: it is known where no coded
     * plane lies before them, the case of floats. */
    bool direct = plan->coded == 1u << (plan->width - 1);
    if (direct && (size_t)(to->end - to->at) < (plan->width - 1) * count)
        return false;
    for (unsigned p = 0; p < plan->width; p++)
        planes[p] =
            direct && p < plan->width - 1u ? to->at + raw++ * count : e->work.planes + p * count;
    e->kernels->split(src, count, plan->width, plan->rotated, planes);
    to->at += raw * count;
    for (unsigned p = (unsigned)raw; p < plan->width; p++)
        if (!(plan->coded & 1u << p ? put_coded(e, p, planes[p], count)
                                    : writer_put(to, planes[p], count)))
            return false;
    return true;
}

/* As they are. */
static bool put_plain(struct encoder *e, struct rope *src, size_t from, size_t to)
{
    return writer_put(&e->to, rope_bytes(src, from, to - from, e->work.seam), to - from);
}

size_t fx_encode_rope(const struct fx_kernels *kernels, const struct fx_guess *guess,
                      struct rope *src, void *dst, size_t limit)
{
    size_t raw_len = src->end;
    check(src->start == 0 && raw_len >= FX_RAW_MIN && raw_len <= CHUNK_SIZE_MAX);
    struct fx_plan plan;
    struct encoder e;
    fx_plan_make(kernels, guess, src, e.work.planes, &plan);
    e.kernels = kernels;
    e.plan = &plan;
    e.to = (struct writer){.at = dst, .end = (uint8_t *)dst + limit};
    if (!plan.coded || !put_header(&e) || !put_plain(&e, src, 0, plan.phase))
        return 0;
    size_t at = plan.phase;
    for (size_t left = fx_elements(plan.width, plan.phase, raw_len); left > 0;) {
        size_t count = (size_t)min_u64(left, fx_block_len(plan.width)), len = count * plan.width;
        if (!put_block(&e, rope_bytes(src, at, len, e.work.seam), count))
            return 0;
        at += len;
        left -= count;
    }
    return put_plain(&e, src, at, raw_len) ? (size_t)(e.to.at - (uint8_t *)dst) : 0;
}

size_t fx_encode(const struct fx_kernels *kernels, const struct fx_guess *guess, const void *src,
                 size_t raw_len, void *dst, size_t limit)
{
    struct iovec iov = {(void *)(uintptr_t)src, raw_len};
    struct rope rope;
    rope_init(&rope, &iov, 1, 0);
    return fx_encode_rope(kernels, guess, &rope, dst, limit);
}

/* --- decoding --------------------------------------------------------------------------------- */

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
        if ((plan->coded & 1u << i) && !lx_get_code(c, &plan->codes[i]))
            return false;
    return true;
}

static bool get_coded(struct cursor *c, const struct fx_kernels *kernels,
                      const struct fx_plan *plan, unsigned p, uint8_t *bytes, size_t count,
                      struct work *work)
{
    const uint8_t *means = plan->levelled & 1u << p ? cursor_bytes(c, count / FX_GROUP) : NULL;
    if (c->failed || !lx_get(c, kernels, &plan->codes[p], bytes, count, &work->lx))
        return false;
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

int fx_decode(const struct fx_kernels *kernels, const void *src, size_t stored_len, void *dst,
              size_t raw_len)
{
    struct cursor c = {.at = src, .end = (const uint8_t *)src + stored_len};
    struct fx_plan plan;
    struct work work;
    uint8_t *at = dst, *end = at + raw_len;
    if (!get_header(&c, raw_len, &plan) || !cursor_copy(&c, at, plan.phase))
        return -EBADMSG;
    at += plan.phase;
    for (size_t left = fx_elements(plan.width, plan.phase, raw_len); left > 0;) {
        size_t count = (size_t)min_u64(left, fx_block_len(plan.width));
        if (!get_block(&c, kernels, &plan, count, &work, at))
            return -EBADMSG;
        at += count * plan.width;
        left -= count;
    }
    return cursor_copy(&c, at, (size_t)(end - at)) && c.at == c.end ? 0 : -EBADMSG;
}

static bool next_is(struct cursor *c, struct rope *raw, size_t from, size_t to, uint8_t *seam)
{
    const uint8_t *p = cursor_bytes(c, to - from);
    return p && memcmp(p, rope_bytes(raw, from, to - from, seam), to - from) == 0;
}

bool fx_decodes_to(const struct fx_kernels *kernels, const void *stored, size_t stored_len,
                   struct rope *raw)
{
    struct cursor c = {.at = stored, .end = (const uint8_t *)stored + stored_len};
    struct fx_plan plan;
    struct work work;
    uint8_t block[4 * FX_BLOCK] __attribute__((aligned(64)));
    size_t raw_len = raw->end;
    check(raw->start == 0);
    if (!get_header(&c, raw_len, &plan) || !next_is(&c, raw, 0, plan.phase, work.seam))
        return false;
    size_t at = plan.phase;
    for (size_t left = fx_elements(plan.width, plan.phase, raw_len); left > 0;) {
        size_t count = (size_t)min_u64(left, fx_block_len(plan.width)), len = count * plan.width;
        if (!get_block(&c, kernels, &plan, count, &work, block) ||
            memcmp(block, rope_bytes(raw, at, len, work.seam), len) != 0)
            return false;
        at += len;
        left -= count;
    }
    return next_is(&c, raw, at, raw_len, work.seam) && c.at == c.end;
}
