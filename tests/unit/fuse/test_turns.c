// SPDX-License-Identifier: Apache-2.0
/* When another thread is woken to receive. A pipe stands for the kernel: what is in it waits to be
 * received. */
#include <unistd.h>

#include "../expect.h"
#include "base/clock.h"
#include "fuse/turns.h"

#define LOOKUP 1u
#define READ 15u
#define BEGUN_NOW INT64_MAX /* whatever a busy machine makes of it */

static struct turns turns;
static int kernel[2];

static void begin(void)
{
    turns_init(&turns);
    assert_i64(pipe(kernel), 0);
    atomic_store(&turns.resting, 1);
}

static void end(void)
{
    (void)close(kernel[0]);
    (void)close(kernel[1]);
    turns_done(&turns);
}

TestSuite(turns, .init = begin, .fini = end);

static void request_comes(void)
{
    assert_i64(write(kernel[1], "r", 1), 1);
}

static void request_is_received(void)
{
    char byte;
    assert_i64(read(kernel[0], &byte, 1), 1);
}

/* Was another thread to be woken since this was asked last? */
static bool was_woken(void)
{
    LOCK_SCOPE(&turns.lock);
    bool woken = turns.wanted > 0;
    turns.wanted = 0;
    return woken;
}

static bool waiting_one_wakes(void)
{
    (void)turn_begin(&turns, LOOKUP);
    request_comes();
    turn_answering(&turns, kernel[0]);
    turn_end(&turns, LOOKUP, BEGUN_NOW);
    request_is_received();
    return was_woken();
}

/* Its caller runs as soon as it has the answer, and asks for the next thing. */
static bool next_one_wakes(void)
{
    (void)turn_begin(&turns, LOOKUP);
    turn_answering(&turns, kernel[0]);
    request_comes();
    turn_end(&turns, LOOKUP, BEGUN_NOW);
    request_is_received();
    return was_woken();
}

Test(turns, one_program_is_served_by_one_thread)
{
    for (unsigned i = 0; i < 100; i++)
        cr_assert_not(next_one_wakes());
}

Test(turns, several_that_wait_again_and_again_are_served_at_once)
{
    for (unsigned i = 0; i < 3; i++)
        cr_assert_not(waiting_one_wakes());
    cr_assert(waiting_one_wakes());
    cr_assert(waiting_one_wakes());
    cr_assert_not(next_one_wakes(), "the last one had to wait for nothing");
    cr_assert_not(waiting_one_wakes());
}

Test(turns, before_what_took_long_another_is_woken)
{
    (void)turn_begin(&turns, READ);
    cr_assert_not(was_woken());
    turn_end(&turns, READ, clock_monotonic_ns() - MS_NS);
    (void)turn_begin(&turns, LOOKUP);
    cr_assert_not(was_woken(), "it is of another kind");
    (void)turn_begin(&turns, READ);
    cr_assert(was_woken());
}

Test(turns, none_is_woken_while_one_receives)
{
    turn_end(&turns, READ, clock_monotonic_ns() - MS_NS);
    cr_assert(turn_take(&turns));
    (void)turn_begin(&turns, READ);
    cr_assert_not(was_woken());
    turn_leave(&turns);
    (void)turn_begin(&turns, READ);
    cr_assert(was_woken());
}

#define SMALL 100u
#define LARGE (1u << 20)

static void receive(size_t size)
{
    cr_assert(turn_take(&turns));
    turn_received(&turns, kernel[0], size);
    turn_leave(&turns);
}

/* Two threads at once, of which the test is both. */
static bool two_may_receive(void)
{
    cr_assert(turn_take(&turns));
    bool claimed = false;
    turns.ended = true; /* the second one does not rest */
    if (turn_take(&turns)) {
        claimed = true;
        turn_leave(&turns);
    }
    turns.ended = false;
    turn_leave(&turns);
    return claimed;
}

Test(turns, while_large_writes_wait_for_each_other_several_threads_receive)
{
    receive(LARGE);
    cr_assert_not(was_woken(), "one writer");
    cr_assert_not(two_may_receive());
    request_comes();
    receive(LARGE);
    cr_assert(was_woken());
    cr_assert(two_may_receive());
    request_is_received();
    for (unsigned i = 0; i < 64; i++) {
        cr_assert(two_may_receive());
        receive(LARGE);
    }
    cr_assert_not(two_may_receive(), "the writers have ended");
}

Test(turns, small_requests_that_wait_have_one_receiver)
{
    request_comes();
    for (unsigned i = 0; i < 100; i++)
        receive(SMALL);
    cr_assert_not(two_may_receive());
}

Test(turns, who_takes_all_turns_waits_for_no_receiver_and_lets_none_in)
{
    request_comes();
    receive(LARGE);
    cr_assert(turn_take(&turns));
    cr_assert_not(turns_try_all(&turns));
    turn_leave(&turns);
    cr_assert(turns_try_all(&turns));
    turns.ended = true;
    cr_assert_not(turn_take(&turns));
    turns.ended = false;
    turns_leave_all(&turns);
    receive(LARGE);
}
