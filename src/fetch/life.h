// SPDX-License-Identifier: Apache-2.0
/* The life of fetch/ from the opening of a store to its end, for store/. */
#pragma once

#include "base/base.h"

struct fetch;
struct store;

struct fetch *fetch_new(void);
void fetch_free(struct fetch *fetch);
/* Starts the threads. After a failure fetch_free() ends them. */
CAIRN_MUST_CHECK int fetch_start(struct store *store);
/* Called in this order when the store stops. fetch_stop(): no new work begins. fetch_end(), after
 * the remote was interrupted: waits until work under way has ended, and promoted chunks are
 * durable, or cannot become durable soon. */
void fetch_stop(struct store *store);
void fetch_end(struct store *store);

/* --- rounds of the writeback thread ----------------------------------------------------------- */

/* Adds promoted chunks to the journal, when it is due. */
bool promote_round(struct store *store, bool now);
/* Counts pinned bytes anew, when pins changed or a client asked for free space. */
bool pins_round(struct store *store, bool now);
/* Evicts packs, if room is short or on request. */
bool evict_round(struct store *store, bool now);
/* Returns whether room may become free by eviction, or by uploads under way. */
bool evict_may_free(struct store *store);

/* --- statistics: any thread --- */

/* Returns how many bytes of NVMe eviction could make free: an estimate, from counters. */
uint64_t evict_possible(struct store *store);
/* Returns how many bytes left NVMe since the store was opened. */
uint64_t evict_total(const struct store *store);
/* Returns the most memory that fetch/ uses. */
uint64_t fetch_memory(const struct store *store);
