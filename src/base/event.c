// SPDX-License-Identifier: Apache-2.0
#include "base/event.h"

#include "base/clock.h"

void event_init(struct event *event)
{
    *event = (struct event){0};
    mutex_init(&event->lock, LOCK_EVENT);
    cond_init(&event->signalled);
}

void event_done(struct event *event)
{
    mutex_done(&event->lock);
    (void)pthread_cond_destroy(&event->signalled);
}

/* event_signal() writes the count, then reads `waiting`; event_wait() writes `waiting`, then reads
 * the count. So at least one of them sees the other's write: the signaller sees the waiter, or the
 * waiter sees the new count. */
void event_signal(struct event *event)
{
    atomic_fetch_add(&event->count, 1);
    if (atomic_load(&event->waiting) == 0)
        return;
    LOCK_SCOPE(&event->lock);
    (void)pthread_cond_broadcast(&event->signalled);
}

uint64_t event_count(struct event *event)
{
    return atomic_load(&event->count);
}

bool event_wait(struct event *event, uint64_t *seen, int64_t until_ns)
{
    int64_t now;
    atomic_fetch_add(&event->waiting, 1);
    mutex_lock(&event->lock);
    while ((now = clock_monotonic_ns()) < until_ns && atomic_load(&event->count) == *seen)
        (void)mutex_wait(&event->lock, &event->signalled,
                         until_ns == INT64_MAX ? -1 : (until_ns - now) / MS_NS + 1);
    mutex_unlock(&event->lock);
    atomic_fetch_sub(&event->waiting, 1);
    *seen = atomic_load(&event->count);
    return now < until_ns;
}
