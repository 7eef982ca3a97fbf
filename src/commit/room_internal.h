// SPDX-License-Identifier: Apache-2.0
/* The state of the room on NVMe, and the writeback thread's searches for more. */
#pragma once

#include <pthread.h>

#include "base/lock.h"
#include "commit/room.h"

/* Callbacks for sizes and states of other objects. */
struct room_sources {
    uint64_t (*packs)(void *arg);   /* bytes of packs, including those being written */
    uint64_t (*journal)(void *arg); /* of its files; writeback thread only */
    uint64_t (*staged)(void *arg);  /* of content that is not durable */
    /* Is every operation before this time durable and in the view? */
    bool (*is_carried)(void *arg, int64_t before);
    bool (*may_free)(void *arg); /* see struct upkeep */
};

struct room {
    struct local *local;
    struct horizon *horizon;
    const struct room_sources *sources;
    void *sources_arg;
    void (*on_room)(void *arg); /* see store_start() */
    void *on_room_arg;
    _Atomic uint64_t promoted_bytes; /* fetched, not yet named by a batch */
    struct cairn_mutex lock;
    pthread_cond_t changed;
    /* Signalled when the thread has looked for room, less is waiting to be stored, or a wait to
     * promote ends. */
    struct event more;
    pthread_t thread;
    bool started, stopping, wanted;
    bool scarce;      /* there is less room than requested */
    bool hopeless;    /* and the last search for more found none */
    int64_t searched; /* when that search began; monotonic ns */
    /* an error by which no file can be created, so that no cut can be written; 0: none */
    int refusal;
    /* since when attempts have failed for lack of descriptors; monotonic ns, 0: they do not */
    int64_t short_since;
    /* bytes that may be staged: allocated ahead by the tier, less the length of packs since then */
    uint64_t granted;
    uint64_t with_changes; /* bytes that may be staged, or changed in names and attributes */
    uint64_t left;         /* of the granted bytes, besides those staged then */
    uint64_t taken;        /* used by packs so far */
    uint64_t rounds_begun, rounds_done; /* of the room thread */
    uint64_t journal_bytes, view_bytes, runs_bytes, snapshot_bytes;
};

/* --- room.c ----------------------------------------------------------------------------------- */

struct room *room_new(struct local *local, struct horizon *horizon,
                      const struct room_sources *sources, void *arg);
void room_free(struct room *room);
/* `fn` is called when there is room again, or none can be found: see store_start(). Call before any
 * thread starts. */
void room_on_room(struct room *room, void (*fn)(void *arg), void *arg);
CAIRN_MUST_CHECK int room_start(struct room *room);
bool room_is_full(struct room *room); /* of data that may not be dropped */
/* Call after a round of the writeback thread that began at `began` (monotonic ns); `found`:
 * something has become free, or may. If not, and room is short, a writer that waited since before
 * the round waits in vain. */
void room_settle(struct room *room, int64_t began, bool found);
/* A cut could not be written in `tries` attempts, the last one failing with `error`; or it was (0).
 * If the error means that no file can be created or written on NVMe (no inode, a quota, a limit,
 * read-only), operations that add data fail at once, and so does fsync, until a later attempt
 * succeeds. Acknowledged data stays in the stage. A lack of descriptors mostly passes, so it counts
 * only after 5 s. */
void room_note_try(struct room *room, unsigned tries, int error);
/* A pack of that length uses reserved room. */
void room_spend(struct room *room, uint64_t bytes);
/* room_admit() for the writeback thread itself: -ENOSPC if the last search found nothing. */
CAIRN_MUST_CHECK int room_admit_own(struct room *room, uint64_t bytes);

/* --- gc.c ------------------------------------------------------------------------------------- */

/* Finds packs that nothing needs, and marks them as dropping: at most `max`. `now`: also those that
 * may still serve the next upload. */
size_t gc_dead_packs(struct commit *commit, bool now, uint64_t *ids, size_t max);
/* Copies the live chunks of mostly dead packs to a new pack, and marks the old ones as dropping:
 * the next batch moves the chunks and drops these packs. At least `worth_percent` of each pack must
 * be dead, and their total size must shrink by as much; otherwise returns 0. */
size_t gc_compact(struct commit *commit, unsigned worth_percent, uint64_t *ids, size_t max);
void gc_remove(struct commit *commit, const uint64_t *ids, size_t count);
