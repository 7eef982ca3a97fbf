// SPDX-License-Identifier: Apache-2.0
/* Inside the store: what its components share. Only commit/, remote/, fetch/ and store/ include
 * this. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "base/event.h"
#include "base/lock.h"
#include "base/pool.h"
#include "base/rate_limit.h"
#include "codec/hash.h"
#include "commit/commit.h"
#include "commit/history.h"
#include "commit/horizon.h"
#include "commit/journal.h"
#include "commit/new_view.h"
#include "commit/options.h"
#include "commit/packs.h"
#include "commit/read.h"
#include "commit/room.h"
#include "commit/session.h"
#include "commit/writeback.h"
#include "format/object.h"
#include "format/superblock.h"
#include "tier/tier.h"

#define VIEW_CACHE_BYTES (48u * 1024 * 1024)
#define EPOCH_LAST ((1ull << (64 - SEQ_EPOCH_SHIFT)) - 1024) /* no store gets there */
#define ID_EPOCH(id) ((id) >> 24 & 0xffffff) /* of an inode's, a pack's or a run's number */

/* Of the components above. */
struct remote;
struct fetch;
struct job;

/* Chunks that were encoded since the mount, by enum chunk_encoding. Any thread. */
struct encode_totals {
    _Atomic uint64_t raw_bytes[CHUNK_ENCODINGS], stored_bytes[CHUNK_ENCODINGS];
    _Atomic uint64_t cpu_ns;
    _Atomic uint64_t wrong; /* did not decode to the same, and are not stored so */
};

static inline struct encode_counts encode_counts(const struct encode_totals *totals)
{
    struct encode_counts ret = {.cpu_s = (double)atomic_load(&totals->cpu_ns) / 1e9,
                                .wrong = atomic_load(&totals->wrong)};
    for (unsigned i = 0; i < CHUNK_ENCODINGS; i++) {
        ret.bytes[i].raw = atomic_load(&totals->raw_bytes[i]);
        ret.bytes[i].stored = atomic_load(&totals->stored_bytes[i]);
    }
    return ret;
}

/* State that is commit/'s own. */
struct commit {
    struct history history;
    struct own_stage own_stage; /* session.h */
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

/* State that all components share, and that of each. */
struct store {
    struct store_options options;
    char *path;
    struct superblock sb;
    uint64_t epoch;
    struct tier *tier; /* NVMe */
    struct view *view;
    struct ns *ns;
    struct stage *stage;
    _Atomic uint64_t
        published_seq; /* newest cut that the remote has, or whose state it has; 0: none */
    _Atomic uint64_t generation; /* odd: the view is being exchanged for that of a newer head */

    struct commit *commit;
    struct remote *remote; /* NULL: none */
    struct fetch *fetch;
    struct store_own *own; /* store/internal.h */
};

/* commit.c: sets store->commit. The rounds are store/'s. */
void commit_new(struct store *store, const struct upkeep *upkeep);
void commit_free(struct store *store);
/* The threads. writeback_stop() and room_stop() end them, also where it fails. `room`: see
 * store_start(). */
CAIRN_MUST_CHECK int commit_start(struct store *store, void (*room)(void *arg), void *arg);
struct commit_status commit_status(struct store *store);

/* Does the view lack what is durable? Any thread. */
static inline bool lag_exists(const struct store *store)
{
    return atomic_load(&store->commit->lag.exists);
}

/* Operations that are durable, and that the overlay has to keep. Any thread. */
static inline uint64_t lag_ops(const struct store *store)
{
    return atomic_load(&store->commit->lag.ops);
}

/* superblock.c */
CAIRN_MUST_CHECK int superblock_write(const char *path, const struct superblock *sb);
CAIRN_MUST_CHECK int superblock_read(const char *path, struct superblock *ret);
/* Notes in the superblock, durably, that chunks may be in these encodings:
 * SUPERBLOCK_INCOMPAT_ENCODINGS of `incompat`, others are left out. Comes before the first such
 * chunk. */
CAIRN_MUST_CHECK int store_allow_encodings(struct store *store, uint64_t incompat);
