// SPDX-License-Identifier: Apache-2.0
/* A load: ranges of one file that threads read into memory of the caller.
 *
 * A call that names targets makes a batch of them: the requests (reads of at most 1 MiB) in the
 * order of the file, each with the pieces of targets that it fills. Threads take one request after
 * the other. The first error of a load ends it: no request begins any more, and waits report it
 * when none is under way.
 *
 * Locks: one mutex a load, never held over I/O. In a child of fork no call takes it, for a thread
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
#define LOAD_PIECES_MAX 64 /* of a request */
#define LOAD_THREADS_MAX 64

struct load_target {
    uint64_t offset, length;
    uint8_t *host;
    uint32_t flags;
    uint64_t left; /* bytes that are not there yet; guarded by the load's lock */
};

/* Part of a target; those of a request follow each other in the file. */
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

/* What one cairn_load_get() named. Only `next`, and `left` of targets, change. */
struct load_batch {
    STAILQ_ENTRY(load_batch) link;
    size_t first; /* number of its first target */
    struct load_target *targets;
    size_t target_count;
    struct load_piece *pieces;
    struct load_request *requests; /* in the order of the file */
    size_t request_count;
    size_t next; /* request that no thread has taken; guarded by the load's lock */
};

/* The targets stay in the order that they are given in. -EINVAL: a range outside the first `size`
 * bytes, or no memory for one. */
CAIRN_MUST_CHECK int load_batch_new(const struct cairn_target *targets, size_t count, uint64_t size,
                                    struct load_batch **ret);
void load_batch_free(struct load_batch *batch);

/* How a read goes to memory that begins within a page: straight, or by way of a buffer. */
enum load_way { LOAD_STRAIGHT, LOAD_BUFFER, LOAD_WAYS };

/* What each way took; the other one is used where it was faster. */
struct load_trials {
    unsigned count[LOAD_WAYS];
    int64_t least_ns[LOAD_WAYS]; /* of a read of LOAD_STEP */
};

/* What is to be read; guarded by the load's lock. */
struct load_queue {
    STAILQ_HEAD(, load_batch) batches; /* all of them, in the order of their calls */
    struct load_batch *current;        /* first one with requests that no thread has; NULL: none */
    size_t target_count;               /* of all */
};

struct cairn_load {
    struct cairn_lane *lane;
    char *path;
    int fd;
    int direct_fd;          /* passes by the page cache; -1: there is none */
    struct stat opened;     /* the file, when it was opened */
    bool is_on_cairn;       /* the mount */
    _Atomic bool is_direct; /* it is read by direct_fd */
    unsigned thread_max;
    /* negative errno; 0: none. Changes once, with the lock held; reads without it only make the
     * load end sooner. */
    _Atomic int error;

    struct cairn_mutex lock;
    pthread_cond_t work;    /* threads wait for requests */
    pthread_cond_t changed; /* callers wait for targets */

    /* Guarded by lock. */
    char cause[CAUSE_MAX]; /* of the error */
    bool is_stopping;
    unsigned active;   /* requests under way */
    unsigned requests; /* that were taken */
    struct load_trials trials;
    struct load_queue queue;
    struct lane_thread threads[LOAD_THREADS_MAX];
    unsigned thread_count;
};

/* --- load.c ------------------------------------------------------------------------------------
 */

/* Other loads read the file as well: from now on by the page cache, which the mount fills once for
 * all. What each reads by itself would cost the mount a copy for each. */
void load_share(struct cairn_load *load);

/* --- load_read.c: the threads ------------------------------------------------------------------
 */

/* At least one thread runs afterwards, `wanted` if the machine has them. */
CAIRN_MUST_CHECK int load_start_locked(struct cairn_load *load, size_t wanted);

/* The load ends with `error`, unless it has ended. */
void load_fail_locked(struct cairn_load *load, int error, const char *cause);

/* Ends the reads under way of a load that has failed, as far as the filesystem lets them end. */
void load_cancel_locked(struct cairn_load *load);

/* Ends the threads. What they read is there, or the load has failed. */
void load_stop(struct cairn_load *load);
