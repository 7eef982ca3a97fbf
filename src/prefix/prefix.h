// SPDX-License-Identifier: Apache-2.0
/* The objects of a remote's prefix, as one store uses them. Packs are others' business.
 *
 *   object.c   the object itself; small objects are read and put
 *   prefix.c   the marker, and what is left of a prefix that lost objects
 *   attach.c   a store meets it
 *   place.c    whether a prefix without a marker is where the store published before
 *   heads.h    heads, and those that the store tried to create
 *   lease.h    the lease
 *   runs.h     runs
 *   adopt.h    a store goes together with the newest head
 *   verdict.h  what becomes of a store that meets a head
 *   check.h    heads and runs are verified
 *
 * It asks its user to wait, and tells it of trouble: struct prefix_user. Everything blocks. One
 * thread at a time; of any thread are object.c, lease.h, and what reads a head or a run that it
 * names. */
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

/* A run lies in two objects of the same bytes. Remotes of earlier versions have the first alone,
 * until a writer puts the copy there. */
enum run_place { RUN_FIRST, RUN_COPY, RUN_PLACES };
extern const char *const run_directories[RUN_PLACES];

/* An object that a head needs, and that the prefix has not, or damaged: of a run, in both places.
 */
struct lost_object {
    enum { LOST_NOTHING, LOST_RUN, LOST_FEED } kind;
    uint32_t node;   /* whose */
    uint64_t number; /* id of a run; round of a feed */
    uint64_t epoch;  /* LOST_FEED */
};

/* Who uses the prefix, as it is asked. Any thread. */
struct prefix_user {
    void *arg; /* goes back with each call */
    /* Waits for `ms`, or less. False: the store stops. */
    bool (*pause)(void *arg, int64_t ms);
    /* Something failed: what the tier returned; 0: it answered, and gave what is wrong. NULL:
     * results say it. */
    void (*trouble)(void *arg, int error, const char *text);
    /* It answered. NULL is fine. */
    void (*works)(void *arg);
    /* Waits until so much more may be sent. False: the store stops. NULL: there is no limit. */
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

/* The beginning of a history, or its continuation, in a prefix that lost something. */
struct prefix_beginning {
    bool marker_is_lost;    /* `marker` is from elsewhere: it is to be written anew */
    bool marker_is_damaged; /* the same, and an object is there */
    bool is_anew;           /* beside what is left of a prefix without heads or marker */
    uint64_t number, epoch; /* of the first head: numbers go on above them */
};

/* One of its objects is missing or damaged. */
struct bad_run {
    uint64_t id;
    enum run_place place;
};
struct prefix_runs {
    struct bad_run bad[HEAD_RUNS_MAX]; /* to be put again */
    size_t bad_count;
    _Atomic bool are_due; /* objects of the newest head's runs may be missing */
    _Atomic uint64_t scrub_found, scrub_healed; /* objects */
};

struct prefix {
    struct local *local;
    struct room *room;
    const struct remote_options *options;
    struct prefix_user user;
    struct tier *tier; /* that of the options; not closed here */
    char *name, *holder;

    bool has_marker; /* `marker` was read */
    struct prefix_info marker;
    struct prefix_beginning beginning;
    bool is_prepared;         /* it is there, and creates exclusively */
    _Atomic bool is_attached; /* it was met, is ours, and we may publish (or follow) */
    /* The newest head's state is of another writer, from which the prefix was taken. */
    bool was_theirs;

    struct head head; /* the newest that is known; number 0: none */
    struct head_tries tries;
    bool has_published; /* a head of this session was created */
    bool has_lost_head; /* the head before it is gone, which no gc deletes while it is the newest */
    bool is_patient;    /* head_put() tries until it knows, or the store stops */
    struct prefix_runs runs;
    char *shown_instead; /* why it is not the newest state; NULL: it is, as far as is known */

    _Atomic uint64_t fetched_total, uploaded_total; /* bytes of packs and runs */
};

/* --- object.c --------------------------------------------------------------------------------- */

/* All are lent, as long as it lives, but for *user. */
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
/* Features that a reader of a head must know if it is published now. */
uint32_t prefix_features(const struct prefix *prefix);
/* By the error of reading it: it is missing or damaged. */
bool prefix_object_is_lost(int error);
/* A small object of at most `max` bytes, decoded; what looks damaged is read again a few times. */
CAIRN_MUST_CHECK int prefix_read_object(struct prefix *prefix, const char *object, size_t max,
                                        int (*decode)(const void *buf, size_t len, void *arg),
                                        void *arg);
/* A small object. `is_new`: -EEXIST if it is there, or else it is overwritten. */
CAIRN_MUST_CHECK int prefix_put_object(struct prefix *prefix, const char *object, const void *bytes,
                                       size_t len, bool is_new);
/* Calls `fn` with each object of a directory that has a number (format/object.h) above `after`, or
 * any (0), in the order of the tier. Negative: what the tier or `fn` returned. */
typedef int prefix_object_fn(uint64_t number, const struct tier_object *object, void *arg);
CAIRN_MUST_CHECK int prefix_list(struct prefix *prefix, const char *directory, uint64_t after,
                                 prefix_object_fn *fn, void *arg);
/* Adds these numbers, ascending. */
CAIRN_MUST_CHECK int prefix_list_numbers(struct prefix *prefix, const char *directory,
                                         uint64_t after, struct numbers *numbers);

#define RUN_OBJECT_LEN 64u
/* The name of its object: "runs/ID", of a node below nodes/NODE/. */
void run_object_name(const struct run_info *info, enum run_place place, char buf[RUN_OBJECT_LEN]);

/* --- prefix.c --------------------------------------------------------------------------------- */

/* Reads the marker. -ENOENT: it is not there. */
CAIRN_MUST_CHECK int prefix_meet(struct prefix *prefix);
/* Reads the marker, and looks whether the prefix is whole: 0, with has_marker; or empty: 0 without.
 * -EBUSY with *ret_text: its marker or its heads are missing, but not what they name. `has_store`:
 * the superblock was read. */
CAIRN_MUST_CHECK int prefix_look(struct prefix *prefix, bool has_store, char **ret_text);
/* -EINVAL with *ret_text: the prefix is of another history than the store. */
CAIRN_MUST_CHECK int prefix_check_history(struct prefix *prefix, char **ret_text);
/* -EINVAL with *ret_text: several nodes write the prefix, and this store would be its only writer.
 */
CAIRN_MUST_CHECK int prefix_check_nodes(const struct prefix *prefix, char **ret_text);
/* For a writer: are all heads there that writers created before they stored runs? -EBUSY with
 * *ret_text: no. With --rollback they are given up: their epochs are not used again. */
CAIRN_MUST_CHECK int prefix_check_newest(struct prefix *prefix, char **ret_text);
/* Is each run of the head there, in one place at least, in its length? Asks the remote. */
bool prefix_has_runs(struct prefix *prefix, const struct head *head);
/* The newest head that the store knows, if this is the remote where it was published. */
bool prefix_known_head(struct prefix *prefix, struct head *ret_head);
CAIRN_MUST_CHECK int prefix_probe_exclusive(struct prefix *prefix, char **ret_text);
/* Makes the prefix if it is empty, and sees that it creates exclusively. May be repeated. -EAGAIN:
 * it is not empty after all; it is to be looked at again. */
CAIRN_MUST_CHECK int prefix_prepare(struct prefix *prefix, char **ret_text);

/* --- attach.c --------------------------------------------------------------------------------- */

/* May the store go together with prefix->head? Not: an error, and why. */
typedef int prefix_may_fn(void *arg, char **ret_text);
/* With the superblock: may the store go together with the newest head (`may`), is it ours, which
 * store holds it, which head is the newest? Waits for a dead holder's lease. 0 with is_attached
 * false: it cannot be reached now, which is no reason not to mount. -ESTALE, -EBUSY, -EINVAL...: it
 * must not be used; *ret_text says why. */
CAIRN_MUST_CHECK int prefix_attach(struct prefix *prefix, prefix_may_fn *may, void *arg,
                                   char **ret_text);

/* --- place.c, of a prefix without a marker ---------------------------------------------------- */

/* -EBUSY, *ret_text: it is not where this store published before. */
CAIRN_MUST_CHECK int place_check(struct prefix *prefix, char **ret_text);
void place_report_new(struct prefix *prefix);
/* That is where it is now. */
CAIRN_MUST_CHECK int place_remember(struct prefix *prefix);
