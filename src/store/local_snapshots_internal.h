// SPDX-License-Identifier: Apache-2.0
/* Inside store/local_snapshots*.c. */
#pragma once

#include "base/lock.h"
#include "format/local_snapshot.h"
#include "snapshots/snapshots.h"
#include "store/internal.h"
#include "store/local_snapshots.h"

#define LOCAL_SNAPSHOTS "snapshots" /* the directory in STORE */
#define DELETED ".deleted"          /* NUMBER.deleted, a file: NUMBER does not exist any more */

DEFINE_VECTOR(names, char *);

struct local_state {
    struct local_snapshot snapshot;
    unsigned readers;
    bool is_deleted; /* it is not listed any more, and is given up with its last reader */
};

struct local_snapshots {
    struct store *store;
    char *path;     /* STORE/snapshots */
    uint64_t space; /* limit of the bytes that only they need */

    struct cairn_mutex lock;           /* LOCK_LEAF; guards: */
    VECTOR(struct local_state) states; /* by number, ascending; changed by the writeback thread */
    struct naming naming;
    struct naming_state naming_state;
    /* the result of the last request was not queried yet, and may be until then; monotonic ns */
    int64_t untold_until;

    /* From the last count: bytes that only snapshots need, and the part of their copies of the
     * view. */
    _Atomic uint64_t cost, copies;

    /* Used only by the writeback thread: */
    int64_t taken_at;   /* when it took the last one, or tried to; monotonic ns, 0: not yet */
    int64_t counted_at; /* monotonic ns */
    bool is_thinned;    /* by the policy of this mount */
    bool had_trouble;   /* taking one failed, and this was logged */
};

/* --- local_snapshots_read.c ------------------------------------------------------------------- */

/* In STORE/snapshots: adds the numbers, ascending, and the names of snapshots that are being made,
 * given up or were deleted; the names must be freed, and removed from the last one on (NULL: not
 * needed). */
CAIRN_MUST_CHECK int local_snapshots_numbers(const char *path, struct pack_ids *ret,
                                             struct names *ret_leftovers);
/* ret->packs must be freed, also after an error. */
CAIRN_MUST_CHECK int local_snapshots_read_file(const char *path, uint64_t number,
                                               struct local_snapshot *ret);
/* -ESTALE: it is of an earlier version of CairnFS, which can read it; errors else of view_open().
 */
CAIRN_MUST_CHECK int local_snapshots_open_view(const char *path, uint64_t number,
                                               struct view **ret);
struct local_snapshot_info local_snapshot_info(const struct local_snapshot *snapshot);

/* --- local_snapshots.c ------------------------------------------------------------------------ */

/* Takes a snapshot of the view's present state. */
CAIRN_MUST_CHECK int local_snapshots_take(struct local_snapshots *snapshots, const char *name);
/* Writes the file again, with another name. */
CAIRN_MUST_CHECK int local_snapshots_rename(struct local_snapshots *snapshots, size_t i,
                                            const char *name);
/* Returns the bytes of their copies of the view that are not shared with the view, as its tables
 * are until it replaces them. */
uint64_t local_snapshots_copies(struct local_snapshots *snapshots);
/* Snapshots that need `pack` also need `other` from now on. */
void local_snapshots_follow(struct local_snapshots *snapshots, uint64_t pack, uint64_t other);
/* Marks the i-th, which is being read, as deleted: no list shows it any more, nor does the next
 * mount. */
CAIRN_MUST_CHECK int local_snapshots_delete(struct local_snapshots *snapshots, size_t i);
/* Gives up the i-th. -EBUSY: it is being read. After another error it may stay on the disk. */
CAIRN_MUST_CHECK int local_snapshots_give_up(struct local_snapshots *snapshots, size_t i);
