// SPDX-License-Identifier: Apache-2.0
/* Fetched chunks are promoted: stored on NVMe, so that each is fetched once.
 *
 * They are added to the same packs as the chunks of writeback, against room that is reserved as for
 * staged bytes, and to the journal with the next batch, or with a batch of their own soon after.
 * Until then a crash loses them, at the cost of another fetch. */
#include "base/clock.h"
#include "fetch/pull.h"
#include "remote/state.h"

/* after the last chunk, before a pack that is not full is written */
#define REST_NS (1000ll * 1000000)
#define PATIENCE_NS (1ll * 1000000000) /* beyond the delay of writeback */
#define BYTES_MAX (256 * MIB)
#define FLUSH_NS (10ll * 1000000000)

/* Eviction takes a moment to free room. */
static bool take_room_to_promote(struct store *store, uint64_t bytes, int64_t until)
{
    struct event *more = room_more(store->commit.room);
    uint64_t seen = event_count(more);
    for (bool asks = true; !room_promote(store->commit.room, bytes, asks); asks = false)
        if (evict_is_hopeless(store) || remote_is_stopping(store->remote) ||
            !event_wait(more, &seen, until))
            return false;
    return true;
}

bool promote_chunk(struct store *store, const struct chunk_entry *entry, const void *stored,
                   int64_t until)
{
    if (pull_is_local(store, &entry->name))
        return true;
    if (!take_room_to_promote(store, entry->stored_len, until))
        return false;
    int r = packs_promote(store->commit.packs, entry, stored);
    if (r < 0) {
        room_promote_done(store->commit.room, entry->stored_len);
        return r == -EEXIST;
    }
    damage_cured(store->commit.damage, &entry->name);
    bool was_full = room_promoted(store->commit.room) >= PACK_DATA_MAX;
    atomic_store(&store->fetch->promoted_at, clock_monotonic_ns());
    if (was_full)
        horizon_kick(store->commit.horizon);
    return true;
}

bool promote_decoded(struct store *store, const struct chunk_entry *entry, const void *raw,
                     void *scratch, int64_t until)
{
    struct chunk_entry local;
    if (pull_is_local(store, &entry->name))
        return true;
    const void *stored =
        packs_encode(store->commit.packs, &entry->name, raw, entry->raw_len, scratch, &local);
    return promote_chunk(store, &local, stored, until);
}

static bool is_due(struct store *store)
{
    uint64_t bytes = room_promoted(store->commit.room);
    if (bytes == 0)
        return false;
    return bytes >= PACK_DATA_MAX || atomic_load(&store->fetch->promote_flushes) > 0 ||
           clock_monotonic_ns() - atomic_load(&store->fetch->promoted_at) >= REST_NS;
}

/* Adds fetched chunks to the journal. They are left to a batch of writeback if operations wait for
 * one, unless these wait for long. */
bool promote_round(struct store *store, bool now)
{
    (void)now;
    uint64_t seq;
    int64_t happened;
    if (!is_due(store))
        return false;
    if (history_oldest(store->commit.history, &seq, &happened) &&
        clock_monotonic_ns() - happened < store->local.options.writeback_delay_ns + PATIENCE_NS &&
        room_promoted(store->commit.room) < BYTES_MAX &&
        atomic_load(&store->fetch->promote_flushes) == 0)
        return false;
    return upkeep_carry(&store->commit);
}

void promote_flush(struct store *store)
{
    struct event *progress = horizon_progress(store->commit.horizon);
    int64_t until = clock_monotonic_ns() + FLUSH_NS;
    uint64_t seen = event_count(progress);
    atomic_fetch_add(&store->fetch->promote_flushes, 1);
    horizon_kick(store->commit.horizon);
    while (room_promoted(store->commit.room) > 0 && event_wait(progress, &seen, until))
        ;
    atomic_fetch_sub(&store->fetch->promote_flushes, 1);
}
