// SPDX-License-Identifier: Apache-2.0
#include "base/pool.h"

#include <stdatomic.h>

#include "../expect.h"

static void add_one(void *arg)
{
    atomic_fetch_add((atomic_int *)arg, 1);
}

Test(pool, runs_all_jobs)
{
    atomic_int done = 0, prepared = 0;
    struct pool *pool;
    assert_i64(pool_new("test", 3, 4, add_one, &prepared, &pool), 0);
    for (int i = 0; i < 1000; i++)
        pool_submit(pool, add_one, &done);
    pool_drain(pool);
    assert_i64(done, 1000);
    for (int i = 0; i < 4; i++)
        pool_submit(pool, add_one, &done);
    pool_free(pool);
    assert_i64(done, 1004, "free waits for what is queued");
    assert_i64(prepared, 3);
    pool_free(NULL);
}

static int order[100], order_len;

static void note(void *arg)
{
    order[order_len++] = (int)(intptr_t)arg;
}

Test(pool, starts_in_order)
{
    struct pool *pool;
    assert_i64(pool_new("test", 1, 8, NULL, NULL, &pool), 0);
    for (intptr_t i = 0; i < 100; i++)
        pool_submit(pool, note, (void *)i);
    pool_free(pool);
    for (int i = 0; i < 100; i++)
        assert_i64(order[i], i);
}

static void *set_flag(void *arg)
{
    *(bool *)arg = true;
    return arg;
}

Test(pool, threads)
{
    bool ran = false;
    pthread_t thread;
    void *result;
    assert_i64(thread_start(&thread, "test", set_flag, &ran), 0);
    assert_i64(pthread_join(thread, &result), 0);
    cr_assert(ran);
    assert_ptr(result, &ran);
}
