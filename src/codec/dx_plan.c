// SPDX-License-Identifier: Apache-2.0
#include "codec/dx_plan.h"

#define LENGTHS 65u  /* 0 to 64 bits */
#define SHIFT_MAX 3u /* exponents of 5 bits */
#define FINER 60u    /* at most SAMPLE_MAX / 8 masks: their counts have 16 bits */
#define BLOCK_MAX 256u
#define SAMPLE_MAX 8192u

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
    check(i < DX_DEPTH_MAX && lengths->counts[i + 1] == whole / 8);
    memset(lengths->values[i] + count, 0, whole - count);
    lengths->present_counts[i] = kernels->fx->pack(lengths->values[i], whole, 1,
                                                   lengths->values[i + 1], lengths->present[i]);
}

/* --- classes ---------------------------------------------------------------------------------- */

/* Elements of the sample, counted by class and length. */
struct counts {
    unsigned lengths; /* number of possible lengths */
    uint16_t of[DX_CLASSES_MAX][LENGTHS];
};

/* Returns the first of the DX_CLASSES_MAX consecutive exponents that cover most elements of the
 * sample, and how many elements they cover. */
static unsigned find_stretch(const uint8_t *exponents, size_t count, unsigned shift,
                             uint8_t *ret_first)
{
    uint16_t counts[256 + DX_CLASSES_MAX] = {0};
    unsigned sum = 0, most = 0;
    for (size_t i = 0; i < count; i++)
        counts[exponents[i] >> shift]++;
    for (unsigned end = 0; end < 256; end++) {
        sum += counts[end];
        if (end >= DX_CLASSES_MAX)
            sum -= counts[end - DX_CLASSES_MAX];
        if (sum > most) {
            most = sum;
            *ret_first = (uint8_t)(end + 1 < DX_CLASSES_MAX ? 0 : end + 1 - DX_CLASSES_MAX);
        }
    }
    return most;
}

/* Determines which exponents get classes, and counts the sample by class and length. */
static struct dx_classes find_classes(const uint8_t *exponents, const uint8_t *lengths,
                                      size_t count, struct counts *ret)
{
    struct dx_classes all = {.count = DX_CLASSES_MAX};
    while (find_stretch(exponents, count, all.shift, &all.first) < count - count / 16 &&
           all.shift < SHIFT_MAX)
        all.shift++;
    memset(ret->of, 0, sizeof ret->of);
    for (size_t i = 0; i < count; i++) {
        unsigned e = exponents[i] >> all.shift, above = e > all.first ? e - all.first : 0;
        ret->of[min_u64(above, DX_CLASSES_MAX - 1)][lengths[i]]++;
    }
    return all;
}

/* Returns the counts for `low_planes` low planes taken off the lengths, with the first classes
 * merged until there are `classes`. */
static void merge_classes(const struct counts *counts, unsigned low_planes, unsigned classes,
                          struct counts *ret)
{
    unsigned merged = DX_CLASSES_MAX - classes, low_bits = 8 * low_planes;
    check(classes >= 1 && classes <= DX_CLASSES_MAX && low_bits < counts->lengths);
    memset(ret->of, 0, sizeof ret->of);
    for (unsigned c = 0; c < DX_CLASSES_MAX; c++)
        for (unsigned length = 0; length < counts->lengths; length++)
            ret->of[c > merged ? c - merged : 0][length > low_bits ? length - low_bits : 0] +=
                counts->of[c][length];
}

/* Sorts the lengths of a class, the most frequent one first. */
static void rank_lengths(const uint16_t counts[LENGTHS], unsigned lengths, uint8_t *ret)
{
    for (unsigned length = 0; length < lengths; length++) {
        unsigned at = length;
        for (; at > 0 && counts[ret[at - 1]] < counts[length]; at--)
            ret[at] = ret[at - 1];
        ret[at] = (uint8_t)length;
    }
}

/* Ranks the lengths of all classes. Returns the bits that the ranks take. */
static uint64_t rank_classes(const struct counts *counts, size_t count, struct dx_plan *plan)
{
    uint32_t ranks[256] = {0};
    struct lx_code code;
    const unsigned lengths = plan->classes.lengths;
    check(lengths * plan->classes.count < 256);
    for (unsigned c = 0; c < plan->classes.count; c++) {
        uint8_t *length_of = plan->length_of + c * lengths;
        rank_lengths(counts->of[c], lengths, length_of);
        for (unsigned rank = 0; rank < lengths; rank++)
            ranks[rank] += counts->of[c][length_of[rank]];
    }
    return lx_code_make(ranks, count, &code);
}

/* Returns the bits of the low planes, and of the fields that remain with `low_planes` of them. */
static uint64_t plain_bits(const struct counts *counts, unsigned low_planes)
{
    uint64_t bits = 0;
    unsigned low_bits = 8 * low_planes;
    for (unsigned c = 0; c < DX_CLASSES_MAX; c++)
        for (unsigned length = 0; length < counts->lengths; length++)
            bits += (uint64_t)counts->of[c][length] *
                    (low_bits + (length > low_bits ? length - low_bits - 1 : 0));
    return bits;
}

/* Numbers of elements of the sample and of the chunk: the share by which the plan's own bytes count
 * in the sample. */
struct scale {
    size_t sample, chunk;
};

/* Makes the classes for plan->low_planes: as many as possible, or one. Returns the bits that
 * lengths and tables take. */
static uint64_t make_classes(const struct counts *counts, const struct dx_classes *all,
                             struct scale scale, bool is_one, struct dx_plan *plan)
{
    unsigned lengths = dx_length_count(plan->width, plan->low_planes);
    unsigned most = (unsigned)min_u64(DX_CLASSES_MAX, 255 / lengths), classes = is_one ? 1 : most;
    struct counts merged;
    merge_classes(counts, plan->low_planes, classes, &merged);
    plan->classes = (struct dx_classes){.count = (uint8_t)classes, .lengths = (uint8_t)lengths};
    if (classes > 1) {
        plan->classes.shift = all->shift;
        plan->classes.first = (uint8_t)(all->first + DX_CLASSES_MAX - classes);
    }
    uint64_t bits = rank_classes(&merged, scale.sample, plan);
    return classes > 1 ? bits + 8 * classes * lengths * scale.sample / scale.chunk : bits;
}

/* Chooses the number of low planes that are stored as they are, and the classes, by the bits that
 * lengths, fields and planes take. Returns the bits of planes and fields. */
static uint64_t choose_classes(const struct counts *counts, const struct dx_classes *all,
                               struct scale scale, struct dx_plan *plan)
{
    uint64_t best = UINT64_MAX, ret = 0;
    struct dx_plan tried = *plan;
    for (unsigned i = 0; i < 2u * plan->width; i++) {
        tried.low_planes = (uint8_t)(i / 2);
        uint64_t plain = plain_bits(counts, tried.low_planes);
        if (plain >= best)
            continue;
        uint64_t bits = plain + make_classes(counts, all, scale, i % 2, &tried);
        if (bits < best) {
            best = bits;
            ret = plain;
            *plan = tried;
        }
    }
    return ret;
}

/* Fills in `rank_of` from `length_of`. */
static void invert_lengths(struct dx_plan *plan)
{
    const struct dx_classes *classes = &plan->classes;
    memset(plan->rank_of, 0, sizeof plan->rank_of);
    for (unsigned c = 0; c < classes->count; c++) {
        const uint8_t *length_of = plan->length_of + c * classes->lengths;
        check(length_of[0] < classes->lengths);
        for (unsigned rank = 0; rank < classes->lengths; rank++)
            plan->rank_of[c * classes->lengths + length_of[rank]] = (uint8_t)rank;
    }
}

/* Replaces lengths by ranks. */
static void rank_sample(const struct dx_plan *plan, const uint8_t *exponents, uint8_t *lengths,
                        size_t count)
{
    const struct dx_classes *classes = &plan->classes;
    unsigned low_bits = 8u * plan->low_planes, last = classes->count - 1u;
    for (size_t i = 0; i < count; i++) {
        unsigned e = exponents[i] >> classes->shift;
        unsigned class = e > classes->first ? (unsigned)min_u64(e - classes->first, last) : 0;
        unsigned length = lengths[i] > low_bits ? lengths[i] - low_bits : 0;
        lengths[i] = plan->rank_of[class * classes->lengths + length];
    }
}

/* --- depth ------------------------------------------------------------------------------------ */

static uint64_t code_for(const uint8_t *bytes, size_t count, struct lx_code *ret)
{
    uint32_t counts[256];
    lx_count(bytes, count, counts);
    if (count == 0)
        counts[0] = 1;
    uint64_t cost = lx_code_make(counts, count, ret);
    return ret->levels ? cost : UINT32_MAX;
}

/* The sample has few masks, so they are counted by their number of set bits, not by value. `less`
 * was subtracted from the masks. */
static uint64_t code_for_masks(const uint8_t *masks, size_t count, uint8_t less,
                               struct lx_code *ret)
{
    static const uint8_t choices[9] = {1, 8, 28, 56, 70, 56, 28, 8, 1};
    uint32_t by_ones[9] = {0}, counts[256] = {0};
    for (size_t i = 0; i < count; i++)
        by_ones[__builtin_popcount((uint8_t)(masks[i] + less))]++;
    for (unsigned mask = less; mask < 256; mask++) {
        unsigned ones = (unsigned)__builtin_popcount(mask);
        if (by_ones[ones])
            counts[mask - less] = (uint32_t)max_u64(1, by_ones[ones] * FINER / choices[ones]);
    }
    if (count == 0)
        counts[0] = 1;
    uint64_t cost = lx_code_make(counts, count * FINER, ret);
    return ret->levels ? cost / FINER : UINT32_MAX;
}

/* Chooses how often zeros are taken out. Returns the bits that the ranks take. */
static uint64_t choose_depth(const struct dx_kernels *kernels, struct dx_plan *plan,
                             struct dx_lengths *lengths)
{
    uint64_t best = code_for(lengths->values[0], lengths->counts[0], &plan->codes[0]), present = 0;
    plan->depth = 0;
    for (unsigned i = 0; i < DX_DEPTH_MAX; i++) {
        struct dx_plan deeper = *plan;
        dx_lengths_step(kernels, lengths, i);
        size_t count = lengths->present_counts[i];
        if (2 * count > lengths->counts[i])
            break;
        present += i == 0 ? code_for(lengths->present[i], count, &deeper.codes[i])
                          : code_for_masks(lengths->present[i], count, 1, &deeper.codes[i]);
        uint64_t cost = present + code_for_masks(lengths->values[i + 1], lengths->counts[i + 1], 0,
                                                 &deeper.codes[i + 1]);
        if (cost >= best)
            break;
        best = cost;
        deeper.depth = (uint8_t)(i + 1);
        *plan = deeper;
    }
    return best;
}

/* Renumbers the ranks of all classes in the order of the code's symbols, so that the code is the
 * identity: the ranks are then not translated twice. */
static void take_order(struct dx_plan *plan)
{
    struct lx_code *code = &plan->codes[0];
    uint8_t before[256];
    memcpy(before, plan->length_of, sizeof before);
    const unsigned lengths = plan->classes.lengths;
    check(plan->depth == 0);
    for (unsigned i = 0; i < plan->classes.count * lengths; i++)
        plan->length_of[i] = before[i - i % lengths + code->symbols[i % lengths]];
    for (unsigned rank = 0; rank < 256; rank++)
        code->symbols[rank] = (uint8_t)rank;
    invert_lengths(plan);
}

/* --- the sample ------------------------------------------------------------------------------- */

/* Fills in the lengths of the sample (of all bits of the differences) and the base's exponents. */
static void take_sample(const struct dx_kernels *kernels, const struct fx_guess *guess,
                        const struct dx_pair *pair, struct dx_sample sample, uint8_t *exponents,
                        struct dx_lengths *ret)
{
    uint8_t fields[8 * BLOCK_MAX + DX_SLACK];
    struct dx_elements elements = {
        .count = sample.count, .width = guess->width, .lengths = ret->room, .fields = fields};
    size_t len = sample.count * guess->width, room = pair->raw_len - guess->phase;
    check(len > 0 && room >= len);
    size_t blocks = (size_t)min_u64(sample.blocks, room / len), among = room / blocks / len;
    check(sample.count <= BLOCK_MAX && blocks * sample.count <= SAMPLE_MAX);
    dx_lengths_init(ret, blocks * sample.count);
    for (size_t i = 0; i < blocks; i++) {
        /* Spread irregularly, so that the blocks are not in step with the rows of a matrix. */
        const size_t at = guess->phase + (i * among + i * 2654435761u % among) * len;
        const uint8_t *highest = pair->base + at + guess->width - 2;
        elements.base = pair->base + at;
        (void)kernels->take_apart(&elements, pair->src + at);
        for (size_t k = 0; k < sample.count; k++)
            exponents[k] = (uint8_t)(get_le16(highest + k * guess->width) >> 7);
        elements.lengths += sample.count;
        exponents += sample.count;
    }
}

uint32_t dx_plan_make(const struct dx_kernels *kernels, const struct fx_guess *guess,
                      const struct dx_pair *pair, struct dx_sample sample, struct dx_plan *ret)
{
    struct dx_lengths lengths;
    struct counts counts = {.lengths = dx_length_count(guess->width, 0)};
    uint8_t exponents[SAMPLE_MAX];
    *ret = (struct dx_plan){.width = guess->width, .phase = guess->phase};
    if (guess->width == 1)
        return DX_NEVER;
    take_sample(kernels, guess, pair, sample, exponents, &lengths);
    struct scale scale = {.sample = lengths.counts[0], .chunk = pair->raw_len / guess->width};
    struct dx_classes all = find_classes(exponents, lengths.values[0], scale.sample, &counts);
    uint64_t bits = choose_classes(&counts, &all, scale, ret);
    invert_lengths(ret);
    rank_sample(ret, exponents, lengths.values[0], scale.sample);
    bits += choose_depth(kernels, ret, &lengths);
    if (ret->depth == 0)
        take_order(ret);
    for (unsigned i = 0; i <= ret->depth; i++) {
        if (ret->codes[i].levels == 0)
            return DX_NEVER;
        lx_code_rank(&ret->codes[i]);
    }
    return (uint32_t)(bits * DX_PARTS / (8 * scale.sample * guess->width));
}
