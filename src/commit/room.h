// SPDX-License-Identifier: Apache-2.0
/* Room on NVMe (room.c), and what makes it: gc (gc.c). */
#pragma once

#include <pthread.h>

#include "base/event.h"
#include "base/lock.h"
#include "format/pack.h"

struct store;

struct room {
    struct cairn_mutex lock;
    pthread_cond_t changed;
    struct event
        more; /* the thread has looked, less is on its way, or a wait to promote more ends */
    pthread_t thread;
    bool started, stopping, wanted;
    bool scarce;      /* there is less room than asked for */
    bool hopeless;    /* and the last search for more was in vain */
    int64_t searched; /* when that began; monotonic ns */
    uint64_t granted; /* what may be staged: allocated ahead by the tier, and not taken by packs
                         since that was looked at */
    uint64_t with_changes;              /* what may be staged and changed in names and attributes */
    uint64_t left;                      /* of what is granted, beside what was staged then */
    uint64_t taken;                     /* by packs, ever */
    uint64_t rounds_begun, rounds_done; /* of the thread */
    uint64_t journal_bytes, view_bytes, runs_bytes;
};

/* --- room.c ----------------------------------------------------------------------------------- */

CAIRN_MUST_CHECK int room_start(struct store *store);
void room_stop(struct store *store);
void room_account(struct store *store);
/* STORE/runs changed. Any thread. */
void room_account_runs(struct store *store);
uint64_t room_used(struct store *store);
/* Bytes that may still be staged and written, by what is known now. */
uint64_t room_available(struct store *store);
/* The same if `more` came free. */
uint64_t room_available_with(struct store *store, uint64_t more);
bool room_is_short(struct store *store);
/* The view's database cannot bear a full disk: there is room for it to write, or -ENOSPC. */
CAIRN_MUST_CHECK int room_for_view(struct store *store);
/* Could one more pack be made, and be in a cut that the view follows, beside all that is staged? */
bool room_for_moving(struct store *store);
/* After a round of the writeback thread that began at `began` (monotonic ns): it found something
 * that came free, or may. If not, and room is short, waiting has no sense for a writer that did so
 * before. */
void room_settle(struct store *store, int64_t began, bool found);
/* A pack of that length takes it of what is held. */
void room_spend(struct store *store, uint64_t bytes);
/* store_admit() for the writeback thread itself: -ENOSPC when the last search was in vain. */
CAIRN_MUST_CHECK int room_admit(struct store *store, uint64_t bytes);
/* Bytes that would have to come free until all is held that should be. */
uint64_t room_missing(struct store *store);
/* Fetched bytes may be promoted; they count until a batch names them. False: there is no room
 * now; room_more() is signalled when it is worth another try. `asks`: the thread is to look for
 * room now where there is little: not in such a try, which follows a look. */
bool room_promote(struct store *store, uint64_t bytes, bool asks);
void room_promote_done(struct store *store, uint64_t bytes);
uint64_t room_promoted(struct store *store);
/* That event: for those that wait, and for what ends their wait. */
struct event *room_more(struct store *store);

/* --- gc.c ------------------------------------------------------------------------------------- */

/* Packs that nothing needs, marked as dropping: at most `max`. `now`: those, too, that may serve
 * the next upload. */
size_t gc_dead_packs(struct store *store, bool now, uint64_t *ids, size_t max);
/* Adds what is alive in mostly dead packs to a new pack; these, marked as dropping: the next batch
 * moves and drops. Of a pack at least `worth_percent` must be dead, and what all of them take
 * becomes less by as much; else 0: there is nothing to gain. */
size_t gc_compact(struct store *store, unsigned worth_percent, uint64_t *ids, size_t max);
/* Adds a chunk that lives in `pack` to a new one, if its place is there. */
struct moving {
    struct store *store;
    uint64_t pack;
    uint8_t *raw, *stored;
};
CAIRN_MUST_CHECK int gc_move_chunk(const struct chunk_entry *entry, void *moving);
void gc_remove(struct store *store, const uint64_t *ids, size_t count);
