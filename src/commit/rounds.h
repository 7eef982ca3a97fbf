// SPDX-License-Identifier: Apache-2.0
/* Rounds: instants that all nodes of a prefix have in common, k times a length. No node numbers an
 * operation while its clock may be on either side of one (the hold window). So the newest numbers
 * that the nodes note at a round are one state, which they had together.
 *
 * A node that publishes less often than rounds come chooses among those that it noted. Two nodes
 * that choose as they like may never choose the same one. So each chooses the round whose number
 * has the most trailing zero bits, and of equals the latest: then a common one always comes.
 *
 * Guarded by the history's lock, like the numbers. */
#pragma once

#include "commit/node_clock.h"

struct rounds;

/* `length`: of a round, ns. Of the rounds up to the first look with a bound nothing is known:
 * numbers may have been given since, by a daemon before. */
struct rounds *rounds_new(int64_t length);
void rounds_free(struct rounds *rounds);

/* All below take a look at the node's clock, no earlier than that of the call before. A round whose
 * window begins while there is no bound is never noted; nor is one up to the end of an era, of
 * which what was noted and is not forgotten yet is dropped. */

/* Must an operation wait that would be numbered now, or up to `ahead` ns later? For so long, ns; 0:
 * it need not. */
int64_t rounds_hold(struct rounds *rounds, const struct clock_look *look, int64_t ahead);

/* Notes `newest`, the newest number, for the rounds that have passed: before each number that is
 * given, and when the rounds are asked for. A round that is noticed late gets no later number. */
void rounds_pass(struct rounds *rounds, const struct clock_look *look, uint64_t newest);

/* The same number was the newest at all rounds from `lo` to `hi`. */
struct rounds_span {
    uint64_t lo, hi;
    uint64_t number;
    /* When the newest number up to `hi` was given, and the first one behind it: ns since 1970; 0:
     * not known, none yet. */
    int64_t last, next;
};
/* A number is given now. */
void rounds_note_number(struct rounds *rounds, const struct clock_look *look);

/* Has the window of a round begun that is not noted yet? */
bool rounds_are_due(struct rounds *rounds, const struct clock_look *look);
/* The rounds that have begun are not noted: a number came too late for them. */
void rounds_lose(struct rounds *rounds, const struct clock_look *look);
/* Nothing up to round `last` is told, though some may be noted: others told of it before it came,
 * by a clock that was set back since. */
void rounds_begin_after(struct rounds *rounds, uint64_t last);
/* What was noted up to this round may be told no more: its era has ended, or others told of it. */
uint64_t rounds_dropped(const struct rounds *rounds);

/* Chooses among those noted behind round `after` whose number is from `least` to `most`. Of rounds
 * that ended the same way for a while, the number counts as it is; of others only rounds are chosen
 * whose number ends in `bits` zero bits. False: there is none. */
CAIRN_MUST_CHECK bool rounds_choose(const struct rounds *rounds, unsigned bits, uint64_t after,
                                    uint64_t least, uint64_t most, struct rounds_span *ret);

/* Forgets all up to round `hi`, but not that it had passed. */
void rounds_forget(struct rounds *rounds, uint64_t hi);
