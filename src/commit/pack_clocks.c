// SPDX-License-Identifier: Apache-2.0
/* When packs were used, in memory only, in a table of fixed size: packs that share a place in it
 * count as used together, and after a mount all are equally old. */
#include "base/clock.h"
#include "commit/internal.h"

static _Atomic uint32_t *clock_of(struct store *store, uint64_t pack)
{
    return &store->commit->used_at[(pack * 0x9e3779b97f4a7c15ull) >> 48];
}

void packs_touch(struct store *store, uint64_t pack)
{
    uint32_t now = (uint32_t)((clock_monotonic_ns() - store->commit->started_at) / 100000000) + 1;
    if (atomic_load_explicit(clock_of(store, pack), memory_order_relaxed) != now)
        atomic_store_explicit(clock_of(store, pack), now, memory_order_relaxed);
}

uint32_t packs_used_at(struct store *store, uint64_t pack)
{
    return atomic_load(clock_of(store, pack));
}
