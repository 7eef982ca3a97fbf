// SPDX-License-Identifier: Apache-2.0
#include "commit/rounds.h"

#include "../expect.h"
#include "../base/seeded.h"

#define LENGTH 2000
#define ERROR 50
#define START 7777 /* in round 3 */
#define SPAN(first, last, newest)                                                                  \
    (struct rounds_span)                                                                           \
    {                                                                                              \
        .lo = (first), .hi = (last), .number = (newest)                                            \
    }

static struct rounds *rounds;

/* The time is BOOT ahead of CLOCK_BOOTTIME. */
#define BOOT 100
static struct clock_look *at_with(int64_t now, int64_t error)
{
    static struct clock_look look;
    look = (struct clock_look){.boottime = now - BOOT, .now = now, .error = error};
    return &look;
}

static struct clock_look *at(int64_t now)
{
    return at_with(now, ERROR);
}

static void setup(void)
{
    rounds = rounds_new(LENGTH);
    cr_assert(!rounds_are_due(rounds, at(START)));
}

static void teardown(void)
{
    rounds_free(rounds);
}

TestSuite(rounds, .init = setup, .fini = teardown);

static void expect_choice(uint64_t after, uint64_t least, uint64_t most, struct rounds_span wanted)
{
    struct rounds_span span;
    cr_assert(rounds_choose(rounds, 0, after, least, most, &span));
    assert_u64(span.lo, wanted.lo);
    assert_u64(span.hi, wanted.hi);
    assert_u64(span.number, wanted.number);
}

static void expect_none(uint64_t after, uint64_t least, uint64_t most)
{
    struct rounds_span span;
    cr_assert(!rounds_choose(rounds, 0, after, least, most, &span));
}

/* The newest number at round k, noted in the middle of the round behind it. */
static void pass_round(uint64_t k, uint64_t newest)
{
    rounds_pass(rounds, at((int64_t)k * LENGTH + LENGTH / 2), newest);
}

Test(rounds, nothing_is_numbered_around_an_instant)
{
    assert_i64(rounds_hold(rounds, at(8000 - ERROR - 1), 0), 0);
    assert_i64(rounds_hold(rounds, at(8000 - ERROR), 0), 2 * ERROR);
    assert_i64(rounds_hold(rounds, at(8000), 0), ERROR);
    assert_i64(rounds_hold(rounds, at(8000 + ERROR - 1), 0), 1);
    assert_i64(rounds_hold(rounds, at(8000 + ERROR), 0), 0);
    assert_i64(rounds_hold(rounds, at(9000), 0), 0);
    assert_i64(rounds_hold(rounds, at(10000 - ERROR - 3), 2), 0);
    assert_i64(rounds_hold(rounds, at(10000 - ERROR - 3), 3), 2 * ERROR + 3, "it begins soon");
}

Test(rounds, a_clock_without_error_never_waits)
{
    for (int64_t now = 7990; now < 8010; now++)
        assert_i64(rounds_hold(rounds, at_with(now, 0), 0), 0);
}

/* Nothing may be numbered between a number that is noted for a round and that round. */
Test(rounds, a_window_that_has_begun_gets_no_shorter)
{
    rounds_pass(rounds, at_with(7850, 200), 10);
    expect_choice(0, 0, UINT64_MAX, SPAN(4, 4, 10));
    assert_i64(rounds_hold(rounds, at_with(7900, 10), 0), 300);
    assert_i64(rounds_hold(rounds, at_with(8020, 10), 0), 180);
    assert_i64(rounds_hold(rounds, at_with(8200, 10), 0), 0);
}

Test(rounds, a_window_that_has_begun_gets_longer)
{
    rounds_pass(rounds, at_with(7995, 10), 10);
    assert_i64(rounds_hold(rounds, at_with(8005, 200), 0), 195);
    assert_i64(rounds_hold(rounds, at_with(8190, 10), 0), 10);
}

/* Numbers that are given meanwhile are in no round. */
Test(rounds, without_a_bound_nothing_is_noted)
{
    pass_round(4, 10);
    cr_assert(!rounds_are_due(rounds, at_with(9990, -1)));
    assert_i64(rounds_hold(rounds, at_with(10000, -1), 10), 0);
    rounds_pass(rounds, at_with(10500, -1), 11);
    pass_round(6, 12);
    expect_choice(0, 0, UINT64_MAX, SPAN(4, 4, 10));
    pass_round(7, 13);
    expect_choice(4, 0, UINT64_MAX, SPAN(7, 7, 13));
}

static struct clock_look *in_era(uint64_t era, int64_t boottime, int64_t offset)
{
    static struct clock_look look;
    look = (struct clock_look){.boottime = boottime, .now = boottime + offset, .error = ERROR};
    look.era = era;
    return &look;
}

/* By the old clock round 10 began at 19950, which another node may have noted; by the new one,
 * which is 8000 behind, 15 does at 38000. */
Test(rounds, a_clock_that_is_set_back)
{
    pass_round(8, 10);
    expect_choice(0, 0, UINT64_MAX, SPAN(4, 8, 10));
    cr_assert(!rounds_are_due(rounds, in_era(1, 19900, 0 + BOOT - 8000)));
    expect_none(0, 0, UINT64_MAX);
    assert_u64(rounds_dropped(rounds), 10);
    for (int64_t now = 20000; now < 30000 - BOOT - ERROR; now += 100)
        rounds_pass(rounds, in_era(1, now, BOOT - 8000), 11);
    expect_none(0, 0, UINT64_MAX);
    rounds_pass(rounds, in_era(1, 30000 - BOOT, BOOT - 8000), 12);
    expect_choice(0, 0, UINT64_MAX, SPAN(11, 11, 12));
}

Test(rounds, a_clock_that_is_set_forward)
{
    pass_round(8, 10);
    cr_assert(!rounds_are_due(rounds, in_era(1, 17500, BOOT + 8000)));
    expect_none(0, 0, UINT64_MAX);
    assert_u64(rounds_dropped(rounds), 9);
    rounds_pass(rounds, in_era(1, 18000 - ERROR - 1 - BOOT, BOOT + 8000), 11);
    expect_none(0, 0, UINT64_MAX);
    rounds_pass(rounds, in_era(1, 18000 - BOOT, BOOT + 8000), 11);
    expect_choice(0, 0, UINT64_MAX, SPAN(13, 13, 11));
}

/* As long as it is held, whatever the clock says. */
Test(rounds, a_window_ends_by_the_time_that_passes)
{
    rounds_pass(rounds, at(8000 - ERROR), 10);
    int64_t boottime = 8000 - BOOT;
    assert_i64(rounds_hold(rounds, in_era(1, boottime, 5000), 0), ERROR);
    assert_i64(rounds_hold(rounds, in_era(1, boottime + ERROR, 5000), 0), 0);
}

/* Which rounds are quiet, a feed tells. */
Test(rounds, when_numbers_were_given)
{
    struct rounds_span span;
    rounds_note_number(rounds, at(7900));
    pass_round(5, 10);
    cr_assert(rounds_choose(rounds, 0, 0, 0, UINT64_MAX, &span));
    assert_i64(span.last, 7900);
    assert_i64(span.next, 0);
    rounds_note_number(rounds, at(11700));
    rounds_note_number(rounds, at(11800));
    pass_round(6, 12);
    cr_assert(rounds_choose(rounds, 0, 0, 10, 10, &span));
    assert_i64(span.next, 11700);
    cr_assert(rounds_choose(rounds, 0, 0, 12, 12, &span));
    assert_i64(span.last, 11800);
}

Test(rounds, rounds_that_others_told_of)
{
    rounds_begin_after(rounds, 6);
    pass_round(6, 10);
    expect_none(0, 0, UINT64_MAX);
    pass_round(7, 10);
    expect_choice(0, 0, UINT64_MAX, SPAN(7, 7, 10));
}

/* When its window begins, all is numbered that can come before it. */
Test(rounds, a_round_passes_with_its_window)
{
    rounds_pass(rounds, at(8000 - ERROR - 1), 10);
    expect_none(0, 0, UINT64_MAX);
    rounds_pass(rounds, at(8000 - ERROR), 11);
    expect_choice(0, 0, UINT64_MAX, SPAN(4, 4, 11));
    rounds_pass(rounds, at(8000 + ERROR), 12);
    expect_choice(0, 0, UINT64_MAX, SPAN(4, 4, 11));
}

/* A daemon before may have given numbers in it. */
Test(rounds, the_round_of_the_start_is_not_noted)
{
    rounds_pass(rounds, at(START), 10);
    rounds_pass(rounds, at(START + 100), 11);
    expect_none(0, 0, UINT64_MAX);
    pass_round(4, 12);
    expect_choice(0, 0, UINT64_MAX, SPAN(4, 4, 12));
}

Test(rounds, without_operations_one_number_spans_rounds)
{
    pass_round(6, 10);
    expect_choice(0, 0, UINT64_MAX, SPAN(4, 6, 10));
    pass_round(9, 10);
    expect_choice(0, 0, UINT64_MAX, SPAN(4, 9, 10));
    pass_round(10, 11);
    expect_choice(4, 11, UINT64_MAX, SPAN(10, 10, 11));
    expect_choice(5, 0, 10, SPAN(6, 9, 10));
}

Test(rounds, the_most_trailing_zeros_are_chosen)
{
    for (uint64_t k = 4; k <= 15; k++)
        pass_round(k, k);
    expect_choice(0, 0, UINT64_MAX, SPAN(8, 8, 8));
    expect_choice(0, 0, 7, SPAN(4, 4, 4));
    expect_choice(8, 0, UINT64_MAX, SPAN(12, 12, 12));
    expect_choice(12, 0, UINT64_MAX, SPAN(14, 14, 14));
    expect_choice(14, 0, UINT64_MAX, SPAN(15, 15, 15));
    expect_choice(8, 13, 13, SPAN(13, 13, 13));
    pass_round(16, 16);
    pass_round(24, 17);
    expect_choice(16, 0, UINT64_MAX, SPAN(17, 24, 17));
}

Test(rounds, of_equals_the_latest)
{
    for (uint64_t k = 4; k <= 7; k++)
        pass_round(k, k);
    expect_choice(4, 0, UINT64_MAX, SPAN(6, 6, 6));
    pass_round(10, 8);
    expect_choice(4, 0, 7, SPAN(6, 6, 6));
    expect_choice(8, 0, UINT64_MAX, SPAN(9, 10, 8));
}

Test(rounds, what_was_published_is_forgotten)
{
    pass_round(9, 10);
    pass_round(10, 11);
    rounds_forget(rounds, 8);
    expect_choice(0, 0, UINT64_MAX, SPAN(10, 10, 11));
    expect_choice(0, 10, 10, SPAN(9, 9, 10));
    rounds_forget(rounds, 10);
    expect_none(0, 0, UINT64_MAX);
    pass_round(10, 12);
    expect_none(0, 0, UINT64_MAX);
}

/* A node that cannot publish for long keeps the rounds that all would choose. */
Test(rounds, room_is_for_those_that_are_chosen)
{
    for (uint64_t k = 4; k <= 1000; k++)
        pass_round(k, k);
    expect_choice(0, 0, UINT64_MAX, SPAN(512, 512, 512));
    expect_choice(512, 0, UINT64_MAX, SPAN(768, 768, 768));
    expect_choice(768, 0, UINT64_MAX, SPAN(896, 896, 896));
    expect_choice(0, 0, 511, SPAN(256, 256, 256));
}

/* A number that came between the begin of a window and the look at the clock. */
Test(rounds, a_round_can_be_lost)
{
    cr_assert(!rounds_are_due(rounds, at(8000 - ERROR - 1)));
    cr_assert(rounds_are_due(rounds, at(8000 - ERROR)));
    rounds_lose(rounds, at(8000));
    cr_assert(!rounds_are_due(rounds, at(9999 - ERROR)));
    pass_round(4, 10);
    expect_none(0, 0, UINT64_MAX);
    pass_round(5, 10);
    expect_choice(0, 0, UINT64_MAX, SPAN(5, 5, 10));
}

Test(rounds, some_are_of_all_nodes)
{
    struct rounds_span span;
    for (uint64_t k = 4; k <= 15; k++)
        pass_round(k, k);
    cr_assert(rounds_choose(rounds, 2, 0, 0, UINT64_MAX, &span));
    assert_u64(span.hi, 8, "of 8 and 12");
    cr_assert(rounds_choose(rounds, 2, 8, 0, UINT64_MAX, &span));
    assert_u64(span.hi, 12);
    cr_assert(!rounds_choose(rounds, 2, 12, 0, UINT64_MAX, &span));
    pass_round(16, 15);
    cr_assert(rounds_choose(rounds, 5, 12, 0, UINT64_MAX, &span), "a number that stayed");
    assert_u64(span.lo, 15);
    assert_u64(span.hi, 16);
}

/* Three nodes that publish at times of their own, at most 5 rounds apart, all choose each multiple
 * of 8. */
Test(rounds, a_common_round_comes)
{
    enum { NODES = 3, APART = 5, COMMON = 8, ROUNDS = 4000 };
    static bool published[NODES][ROUNDS + 1];
    struct seeded seeded = {31};
    for (unsigned n = 0; n < NODES; n++) {
        struct rounds *of_node = rounds_new(LENGTH);
        cr_assert(!rounds_are_due(of_node, at(BOOT)));
        struct rounds_span span = {0};
        uint64_t number = 1, next = 1;
        for (uint64_t k = 1; k <= ROUNDS; k++) {
            number += seeded_below(&seeded, 2);
            rounds_pass(of_node, at((int64_t)k * LENGTH), number);
            if (k < next || !rounds_choose(of_node, 0, span.hi, 0, number, &span))
                continue;
            for (uint64_t i = span.lo; i <= span.hi; i++)
                published[n][i] = true;
            rounds_forget(of_node, span.hi);
            next = k + 1 + seeded_below(&seeded, APART);
        }
        rounds_free(of_node);
    }
    for (uint64_t k = COMMON; k + APART <= ROUNDS; k += COMMON)
        for (unsigned n = 0; n < NODES; n++)
            cr_assert(published[n][k], "node %u, round %llu", n, (unsigned long long)k);
}
