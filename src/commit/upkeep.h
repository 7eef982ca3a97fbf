// SPDX-License-Identifier: Apache-2.0
/* The writeback thread's rounds between two targets (upkeep.c): for the components that share the
 * store, which have rounds of their own. */
#pragma once

#include "base/base.h"

#define DROPS_MAX 256u /* packs dropped with one batch */

struct commit;
struct lag;
struct store;

/* A round of the writeback thread between two targets. */
struct upkeep_round {
    /* `now`: room is short, or a caller waits for a gc. True: it made progress, and there may be
     * more to do. */
    bool (*make)(struct store *store, bool now);
    bool frees; /* it frees room on NVMe: later rounds of this kind wait until it finds nothing */
};

/* The rounds in order, including those of the components above. */
struct upkeep {
    const struct upkeep_round *rounds;
    size_t count;
    /* Can the components above free room on NVMe? While they can, no write is refused. Writeback
     * thread only. */
    bool (*may_free)(struct store *store);
};

/* --- commit/'s own rounds --------------------------------------------------------------------- */

bool heal_round(struct store *store, bool now);
bool gc_round(struct store *store, bool now);
bool compact_round(struct store *store, bool now);

/* --- functions for rounds --------------------------------------------------------------------- */

/* Makes a cut with the same state, which names the packs written since the last one. False: the
 * store is stopping. */
CAIRN_MUST_CHECK bool upkeep_carry(struct commit *commit);
/* As upkeep_carry(), without these packs, which are marked as dropping; `flags` of their records.
 * False: they stay. */
CAIRN_MUST_CHECK bool upkeep_drop(struct commit *commit, const uint64_t *ids, size_t count,
                                  uint32_t flags);
/* Calls `fn` for each item in the encoding threads; returns when all calls have ended. */
void writeback_for_each(struct commit *commit, void (*fn)(void *item), void *items, size_t count,
                        size_t size);

/* --- for any thread --------------------------------------------------------------------------- */

/* Is the view missing durable operations? */
bool lag_exists(const struct lag *lag);
/* Requests rounds of gc until nothing more can be freed; returns the number of the request. */
uint64_t gc_ask(struct commit *commit);
/* Has that request been completed? horizon_progress() is signalled then. */
bool gc_is_done(const struct commit *commit, uint64_t number);
/* Requests a round of gc soon, since some packs can be dropped. */
void gc_ask_soon(struct commit *commit);
/* Ends the writeback thread and its helper threads. */
void writeback_stop(struct commit *commit);
