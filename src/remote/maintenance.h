// SPDX-License-Identifier: Apache-2.0
/* Looking after what lies in the remote, as it can be asked for.
 *
 *   gc.c      objects that no head needs are deleted
 *   runs.c    runs that are missing or damaged are stored again
 *   repair.c  packs that are missing, damaged, small or mostly dead are written anew
 *   listed.c  packs that are missing are found by a listing
 *   noted.c   packs that are missing or damaged
 *   suspects.c  what is left of them is asked for again
 *   returned.c  chunks that nothing has any more are looked for before an object is deleted
 *
 * What changes the remote happens in the uploader's thread, between its rounds or at the beginning
 * of one: so nothing of ours is on its way meanwhile. */
#pragma once

#include "base/base.h"

struct numbers;
struct remote;
struct snapshots;
struct view_remote_pack;

/* Of any remote. */
struct snapshots *remote_snapshots(struct remote *remote);

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

/* Adds the heads that stay for longer than the grace and need the pack, which is unreferenced: as
 * the last pass knew them. Any thread. */
void remote_states_that_need(struct remote *remote, const struct view_remote_pack *pack,
                             struct numbers *ret);

/* --- runs.c ----------------------------------------------------------------------------------- */

/* Has the uploader verify both objects of each run of the newest head, and store again those that
 * are bad. remote_runs_are_scrubbed() is false until it has. One caller at a time; any thread. */
void remote_scrub_runs(struct remote *remote);
CAIRN_MUST_CHECK bool remote_runs_are_scrubbed(struct remote *remote, uint64_t *ret_found,
                                               uint64_t *ret_healed);

/* --- repair.c --------------------------------------------------------------------------------- */

/* A pack of an earlier state counts again, because a file was copied from it. The pack is mostly
 * dead until the other files follow, so mostly dead packs are not emptied for 10 s. Any thread. */
void remote_note_claim(struct remote *remote);

/* --- noted.c ---------------------------------------------------------------------------------- */

/* The pack is missing (-ENOENT) or damaged in the remote: the next round writes anew what is needed
 * of it. Any thread. */
void remote_note_bad_pack(struct remote *remote, uint64_t pack, int error);
/* Is a round still to look at it? */
bool remote_is_noted_pack(struct remote *remote, uint64_t pack);
/* Is it noted or suspect, so that nothing may rely on it? */
bool remote_is_bad_pack(struct remote *remote, uint64_t pack);
/* Can it write packs anew now? Where it cannot, what is bad stays so. */
bool remote_can_repair(struct remote *remote);
/* Packs that could not be read when they were asked for last, and the needed chunks that have their
 * place there. Any thread. */
void remote_suspects(struct remote *remote, uint64_t *ret_packs, uint64_t *ret_chunks);

/* --- suspects.c ------------------------------------------------------------------------------- */

/* Has the uploader ask for suspect packs again, soon. Any thread. */
void remote_ask_again(struct remote *remote);
