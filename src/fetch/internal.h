// SPDX-License-Identifier: Apache-2.0
/* Inside the store: reading from any tier, and managing which content is on NVMe. The part for
 * store/ is in life.h.
 *
 *    plan.c                       one read, from the request to the answer: the table of its states
 *    plan_resolve.c, plan_fill.c  a range as parts, and how parts are read into a buffer: plan.h
 *    decoded.c                    chunks that are decoded once for all that need them: decoded.h
 *    read.c                       life, and the content of files by name
 *    pull.c, prefetch.c, warm.c   content that is fetched from the remote: pull.h
 *    promote.c                    fetched chunks are stored on NVMe
 *    evict.c                      packs are dropped from NVMe if the remote has their chunks
 *    pins.c                       chunks that stay, because a user pinned them: pins.h */
#pragma once

#include "commit/shared.h"
#include "fetch/decoded.h"
#include "fetch/fetch.h"
#include "fetch/life.h"

/* --- eviction (evict.c) --- */

struct evict_request;

struct evict {
    struct cairn_mutex lock;
    pthread_cond_t changed;
    struct evict_request *request;
    bool serving, stopping;
    /* of packs on NVMe that hold pinned chunks; UINT64_MAX: not known */
    _Atomic uint64_t pinned_bytes;
    _Atomic uint64_t pins_changed; /* the newest operation when a pin was set or removed last */
    _Atomic bool pins_asked;       /* requests that pinned bytes are counted */
    _Atomic uint64_t evicted_total;
    /* no pack could be evicted: not tried again before this time */
    _Atomic int64_t none_until;
    _Atomic int64_t none_since; /* since when; 0: the last attempt found a pack */
    /* Used only by the writeback thread. */
    int64_t next_at, pins_at; /* monotonic ns: not before */
    uint64_t pins_counted;    /* pins_changed when pins were counted last */
    bool pins_final;          /* the view had that operation then */
    uint64_t none_published;  /* horizon of the remote, when no pack was found */
};

/* --- the whole of fetch/ (read.c) --- */

#define READ_THREADS_MIN 4u
#define READ_THREADS_MAX 16u

/* Returns how many threads read NVMe and decode on a machine with `cores` cores: half of them, as
 * decoding takes some 0.8 s of CPU for a GB, and a restart of all ranks of a node uses all threads
 * that exist. */
static inline unsigned read_threads_by_cores(long cores)
{
    return cores / 2 < READ_THREADS_MIN   ? READ_THREADS_MIN
           : cores / 2 > READ_THREADS_MAX ? READ_THREADS_MAX
                                          : (unsigned)(cores / 2);
}

struct fetch {
    struct pool *readers; /* reads that need NVMe */
    unsigned read_threads;
    struct pull *pull; /* NULL: no remote, or it is not started yet */
    struct decoded_set decoded;
    struct evict evict;
    _Atomic int64_t promoted_at;      /* when the last chunk was promoted; monotonic ns */
    _Atomic unsigned promote_flushes; /* flushes that are under way */
};

static inline struct pull *pull_of(struct store *store)
{
    return store->fetch->pull;
}

/* The view that has a file, and the number of the file in it. */
struct fetch_view {
    struct view *view; /* NULL: of an earlier state that is not open */
    uint64_t ino;
};
static inline struct fetch_view fetch_view_enter(struct store *store, uint64_t ino)
{
    unsigned slot = past_slot(ino);
    if (!slot)
        return (struct fetch_view){store->local.view, ino};
    return (struct fetch_view){past_views_enter(store->past, slot), past_number(ino)};
}
static inline void fetch_view_leave(struct store *store, uint64_t ino, const struct fetch_view *of)
{
    if (past_slot(ino) && of->view)
        past_views_leave(store->past, past_slot(ino));
}

/* --- promote.c -------------------------------------------------------------------------------- */

/* Stores a fetched chunk that has no references on NVMe, unless it is there. Waits for room until
 * `until` (monotonic ns), and for a buffer. False: there was no room. */
bool promote_chunk(struct store *store, const struct chunk_entry *entry, const void *stored,
                   int64_t until);
/* As promote_chunk(), for a chunk that has references in the remote: it is encoded anew, without
 * references. `scratch` has PACKS_SCRATCH_LEN bytes. */
bool promote_decoded(struct store *store, const struct chunk_entry *entry, const void *raw,
                     void *scratch, int64_t until);
/* Returns when everything that was promoted is durable, or cannot become durable soon. */
void promote_flush(struct store *store);

/* --- evict.c ---------------------------------------------------------------------------------- */

/* Returns whether no pack could be evicted, and none will be soon. Any thread. */
bool evict_is_hopeless(struct store *store);

struct evict_request {
    struct chunk_name *names; /* in order */
    size_t count;
    bool done, is_last_round;
    uint64_t going_bytes;       /* stored bytes that leave with this round */
    uint64_t dropped_bytes;     /* bytes that left */
    uint64_t pinned_bytes;      /* bytes that stay: a pinned file needs them */
    uint64_t unpublished_bytes; /* the published remote does not have them */
    uint64_t busy_bytes;        /* their pack is in use, or other chunks on NVMe refer to them */
    uint64_t busy_pack;         /* a pack that is in use; 0: none */
    uint64_t base_bytes;        /* part of busy_bytes: other chunks on NVMe refer to them */
};
/* Any thread: passes the request to the writeback thread, and waits. -ESHUTDOWN. */
CAIRN_MUST_CHECK int evict_now(struct store *store, struct evict_request *request);
/* Ends the waits of evict_now(). */
void evict_stop(struct store *store);
