// SPDX-License-Identifier: Apache-2.0
/* When content was read, and when packs were last used, only in memory, in a table of fixed size:
 * packs that share an entry count as used together, and after a mount all are equally old. */
#include "base/clock.h"
#include "commit/packs_internal.h"
#include "commit/read.h"

static _Atomic uint32_t *clock_of(struct packs *packs, uint64_t pack)
{
    return &packs->used_at[(pack * 0x9e3779b97f4a7c15ull) >> 48];
}

void packs_touch(struct packs *packs, uint64_t pack)
{
    uint32_t now = (uint32_t)((clock_monotonic_ns() - packs->started_at) / 100000000) + 1;
    if (atomic_load_explicit(clock_of(packs, pack), memory_order_relaxed) != now)
        atomic_store_explicit(clock_of(packs, pack), now, memory_order_relaxed);
}

uint32_t packs_used_at(struct packs *packs, uint64_t pack)
{
    return atomic_load(clock_of(packs, pack));
}

void packs_note_reading(struct packs *packs)
{
    atomic_store(&packs->read_at, clock_monotonic_ns());
}

int64_t packs_quiet_ns(const struct packs *packs)
{
    return clock_monotonic_ns() - atomic_load(&packs->read_at);
}
