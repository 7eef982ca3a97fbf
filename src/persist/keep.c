// SPDX-License-Identifier: Apache-2.0
/* What was fetched is kept on NVMe, so that it is fetched once.
 *
 * Fetched chunks enter the same packs as those that writeback makes, against room that is reserved as for staged bytes, and become
 * part of the journal with the next batch, or with one of their own soon after. Until then a crash loses them, which costs
 * another fetch. */
#include "base/clock.h"
#include "base/log.h"
#include "persist/pull.h"

#define REST_NS (1000ll * 1000000) /* after the last chunk, before a pack that is not full is written */
#define STEP_MS 20
#define FLUSH_MS 10000

/* Room comes free when something is evicted, which takes a moment. */
static bool take_room(struct store *store, uint64_t bytes, int64_t until)
{
    while (!room_keep(store, bytes)) {
        if (clock_monotonic_ns() >= until || room_is_hopeless(store) || remote_is_stopping(store->remote))
            return false;
        (void)nanosleep(&(struct timespec){.tv_nsec = STEP_MS * 1000000}, NULL);
    }
    return true;
}

bool keep_chunk(struct store *store, const struct chunk_entry *entry, const void *stored, int64_t until)
{
    if (pull_is_near(store, &entry->name))
        return true;
    if (!take_room(store, entry->stored_len, until))
        return false;
    int r = packs_keep(store, entry, stored);
    if (r < 0) {
        room_keep_done(store, entry->stored_len);
        return r == -EEXIST;
    }
    cure(store, &entry->name);
    bool was_full = room_kept(store) >= PACK_DATA_MAX;
    atomic_store(&store->kept_at, clock_monotonic_ns());
    if (was_full)
        horizon_kick(store);
    return true;
}

bool keep_is_busy(struct store *store)
{
    return room_kept(store) > 0;
}

bool keep_is_due(struct store *store)
{
    uint64_t bytes = room_kept(store);
    if (bytes == 0)
        return false;
    return bytes >= PACK_DATA_MAX || atomic_load(&store->keep_flush) ||
           clock_monotonic_ns() - atomic_load(&store->kept_at) >= REST_NS;
}

void keep_flush(struct store *store)
{
    atomic_store(&store->keep_flush, true);
    for (int waited = 0; room_kept(store) > 0 && waited < FLUSH_MS; waited += STEP_MS) {
        horizon_kick(store);
        (void)nanosleep(&(struct timespec){.tv_nsec = STEP_MS * 1000000}, NULL);
    }
    atomic_store(&store->keep_flush, false);
}
