// SPDX-License-Identifier: Apache-2.0
/* The state of the horizon, and of the threads that work for it. */
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

/* For how long a tier lacked something, in all: each time is counted once, from the oldest
 * operation that the tier took, or from what it took before. */
struct horizon_busy {
    int64_t last; /* monotonic ns: it took a cut */
    uint64_t total_ns;
};

struct horizon {
    struct priority *priority;
    int64_t delay_ns;        /* writeback_delay */
    struct rate_limit limit; /* of writeback; lifted with the lock */
    /* The horizon moved, the view followed, a round of upkeep or the upload of a cut ended, a pack
     * was released, nothing is being promoted any more, or a waiter for such a thing gives up. */
    struct event progress;
    _Atomic uint64_t published; /* newest cut that the remote has, or whose state it has; 0: none */
    struct cairn_mutex lock;
    pthread_cond_t changed; /* the writeback thread waits on it */
    struct waiters waiters;
    uint64_t next_ticket;
    uint64_t reached;
    int64_t urge_until;
    unsigned waiting_writers;
    bool stopping;
    bool kicked; /* a round is wanted */
    bool noted;  /* there are new operations, or a new caller waits: a round, where it is urgent */
    int64_t rest_until; /* monotonic ns: the writeback thread waits, at most until then; 0: not */
    uint64_t errors;
    char last_error[CAUSE_MAX];
    int64_t last_error_ns;
    uint64_t target_bytes; /* of the target that is being written, still to go */
    struct {
        uint64_t cut;
        int64_t happened; /* monotonic ns: the oldest operation that came with it */
    } ages[AGES_MAX];     /* ascending; of cuts that a remote may lack */
    unsigned age_count;
    struct horizon_busy nvme, remote;
};

/* The priority of writeback's own threads; its lock comes before that of the horizon. */
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
/* All up to `cut` is durable, where a recovery begins. */
void horizon_begin(struct horizon *horizon, uint64_t cut);
void horizon_advance(struct horizon *horizon, uint64_t seq);
/* Ends all waits with the error, whose cause is noted: nothing can be written now. */
void horizon_refuse(struct horizon *horizon, int error);
/* There is an operation more. Writeback wakes up for it only if a caller waits, or if it would come
 * too late for it: small operations come by the ten thousand. */
void horizon_note(struct horizon *horizon);
bool horizon_is_stopping(struct horizon *horizon); /* horizon_stop() was called */
/* Do writers wait for room? */
bool horizon_has_writers(struct horizon *horizon);
/* When the oldest operation of the first cut after `seq` happened; 0: there is none. */
int64_t horizon_age_after(struct horizon *horizon, uint64_t seq);
struct commit_status;
void horizon_status(struct horizon *horizon, struct commit_status *ret);

/* For the writeback thread. */
struct pressure {
    bool urgent, stopping;
    unsigned waiting; /* writers, for room */
};
/* What waits now, at the begin of a round: it answers to all that was noted before. */
struct pressure horizon_pressure(struct horizon *horizon);
/* Until something is wanted, or `until` (monotonic ns). */
void horizon_rest(struct horizon *horizon, int64_t until);
/* Waits for `ms`. False: the store stops, and it did not wait longer. */
CAIRN_MUST_CHECK bool horizon_pause(struct horizon *horizon, int64_t ms);
void horizon_stop(struct horizon *horizon); /* it is to end */
/* Bytes of the target that is being written; and these of them are. */
void horizon_set_target(struct horizon *horizon, uint64_t bytes);
void horizon_wrote(struct horizon *horizon, uint64_t bytes);

/* --- priority.c ------------------------------------------------------------------------------- */

struct priority *priority_new(void);
void priority_free(struct priority *priority);
void priority_join(void *priority);             /* the calling thread is one of them from now on */
void priority_raise(struct priority *priority); /* a caller waits; with no lock held */
/* Low, unless something waits: `is_busy`, or the horizon says so. */
void priority_settle(struct priority *priority, struct horizon *horizon, bool is_busy);
