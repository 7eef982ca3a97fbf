// SPDX-License-Identifier: Apache-2.0
/* The state of the horizon, and of the threads that advance it. */
#pragma once

#include <pthread.h>
#include <sys/types.h>

#include "base/cause.h"
#include "base/event.h"
#include "base/lock.h"
#include "base/rate_limit.h"
#include "base/waiters.h"
#include "commit/horizon.h"
#include "commit/options.h"

#define AGES_MAX 512u
#define PACK_WRITERS 2u

/* The total time during which a tier lacked data. Each interval is counted once: from the oldest
 * operation in the cut just stored, or from the cut stored before it. */
struct horizon_busy {
    int64_t last; /* monotonic ns: when it last stored a cut */
    uint64_t total_ns;
};

struct horizon {
    struct priority *priority;
    int64_t delay_ns;        /* writeback_delay */
    struct rate_limit limit; /* of writeback; lifted under the lock */
    /* Signalled when the horizon moved, the view caught up, a round of upkeep or the upload of a
     * cut ended, a pack was released, a promotion ended, or a waiter for any of these gives up. */
    struct event progress;
    /* newest cut that the remote has, itself or by its state; 0: none */
    _Atomic uint64_t published;
    struct cairn_mutex lock;
    pthread_cond_t changed; /* the writeback thread waits on it */
    struct waiters waiters;
    uint64_t next_ticket;
    uint64_t reached;
    int64_t urge_until;
    unsigned waiting_writers;
    bool stopping;
    bool kicked; /* a round was requested */
    /* there are new operations or waiting callers: a round is needed if it is urgent */
    bool noted;
    /* monotonic ns: the writeback thread rests until then at most; 0: it does not rest */
    int64_t rest_until;
    uint64_t errors;
    char last_error[CAUSE_MAX];
    int64_t last_error_ns;
    uint64_t target_bytes; /* of the current target, still to be written */
    struct {
        uint64_t cut;
        int64_t happened; /* monotonic ns: the oldest operation of the cut */
    } ages[AGES_MAX];     /* ascending; of cuts that the remote may lack */
    unsigned age_count;
    struct horizon_busy nvme, remote;
};

/* The priority of writeback's own threads; its lock precedes that of the horizon. */
struct priority {
    struct cairn_mutex lock;
    pid_t threads[STORE_WRITEBACK_THREADS_MAX + PACK_WRITERS];
    unsigned thread_count;
    int normal; /* nice value; constant */
    bool low;
};

/* --- horizon.c -------------------------------------------------------------------------------- */

/* `limit`: bytes/s of writeback, 0: none. */
struct horizon *horizon_new(int64_t delay_ns, uint64_t limit, struct priority *priority);
void horizon_free(struct horizon *horizon);
/* Recovery: everything up to `cut` is durable. */
void horizon_begin(struct horizon *horizon, uint64_t cut);
void horizon_advance(struct horizon *horizon, uint64_t seq);
/* Ends all waits with the error, whose cause is noted: nothing can be written now. */
void horizon_refuse(struct horizon *horizon, int error);
/* Call for each new operation. Wakes up writeback only if a caller waits, or if its rest would last
 * too long for the operation: small operations arrive by the ten thousand. */
void horizon_note(struct horizon *horizon);
bool horizon_is_stopping(struct horizon *horizon); /* horizon_stop() was called */
/* Do writers wait for room? */
bool horizon_has_writers(struct horizon *horizon);
/* When the oldest operation of the first cut after `seq` happened; 0: no such cut. */
int64_t horizon_age_after(struct horizon *horizon, uint64_t seq);
struct commit_status;
void horizon_status(struct horizon *horizon, struct commit_status *ret);

/* For the writeback thread. */
struct pressure {
    bool urgent, stopping;
    unsigned waiting; /* writers waiting for room */
};
/* The waiting work at the beginning of a round: the round answers everything noted before. */
struct pressure horizon_pressure(struct horizon *horizon);
/* Waits until a round is requested, or `until` (monotonic ns). */
void horizon_rest(struct horizon *horizon, int64_t until);
/* Waits for `ms`. False: the store is stopping, and the wait ended early. */
CAIRN_MUST_CHECK bool horizon_pause(struct horizon *horizon, int64_t ms);
void horizon_stop(struct horizon *horizon); /* makes the threads end */
/* Sets the number of bytes in the current target; horizon_wrote() counts those written. */
void horizon_set_target(struct horizon *horizon, uint64_t bytes);
void horizon_wrote(struct horizon *horizon, uint64_t bytes);

/* --- priority.c ------------------------------------------------------------------------------- */

struct priority *priority_new(void);
void priority_free(struct priority *priority);
void priority_join(void *priority);             /* adds the calling thread */
void priority_raise(struct priority *priority); /* a caller waits; call without locks */
/* Sets low priority, unless work is waiting: `is_busy`, or as the horizon shows. */
void priority_settle(struct priority *priority, struct horizon *horizon, bool is_busy);
