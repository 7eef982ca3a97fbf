// SPDX-License-Identifier: Apache-2.0
/* Priority of the threads that work for writeback.
 *
 * They have a small share of the CPU, not only what others leave: where every core is busy nothing
 * is left (data loaders do that), and a checkpoint would stay in DRAM for as long. A caller that
 * begins to wait for them raises them at once, also in the middle of a round. Where the daemon may
 * not raise what it has lowered (no CAP_SYS_NICE), they stay as they are. */
#include <sys/resource.h>
#include <unistd.h>

#include "commit/internal.h"

#define LOW_STEPS 10 /* of nice: about a tenth of what a thread of normal priority gets */

static void set_nice(pid_t thread, int nice)
{
    (void)setpriority(PRIO_PROCESS, (id_t)thread, nice);
}

/* One step up and down again: tried the other way round, the step down would remain where the
 * answer is no. */
static bool may_raise(int nice)
{
    return setpriority(PRIO_PROCESS, 0, nice - 1) == 0 && setpriority(PRIO_PROCESS, 0, nice) == 0;
}

static void set_priority_locked(struct store *store, bool low)
{
    check_held(&store->commit->priority.lock);
    if (low == store->commit->priority.low)
        return;
    store->commit->priority.low = low;
    for (unsigned i = 0; i < store->commit->priority.thread_count; i++)
        set_nice(store->commit->priority.threads[i],
                 store->commit->priority.normal + (low ? LOW_STEPS : 0));
}

void priority_init(struct store *store)
{
    mutex_init(&store->commit->priority.lock, LOCK_PRIORITY);
    store->commit->priority.normal = getpriority(PRIO_PROCESS, 0);
    store->commit->priority.low = true;
}

void priority_done(struct store *store)
{
    mutex_done(&store->commit->priority.lock);
}

void priority_join(void *arg)
{
    struct store *store = arg;
    LOCK_SCOPE(&store->commit->priority.lock);
    check(store->commit->priority.thread_count < ARRAY_LEN(store->commit->priority.threads));
    if (!may_raise(store->commit->priority.normal))
        return;
    store->commit->priority.threads[store->commit->priority.thread_count++] = gettid();
    if (store->commit->priority.low)
        set_nice(gettid(), store->commit->priority.normal + LOW_STEPS);
}

void priority_raise(struct store *store)
{
    LOCK_SCOPE(&store->commit->priority.lock);
    set_priority_locked(store, false);
}

/* The lock is held while waiters are looked for: a caller that begins to wait after that raises
 * what was lowered here. */
void priority_settle(struct store *store)
{
    bool is_busy = room_promoted(store) > 0;
    LOCK_SCOPE(&store->commit->priority.lock);
    set_priority_locked(store, !is_busy && !horizon_is_urgent(store));
}

void priority_set_own(struct store *store, bool low)
{
    int normal = store->commit->priority.normal, nice = normal + (low ? LOW_STEPS : 0);
    if (getpriority(PRIO_PROCESS, 0) != nice && (!low || may_raise(normal)))
        set_nice(gettid(), nice);
}
