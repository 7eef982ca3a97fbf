// SPDX-License-Identifier: Apache-2.0
/* The state of the room on NVMe; and the searches of the writeback thread for more. */
#pragma once

#include <pthread.h>

#include "base/lock.h"
#include "commit/room.h"

/* Callbacks: sizes and states that the room takes from other objects. */
struct room_sources {
    uint64_t (*packs)(void *arg);   /* bytes of packs, those that are being written included */
    uint64_t (*journal)(void *arg); /* of its files; the writeback thread's */
    uint64_t (*staged)(void *arg);  /* of content that is not durable */
    /* Is all that happened before durable, and known to the view? */
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
    /* The thread has looked, less is on its way, or a wait to promote more ends. */
    struct event more;
    pthread_t thread;
    bool started, stopping, wanted;
    bool scarce;      /* there is less room than asked for */
    bool hopeless;    /* and the last search for more was in vain */
    int64_t searched; /* when that began; monotonic ns */
    int refusal;      /* a cut cannot be written for it, an error by which no file can be made; 0 */
    int64_t short_since; /* its tries fail for want of descriptors; monotonic ns, 0: they do not */
    /* what may be staged: allocated ahead by the tier, and not taken by packs since that was looked
     * at */
    uint64_t granted;
    uint64_t with_changes; /* bytes that may be staged, or changed in names and attributes */
    uint64_t left;         /* of the granted bytes, beside those staged then */
    uint64_t taken;        /* by packs, ever */
    uint64_t rounds_begun, rounds_done; /* of the thread */
    uint64_t journal_bytes, view_bytes, runs_bytes, snapshot_bytes;
};

/* --- room.c ----------------------------------------------------------------------------------- */

struct room *room_new(struct local *local, struct horizon *horizon,
                      const struct room_sources *sources, void *arg);
void room_free(struct room *room);
/* `fn` is called when there is room again, or none comes: see store_start(). Before any thread. */
void room_on_room(struct room *room, void (*fn)(void *arg), void *arg);
CAIRN_MUST_CHECK int room_start(struct room *room);
bool room_is_full(struct room *room); /* of data that may not be dropped */
/* After a round of the writeback thread that began at `began` (monotonic ns): it found something
 * that came free, or may. If not, and room is short, waiting has no sense for a writer that did so
 * before. */
void room_settle(struct room *room, int64_t began, bool found);
/* A cut could not be written in `tries` tries, the last one for `error`; or it was (0). Where that
 * says that no file can be made or written on NVMe (no inode, a quota, a limit, read-only), what
 * adds data gets an error at once, and so does fsync, until a later try succeeds. What was
 * acknowledged stays in the stage. Want of descriptors mostly passes: of that, only after 5 s. */
void room_note_try(struct room *room, unsigned tries, int error);
/* A pack of that length takes it of the held room. */
void room_spend(struct room *room, uint64_t bytes);
/* room_admit() for the writeback thread itself: -ENOSPC when the last search was in vain. */
CAIRN_MUST_CHECK int room_admit_own(struct room *room, uint64_t bytes);

/* --- gc.c ------------------------------------------------------------------------------------- */

/* Packs that nothing needs, marked as dropping: at most `max`. `now`: those, too, that may serve
 * the next upload. */
size_t gc_dead_packs(struct commit *commit, bool now, uint64_t *ids, size_t max);
/* Adds what is alive in mostly dead packs to a new pack; these, marked as dropping: the next batch
 * moves and drops. Of a pack at least `worth_percent` must be dead, and what all of them take
 * becomes less by as much; else 0: there is nothing to gain. */
size_t gc_compact(struct commit *commit, unsigned worth_percent, uint64_t *ids, size_t max);
void gc_remove(struct commit *commit, const uint64_t *ids, size_t count);
