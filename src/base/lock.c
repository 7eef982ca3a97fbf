// SPDX-License-Identifier: Apache-2.0
#include "base/lock.h"

#include "base/clock.h"

/* Bit r is set while this thread holds a lock of rank r, which is held_locks[r]. */
static _Thread_local uint32_t held_ranks;
static _Thread_local const struct cairn_mutex *held_locks[LOCK_EVENT + 1];

void mutex_init(struct cairn_mutex *m, enum lock_rank rank)
{
    check(pthread_mutex_init(&m->mutex, NULL) == 0);
    m->rank = rank;
}

void mutex_done(struct cairn_mutex *m)
{
    (void)pthread_mutex_destroy(&m->mutex);
}

void mutex_lock(struct cairn_mutex *m)
{
    check(held_ranks >> m->rank == 0);
    check(pthread_mutex_lock(&m->mutex) == 0);
    held_ranks |= 1u << m->rank;
    held_locks[m->rank] = m;
}

void mutex_unlock(struct cairn_mutex *m)
{
    check_held(m);
    held_ranks &= ~(1u << m->rank);
    check(pthread_mutex_unlock(&m->mutex) == 0);
}

bool mutex_is_held(const struct cairn_mutex *m)
{
    return held_ranks >> m->rank & 1 && held_locks[m->rank] == m;
}

bool lock_rank_is_held(enum lock_rank rank)
{
    return held_ranks >> rank & 1;
}

/* glibc before 2.41 can lose a signal if several threads wait for one condition (its bug 25847). So
 * a thread that waits without a limit wakes once a second, as if spuriously: a lost signal costs a
 * moment and does not hang the daemon. */
#define LOOK_AGAIN_MS 1000

bool mutex_wait_until(struct cairn_mutex *m, pthread_cond_t *cond, int64_t until_ns)
{
    check_held(m);
    struct timespec until = {.tv_sec = until_ns / SECOND_NS, .tv_nsec = until_ns % SECOND_NS};
    return pthread_cond_timedwait(cond, &m->mutex, &until) != ETIMEDOUT;
}

bool mutex_wait(struct cairn_mutex *m, pthread_cond_t *cond, int64_t timeout_ms)
{
    int64_t ms = timeout_ms < 0 ? LOOK_AGAIN_MS : timeout_ms;
    return mutex_wait_until(m, cond, clock_monotonic_ns() + ms * MS_NS) || timeout_ms < 0;
}

void cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t attr;
    check(pthread_condattr_init(&attr) == 0);
    check(pthread_condattr_setclock(&attr, CLOCK_MONOTONIC) == 0);
    check(pthread_cond_init(cond, &attr) == 0);
    (void)pthread_condattr_destroy(&attr);
}
