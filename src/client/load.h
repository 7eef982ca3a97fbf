// SPDX-License-Identifier: Apache-2.0
/* A load: ranges of one file that threads read into the caller's memory.
 *
 * A call that names targets makes a batch of them: the requests (reads of at most 1 MiB) in the
 * order of the file, each with the pieces of targets that it fills. Threads take one request after
 * the other. The first error of a load ends it: no more requests begin, and waits report the error
 * once none is in progress.
 *
 * Locks: one mutex per load, never held over I/O. In a child of fork no call takes it, as a thread
 * of the parent may have held it. */
#pragma once

#include <stdatomic.h>
#include <sys/queue.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include <cairn/cairn.h>

#include "base/cause.h"
#include "client/threads.h"

#define LOAD_STEP MIB      /* a whole chunk of CairnFS */
#define LOAD_PIECES_MAX 64 /* per request */
#define LOAD_THREADS_MAX 64

struct load_target {
    uint64_t offset, length;
    uint8_t *host;
    uint32_t flags;
    uint64_t left; /* bytes still missing; guarded by the load's lock */
};

/* Part of a target; those of a request are adjacent in the file. */
struct load_piece {
    struct load_target *target;
    uint64_t at; /* in the target */
    size_t length;
};

struct load_request {
    uint64_t offset; /* in the file */
    struct load_piece *pieces;
    unsigned count;
};

/* The targets of one cairn_load_get(). Constant, except `next`, and `left` of targets. */
struct load_batch {
    STAILQ_ENTRY(load_batch) link;
    size_t first; /* number of its first target */
    struct load_target *targets;
    size_t target_count;
    struct load_piece *pieces;
    struct load_request *requests; /* in file order */
    size_t request_count;
    size_t next; /* first request not taken by a thread; guarded by the load's lock */
};

/* The targets keep their given order. -EINVAL: a range outside the first `size` bytes, or a target
 * without memory. */
CAIRN_MUST_CHECK int load_batch_new(const struct cairn_target *targets, size_t count, uint64_t size,
                                    struct load_batch **ret);
void load_batch_free(struct load_batch *batch);

/* How a read reaches memory that does not begin at a page: directly, or through a buffer. */
enum load_way { LOAD_STRAIGHT, LOAD_BUFFER, LOAD_WAYS };

/* The time that each way took; the faster one is used. */
struct load_trials {
    unsigned count[LOAD_WAYS];
    int64_t least_ns[LOAD_WAYS]; /* for a read of LOAD_STEP */
};

/* The pending reads; guarded by the load's lock. */
struct load_queue {
    STAILQ_HEAD(, load_batch) batches; /* all batches, in the order of their calls */
    struct load_batch *current;        /* the first one with untaken requests; NULL: none */
    size_t target_count;               /* of all batches */
};

struct cairn_load {
    struct cairn_lane *lane;
    char *path;
    int fd;
    int direct_fd;          /* bypasses the page cache; -1: not available */
    struct stat opened;     /* the file's state when it was opened */
    bool is_on_cairn;       /* the mount */
    _Atomic bool is_direct; /* reads use direct_fd */
    unsigned thread_max;
    /* negative errno; 0: none. Set once, with the lock held; reads without the lock only end the
     * load sooner */
    _Atomic int error;

    struct cairn_mutex lock;
    pthread_cond_t work;    /* threads wait for requests */
    pthread_cond_t changed; /* callers wait for targets */

    /* Guarded by lock. */
    char cause[CAUSE_MAX]; /* of the error */
    bool is_stopping;
    unsigned active;   /* requests in progress */
    unsigned requests; /* requests taken so far */
    struct load_trials trials;
    struct load_queue queue;
    struct lane_thread threads[LOAD_THREADS_MAX];
    unsigned thread_count;
};

/* --- load.c ----------------------------------------------------------------------------------- */

/* Other loads read the same file: from now on this one uses the page cache, which the mount fills
 * once for all. With direct reads each load would cost the mount a copy of its own. */
void load_share(struct cairn_load *load);

/* --- load_read.c: the threads ----------------------------------------------------------------- */

/* At least one thread runs afterwards, and `wanted` threads if the machine allows. */
CAIRN_MUST_CHECK int load_start_locked(struct cairn_load *load, size_t wanted);

/* Ends the load with `error`, unless it has ended. */
void load_fail_locked(struct cairn_load *load, int error, const char *cause);

/* Ends the reads in progress of a failed load, as far as the filesystem allows. */
void load_cancel_locked(struct cairn_load *load);

/* Ends the threads. Afterwards all requested bytes are in place, or the load has failed. */
void load_stop(struct cairn_load *load);
