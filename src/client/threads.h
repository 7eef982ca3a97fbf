// SPDX-License-Identifier: Apache-2.0
/* Threads of a lane, and waits with a time limit. */
#pragma once

#include "base/lock.h"

struct lane_thread {
    pthread_t id;
    bool is_there;
};

/* As thread_start(), with a cause; nothing if the thread is there. */
CAIRN_MUST_CHECK int lane_thread_start(struct lane_thread *thread, const char *name,
                                       void *(*start)(void *), void *arg);
void lane_thread_join(struct lane_thread *thread);

/* When a wait of so many ms ends, in ns of the monotonic clock; -1: never. */
int64_t deadline_of(int64_t timeout_ms);

/* Waits for a signal of the condition. False: the deadline has passed. The caller looks again in
 * both cases. */
bool wait_until_locked(struct cairn_mutex *lock, pthread_cond_t *cond, int64_t deadline);
