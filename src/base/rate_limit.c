// SPDX-License-Identifier: Apache-2.0
#include "base/rate_limit.h"

#include "base/clock.h"

void rate_limit_init(struct rate_limit *limit, uint64_t bytes_per_s)
{
    *limit = (struct rate_limit){.bytes_per_s = bytes_per_s};
    mutex_init(&limit->locked.lock, LOCK_LEAF);
    cond_init(&limit->changed);
}

void rate_limit_done(struct rate_limit *limit)
{
    mutex_done(&limit->locked.lock);
    (void)pthread_cond_destroy(&limit->changed);
}

/* Charges `bytes`; returns when the caller may proceed (monotonic ns). */
static int64_t charge_locked(struct rate_limit *limit, uint64_t bytes)
{
    check_held(&limit->locked.lock);
    int64_t now = clock_monotonic_ns();
    int64_t at = limit->locked.allowance_at > now ? limit->locked.allowance_at : now;
    limit->locked.allowance_at =
        at + (int64_t)((double)bytes * (double)SECOND_NS / (double)limit->bytes_per_s);
    return at;
}

bool rate_limit_is_paid(struct rate_limit *limit)
{
    if (limit->bytes_per_s == 0)
        return true;
    LOCK_SCOPE(&limit->locked.lock);
    return limit->locked.allowance_at <= clock_monotonic_ns();
}

void rate_limit_charge(struct rate_limit *limit, uint64_t bytes)
{
    if (limit->bytes_per_s == 0)
        return;
    LOCK_SCOPE(&limit->locked.lock);
    if (!limit->locked.lifted)
        (void)charge_locked(limit, bytes);
}

void rate_limit_wait(struct rate_limit *limit, uint64_t bytes)
{
    if (limit->bytes_per_s == 0)
        return;
    LOCK_SCOPE(&limit->locked.lock);
    if (limit->locked.lifted)
        return;
    int64_t at = charge_locked(limit, bytes);
    while (!limit->locked.lifted && clock_monotonic_ns() < at)
        (void)mutex_wait_until(&limit->locked.lock, &limit->changed, at);
}

void rate_limit_lift(struct rate_limit *limit, bool lifted)
{
    if (limit->bytes_per_s == 0)
        return;
    LOCK_SCOPE(&limit->locked.lock);
    limit->locked.lifted = lifted;
    if (lifted)
        (void)pthread_cond_broadcast(&limit->changed);
}
