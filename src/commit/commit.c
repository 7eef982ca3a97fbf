// SPDX-License-Identifier: Apache-2.0
/* The objects of commit/, and callbacks to objects that are created later. */
#include "commit/commit.h"

#include "commit/feed_log.h"

#include "commit/history_internal.h"
#include "commit/horizon_internal.h"
#include "commit/journal_internal.h"
#include "commit/packs_internal.h"
#include "commit/read_internal.h"
#include "commit/room_internal.h"
#include "commit/round_cut.h"
#include "commit/session_internal.h"
#include "commit/writeback_internal.h"
#include "view/view.h"

/* Counts new packs before the view's: a pack that moves to the view in between then counts twice,
 * but is never missed. */
static uint64_t count_packs(void *arg)
{
    const struct commit *commit = arg;
    uint64_t packs = packs_new_bytes(commit->packs);
    return packs + view_state(commit->local->view).pack_bytes;
}

static uint64_t count_journal(void *arg)
{
    const struct commit *commit = arg;
    return commit->journal->bytes;
}

static uint64_t count_staged(void *arg)
{
    const struct commit *commit = arg;
    return stage_dirty_bytes(commit->local->stage);
}

static bool is_carried(void *arg, int64_t before)
{
    const struct commit *commit = arg;
    uint64_t seq;
    int64_t happened;
    return !history_oldest(commit->history, &seq, &happened) || happened > before;
}

static bool may_free(void *arg)
{
    const struct commit *commit = arg;
    return commit->upkeep->list->may_free(commit->store);
}

static const struct room_sources room_sources = {.packs = count_packs,
                                                 .journal = count_journal,
                                                 .staged = count_staged,
                                                 .is_carried = is_carried,
                                                 .may_free = may_free};

void commit_init(struct commit *commit, struct store *store, struct local *local,
                 const struct upkeep *upkeep)
{
    const struct store_options *options = &local->options;
    *commit = (struct commit){.local = local, .store = store};
    commit->upkeep = xcalloc(1, sizeof *commit->upkeep);
    commit->upkeep->list = upkeep;
    commit->lag = xcalloc(1, sizeof *commit->lag);
    commit->lost_view = xcalloc(1, sizeof *commit->lost_view);
    commit->writeback = xcalloc(1, sizeof *commit->writeback);
    commit->priority = priority_new();
    commit->change = change_new();
    commit->damage = damage_new(local);
    commit->journal = journal_new(local);
    commit->own_stage = xcalloc(1, sizeof *commit->own_stage);
    *commit->own_stage = (struct own_stage){.local = local, .journal = commit->journal};
    commit->horizon =
        horizon_new(options->writeback_delay_ns, options->writeback_limit, commit->priority);
    commit->room = room_new(local, commit->horizon, &room_sources, commit);
    commit->packs = packs_new(local, commit->room, commit->horizon, commit->damage);
    commit->heal = heal_new(commit->packs, commit->damage);
    commit->history = history_new(local, commit->horizon, commit->packs, commit->change);
    commit->snapshot =
        snapshot_new(local, commit->journal, commit->horizon, commit->packs, commit->room);
}

void commit_join_nodes(struct commit *commit, int64_t round_ns, struct node_clock *clock)
{
    check(!commit->round_cut);
    commit->round_cut = round_cut_new();
    history_begin_rounds(commit->history, round_ns, clock);
}

int commit_start(struct commit *commit, void (*room)(void *arg), void *arg)
{
    room_on_room(commit->room, room, arg);
    stage_on_room(commit->local->stage, room, arg);
    /* from commit_start() on, only the writeback thread uses the journal */
    room_account(commit->room);
    int r = writeback_start(commit);
    return r < 0 ? r : room_start(commit->room);
}

struct commit_status commit_status(struct commit *commit)
{
    const struct packs *packs = commit->packs;
    struct commit_status ret = {.is_full = room_is_full(commit->room),
                                .stage_is_lost = atomic_load(&commit->own_stage->is_lost),
                                .view_is_lost = atomic_load(&commit->lost_view->is_lost),
                                .written_bytes_total = atomic_load(&packs->written_total),
                                .dedup_bytes_total = atomic_load(&packs->dedup_total),
                                .healed_chunks_total = atomic_load(&commit->damage->healed_total),
                                .encoded = encode_counts(&packs->encoded)};
    horizon_status(commit->horizon, &ret);
    return ret;
}

void commit_done(struct commit *commit)
{
    /* waiters get the error while they can still use the other objects */
    horizon_refuse(commit->horizon, -ESHUTDOWN);
    lag_done(commit);
    round_cut_free(commit->round_cut);
    feed_log_free(commit->feed_log);
    free(commit->snapshot);
    history_free(commit->history);
    heal_free(commit->heal);
    packs_free(commit->packs);
    room_free(commit->room);
    horizon_free(commit->horizon);
    free(commit->journal);
    damage_free(commit->damage);
    change_free(commit->change);
    priority_free(commit->priority);
    free(commit->writeback);
    free(commit->own_stage->dir);
    free(commit->own_stage);
    free(commit->lost_view);
    free(commit->lag);
    free(commit->upkeep);
    *commit = (struct commit){0};
}
