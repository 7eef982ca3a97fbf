// SPDX-License-Identifier: Apache-2.0
/* Before a hand-over the daemon stops receiving, and answers the requests that it has received. A
 * daemon that dies in the middle of a call leaves the call to its successor (adopt.c), but if the
 * kernel cannot resend it, it would fail, and so might one that is just being received.
 *
 * Only threads with a turn receive: front_hold() takes all turns, and keeps them. */
#include "base/clock.h"
#include "fuse/internal.h"

#define HOLD_NS (10ll * 1000000000)

static unsigned count_held_requests(struct front *front)
{
    LOCK_SCOPE(&front->locked.lock);
    unsigned count = 0; /* not counting the one being repeated */
    const struct parked *parked;
    const struct syncing *syncing;
    TAILQ_FOREACH(parked, &front->locked.content, link)
    count++;
    TAILQ_FOREACH(parked, &front->locked.changes, link)
    count++;
    TAILQ_FOREACH(syncing, &front->locked.syncing, link)
    count++;
    return count;
}

/* Requests that wait for room, or for a horizon, may stay unanswered if the kernel resends them. */
static bool is_answered(struct front *front, bool resends)
{
    unsigned waiting = resends ? count_held_requests(front) : 0;
    return atomic_load(&front->working) == 0 && stage_requests_open(front->stage) <= waiting;
}

static bool take_turns(struct front *front, uint64_t *seen, int64_t deadline)
{
    while (!turns_try_all(&front->turns)) {
        if (clock_monotonic_ns() >= deadline)
            return false;
        front_interrupt(front);
        (void)event_wait(&front->progress, seen, clock_monotonic_ns() + INTERRUPT_NS);
    }
    return true;
}

static void receive_again(struct front *front)
{
    atomic_store(&front->holding, false);
    event_signal(&front->progress);
}

void front_release(struct front *front)
{
    turns_leave_all(&front->turns);
    receive_again(front);
}

int front_hold(struct front *front)
{
    int64_t deadline = clock_monotonic_ns() + HOLD_NS;
    bool resends = front_kernel_resends(front), answered;
    atomic_store(&front->holding, true);
    uint64_t seen = event_count(&front->progress);
    if (!take_turns(front, &seen, deadline)) {
        receive_again(front);
        return -EBUSY;
    }
    while (!(answered = is_answered(front, resends)) &&
           event_wait(&front->progress, &seen, deadline))
        ;
    if (answered || resends)
        return 0;
    front_release(front);
    return -EBUSY;
}
