// SPDX-License-Identifier: Apache-2.0
/* The horizon of a store, its waiters (horizon.c), and the priority of those that work for that
 * (priority.c): for the components that share the store. */
#pragma once

#include "base/base.h"

struct horizon;
struct priority;

/* --- horizon.c -------------------------------------------------------------------------------- */

void horizon_error(struct horizon *horizon, const char *fmt, ...) CAIRN_PRINTF(2, 3);
void horizon_kick(struct horizon *horizon); /* has the writeback thread make a round */
uint64_t horizon_new_ticket(struct horizon *horizon);
bool horizon_unwait(struct horizon *horizon, uint64_t ticket); /* see store_unwait() */
/* Does a caller wait for the horizon, or for room? */
bool horizon_is_urgent(struct horizon *horizon);
/* Bytes still to go of the target that is being written. */
uint64_t horizon_target_bytes(struct horizon *horizon);
/* The remote has this cut now, or its state. */
void horizon_set_published(struct horizon *horizon, uint64_t seq);
/* A cut became durable just now, whose oldest operation happened then (monotonic ns). */
void horizon_note_durable(struct horizon *horizon, int64_t happened);
/* The remote has this cut since just now: before horizon_set_published(). */
void horizon_note_published(struct horizon *horizon, uint64_t cut);
/* When a cut became durable, how old its oldest operation is; cuts that the remote has are
 * forgotten. */
void horizon_note_age(struct horizon *horizon, uint64_t cut, int64_t happened);

/* --- priority.c ------------------------------------------------------------------------------- */

/* Sets the priority of the calling thread, where its caller knows what waits: as low as that of
 * writeback's threads, or normal. */
void priority_set_own(struct priority *priority, bool low);
