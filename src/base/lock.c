// SPDX-License-Identifier: Apache-2.0
#include "base/lock.h"

#include <time.h>

/* Bit r is set while this thread holds a lock of rank r. */
static _Thread_local uint32_t held_ranks;

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
}

void mutex_unlock(struct cairn_mutex *m)
{
    held_ranks &= ~(1u << m->rank);
    check(pthread_mutex_unlock(&m->mutex) == 0);
}

/* glibc before 2.41 can lose a signal where several threads wait for one condition (its bug 25847). Whoever waits without a limit
 * looks again now and then, as after a spurious wakeup, so that this costs a moment and not the daemon. */
#define LOOK_AGAIN_MS 1000

bool mutex_wait(struct cairn_mutex *m, pthread_cond_t *cond, int64_t timeout_ms)
{
    bool forever = timeout_ms < 0;
    if (forever)
        timeout_ms = LOOK_AGAIN_MS;
    struct timespec until;
    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += timeout_ms / 1000;
    until.tv_nsec += timeout_ms % 1000 * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    return pthread_cond_timedwait(cond, &m->mutex, &until) != ETIMEDOUT || forever;
}

void cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t attr;
    check(pthread_condattr_init(&attr) == 0);
    check(pthread_condattr_setclock(&attr, CLOCK_MONOTONIC) == 0);
    check(pthread_cond_init(cond, &attr) == 0);
    (void)pthread_condattr_destroy(&attr);
}
