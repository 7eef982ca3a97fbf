// SPDX-License-Identifier: Apache-2.0
#include "base/clock.h"
#include "commit/internal.h"

void commit_new(struct store *store, const struct upkeep *upkeep)
{
    struct commit *commit = store->commit = xcalloc(1, sizeof *commit);
    commit->upkeep = upkeep;
    commit->started_at = clock_monotonic_ns();
    rate_limit_init(&commit->limit, store->options.writeback_limit);
    mutex_init(&commit->room.lock, LOCK_LEAF);
    cond_init(&commit->room.changed);
    event_init(&commit->room.more);
    event_init(&commit->progress);
    commit->heal = heal_new();
    history_init(store);
    horizon_init(store);
    priority_init(store);
    damage_init(store);
    change_init(store);
    packs_init(store);
}

int commit_start(struct store *store, void (*room)(void *arg), void *arg)
{
    check(!store->commit->on_room);
    store->commit->on_room = room;
    store->commit->on_room_arg = arg;
    stage_on_room(store->stage, room, arg);
    room_account(store); /* the journal is the writeback thread's once there is one */
    int r = writeback_start(store);
    return r < 0 ? r : room_start(store);
}

static bool is_full(struct store *store)
{
    LOCK_SCOPE(&store->commit->room.lock);
    return store->commit->room.scarce && store->commit->room.hopeless;
}

struct commit_status commit_status(struct store *store)
{
    struct commit *commit = store->commit;
    struct commit_status ret = {.is_full = is_full(store),
                                .stage_is_lost = atomic_load(&commit->own_stage.is_lost),
                                .view_is_lost = atomic_load(&commit->lost_view.is_lost),
                                .written_bytes_total = atomic_load(&commit->written_total),
                                .dedup_bytes_total = atomic_load(&commit->dedup_total),
                                .healed_chunks_total = atomic_load(&commit->healed_total),
                                .encoded = encode_counts(&commit->encoded)};
    LOCK_SCOPE(&commit->horizon.lock);
    ret.horizon_seq = commit->horizon.horizon;
    ret.errors = commit->horizon.errors;
    memcpy(ret.last_error, commit->horizon.last_error, sizeof ret.last_error);
    ret.last_error_ns = commit->horizon.last_error_ns;
    return ret;
}

void commit_free(struct store *store)
{
    struct commit *commit = store->commit;
    horizon_done(store);
    priority_done(store);
    history_done(store);
    lag_done(store);
    damage_done(store);
    change_done(store);
    packs_done(store);
    heal_free(commit->heal);
    rate_limit_done(&commit->limit);
    mutex_done(&commit->room.lock);
    (void)pthread_cond_destroy(&commit->room.changed);
    event_done(&commit->room.more);
    event_done(&commit->progress);
    free(commit->own_stage.dir);
    free(commit);
    store->commit = NULL;
}
