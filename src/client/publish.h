// SPDX-License-Identifier: Apache-2.0
/* The last owner of a save's file: "cairn-publish" writes the bytes that are in memory, and gives
 * the file its name, or removes the file of a failed save. */
#pragma once

#include <sys/queue.h>

#include "client/open.h"
#include "client/threads.h"
#include "client/zip.h"

struct cairn_lane;
struct cairn_save;

enum publish_step {
    STEP_BEGUN,     /* sources may still be unread */
    STEP_COMMITTED, /* it may get its name */
    STEP_WRITING,   /* a thread writes the last bytes */
    STEP_NAMING,    /* that thread is renaming it: only its own error can make the save fail now */
};

/* The part of a save. Guarded by the lane's lock up to `after`. The rest is set before the save is
 * in the lane's list; then it belongs to the thread that publishes, or discards, the save. Threads
 * that copy only write to the draft, and query its location. */
struct publishing {
    TAILQ_ENTRY(cairn_save) link; /* in the publisher's queue */
    bool was_queued;              /* it was in the queue: it is queued only once */
    bool is_fixed;                /* no more puts are accepted */
    enum publish_step step;
    /* the earlier save to the same name, reference counted; NULL once that has ended */
    struct cairn_save *before;
    struct cairn_save **after; /* reference counted; NULL once that save is published */
    size_t after_count;

    struct draft draft;
    struct zip zip; /* count 0: not a zip */
    struct refer_older older;
    struct stat file; /* state of the named file */
};

TAILQ_HEAD(publish_queue, cairn_save);

/* The part of a lane, guarded by its lock. A save is in the queue at most once: when it has all its
 * bytes, is committed and its predecessors have ended; or when it has failed, and no thread copies
 * it. */
struct publisher {
    pthread_cond_t work; /* wakes the thread: the queue is not empty */
    struct publish_queue queue;
    struct lane_thread thread;
};

CAIRN_MUST_CHECK int publisher_start_locked(struct cairn_lane *lane);

/* Waits until a committed stream may be written, and writes it. */
CAIRN_MUST_CHECK int publish_stream(struct cairn_save *save);
