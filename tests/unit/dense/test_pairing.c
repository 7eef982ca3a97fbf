// SPDX-License-Identifier: Apache-2.0
#include "dense/pairing.h"

#include "../expect.h"

/* A file that is made of tensors. */
struct made {
    struct parts parts;
    VECTOR(struct tensor) tensors;
    uint64_t end;
};

static void add_part(struct made *made, uint32_t length)
{
    struct part part = {.offset = made->end, .length = length};
    vector_add(&made->parts, part);
    made->end += length;
}

/* A tensor, cut as codec/chunker.c does. */
static void add_tensor(struct made *made, uint64_t name, uint64_t length)
{
    struct tensor tensor = {made->end, made->end + length, name};
    vector_add(&made->tensors, tensor);
    for (; length > CHUNK_SIZE_MAX; length -= CHUNK_SIZE_MAX)
        add_part(made, CHUNK_SIZE_MAX);
    add_part(made, (uint32_t)length);
}

/* What is paired, and with what. */
static struct made made, base;
static uint32_t *partners;

static void done(void)
{
    vector_free(&made.parts);
    vector_free(&made.tensors);
    vector_free(&base.parts);
    vector_free(&base.tensors);
    free(partners);
    made = base = (struct made){0};
    partners = NULL;
}

TestSuite(pairing, .fini = done);

/* Tensor n of eight that are all different; a few chunks each. */
static uint64_t length_of(unsigned n)
{
    return n * CHUNK_SIZE_MAX + 1000 + n;
}

static void add_all_but(struct made *to, unsigned without)
{
    for (unsigned n = 0; n < 8; n++)
        if (n != without)
            add_tensor(to, 100 + n, length_of(n));
}

static void expect_sane(void)
{
    for (size_t i = 0; i < made.parts.count; i++) {
        if (partners[i] == UNPAIRED)
            continue;
        cr_assert(partners[i] < base.parts.count);
        expect_u64(made.parts.at[i].length, base.parts.at[partners[i]].length);
        for (size_t k = 0; k < i; k++)
            cr_expect(partners[k] != partners[i], "%zu and %zu have one partner", k, i);
    }
}

/* How many parts of tensor `name` have their partners at the same places of it. */
static unsigned paired_of(uint64_t name)
{
    unsigned count = 0;
    const struct tensor *t = made.tensors.at, *o = base.tensors.at;
    while (t->name != name)
        t++;
    while (o->name != name)
        o++;
    for (size_t i = 0; i < made.parts.count; i++) {
        const struct part *part = &made.parts.at[i];
        if (part->offset < t->start || part->offset >= t->end || partners[i] == UNPAIRED)
            continue;
        count += base.parts.at[partners[i]].offset - o->start == part->offset - t->start;
    }
    return count;
}

static void expect_paired_but(unsigned without)
{
    for (unsigned n = 0; n < 8; n++)
        if (n != without)
            expect_u64(paired_of(100 + n), n + 1, "%u without %u", n, without);
}

static void pair_by_order(void)
{
    partners = xcalloc(made.parts.count + 1, sizeof *partners);
    parts_pair_by_order(&made.parts, &base.parts, partners);
    expect_sane();
}

static void pair_by_name(void)
{
    partners = xcalloc(made.parts.count + 1, sizeof *partners);
    parts_pair_by_name(&made.parts, &(struct tensor_list){made.tensors.at, made.tensors.count},
                       &base.parts, &(struct tensor_list){base.tensors.at, base.tensors.count},
                       partners);
    expect_sane();
}

Test(pairing, files_that_are_alike_pair_one_by_one)
{
    add_all_but(&made, 8);
    add_all_but(&base, 8);
    pair_by_order();
    cr_expect(parts_are_alike(&made.parts, &base.parts));
    base.parts.at[0].chunk.bytes[3] = 1;
    cr_expect_not(parts_are_alike(&made.parts, &base.parts));
    for (size_t i = 0; i < made.parts.count; i++)
        expect_u64(partners[i], i);
}

Test(pairing, nothing_pairs_with_nothing)
{
    add_all_but(&made, 8);
    pair_by_order();
    for (size_t i = 0; i < made.parts.count; i++)
        expect_u64(partners[i], UNPAIRED);
    cr_expect_not(parts_are_alike(&made.parts, &base.parts));
    done();
    add_all_but(&base, 8);
    pair_by_order();
    free(partners);
    pair_by_name();
}

Test(pairing, an_inserted_tensor_has_no_partner_and_the_others_keep_theirs)
{
    for (unsigned without = 0; without < 8; without++) {
        add_all_but(&made, 8);
        add_all_but(&base, without);
        pair_by_order();
        expect_paired_but(without);
        done();
    }
}

Test(pairing, a_removed_tensor_leaves_the_others_their_partners)
{
    for (unsigned without = 0; without < 8; without++) {
        add_all_but(&made, without);
        add_all_but(&base, 8);
        pair_by_order();
        for (size_t i = 0; i < made.parts.count; i++)
            cr_expect(partners[i] != UNPAIRED);
        expect_paired_but(without);
        done();
    }
}

/* As in two torch.save files of which one has the longer name: what stands between tensors grows
 * with it, by the small tensors there, too. */
Test(pairing, bytes_between_tensors_may_be_a_few_more)
{
    for (unsigned n = 0; n < 8; n++) {
        add_tensor(&made, 100 + n, length_of(n));
        add_tensor(&base, 100 + n, length_of(n));
        add_part(&made, n % 2 ? 200 : 20300);
        add_part(&base, n % 2 ? 136 : 20044);
    }
    pair_by_order();
    expect_paired_but(8);
    for (size_t i = 0; i < made.parts.count; i++)
        if (made.parts.at[i].length == 200 || made.parts.at[i].length == 20300)
            expect_u64(partners[i], UNPAIRED);
}

Test(pairing, a_tensor_with_more_rows_keeps_those_that_it_had)
{
    for (unsigned n = 0; n < 8; n++) {
        add_tensor(&made, 100 + n, length_of(n) + (n == 2 || n == 6 ? 3 * CHUNK_SIZE_MAX : 0));
        add_tensor(&base, 100 + n, length_of(n));
    }
    pair_by_order();
    for (unsigned n = 0; n < 8; n++)
        expect_u64(paired_of(100 + n), n == 2 || n == 6 ? n : n + 1);
}

Test(pairing, files_that_agree_nowhere_near_pair_from_their_ends)
{
    for (unsigned n = 0; n < 60; n++) {
        add_tensor(&made, 1000 + n, 5000 + n);
        add_tensor(&base, 2000 + n, 6000 + n);
    }
    for (unsigned n = 0; n < 8; n++) {
        add_tensor(&made, 100 + n, length_of(n));
        add_tensor(&base, 100 + n, length_of(n));
    }
    pair_by_order();
    for (unsigned n = 0; n < 60; n++)
        expect_u64(partners[n], UNPAIRED);
    expect_paired_but(8);
}

Test(pairing, names_pair_tensors_wherever_they_are)
{
    add_all_but(&base, 8);
    add_part(&made, 700); /* the header */
    for (unsigned n = 8; n-- > 0;)
        add_tensor(&made, n == 3 ? 77 : 100 + n,
                   n == 5 ? length_of(n) - 2 * CHUNK_SIZE_MAX : length_of(n));
    pair_by_name();
    expect_u64(partners[0], UNPAIRED);
    for (unsigned n = 0; n < 8; n++)
        if (n != 3)
            expect_u64(paired_of(100 + n), n == 5 ? 3 : n + 1, "%u", n);
    for (size_t i = 0; i < made.parts.count; i++) {
        const struct tensor *other = made.tensors.at + 4; /* number 3 */
        const struct part *part = &made.parts.at[i];
        if (part->offset >= other->start && part->offset < other->end)
            expect_u64(partners[i], UNPAIRED);
    }
}

Test(pairing, a_name_that_is_there_twice_gives_no_partner_twice)
{
    add_tensor(&made, 1, 5000);
    add_tensor(&made, 1, 5000);
    add_tensor(&made, 0, 6000); /* without a name */
    add_tensor(&base, 1, 5000);
    add_tensor(&base, 0, 6000);
    pair_by_name();
    cr_expect((partners[0] == UNPAIRED) != (partners[1] == UNPAIRED));
    expect_u64(partners[2], UNPAIRED);
}
