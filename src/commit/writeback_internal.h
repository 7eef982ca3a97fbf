// SPDX-License-Identifier: Apache-2.0
/* The writeback thread (writeback.c) and its work: targets (target.c), the content of versions
 * (content.c), records (batch.c), batches that the view lacks (lag.c), pieces of drafts (pieces.c),
 * and work between targets (upkeep.c, snapshot.c). */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "base/vector.h"
#include "codec/chunker.h"
#include "commit/history_internal.h"
#include "commit/upkeep.h"
#include "format/pack.h"
#include "format/record.h"

/* --- content.c -------------------------------------------------------------------------------- */

/* The chunks of a pinned version or of a piece of a draft. */
struct content {
    VECTOR(struct extent) extents;
    uint8_t *inline_bytes;
    uint32_t inline_len;
    VECTOR(uint64_t) pinned; /* packs pinned by deduplication */
};
void content_write_layer(struct commit *commit, const struct stage_sealed *version,
                         struct content *ret);
/* Writes one stretch of parts; `state` is the chunker's state, before and after. Borders are in
 * `extents`; the rest of the stretch was held back if `more`. */
void content_write_stretch(struct commit *commit, const struct stage_part *parts, size_t count,
                           struct chunker *state, bool more, struct content *content);
void content_done(struct packs *packs, struct content *content);

/* --- batch.c ---------------------------------------------------------------------------------- */

struct version_content { /* in order of seal_seq */
    uint64_t ino, version, keep, seal_seq;
    struct content content;
    uint64_t bytes;
    bool is_dense; /* st_blocks does not change when it becomes durable */
};
struct batch {
    struct bytes bytes;
    uint32_t count;         /* of the records */
    VECTOR(uint64_t) packs; /* ids of the packs that it names */
};
/* Packs dropped with a batch. */
struct drops {
    const uint64_t *ids;
    size_t count;
    uint32_t flags; /* RECORD_EVICTED */
};
/* The inputs of a batch. */
struct batch_source {
    uint64_t cut;
    struct op *const *ops;
    size_t op_count;
    const struct version_content *versions;
    size_t version_count;
    const struct drops *drops;
};
CAIRN_MUST_CHECK int batch_build(struct commit *commit, const struct batch_source *source,
                                 struct batch *ret);
void batch_done(struct batch *batch);
/* Would a batch of these operations contain no records? */
bool batch_is_void(struct op *const *ops, size_t op_count);

/* --- target.c --------------------------------------------------------------------------------- */

/* Both in the writeback thread; they return when the cut is durable, or the store stops. */
/* Chooses a target and carries it. */
void target_carry(struct commit *commit);
/* Makes a cut with the same state, without the packs to be dropped. False: the store is
 * stopping. */
bool target_carry_own(struct commit *commit, const struct drops *drops);
/* Are no operations pending, except those of files that were created and removed since? Writeback
 * thread only. */
bool target_is_void(struct history *history);

/* --- pieces.c --------------------------------------------------------------------------------- */

/* Where the writeback thread continues. */
struct pieces {
    struct commit *commit;
    struct stage_scattered gather_at; /* where gathering continues */
    bool has_gathered;                /* in the last round */
    uint64_t ino, next;               /* where the chunker continues */
    struct chunker state;
};
/* Makes room in the stage, if writers wait for it, or it is filling up. True: there is more to
 * do. */
bool pieces_relieve(struct pieces *pieces, bool waiting, bool filling_up);
void pieces_done(struct pieces *pieces);

/* --- writeback.c ------------------------------------------------------------------------------ */

struct writeback {
    pthread_t thread;
    bool thread_started;
    struct pool *workers; /* hash and encode */
};

CAIRN_MUST_CHECK int writeback_start(struct commit *commit);

/* --- lag.c ------------------------------------------------------------------------------------ */

/* The part of the journal that the view lacks (lag.c). */
struct lag {
    _Atomic bool exists; /* written by the writeback thread */
    uint64_t cut;        /* of the last missing batch */
    int64_t again_at;    /* when the next try is due; monotonic ns */
    int64_t wait_ns;     /* pause after the last attempt, which failed; 0: it succeeded */
    /* Files whose pinned version is durable; a file may be listed several times. */
    VECTOR(uint64_t) inos;
    VECTOR(uint64_t) drops; /* packs whose files are removed once the view has caught up */
};

/* The view cannot be written, and lacks durable batches. Writeback thread only, except
 * lag_exists(). */
/* The view could not apply this batch (`error`), which is durable. Its operations leave the list of
 * pending ones. */
void lag_add(struct commit *commit, uint64_t cut, const struct batch *batch,
             const struct drops *drops, int error);
/* Notes that the batch contains the pinned version of this file. */
void lag_add_version(struct lag *lag, uint64_t ino);
/* Tries once to bring the view up to the journal's end; on success releases everything held for
 * it. */
void lag_catch_up(struct commit *commit);
/* As lag_catch_up(), if it is due; also if no batch is missing, but the view's database has
 * failed. */
void lag_tick(struct commit *commit);
void lag_done(struct commit *commit);

/* --- new_view.c ------------------------------------------------------------------------------- */

/* A view that cannot be repaired. */
struct lost_view {
    _Atomic bool is_lost;
    const char *_Atomic stays; /* why it cannot be rebuilt, static; NULL: it can */
    int64_t examine_at;        /* monotonic ns; writeback thread only */
};

/* Notes the result of the writeback thread's last attempt to bring the view up to the journal. */
void new_view_note(struct commit *commit, int error);

/* --- upkeep.c --------------------------------------------------------------------------------- */

/* When rounds are due: writeback thread only, except the first fields. */
struct upkeep_state {
    const struct upkeep *list;          /* static */
    _Atomic uint64_t gc_asked, gc_done; /* requests for rounds of gc, by number */
    _Atomic bool gc_soon; /* packs can be dropped without waiting for the next regular round */
    /* when the work that was due at the mount begins; monotonic ns, 0: it has begun */
    int64_t tidy_at;
    int64_t gc_at;
    bool has_spared;  /* gc left unneeded packs, as there was room */
    uint64_t trimmed; /* horizon of the remote at the last trim of the journal */
};

void upkeep_begin(struct upkeep_state *upkeep);
/* True: progress was made, and there may be more to do. */
bool upkeep_rounds(struct commit *commit);

/* --- snapshot.c ------------------------------------------------------------------------------- */

struct snapshot {
    struct local *local;
    struct journal *journal;
    struct horizon *horizon;
    struct packs *packs;
    struct room *room;
    pthread_t thread;
    bool started;
    _Atomic bool done, stopping;
    int result;
    uint64_t count, cut, length; /* taken in this session; of the newest one; length of its run */
    uint64_t left;               /* bytes of the journal after the last trim */
    int64_t again_at;            /* retry after a failure; monotonic ns */
};

struct snapshot *snapshot_new(struct local *local, struct journal *journal, struct horizon *horizon,
                              struct packs *packs, struct room *room);
/* Both in the writeback thread, or when it has ended. */
/* Takes a snapshot if the journal is much longer than the state; right after a mount (not
 * `at_ease`), only if it is longer by far. */
void snapshot_tick(struct snapshot *snapshot, bool at_ease);
void snapshot_stop(struct snapshot *snapshot);
