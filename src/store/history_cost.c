// SPDX-License-Identifier: Apache-2.0
#include "base/clock.h"
#include "store/internal.h"
#include "store/local_snapshots.h"
#include "view/remote.h"

#define SHARE 50 /* counting takes one part in so many of the time */

static int add_unreferenced(const struct view_remote_pack *pack, void *arg)
{
    uint64_t *bytes = arg;
    *bytes += pack->unreferenced && !pack->gone ? pack->length : 0;
    return 0;
}

struct local_snapshots_cost store_snapshots_cost(struct store *store)
{
    return local_snapshots_cost(store->own->snapshots);
}

uint64_t store_history_bytes(struct store *store)
{
    struct store_own *own = store->own;
    uint64_t bytes = 0;
    if (!store->remote)
        return local_snapshots_cost(own->snapshots).bytes;
    int64_t began = clock_monotonic_ns(), due = atomic_load(&own->history_due);
    if (began < due || !atomic_compare_exchange_strong(&own->history_due, &due, INT64_MAX))
        return atomic_load(&own->history_bytes);
    int r = view_remote_packs(store->local.view, add_unreferenced, &bytes);
    if (r == 0)
        atomic_store(&own->history_bytes, bytes);
    int64_t ended = clock_monotonic_ns();
    atomic_store(&own->history_due, ended + (SHARE - 1) * (ended - began));
    return atomic_load(&own->history_bytes);
}
