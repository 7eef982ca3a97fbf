// SPDX-License-Identifier: Apache-2.0
#include "base/lock.h"

#include <criterion/criterion.h>
#include <signal.h>

#include "base/clock.h"

Test(lock, ascending_ranks)
{
    struct cairn_mutex a, b;
    mutex_init(&a, LOCK_FS);
    mutex_init(&b, LOCK_LEAF);
    for (int i = 0; i < 2; i++) {
        LOCK_SCOPE(&a);
        LOCK_SCOPE(&b);
    }
    mutex_lock(&b);
    mutex_unlock(&b);
    mutex_done(&a);
    mutex_done(&b);
}

static void take_both(enum lock_rank first, enum lock_rank second)
{
    struct cairn_mutex a, b;
    mutex_init(&a, first);
    mutex_init(&b, second);
    mutex_lock(&a);
    mutex_lock(&b);
}

Test(lock, descending_ranks_die, .signal = SIGABRT)
{
    take_both(LOCK_LEAF, LOCK_FS);
}

Test(lock, equal_ranks_die, .signal = SIGABRT)
{
    take_both(LOCK_STAGE, LOCK_STAGE);
}

static struct cairn_mutex wanted;

static void change_locked(void)
{
    check_held(&wanted);
}

Test(lock, who_holds_the_lock_may_change)
{
    mutex_init(&wanted, LOCK_LEAF);
    LOCK_SCOPE(&wanted);
    change_locked();
}

Test(lock, a_rank_is_held_by_who_holds_a_lock_of_it)
{
    mutex_init(&wanted, LOCK_STAGE);
    cr_expect(!lock_rank_is_held(LOCK_STAGE));
    LOCK_SCOPE(&wanted);
    cr_expect(lock_rank_is_held(LOCK_STAGE));
    cr_expect(!lock_rank_is_held(LOCK_LEAF));
}

Test(lock, who_holds_none_dies, .signal = SIGABRT)
{
    mutex_init(&wanted, LOCK_LEAF);
    mutex_lock(&wanted);
    mutex_unlock(&wanted);
    change_locked();
}

Test(lock, who_holds_another_of_the_rank_dies, .signal = SIGABRT)
{
    struct cairn_mutex other;
    mutex_init(&wanted, LOCK_LEAF);
    mutex_init(&other, LOCK_LEAF);
    mutex_lock(&other);
    change_locked();
}

Test(lock, wait_ends_at_the_limit)
{
    struct cairn_mutex m;
    pthread_cond_t cond;
    mutex_init(&m, LOCK_LEAF);
    cond_init(&cond);
    mutex_lock(&m);
    int64_t begin = clock_monotonic_ns();
    while (mutex_wait(&m, &cond, 20))
        continue;
    cr_assert_geq(clock_monotonic_ns() - begin, 19 * 1000000);
    mutex_unlock(&m);
}
