// SPDX-License-Identifier: Apache-2.0
#include "codec/dx_plan.h"

#define LENGTHS 65u /* 0 to 64 bits */
#define SAMPLE_COUNT_MAX 256u

void dx_lengths_init(struct dx_lengths *lengths, size_t count)
{
    uint8_t *at = lengths->room;
    check(count <= LX_VALUES_MAX);
    for (unsigned i = 0; i <= DX_DEPTH_MAX; i++) {
        lengths->values[i] = at;
        lengths->counts[i] = count;
        at += align_up(count, FX_GROUP) + FX_SLACK;
        if (i < DX_DEPTH_MAX) {
            lengths->present[i] = at;
            lengths->present_counts[i] = 0;
            at += align_up(count, FX_GROUP) + FX_SLACK;
        }
        count = align_up(count, FX_GROUP) / 8;
    }
    check((size_t)(at - lengths->room) <= sizeof lengths->room);
}

void dx_lengths_step(const struct dx_kernels *kernels, struct dx_lengths *lengths, unsigned i)
{
    size_t count = lengths->counts[i], whole = align_up(count, FX_GROUP);
    memset(lengths->values[i] + count, 0, whole - count);
    lengths->present_counts[i] = kernels->fx->pack(lengths->values[i], whole, 1,
                                                   lengths->values[i + 1], lengths->present[i]);
}

static uint64_t code_for(const uint8_t *bytes, size_t count, struct lx_code *ret)
{
    uint16_t counts[256] = {0};
    for (size_t i = 0; i < count; i++)
        counts[bytes[i]]++;
    if (count == 0)
        counts[0] = 1;
    uint64_t cost = lx_code_make(counts, count, ret);
    return ret->levels ? cost : UINT32_MAX;
}

/* Bits of the fields that are left with so many low planes, and of the planes. */
static uint64_t plain_bits(const uint16_t counts[LENGTHS], unsigned low_planes)
{
    uint64_t bits = 0;
    for (unsigned length = 0; length < LENGTHS; length++)
        bits += counts[length] *
                (8 * low_planes + (length > 8 * low_planes ? length - 8 * low_planes - 1 : 0));
    return bits;
}

/* Decides how many low planes are stored as they are: the lengths say what the rest takes. Takes
 * them off the lengths. Returns the bits that planes and fields take. */
static uint64_t choose_low_planes(struct dx_plan *plan, uint8_t *lengths, size_t count)
{
    uint16_t counts[LENGTHS] = {0};
    uint64_t best = UINT64_MAX, ret = 0;
    for (size_t i = 0; i < count; i++)
        counts[lengths[i]]++;
    for (unsigned low = 0; low < plan->width; low++) {
        uint16_t rest[256] = {0};
        struct lx_code code;
        for (unsigned length = 0; length < LENGTHS; length++)
            rest[length > 8 * low ? length - 8 * low : 0] += counts[length];
        uint64_t plain = plain_bits(counts, low), cost = plain + lx_code_make(rest, count, &code);
        if (cost < best) {
            best = cost;
            ret = plain;
            plan->low_planes = (uint8_t)low;
        }
    }
    unsigned low_bits = 8u * plan->low_planes;
    for (size_t i = 0; i < count; i++)
        lengths[i] = (uint8_t)(lengths[i] > low_bits ? lengths[i] - low_bits : 0);
    return ret;
}

/* Decides how often zeros are taken out. Returns the bits that the lengths take. */
static uint64_t choose_depth(const struct dx_kernels *kernels, struct dx_plan *plan,
                             struct dx_lengths *lengths)
{
    uint64_t best = code_for(lengths->values[0], lengths->counts[0], &plan->codes[0]), present = 0;
    plan->depth = 0;
    for (unsigned depth = 1; depth <= DX_DEPTH_MAX; depth++) {
        struct dx_plan deeper = *plan;
        unsigned i = depth - 1;
        dx_lengths_step(kernels, lengths, i);
        if (2 * lengths->present_counts[i] > lengths->counts[i])
            break;
        present += code_for(lengths->present[i], lengths->present_counts[i], &deeper.codes[i]);
        uint64_t cost = present + code_for(lengths->values[depth], lengths->counts[depth],
                                           &deeper.codes[depth]);
        if (cost >= best)
            break;
        best = cost;
        deeper.depth = (uint8_t)depth;
        *plan = deeper;
    }
    return best;
}

/* Fills in the lengths of the sample, all bits of the differences. */
static void take_lengths(const struct dx_kernels *kernels, const struct fx_guess *guess,
                         const uint8_t *src, const uint8_t *base, size_t raw_len,
                         struct dx_sample sample, struct dx_lengths *ret)
{
    uint8_t fields[8 * SAMPLE_COUNT_MAX + DX_SLACK], *none[8] = {NULL};
    size_t len = sample.count * guess->width, room = raw_len - guess->phase;
    size_t blocks = (size_t)min_u64(sample.blocks, room / len), among = room / blocks / len;
    check(sample.count <= SAMPLE_COUNT_MAX);
    dx_lengths_init(ret, blocks * sample.count);
    for (size_t i = 0; i < blocks; i++) {
        /* Not in step with rows. */
        size_t at = guess->phase + (i * among + i * 2654435761u % among) * len;
        (void)kernels->take_apart(src + at, base + at, sample.count, guess->width, 0, none,
                                  ret->values[0] + i * sample.count, fields);
    }
}

uint32_t dx_plan_make(const struct dx_kernels *kernels, const struct fx_guess *guess,
                      const void *src, const void *base, size_t raw_len, struct dx_sample sample,
                      struct dx_plan *ret)
{
    struct dx_lengths lengths;
    *ret = (struct dx_plan){.width = guess->width, .phase = guess->phase};
    if (guess->width == 1)
        return DX_NEVER;
    take_lengths(kernels, guess, src, base, raw_len, sample, &lengths);
    size_t count = lengths.counts[0];
    uint64_t bits = choose_low_planes(ret, lengths.values[0], count);
    bits += choose_depth(kernels, ret, &lengths);
    for (unsigned i = 0; i <= ret->depth; i++) {
        if (ret->codes[i].levels == 0)
            return DX_NEVER;
        lx_code_rank(&ret->codes[i]);
    }
    return (uint32_t)(bits * 1000 / (8 * count * guess->width));
}
