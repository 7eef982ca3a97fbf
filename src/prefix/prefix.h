// SPDX-License-Identifier: Apache-2.0
/* The objects of a remote's prefix, as one store uses them; without packs, which other components
 * handle.
 *
 *    object.c   the object itself; small objects are read and put
 *    prefix.c   the marker, and the remains of a prefix that lost objects
 *    attach.c   a store attaches to the prefix
 *    place.c    whether a prefix without a marker is where the store published before
 *    heads.h    heads, and those that the store tried to create
 *    lease.h    the lease
 *    runs.h     runs
 *    adopt.h    a store is combined with the newest head
 *    verdict.h  how a store and a head fit together
 *    check.h    heads and runs are verified
 *
 * The prefix calls its user to wait, and to report trouble: struct prefix_user. Every call blocks.
 * One thread at a time; any thread may call object.c, lease.h, and functions that read a head or a
 * run that a head names. */
#pragma once

#include <stdatomic.h>

#include "base/vector.h"
#include "commit/local.h"
#include "commit/room.h"
#include "format/head.h"
#include "format/object.h"
#include "format/prefix.h"
#include "tier/tier.h"

DEFINE_VECTOR(numbers, uint64_t);

/* A run is stored in two objects with the same bytes. Remotes of earlier versions have only the
 * first, until a writer puts the copy there. */
enum run_place { RUN_FIRST, RUN_COPY, RUN_PLACES };
extern const char *const run_directories[RUN_PLACES];

/* An object that a head needs, and that the prefix lacks, or has damaged: for a run, in both
 * places. */
struct lost_object {
    enum { LOST_NOTHING, LOST_RUN, LOST_FEED } kind;
    uint32_t node;   /* the node that wrote it */
    uint64_t number; /* id of a run; round of a feed */
    uint64_t epoch;  /* LOST_FEED */
};

/* Callbacks to the user of the prefix. Any thread. */
struct prefix_user {
    void *arg; /* passed to each call */
    /* Waits for `ms`, or less. False: the store stops. */
    bool (*pause)(void *arg, int64_t ms);
    /* Reports a failure: the error of the tier; 0: the tier answered, and `text` is the fault.
     * NULL: only results report it. */
    void (*trouble)(void *arg, int error, const char *text);
    /* The remote answered. NULL: no callback. */
    void (*works)(void *arg);
    /* Waits until `bytes` more may be sent. False: the store stops. NULL: there is no limit. */
    bool (*wait_to_send)(void *arg, uint64_t bytes);
};

#define HEAD_TRIES_MAX 16u
/* Heads that the store tried to create, the newest last. */
struct head_tries {
    struct head_try {
        uint64_t number;
        uint8_t nonce[16];
    } at[HEAD_TRIES_MAX];
    size_t count;
};

/* The beginning of a history, or its continuation, in a prefix that lost objects. */
struct prefix_beginning {
    bool marker_is_lost;    /* `marker` was restored from elsewhere, and must be written again */
    bool marker_is_damaged; /* the same, and a damaged marker object exists */
    bool is_anew;           /* begins anew beside the remains of a prefix without heads or marker */
    /* limits for the first head: its number is above this one, its epoch too */
    uint64_t number, epoch;
};

/* A run with an object that is missing or damaged. */
struct bad_run {
    uint64_t id;
    enum run_place place;
};
struct prefix_runs {
    struct bad_run bad[HEAD_RUNS_MAX]; /* runs to be put again */
    size_t bad_count;
    _Atomic bool are_due; /* objects of the newest head's runs may be missing */
    _Atomic uint64_t scrub_found, scrub_healed; /* in objects */
};

struct prefix {
    struct local *local;
    struct room *room;
    const struct remote_options *options;
    struct prefix_user user;
    struct tier *tier; /* the tier of the options; not closed here */
    char *name, *holder;

    bool has_marker; /* `marker` was read */
    struct prefix_info marker;
    struct prefix_beginning beginning;
    bool is_prepared;         /* the prefix exists, and the tier creates objects exclusively */
    _Atomic bool is_attached; /* the remote was reached, is ours, and we may publish (or follow) */
    /* The newest head's state is that of another writer, from which this store took the prefix. */
    bool was_theirs;

    struct head head; /* the newest head that is known; number 0: none */
    struct head_tries tries;
    bool has_published; /* a head of this session was created */
    /* the head before it is gone, although gc deletes no head before the newest one */
    bool has_lost_head;
    bool is_patient; /* head_put() retries until the result is known, or the store stops */
    struct prefix_runs runs;
    /* why the state that is shown is not the newest one; NULL: it is, as far as is known */
    char *shown_instead;

    _Atomic uint64_t fetched_total, uploaded_total; /* bytes of packs and runs */
};

/* --- object.c --------------------------------------------------------------------------------- */

/* All arguments must stay valid for the life of the prefix, except *user. */
void prefix_init(struct prefix *prefix, struct local *local, struct room *room,
                 const struct remote_options *options, const struct prefix_user *user);
void prefix_done(struct prefix *prefix);

static inline bool prefix_pause(struct prefix *prefix, int64_t ms)
{
    return prefix->user.pause(prefix->user.arg, ms);
}

static inline void prefix_works(struct prefix *prefix)
{
    if (prefix->user.works)
        prefix->user.works(prefix->user.arg);
}

void prefix_error(struct prefix *prefix, int error, const char *fmt, ...) CAIRN_PRINTF(3, 4);
/* Returns the features that a reader of a head must know if it is published now. */
uint32_t prefix_features(const struct prefix *prefix);
/* Returns whether an error of reading an object means that it is missing or damaged. */
bool prefix_object_is_lost(int error);
/* Reads and decodes a small object of at most `max` bytes; one that looks damaged is read again a
 * few times. */
CAIRN_MUST_CHECK int prefix_read_object(struct prefix *prefix, const char *object, size_t max,
                                        int (*decode)(const void *buf, size_t len, void *arg),
                                        void *arg);
/* Writes a small object. `is_new`: -EEXIST if the object exists; else it is overwritten. */
CAIRN_MUST_CHECK int prefix_put_object(struct prefix *prefix, const char *object, const void *bytes,
                                       size_t len, bool is_new);
/* Calls `fn` with each object of a directory whose number (format/object.h) is above `after`, or
 * with all (0), in the order of the tier. Negative: the error of the tier or of `fn`. */
typedef int prefix_object_fn(uint64_t number, const struct tier_object *object, void *arg);
CAIRN_MUST_CHECK int prefix_list(struct prefix *prefix, const char *directory, uint64_t after,
                                 prefix_object_fn *fn, void *arg);
/* Adds these numbers, ascending. */
CAIRN_MUST_CHECK int prefix_list_numbers(struct prefix *prefix, const char *directory,
                                         uint64_t after, struct numbers *numbers);

#define RUN_OBJECT_LEN 64u
/* Prints the name of the run's object: "runs/ID", for a run of a node below nodes/NODE/. */
void run_object_name(const struct run_info *info, enum run_place place, char buf[RUN_OBJECT_LEN]);

/* --- prefix.c --------------------------------------------------------------------------------- */

/* Reads the marker. -ENOENT: there is none. */
CAIRN_MUST_CHECK int prefix_meet(struct prefix *prefix);
/* Reads the marker, and checks whether the prefix is complete: 0, with has_marker set; or empty: 0,
 * with has_marker clear. -EBUSY with *ret_text: marker or heads are missing, but not the objects
 * that they name. `has_store`: the superblock was read. */
CAIRN_MUST_CHECK int prefix_look(struct prefix *prefix, bool has_store, char **ret_text);
/* -EINVAL with *ret_text: the prefix is of another history than the store. */
CAIRN_MUST_CHECK int prefix_check_history(struct prefix *prefix, char **ret_text);
/* -EINVAL with *ret_text: several nodes write the prefix, and this store would be its only
 * writer. */
CAIRN_MUST_CHECK int prefix_check_nodes(const struct prefix *prefix, char **ret_text);
/* For a writer: checks that all heads exist that writers created before they stored runs. -EBUSY
 * with *ret_text: some are missing. With --rollback they are given up: their epochs are not used
 * again. */
CAIRN_MUST_CHECK int prefix_check_newest(struct prefix *prefix, char **ret_text);
/* Returns whether each run of the head exists, in one place at least, with its length. Reads from
 * the remote. */
bool prefix_has_runs(struct prefix *prefix, const struct head *head);
/* Returns the newest head that the store knows, if it was published in this remote. */
bool prefix_known_head(struct prefix *prefix, struct head *ret_head);
CAIRN_MUST_CHECK int prefix_probe_exclusive(struct prefix *prefix, char **ret_text);
/* Creates the prefix if it is empty, and verifies that the tier creates objects exclusively. May be
 * repeated. -EAGAIN: it is not empty after all; call prefix_look() again. */
CAIRN_MUST_CHECK int prefix_prepare(struct prefix *prefix, char **ret_text);

/* --- attach.c --------------------------------------------------------------------------------- */

/* Returns whether the store may be combined with prefix->head: 0, or an error with *ret_text. */
typedef int prefix_may_fn(void *arg, char **ret_text);
/* Called with the superblock read: finds the newest head, and checks whether the store may be
 * combined with it (`may`), whether the prefix is ours, and which store holds it. Waits for a dead
 * holder's lease. 0 with is_attached false: the remote cannot be reached now, which does not
 * prevent a mount. -ESTALE, -EBUSY, -EINVAL...: it must not be used; *ret_text has the reason. */
CAIRN_MUST_CHECK int prefix_attach(struct prefix *prefix, prefix_may_fn *may, void *arg,
                                   char **ret_text);

/* --- place.c, for a prefix without a marker --- */

/* -EBUSY, *ret_text: the prefix is not in the place where this store published before. */
CAIRN_MUST_CHECK int place_check(struct prefix *prefix, char **ret_text);
void place_report_new(struct prefix *prefix);
/* Records the present place of the prefix. */
CAIRN_MUST_CHECK int place_remember(struct prefix *prefix);
