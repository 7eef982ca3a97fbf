// SPDX-License-Identifier: Apache-2.0
/* The state of the horizon, and of the threads that work for it. */
#pragma once

#include <pthread.h>
#include <sys/types.h>

#include "base/cause.h"
#include "base/lock.h"
#include "base/waiters.h"
#include "commit/horizon.h"
#include "commit/options.h"

#define AGES_MAX 512u
#define PACK_WRITERS 2u

struct horizon {
    struct cairn_mutex lock;
    pthread_cond_t changed; /* the writeback thread waits on it */
    struct waiters waiters;
    uint64_t next_ticket;
    uint64_t horizon;
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

void horizon_init(struct store *store);
void horizon_done(struct store *store);
void horizon_advance(struct store *store, uint64_t seq);
/* Ends all waits with the error, whose cause is noted: nothing can be written now. */
void horizon_refuse(struct store *store, int error);
/* There is an operation more. Writeback wakes up for it only if a caller waits, or if it would come
 * too late for it: small operations come by the ten thousand. */
void horizon_note(struct store *store);
/* Does a caller wait for the horizon (awaited), or for room (urgent)? */
bool horizon_is_awaited_locked(struct store *store);
bool horizon_is_urgent_locked(struct store *store);
/* Does the writeback thread have to look now? */
bool horizon_must_wake_locked(struct store *store);
bool horizon_is_stopping(struct store *store); /* writeback_stop() was called */
/* The writeback thread: waits for `ms`. False: the store stops, and it did not wait longer. */
CAIRN_MUST_CHECK bool horizon_pause(struct store *store, int64_t ms);

/* --- priority.c ------------------------------------------------------------------------------- */

void priority_init(struct store *store);
void priority_done(struct store *store);
void priority_join(void *store);           /* the calling thread is one of them from now on */
void priority_raise(struct store *store);  /* a caller waits; with no lock held */
void priority_settle(struct store *store); /* low, unless a caller waits */
