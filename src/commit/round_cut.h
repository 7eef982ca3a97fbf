// SPDX-License-Identifier: Apache-2.0
/* A cut of the view at a round common to all nodes. The uploader requests it, and the writeback
 * thread makes it: only that thread knows when the view is at the number of a round. */
#pragma once

#include "commit/rounds.h"

struct commit;
struct round_cut;
struct view_cut;

struct round_cut *round_cut_new(void);
void round_cut_free(struct round_cut *wish); /* NULL is fine */

/* A requested cut. */
struct round_cut_wish {
    /* rounds whose number ends in so many zero bits; and any at which the number stayed the same */
    unsigned bits;
    uint64_t after;             /* only rounds after this one */
    bool (*is_over)(void *arg); /* true: give up; polled every 100 ms */
    void *arg;
};
/* Waits for a round, and returns its cut, which the caller closes. -ECANCELED: given up. Called by
 * the uploader's thread, for a view that tracks. No drop has begun since the cut was made, and none
 * begins until the caller releases packs_hold_drops(); during the wait, packs may be dropped. */
CAIRN_MUST_CHECK int round_cut_await(struct commit *commit, const struct round_cut_wish *wish,
                                     struct view_cut **ret_cut, struct rounds_span *ret_span);
/* Called between two targets: makes the requested cut, if the view is at such a round. Writeback
 * thread only. */
void round_cut_offer(struct commit *commit);
