// SPDX-License-Identifier: Apache-2.0
/* Waiters for a number: each is called once, when it is reached. The owner keeps the number,
 * and its lock guards both; calls happen without it:
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

/* `ticket` is the caller's name for it: of all that ever waited, none has the same. */
void waiters_add(struct waiters *waiters, uint64_t seq, uint64_t ticket, waiter_fn *fn, void *arg);

/* False: none is there with that ticket. It may be about to be called. */
bool waiters_remove(struct waiters *waiters, uint64_t ticket);

/* Does one wait for more than `seq`? */
bool waiters_are_beyond(const struct waiters *waiters, uint64_t seq);

/* Moves those that wait for `seq` or less to `ret_reached`, in the order in which they came. */
void waiters_take(struct waiters *waiters, uint64_t seq, struct waiters *ret_reached);

/* Calls each, and forgets it. */
void waiters_call(struct waiters *reached, int result);
