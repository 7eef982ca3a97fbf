// SPDX-License-Identifier: Apache-2.0
/* The first owner of a save's file: a thread "cairn-open" opens it. A filesystem may hold up an
 * open for as long as it likes, in a way that nothing ends (a daemon that stands still, a server
 * that is gone), and the call may keep its caller only for as long as the save may hold up the
 * training. A thread removes the draft that no call waits for any more. */
#pragma once

#include <sys/queue.h>

#include "client/refer.h"
#include "client/threads.h"

#define OPENERS_MAX 8

/* An open file, and the one that it may refer to. Passed on whole: to the save that is made of
 * it. */
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

/* Guarded by the lane's lock. An opening in the queue has its call, which waits: so there are no
 * more of them than calls. */
struct opener {
    struct cairn_mutex *lock;
    struct refer *refer;
    pthread_cond_t work; /* threads: the queue has one */
    pthread_cond_t done; /* calls */
    struct openings queue;
    unsigned queued, idle; /* openings; threads */
    bool is_stopping;
    struct lane_thread threads[OPENERS_MAX];
    unsigned thread_count; /* stays once it is stopping */
};

void opener_init(struct opener *opener, struct cairn_mutex *lock, struct refer *refer);
/* When no call comes any more: ends the threads. */
void opener_stop(struct opener *opener);

/* -ETIMEDOUT: the filesystem has not answered within the request's max_block_ms. */
CAIRN_MUST_CHECK int opener_open(struct opener *opener, const struct open_request *request,
                                 struct opened *ret);
