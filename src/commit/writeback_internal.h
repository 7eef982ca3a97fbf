// SPDX-License-Identifier: Apache-2.0
/* The writeback thread (writeback.c) and its work: targets (target.c), the content of versions
 * (content.c), records (batch.c), what the view lacks (lag.c), pieces of drafts (pieces.c), and its
 * work between targets (upkeep.c, snapshot.c). */
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
/* One stretch of parts; the chunker in and out. Borders are in `extents`; the rest of the stretch
 * was held back if `more`. */
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
    VECTOR(uint64_t) packs; /* ids that it names */
};
/* Packs that go with a batch. */
struct drops {
    const uint64_t *ids;
    size_t count;
    uint32_t flags; /* RECORD_EVICTED */
};
/* All that a batch is made of. */
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
/* Would a batch of these operations write nothing? */
bool batch_is_void(struct op *const *ops, size_t op_count);

/* --- target.c --------------------------------------------------------------------------------- */

/* Both in the writeback thread; they return when the cut is durable, or the store stops. */
/* Chooses a target and carries it. */
void target_carry(struct commit *commit);
/* A cut with the same state, without the packs that are to be dropped. False: the store stops. */
bool target_carry_own(struct commit *commit, const struct drops *drops);
/* No operation is pending, but such of files that lived and died since. For the
 * writeback thread. */
bool target_is_void(struct history *history);

/* --- pieces.c --------------------------------------------------------------------------------- */

/* Where the writeback thread goes on. */
struct pieces {
    struct commit *commit;
    struct stage_scattered gather_at; /* where gathering goes on */
    bool has_gathered;                /* in the last round */
    uint64_t ino, next;               /* where the chunker goes on */
    struct chunker state;
};
/* Room in the stage, where writers wait for it, or it is filling up. True: there is more. */
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
    _Atomic bool exists; /* changed by the writeback thread */
    uint64_t cut;        /* of the last batch that it lacks */
    int64_t again_at;    /* when the next try is due; monotonic ns */
    int64_t wait_ns;     /* after the last, which failed; 0: it did not */
    /* Files whose pinned version is durable; a file may be there several times. */
    VECTOR(uint64_t) inos;
    VECTOR(uint64_t) drops; /* packs whose files go when the view has it */
};

/* The view cannot be written, and lacks batches that are durable. For the writeback thread alone,
 * but lag_exists(). */
/* The view did not take this batch (`error`), which is durable. Its operations leave the list of
 * what is pending. */
void lag_add(struct commit *commit, uint64_t cut, const struct batch *batch,
             const struct drops *drops, int error);
/* The pinned version of this file is in that batch. */
void lag_add_version(struct lag *lag, uint64_t ino);
/* Tries once to bring the view up to the journal's end; on success releases what waits for it. */
void lag_catch_up(struct commit *commit);
/* The same, where it is due; also where no batch is missing, but the view's database has failed. */
void lag_tick(struct commit *commit);
void lag_done(struct commit *commit);

/* --- new_view.c ------------------------------------------------------------------------------- */

/* The view, when it is beyond mending. */
struct lost_view {
    _Atomic bool is_lost;
    const char *_Atomic stays; /* why it cannot be made anew, static; NULL: it can */
    int64_t examine_at;        /* monotonic ns; the writeback thread's */
};

/* The result of the writeback thread's last try to bring the view up to the journal. */
void new_view_note(struct commit *commit, int error);

/* --- upkeep.c --------------------------------------------------------------------------------- */

/* When rounds are due: the writeback thread's alone, but for the first. */
struct upkeep_state {
    const struct upkeep *list;          /* static */
    _Atomic uint64_t gc_asked, gc_done; /* rounds of gc that a caller waits for, by number */
    _Atomic bool gc_soon; /* there are packs to be dropped that need not wait for their turn */
    int64_t tidy_at;      /* when what was due at the mount begins; monotonic ns, 0: it has begun */
    int64_t gc_at;
    bool has_spared;  /* gc left packs that nothing needs, since there was room */
    uint64_t trimmed; /* horizon of the remote at the last trim of the journal */
};

void upkeep_begin(struct upkeep_state *upkeep);
/* True: something was done, and there may be more. */
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
    uint64_t count, cut, length; /* taken in this session; of the newest, and its run's length */
    uint64_t left;               /* bytes of the journal after the last trim */
    int64_t again_at;            /* after a failure; monotonic ns */
};

struct snapshot *snapshot_new(struct local *local, struct journal *journal, struct horizon *horizon,
                              struct packs *packs, struct room *room);
/* Both in the writeback thread, or when it has ended. */
/* Takes one if the journal is much longer than the state; not `at_ease`, right after a mount: only
 * if it is longer by far. */
void snapshot_tick(struct snapshot *snapshot, bool at_ease);
void snapshot_stop(struct snapshot *snapshot);
