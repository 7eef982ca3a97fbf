// SPDX-License-Identifier: Apache-2.0
/* Inside remote/. The functions that fetch/ and store/ need are in life.h, state.h, chunks.h,
 * maintenance.h and follow.h.
 *
 * remote.c   its threads, from the opening of the store to its end
 * opening.c  whether the store can open without the remote
 * state.c    errors, waiters, whether it must stop
 * status.c   its status
 * claim.c    holding the prefix
 * renewer.c  the thread that renews the lease
 * get.c      its packs, for readers
 * again.c    packs that a reader without a mount did not find
 * upload.c   one thread that chooses cuts and carries them: packs (upload_packs.c), then the run,
 *            then the head
 * runs.c     runs: made from a cut, and merged
 * follow.c   the thread of a read-only mount, in place of the uploader's
 *
 * A head is published only when every pack and run that it names is in the remote; objects are
 * deleted only when a head that does not need them was published long ago. */
#pragma once

#include "base/cause.h"
#include "base/rate_limit.h"
#include "commit/run_lists.h"
#include "commit/shared.h"
#include "prefix/heads.h"
#include "prefix/runs.h"
#include "remote/chunks.h"
#include "remote/follow.h"
#include "remote/life.h"
#include "remote/remote.h"
#include "remote/state.h"
#include "view/remote.h"

struct view_cut;

#define SMALL_PACK_LEN (4 * MIB) /* packs with fewer bytes are merged later */

/* State shared by several threads. */
struct remote_shared {
    struct cairn_mutex lock; /* LOCK_WAITERS */
    pthread_cond_t changed;
    struct waiters waiters;
    uint64_t head_number, files, logical_bytes; /* of the newest head */
    enum remote_state state;
    bool stopping, drain, kicked, fenced, renewer_done;
    bool has_left;                    /* the node has left the common prefix, or may not leave it */
    struct follow_step *follow;       /* request to the writeback thread */
    uint64_t looks_begun, looks_done; /* checks for a newer head */
    bool looks_ended;
    int64_t urge_until;
    uint64_t target_bytes;
    uint64_t errors;
    char error[CAUSE_MAX];
    int64_t error_ns, unreachable_ns; /* monotonic; 0: never */
};

/* Watches a start that may be cancelled: watch.c. */
struct remote_watch {
    struct cairn_mutex lock; /* a leaf */
    pthread_cond_t ended;
    bool over;
    bool started; /* opening thread only, as is the next */
    pthread_t thread;
};

/* Progress of the upload; writeback thread only. */
struct remote_relief {
    uint64_t uploaded, horizon;
    int64_t at; /* when these last changed */
};

/* State of its runs; uploader's thread only, except the atomic. */
struct remote_runs {
    int64_t due_at; /* monotonic ns: no earlier */
    _Atomic enum run_scrub { RUN_SCRUB_NONE, RUN_SCRUB_ASKED, RUN_SCRUB_DONE } scrub;
    uint64_t unreadable_head; /* the last head of which a run was found lost, which was logged */
};

struct remote {
    struct store *store;
    struct remote_options options;
    struct prefix prefix;
    bool was_here; /* this store has published there before */

    struct remote_runs runs;

    struct remote_shared shared;

    pthread_t uploader, renewer;
    bool uploader_started, renewer_started;
    struct pool *senders;   /* sending one pack each */
    struct pool *notifiers; /* read_only: one thread that notifies the kernel of changes */
    struct remote_maintenance *maintenance; /* maintenance.h */
    struct snapshots *snapshots;
    struct remote_relief relief; /* writeback thread only */
    struct missing *missing;     /* again.c; NULL unless this is a reader without a mount */
    struct rate_limit limit;
    struct remote_watch watch;
    int64_t patience_ns; /* of the tier, while no caller waits */
    _Atomic uint64_t next_run;
    _Atomic uint64_t merged_total; /* bytes of packs read for merging */
    struct encode_totals encoded;  /* chunks encoded for the remote */
    /* Damaged chunks: the newest head of this mount refers to them without a place. */
    _Atomic uint64_t damaged_chunks;
};

/* --- again.c ---------------------------------------------------------------------------------- */

struct missing *missing_new(void);
void missing_free(struct missing *missing); /* NULL is fine */

/* --- claim.c ---------------------------------------------------------------------------------- */

/* After recovery: creates the prefix, and a head that states that this store holds it. May be
 * repeated. */
CAIRN_MUST_CHECK int remote_claim(struct remote *remote, char **ret_text);
void remote_head_published(struct remote *remote, const struct head *head);
/* Errors of head_put(); after -ESTALE the remote is fenced. */
CAIRN_MUST_CHECK int remote_publish_head(struct remote *remote, struct head *head);
void remote_fence(struct remote *remote, const struct head *theirs);
/* Stops publishing from this mount; the reason was logged. */
void remote_give_up(struct remote *remote);
/* Call when the remote has answered. */
void remote_works(struct remote *remote);
void remote_advance(struct remote *remote, uint64_t cut);
/* Ends all waits for the remote with -ESHUTDOWN. */
void remote_release_waiters(struct remote *remote);
static inline struct remote *remote_of(struct store *store)
{
    return store->remote;
}
bool remote_is_urged(struct remote *remote);
/* Does a caller wait for an upload? */
bool remote_is_awaited_locked(struct remote *remote);
/* Starts or ends the subscription to union heads, by which waiters of a node are served. False: on
 * return no call is in progress. */
void remote_hear_union(struct remote *remote, bool hears);
/* Waits until `upload_limit` admits `bytes` more. False: the upload must stop. */
CAIRN_MUST_CHECK bool remote_limit_wait(struct remote *remote, uint64_t bytes);
/* Call with the lock of `shared` when that has changed: lifts the limit while a caller waits, or
 * while it drains or stops. */
void remote_settle_limit_locked(struct remote *remote);
/* Wakes up the remote's thread. With the lock of `shared`. */
void remote_kick_locked(struct remote *remote);
/* Was it woken up, or must the thread stop? */
bool remote_is_called(struct remote *remote);
/* For the remote's thread: waits until it is woken up, or for `ms`. False: the store is
 * stopping. */
bool remote_pause(struct remote *remote, int64_t ms);
/* Limits the waits for the remote at a mount that can do without it. */
void remote_be_brief(struct remote *remote, bool brief);
/* Accepts the state that the view knows to be published, if this is the remote where it was
 * published. With a rebuilt view this happens later, when its packs were looked for. */
void remote_resume(struct remote *remote);
/* Notes in the view, which has the newest head's state, the head's number. */
CAIRN_MUST_CHECK int remote_note_head(struct remote *remote);

/* --- renewer.c -------------------------------------------------------------------------------- */

void *renewer_main(void *remote);

/* --- runs.c ----------------------------------------------------------------------------------- */

/* Writes the rows of the cut as a run: a file in STORE/runs, and in the remote. It may be merged
 * with runs of `head` that are no larger: head->runs becomes the new list. *ret_is_news false: the
 * cut contains nothing new compared to the head. */
CAIRN_MUST_CHECK int runs_publish(struct remote *remote, struct view_cut *cut, struct head *head,
                                  bool *ret_is_news, uint64_t *ret_missing);
/* Between two rounds: stores missing or damaged runs of the newest head again, if allowed. Errors
 * are logged, and retried. */
void runs_tick(struct remote *remote);

/* --- upload.c --------------------------------------------------------------------------------- */

void *upload_main(void *remote);
/* Most memory used by its rounds, including those that read the remote. */
uint64_t upload_memory(const struct remote *remote);

/* --- follow.c --------------------------------------------------------------------------------- */

void *follow_main(void *remote);
