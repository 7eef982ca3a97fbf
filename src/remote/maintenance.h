// SPDX-License-Identifier: Apache-2.0
/* Looking after what lies in the remote, as it can be asked for.
 *
 *   kept.c    which heads stay for longer than the grace
 *   naming.c  snapshots with names
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

struct remote;

/* --- gc.c ------------------------------------------------------------------------------------- */

/* Of the last pass: calls `fn` with each head that stays for longer than the grace, and the bytes
 * of packs that no other head needs. Any thread. */
void remote_kept_each(struct remote *remote, void (*fn)(uint64_t head, uint64_t bytes, void *arg),
                      void *arg);

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

/* --- naming.c --------------------------------------------------------------------------------- */

struct naming {
    enum { NAMING_CREATE, NAMING_RENAME, NAMING_DELETE } kind;
    char name[64], new_name[64]; /* sane ones: format/snapshot.h */
    uint64_t seq;                /* NAMING_CREATE: the head has this operation */
};
struct naming_state {
    uint64_t number; /* of the last request; 0: there was none */
    bool running;
    int error;
    char text[256];    /* why, where there was an error */
    uint64_t head;     /* that has the name now */
    int64_t published; /* that head was; ns since 1970 */
};
/* Any thread: has the uploader do it. -EBUSY: it has another one to do; -EROFS: a mount that only
 * reads; -EOPNOTSUPP: several nodes write the prefix. */
CAIRN_MUST_CHECK int remote_naming_start(struct remote *remote, const struct naming *naming,
                                         uint64_t *ret_number);
void remote_naming_look(struct remote *remote, struct naming_state *ret);

/* --- runs.c ----------------------------------------------------------------------------------- */

/* Has the uploader verify both objects of each run of the newest head, and store again those that
 * are bad. remote_runs_are_scrubbed() is false until it has. One caller at a time; any thread. */
void remote_scrub_runs(struct remote *remote);
CAIRN_MUST_CHECK bool remote_runs_are_scrubbed(struct remote *remote, uint64_t *ret_found,
                                               uint64_t *ret_healed);

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
