// SPDX-License-Identifier: Apache-2.0
/* The horizon of a store, its waiters (horizon.c), and the priority of those that work for that
 * (priority.c): for the components that share the store. */
#pragma once

#include "base/base.h"

struct store;

/* --- horizon.c -------------------------------------------------------------------------------- */

/* Recovery: all up to `cut` is durable, where the journal ends; operations are numbered from there
 * on. */
void horizon_begin(struct store *store, uint64_t cut);
/* The state of a head with this cut is shown from now on, all of it durable. For waiters, numbers
 * only grow: ours may be larger than the writer's. */
void horizon_raise(struct store *store, uint64_t cut);
void horizon_error(struct store *store, const char *fmt, ...) CAIRN_PRINTF(2, 3);
void horizon_kick(struct store *store); /* has the writeback thread make a round */
uint64_t horizon_new_ticket(struct store *store);
bool horizon_unwait(struct store *store, uint64_t ticket); /* see store_unwait() */
/* Does a caller wait for the horizon, or for room? */
bool horizon_is_urgent(struct store *store);
/* Bytes still to go of the target that is being written. */
uint64_t horizon_target_bytes(struct store *store);
/* When a cut became durable, how old its oldest operation is; what the remote has is forgotten. */
void horizon_note_age(struct store *store, uint64_t cut, int64_t happened);
/* Age of the oldest durable or pending operation after `seq`; 0: there is none. Monotonic ns. */
int64_t history_oldest_after(struct store *store, uint64_t seq);

/* --- priority.c ------------------------------------------------------------------------------- */

/* Sets the priority of the calling thread, where its caller knows what waits: as low as that of
 * writeback's threads, or normal. */
void priority_set_own(struct store *store, bool low);
