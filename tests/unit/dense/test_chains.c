// SPDX-License-Identifier: Apache-2.0
/* Stars and chains of chunks that are numbers here: in a view's remote, and planned. */
#include "dense/chains.h"

#include "../expect.h"
#include "../fixtures/store_fixture.h"
#include "commit/shared.h"
#include "view/remote.h"

#define RAW_LEN 100000u
#define PLAIN_LEN 40000u /* of a chunk that stands alone */
#define STEP_LEN 3000u   /* of a difference to the one before */

static struct store_fixture fixture;
static struct chains *chains;
static uint64_t next_pack = 1000000;

static void setup(void)
{
    fixture_make(&fixture);
    fixture_open(&fixture);
    assert_i64(view_track(fixture.store->local.view), 0);
    chains = chains_new();
}

static void teardown(void)
{
    chains_free(chains);
    fixture_remove(&fixture);
}

TestSuite(chains, .init = setup, .fini = teardown);

static struct chunk_name name_of(unsigned chunk)
{
    struct chunk_name name = {0};
    memcpy(name.bytes, &chunk, sizeof chunk);
    return name;
}

static unsigned number_of(const struct chunk_name *name)
{
    unsigned chunk;
    memcpy(&chunk, name->bytes, sizeof chunk);
    return chunk;
}

/* It is in the remote so. `base` 0: by itself. No file refers to it. */
static void place_long(unsigned chunk, enum chunk_encoding encoding, unsigned base,
                       uint32_t stored_len)
{
    struct view *view = fixture.store->local.view;
    struct chunk_entry entry = {.name = name_of(chunk),
                                .pack = next_pack++,
                                .offset = 4096,
                                .stored_len = stored_len,
                                .raw_len = RAW_LEN,
                                .encoding = encoding};
    if (base) {
        struct chunk_entry rests_on;
        struct chunk_name name = name_of(base);
        assert_i64(view_remote_place(view, &name, &rests_on), 0);
        entry.refs[entry.ref_count++] = (struct chunk_ref){name, 0, RAW_LEN};
        entry.depth = rests_on.depth + 1;
    }
    assert_i64(view_remote_placed(view, entry.pack, MIB, &entry, 1), 0);
}

static void place(unsigned chunk, enum chunk_encoding encoding, unsigned base)
{
    place_long(chunk, encoding, base, encoding == ENCODING_DX ? STEP_LEN : PLAIN_LEN);
}

/* The base of a chunk that takes the place of `partner`; 0: none. */
static unsigned find(unsigned chunk, unsigned partner, enum chain_form form, struct chain_base *ret)
{
    struct chunk_name name = name_of(chunk), other = name_of(partner);
    const struct chain_place where = {&name, &other, RAW_LEN, form};
    assert_i64(chains_find_base(chains, fixture.store->local.view, &where, ret), 0);
    return ret->depth ? number_of(&ret->name) : 0;
}

/* The same, and it is planned so. */
static unsigned plan(unsigned chunk, unsigned partner, enum chain_form form)
{
    struct chain_base base;
    struct chunk_name name = name_of(chunk);
    unsigned found = find(chunk, partner, form, &base);
    if (found)
        chains_add(chains, &name, &base);
    return found;
}

static unsigned level_of(unsigned chunk)
{
    struct chunk_name name = name_of(chunk), base;
    return chains_planned(chains, &name, &base);
}

Test(chains, a_star_has_ten_members_whatever_twins_there_are)
{
    struct chain_base base;
    place(1, ENCODING_FX, 0);
    for (unsigned i = 1; i < KEYFRAME_EVERY; i++) {
        expect_u64(find(1 + i, i, FORM_STAR, &base), 1);
        expect_u64(base.depth, 1);
        place(1 + i, ENCODING_DX, 1);
        place(100 + i, ENCODING_TWIN, 1);
    }
    expect_u64(find(11, 10, FORM_STAR, &base), 0);
}

Test(chains, planned_members_of_a_star_count_with_those_that_are_there)
{
    struct chain_base base;
    place(1, ENCODING_FX, 0);
    for (unsigned chunk = 2; chunk <= 4; chunk++)
        place(chunk, ENCODING_DX, 1);
    for (unsigned chunk = 5; chunk <= KEYFRAME_EVERY; chunk++) {
        expect_u64(plan(chunk, chunk - 1, FORM_STAR), 1);
        expect_u64(level_of(chunk), 1);
    }
    expect_u64(find(11, 10, FORM_STAR, &base), 0);
}

/* As the differences of small steps do, it grows with the square root of the distance. */
static uint32_t length_over(unsigned distance)
{
    uint32_t length = STEP_LEN;
    while (length * length < distance * STEP_LEN * STEP_LEN)
        length++;
    return length;
}

/* Eight in a row rest each on the one before. Then one rests on the head of the chain, and it is
 * the head of the next, which is shorter. */
Test(chains, heads_of_chains_are_a_chain)
{
    static const struct {
        unsigned chunk, base;
    } heads[] = {{10, 1}, {18, 10}, {25, 18}, {31, 25}, {36, 31}, {40, 36}};
    unsigned head = 0, depths[41] = {0};
    struct chain_base base;
    place(1, ENCODING_FX, 0);
    for (unsigned chunk = 2; chunk <= 40; chunk++) {
        bool is_head = chunk == heads[head].chunk;
        unsigned expected = is_head ? heads[head].base : chunk - 1;
        head += is_head;
        depths[chunk] = depths[expected] + 1;
        expect_u64(find(chunk, chunk - 1, FORM_CHAIN, &base), expected, "chunk %u", chunk);
        expect_u64(base.depth, depths[chunk], "chunk %u", chunk);
        place_long(chunk, ENCODING_DX, expected, length_over(chunk - expected));
    }
    expect_u64(head, ARRAY_LEN(heads));
}

/* Any number of chunks may hang on one: runs that begin with the same weights. */
Test(chains, a_partner_serves_many)
{
    struct chain_base base;
    place(1, ENCODING_FX, 0);
    for (unsigned chunk = 2; chunk <= 2 * KEYFRAME_EVERY; chunk++) {
        expect_u64(find(chunk, 1, FORM_CHAIN, &base), 1, "chunk %u", chunk);
        place(chunk, ENCODING_DX, 1);
    }
}

/* Where steps are long, a head would take more than a keyframe that nine rest on. */
Test(chains, a_keyframe_follows_a_chain_of_long_steps)
{
    static const struct {
        uint32_t step;
        unsigned base;
    } cases[] = {{PLAIN_LEN / 3, 1}, {2 * PLAIN_LEN / 3, 0}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct chain_base base;
        place(1, ENCODING_FX, 0);
        for (unsigned chunk = 2; chunk <= 1 + CHAIN_DEPTH_MAX; chunk++)
            place_long(chunk, ENCODING_DX, chunk - 1, cases[i].step);
        expect_u64(find(10, 9, FORM_CHAIN, &base), cases[i].base, "case %zu", i);
        teardown();
        setup();
    }
}

/* Half as far away as in a star, and no deeper than two. */
Test(chains, nested_stars_have_ten_members_too)
{
    static const unsigned bases[] = {1, 2, 2, 1, 5, 5, 1, 8, 8};
    struct chain_base base;
    place(1, ENCODING_FX, 0);
    for (unsigned i = 0; i < 9; i++) {
        expect_u64(find(2 + i, 1 + i, FORM_NESTED, &base), bases[i], "chunk %u", 2 + i);
        expect_u64(base.depth, bases[i] == 1 ? 1 : 2);
        place(2 + i, ENCODING_DX, bases[i]);
    }
    expect_u64(find(11, 10, FORM_NESTED, &base), 0);

    expect_u64(plan(31, 30, FORM_NESTED), 30);
    expect_u64(level_of(31), 1);
    expect_u64(plan(32, 31, FORM_NESTED), 31);
    expect_u64(level_of(32), 2);
    expect_u64(plan(33, 32, FORM_NESTED), 31);
    expect_u64(plan(34, 33, FORM_NESTED), 30);
}

/* What is sent together goes in order of levels. */
Test(chains, planned_chains_have_levels)
{
    struct chain_base base;
    place(1, ENCODING_FX, 0);
    place(2, ENCODING_DX, 1);
    for (unsigned chunk = 3; chunk <= 1 + CHAIN_DEPTH_MAX; chunk++) {
        expect_u64(plan(chunk, chunk - 1, FORM_CHAIN), chunk - 1);
        expect_u64(level_of(chunk), chunk - 2);
    }
    unsigned last = 1 + CHAIN_DEPTH_MAX;
    expect_u64(plan(last + 1, last, FORM_CHAIN), 1, "from the keyframe again");
    expect_u64(level_of(last + 1), 1);

    expect_u64(plan(51, 50, FORM_CHAIN), 50, "nothing is known of that one");
    expect_u64(level_of(51), 1);
    expect_u64(level_of(50), 0);
    expect_u64(plan(52, 51, FORM_CHAIN), 51);
    expect_u64(level_of(52), 2);
    expect_u64(plan(50, 2, FORM_CHAIN), 2, "find_base() does not ask what is planned for it");
    expect_u64(level_of(50), 0, "it is a base of others already");
    expect_u64(find(50, 52, FORM_CHAIN, &base), 0, "which rests on it");
}

Test(chains, what_follows_the_image_of_twins_is_of_a_star)
{
    struct chain_base base;
    place(1, ENCODING_FX, 0);
    place(2, ENCODING_DX, 1);
    expect_u64(find(3, 2, FORM_CHAIN, &base), 2);
    place(100, ENCODING_TWIN, 2);
    expect_u64(find(3, 2, FORM_CHAIN, &base), 1);
    expect_u64(base.depth, 1);
}

/* Here no file refers to anything: all that a new one rests on is kept for it alone. What leaves
 * room for more to follow is better than what is nearer. */
Test(chains, dead_bases_are_no_longer_than_what_they_are_kept_for)
{
    enum { HELD = PLAIN_LEN + 2 * STEP_LEN };
    static const struct {
        uint32_t raw_len;
        unsigned base;
    } cases[] = {
        {HELD, 3}, {HELD - 1, 1}, {PLAIN_LEN + STEP_LEN, 1}, {PLAIN_LEN, 1}, {PLAIN_LEN - 1, 0}};
    struct chain_base base;
    struct chunk_name name = name_of(9), partner = name_of(3);
    place(1, ENCODING_FX, 0);
    place(2, ENCODING_DX, 1);
    place(3, ENCODING_DX, 2);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const struct chain_place where = {&name, &partner, cases[i].raw_len, FORM_CHAIN};
        assert_i64(chains_find_base(chains, fixture.store->local.view, &where, &base), 0);
        expect_u64(base.depth ? number_of(&base.name) : 0, cases[i].base, "case %zu", i);
        expect_u64(base.is_dead, cases[i].base != 0);
    }
}
