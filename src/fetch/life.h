// SPDX-License-Identifier: Apache-2.0
/* fetch/ from the opening of a store to its end, for store/. */
#pragma once

#include "base/base.h"

struct fetch;
struct store;

struct fetch *fetch_new(void);
void fetch_free(struct fetch *fetch);
/* The threads. Where it fails, fetch_free() ends them. */
CAIRN_MUST_CHECK int fetch_start(struct store *store);
/* In this order when the store stops. Nothing new begins; once the remote is interrupted, what is
 * under way ends, and what was promoted is durable, or cannot become so soon. */
void fetch_stop(struct store *store);
void fetch_end(struct store *store);

/* --- rounds of the writeback thread ----------------------------------------------------------- */

/* Makes what was promoted part of the journal, when it is due. */
bool promote_round(struct store *store, bool now);
/* Counts what is pinned anew, when it changed or a client asked what is free. */
bool pins_round(struct store *store, bool now);
/* Packs leave, because room is short or it was asked for. */
bool evict_round(struct store *store, bool now);
/* May room come free by eviction, or by what is being uploaded? */
bool evict_may_free(struct store *store);

/* --- what is told of it: any thread ----------------------------------------------------------- */

/* Bytes of NVMe that eviction could make free: an estimate, from counters. */
uint64_t evict_possible(struct store *store);
/* Bytes that left NVMe since the store was opened. */
uint64_t evict_total(const struct store *store);
/* Most memory that it takes. */
uint64_t fetch_memory(const struct store *store);
