// SPDX-License-Identifier: Apache-2.0
/* A lane: its saves, and the three owners through which a save passes: opener (open.h), copiers
 * (copy.h; devices.h) and publisher (publish.h). A save goes from SAVE_OPEN to SAVE_PUBLISHED or
 * SAVE_FAILED, in one step. A failure drops the pieces not assigned to a thread; the publisher
 * removes the draft when no thread has a piece any more.
 *
 * Locks: one mutex per lane guards the lane and its saves; it is never held over I/O, over a copy
 * or over the caller's log. A call allocates all memory that it needs before it changes anything,
 * so it can fail with -ENOMEM.
 *
 * Aborts are for our own bugs (check()); nothing else ends the process. */
#pragma once

#include <stdatomic.h>

#include "base/lock.h"
#include "client/copy.h"
#include "client/devices.h"
#include "client/save.h"
#include "client/threads.h"

#define UNTOLD_MAX 64 /* failed saves kept for cairn_lane_take_error() */

/* Failed saves not yet reported by any call; references are counted; oldest first. Guarded by the
 * lane's lock. */
struct untold {
    TAILQ_HEAD(untold_list, cairn_save) list;
    size_t count;
};

struct cairn_lane {
    TAILQ_ENTRY(cairn_lane) link; /* in the list of the process; guarded by the list's lock */
    struct cairn_lane_options options;
    int log_level;
    unsigned generation; /* of the process: changes with fork */
    _Atomic uint64_t blocked_ns;
    /* bytes of sources and pieces in progress that a fence may have to wait for; written with the
     * lock held */
    _Atomic uint64_t busy;

    struct cairn_mutex lock;
    pthread_cond_t changed; /* wakes threads that wait for saves */

    /* Guarded by lock. */
    unsigned refs; /* the handle's, and one per save */
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

/* Ends a call of the API: notes a cause if none is set, and the duration of the call. */
int lane_return(struct cairn_lane *lane, int64_t begun_ns, int r);

void lane_log(struct cairn_lane *lane, int level, const char *fmt, ...) CAIRN_PRINTF(3, 4);

/* The level of $CAIRN_LOG. Default: all lines if the caller receives them, warnings if they go to
 * standard error. */
int log_level_of(const struct cairn_lane_options *options);

/* Copies to `ret` (which begins with its size) as much of `have` as it has room for. -EINVAL: an
 * impossible size. */
CAIRN_MUST_CHECK int copy_struct(void *ret, const void *have, size_t size);

/* The opposite direction: fills `ret` of `size` bytes, with zeros after the end of `from`, which
 * may be NULL. -E2BIG: `from` has members unknown to this library that are not zero. */
CAIRN_MUST_CHECK int take_struct(void *ret, size_t size, const void *from);

/* --- lanes.c: all lanes of the process -------------------------------------------------------- */

/* Adds a new lane to the list. When it leaves, its counts are added to the sums. */
void lanes_enter(struct cairn_lane *lane);
void lanes_leave(struct cairn_lane *lane);

/* -ECHILD, with cause: the process is a child of the one that opened the lane. */
CAIRN_MUST_CHECK int lane_check(const struct cairn_lane *lane);
/* As lane_check(), at the beginning of a call: also clears the cause of an earlier call. */
CAIRN_MUST_CHECK int lane_call(const struct cairn_lane *lane);

/* Unlocks the lane, and frees it if that was the last reference. */
void lane_unlock_last(struct cairn_lane *lane);

/* The sums over all present and past lanes of this process. */
struct lanes_stats {
    uint64_t pending_bytes, pending_saves, blocked_ns, published, failed;
    char error[256]; /* of the last failed save */
};
/* Takes the locks of all lanes in turn. */
void lanes_stats(struct lanes_stats *ret);
void lanes_note_error(const char *cause);
void lane_add_pending_locked(const struct cairn_lane *lane, uint64_t *bytes, uint64_t *saves);

/* --- lane.c ----------------------------------------------------------------------------------- */

/* Starts the threads, unless they run. */
CAIRN_MUST_CHECK int lane_start(struct cairn_lane *lane);
