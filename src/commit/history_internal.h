// SPDX-License-Identifier: Apache-2.0
/* Between history.c, seal.c and the writeback thread. */
#pragma once

#include <stdatomic.h>

#include "base/lock.h"
#include "base/vector.h"
#include "commit/history.h"

#define DUE_MAX STAGE_DUE_MAX /* seals that wait at once */

TAILQ_HEAD(op_list, op);

struct history {
    struct cairn_mutex lock; /* LOCK_HISTORY; held while an operation enters log, overlay and list:
                                their order is one */
    struct op_list ops;
    uint64_t op_count, op_bytes;
    uint64_t newest;
    int64_t last_time;
    int64_t compacted;     /* when the log was, for room for a draft: monotonic ns */
    unsigned lookers;      /* at the list, without the lock: what is in it stays */
    uint64_t chosen;       /* the newest cut that writeback chose */
    uint64_t due[DUE_MAX]; /* inodes whose seals wait, in the order in which they came */
    unsigned due_count;
    int64_t due_since; /* monotonic ns: the first of these; an operation that enters now happened
                          then */
    uint64_t recount[DUE_MAX]; /* that entered, and whose st_blocks changed by that */
    unsigned recount_count;    /* with due_count at most DUE_MAX */
};

/* The function that change_subscribe() named. */
struct change {
    struct cairn_mutex lock;
    pthread_cond_t changed;
    change_fn *fn;
    void *arg;
    unsigned calls; /* of `fn` that are under way */
};

void history_init(struct store *store);
void history_done(struct store *store);
void change_init(struct store *store);
void change_done(struct store *store);

/* Between history.c and seal.c, with the history's lock. -EAGAIN: no room in the log. */
/* Encoded xattrs of a nascent file. The stage appends on its own as long as it leaves the whole
 * margin: what was found to fit beside half of the margin fits yet when it is entered. */
#define GROUP_MAX (STAGE_LOG_MARGIN / 2)
int history_dump_record(const struct record *rec,
                        void *bytes); /* appends it to a struct bytes; 0 */
CAIRN_MUST_CHECK int history_compact_locked(struct store *store);
/* Before what opens a draft, or makes one longer in the log: stricter than for all else, so that
 * seals find room. */
CAIRN_MUST_CHECK int history_draft_room_locked(struct store *store);
/* For `len` bytes that belong together and what else an operation needs. */
CAIRN_MUST_CHECK int history_group_room_locked(struct store *store, size_t len);
/* Gives an operation its number and time; to a new name that has no cookie, one too. */
void history_stamp_locked(struct store *store, struct record *rec);
void history_stamp_with_cookies_locked(struct store *store, struct record *rec);
void history_enter_group_locked(struct store *store, const struct record *recs, size_t count);
/* As history_seal_due(), before anything else enters; and history_seal(), after these. */
CAIRN_MUST_CHECK int history_seal_due_locked(struct store *store);
CAIRN_MUST_CHECK int history_seal_locked(struct store *store, uint64_t ino);
bool history_is_due_locked(struct store *store, uint64_t ino);
/* Leaves the lock; an operation happened, or did not: returns r. */
int history_leave(struct store *store, int r);
/* With the history's lock: before a change of content, which opens a draft if there is none.
 * -EAGAIN: no room in the log. */
CAIRN_MUST_CHECK int history_change_room_locked(struct store *store, uint64_t ino);

/* For the writeback thread. */
/* Enters the seals that have waited for `ns`, and runs the callbacks that wait for them; with no
 * lock held. */
void history_seal_ripe(struct store *store, int64_t ns);
/* Is the log crowded by what is alive in it? What is not is thrown out first, once a second at
 * most. */
bool history_is_crowded(struct store *store);
/* The operations up to a cut that was chosen, in order; they stay until they are retired. The
 * caller frees the array. */
struct op **history_up_to(struct store *store, uint64_t cut, size_t *ret_count);
size_t history_retire(struct store *store, uint64_t seq); /* how many there were */
