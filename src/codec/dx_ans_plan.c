// SPDX-License-Identifier: Apache-2.0
/* Each exponent begins as a class of its own. Then, again and again, the two neighbours are joined
 * for which one code costs least more (or saves most) compared with two, until there are few enough
 * classes and joining no pair saves bytes. */
#include "codec/dx_ans.h"
#include "codec/fx_plan.h"

#define EXPONENTS 256u
#define BYTE (8u << 16) /* in bits, with 16 bits of fraction */

struct class
{
    uint32_t counts[ANS_SYMBOLS_MAX];
    uint64_t bits;  /* of its symbols, and of its code */
    int64_t joined; /* by how many bits joining it with the next class changes the sum */
    uint8_t last;   /* the last exponent */
};

struct classes {
    unsigned count;
    struct class *class[EXPONENTS]; /* the remaining classes, in order */
    struct class of[EXPONENTS];
};

static void count_symbols(const uint8_t *src, const uint8_t *base, size_t count,
                          struct classes *classes)
{
    memset(classes->of, 0, sizeof classes->of);
    for (size_t i = 0; i < count; i += ANS_GROUP) {
        struct dx_ans_group group;
        dx_ans_group_take(src + 2 * i, base + 2 * i, &group);
        for (size_t k = 0; k < ANS_GROUP; k++)
            classes->of[group.exponents[k]].counts[group.symbols[k]]++;
    }
}

/* Lists the classes that occur; an exponent between two of them that does not occur belongs to the
 * first one. */
static void list_classes(struct classes *classes)
{
    static const uint32_t none[ANS_SYMBOLS_MAX];
    classes->count = 0;
    for (unsigned e = 0; e < EXPONENTS; e++) {
        struct class *class = &classes->of[e];
        class->last = (uint8_t)e;
        if (memcmp(class->counts, none, sizeof none) != 0)
            classes->class[classes->count++] = class;
        else if (classes->count)
            classes->class[classes->count - 1]->last = (uint8_t)e;
    }
}

static uint64_t ans_bits_of(const uint32_t counts[ANS_SYMBOLS_MAX])
{
    return ans_entropy(counts) + BYTE * (1 + ans_code_len(counts));
}

static void add_counts(const struct class *a, const struct class *b, uint32_t sums[ANS_SYMBOLS_MAX])
{
    for (unsigned s = 0; s < ANS_SYMBOLS_MAX; s++)
        sums[s] = a->counts[s] + b->counts[s];
}

static void try_join(struct classes *classes, unsigned i)
{
    uint32_t sums[ANS_SYMBOLS_MAX];
    if (i + 1 >= classes->count)
        return;
    struct class *a = classes->class[i], *b = classes->class[i + 1];
    add_counts(a, b, sums);
    a->joined = (int64_t)ans_bits_of(sums) - (int64_t)(a->bits + b->bits);
}

static void join_class(struct classes *classes, unsigned i)
{
    struct class *a = classes->class[i], *b = classes->class[i + 1];
    add_counts(a, b, a->counts);
    a->bits = (uint64_t)((int64_t)(a->bits + b->bits) + a->joined);
    a->last = b->last;
    classes->count--;
    memmove(&classes->class[i + 1], &classes -> class[i + 2],
            (classes->count - i - 1) * sizeof classes->class[0]);
    try_join(classes, i);
    if (i > 0)
        try_join(classes, i - 1);
}

static void join_classes(struct classes *classes)
{
    for (unsigned i = 0; i < classes->count; i++)
        classes->class[i]->bits = ans_bits_of(classes->class[i] -> counts);
    for (unsigned i = 0; i < classes->count; i++)
        try_join(classes, i);
    while (classes->count > 1) {
        unsigned best = 0;
        for (unsigned i = 1; i + 1 < classes->count; i++)
            if (classes->class[i] -> joined < classes -> class[best] -> joined)
                best = i;
        if (classes->count <= DX_ANS_CODES_MAX && classes->class[best] -> joined >= 0)
            break;
        join_class(classes, best);
    }
}

/* Returns the bits of all fields. */
static uint64_t fields_of(const struct class *class)
{
    uint64_t bits = 0;
    for (unsigned s = DX_ANS_DIRECT; s < DX_ANS_SYMBOLS; s++)
        bits += (uint64_t) class->counts[s] * (s - 12);
    return bits;
}

size_t dx_ans_plan_make(const void *src, const void *base, size_t raw_len, unsigned phase,
                        struct dx_ans_plan *ret)
{
    struct classes classes;
    size_t count = fx_elements(2, phase, raw_len), plain = raw_len - 2 * count;
    count_symbols((const uint8_t *)src + phase, (const uint8_t *)base + phase, count, &classes);
    list_classes(&classes);
    join_classes(&classes);
    *ret = (struct dx_ans_plan){.phase = (uint8_t)phase, .codes = (uint8_t)classes.count};
    uint64_t bits = 8 * (plain + ANS_STATES_LEN);
    for (unsigned i = 0; i < classes.count; i++) {
        const struct class *class = classes.class[i];
        ret->last[i] = i + 1 < classes.count ? class->last : UINT8_MAX;
        bits += (ans_code_make(class->counts, &ret->code[i]) >> 16) + fields_of(class) +
                8 * (1 + ans_code_len(class->counts));
    }
    return (size_t)(bits / 8);
}
