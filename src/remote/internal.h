// SPDX-License-Identifier: Apache-2.0
/* Inside the store: the remote tier. What fetch/ and store/ need of it is in life.h, state.h,
 * chunks.h, maintenance.h and follow.h.
 *
 *   remote.c   its threads, from the opening of the store to its end
 *   opening.c  whether an opening can do without it
 *   state.c    errors, its waiters, whether it is to stop
 *   status.c   what is told of it
 *   claim.c    the store holds its prefix
 *   renewer.c  the thread that renews the lease
 *   get.c      its packs, for readers
 *   again.c    packs that a reader without a mount did not find
 *   upload.c   one thread that chooses cuts and carries them: packs (upload_packs.c), then the run,
 *              then the head
 *   runs.c     runs: made of a cut, and merged
 *   follow.c   the thread of a mount that only reads, instead of the uploader's
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

#define SMALL_PACK_LEN (4 * MIB) /* packs of fewer bytes are merged some day */

/* State that several threads share. */
struct remote_shared {
    struct cairn_mutex lock; /* LOCK_WAITERS */
    pthread_cond_t changed;
    struct waiters waiters;
    uint64_t head_number, files, logical_bytes; /* of the newest head */
    enum remote_state state;
    bool stopping, drain, kicked, fenced, renewer_done;
    bool has_left;                    /* the common prefix of several nodes, or may not */
    struct follow_step *follow;       /* for the writeback thread */
    uint64_t looks_begun, looks_done; /* for a newer head */
    bool looks_ended;
    int64_t urge_until;
    uint64_t target_bytes;
    uint64_t errors;
    char error[CAUSE_MAX];
    int64_t error_ns, unreachable_ns; /* monotonic; 0: none */
};

/* A start that may be given up: watch.c. */
struct remote_watch {
    struct cairn_mutex lock; /* a leaf */
    pthread_cond_t ended;
    bool over;
    bool started; /* the opening thread's alone, as is the next */
    pthread_t thread;
};

/* Progress of the upload: the writeback thread's alone. */
struct remote_relief {
    uint64_t uploaded, horizon;
    int64_t at; /* when these changed last */
};

/* State of its runs: the uploader's, but for the atomic. */
struct remote_runs {
    int64_t due_at; /* monotonic ns: not before */
    _Atomic enum run_scrub { RUN_SCRUB_NONE, RUN_SCRUB_ASKED, RUN_SCRUB_DONE } scrub;
    uint64_t unreadable_head; /* the last of which a run was found lost, and said so */
};

struct remote {
    struct store *store;
    struct remote_options options;
    struct prefix prefix;
    bool was_here; /* this store published there before */

    struct remote_runs runs;

    struct remote_shared shared;

    pthread_t uploader, renewer;
    bool uploader_started, renewer_started;
    struct pool *senders;   /* one pack each */
    struct pool *notifiers; /* read_only: one thread that tells the kernel what changed */
    struct remote_maintenance *maintenance; /* maintenance.h */
    struct snapshots *snapshots;
    struct remote_relief relief; /* the writeback thread's alone */
    struct missing *missing;     /* again.c; NULL: not a reader without a mount */
    struct rate_limit limit;
    struct remote_watch watch;
    int64_t patience_ns; /* of the tier, while no caller waits */
    _Atomic uint64_t next_run;
    _Atomic uint64_t merged_total; /* bytes of packs that were read to merge them */
    struct encode_totals encoded;  /* for the remote */
    /* The newest head of this mount refers to them, and has not got them: they were damaged. */
    _Atomic uint64_t damaged_chunks;
};

/* --- again.c ---------------------------------------------------------------------------------- */

struct missing *missing_new(void);
void missing_free(struct missing *missing); /* NULL is fine */

/* --- claim.c ---------------------------------------------------------------------------------- */

/* After recovery: makes the prefix and the head that say that we hold it. May be repeated. */
CAIRN_MUST_CHECK int remote_claim(struct remote *remote, char **ret_text);
void remote_head_published(struct remote *remote, const struct head *head);
/* Errors of head_put(); after -ESTALE the remote is fenced. */
CAIRN_MUST_CHECK int remote_publish_head(struct remote *remote, struct head *head);
void remote_fence(struct remote *remote, const struct head *theirs);
/* Nothing more is published from this mount; why was said. */
void remote_give_up(struct remote *remote);
/* It answered. */
void remote_works(struct remote *remote);
void remote_advance(struct remote *remote, uint64_t cut);
/* Waiters for it get -ESHUTDOWN. */
void remote_release_waiters(struct remote *remote);
static inline struct remote *remote_of(struct store *store)
{
    return store->remote;
}
bool remote_is_urged(struct remote *remote);
/* Does a caller wait for the upload of something? */
bool remote_is_awaited_locked(struct remote *remote);
/* Waiters of a node are served as the union gets on. False: no more, and no call is under way. */
void remote_hear_union(struct remote *remote, bool hears);
/* Waits until `bytes` more may go to the remote by `upload_limit`. False: the upload is to stop. */
CAIRN_MUST_CHECK bool remote_limit_wait(struct remote *remote, uint64_t bytes);
/* With the lock of `shared`, when something of that changed: the limit is off while a caller waits,
 * or it drains or stops. */
void remote_settle_limit_locked(struct remote *remote);
/* Has the remote's thread look now. With the lock of `shared`. */
void remote_kick_locked(struct remote *remote);
/* Was that asked for, or is the thread to stop? */
bool remote_is_called(struct remote *remote);
/* The remote's thread: waits until it is called, or for `ms`. False: the store stops. */
bool remote_pause(struct remote *remote, int64_t ms);
/* A mount that can do without the remote does not wait for it long. */
void remote_be_brief(struct remote *remote, bool brief);
/* The state that the view knows to be published counts, if this is the remote where it was. With a
 * new view it does so later, when its packs were looked for. */
void remote_resume(struct remote *remote);
/* The view, which is of the newest head's state, learns its number. */
CAIRN_MUST_CHECK int remote_note_head(struct remote *remote);

/* --- renewer.c -------------------------------------------------------------------------------- */

void *renewer_main(void *remote);

/* --- runs.c ----------------------------------------------------------------------------------- */

/* The rows of the cut as a run: a file in STORE/runs, and in the remote. It may be merged with runs
 * of `head` that are no larger: head->runs becomes the new list. *ret_is_news false: the cut says
 * nothing that the head does not say already. */
CAIRN_MUST_CHECK int runs_publish(struct remote *remote, struct view_cut *cut, struct head *head,
                                  bool *ret_is_news, uint64_t *ret_missing);
/* Between two rounds: puts again what is missing or damaged of the newest head's runs, if that may
 * be. Trouble with it is said, and tried again. */
void runs_tick(struct remote *remote);

/* --- upload.c --------------------------------------------------------------------------------- */

void *upload_main(void *remote);
/* Most memory that its rounds take, those that read the remote included. */
uint64_t upload_memory(const struct remote *remote);

/* --- follow.c --------------------------------------------------------------------------------- */

void *follow_main(void *remote);
