// SPDX-License-Identifier: Apache-2.0
/* The order of operations (history.c), seals (seal.c), and notifications of changes (change.c): for
 * the components that share the store. */
#pragma once

#include <sys/queue.h>

#include "commit/commit.h"
#include "commit/rounds.h"

#define PENDING_OPS_MAX 200000u
/* A clock may be set back by so much without counting as having been wrong before. */
#define CLOCK_BACK_MAX_NS (10ll * 1000000000)

struct history;
struct change;
struct touched;

/* An operation that is not durable yet. */
struct op {
    TAILQ_ENTRY(op) link;
    uint64_t seq;
    int64_t happened; /* monotonic ns */
    uint16_t type;
    uint32_t flags;
    uint64_t ino, ino2, version;
    uint32_t len;
    uint8_t bytes[]; /* the encoded record */
};

/* --- history.c -------------------------------------------------------------------------------- */

/* Returns all operations that are not durable; they stay valid until history_looked() or their
 * retirement. */
struct op **history_look(struct history *history, size_t *ret_count);
void history_looked(struct history *history, struct op **ops);
bool history_oldest(struct history *history, uint64_t *ret_seq, int64_t *ret_happened);
int64_t history_last_time(struct history *history); /* when the last operation happened */
bool history_has_draft_below(struct history *history, uint64_t dir);

/* When the oldest operation after `seq`, durable or pending, happened, monotonic ns; 0: none. */
int64_t history_oldest_after(struct history *history, uint64_t seq);

/* Recovery: all operations up to `cut`, where the journal ends, are durable; later ones are
 * numbered from there. */
void history_begin(struct history *history, uint64_t cut);
/* From now on the store shows the state of a head with this cut, all of it durable. For waiters the
 * newest number only grows: ours may be larger than the writer's. */
void history_raise(struct history *history, uint64_t cut);
/* Recovery, in this order: the time of the last durable operation; each pending operation of the
 * log; then the rewrite of the log. */
void history_resume(struct history *history, int64_t last_time);
void history_readd(struct history *history, const struct record *rec);
CAIRN_MUST_CHECK int history_compact(struct history *history);

/* --- history_rounds.c ------------------------------------------------------------------------- */

/* Other nodes write the prefix: notes rounds of this length, ns, from now on, by the borrowed
 * clock. Call before the first operation. */
void history_begin_rounds(struct history *history, int64_t length, struct node_clock *clock);
/* The changes of this node that are missing in the union of all nodes; NULL: no other node
 * writes. */
struct touched *history_touched(struct history *history);
/* Should cuts end at a round whose number ends in `bits` zero bits? If so, the next cuts do, if
 * possible. */
void history_want_round(struct history *history, bool wants, unsigned bits);
/* The noted rounds after `after` at which `number` was the newest number; false unless such rounds
 * are wanted. */
CAIRN_MUST_CHECK bool history_wanted_round_of(struct history *history, uint64_t number,
                                              uint64_t after, struct rounds_span *ret);
/* As history_wanted_round_of(), for any rounds. */
CAIRN_MUST_CHECK bool history_rounds_of(struct history *history, uint64_t number, uint64_t after,
                                        struct rounds_span *ret);
/* Does not publish rounds up to this one: they were published before they began
 * (rounds_begin_after()). */
void history_begin_rounds_after(struct history *history, uint64_t round);
/* Rounds up to the returned one may not be published if they were not before (rounds_dropped()). */
uint64_t history_dropped_rounds(struct history *history);
/* Rounds up to `hi` are not needed any more. */
void history_forget_rounds(struct history *history, uint64_t hi);

/* --- seal.c ----------------------------------------------------------------------------------- */

/* Notes the rounds that have passed, as each operation does. */
void history_pass_rounds(struct history *history);

/* Seals every draft and every nascent file except those in `but`, ascending. */
CAIRN_MUST_CHECK int history_seal_all_but(struct history *history, const uint64_t *but,
                                          size_t but_count);
/* Some of these found no room in the log (-EAGAIN): writeback seals them all once there is room. */
void history_seal_rest_later(struct history *history);

/* --- draft.c ---------------------------------------------------------------------------------- */

/* Fills in size and time, from an inode and its staged state, which was read first. */
void commit_now_settle(struct commit_now *now);

/* --- change.c --------------------------------------------------------------------------------- */

/* Call before and after the view is replaced: change_generation(). */
void change_next_generation(struct change *change);
/* As change_generation(), but does not block: odd while the view is being replaced. */
uint64_t change_generation_now(const struct change *change);
/* Calls the function of change_subscribe(). Call without locks. */
void change_notify(struct change *change, const uint64_t *inos, size_t count, bool has_content);
