// SPDX-License-Identifier: Apache-2.0
#include "base/rate_limit.h"
#include "../expect.h"

#include "base/clock.h"
#include "base/pool.h"

static struct rate_limit limit;

static void teardown(void)
{
    rate_limit_done(&limit);
}

TestSuite(rate_limit, .fini = teardown);

Test(rate_limit, what_went_is_paid_for_before_more_goes)
{
    rate_limit_init(&limit, 1000 * 1000);
    int64_t begin = clock_monotonic_ns();
    for (int i = 0; i < 6; i++)
        rate_limit_wait(&limit, 10 * 1000);
    cr_expect_geq(clock_monotonic_ns() - begin, 50 * MS_NS); /* the sixth pays for five */
}

Test(rate_limit, none_is_no_wait)
{
    rate_limit_init(&limit, 0);
    rate_limit_wait(&limit, UINT64_MAX);
    rate_limit_wait(&limit, UINT64_MAX);
}

Test(rate_limit, one_that_is_lifted_counts_nothing)
{
    rate_limit_init(&limit, 1);
    rate_limit_lift(&limit, true);
    rate_limit_wait(&limit, 3600);
    rate_limit_lift(&limit, false);
    rate_limit_wait(&limit, 3600);
    rate_limit_lift(&limit, true);
    rate_limit_wait(&limit, 3600);
}

Test(rate_limit, what_can_be_done_later_waits_for_nothing_and_is_paid_for)
{
    rate_limit_init(&limit, 1000 * 1000);
    cr_expect(rate_limit_is_paid(&limit));
    int64_t begin = clock_monotonic_ns();
    rate_limit_charge(&limit, 3600ull * 1000 * 1000);
    cr_expect_not(rate_limit_is_paid(&limit));
    cr_expect_lt(clock_monotonic_ns() - begin, 3600 * SECOND_NS);
    rate_limit_done(&limit);
    rate_limit_init(&limit, 1000 * 1000);
    rate_limit_charge(&limit, 50 * 1000);
    rate_limit_wait(&limit, 1);
    cr_expect_geq(clock_monotonic_ns() - begin, 50 * MS_NS);
    cr_expect(rate_limit_is_paid(&limit) || clock_monotonic_ns() - begin < SECOND_NS);
}

Test(rate_limit, charges_of_none_and_while_it_is_lifted)
{
    rate_limit_init(&limit, 0);
    rate_limit_charge(&limit, UINT64_MAX);
    cr_expect(rate_limit_is_paid(&limit));
    rate_limit_done(&limit);
    rate_limit_init(&limit, 1);
    rate_limit_lift(&limit, true);
    rate_limit_charge(&limit, 3600);
    cr_expect(rate_limit_is_paid(&limit));
}

static void *wait_an_hour(void *arg)
{
    (void)arg;
    rate_limit_wait(&limit, 1);
    return NULL;
}

Test(rate_limit, lifting_lets_go_who_waits, .timeout = 60)
{
    pthread_t thread;
    rate_limit_init(&limit, 1);
    rate_limit_wait(&limit, 3600);
    cr_assert(thread_start(&thread, "waits", wait_an_hour, NULL) == 0);
    (void)usleep(100 * 1000); /* it waits by then; if not, this proves less and does not fail */
    rate_limit_lift(&limit, true);
    cr_expect(pthread_join(thread, NULL) == 0);
}
