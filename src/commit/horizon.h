// SPDX-License-Identifier: Apache-2.0
/* The horizon of a store, its waiters (horizon.c), and the priority of the threads that advance it
 * (priority.c): for the components that share the store. */
#pragma once

#include "base/base.h"

struct horizon;
struct priority;

/* --- horizon.c -------------------------------------------------------------------------------- */

void horizon_error(struct horizon *horizon, const char *fmt, ...) CAIRN_PRINTF(2, 3);
void horizon_kick(struct horizon *horizon); /* makes the writeback thread start a round */
uint64_t horizon_new_ticket(struct horizon *horizon);
bool horizon_unwait(struct horizon *horizon, uint64_t ticket); /* see store_unwait() */
/* Does any caller wait for the horizon, or for room? */
bool horizon_is_urgent(struct horizon *horizon);
/* Bytes of the current target that are still to be written. */
uint64_t horizon_target_bytes(struct horizon *horizon);
/* The remote now has this cut, or its state. */
void horizon_set_published(struct horizon *horizon, uint64_t seq);
/* A cut has just become durable; its oldest operation happened at this time (monotonic ns). */
void horizon_note_durable(struct horizon *horizon, int64_t happened);
/* The remote has just got this cut: call before horizon_set_published(). */
void horizon_note_published(struct horizon *horizon, uint64_t cut);
/* Records, when a cut becomes durable, when its oldest operation happened; removes records of cuts
 * that the remote has. */
void horizon_note_age(struct horizon *horizon, uint64_t cut, int64_t happened);

/* --- priority.c ------------------------------------------------------------------------------- */

/* Sets the priority of the calling thread, whose caller decides by the waiting work: low, as for
 * writeback's threads, or normal. */
void priority_set_own(struct priority *priority, bool low);
