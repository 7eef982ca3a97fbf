// SPDX-License-Identifier: Apache-2.0
/* Rounds: instants that all nodes of a prefix have in common, k times a length. No node numbers an
 * operation while its clock may be on either side of one (the hold window). So the newest numbers
 * that the nodes note at a round are one state, which they had together.
 *
 * A node that publishes less often than rounds come chooses among those that it noted. Two nodes
 * that choose as they like may never choose the same one. So each chooses the round whose number
 * has the most trailing zero bits, and of equals the latest: then a common one always comes.
 *
 * Guarded by the history's lock, like the numbers. Times are ns since 1970, of the node's clock. */
#pragma once

#include "base/base.h"

struct rounds;

/* `length`: of a round, ns. `error`: how far the clock may be wrong, ns; less than half of it. Of
 * the rounds up to `now` nothing is known: numbers may have been given since, by a daemon before.
 */
struct rounds *rounds_new(int64_t length, int64_t error, int64_t now);
void rounds_free(struct rounds *rounds);

/* Must an operation wait that would be numbered now? 0: no; else the time at which it may. */
int64_t rounds_hold_until(const struct rounds *rounds, int64_t now);

/* Notes `newest`, the newest number, for the rounds that have passed: before each number that is
 * given, and when the rounds are asked for. A round that is noticed late gets no later number. */
void rounds_pass(struct rounds *rounds, int64_t now, uint64_t newest);

/* The same number was the newest at all rounds from `lo` to `hi`. */
struct rounds_span {
    uint64_t lo, hi;
    uint64_t number;
};

/* Has the window of a round begun that is not noted yet? */
bool rounds_are_due(const struct rounds *rounds, int64_t now);
/* The rounds that have begun are not noted: a number came too late for them. */
void rounds_lose(struct rounds *rounds, int64_t now);

/* Chooses among those noted behind round `after` whose number is from `least` to `most`. Of rounds
 * that ended the same way for a while, the number counts as it is; of others only rounds are chosen
 * whose number ends in `bits` zero bits. False: there is none. */
CAIRN_MUST_CHECK bool rounds_choose(const struct rounds *rounds, unsigned bits, uint64_t after,
                                    uint64_t least, uint64_t most, struct rounds_span *ret);

/* Forgets all up to round `hi`, but not that it had passed. */
void rounds_forget(struct rounds *rounds, uint64_t hi);
