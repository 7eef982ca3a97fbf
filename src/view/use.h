// SPDX-License-Identifier: Apache-2.0
/* Uses of the database are counted, so that it can be closed and opened anew under a live mount
 * (use.c).
 *
 * Every read is a use: db_get() for its own duration, a snapshot from snap_begin() to snap_end().
 * Uses may nest. A cut, which lives for as long as a round of the uploader takes, is a use only
 * during its calls: the database may be another in between, and then the cut is void (-ESTALE). */
#pragma once

#include <stdatomic.h>
#include <sys/queue.h>

#include "base/lock.h"

struct view;
struct snap;

struct view_uses {
    struct cairn_mutex lock; /* LOCK_LEAF */
    pthread_cond_t changed;
    unsigned count;         /* reads under way */
    bool is_closing;        /* a thread that begins a read waits, but where it is within another */
    LIST_HEAD(, snap) held; /* snapshots that are no uses now */
    uint64_t applied;       /* as in its state */
    uint64_t needed; /* with less applied than this, a read may give a state older than one seen
                        before: -EIO */
};

void view_uses_init(struct view_uses *uses);
void view_uses_done(struct view_uses *uses);

/* 0, or -EIO: it could not be opened again, or lacks changes that it had (but for the thread that
 * changes it). The use has begun in either case. */
CAIRN_MUST_CHECK int view_use_begin(struct view *view);
void view_use_end(struct view *view);

/* A snapshot after a use of it, and before one; -ESTALE: it is gone with its database. The use has
 * begun in either case. Several threads may use it at once. */
void snap_hold(struct snap *s);
CAIRN_MUST_CHECK int snap_resume(struct snap *s);
