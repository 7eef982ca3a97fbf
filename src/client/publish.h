// SPDX-License-Identifier: Apache-2.0
/* The last owner of a save's file: "cairn-publish" writes the bytes that are in memory, gives the
 * name, or takes the file of a failed save away. */
#pragma once

#include <sys/queue.h>

#include "client/open.h"
#include "client/threads.h"
#include "client/zip.h"

struct cairn_lane;
struct cairn_save;

enum publish_step {
    STEP_BEGUN,     /* its sources may still be unread */
    STEP_COMMITTED, /* it may get its name */
    STEP_WRITING,   /* a thread writes its last bytes */
    STEP_NAMING,    /* that thread is at the name: no failure comes any more but its own */
};

/* A save's part. Guarded by the lane's lock up to `after`. The rest is set before the save is in
 * the lane's list; then it belongs to the thread that publishes, or discards, the save. Threads
 * that copy only write to the draft, and only ask where it lies. */
struct publishing {
    TAILQ_ENTRY(cairn_save) link; /* in the publisher's queue */
    bool was_queued;              /* once is enough */
    bool is_fixed;                /* no put comes any more */
    enum publish_step step;
    /* the earlier one of the same name, counted; NULL when that has ended */
    struct cairn_save *before;
    struct cairn_save **after; /* counted; NULL where one is published */
    size_t after_count;

    struct draft draft;
    struct zip zip; /* count 0: no zip */
    struct refer_older older;
    struct stat file; /* that got the name */
};

TAILQ_HEAD(publish_queue, cairn_save);

/* A lane's part, guarded by its lock. A save is in the queue once at most: when it has all its
 * bytes, is committed and those before it have ended; or has failed, and no thread copies it. */
struct publisher {
    pthread_cond_t work; /* the thread: the queue has one */
    struct publish_queue queue;
    struct lane_thread thread;
};

CAIRN_MUST_CHECK int publisher_start_locked(struct cairn_lane *lane);

/* Waits until a committed stream may be written, and writes it. */
CAIRN_MUST_CHECK int publish_stream(struct cairn_save *save);
