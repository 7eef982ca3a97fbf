// SPDX-License-Identifier: Apache-2.0
/*   header | bytes before the first element | block | block | ... | the rest as it is
 *
 * Header:
 *
 *   OFFSET SIZE
 *        0    1  bits 0 and 1: width of an element, 1 << them; bit 4: elements are rotated left by
 *                one bit; bit 5: there are columns; bit 6: no element has a sign; others zero
 *        1    1  phase: bytes before the first element, less than the width
 *        2    1  coded: bit p: plane p (byte p of the elements) is coded; not 0
 *        3    1  levelled: bit p: plane p is levelled; only coded ones are
 *        4       with bit 5: the columns (fx_columns.c) of the highest plane, which is coded
 *                the codes (lx.c) of the coded planes, in ascending order
 *
 * Blocks have 16,384 elements, or 8,192 of width 8; the last one has what is left, a multiple
 * of 64. What is less than 64 elements is the rest. A block has its planes, in ascending order. One
 * that is not coded is stored as it is; of one that is coded:
 *
 *   if it is levelled: of each 64 bytes their mean. The bytes are less by it, and more by 128.
 *   the bytes as values of its code
 *
 * With columns, the bytes of the highest plane are less by what these tell of them, before they are
 * levelled. Without signs, elements are rotated, plane 0 is not coded, and it has 7 bytes for 8: of
 * each 64, which are even, the first 56. Bit k * 7 + b of what their lowest bits are together is
 * bit b + 1 of byte 56 + k. */
#include "codec/fx.h"

#include "codec/fx_plan.h"
#include "format/chunk.h"
#include "format/le.h"

#define ROTATED 0x10u
#define COLUMNS 0x20u
#define SIGNLESS 0x40u
#define WIDTH_BITS 0x03u

struct work {
    uint8_t planes[4 * FX_BLOCK] __attribute__((aligned(64)));
    uint8_t seam[4 * FX_BLOCK]; /* a block that lies in more than one buffer */
    struct lx_work lx;
    struct fx_columns columns; /* to decode with */
};

/* --- encoding --------------------------------------------------------------------------------- */

struct encoder {
    const struct fx_kernels *kernels;
    const struct fx_plan *plan;
    size_t done; /* elements */
    struct writer to;
    struct work work;
};

static bool put_header(struct encoder *e)
{
    const struct fx_plan *plan = e->plan;
    uint8_t *p = writer_take(&e->to, 4);
    if (!p)
        return false;
    p[0] = (uint8_t)((unsigned)__builtin_ctz(plan->width) | (plan->rotated ? ROTATED : 0) |
                     (plan->columns ? COLUMNS : 0) | (plan->is_signless ? SIGNLESS : 0));
    p[1] = plan->phase;
    p[2] = plan->coded;
    p[3] = plan->levelled;
    if (plan->columns &&
        !fx_columns_put(&e->to, e->kernels, plan->columns, e->work.planes, &e->work.lx))
        return false;
    for (unsigned i = 0; i < plan->width; i++)
        if ((plan->coded & 1u << i) && !lx_put_code(&e->to, &plan->codes[i]))
            return false;
    return true;
}

/* The plane's bytes are changed. */
static bool put_coded(struct encoder *e, unsigned p, uint8_t *bytes, size_t count)
{
    if (e->plan->columns && p == e->plan->width - 1u)
        fx_columns_take(e->plan->columns, e->done, bytes, count);
    if (e->plan->levelled & 1u << p) {
        uint8_t *means = writer_take(&e->to, count / FX_GROUP);
        if (!means)
            return false;
        e->kernels->level(bytes, count, means);
    }
    return lx_put(&e->to, e->kernels, &e->plan->codes[p], bytes, count, &e->work.lx);
}

static bool put_uncoded(struct encoder *e, unsigned p, const uint8_t *bytes, size_t count)
{
    if (p > 0 || !e->plan->is_signless)
        return writer_put(&e->to, bytes, count);
    uint8_t *packed = writer_take(&e->to, fx_packed_len(count));
    if (packed)
        fx_pack_even(bytes, count, packed);
    return packed != NULL;
}

static bool put_block(struct encoder *e, const uint8_t *src, size_t count)
{
    const struct fx_plan *plan = e->plan;
    struct writer *to = &e->to;
    uint8_t *planes[8];
    size_t raw = 0;
    /* Planes that are stored as they are go straight to their place: it is known where no coded
     * plane lies before them, the case of floats. */
    bool direct = plan->coded == 1u << (plan->width - 1) && !plan->is_signless;
    if (direct && (size_t)(to->end - to->at) < (plan->width - 1) * count)
        return false;
    for (unsigned p = 0; p < plan->width; p++)
        planes[p] =
            direct && p < plan->width - 1u ? to->at + raw++ * count : e->work.planes + p * count;
    e->kernels->split(src, count, plan->width, plan->rotated, planes);
    to->at += raw * count;
    for (unsigned p = (unsigned)raw; p < plan->width; p++)
        if (!(plan->coded & 1u << p ? put_coded(e, p, planes[p], count)
                                    : put_uncoded(e, p, planes[p], count)))
            return false;
    e->done += count;
    return true;
}

/* As they are. */
static bool put_plain(struct encoder *e, struct rope *src, size_t from, size_t to)
{
    return writer_put(&e->to, rope_bytes(src, from, to - from, e->work.seam), to - from);
}

static size_t encode_planned(struct encoder *e, const struct fx_plan *plan, struct rope *src)
{
    const uint8_t *first = e->to.at;
    e->plan = plan;
    e->done = 0;
    if (!plan->coded || !put_header(e) || !put_plain(e, src, 0, plan->phase))
        return 0;
    size_t at = plan->phase;
    for (size_t left = fx_elements(plan->width, plan->phase, src->end); left > 0;) {
        size_t count = (size_t)min_u64(left, fx_block_len(plan->width)), len = count * plan->width;
        if (!put_block(e, rope_bytes(src, at, len, e->work.seam), count))
            return 0;
        at += len;
        left -= count;
    }
    return put_plain(e, src, at, src->end) ? (size_t)(e->to.at - first) : 0;
}

size_t fx_encode_rope(const struct fx_kernels *kernels, const struct fx_guess *guess,
                      struct rope *src, void *dst, size_t limit)
{
    check(src->start == 0 && src->end >= FX_RAW_MIN && src->end <= CHUNK_SIZE_MAX);
    struct fx_plan plan;
    struct encoder e;
    fx_plan_make(kernels, guess, src, e.work.planes, &plan);
    e.kernels = kernels;
    e.to = (struct writer){.at = dst, .end = (uint8_t *)dst + limit};
    return encode_planned(&e, &plan, src);
}

size_t fx_encode(const struct fx_kernels *kernels, const struct fx_guess *guess, const void *src,
                 size_t raw_len, void *dst, size_t limit)
{
    struct iovec iov = {(void *)(uintptr_t)src, raw_len};
    struct rope rope;
    rope_init(&rope, &iov, 1, 0);
    return fx_encode_rope(kernels, guess, &rope, dst, limit);
}

/* --- matrices --------------------------------------------------------------------------------- */

struct matrix {
    struct fx_columns columns;
    struct fx_columns_work work;
    uint8_t exponents[CHUNK_SIZE_MAX / 2], levelled[CHUNK_SIZE_MAX / 2];
    uint8_t means[CHUNK_SIZE_MAX / 2 / FX_GROUP];
};

_Static_assert(sizeof(struct matrix) <= FX_MATRIX_SCRATCH_LEN, "a matrix fits");

/* All exponents go to m->exponents. False: some element has a sign. */
static bool take_exponents(struct encoder *e, struct fx_plan *plan, const uint8_t *src,
                           size_t elements, struct matrix *m)
{
    uint8_t signs = 0;
    for (size_t done = 0; done < elements;) {
        size_t count = (size_t)min_u64(elements - done, fx_block_len(plan->width));
        uint8_t *planes[8];
        for (unsigned p = 0; p < plan->width - 1u; p++)
            planes[p] = e->work.planes + p * count;
        planes[plan->width - 1] = m->exponents + done;
        e->kernels->split(src + done * plan->width, count, plan->width, true, planes);
        for (size_t i = 0; i < count; i++)
            signs |= planes[0][i];
        done += count;
    }
    return !(signs & 1);
}

/* Makes the code for what columns leave of the exponents. Returns the bits that they take. */
static uint64_t plan_columns(struct matrix *m, size_t elements, struct lx_code *code)
{
    uint32_t counts[256] = {0};
    uint16_t scaled[256];
    unsigned shift = 0;
    fx_columns_take(&m->columns, 0, m->exponents, elements);
    for (size_t i = 0; i < elements; i++)
        counts[m->exponents[i]]++;
    while (elements >> shift > UINT16_MAX / 2)
        shift++;
    for (unsigned value = 0; value < 256; value++)
        scaled[value] = (uint16_t)((counts[value] + (1u << shift) - 1) >> shift);
    uint64_t bits = lx_code_make(scaled, elements >> shift, code) << shift;
    lx_code_rank(code);
    return bits;
}

size_t fx_encode_matrix(const struct fx_kernels *kernels, const struct fx_guess *guess,
                        const void *src, size_t raw_len, void *scratch, void *dst, size_t limit)
{
    check(raw_len >= FX_RAW_MIN && raw_len <= CHUNK_SIZE_MAX);
    struct iovec iov = {(void *)(uintptr_t)src, raw_len};
    struct rope rope;
    struct matrix *m = scratch;
    struct encoder e;
    const unsigned top = guess->width - 1u;
    if ((guess->width != 2 && guess->width != 4) ||
        !((guess->coded[0] | guess->coded[1]) & 1u << top))
        return 0;
    struct fx_plan plan = {.width = guess->width,
                           .phase = guess->phase,
                           .rotated = true,
                           .coded = (uint8_t)(1u << top),
                           .columns = &m->columns};
    size_t elements = fx_elements(plan.width, plan.phase, raw_len);
    rope_init(&rope, &iov, 1, 0);
    e.kernels = kernels;
    e.to = (struct writer){.at = dst, .end = (uint8_t *)dst + limit};
    plan.is_signless = take_exponents(&e, &plan, (const uint8_t *)src + plan.phase, elements, m);
    memcpy(m->levelled, m->exponents, elements);
    kernels->level(m->levelled, elements, m->means);
    if (!fx_columns_find(m->exponents, m->levelled, elements, &m->work, &m->columns))
        return 0;
    uint64_t bits = plan_columns(m, elements, &plan.codes[top]) + 8 * elements * top -
                    (plan.is_signless ? elements : 0);
    return plan.codes[top].levels && bits / 8 <= limit ? encode_planned(&e, &plan, &rope) : 0;
}

/* --- decoding --------------------------------------------------------------------------------- */

/* Columns and signs find the planes that they need. */
static bool is_matrix(const struct fx_plan *plan)
{
    return (!plan->is_signless || (plan->rotated && !(plan->coded & 1))) &&
           (!plan->columns || plan->coded >> (plan->width - 1) & 1);
}

static bool get_header(struct cursor *c, const struct fx_kernels *kernels, size_t raw_len,
                       struct fx_plan *plan, struct work *work)
{
    const uint8_t *p = cursor_bytes(c, 4);
    if (!p || (p[0] & ~(ROTATED | COLUMNS | SIGNLESS | WIDTH_BITS)))
        return false;
    *plan = (struct fx_plan){.width = (uint8_t)(1u << (p[0] & WIDTH_BITS)),
                             .phase = p[1],
                             .rotated = p[0] & ROTATED,
                             .coded = p[2],
                             .levelled = p[3],
                             .is_signless = p[0] & SIGNLESS,
                             .columns = p[0] & COLUMNS ? &work->columns : NULL};
    if (plan->phase >= plan->width || plan->phase > raw_len || plan->coded == 0 ||
        plan->coded >> plan->width || (plan->levelled & ~plan->coded) || !is_matrix(plan))
        return false;
    if (plan->columns && !fx_columns_get(c, kernels, fx_elements(plan->width, plan->phase, raw_len),
                                         plan->columns, &work->lx))
        return false;
    for (unsigned i = 0; i < plan->width; i++)
        if ((plan->coded & 1u << i) && !lx_get_code(c, &plan->codes[i]))
            return false;
    return true;
}

/* `done`: elements before these. */
static bool get_coded(struct cursor *c, const struct fx_kernels *kernels,
                      const struct fx_plan *plan, unsigned p, size_t done, uint8_t *bytes,
                      size_t count, struct work *work)
{
    const uint8_t *means = plan->levelled & 1u << p ? cursor_bytes(c, count / FX_GROUP) : NULL;
    if (c->failed || !lx_get(c, kernels, &plan->codes[p], bytes, count, &work->lx))
        return false;
    if (means)
        kernels->unlevel(bytes, count, means);
    if (plan->columns && p == plan->width - 1u)
        fx_columns_give(plan->columns, done, bytes, count);
    return true;
}

/* NULL: the bytes are not there. */
static const uint8_t *get_uncoded(struct cursor *c, const struct fx_plan *plan, unsigned p,
                                  size_t count, uint8_t *room)
{
    if (p > 0 || !plan->is_signless)
        return cursor_bytes(c, count);
    const uint8_t *packed = cursor_bytes(c, fx_packed_len(count));
    if (!packed)
        return NULL;
    fx_unpack_even(packed, count, room);
    return room;
}

static bool get_block(struct cursor *c, const struct fx_kernels *kernels,
                      const struct fx_plan *plan, size_t done, size_t count, struct work *work,
                      uint8_t *dst)
{
    const uint8_t *planes[8];
    for (unsigned p = 0; p < plan->width; p++) {
        uint8_t *room = work->planes + p * count;
        bool is_coded = plan->coded & 1u << p;
        planes[p] = is_coded ? room : get_uncoded(c, plan, p, count, room);
        if (is_coded ? !get_coded(c, kernels, plan, p, done, room, count, work) : !planes[p])
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
    if (!get_header(&c, kernels, raw_len, &plan, &work) || !cursor_copy(&c, at, plan.phase))
        return -EBADMSG;
    at += plan.phase;
    size_t elements = fx_elements(plan.width, plan.phase, raw_len);
    for (size_t done = 0; done < elements;) {
        size_t count = (size_t)min_u64(elements - done, fx_block_len(plan.width));
        if (!get_block(&c, kernels, &plan, done, count, &work, at))
            return -EBADMSG;
        at += count * plan.width;
        done += count;
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
    if (!get_header(&c, kernels, raw_len, &plan, &work) ||
        !next_is(&c, raw, 0, plan.phase, work.seam))
        return false;
    size_t at = plan.phase;
    size_t elements = fx_elements(plan.width, plan.phase, raw_len);
    for (size_t done = 0; done < elements;) {
        size_t count = (size_t)min_u64(elements - done, fx_block_len(plan.width)),
               len = count * plan.width;
        if (!get_block(&c, kernels, &plan, done, count, &work, block) ||
            memcmp(block, rope_bytes(raw, at, len, work.seam), len) != 0)
            return false;
        at += len;
        done += count;
    }
    return next_is(&c, raw, at, raw_len, work.seam) && c.at == c.end;
}
