// SPDX-License-Identifier: Apache-2.0
/* Inside the store: reading what any tier has, and what of it is on NVMe. What store/ needs of it
 * is in life.h.
 *
 *   plan.c                       one read, from the request to the answer: the table of its states
 *   plan_resolve.c, plan_fill.c  what a range consists of, and how that comes into a buffer: plan.h
 *   decoded.c                    chunks that are decoded once for all who want them: decoded.h
 *   read.c                       life, and what files consist of
 *   pull.c, prefetch.c, warm.c   what is brought from the remote: pull.h
 *   promote.c                    what was fetched goes to NVMe
 *   evict.c                      packs that leave NVMe because the remote has what they hold
 *   pins.c                       chunks that stay, because a user wants it: pins.h */
#pragma once

#include "commit/shared.h"
#include "fetch/decoded.h"
#include "fetch/fetch.h"
#include "fetch/life.h"

/* --- what is evicted (evict.c) ---------------------------------------------------------------- */

struct evict_request;

struct evict {
    struct cairn_mutex lock;
    pthread_cond_t changed;
    struct evict_request *request;
    bool serving, stopping;
    /* of packs on NVMe that hold what is pinned; UINT64_MAX: not known */
    _Atomic uint64_t pinned_bytes;
    _Atomic uint64_t pins_changed; /* newest operation when a pin was set or removed last */
    _Atomic bool pins_asked;       /* what is pinned is to be counted */
    _Atomic uint64_t evicted_total;
    /* nothing was found that could be evicted: not looked for again sooner */
    _Atomic int64_t none_until;
    _Atomic int64_t none_since; /* since when; 0: something was */
    /* The writeback thread's alone. */
    int64_t next_at, pins_at; /* monotonic ns: not before */
    uint64_t pins_counted;    /* pins_changed when pins were counted last */
    bool pins_final;          /* the view knew of it then */
    uint64_t none_published;  /* horizon of the remote, when nothing was found */
};

/* --- all of it (read.c) ----------------------------------------------------------------------- */

#define READ_THREADS_MIN 4u
#define READ_THREADS_MAX 16u

/* Threads that read NVMe and decode, of a machine with so many cores: half of them, as they take
 * some 0.8 s of CPU for a GB, and a restart of all ranks of a node asks for as much as there is. */
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
    _Atomic unsigned promote_flushes; /* that are under way */
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

/* Stores a fetched chunk that stands by itself on NVMe, unless it is there. Waits for room until
 * `until` (monotonic ns), and for a buffer. False: there was no room. */
bool promote_chunk(struct store *store, const struct chunk_entry *entry, const void *stored,
                   int64_t until);
/* The same for one that refers to others where it came from: it is encoded anew, by itself.
 * `scratch` has PACKS_SCRATCH_LEN bytes. */
bool promote_decoded(struct store *store, const struct chunk_entry *entry, const void *raw,
                     void *scratch, int64_t until);
/* Returns when all that was promoted is durable, or cannot become so soon. */
void promote_flush(struct store *store);

/* --- evict.c ---------------------------------------------------------------------------------- */

/* Nothing was found, and nothing will be soon. Any thread. */
bool evict_is_hopeless(struct store *store);

struct evict_request {
    struct chunk_name *names; /* in order */
    size_t count;
    bool done, is_last_round;
    uint64_t going_bytes;       /* stored bytes that leave with this round */
    uint64_t dropped_bytes;     /* that left */
    uint64_t pinned_bytes;      /* that stay: a pinned file needs them */
    uint64_t unpublished_bytes; /* the published remote has them not */
    uint64_t busy_bytes;        /* their pack is in use, or others on NVMe rest on them */
    uint64_t busy_pack;         /* one that is in use; 0: none */
    uint64_t base_bytes;        /* part of busy_bytes: others on NVMe rest on them */
};
/* Any thread: has the writeback thread do it, and waits. -ESHUTDOWN. */
CAIRN_MUST_CHECK int evict_now(struct store *store, struct evict_request *request);
/* Ends those that wait. */
void evict_stop(struct store *store);
