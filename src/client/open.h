// SPDX-License-Identifier: Apache-2.0
/* The first owner of a save's file: a thread "cairn-open" opens it. A filesystem may block an open
 * for as long as it likes, and nothing can end that (a stopped daemon, an unreachable server), but
 * a call may block its caller only as long as the save may hold up the training. If the call has
 * given up, the thread removes the draft. */
#pragma once

#include <sys/queue.h>

#include "client/refer.h"
#include "client/threads.h"

#define OPENERS_MAX 8

/* An open file, and the older version to which it may refer. Passed on as a whole to the save that
 * is made of it. */
struct opened {
    struct draft draft;
    struct refer_older older;
};

struct open_request {
    const char *path;
    uint64_t bytes;
    mode_t mode;
    uint32_t flags;
    int32_t max_block_ms;
};

TAILQ_HEAD(openings, opening);

/* Guarded by the lane's lock. Each opening in the queue has a waiting call, so there are never more
 * of them than calls. */
struct opener {
    struct cairn_mutex *lock;
    struct refer *refer;
    pthread_cond_t work; /* wakes threads: the queue is not empty */
    pthread_cond_t done; /* wakes calls */
    struct openings queue;
    unsigned queued, idle; /* queued: openings; idle: threads */
    bool is_stopping;
    struct lane_thread threads[OPENERS_MAX];
    unsigned thread_count; /* constant once it is stopping */
};

void opener_init(struct opener *opener, struct cairn_mutex *lock, struct refer *refer);
/* Ends the threads. No more calls may come. */
void opener_stop(struct opener *opener);

/* -ETIMEDOUT: the filesystem has not answered within the request's max_block_ms. */
CAIRN_MUST_CHECK int opener_open(struct opener *opener, const struct open_request *request,
                                 struct opened *ret);
