// SPDX-License-Identifier: Apache-2.0
#include "client/threads.h"

#include "base/cause.h"
#include "base/clock.h"
#include "base/pool.h"

int lane_thread_start(struct lane_thread *thread, const char *name, void *(*start)(void *),
                      void *arg)
{
    int r = thread->is_there ? 0 : thread_start(&thread->id, name, start, arg);
    thread->is_there = r == 0;
    if (r < 0)
        cause_note("no thread can be started: %s", strerror(-r));
    return r;
}

void lane_thread_join(struct lane_thread *thread)
{
    if (thread->is_there)
        (void)pthread_join(thread->id, NULL);
    thread->is_there = false;
}

int64_t deadline_of(int64_t timeout_ms)
{
    return timeout_ms < 0 ? -1 : clock_monotonic_ns() + timeout_ms * MS_NS;
}

bool wait_until_locked(struct cairn_mutex *lock, pthread_cond_t *cond, int64_t deadline)
{
    check_held(lock);
    int64_t left = deadline < 0 ? -1 : deadline - clock_monotonic_ns();
    if (deadline >= 0 && left <= 0)
        return false;
    (void)mutex_wait(lock, cond, deadline < 0 ? -1 : left / MS_NS + 1);
    return true;
}
