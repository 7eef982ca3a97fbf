// SPDX-License-Identifier: Apache-2.0
/* Inside maintenance: its state, and the uploader's part of it. */
#pragma once

#include <uthash.h>

#include "base/vector.h"
#include "remote/internal.h"
#include "remote/maintenance.h"
#include "snapshots/snapshots.h"

#define NOTED_MAX 65536u /* packs */

struct noted_pack {
    UT_hash_handle hh;
    uint64_t pack;
    bool was_missing;  /* otherwise damaged */
    bool is_rewritten; /* its chunks are rewritten, but no head says so yet */
};

struct remote_maintenance {
    struct cairn_mutex lock;  /* LOCK_LEAF */
    struct noted_pack *noted; /* packs to be rewritten: missing or damaged */
    struct remote_gc_request *request;
    enum { REMOTE_GC_NONE, REMOTE_GC_ASKED, REMOTE_GC_RUNNING } gc;
    int gc_result;

    _Atomic bool is_asked; /* a pass over suspect packs is requested now */
    /* monotonic ns: the last remote_note_claim(), and the first of those in a row; 0: none */
    _Atomic int64_t claimed_at, claiming_since;

    /* Uploader's thread only. */
    int64_t gc_at, repair_at; /* monotonic ns: no earlier */
    uint64_t relocated;       /* total bytes of mostly dead packs that were emptied */
    bool is_deferred;         /* a merge was postponed */
    int64_t tidy_at;          /* monotonic ns: no earlier */
    VECTOR(uint64_t) asking;  /* suspect packs of this pass; the first `asked` are done */
    size_t asked;
    int64_t ask_at, ask_pause; /* when the next pass is due; the pause before it */
    int64_t asked_at;          /* earliest time of a requested pass */
    bool must_look;            /* nothing counts as published before listed_look() */
    bool is_unsure;            /* STORE/unlisted exists */
    bool has_returned;         /* packs are in the view again, and the next head must name them */
    bool is_untold;            /* there may be marks without an operation, or left from before */
};

struct remote_maintenance *remote_maintenance_new(void);
void remote_maintenance_free(struct remote_maintenance *maintenance);

/* --- noted.c ---------------------------------------------------------------------------------- */

/* False: it is recorded already, or there is no room. */
bool noted_add(struct remote *remote, uint64_t pack, int error);
/* Lists recorded packs that a round must rewrite; returns their number, `max` at most. */
size_t noted_list(struct remote *remote, uint64_t *ids, size_t max);
bool noted_any(struct remote *remote);
/* Was the recorded pack missing, rather than damaged? */
bool noted_was_missing(struct remote *remote, uint64_t pack);
/* A round has handled the recorded pack: chunks that could be read have a new place, or need
 * none. */
void noted_rewritten(struct remote *remote, uint64_t pack);

/* --- listed.c --------------------------------------------------------------------------------- */

/* A listing of existing packs. */
struct pack_listing {
    struct remote *remote;
    VECTOR(uint64_t) packs; /* those that the view knows */
};
/* Notes an existing pack with its length; a wrong length makes it bad. -ENOENT: unknown to the
 * view. */
CAIRN_MUST_CHECK int listed_note(struct pack_listing *listed, uint64_t pack, uint64_t length);
/* Call when all are noted: checks each needed pack that is not among them, and records it as bad if
 * it is missing. */
CAIRN_MUST_CHECK int listed_find_missing(struct pack_listing *listed);
void listed_done(struct pack_listing *listed);
/* Makes such a listing; errors are logged. *ret_counts_now: the state counts as published now;
 * otherwise there are also packs that no head names, and it counts after the next head. */
CAIRN_MUST_CHECK int listed_look(struct remote *remote, bool *ret_counts_now);
/* Call before chunks of bad packs are moved: a start before the next head must not count them as
 * published. */
CAIRN_MUST_CHECK int listed_doubt(struct remote *remote);
/* Removes STORE/unlisted, once the results of the listing are durably in the view, or published. */
void listed_settle(struct remote *remote);

/* --- suspects.c ------------------------------------------------------------------------------- */

/* *ret_is_suspect: needed chunks left in the pack can be read nowhere, so it is marked as suspect,
 * durably with the next view_flush(). Without such chunks does nothing. */
CAIRN_MUST_CHECK int suspects_leave(struct remote *remote, uint64_t pack, bool *ret_is_suspect);
/* Between two rounds: checks some of the suspect packs again, if it is time. */
void suspects_tick(struct remote *remote);

/* --- returned.c ------------------------------------------------------------------------------- */

struct returned {
    struct remote *remote;
    bool dry_run;
    VECTOR(struct chunk_name) lost; /* chunks that are in no tier, by name */
    unsigned looks;
};
CAIRN_MUST_CHECK int returned_begin(struct returned *ret, struct remote *remote, bool dry_run);
/* Returns whether the pack's object must stay, since it contains, or may contain, a lost chunk. If
 * so, such chunks get their places there again. */
bool returned_keeps(struct returned *returned, uint64_t pack);
void returned_done(struct returned *returned);

/* --- gc.c ------------------------------------------------------------------------------------- */

/* Between two rounds: makes a pass if it is time, or one was requested. -ESTALE: the prefix is no
 * longer ours, and the remote is fenced; other errors are logged and retried. */
CAIRN_MUST_CHECK int remote_gc_tick(struct remote *remote);

/* Call before something is deleted. -ESTALE: another writer has the prefix, and the remote is
 * fenced; -EAGAIN: the newest head is not one that we know to be published. */
CAIRN_MUST_CHECK int gc_check_ours(struct remote *remote);

/* --- repair.c --------------------------------------------------------------------------------- */

/* A merge was postponed because a caller waits: a separate round makes up for it when no caller has
 * waited for a while. */
void remote_defer_merge(struct remote *remote);
/* Before the first round: finds marks left by an earlier session, so that the next head covers them
 * even without an operation. A chunk with a mark cannot be evicted. */
void remote_look_for_untold(struct remote *remote);
/* Is there something to repair or to publish, or a postponed merge, which justifies a round without
 * other changes? */
bool remote_repair_is_due(struct remote *remote);

/* Chunks that a round rewrites before it chooses its cut: live chunks of packs that are bad, small
 * and numerous, or mostly dead. Their new place is used at once; the old packs are then dead at the
 * cut and unreferenced with its head. */
struct repair_plan {
    struct upload_chunk *list; /* with places in the remote; units are its packs */
    size_t count, max;
    VECTOR(uint64_t) packs; /* the first `bad_count` are bad */
    size_t bad_count;
    uint64_t bytes;
};
CAIRN_MUST_CHECK int repair_plan_make(struct remote *remote, size_t max_chunks,
                                      struct repair_plan *ret);
/* All chunks of the plan that can be read have their new place; `unread` could not be read. */
CAIRN_MUST_CHECK int repair_plan_carried(struct remote *remote, const struct repair_plan *plan,
                                         uint64_t unread);
/* A round has ended with a head: rewritten chunks are published. */
void repair_round_done(struct remote *remote);
/* A plan could not be carried out: delays the next attempt. */
void repair_plan_failed(struct remote *remote);
void repair_plan_done(struct repair_plan *plan);
