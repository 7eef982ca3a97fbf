// SPDX-License-Identifier: Apache-2.0
/* Inside commit/: its state. The others ask by the calls of shared.h. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "commit/history_internal.h"
#include "commit/horizon_internal.h"
#include "commit/journal_internal.h"
#include "commit/packs_internal.h"
#include "commit/read_internal.h"
#include "commit/room_internal.h"
#include "commit/shared.h"
#include "commit/writeback_internal.h"

/* The stage that the store has open. */
struct own_stage {
    char *dir; /* where it lies */
    uint8_t name[16];
    _Atomic bool is_lost; /* its files were removed */
};

/* The view, when it is beyond mending: new_view.c. */
struct lost_view {
    _Atomic bool is_lost;
    const char *_Atomic stays; /* why it cannot be made anew, static; NULL: it can */
    int64_t examine_at;        /* monotonic ns; the writeback thread's */
};

/* State that is commit/'s own. */
struct commit {
    struct history history;
    struct own_stage own_stage;
    struct change change;
    struct packs packs;
    struct horizon horizon;
    struct priority priority;
    struct journal journal; /* writeback thread only, after recovery */
    struct anchor anchor;
    struct lag lag; /* writeback thread only, but `ops` */
    struct lost_view lost_view;
    struct damages damage;
    struct heal *heal;
    struct room room;
    struct snapshot snapshot; /* the writeback thread's, but while its own thread is under way */

    /* The horizon moved, the view followed, a round of upkeep or the upload of a cut ended, a pack
     * was released, nothing is being promoted any more, or a waiter for such a thing gives up. */
    struct event progress;

    const struct upkeep *upkeep; /* static */
    struct upkeep_state rounds;
    _Atomic uint64_t gc_asked,
        gc_done;            /* rounds of the local gc that a caller waits for, by number */
    _Atomic bool gc_soon;   /* there are packs to be dropped that need not wait for their turn */
    _Atomic bool seal_rest; /* a recovery left drafts or new files that are no versions yet */

    pthread_t thread; /* writeback */
    bool thread_started;
    struct pool *workers;      /* hash and encode */
    struct pool *pack_writers; /* one put each */
    struct rate_limit limit;   /* of writeback; lifted with the horizon's lock */

    void (*on_room)(void *arg); /* see store_start() */
    void *on_room_arg;
    _Atomic uint64_t next_pack;
    _Atomic uint64_t written_total, dedup_total, healed_total;
    struct encode_totals encoded;
    _Atomic int64_t read_at;               /* when content was read last; monotonic ns */
    _Atomic uint64_t promoted_bytes;       /* fetched, not yet named by a batch */
    _Atomic uint32_t used_at[PACK_CLOCKS]; /* when packs were used, by a hash of their ids: seconds
                                              since the start */
    int64_t started_at;
};

/* new_view.c, for the writeback thread: the result of its last try to bring the view up to the
 * journal. */
void new_view_note(struct store *store, int error);
