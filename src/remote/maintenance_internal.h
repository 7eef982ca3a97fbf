// SPDX-License-Identifier: Apache-2.0
/* Inside looking after the remote: its state, and the uploader's part of it. */
#pragma once

#include "base/vector.h"
#include "remote/internal.h"
#include "remote/maintenance.h"

#define BAD_PACKS_MAX 1024u

struct bad_pack {
    uint64_t pack;
    bool is_rewritten; /* and the head that says so is still to come */
};

struct remote_maintenance {
    struct cairn_mutex lock;            /* LOCK_LEAF */
    struct bad_pack bad[BAD_PACKS_MAX]; /* packs to be written anew: missing or damaged */
    size_t bad_count;
    struct remote_gc_request *request;
    enum { REMOTE_GC_NONE, REMOTE_GC_ASKED, REMOTE_GC_RUNNING } gc;
    int gc_result;
    uint64_t lost_chunks; /* of bad packs: that were nowhere, total */

    /* The uploader's alone. */
    int64_t gc_at, repair_at; /* monotonic ns: not before */
    uint64_t relocated;       /* bytes of mostly dead packs, total */
    bool is_deferred;         /* something was left to be merged */
    int64_t tidy_at;          /* monotonic ns: not before */
};

struct remote_maintenance *remote_maintenance_new(void);
void remote_maintenance_free(struct remote_maintenance *maintenance);

/* --- gc.c ------------------------------------------------------------------------------------- */

/* Between two rounds: a pass, if it is time or was asked for. -ESTALE: the prefix is not ours any
 * more, and the remote fenced; anything else is said and tried again. */
CAIRN_MUST_CHECK int remote_gc_tick(struct remote *remote);

/* --- repair.c --------------------------------------------------------------------------------- */

/* A merge was not made, since a caller waits: a round of its own makes up for it once none did
 * for a while. */
void remote_defer_merge(struct remote *remote);
/* Is there something to be repaired, or was left to be merged, so that a round is worth it though
 * nothing else changed? */
bool remote_repair_is_due(struct remote *remote);

/* Chunks that a round writes anew before it chooses its cut: live chunks of packs that are bad,
 * small and many, or mostly dead. Their new place counts at once; the old packs are then dead at
 * the cut and unreferenced with its head. */
struct repair_plan {
    struct chunk_entry *list; /* places on NVMe; pack 0: none */
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
