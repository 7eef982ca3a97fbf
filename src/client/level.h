// SPDX-License-Identifier: Apache-2.0
/* The level of a published file: CAIRN_NVME and CAIRN_REMOTE. An fsync of file and directory brings
 * it to the disk; on CairnFS the mount begins with that at once, and tells the level
 * (user.cairn.level).
 *
 * A filesystem takes as long as it likes for an fsync or an answer, and a caller that waits may
 * have a timeout: the thread "cairn-sync" asks, for one save after the other, as long as a caller
 * waits. */
#pragma once

#include <sys/queue.h>

#include "base/cause.h"
#include "client/threads.h"

#include <cairn/cairn.h>

struct cairn_save;

/* A save's part, guarded by the lane's lock. */
struct levels {
    TAILQ_ENTRY(cairn_save) link; /* in the syncer's queue */
    bool is_queued, is_synced;
    int reached; /* NVME or REMOTE, once it was seen there because a caller waited; else -1 */
    /* by the level that is waited for */
    unsigned waiters[CAIRN_REMOTE + 1], failures[CAIRN_REMOTE + 1];
    int error; /* of the last failure */
    char cause[CAUSE_MAX];
};

TAILQ_HEAD(sync_queue, cairn_save);

/* A lane's part, guarded by its lock. */
struct syncer {
    pthread_cond_t work;       /* the thread: the queue has one */
    struct sync_queue queue;   /* counted; a save is in it once at most */
    struct lane_thread thread; /* from the first wait for NVMe or the remote on */
};

/* Waits until a published save has reached CAIRN_NVME or CAIRN_REMOTE. */
CAIRN_MUST_CHECK int level_wait(struct cairn_save *save, enum cairn_level level, int64_t deadline);
