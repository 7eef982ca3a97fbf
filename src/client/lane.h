// SPDX-License-Identifier: Apache-2.0
/* A lane: its saves, and the three owners that a save passes: opener (open.h), copiers (copy.h;
 * devices.h) and publisher (publish.h). A save goes from SAVE_OPEN to SAVE_PUBLISHED or
 * SAVE_FAILED, by one step. A failure drops the pieces that no thread has; the publisher takes the
 * draft away when no thread has one any more.
 *
 * Locks: one mutex a lane guards the lane and its saves; never held over I/O, over a copy or over
 * the caller's log. A call allocates all memory that it needs before it changes anything:
 * -ENOMEM is an answer like others.
 *
 * Aborts are for our own bugs (check()); nothing else ends the process. */
#pragma once

#include <stdatomic.h>

#include "base/lock.h"
#include "client/copy.h"
#include "client/devices.h"
#include "client/save.h"
#include "client/threads.h"

#define UNTOLD_MAX 64 /* failed saves that are kept for cairn_lane_take_error() */

/* Failed saves that no call was told of yet, counted, oldest first. Guarded by the lane's lock. */
struct untold {
    TAILQ_HEAD(untold_list, cairn_save) list;
    size_t count;
};

struct cairn_lane {
    TAILQ_ENTRY(cairn_lane) link; /* of the process; guarded by the list's lock */
    struct cairn_lane_options options;
    int log_level;
    unsigned generation; /* of the process: another after fork */
    _Atomic uint64_t blocked_ns;
    /* bytes of sources and pieces under way that a fence may have to wait for; changed with the
     * lock held */
    _Atomic uint64_t busy;

    struct cairn_mutex lock;
    pthread_cond_t changed; /* those that wait for saves */

    /* Guarded by lock. */
    unsigned refs; /* the handle, and one each save */
    bool is_stopping;
    TAILQ_HEAD(, cairn_save) saves;
    uint64_t begun;
    struct untold untold;
    struct cairn_lane_stats stats;

    struct opener opener;
    struct copiers copiers;
    struct devices devices;
    struct publisher publisher;
    struct syncer syncer;
    struct refer refer;
};

/* Waits for a change of a save; as wait_until_locked(). */
static inline bool wait_changed_locked(struct cairn_lane *lane, int64_t deadline)
{
    check_held(&lane->lock);
    return wait_until_locked(&lane->lock, &lane->changed, deadline);
}

/* --- answer.c: the boundary to the caller ----------------------------------------------------- */

/* A call of the API ends: notes a cause if there is none, and how long it took. */
int lane_return(struct cairn_lane *lane, int64_t begun_ns, int r);

void lane_log(struct cairn_lane *lane, int level, const char *fmt, ...) CAIRN_PRINTF(3, 4);

/* The level of $CAIRN_LOG; else all lines where the caller takes them, warnings where they go to
 * standard error. */
int log_level_of(const struct cairn_lane_options *options);

/* Fills `ret` (which begins with its size) from `have`, as much as it knows of. -EINVAL: a size
 * that cannot be. */
CAIRN_MUST_CHECK int copy_struct(void *ret, const void *have, size_t size);

/* The other direction: `ret` of `size` bytes, zeros where `from` is shorter; `from` may be NULL.
 * -E2BIG: it has members that this library does not know, and they are not zero. */
CAIRN_MUST_CHECK int take_struct(void *ret, size_t size, const void *from);

/* --- lanes.c: all of the process -------------------------------------------------------------- */

/* A new lane is in the list until it leaves, which adds its counts to the sums. */
void lanes_enter(struct cairn_lane *lane);
void lanes_leave(struct cairn_lane *lane);

/* -ECHILD, with cause: the process is a child of the lane's. */
CAIRN_MUST_CHECK int lane_check(const struct cairn_lane *lane);
/* The same, as a call begins: no cause is left of an earlier one. */
CAIRN_MUST_CHECK int lane_call(const struct cairn_lane *lane);

/* Unlocks it, and frees it where that was the last reference. */
void lane_unlock_last(struct cairn_lane *lane);

/* The sums of all lanes that this process has and had. */
struct lanes_stats {
    uint64_t pending_bytes, pending_saves, blocked_ns, published, failed;
    char error[256]; /* of the last save that failed */
};
/* Takes the locks of all lanes, one after the other. */
void lanes_stats(struct lanes_stats *ret);
void lanes_note_error(const char *cause);
void lane_add_pending_locked(const struct cairn_lane *lane, uint64_t *bytes, uint64_t *saves);

/* --- lane.c ----------------------------------------------------------------------------------- */

/* Starts the threads, unless they run. */
CAIRN_MUST_CHECK int lane_start(struct cairn_lane *lane);
