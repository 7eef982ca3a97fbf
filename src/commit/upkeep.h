// SPDX-License-Identifier: Apache-2.0
/* The writeback thread's rounds between two targets (upkeep.c): for the components that share the
 * store, which have rounds of their own. */
#pragma once

#include "base/base.h"

#define DROPS_MAX 256u /* packs that go with one batch */

struct commit;
struct lag;
struct store;

/* A round of the writeback thread between two targets. */
struct upkeep_round {
    /* `now`: room is short, or a caller waits for a gc. True: it did something, and there may be
     * more. */
    bool (*make)(struct store *store, bool now);
    bool frees; /* it makes room on NVMe: those of these behind it wait until it finds nothing */
};

/* In order; those of the components above, too. */
struct upkeep {
    const struct upkeep_round *rounds;
    size_t count;
    /* May NVMe get room by what the components above do? No write is refused meanwhile. The
     * writeback thread. */
    bool (*may_free)(struct store *store);
};

/* --- commit/'s own rounds --------------------------------------------------------------------- */

bool heal_round(struct store *store, bool now);
bool gc_round(struct store *store, bool now);
bool compact_round(struct store *store, bool now);

/* --- for a round ------------------------------------------------------------------------------ */

/* A cut with the same state, which names the packs that were made since the last one. False: the
 * store stops. */
CAIRN_MUST_CHECK bool upkeep_carry(struct commit *commit);
/* The same, without these packs, which are marked as dropping; `flags` of their records. False:
 * they stay. */
CAIRN_MUST_CHECK bool upkeep_drop(struct commit *commit, const uint64_t *ids, size_t count,
                                  uint32_t flags);
/* Calls `fn` for each of these in the threads that encode; returns when it has done. */
void writeback_for_each(struct commit *commit, void (*fn)(void *item), void *items, size_t count,
                        size_t size);

/* --- for any thread --------------------------------------------------------------------------- */

/* Does the view lack durable operations? */
bool lag_exists(const struct lag *lag);
/* Asks for rounds until there is nothing more to free, and gives them a number. */
uint64_t gc_ask(struct commit *commit);
/* Have those been made? horizon_progress() is signalled. */
bool gc_is_done(const struct commit *commit, uint64_t number);
/* There are packs to be dropped that need not wait for their turn. */
void gc_ask_soon(struct commit *commit);
/* Ends the writeback thread, and those that work for it. */
void writeback_stop(struct commit *commit);
