// SPDX-License-Identifier: Apache-2.0
/* Threads of a lane, and waits with a time limit. */
#pragma once

#include "base/lock.h"

struct lane_thread {
    pthread_t id;
    bool is_there;
};

/* As thread_start(), with a cause; does nothing if the thread exists. */
CAIRN_MUST_CHECK int lane_thread_start(struct lane_thread *thread, const char *name,
                                       void *(*start)(void *), void *arg);
void lane_thread_join(struct lane_thread *thread);

/* The deadline of a wait of so many ms, in ns of the monotonic clock; -1: none. */
int64_t deadline_of(int64_t timeout_ms);

/* Waits for a signal of the condition. False: the deadline has passed. In both cases the caller
 * checks its condition again. */
bool wait_until_locked(struct cairn_mutex *lock, pthread_cond_t *cond, int64_t deadline);
