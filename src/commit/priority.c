// SPDX-License-Identifier: Apache-2.0
/* Priority of the threads that work for writeback.
 *
 * They have a small share of the CPU, rather than only idle time: if every core is busy (data
 * loaders do that) there is no idle time, and a checkpoint would stay in DRAM for as long. A caller
 * that begins to wait for them raises them at once, even in the middle of a round. If the daemon
 * may not raise priorities that it has lowered (no CAP_SYS_NICE), they stay as they are. */
#include <sys/resource.h>
#include <unistd.h>

#include "commit/horizon_internal.h"

#define LOW_STEPS 10 /* of nice: about a tenth of the share of a thread with normal priority */

static void set_nice(pid_t thread, int nice)
{
    (void)setpriority(PRIO_PROCESS, (id_t)thread, nice);
}

/* Tries one step up and back down: in the other order, the step down would remain if the step up is
 * refused. */
static bool may_raise(int nice)
{
    return setpriority(PRIO_PROCESS, 0, nice - 1) == 0 && setpriority(PRIO_PROCESS, 0, nice) == 0;
}

static void set_priority_locked(struct priority *priority, bool low)
{
    check_held(&priority->lock);
    if (low == priority->low)
        return;
    priority->low = low;
    for (unsigned i = 0; i < priority->thread_count; i++)
        set_nice(priority->threads[i], priority->normal + (low ? LOW_STEPS : 0));
}

struct priority *priority_new(void)
{
    struct priority *priority = xcalloc(1, sizeof *priority);
    mutex_init(&priority->lock, LOCK_PRIORITY);
    priority->normal = getpriority(PRIO_PROCESS, 0);
    priority->low = true;
    return priority;
}

void priority_free(struct priority *priority)
{
    mutex_done(&priority->lock);
    free(priority);
}

void priority_join(void *arg)
{
    struct priority *priority = arg;
    LOCK_SCOPE(&priority->lock);
    check(priority->thread_count < ARRAY_LEN(priority->threads));
    if (!may_raise(priority->normal))
        return;
    priority->threads[priority->thread_count++] = gettid();
    if (priority->low)
        set_nice(gettid(), priority->normal + LOW_STEPS);
}

void priority_raise(struct priority *priority)
{
    LOCK_SCOPE(&priority->lock);
    set_priority_locked(priority, false);
}

/* Holds the lock while it checks for waiters: a caller that begins to wait later raises the
 * priority again. */
void priority_settle(struct priority *priority, struct horizon *horizon, bool is_busy)
{
    LOCK_SCOPE(&priority->lock);
    set_priority_locked(priority, !is_busy && !horizon_is_urgent(horizon));
}

void priority_set_own(struct priority *priority, bool low)
{
    int normal = priority->normal, nice = normal + (low ? LOW_STEPS : 0);
    if (getpriority(PRIO_PROCESS, 0) != nice && (!low || may_raise(normal)))
        set_nice(gettid(), nice);
}
