// SPDX-License-Identifier: Apache-2.0
/* Events: threads wait until some state satisfies them. The state lies elsewhere: under locks of
 * any rank or in atomics, in one component or in several. A thread that changes the state signals
 * after the change; a waiting thread then looks at the state again:
 *
 *     uint64_t seen = event_count(&event);
 *     while (!is_there(x) && event_wait(&event, &seen, until))
 *         ;
 *
 * The waiter reads the count before it looks at the state, so it misses no change in between. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "base/lock.h"

struct event {
    struct cairn_mutex lock; /* LOCK_EVENT */
    pthread_cond_t signalled;
    _Atomic uint64_t count;   /* signals so far */
    _Atomic unsigned waiting; /* threads in event_wait() */
};

void event_init(struct event *event);
void event_done(struct event *event);

/* Any thread may call it, with any locks held. Costs two atomic operations while no thread
 * waits. */
void event_signal(struct event *event);
uint64_t event_count(struct event *event);

/* Blocks until there were more signals than *seen, and sets *seen to their number; the caller looks
 * at the state again. Returns false at `until_ns` (monotonic; INT64_MAX: no limit). Call without
 * locks. */
bool event_wait(struct event *event, uint64_t *seen, int64_t until_ns);
