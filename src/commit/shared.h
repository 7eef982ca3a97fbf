// SPDX-License-Identifier: Apache-2.0
/* The store, as its components share it. Only commit/, remote/, fetch/ and store/ include this;
 * what each of them has of it besides is its own. It comes with all that commit/ does for the
 * others, but for run_file.h. */
#pragma once

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
#include "commit/upkeep.h"
#include "format/object.h"
#include "format/superblock.h"
#include "tier/tier.h"

#define VIEW_CACHE_BYTES (48u * 1024 * 1024)
#define EPOCH_LAST ((1ull << (64 - SEQ_EPOCH_SHIFT)) - 1024) /* no store gets there */
#define ID_EPOCH(id) ((id) >> 24 & 0xffffff) /* of an inode's, a pack's or a run's number */

/* State of each component. */
struct commit;
struct remote;
struct fetch;
struct store_own;

/* The store, and what all components share of it. */
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
    struct store_own *own; /* of store/ */
};

/* --- commit.c --------------------------------------------------------------------------------- */

/* Sets store->commit. */
void commit_new(struct store *store, const struct upkeep *upkeep);
void commit_free(struct store *store);
/* The threads. writeback_stop() and room_stop() end them, also where it fails. `room`: see
 * store_start(). */
CAIRN_MUST_CHECK int commit_start(struct store *store, void (*room)(void *arg), void *arg);
struct commit_status commit_status(struct store *store);

/* --- marks.c ---------------------------------------------------------------------------------- */

/* Does the view lack what is durable? Any thread. */
bool lag_exists(const struct store *store);

/* --- superblock.c ----------------------------------------------------------------------------- */

CAIRN_MUST_CHECK int superblock_write(const char *path, const struct superblock *sb);
CAIRN_MUST_CHECK int superblock_read(const char *path, struct superblock *ret);
/* Notes in the superblock, durably, that chunks may be in these encodings:
 * SUPERBLOCK_INCOMPAT_ENCODINGS of `incompat`, others are left out. Comes before the first such
 * chunk. */
CAIRN_MUST_CHECK int local_allow_encodings(struct store *store, uint64_t incompat);

/* --- counts of a tier ------------------------------------------------------------------------- */

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
