// SPDX-License-Identifier: Apache-2.0
/* Before a hand-over the daemon receives nothing more, and answers what it has received. A daemon
 * that dies in the middle of a call leaves it to its successor (adopt.c), but a kernel that cannot
 * send again would have it fail, and one whose bytes are just copied may fail anywhere.
 *
 * Only the thread that has the turn receives: front_hold() takes the turn from the threads, and
 * keeps it. */
#include <pthread.h>
#include <signal.h>
#include <time.h>

#include "base/clock.h"
#include "fuse/internal.h"

#define HOLD_NS (10ll * 1000000000)
#define STEP_NS 1000000

static bool kernel_resends(const struct front *front)
{
    const struct front_passport *passport = &front->passport;
    uint32_t flags2 = 0;
    if (passport->init_len >= WIRE_IN_HEADER_LEN + INIT_IN_FLAGS2 + sizeof flags2)
        memcpy(&flags2, passport->init + WIRE_IN_HEADER_LEN + INIT_IN_FLAGS2, sizeof flags2);
    return flags2 & WIRE2_HAS_RESEND && !front->options.no_resend;
}

static unsigned count_waiting(struct front *front)
{
    LOCK_SCOPE(&front->locked.lock);
    unsigned count = 0; /* not the one that is being repeated */
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

/* Requests that wait for room, or for a horizon, may stay unanswered where the kernel sends them
 * again. */
static bool is_answered(struct front *front, bool resends)
{
    unsigned waiting = resends ? count_waiting(front) : 0;
    return atomic_load(&front->working) == 0 && stage_requests_open(front->stage) <= waiting;
}

static bool hold_step(int64_t deadline)
{
    (void)nanosleep(&(struct timespec){.tv_nsec = STEP_NS}, NULL);
    return clock_monotonic_ns() < deadline;
}

static bool take_turn(struct front *front, int64_t deadline)
{
    while (!turn_try(&front->turns)) {
        for (unsigned i = 0; i < front->thread_count; i++)
            (void)pthread_kill(front->threads[i], SIGUSR1);
        if (!hold_step(deadline))
            return false;
    }
    return true;
}

void front_release(struct front *front)
{
    atomic_store(&front->holding, false);
    turn_leave(&front->turns);
}

int front_hold(struct front *front)
{
    int64_t deadline = clock_monotonic_ns() + HOLD_NS;
    bool resends = kernel_resends(front), answered;
    atomic_store(&front->holding, true);
    if (!take_turn(front, deadline)) {
        atomic_store(&front->holding, false);
        return -EBUSY;
    }
    while (!(answered = is_answered(front, resends)) && hold_step(deadline))
        ;
    if (answered || resends)
        return 0;
    front_release(front);
    return -EBUSY;
}
