// SPDX-License-Identifier: Apache-2.0
#include "base/event.h"

#include "../expect.h"
#include "base/clock.h"
#include "base/pool.h"

#define ROUNDS 20000u

static struct event event;
static _Atomic uint64_t asked, answered;

TestSuite(event, .timeout = 60);

Test(event, a_signal_between_the_count_and_the_wait_is_not_missed)
{
    event_init(&event);
    uint64_t seen = event_count(&event);
    event_signal(&event);
    cr_expect(event_wait(&event, &seen, INT64_MAX));
    expect_u64(seen, 1);
    event_done(&event);
}

Test(event, a_wait_ends_at_its_limit)
{
    event_init(&event);
    uint64_t seen = event_count(&event);
    int64_t until = clock_monotonic_ns() + 20 * MS_NS;
    cr_expect_not(event_wait(&event, &seen, until));
    cr_expect(clock_monotonic_ns() >= until);
    event_signal(&event);
    cr_expect_not(event_wait(&event, &seen, until), "also where there was a signal");
    event_done(&event);
}

static void *answer(void *arg)
{
    (void)arg;
    uint64_t seen = event_count(&event);
    for (uint64_t i = 1; i <= ROUNDS; i++) {
        while (atomic_load(&asked) < i && event_wait(&event, &seen, INT64_MAX))
            ;
        atomic_store(&answered, i);
        event_signal(&event);
    }
    return NULL;
}

/* A signal that is lost costs a second: the wait would look again then. */
Test(event, no_signal_is_lost)
{
    pthread_t thread;
    event_init(&event);
    int64_t began = clock_monotonic_ns();
    assert_i64(thread_start(&thread, "answer", answer, NULL), 0);
    uint64_t seen = event_count(&event);
    for (uint64_t i = 1; i <= ROUNDS; i++) {
        atomic_store(&asked, i);
        event_signal(&event);
        while (atomic_load(&answered) < i && event_wait(&event, &seen, INT64_MAX))
            ;
    }
    (void)pthread_join(thread, NULL);
    cr_expect_lt(clock_monotonic_ns() - began, 30 * SECOND_NS);
    event_done(&event);
}

static void *wait_for_answer(void *arg)
{
    uint64_t seen = event_count(&event);
    while (atomic_load(&answered) == 0 && event_wait(&event, &seen, INT64_MAX))
        ;
    return arg;
}

Test(event, all_who_wait_are_woken_whatever_locks_are_held)
{
    pthread_t threads[8];
    struct cairn_mutex leaf;
    event_init(&event);
    mutex_init(&leaf, LOCK_LEAF);
    for (size_t i = 0; i < ARRAY_LEN(threads); i++)
        assert_i64(thread_start(&threads[i], "wait", wait_for_answer, NULL), 0);
    while (atomic_load(&event.waiting) < ARRAY_LEN(threads))
        (void)usleep(1000);
    mutex_lock(&leaf);
    atomic_store(&answered, 1);
    event_signal(&event);
    mutex_unlock(&leaf);
    for (size_t i = 0; i < ARRAY_LEN(threads); i++)
        (void)pthread_join(threads[i], NULL);
    mutex_done(&leaf);
    event_done(&event);
}
