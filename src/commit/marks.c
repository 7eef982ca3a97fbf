// SPDX-License-Identifier: Apache-2.0
/* Marks of the state that any thread may look at, without a lock, and events. */
#include "base/clock.h"
#include "commit/internal.h"

struct event *horizon_progress(struct store *store)
{
    return &store->commit->progress;
}

struct event *room_more(struct store *store)
{
    return &store->commit->room.more;
}

bool lag_exists(const struct store *store)
{
    return atomic_load(&store->commit->lag.exists);
}

uint64_t lag_ops(const struct store *store)
{
    return atomic_load(&store->commit->lag.ops);
}

void packs_note_reading(struct store *store)
{
    atomic_store(&store->commit->read_at, clock_monotonic_ns());
}

int64_t packs_quiet_ns(const struct store *store)
{
    return clock_monotonic_ns() - atomic_load(&store->commit->read_at);
}
