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
