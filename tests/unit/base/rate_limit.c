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
