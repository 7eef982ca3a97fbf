// SPDX-License-Identifier: Apache-2.0
/* Maintenance of the remote, as far as others can request it.
 *
 * gc.c      deletes objects that no head needs
 * runs.c    stores missing or damaged runs again
 * repair.c  rewrites packs that are missing, damaged, small or mostly dead
 * listed.c  finds missing packs by a listing
 * noted.c   records missing or damaged packs
 * suspects.c  checks the rest of these again
 * returned.c  searches for chunks that are in no tier, before an object is deleted
 *
 * Changes in the remote are made by the uploader's thread, between its rounds or at the beginning
 * of one: so no upload of ours is in progress meanwhile. */
#pragma once

#include "base/base.h"

struct remote;
struct snapshots;

/* The snapshots of any remote. */
struct snapshots *remote_snapshots(struct remote *remote);

/* --- gc.c ------------------------------------------------------------------------------------- */

/* A pass of gc for which a caller waits. */
struct remote_gc_request {
    bool dry_run; /* report, but delete nothing */
    /* reports what is deleted, and why; called in the uploader's thread */
    void (*say)(const char *line, void *arg);
    bool (*is_cancelled)(void *arg);
    void *arg;
    uint64_t objects, bytes; /* deleted, or to be deleted */
};

/* Any other thread: makes the uploader do a pass and waits for it. -ESHUTDOWN: it will not
 * (stopping, fenced, read-only); -ENOTCONN: the remote cannot be reached now; -ECANCELED. */
CAIRN_MUST_CHECK int remote_gc_ask(struct remote *remote, struct remote_gc_request *request);

/* --- runs.c ----------------------------------------------------------------------------------- */

/* Makes the uploader verify both objects of each run of the newest head, and store bad ones again.
 * remote_runs_are_scrubbed() is false until then. One caller at a time; any thread. */
void remote_scrub_runs(struct remote *remote);
CAIRN_MUST_CHECK bool remote_runs_are_scrubbed(struct remote *remote, uint64_t *ret_found,
                                               uint64_t *ret_healed);

/* --- repair.c --------------------------------------------------------------------------------- */

/* A pack of an earlier state is needed again, because a file was copied from it. The pack is mostly
 * dead until other files follow, so mostly dead packs are not emptied for 10 s. Any thread. */
void remote_note_claim(struct remote *remote);

/* --- noted.c ---------------------------------------------------------------------------------- */

/* The pack is missing (-ENOENT) or damaged in the remote: the next round rewrites its needed
 * chunks. Any thread. */
void remote_note_bad_pack(struct remote *remote, uint64_t pack, int error);
/* Is the pack recorded, and not yet handled by a round? */
bool remote_is_noted_pack(struct remote *remote, uint64_t pack);
/* Returns whether the pack is recorded or suspect, so that nothing may rely on it. */
bool remote_is_bad_pack(struct remote *remote, uint64_t pack);
/* Can it rewrite packs now? If not, bad packs stay bad. */
bool remote_can_repair(struct remote *remote);
/* Packs that could not be read when last checked, and the needed chunks with a place there. Any
 * thread. */
void remote_suspects(struct remote *remote, uint64_t *ret_packs, uint64_t *ret_chunks);

/* --- suspects.c ------------------------------------------------------------------------------- */

/* Makes the uploader check suspect packs again soon. Any thread. */
void remote_ask_again(struct remote *remote);
