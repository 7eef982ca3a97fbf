// SPDX-License-Identifier: Apache-2.0
/* Mutexes with a rank. A thread takes locks in ascending rank only; the lock order of the whole
 * program is the enum below, in one place. Checked in every build: the check costs a thread-local
 * increment. */
#pragma once

#include <pthread.h>

#include "base/base.h"

enum lock_rank {
    LOCK_CONTROL = 1, /* daemon/: control socket state */
    LOCK_FS,          /* fs/: handles */
    LOCK_HISTORY,   /* commit/: order of operations, pending list; held while the overlay changes */
    LOCK_NAMESPACE, /* overlay/: overlay of inodes and dentries */
    LOCK_STAGE,     /* stage/: slabs, layers, log */
    LOCK_VIEW, /* view/: changes of the view, one after the other; held over RocksDB's writes, by no
                  reader */
    LOCK_PACKS,    /* commit/: pack table, chunks not yet in the view */
    LOCK_PRIORITY, /* commit/: whether writeback has low priority */
    LOCK_WAITERS,  /* commit/: horizon waiters */
    LOCK_LANES,    /* client/: the lanes of the process, for fork */
    LOCK_LANE,     /* client/: a lane and its saves */
    LOCK_LOAD,     /* client/: a load */
    LOCK_QUEUE,    /* base/: queues and pools */
    LOCK_LEAF,     /* anything that takes no other lock, but may signal an event */
    LOCK_EVENT,    /* base/: events, whose waiters look at state under any lock */
};

struct cairn_mutex {
    pthread_mutex_t mutex;
    enum lock_rank rank;
};

void mutex_init(struct cairn_mutex *m, enum lock_rank rank);
void mutex_done(struct cairn_mutex *m);
void mutex_lock(struct cairn_mutex *m);
void mutex_unlock(struct cairn_mutex *m);

/* Does this thread hold the mutex? */
CAIRN_MUST_CHECK bool mutex_is_held(const struct cairn_mutex *m);
/* Does this thread hold any lock of that rank? */
CAIRN_MUST_CHECK bool lock_rank_is_held(enum lock_rank rank);

/* The first line of each function whose name ends in _locked. The second form is for functions that
 * cannot reach the mutex itself. */
#define check_held(m) check(mutex_is_held(m))
#define check_rank_held(rank) check(lock_rank_is_held(rank))

/* Waits on `cond` with `m` held; wakes at a signal, spuriously (once a second at least), or at
 * `timeout_ms` from now (-1: no limit). Returns false at the time limit. The caller loops on its
 * predicate. */
bool mutex_wait(struct cairn_mutex *m, pthread_cond_t *cond, int64_t timeout_ms);

/* As mutex_wait(), with an absolute limit in monotonic nanoseconds. */
bool mutex_wait_until(struct cairn_mutex *m, pthread_cond_t *cond, int64_t until_ns);

/* Conditions use the monotonic clock. */
void cond_init(pthread_cond_t *cond);

static inline struct cairn_mutex *mutex_lock_scope(struct cairn_mutex *m)
{
    mutex_lock(m);
    return m;
}

static inline void mutex_unlock_scope(struct cairn_mutex **m)
{
    if (*m)
        mutex_unlock(*m);
}

/* Holds the lock until the enclosing block ends. */
#define LOCK_SCOPE_NAME2(line) lock_scope_##line
#define LOCK_SCOPE_NAME(line) LOCK_SCOPE_NAME2(line)
#define LOCK_SCOPE(m)                                                                              \
    __attribute__((cleanup(mutex_unlock_scope), unused)) struct cairn_mutex *LOCK_SCOPE_NAME(      \
        __LINE__) = mutex_lock_scope(m)
