// SPDX-License-Identifier: Apache-2.0
/* Between history.c, seal.c and the writeback thread. */
#pragma once

#include <stdatomic.h>

#include "base/lock.h"
#include "base/vector.h"
#include "commit/history.h"
#include "commit/touched.h"

#define DUE_MAX STAGE_DUE_MAX /* limit of delayed seals */

TAILQ_HEAD(op_list, op);

struct history {
    struct local *local;
    struct horizon *horizon;
    struct packs *packs;
    struct change *change;
    /* LOCK_HISTORY; held while an operation enters log, overlay and list, so that their order is
     * the same */
    struct cairn_mutex lock;
    struct op_list ops;
    uint64_t op_count, op_bytes;
    uint64_t newest;
    int64_t last_time;
    int64_t compacted;     /* when the log was last compacted for a draft: monotonic ns */
    unsigned lookers;      /* threads that read the list without the lock: its operations stay */
    uint64_t chosen;       /* the newest cut chosen by writeback */
    uint64_t due[DUE_MAX]; /* inodes with a delayed seal, in order of arrival */
    unsigned due_count;
    /* monotonic ns: when the first of these arrived; an operation entered now gets this time */
    int64_t due_since;
    uint64_t recount[DUE_MAX]; /* entered, and their st_blocks changed by it */
    unsigned recount_count;    /* at most DUE_MAX together with due_count */
    /* durable operations that the overlay keeps because the view lacks them */
    _Atomic uint64_t lagging;
    _Atomic bool seal_rest; /* a recovery left drafts or new files without a version */
    /* if other nodes write the prefix (history_rounds.c); else NULL */
    struct rounds *rounds;
    struct node_clock *clock;
    struct history_lease lease;
    struct touched *touched;
    VECTOR(uint64_t) replaced; /* inodes that lost their last name by a seal: history_replaced() */
    _Atomic bool has_replaced;
    bool is_passing;  /* delayed seals are being entered for a round that has begun */
    bool wants_round; /* a cut is to end at a round with so many zero bits */
    unsigned wanted_bits;
};

/* The subscriber of change_subscribe(). */
struct change {
    struct cairn_mutex lock;
    pthread_cond_t changed;
    change_fn *fn;
    void *arg;
    unsigned calls;              /* calls of `fn` in progress */
    _Atomic uint64_t generation; /* odd: the view is being replaced by that of a newer head */
};

struct history *history_new(struct local *local, struct horizon *horizon, struct packs *packs,
                            struct change *change);
void history_free(struct history *history);
struct change *change_new(void);
void change_free(struct change *change);

/* Between history.c and seal.c, with the history's lock. -EAGAIN: no room in the log. */
/* Limit for the encoded xattrs of a nascent file. Appends of the stage leave the whole margin free:
 * so a group that fits beside half of the margin still fits when it is entered. */
#define GROUP_MAX (STAGE_LOG_MARGIN / 2)
struct op *history_op_new(const struct record *rec); /* owned by the caller until it is listed */
/* `happened`: monotonic ns; 0: now. */
void history_list_op_locked(struct history *history, struct op *op, int64_t happened);
/* If other nodes write the prefix: notes a listed operation as newer than their union. */
void history_touch_locked(struct history *history, const struct record *rec);
void history_unlist_op_locked(struct history *history, struct op *op);
CAIRN_MUST_CHECK int history_compact_locked(struct history *history);
/* Appends the record to `bytes`, a struct bytes; returns 0. */
int history_dump_record(const struct record *rec, void *bytes);
/* Kinds of changes, by the room that they need in the stage's log. */
enum reserve_kind {
    RESERVE_NONE,   /* none: on a file that has lost its only name */
    RESERVE_RECORD, /* an operation, or a change of an existing draft */
    RESERVE_DRAFT,  /* opens a draft, or makes its entries in the log longer */
    RESERVE_REAP,   /* frees the content of an orphan */
};
/* Ensures room for a change, and for `len` bytes that belong to it; compacts the log if that helps.
 * -EAGAIN: no room now. -EROFS: the store follows another one. */
CAIRN_MUST_CHECK int history_reserve_locked(struct history *history, enum reserve_kind kind,
                                            size_t len);
/* A number was assigned: it may be too late for a round that has begun. */
void history_note_number_locked(struct history *history, const struct clock_look *look);
/* The newest cut between `least` and `most` that ends at a wanted round; 0: none. */
uint64_t history_wanted_cut_locked(struct history *history, uint64_t least, uint64_t most);
/* Assigns number and time to an operation; the second also a cookie to a new name without one. */
void history_stamp_locked(struct history *history, struct record *rec);
void history_stamp_with_cookies_locked(struct history *history, struct record *rec);
void history_enter_group_locked(struct history *history, const struct record *recs, size_t count);
/* As history_seal_due(), before anything else is entered; and history_seal(), after those. */
CAIRN_MUST_CHECK int history_seal_due_locked(struct history *history);
CAIRN_MUST_CHECK int history_enter_due_locked(struct history *history); /* without the gate */
/* Call before anything is acknowledged. If other nodes write the prefix: notes the rounds that have
 * passed, with the delayed seals. -EAGAIN: a round is too near, or the lease has run out,
 * history_hold_ns(). */
CAIRN_MUST_CHECK int history_gate_locked(struct history *history);
/* As history_gate_locked(), for operations taken from the union: these are acknowledged to nobody,
 * and need no lease. */
CAIRN_MUST_CHECK int history_gate_taken_locked(struct history *history);
/* How long an operation must wait, ns; 0: not at all. */
int64_t history_hold_locked(struct history *history, const struct clock_look *look);
bool history_has_lease_locked(const struct history *history, const struct clock_look *look);
/* Returns the time, ns since 1970; if other nodes write the prefix, the time common to all
 * nodes. */
int64_t history_look_locked(struct history *history, struct clock_look *ret);
CAIRN_MUST_CHECK int history_seal_locked(struct history *history, uint64_t ino);
bool history_is_due_locked(struct history *history, uint64_t ino);
/* Releases the lock after an operation that succeeded or failed; returns r. */
int history_leave(struct history *history, int r);
/* For the writeback thread. */
/* Records in the log which packs are written but not named by a batch, so that a recovery keeps
 * them. */
CAIRN_MUST_CHECK int history_log(struct history *history, const struct record *recs, size_t count);
/* Seals everything, if a recovery left something to seal (history_seal_rest_later()), or the log is
 * crowded. */
CAIRN_MUST_CHECK int history_seal_rest(struct history *history);
/* Chooses the next cut to carry, and pins the versions that it needs, in order of sealing (caller
 * frees): the newest cut with at most `most` bytes of these, or a single version, and not below the
 * stage's floor. `is_own`: a new cut even if nothing has changed. */
uint64_t history_choose(struct history *history, uint64_t most, bool is_own,
                        struct stage_sealed **ret_sealed, size_t *ret_count);
/* Enters the seals delayed for `ns` or longer, and runs waiting callbacks; call without locks. */
void history_seal_ripe(struct history *history, int64_t ns);
/* Do live records crowd the log? Compacts the log first, once a second at most. */
bool history_is_crowded(struct history *history);
/* The operations up to a chosen cut, in order; they stay valid until they are retired. The caller
 * frees the array. */
struct op **history_up_to(struct history *history, uint64_t cut, size_t *ret_count);
size_t history_retire(struct history *history, uint64_t seq); /* returns their number */
/* As history_retire(), for operations that stay in the overlay until history_followed(), because
 * the view lacks them. */
void history_retire_lagging(struct history *history, uint64_t seq);
void history_followed(struct history *history);
/* Takes the history's lock, so that no operation uses an entry that is leaving the overlay. */
void history_retire_overlay(struct history *history, uint64_t cut);
