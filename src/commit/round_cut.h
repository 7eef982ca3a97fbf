// SPDX-License-Identifier: Apache-2.0
/* A cut of the view at a round that all nodes have in common. The uploader asks for it, and the
 * writeback thread makes it: only that knows when the view is at the number of a round. */
#pragma once

#include "commit/rounds.h"

struct commit;
struct round_cut;
struct view_cut;

struct round_cut *round_cut_new(void);
void round_cut_free(struct round_cut *wish); /* NULL is fine */

/* What is asked for. */
struct round_cut_wish {
    unsigned bits;  /* rounds whose number ends in so many zero bits; and any at which the number
                       stayed the same */
    uint64_t after; /* behind this round */
    bool (*is_over)(void *arg); /* give up; asked every 100 ms */
    void *arg;
};
/* Waits for a round, and the cut. -ECANCELED: it was given up. The uploader's thread, for a view
 * that tracks. The caller closes the cut. No drop has begun since it was made, and none does until
 * the caller ends the hold, packs_hold_drops(): while a round is waited for, packs may leave. */
CAIRN_MUST_CHECK int round_cut_await(struct commit *commit, const struct round_cut_wish *wish,
                                     struct view_cut **ret_cut, struct rounds_span *ret_span);
/* Between two targets: makes the cut that is asked for, if the view is there. The writeback
 * thread. */
void round_cut_offer(struct commit *commit);
