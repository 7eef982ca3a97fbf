// SPDX-License-Identifier: Apache-2.0
/* Looking after what lies in the remote, as it can be asked for.
 *
 *   gc.c      objects that no head needs are deleted
 *   runs.c    runs that are missing or damaged are stored again
 *   repair.c  packs that are missing, damaged, small or mostly dead are written anew
 *
 * What changes the remote happens in the uploader's thread, between its rounds or at the beginning
 * of one: so nothing of ours is on its way meanwhile. */
#pragma once

#include "base/base.h"

struct remote;

/* --- gc.c ------------------------------------------------------------------------------------- */

/* A pass of gc that a caller waits for. */
struct remote_gc_request {
    bool dry_run;                             /* tell, delete nothing */
    void (*say)(const char *line, void *arg); /* what goes, and why; in the uploader's thread */
    bool (*is_cancelled)(void *arg);
    void *arg;
    uint64_t objects, bytes; /* deleted, or that would be */
};

/* Any other thread: has the uploader do a pass and waits for it. -ESHUTDOWN: it will not (stopping,
 * fenced, read-only); -ENOTCONN: the remote cannot be reached now; -ECANCELED. */
CAIRN_MUST_CHECK int remote_gc_ask(struct remote *remote, struct remote_gc_request *request);

/* --- runs.c ----------------------------------------------------------------------------------- */

/* Has the uploader verify both objects of each run of the newest head, and store again those that
 * are bad. remote_runs_are_scrubbed() is false until it has. One caller at a time; any thread. */
void remote_scrub_runs(struct remote *remote);
CAIRN_MUST_CHECK bool remote_runs_are_scrubbed(struct remote *remote, uint64_t *ret_found,
                                               uint64_t *ret_healed);

/* --- repair.c --------------------------------------------------------------------------------- */

/* The pack is missing or damaged in the remote: the next round writes anew what is needed of it.
 * Any thread. */
void remote_note_bad_pack(struct remote *remote, uint64_t pack, const char *why);
bool remote_is_bad_pack(struct remote *remote, uint64_t pack);
/* Can it write packs anew now? Where it cannot, what is bad stays so. */
bool remote_can_repair(struct remote *remote);
/* Chunks of bad packs that were nowhere, since the store was opened. */
uint64_t remote_lost_chunks(struct remote *remote);
