// SPDX-License-Identifier: Apache-2.0
/* The level of a published file: CAIRN_NVME and CAIRN_REMOTE. An fsync of file and directory brings
 * the file to the disk; on CairnFS the mount starts that at once, and reports the level
 * (user.cairn.level).
 *
 * A filesystem may take arbitrarily long for an fsync or an answer, and a waiting caller may have a
 * timeout: so the thread "cairn-sync" makes these calls, for one save after the other, as long as a
 * caller waits. */
#pragma once

#include <sys/queue.h>

#include "base/cause.h"
#include "client/threads.h"

#include <cairn/cairn.h>

struct cairn_save;

/* The part of a save, guarded by the lane's lock. */
struct levels {
    TAILQ_ENTRY(cairn_save) link; /* in the syncer's queue */
    bool is_queued, is_synced;
    int reached; /* NVME or REMOTE, once a waiting caller has caused it to be observed; else -1 */
    /* indexed by the awaited level */
    unsigned waiters[CAIRN_REMOTE + 1], failures[CAIRN_REMOTE + 1];
    int error; /* of the last failure */
    char cause[CAUSE_MAX];
};

TAILQ_HEAD(sync_queue, cairn_save);

/* The part of a lane, guarded by its lock. */
struct syncer {
    pthread_cond_t work;       /* wakes the thread: the queue is not empty */
    struct sync_queue queue;   /* references are counted; a save is in it at most once */
    struct lane_thread thread; /* started by the first wait for NVMe or the remote */
};

/* Waits until a published save has reached CAIRN_NVME or CAIRN_REMOTE. */
CAIRN_MUST_CHECK int level_wait(struct cairn_save *save, enum cairn_level level, int64_t deadline);
