// SPDX-License-Identifier: Apache-2.0
/*   header | bytes before the first element | block | block | ... | the rest as it is
 *
 * Header:
 *
 *   OFFSET SIZE
 *        0    1  bits 0 and 1: log2 of the width of an element; bit 4: elements are rotated left by
 *                one bit; bit 5: there are columns; bit 6: no element has a sign; others zero
 *        1    1  phase: bytes before the first element, less than the width
 *        2    1  coded: bit p: plane p (byte p of the elements) is coded; not 0
 *        3    1  levelled: bit p: plane p is levelled; only coded ones are
 *        4       with bit 5: the columns (fx_columns.c) of the highest plane, which is coded
 *                the codes (lx.c) of the coded planes, in ascending order
 *
 * Blocks have 16,384 elements, or 8,192 of width 8; the last one has the remaining elements, a
 * multiple of 64. Fewer than 64 elements behind it are the rest. A block has its planes, in
 * ascending order. A plane that is not coded is stored as it is; a coded one is stored as
 *
 *   if it is levelled: the mean of each 64 bytes. It is subtracted from the bytes, and 128 added.
 *   the bytes as values of its code
 *
 * With columns, the value that they predict is subtracted from each byte of the highest plane
 * before it is levelled. Without signs, elements are rotated, plane 0 is not coded, and is stored
 * as 7 bytes for 8: of each 64 bytes, which are even, the first 56. Their lowest bits together hold
 * the last 8 bytes: bit k * 7 + b is bit b + 1 of byte 56 + k. */
#include "codec/fx.h"

#include "codec/fx_plan.h"
#include "format/chunk.h"
#include "format/le.h"

#define ROTATED 0x10u
#define COLUMNS 0x20u
#define SIGNLESS 0x40u
#define WIDTH_BITS 0x03u

/* Elements of a block that are processed at a time, so that each step finds the results of the step
 * before in the nearest cache. */
#define PIECE 1024u

struct work {
    uint8_t planes[4 * FX_BLOCK] __attribute__((aligned(64)));
    uint8_t seam[4 * FX_BLOCK]; /* a block that lies in more than one buffer */
    uint8_t highest[PIECE] __attribute__((aligned(64))), even[PIECE] __attribute__((aligned(64)));
    struct lx_work lx;
    struct fx_columns columns; /* for decoding */
};

/* --- encoding --------------------------------------------------------------------------------- */

struct encoder {
    const struct fx_kernels *kernels;
    const struct fx_plan *plan;
    size_t done; /* in elements */
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

/* Changes the bytes of the plane. */
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

static size_t uncoded_len(const struct fx_plan *plan, unsigned p, size_t count)
{
    return p == 0 && plan->is_signless ? fx_packed_len(count) : count;
}

/* The places of the planes of a block of which only the highest plane is coded, the case of
 * floats. */
struct places {
    uint8_t *planes[8], *means;
    struct lx_put top;
};

static bool take_places_of_planes(struct encoder *e, size_t count, struct places *ret)
{
    const struct fx_plan *plan = e->plan;
    const unsigned top = plan->width - 1u;
    for (unsigned p = 0; p < top; p++) {
        ret->planes[p] = writer_take(&e->to, uncoded_len(plan, p, count));
        if (!ret->planes[p])
            return false;
    }
    if (plan->levelled) {
        ret->means = writer_take(&e->to, count / FX_GROUP);
        if (!ret->means)
            return false;
    }
    ret->top = (struct lx_put){
        .to = &e->to, .kernels = e->kernels, .code = &plan->codes[top], .work = &e->work.lx};
    return lx_put_begin(&ret->top, count);
}

/* `at`: the piece's first element in the block. */
static void put_piece(struct encoder *e, const uint8_t *src, size_t at, size_t count,
                      struct places *places)
{
    const struct fx_plan *plan = e->plan;
    const unsigned top = plan->width - 1u;
    uint8_t *planes[8], *highest = e->work.highest, *even = e->work.even;
    for (unsigned p = 0; p < top; p++)
        planes[p] = p == 0 && plan->is_signless ? even : places->planes[p] + at;
    planes[top] = highest;
    e->kernels->split(src, count, plan->width, plan->rotated, planes);
    if (plan->is_signless)
        fx_pack_even(even, count, places->planes[0] + fx_packed_len(at));
    if (plan->columns)
        fx_columns_take(plan->columns, e->done + at, highest, count);
    if (plan->levelled)
        e->kernels->level(highest, count, places->means + at / FX_GROUP);
    lx_put_piece(&places->top, highest, count);
}

static bool put_pieces(struct encoder *e, const uint8_t *src, size_t count)
{
    const size_t width = e->plan->width;
    struct places places;
    if (!take_places_of_planes(e, count, &places))
        return false;
    for (size_t at = 0; at < count; at += PIECE) {
        /* Prefetch the next piece: the processor does not predict accesses to a new page. */
        size_t next = (size_t)min_u64(at + PIECE, count),
               end = (size_t)min_u64(next + PIECE, count);
        for (size_t i = next * width; i < end * width; i += 64)
            __builtin_prefetch(src + i, 0, 3);
        put_piece(e, src + at * width, at, next - at, &places);
    }
    return lx_put_end(&places.top);
}

/* Plane by plane: the place of a plane is known only when the planes before it are written. */
static bool put_planes(struct encoder *e, const uint8_t *src, size_t count)
{
    const struct fx_plan *plan = e->plan;
    uint8_t *planes[8];
    check(!plan->is_signless && !plan->columns);
    for (unsigned p = 0; p < plan->width; p++)
        planes[p] = e->work.planes + p * count;
    e->kernels->split(src, count, plan->width, plan->rotated, planes);
    for (unsigned p = 0; p < plan->width; p++)
        if (!(plan->coded & 1u << p ? put_coded(e, p, planes[p], count)
                                    : writer_put(&e->to, planes[p], count)))
            return false;
    return true;
}

static bool put_block(struct encoder *e, const uint8_t *src, size_t count)
{
    bool is_put = e->plan->coded == 1u << (e->plan->width - 1) ? put_pieces(e, src, count)
                                                               : put_planes(e, src, count);
    e->done += count;
    return is_put;
}

/* Stores the bytes from `from` to `to` as they are. */
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

/* Stores all exponents in m->exponents. False: some element has a sign. */
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

/* Subtracts the prediction from the exponents and makes the code for the differences. Returns the
 * bits that they take. */
static uint64_t plan_columns(struct matrix *m, size_t elements, struct lx_code *code)
{
    uint32_t counts[256];
    fx_columns_take(&m->columns, 0, m->exponents, elements);
    lx_count(m->exponents, elements, counts);
    uint64_t bits = lx_code_make_of_many(counts, elements, code);
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

/* Returns whether the planes are such that columns and missing signs are possible. */
static bool is_matrix(const struct fx_plan *plan)
{
    return (!plan->is_signless || (plan->rotated && !(plan->coded & 1))) &&
           (!plan->columns || plan->coded >> (plan->width - 1) & 1);
}

struct decoder {
    const struct fx_kernels *kernels;
    struct cursor from;
    struct fx_plan plan;
    size_t elements, done;
    /* Of the block that is being decoded: the planes below the highest one, and the highest one if
     * it is not coded; else its means, if it is levelled. */
    const uint8_t *planes[8], *means;
    struct lx_get top;
    const uint8_t *began; /* where the block begins */
    struct work work;
};

static bool get_header(struct decoder *d, size_t raw_len)
{
    struct cursor *c = &d->from;
    struct fx_plan *plan = &d->plan;
    const uint8_t *p = cursor_bytes(c, 4);
    if (!p || (p[0] & ~(ROTATED | COLUMNS | SIGNLESS | WIDTH_BITS)))
        return false;
    *plan = (struct fx_plan){.width = (uint8_t)(1u << (p[0] & WIDTH_BITS)),
                             .phase = p[1],
                             .rotated = p[0] & ROTATED,
                             .coded = p[2],
                             .levelled = p[3],
                             .is_signless = p[0] & SIGNLESS,
                             .columns = p[0] & COLUMNS ? &d->work.columns : NULL};
    if (plan->phase >= plan->width || plan->phase > raw_len || plan->coded == 0 ||
        plan->coded >> plan->width || (plan->levelled & ~plan->coded) || !is_matrix(plan))
        return false;
    d->elements = fx_elements(plan->width, plan->phase, raw_len);
    if (plan->columns && !fx_columns_get(c, d->kernels, d->elements, plan->columns, &d->work.lx))
        return false;
    for (unsigned i = 0; i < plan->width; i++)
        if ((plan->coded & 1u << i) && !lx_get_code(c, &plan->codes[i]))
            return false;
    return true;
}

/* Decodes a coded plane below the highest one. */
static bool get_coded(struct decoder *d, unsigned p, uint8_t *bytes, size_t count)
{
    bool is_levelled = d->plan.levelled & 1u << p;
    const uint8_t *means = is_levelled ? cursor_bytes(&d->from, count / FX_GROUP) : NULL;
    if (d->from.failed ||
        !lx_get(&d->from, d->kernels, &d->plan.codes[p], bytes, count, &d->work.lx))
        return false;
    if (means)
        d->kernels->unlevel(bytes, count, means);
    return true;
}

/* Returns the bytes of a plane that is not coded; NULL: they are not left. */
static const uint8_t *get_uncoded(struct decoder *d, unsigned p, size_t count, uint8_t *room)
{
    const uint8_t *bytes = cursor_bytes(&d->from, uncoded_len(&d->plan, p, count));
    if (p > 0 || !d->plan.is_signless || !bytes)
        return bytes;
    fx_unpack_even(bytes, count, room);
    return room;
}

static bool get_lower_planes(struct decoder *d, size_t count)
{
    for (unsigned p = 0; p < d->plan.width - 1u; p++) {
        uint8_t *room = d->work.planes + p * count;
        bool is_coded = d->plan.coded & 1u << p;
        d->planes[p] = is_coded ? room : get_uncoded(d, p, count, room);
        if (is_coded ? !get_coded(d, p, room, count) : !d->planes[p])
            return false;
    }
    return true;
}

static bool get_block(struct decoder *d)
{
    const unsigned top = d->plan.width - 1u;
    size_t count = (size_t)min_u64(d->elements - d->done, fx_block_len(d->plan.width));
    d->began = d->from.at;
    if (!get_lower_planes(d, count))
        return false;
    if (!(d->plan.coded & 1u << top)) {
        d->planes[top] = get_uncoded(d, top, count, NULL);
        return d->planes[top] != NULL;
    }
    bool is_levelled = d->plan.levelled & 1u << top;
    d->means = is_levelled ? cursor_bytes(&d->from, count / FX_GROUP) : NULL;
    d->top =
        (struct lx_get){.kernels = d->kernels, .code = &d->plan.codes[top], .work = &d->work.lx};
    return !d->from.failed && lx_get_begin(&d->top, &d->from, count);
}

/* `at`: the first element's place in the block. */
static bool get_highest(struct decoder *d, size_t at, size_t count)
{
    uint8_t *bytes = d->work.highest;
    if (!lx_get_piece(&d->top, bytes, count))
        return false;
    if (d->means)
        d->kernels->unlevel(bytes, count, d->means + at / FX_GROUP);
    if (d->plan.columns)
        fx_columns_give(d->plan.columns, d->done, bytes, count);
    return true;
}

static size_t piece_len(const struct decoder *d)
{
    return (size_t)min_u64(d->elements - d->done, PIECE);
}

/* Prefetches that share of the next block, which follows this one, that a piece is of a block: its
 * planes are read side by side, and none is long enough for the processor to predict. Inline, as
 * the compiler would find that a function which only prefetches has no effect. */
static inline __attribute__((always_inline)) void prefetch_next(const struct decoder *d, size_t at,
                                                                size_t count)
{
    size_t len = (size_t)(d->from.at - d->began), block = fx_block_len(d->plan.width);
    size_t left = (size_t)(d->from.end - d->from.at);
    size_t end = (size_t)min_u64(left, len * (at + count) / block);
    for (size_t i = len * at / block; i < end; i += 64)
        __builtin_prefetch(d->from.at + i, 0, 2);
}

/* Decodes piece_len() elements. */
static bool get_piece(struct decoder *d, uint8_t *dst)
{
    const struct fx_plan *plan = &d->plan;
    const unsigned top = plan->width - 1u;
    size_t at = d->done % fx_block_len(plan->width), count = piece_len(d);
    const uint8_t *planes[8];
    if (at == 0 && !get_block(d))
        return false;
    prefetch_next(d, at, count);
    for (unsigned p = 0; p < top; p++)
        planes[p] = d->planes[p] + at;
    if (!(plan->coded & 1u << top))
        planes[top] = d->planes[top] + at;
    else if (get_highest(d, at, count))
        planes[top] = d->work.highest;
    else
        return false;
    d->kernels->join(planes, count, plan->width, plan->rotated, dst);
    d->done += count;
    return true;
}

int fx_decode(const struct fx_kernels *kernels, const void *src, size_t stored_len, void *dst,
              size_t raw_len)
{
    struct decoder d;
    uint8_t *at = dst, *end = at + raw_len;
    d.kernels = kernels;
    d.from = (struct cursor){.at = src, .end = (const uint8_t *)src + stored_len};
    if (!get_header(&d, raw_len) || !cursor_copy(&d.from, at, d.plan.phase))
        return -EBADMSG;
    at += d.plan.phase;
    for (d.done = 0; d.done < d.elements;) {
        size_t len = piece_len(&d) * d.plan.width;
        if (!get_piece(&d, at))
            return -EBADMSG;
        at += len;
    }
    return cursor_copy(&d.from, at, (size_t)(end - at)) && d.from.at == d.from.end ? 0 : -EBADMSG;
}

static bool next_is(struct cursor *c, struct rope *raw, size_t from, size_t to, uint8_t *seam)
{
    const uint8_t *p = cursor_bytes(c, to - from);
    return p && memcmp(p, rope_bytes(raw, from, to - from, seam), to - from) == 0;
}

bool fx_decodes_to(const struct fx_kernels *kernels, const void *stored, size_t stored_len,
                   struct rope *raw)
{
    struct decoder d;
    uint8_t piece[8 * PIECE] __attribute__((aligned(64)));
    size_t raw_len = raw->end;
    check(raw->start == 0);
    d.kernels = kernels;
    d.from = (struct cursor){.at = stored, .end = (const uint8_t *)stored + stored_len};
    if (!get_header(&d, raw_len) || !next_is(&d.from, raw, 0, d.plan.phase, d.work.seam))
        return false;
    size_t at = d.plan.phase;
    for (d.done = 0; d.done < d.elements;) {
        size_t len = piece_len(&d) * d.plan.width;
        if (!get_piece(&d, piece) || memcmp(piece, rope_bytes(raw, at, len, d.work.seam), len) != 0)
            return false;
        at += len;
    }
    return next_is(&d.from, raw, at, raw_len, d.work.seam) && d.from.at == d.from.end;
}
