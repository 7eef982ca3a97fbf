// SPDX-License-Identifier: Apache-2.0
/* The order of operations (history.c), seals (seal.c), and notices of what changed (change.c): for
 * the components that share the store. */
#pragma once

#include <sys/queue.h>

#include "commit/commit.h"
#include "commit/rounds.h"

#define PENDING_OPS_MAX 200000u
/* By which a clock is set back, at most, without having been wrong before. */
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

/* All; they stay until history_looked(), or are retired. */
struct op **history_look(struct history *history, size_t *ret_count);
void history_looked(struct history *history, struct op **ops);
bool history_oldest(struct history *history, uint64_t *ret_seq, int64_t *ret_happened);
int64_t history_last_time(struct history *history); /* when the last operation happened */
bool history_has_draft_below(struct history *history, uint64_t dir);

/* Age of the oldest durable or pending operation after `seq`; 0: there is none. Monotonic ns. */
int64_t history_oldest_after(struct history *history, uint64_t seq);

/* Recovery: all up to `cut` is durable, where the journal ends; operations are numbered from there
 * on. */
void history_begin(struct history *history, uint64_t cut);
/* The state of a head with this cut is shown from now on, all of it durable. For waiters, numbers
 * only grow: ours may be larger than the writer's. */
void history_raise(struct history *history, uint64_t cut);
/* Recovery: when the last durable operation happened; a pending operation of the log; and then the
 * log is written anew. */
void history_resume(struct history *history, int64_t last_time);
void history_readd(struct history *history, const struct record *rec);
CAIRN_MUST_CHECK int history_compact(struct history *history);

/* --- history_rounds.c ------------------------------------------------------------------------- */

/* Other nodes write the prefix: rounds of this length, ns, are noted from now on, by a clock that
 * is lent. Before the first operation. */
void history_begin_rounds(struct history *history, int64_t length, struct node_clock *clock);
/* What changed here, and is not in the union of all nodes; NULL: no other node writes. */
struct touched *history_touched(struct history *history);
/* Is a cut to end at a round whose number ends in `bits` zero bits? Then the next cuts do, where
 * they can. */
void history_want_round(struct history *history, bool wants, unsigned bits);
/* Of the rounds behind `after` that were noted, those at which `number` was the newest number; if
 * these are such as are wanted. */
CAIRN_MUST_CHECK bool history_wanted_round_of(struct history *history, uint64_t number,
                                              uint64_t after, struct rounds_span *ret);
/* The same, of whatever rounds. */
CAIRN_MUST_CHECK bool history_rounds_of(struct history *history, uint64_t number, uint64_t after,
                                        struct rounds_span *ret);
/* Nothing up to this round is told: others told of it before it came (rounds_begin_after()). */
void history_begin_rounds_after(struct history *history, uint64_t round);
/* Up to this round nothing may be told that was not told yet (rounds_dropped()). */
uint64_t history_dropped_rounds(struct history *history);
/* Those up to `hi` are asked for no more. */
void history_forget_rounds(struct history *history, uint64_t hi);

/* --- seal.c ----------------------------------------------------------------------------------- */

/* Notes the rounds that have passed, as each operation does. */
void history_pass_rounds(struct history *history);

/* Seals every draft and every nascent file but these, ascending. */
CAIRN_MUST_CHECK int history_seal_all_but(struct history *history, const uint64_t *but,
                                          size_t but_count);
/* Some of these found no room in the log (-EAGAIN): writeback seals all, once there is some. */
void history_seal_rest_later(struct history *history);

/* --- draft.c ---------------------------------------------------------------------------------- */

/* Size and time, of an inode and its staged state, which was read first. */
void commit_now_settle(struct commit_now *now);

/* --- change.c --------------------------------------------------------------------------------- */

/* The view begins to be exchanged, or has been: change_generation(). */
void change_next_generation(struct change *change);
/* As change_generation(), without a wait: odd while the view is being exchanged. */
uint64_t change_generation_now(const struct change *change);
/* Calls the function of change_subscribe(). Without locks. */
void change_notify(struct change *change, const uint64_t *inos, size_t count, bool has_content);
