// SPDX-License-Identifier: Apache-2.0
/* Between history.c, seal.c and the writeback thread. */
#pragma once

#include <stdatomic.h>

#include "base/lock.h"
#include "base/vector.h"
#include "commit/history.h"
#include "commit/touched.h"

#define DUE_MAX STAGE_DUE_MAX /* seals that wait at once */

TAILQ_HEAD(op_list, op);

struct history {
    struct local *local;
    struct horizon *horizon;
    struct packs *packs;
    struct change *change;
    /* LOCK_HISTORY; held while an operation enters log, overlay and list: their order is one */
    struct cairn_mutex lock;
    struct op_list ops;
    uint64_t op_count, op_bytes;
    uint64_t newest;
    int64_t last_time;
    int64_t compacted;     /* when the log was, for room for a draft: monotonic ns */
    unsigned lookers;      /* at the list, without the lock: its operations stay */
    uint64_t chosen;       /* the newest cut that writeback chose */
    uint64_t due[DUE_MAX]; /* inodes whose seals wait, in the order in which they came */
    unsigned due_count;
    /* monotonic ns: the first of these; an operation that enters now happened then */
    int64_t due_since;
    uint64_t recount[DUE_MAX]; /* that entered, and whose st_blocks changed by that */
    unsigned recount_count;    /* with due_count at most DUE_MAX */
    /* operations that are durable, and that the overlay keeps: the view lacks them */
    _Atomic uint64_t lagging;
    _Atomic bool seal_rest; /* a recovery left drafts or new files that are no versions yet */
    /* Where other nodes write the prefix (history_rounds.c); else NULL. */
    struct rounds *rounds;
    struct node_clock *clock;
    struct history_lease lease;
    struct touched *touched;
    VECTOR(uint64_t) replaced; /* inodes that lost their last name by a seal: history_replaced() */
    _Atomic bool has_replaced;
    bool is_passing;  /* seals that waited enter, for a round that has begun */
    bool wants_round; /* a cut is to end at a round with so many zero bits */
    unsigned wanted_bits;
};

/* The function that change_subscribe() named. */
struct change {
    struct cairn_mutex lock;
    pthread_cond_t changed;
    change_fn *fn;
    void *arg;
    unsigned calls;              /* of `fn` that are under way */
    _Atomic uint64_t generation; /* odd: the view is being exchanged for that of a newer head */
};

struct history *history_new(struct local *local, struct horizon *horizon, struct packs *packs,
                            struct change *change);
void history_free(struct history *history);
struct change *change_new(void);
void change_free(struct change *change);

/* Between history.c and seal.c, with the history's lock. -EAGAIN: no room in the log. */
/* Encoded xattrs of a nascent file. The stage appends on its own as long as it leaves the whole
 * margin: what was found to fit beside half of the margin fits yet when it is entered. */
#define GROUP_MAX (STAGE_LOG_MARGIN / 2)
struct op *history_op_new(const struct record *rec); /* the caller's until it is listed */
/* `happened`: monotonic ns; 0: now. */
void history_list_op_locked(struct history *history, struct op *op, int64_t happened);
/* Where other nodes write the prefix: the operation is listed, and newer than their union. */
void history_touch_locked(struct history *history, const struct record *rec);
void history_unlist_op_locked(struct history *history, struct op *op);
CAIRN_MUST_CHECK int history_compact_locked(struct history *history);
/* Appends it to `bytes`, a struct bytes; 0. */
int history_dump_record(const struct record *rec, void *bytes);
/* Changes, by the room in the stage's log that they need. */
enum reserve_kind {
    RESERVE_NONE,   /* none: it is of a file that has lost its only name */
    RESERVE_RECORD, /* an operation, or a change of a draft that is there */
    RESERVE_DRAFT,  /* it opens a draft, or makes one longer in the log */
    RESERVE_REAP,   /* it frees the content of an orphan */
};
/* Room for a change, and for `len` bytes that belong together with it; dead records of the log are
 * thrown out where that helps. -EAGAIN: there is none now. -EROFS: the store follows another. */
CAIRN_MUST_CHECK int history_reserve_locked(struct history *history, enum reserve_kind kind,
                                            size_t len);
/* A number was given out: it may have come too late for a round that has begun. */
void history_note_number_locked(struct history *history, const struct clock_look *look);
/* The newest cut from `least` to `most` that ends at a round that is wanted; 0: there is none. */
uint64_t history_wanted_cut_locked(struct history *history, uint64_t least, uint64_t most);
/* Gives an operation its number and time; to a new name that has no cookie, one too. */
void history_stamp_locked(struct history *history, struct record *rec);
void history_stamp_with_cookies_locked(struct history *history, struct record *rec);
void history_enter_group_locked(struct history *history, const struct record *recs, size_t count);
/* As history_seal_due(), before anything else enters; and history_seal(), after these. */
CAIRN_MUST_CHECK int history_seal_due_locked(struct history *history);
CAIRN_MUST_CHECK int history_enter_due_locked(struct history *history); /* without a gate */
/* Before whatever is acknowledged. Where other nodes write the prefix: notes the rounds that have
 * passed, with the seals that wait. -EAGAIN: a round is too near, or the lease has run out,
 * history_hold_ns(). */
CAIRN_MUST_CHECK int history_gate_locked(struct history *history);
/* The same for what was taken from the union: that is acknowledged to nobody, and needs no lease.
 */
CAIRN_MUST_CHECK int history_gate_taken_locked(struct history *history);
/* How long an operation must wait, ns; 0: it need not. */
int64_t history_hold_locked(struct history *history, const struct clock_look *look);
bool history_has_lease_locked(const struct history *history, const struct clock_look *look);
/* Returns the time, ns since 1970: that of all nodes, where others write the prefix. */
int64_t history_look_locked(struct history *history, struct clock_look *ret);
CAIRN_MUST_CHECK int history_seal_locked(struct history *history, uint64_t ino);
bool history_is_due_locked(struct history *history, uint64_t ino);
/* Leaves the lock; an operation happened, or did not: returns r. */
int history_leave(struct history *history, int r);
/* For the writeback thread. */
/* Tells a recovery of packs that are written and that no batch names: their records enter the log.
 */
CAIRN_MUST_CHECK int history_log(struct history *history, const struct record *recs, size_t count);
/* Seals all, where a recovery left some to do (history_seal_rest_later()), or the log is crowded.
 */
CAIRN_MUST_CHECK int history_seal_rest(struct history *history);
/* The next cut to be carried, and the versions that it needs, pinned, in order of sealing (caller
 * frees): the newest with at most `most` bytes of these, or one of them, and not below the stage's
 * floor. `is_own`: another cut than the last, also where nothing happened since. */
uint64_t history_choose(struct history *history, uint64_t most, bool is_own,
                        struct stage_sealed **ret_sealed, size_t *ret_count);
/* Enters the seals that have waited for `ns`, and runs the callbacks that wait for them; with no
 * lock held. */
void history_seal_ripe(struct history *history, int64_t ns);
/* Is the log crowded by what is alive in it? What is not is thrown out first, once a second at
 * most. */
bool history_is_crowded(struct history *history);
/* The operations up to a cut that was chosen, in order; they stay until they are retired. The
 * caller frees the array. */
struct op **history_up_to(struct history *history, uint64_t cut, size_t *ret_count);
size_t history_retire(struct history *history, uint64_t seq); /* their number */
/* The same, of those that the overlay keeps, because the view lacks them, until history_followed().
 */
void history_retire_lagging(struct history *history, uint64_t seq);
void history_followed(struct history *history);
/* Under its lock, so that no operation builds on an entry that leaves the overlay. */
void history_retire_overlay(struct history *history, uint64_t cut);
