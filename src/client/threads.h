// SPDX-License-Identifier: Apache-2.0
/* Threads of a lane, and waits with a time limit. */
#pragma once

#include "base/lock.h"

/* As thread_start(), with a cause. */
CAIRN_MUST_CHECK int lane_thread_start(pthread_t *ret, const char *name, void *(*start)(void *),
                                       void *arg);

/* When a wait of so many ms ends, in ns of the monotonic clock; -1: never. */
int64_t deadline_of(int64_t timeout_ms);

/* Waits for a signal of the condition. False: the deadline has passed. The caller looks again in
 * both cases. */
bool wait_until_locked(struct cairn_mutex *lock, pthread_cond_t *cond, int64_t deadline);
