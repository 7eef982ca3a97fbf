// SPDX-License-Identifier: Apache-2.0
/* Inside looking after the remote: its state, and the uploader's part of it. */
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
    bool was_missing;  /* else damaged */
    bool is_rewritten; /* and the head that says so is still to come */
};

struct remote_maintenance {
    struct cairn_mutex lock;  /* LOCK_LEAF */
    struct noted_pack *noted; /* packs to be written anew: missing or damaged */
    struct remote_gc_request *request;
    enum { REMOTE_GC_NONE, REMOTE_GC_ASKED, REMOTE_GC_RUNNING } gc;
    int gc_result;

    _Atomic bool is_asked; /* for a pass over suspect packs, now */
    /* monotonic ns: the newest remote_note_claim(), and the first of those in a row; 0: none */
    _Atomic int64_t claimed_at, claiming_since;

    /* The uploader's alone. */
    int64_t gc_at, repair_at; /* monotonic ns: not before */
    uint64_t relocated;       /* bytes of mostly dead packs, total */
    bool is_deferred;         /* something was left to be merged */
    int64_t tidy_at;          /* monotonic ns: not before */
    VECTOR(uint64_t) asking;  /* suspect packs of this pass; the first `asked` are done */
    size_t asked;
    int64_t ask_at, ask_pause; /* the next pass is due; the pause before it */
    int64_t asked_at;          /* one that is asked for: not before */
    bool must_look;            /* nothing counts as published before listed_look() */
    bool is_unsure;            /* STORE/unlisted is there */
    bool has_returned;         /* packs are in the view again, which the next head has to say */
    bool is_untold; /* there may be marks that came with no operation, or were left behind */
};

struct remote_maintenance *remote_maintenance_new(void);
void remote_maintenance_free(struct remote_maintenance *maintenance);

/* --- noted.c ---------------------------------------------------------------------------------- */

/* False: it is noted already, or there is no room. */
bool noted_add(struct remote *remote, uint64_t pack, int error);
/* Noted packs that a round has to write anew; returns how many, `max` at most. */
size_t noted_list(struct remote *remote, uint64_t *ids, size_t max);
bool noted_any(struct remote *remote);
/* Was the noted pack missing, not damaged? */
bool noted_was_missing(struct remote *remote, uint64_t pack);
/* A round has looked at the noted pack: what could be read has its new place, or needs none. */
void noted_rewritten(struct remote *remote, uint64_t pack);

/* --- listed.c --------------------------------------------------------------------------------- */

/* A listing of packs that are there. */
struct pack_listing {
    struct remote *remote;
    VECTOR(uint64_t) packs; /* that the view knows */
};
/* A pack is there, and so long; one of another length is bad. -ENOENT: the view does not know it.
 */
CAIRN_MUST_CHECK int listed_note(struct pack_listing *listed, uint64_t pack, uint64_t length);
/* All are noted: what is needed and not among them is asked for, and bad if it is missing. */
CAIRN_MUST_CHECK int listed_find_missing(struct pack_listing *listed);
void listed_done(struct pack_listing *listed);
/* Makes such a listing; anything that goes wrong is said. *ret_counts_now: the state counts as
 * published; else there are packs, too, that no head names, and it does so with the next head. */
CAIRN_MUST_CHECK int listed_look(struct remote *remote, bool *ret_counts_now);
/* Before chunks of bad packs are moved: a start before the next head must not count them as
 * published. */
CAIRN_MUST_CHECK int listed_doubt(struct remote *remote);
/* Removes STORE/unlisted, once what the listing found is in the view, durably, or published. */
void listed_settle(struct remote *remote);

/* --- suspects.c ------------------------------------------------------------------------------- */

/* *ret_is_suspect: needed chunks that are left in the pack can be read nowhere, so it is suspect,
 * durably with the next view_flush(). Without such chunks nothing happens. */
CAIRN_MUST_CHECK int suspects_leave(struct remote *remote, uint64_t pack, bool *ret_is_suspect);
/* Between two rounds: asks for some of the suspect packs again, if it is time. */
void suspects_tick(struct remote *remote);

/* --- returned.c ------------------------------------------------------------------------------- */

struct returned {
    struct remote *remote;
    bool dry_run;
    VECTOR(struct chunk_name) lost; /* chunks that no tier has, by name */
    unsigned looks;
};
CAIRN_MUST_CHECK int returned_begin(struct returned *ret, struct remote *remote, bool dry_run);
/* Must the pack's object stay, since it holds a lost chunk, or may hold one? Such chunks have their
 * places there again then. */
bool returned_keeps(struct returned *returned, uint64_t pack);
void returned_done(struct returned *returned);

/* --- gc.c ------------------------------------------------------------------------------------- */

/* Between two rounds: a pass, if it is time or was asked for. -ESTALE: the prefix is not ours any
 * more, and the remote fenced; anything else is said and tried again. */
CAIRN_MUST_CHECK int remote_gc_tick(struct remote *remote);

/* Before something is deleted. -ESTALE: another writer has the prefix, and the remote is fenced;
 * -EAGAIN: the newest head is none that we know to be published. */
CAIRN_MUST_CHECK int gc_check_ours(struct remote *remote);

/* --- repair.c --------------------------------------------------------------------------------- */

/* A merge was not made, since a caller waits: a round of its own makes up for it once none did
 * for a while. */
void remote_defer_merge(struct remote *remote);
/* Before the first round: marks that a session before left are told with the next head, though no
 * operation follows. What has a mark cannot be evicted. */
void remote_look_for_untold(struct remote *remote);
/* Is there something to be repaired or told, or was left to be merged, so that a round is worth it
 * though nothing else changed? */
bool remote_repair_is_due(struct remote *remote);

/* Chunks that a round writes anew before it chooses its cut: live chunks of packs that are bad,
 * small and many, or mostly dead. Their new place counts at once; the old packs are then dead at
 * the cut and unreferenced with its head. */
struct repair_plan {
    struct upload_chunk *list; /* places in the remote; units are its packs */
    size_t count, max;
    VECTOR(uint64_t) packs; /* the first `bad_count` are bad */
    size_t bad_count;
    uint64_t bytes;
};
CAIRN_MUST_CHECK int repair_plan_make(struct remote *remote, size_t max_chunks,
                                      struct repair_plan *ret);
/* All chunks of the plan that can be read anywhere have their new place; `unread` could not be. */
CAIRN_MUST_CHECK int repair_plan_carried(struct remote *remote, const struct repair_plan *plan,
                                         uint64_t unread);
/* A round ended in a head: what was rewritten is so in the remote. */
void repair_round_done(struct remote *remote);
/* Notes that a plan could not be carried now: not again at once. */
void repair_plan_failed(struct remote *remote);
void repair_plan_done(struct repair_plan *plan);
