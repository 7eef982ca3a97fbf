// SPDX-License-Identifier: Apache-2.0
/* Rounds: instants common to all nodes of a prefix, multiples of a length. No node numbers an
 * operation while its clock may be on either side of one (the hold window). So the newest numbers
 * that the nodes note at a round describe one common state.
 *
 * A node that publishes less often than rounds occur chooses among the rounds that it noted. Two
 * nodes that choose freely might never choose the same one. So each chooses the round whose number
 * has the most trailing zero bits, and among equals the latest: then they eventually choose a
 * common one.
 *
 * Guarded by the history's lock, like the numbers. */
#pragma once

#include "commit/node_clock.h"

struct rounds;

/* `length`: of a round, ns. Rounds up to the first look with a bound are unknown: an earlier daemon
 * may have assigned numbers since. */
struct rounds *rounds_new(int64_t length);
void rounds_free(struct rounds *rounds);

/* All functions below take a look at the node's clock, no earlier than that of the previous call. A
 * round whose window begins while there is no bound is never noted; nor are rounds up to the end of
 * an era, and those noted before the end are dropped unless they were forgotten. */

/* Returns how long an operation must wait that would be numbered now, or up to `ahead` ns later,
 * ns; 0: not at all. */
int64_t rounds_hold(struct rounds *rounds, const struct clock_look *look, int64_t ahead);

/* Notes `newest`, the newest number, for the rounds that have passed. Call before each number is
 * assigned, and when rounds are requested: so a round that is noticed late gets no later number. */
void rounds_pass(struct rounds *rounds, const struct clock_look *look, uint64_t newest);

/* `number` was the newest number at all rounds from `lo` to `hi`. */
struct rounds_span {
    uint64_t lo, hi;
    uint64_t number;
    /* When the newest number up to `hi` was assigned, and the first one after it: ns since 1970; 0:
     * not known, none yet. */
    int64_t last, next;
};
/* Call when a number is assigned. */
void rounds_note_number(struct rounds *rounds, const struct clock_look *look);

/* Has the window of a round begun that is not noted yet? */
bool rounds_are_due(struct rounds *rounds, const struct clock_look *look);
/* Skips the rounds that have begun: a number came too late for them. */
void rounds_lose(struct rounds *rounds, const struct clock_look *look);
/* Does not publish rounds up to `last`, though some may be noted: they were published before they
 * began, by a clock that was set back since. */
void rounds_begin_after(struct rounds *rounds, uint64_t last);
/* Rounds up to the returned one may no longer be published: their era has ended, or they were
 * published early. */
uint64_t rounds_dropped(const struct rounds *rounds);

/* Chooses among the rounds noted after `after` whose number is from `least` to `most`. A number
 * that was the newest at several rounds qualifies as it is; for others only rounds whose number
 * ends in `bits` zero bits. False: none. */
CAIRN_MUST_CHECK bool rounds_choose(const struct rounds *rounds, unsigned bits, uint64_t after,
                                    uint64_t least, uint64_t most, struct rounds_span *ret);

/* Removes all rounds up to `hi`, but remembers that they have passed. */
void rounds_forget(struct rounds *rounds, uint64_t hi);
