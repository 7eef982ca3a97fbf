// SPDX-License-Identifier: Apache-2.0
/* Inside the store: looking after what lies in the remote.
 *
 *   gc.c      objects that no head needs are deleted
 *   repair.c  packs that are missing, damaged, small or mostly dead are written anew
 *
 * What changes the remote happens in the uploader's thread, between its rounds or at the beginning
 * of one: so nothing of ours is on its way meanwhile. */
#pragma once

#include "remote/internal.h"

#define FAR_BAD_MAX 1024u

/* A pass of gc that somebody waits for. */
struct far_gc_request {
    bool dry_run;                             /* tell, delete nothing */
    void (*say)(const char *line, void *arg); /* what goes, and why; in the uploader's thread */
    bool (*is_cancelled)(void *arg);
    void *arg;
    uint64_t objects, bytes; /* deleted, or that would be */
};

struct far_bad {
    uint64_t pack;
    bool is_rewritten; /* and the head that says so is still to come */
};

struct far_care {
    struct cairn_mutex lock; /* LOCK_LEAF */
    pthread_cond_t changed;
    struct far_bad bad[FAR_BAD_MAX]; /* packs to be written anew: missing or damaged */
    size_t bad_count;
    struct far_gc_request *request;
    enum { FAR_GC_NONE, FAR_GC_ASKED, FAR_GC_RUNNING } gc;
    int gc_result;
    uint64_t lost_chunks; /* of bad packs: that were nowhere, total */

    /* The uploader's alone. */
    int64_t gc_at, repair_at; /* monotonic ns: not before */
    uint64_t relocated;       /* bytes of mostly dead packs, total */
    bool is_deferred;         /* something was left to be merged */
    int64_t tidy_at;          /* monotonic ns: not before */
};

struct far_care *far_care_new(void);
void far_care_free(struct far_care *care);

/* --- gc.c ------------------------------------------------------------------------------------- */

/* Between two rounds: a pass, if it is time or was asked for. -ESTALE: the prefix is not ours any
 * more, and the remote fenced; anything else is said and tried again. */
CAIRN_MUST_CHECK int far_gc_tick(struct remote *remote);
/* Any other thread: has the uploader do a pass and waits for it. -ESHUTDOWN: it will not (stopping,
 * fenced, read-only); -ENOTCONN: the remote cannot be reached now; -ECANCELED. */
CAIRN_MUST_CHECK int far_gc_ask(struct remote *remote, struct far_gc_request *request);

/* --- repair.c --------------------------------------------------------------------------------- */

/* The pack is missing or damaged in the remote: the next round writes anew what is needed of it.
 * Any thread. */
void far_note_bad(struct remote *remote, uint64_t pack, const char *why);
bool far_is_bad(struct remote *remote, uint64_t pack);
/* A merge was not made, since somebody waits: a round of its own makes up for it once nobody did
 * for a while. */
void far_defer(struct remote *remote);
/* Is there something to be repaired, or was left to be merged, so that a round is worth it though
 * nothing else changed? */
bool far_wants_round(struct remote *remote);

/* What a round writes anew before it chooses its cut: live chunks of packs that are bad, small and
 * many, or mostly dead. Their new place counts at once; the old packs are then dead at the cut and
 * doomed with its head. */
struct far_plan {
    struct chunk_entry *list; /* places on NVMe; pack 0: none */
    size_t count, max;
    uint64_t *packs; /* the first `bad_count` are bad */
    size_t pack_count, bad_count;
    uint64_t bytes;
};
CAIRN_MUST_CHECK int far_plan_make(struct remote *remote, size_t max_chunks, struct far_plan *ret);
/* All chunks of the plan that can be read anywhere have their new place; `unread` could not be. */
CAIRN_MUST_CHECK int far_plan_carried(struct remote *remote, const struct far_plan *plan,
                                      uint64_t unread);
/* A round ended in a head: what was rewritten is so in the remote. */
void far_round_done(struct remote *remote);
/* It could not be carried now: not again at once. */
void far_plan_failed(struct remote *remote);
void far_plan_done(struct far_plan *plan);
