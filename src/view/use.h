// SPDX-License-Identifier: Apache-2.0
/* Counts uses of the database, so that it can be closed and opened again under a live mount
 * (use.c).
 *
 * Every read is a use: db_get() for its own duration, a snapshot from snap_begin() to snap_end().
 * Uses may nest. A cut, which lives as long as a round of the uploader, is a use only during its
 * calls: the database may be replaced in between, and then the cut is void (-ESTALE). */
#pragma once

#include <stdatomic.h>
#include <sys/queue.h>

#include "base/lock.h"

struct view;
struct snap;

struct view_uses {
    struct cairn_mutex lock; /* LOCK_LEAF */
    pthread_cond_t changed;
    unsigned count; /* reads in progress */
    /* new reads wait, unless they are within another read of their thread */
    bool is_closing;
    LIST_HEAD(, snap) held; /* snapshots not in use at the moment */
    uint64_t applied;       /* as in its state */
    /* if less than this is applied, a read could return an older state than an earlier read:
     * -EIO */
    uint64_t needed;
};

void view_uses_init(struct view_uses *uses);
void view_uses_done(struct view_uses *uses);

/* 0, or -EIO: the database could not be opened again, or lacks changes that it had (but not for the
 * thread that changes it). The use has begun in either case. */
CAIRN_MUST_CHECK int view_use_begin(struct view *view);
void view_use_end(struct view *view);

/* snap_hold() ends the use of a snapshot, snap_resume() begins the next one; -ESTALE: its database
 * was closed. The use has begun in either case. Several threads may use it at once. */
void snap_hold(struct snap *s);
CAIRN_MUST_CHECK int snap_resume(struct snap *s);
