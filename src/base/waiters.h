// SPDX-License-Identifier: Apache-2.0
/* Waiters for a number to be reached: each waiter is called once. The owner has the number, and its
 * lock guards number and waiters; callbacks run without the lock:
 *
 *     mutex_lock(&lock);
 *     horizon = seq;
 *     waiters_take(&waiters, horizon, &reached);
 *     mutex_unlock(&lock);
 *     waiters_call(&reached, 0); */
#pragma once

#include <sys/queue.h>

#include "base/base.h"

/* `result` is 0, or the reason why the number will not be reached. */
typedef void waiter_fn(int result, void *arg);

TAILQ_HEAD(waiters, waiter);
#define WAITERS_EMPTY(waiters) TAILQ_HEAD_INITIALIZER(waiters)

/* `ticket` is the caller's name for this waiter, unique among all waiters ever added. */
void waiters_add(struct waiters *waiters, uint64_t seq, uint64_t ticket, waiter_fn *fn, void *arg);

/* False: no waiter has that ticket. It may be about to be called. */
bool waiters_remove(struct waiters *waiters, uint64_t ticket);

/* Does any waiter wait for a number above `seq`? */
bool waiters_are_beyond(const struct waiters *waiters, uint64_t seq);

/* Moves the waiters for `seq` or less to `ret_reached`, in the order in which they were added. */
void waiters_take(struct waiters *waiters, uint64_t seq, struct waiters *ret_reached);

/* Calls each waiter and removes it. */
void waiters_call(struct waiters *reached, int result);
