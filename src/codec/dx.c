// SPDX-License-Identifier: Apache-2.0
/*   header | bytes before the first element | block | block | ... | the rest as it is
 *
 * Header:
 *
 *   OFFSET SIZE
 *        0    1  width of an element: 1, 2 or 3 for 2, 4 or 8 bytes
 *        1    1  phase: bytes before the first element, less than the width
 *        2    1  low planes: how many are stored as they are, less than the width
 *        3    1  depth: how often zeros are taken out of the ranks, 0 to 2
 *        4    1  number of classes, 1 to 16
 *        5    1  shift, 0 to 7
 *        6    1  first exponent
 *        7       each class's lengths by rank, a byte each, 0 to 8 * (width - low planes); all
 *                classes together have less than 256
 *                depth + 1 codes (lx.c)
 *
 * Elements of the base and of the chunk are read as integers, all bits except the highest one
 * inverted if the highest one is set. The base's integer is subtracted from the chunk's, modulo
 * 2^bits; the difference d is stored as 2d, or as -2d - 1 if it is negative as a signed number. Its
 * lowest bytes are the low planes. The upper part has a length in bits, 0 if it is 0; its field is
 * the bits below its highest one.
 *
 * The class is the exponent of the base's element, its highest 8 bits behind the sign, shifted
 * right, less the first exponent; below this range it is class 0, above the last one. Changes of
 * one size have other lengths at each exponent. So lengths are stored as ranks in their class.
 *
 * Blocks have 16,384 elements, or 8,192 of width 8; the last one has the remaining elements, a
 * multiple of 64. Fewer than 64 elements behind it are the rest. A block has
 *
 *   the low planes, a byte for each element
 *   the ranks
 *   the fields, the first element's lowest, with less than 8 unused bits behind the last
 *
 * With depth 0 the ranks are values of the first code. Otherwise each step takes out zeros: bit i
 * of its masks says whether byte i is not zero, and the bytes that are not zero, less 1, are the
 * step's present bytes. The masks are bytes, 8 for each 64 input bytes (or fewer at the end), and
 * are the input of the next step. Stored are
 *
 *   the masks of the last step, values of the last code
 *   for each step, from the last to the first, its present bytes: values of the step's code
 *
 * If bit 4 of the first byte is set, the chunk has the form of dx_ans.c. */
#include "codec/dx.h"

#include "codec/dx_ans.h"
#include "codec/dx_plan.h"
#include "codec/fx_plan.h"
#include "format/chunk.h"

#define WIDTH_BITS 0x03u
#define HEADER_LEN 7u
/* fewer saved bytes than this share of the chunk are not worth a slower form */
#define DX_ANS_WORTH_SHARE 64u

static const struct dx_sample gate_sample = {.blocks = 32, .count = 64},
                              plan_sample = {.blocks = 32, .count = 256};

struct work {
    struct dx_lengths lengths;
    struct lx_work lx;
    uint8_t fields[4 * LX_VALUES_MAX + DX_SLACK];
};

uint32_t dx_gate(const struct dx_kernels *kernels, const struct fx_guess *guess,
                 const struct dx_pair *pair)
{
    struct dx_plan plan;
    check(pair->raw_len >= FX_RAW_MIN && guess->phase < guess->width);
    uint32_t parts = dx_plan_make(kernels, guess, pair, gate_sample, &plan);
    return (uint32_t)min_u64(1000, parts / (DX_PARTS / 1000));
}

/* Returns the elements of a block: low planes at `planes`, lengths and fields in `work`, for
 * `count` elements. */
static struct dx_elements elements_of(const struct dx_plan *plan, const uint8_t *base, size_t count,
                                      const uint8_t *planes, struct work *work)
{
    struct dx_elements ret = {
        .base = base, .count = count, .width = plan->width, .low_planes = plan->low_planes};
    for (unsigned p = 0; planes && (p == 0 || p < plan->low_planes); p++)
        ret.low[p] = (uint8_t *)(uintptr_t)planes + p * count;
    dx_lengths_init(&work->lengths, count);
    ret.lengths = work->lengths.values[0];
    return ret;
}

/* --- encoding --------------------------------------------------------------------------------- */

struct encoder {
    const struct dx_kernels *kernels;
    struct dx_plan plan;
    struct writer to;
    struct work work;
};

static bool put_header(struct encoder *e)
{
    const struct dx_plan *plan = &e->plan;
    const struct dx_classes *classes = &plan->classes;
    uint8_t header[HEADER_LEN] = {(uint8_t)__builtin_ctz(plan->width),
                                  plan->phase,
                                  plan->low_planes,
                                  plan->depth,
                                  classes->count,
                                  classes->shift,
                                  classes->first};
    if (!writer_put(&e->to, header, sizeof header) ||
        !writer_put(&e->to, plan->length_of, (size_t)classes->count * classes->lengths))
        return false;
    for (unsigned i = 0; i <= plan->depth; i++)
        if (!lx_put_code(&e->to, &plan->codes[i]))
            return false;
    return true;
}

/* Replaces lengths by ranks. */
static void rank_lengths(struct encoder *e, const uint8_t *base)
{
    const struct dx_plan *plan = &e->plan;
    uint8_t *values = e->work.lengths.values[0];
    size_t count = e->work.lengths.counts[0];
    if (plan->classes.count > 1)
        e->kernels->add_classes(base, count, plan->width, &plan->classes, values);
    e->kernels->fx->translate(values, count, plan->rank_of);
}

static bool put_ranks(struct encoder *e)
{
    const struct dx_plan *plan = &e->plan;
    const struct fx_kernels *fx = e->kernels->fx;
    struct dx_lengths *l = &e->work.lengths;
    unsigned i = plan->depth;
    for (unsigned step = 0; step < plan->depth; step++)
        dx_lengths_step(e->kernels, l, step);
    if (!lx_put(&e->to, fx, &plan->codes[i], l->values[i], l->counts[i], &e->work.lx))
        return false;
    while (i-- > 0)
        if (!lx_put(&e->to, fx, &plan->codes[i], l->present[i], l->present_counts[i], &e->work.lx))
            return false;
    return true;
}

static bool put_block(struct encoder *e, const uint8_t *src, const uint8_t *base, size_t count)
{
    const struct dx_plan *plan = &e->plan;
    struct work *work = &e->work;
    struct dx_elements elements =
        elements_of(plan, base, count, writer_take(&e->to, plan->low_planes * count), work);
    if (!elements.low[0])
        return false;
    elements.fields = work->fields;
    size_t bits = e->kernels->take_apart(&elements, src);
    check(bits <= 8 * (sizeof work->fields - DX_SLACK));
    rank_lengths(e, base);
    return put_ranks(e) && writer_put(&e->to, work->fields, (bits + 7) / 8);
}

static size_t encode_lengths(struct encoder *e, const struct dx_pair *pair, void *dst, size_t limit)
{
    const unsigned width = e->plan.width;
    const uint8_t *src = pair->src;
    size_t at = e->plan.phase;
    e->to = (struct writer){.at = dst, .end = (uint8_t *)dst + limit};
    if (!put_header(e) || !writer_put(&e->to, src, at))
        return 0;
    for (size_t left = fx_elements(width, (unsigned)at, pair->raw_len); left > 0;) {
        size_t count = (size_t)min_u64(left, fx_block_len(width));
        if (!put_block(e, src + at, pair->base + at, count))
            return 0;
        at += count * width;
        left -= count;
    }
    return writer_put(&e->to, src + at, pair->raw_len - at) ? (size_t)(e->to.at - (uint8_t *)dst)
                                                            : 0;
}

/* Returns whether the form by exponent takes less, where this form is expected to take `parts` an
 * element. If changes are large, exponents predict little, and a form that is slower to read must
 * be worth it. */
static bool is_less_by_exponent(const struct dx_plan *plan, uint32_t parts,
                                const struct dx_pair *pair, struct dx_ans_plan *ret)
{
    if (plan->width != 2 || parts > DX_PARTS / 2)
        return false;
    uint64_t raw_len = pair->raw_len,
             len = dx_ans_plan_make(pair->src, pair->base, raw_len, plan->phase, ret);
    return (len + len / DX_ANS_WORTH_SHARE) * DX_PARTS < parts * raw_len;
}

size_t dx_encode(const struct dx_kernels *kernels, const struct fx_guess *guess,
                 const struct dx_pair *pair, void *dst, size_t limit)
{
    check(pair->raw_len >= FX_RAW_MIN && pair->raw_len <= CHUNK_SIZE_MAX &&
          guess->phase < guess->width);
    struct encoder e;
    struct dx_ans_plan by_exponent;
    e.kernels = kernels;
    uint32_t parts = dx_plan_make(kernels, guess, pair, plan_sample, &e.plan);
    if (parts == DX_NEVER)
        return 0;
    check(e.plan.low_planes < guess->width);
    return is_less_by_exponent(&e.plan, parts, pair, &by_exponent)
               ? dx_ans_encode(&by_exponent, pair->src, pair->base, pair->raw_len, dst, limit)
               : encode_lengths(&e, pair, dst, limit);
}

/* --- decoding --------------------------------------------------------------------------------- */

struct decoder {
    const struct dx_kernels *kernels;
    struct cursor from;
    struct dx_plan plan;
    struct work work;
};

static bool get_classes(struct cursor *c, const uint8_t header[HEADER_LEN], struct dx_plan *plan)
{
    unsigned lengths = dx_length_count(plan->width, plan->low_planes);
    plan->classes = (struct dx_classes){
        .count = header[4], .shift = header[5], .first = header[6], .lengths = (uint8_t)lengths};
    size_t len = (size_t)plan->classes.count * lengths;
    if (len == 0 || len > 255 || plan->classes.count > DX_CLASSES_MAX || plan->classes.shift > 7)
        return false;
    memset(plan->length_of, DX_LENGTH_NONE, sizeof plan->length_of);
    return cursor_copy(c, plan->length_of, len);
}

static bool get_header(struct cursor *c, size_t raw_len, struct dx_plan *plan)
{
    const uint8_t *p = cursor_bytes(c, HEADER_LEN);
    if (!p || p[0] == 0 || (p[0] & ~WIDTH_BITS))
        return false;
    *plan = (struct dx_plan){
        .width = (uint8_t)(1u << p[0]), .phase = p[1], .low_planes = p[2], .depth = p[3]};
    if (plan->phase >= plan->width || plan->phase > raw_len || plan->low_planes >= plan->width ||
        plan->depth > DX_DEPTH_MAX || !get_classes(c, p, plan))
        return false;
    for (unsigned i = 0; i <= plan->depth; i++)
        if (!lx_get_code(c, &plan->codes[i]))
            return false;
    return true;
}

static size_t ones_in_masks(const uint8_t *masks, size_t len)
{
    size_t ones = 0;
    for (size_t i = 0; i < len; i += 8)
        ones += (size_t)__builtin_popcountll(get_le64(masks + i));
    return ones;
}

static bool get_ranks(struct decoder *d)
{
    const struct dx_plan *plan = &d->plan;
    const struct fx_kernels *fx = d->kernels->fx;
    struct dx_lengths *l = &d->work.lengths;
    unsigned i = plan->depth;
    if (!lx_get(&d->from, fx, &plan->codes[i], l->values[i], l->counts[i], &d->work.lx))
        return false;
    while (i-- > 0) {
        size_t present = ones_in_masks(l->values[i + 1], l->counts[i + 1]);
        if (!lx_get(&d->from, fx, &plan->codes[i], l->present[i], present, &d->work.lx))
            return false;
        (void)fx->unpack(l->values[i + 1], align_up(l->counts[i], FX_GROUP), 1, l->present[i],
                         l->values[i]);
    }
    return true;
}

/* Returns the fields, behind which DX_SLACK bytes may be read; NULL: `len` bytes are not left. */
static const uint8_t *get_fields(struct decoder *d, size_t len)
{
    const uint8_t *fields = cursor_bytes(&d->from, len);
    if (!fields || (size_t)(d->from.end - d->from.at) >= DX_SLACK)
        return fields;
    return memcpy(d->work.fields, fields, len);
}

static bool get_block(struct decoder *d, const uint8_t *base, size_t count, uint8_t *dst)
{
    const struct dx_kernels *kernels = d->kernels;
    const struct dx_plan *plan = &d->plan;
    struct dx_elements elements =
        elements_of(plan, base, count, cursor_bytes(&d->from, plan->low_planes * count), &d->work);
    if (!elements.low[0] || !get_ranks(d))
        return false;
    size_t bits;
    if (plan->classes.count > 1)
        kernels->add_classes(base, count, plan->width, &plan->classes, elements.lengths);
    kernels->fx->translate(elements.lengths, count, plan->length_of);
    if (!kernels->field_bits(elements.lengths, count,
                             (uint8_t)(8 * (plan->width - plan->low_planes)), &bits))
        return false;
    const uint8_t *fields = get_fields(d, (bits + 7) / 8);
    if (!fields)
        return false;
    elements.fields = (uint8_t *)(uintptr_t)fields;
    kernels->put_together(&elements, dst);
    return true;
}

int dx_decode(const struct dx_kernels *kernels, const void *src, size_t stored_len,
              const struct iovec *base, void *dst, size_t raw_len)
{
    struct decoder d;
    struct cursor *c = &d.from;
    uint8_t *to = dst;
    d.kernels = kernels;
    *c = (struct cursor){.at = src, .end = (const uint8_t *)src + stored_len};
    if (base->iov_len == raw_len && stored_len > 0 && (*c->at & DX_ANS))
        return dx_ans_decode(src, stored_len, base->iov_base, dst, raw_len);
    if (base->iov_len != raw_len || !get_header(c, raw_len, &d.plan) ||
        !cursor_copy(c, to, d.plan.phase))
        return -EBADMSG;
    const unsigned width = d.plan.width;
    size_t at = d.plan.phase;
    for (size_t left = fx_elements(width, (unsigned)at, raw_len); left > 0;) {
        size_t count = (size_t)min_u64(left, fx_block_len(width));
        if (!get_block(&d, (const uint8_t *)base->iov_base + at, count, to + at))
            return -EBADMSG;
        at += count * width;
        left -= count;
    }
    return cursor_copy(c, to + at, raw_len - at) && c->at == c->end ? 0 : -EBADMSG;
}
