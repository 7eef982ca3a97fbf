// SPDX-License-Identifier: Apache-2.0
/* The horizon by itself: its waiters, what hurries writeback, ages. */
#include <pthread.h>

#include "../expect.h"
#include "base/clock.h"
#include "commit/commit.h"
#include "objects.h"

TestSuite(commit_horizon, .init = objects_setup, .fini = objects_teardown, .timeout = 120);

static void note_result(int result, void *arg)
{
    *(int *)arg = result;
}

Test(commit_horizon, waiters_are_told_when_it_is_reached_and_once)
{
    int at[3] = {1, 1, 1};
    uint64_t tickets[3];
    horizon_begin(o.horizon, 10);
    horizon_await(o.horizon, 10, note_result, &at[0], &tickets[0]);
    expect_i64(at[0], 0, "at once");
    horizon_await(o.horizon, 20, note_result, &at[1], &tickets[1]);
    horizon_await(o.horizon, 30, note_result, &at[2], &tickets[2]);
    horizon_advance(o.horizon, 25);
    expect_i64(at[1], 0);
    expect_i64(at[2], 1);
    cr_expect_not(horizon_unwait(o.horizon, tickets[1]), "it was called");
    cr_expect(horizon_unwait(o.horizon, tickets[2]));
    horizon_advance(o.horizon, 30);
    expect_i64(at[2], 1, "its wait ended");
}

Test(commit_horizon, a_refusal_ends_all_waits_and_later_ones_wait_again)
{
    int first = 1, second = 1;
    uint64_t ticket;
    horizon_await(o.horizon, 5, note_result, &first, &ticket);
    horizon_refuse(o.horizon, -ENOSPC);
    expect_i64(first, -ENOSPC);
    horizon_await(o.horizon, 5, note_result, &second, &ticket);
    expect_i64(second, 1);
    horizon_advance(o.horizon, 5);
    expect_i64(second, 0);
}

Test(commit_horizon, who_waits_makes_it_urgent)
{
    int result = 1;
    uint64_t ticket;
    cr_expect_not(horizon_is_urgent(o.horizon));
    horizon_note_waiting(o.horizon, 2);
    cr_expect(horizon_has_writers(o.horizon));
    struct pressure pressure = horizon_pressure(o.horizon);
    cr_expect(pressure.urgent);
    expect_u64(pressure.waiting, 2);
    horizon_note_waiting(o.horizon, 0);
    cr_expect_not(horizon_pressure(o.horizon).urgent);
    horizon_await(o.horizon, 5, note_result, &result, &ticket);
    cr_expect(horizon_is_urgent(o.horizon));
    cr_expect(horizon_unwait(o.horizon, ticket));
    cr_expect_not(horizon_is_urgent(o.horizon));
    horizon_urge(o.horizon, clock_monotonic_ns() + 3600 * SECOND_NS);
    cr_expect(horizon_is_urgent(o.horizon));
}

static void *stop(void *arg)
{
    (void)arg;
    horizon_stop(o.horizon);
    return NULL;
}

Test(commit_horizon, a_stop_ends_a_pause_and_a_rest)
{
    pthread_t thread;
    assert_i64(pthread_create(&thread, NULL, stop, NULL), 0);
    cr_expect_not(horizon_pause(o.horizon, 3600 * 1000));
    horizon_rest(o.horizon, clock_monotonic_ns() + 3600 * SECOND_NS);
    cr_expect(horizon_is_stopping(o.horizon));
    assert_i64(pthread_join(thread, NULL), 0);
}

Test(commit_horizon, ages_of_cuts_that_the_remote_has_are_forgotten_and_the_others_bounded)
{
    for (uint64_t cut = 1; cut <= AGES_MAX + 1; cut++)
        horizon_note_age(o.horizon, cut * 10, (int64_t)cut);
    expect_i64(horizon_age_after(o.horizon, 0), 1);
    expect_i64(horizon_age_after(o.horizon, 20), 3, "two that follow each other count as one");
    expect_i64(horizon_age_after(o.horizon, (AGES_MAX + 1) * 10), 0);
    horizon_set_published(o.horizon, AGES_MAX * 10);
    horizon_note_age(o.horizon, (AGES_MAX + 2) * 10, 7);
    expect_i64(horizon_age_after(o.horizon, 0), AGES_MAX + 1);
}

static double busy_s(struct horizon *horizon, bool of_remote)
{
    struct commit_status status = {0};
    horizon_status(horizon, &status);
    return (double)(of_remote ? status.remote_busy_ns : status.nvme_busy_ns) / 1e9;
}

Test(commit_horizon, a_time_in_which_a_tier_lacks_something_counts_once)
{
    struct horizon *horizon = o.horizon;
    int64_t now = clock_monotonic_ns();
    horizon_note_durable(horizon, now - 100 * SECOND_NS);
    cr_expect_float_eq(busy_s(horizon, false), 100, 5);
    horizon_note_durable(horizon, now - 150 * SECOND_NS);
    cr_expect_float_eq(busy_s(horizon, false), 100, 5);
    horizon_note_published(horizon, 1);
    cr_expect_float_eq(busy_s(horizon, true), 0, 0.001, "nothing is known to be lacking");
    horizon_note_age(horizon, 1, now - 40 * SECOND_NS);
    horizon_note_age(horizon, 2, now - 30 * SECOND_NS);
    horizon_note_published(horizon, 1);
    horizon_set_published(horizon, 1);
    cr_expect_float_eq(busy_s(horizon, true), 40, 5);
    horizon_note_published(horizon, 2);
    horizon_set_published(horizon, 2);
    cr_expect_float_eq(busy_s(horizon, true), 40, 5);
    horizon_note_published(horizon, 2);
    cr_expect_float_eq(busy_s(horizon, true), 40, 5);
}

Test(commit_horizon, an_error_that_repeats_is_counted_and_kept)
{
    struct commit_status status = {0};
    horizon_error(o.horizon, "pack %d failed", 1);
    horizon_error(o.horizon, "pack %d failed", 1);
    horizon_begin(o.horizon, 9);
    horizon_status(o.horizon, &status);
    expect_u64(status.errors, 2);
    expect_u64(status.horizon_seq, 9);
    expect_str(status.last_error, "pack 1 failed");
}
