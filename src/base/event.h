// SPDX-License-Identifier: Apache-2.0
/* Events: threads wait until some state is as they want it. The state lies elsewhere, under locks
 * of any rank or in atomics, in one component or in several. A thread that changes it signals,
 * after the change; a thread that waits looks at it again:
 *
 *     uint64_t seen = event_count(&event);
 *     while (!is_there(x) && event_wait(&event, &seen, until))
 *         ;
 *
 * The count is read before the state is looked at, so no change in between is missed. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "base/lock.h"

struct event {
    struct cairn_mutex lock; /* LOCK_EVENT */
    pthread_cond_t signalled;
    _Atomic uint64_t count;   /* of signals, ever */
    _Atomic unsigned waiting; /* threads in event_wait() */
};

void event_init(struct event *event);
void event_done(struct event *event);

/* Any thread, with any locks. Costs two atomic operations while no thread waits. */
void event_signal(struct event *event);
uint64_t event_count(struct event *event);

/* Blocks until there were more signals than *seen, which becomes their number; the caller looks
 * again. False: it is `until_ns` (monotonic; INT64_MAX: no limit). With no locks. */
bool event_wait(struct event *event, uint64_t *seen, int64_t until_ns);
