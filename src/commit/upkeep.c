// SPDX-License-Identifier: Apache-2.0
/* Upkeep: the writeback thread's work between its targets, in rounds. store/ lists them in order,
 * including those of the components above. Here: damaged chunks are stored again, packs that
 * nothing needs are dropped, mostly dead ones are rewritten.
 *
 * Each of these is a cut of its own: the same state, with other packs. */
#include "base/clock.h"
#include "commit/horizon.h"
#include "commit/journal.h"
#include "commit/local.h"
#include "commit/packs_internal.h"
#include "commit/read_internal.h"
#include "commit/room_internal.h"
#include "commit/shared.h"
#include "commit/writeback_internal.h"
#include "view/view.h"

#define GC_EVERY_NS (5ll * 1000000000)
#define COMPACT_WORTH_PERCENT 10u /* part of a pack that must be dead */
#define COMPACT_HALF_PERCENT 50u
#define TIDY_AFTER_NS (2ll * 1000000000)

/* Moved chunks must be durable before a cut names them: a failed attempt to write a cut drops the
 * chunks of its packs. */
static bool finish_moved(struct commit *commit)
{
    int r = packs_finish(commit->packs);
    if (r < 0)
        packs_abandon(commit->packs);
    return r == 0;
}

bool upkeep_carry(struct commit *commit)
{
    return target_carry_own(commit, &(struct drops){0});
}

/* Stores damaged chunks again. */
bool heal_round(struct store *store, bool now)
{
    struct commit *commit = &store->commit;
    (void)now;
    if (!heal_add(commit->heal) || !finish_moved(commit) || !upkeep_carry(commit))
        return false;
    heal_settle(commit->heal);
    return true;
}

bool upkeep_drop(struct commit *commit, const uint64_t *ids, size_t count, uint32_t flags)
{
    struct drops drops = {.ids = ids, .count = count, .flags = flags};
    if (!finish_moved(commit)) {
        for (size_t i = 0; i < count; i++)
            packs_end_drop(commit->packs, ids[i]);
        return false;
    }
    return target_carry_own(commit, &drops); /* the files are removed once the view has the batch */
}

/* A recovery begins with the runs of the newest published head, so it need not replay the batches
 * that the head contains. */
static void trim_journal(struct commit *commit)
{
    _cleanup_free_ struct head *head = xmalloc(sizeof *head);
    uint64_t cut = local_has_remote(commit->local) ? horizon_published(commit->horizon) : 0;
    if (cut > commit->upkeep->trimmed && local_head_read(commit->local, head) == 0) {
        journal_trim(commit->journal, head->cut);
        commit->upkeep->trimmed = cut;
    }
}

/* Adopts packs left by files without a name that are gone: no operation will bring these packs into
 * the view, from where they are dropped. `now`: does not wait for one that might. */
static bool adopt_leftovers(struct commit *commit, bool now)
{
    if (!packs_have_leftovers(commit->packs) || !(now || target_is_void(commit->history)))
        return false;
    bool carried = upkeep_carry(commit);
    atomic_store(&commit->upkeep->gc_soon, carried);
    return carried;
}

/* Packs left because there was room are dropped before anything is evicted. */
static bool is_gc_due(struct commit *commit)
{
    return atomic_exchange(&commit->upkeep->gc_soon, false) ||
           clock_monotonic_ns() >= commit->upkeep->gc_at ||
           (commit->upkeep->has_spared && room_missing(commit->room) > 0);
}

bool gc_round(struct store *store, bool now)
{
    struct commit *commit = &store->commit;
    uint64_t ids[DROPS_MAX];
    if (!is_gc_due(commit) && !now)
        return false;
    commit->upkeep->gc_at = clock_monotonic_ns() + GC_EVERY_NS;
    trim_journal(commit);
    size_t count = gc_dead_packs(commit, now, ids, DROPS_MAX);
    if (count == 0 && adopt_leftovers(commit, now))
        return true;
    if (count == 0 && now)
        count = gc_compact(commit, COMPACT_HALF_PERCENT, ids, DROPS_MAX);
    return count > 0 && upkeep_drop(commit, ids, count, 0);
}

bool compact_round(struct store *store, bool now)
{
    struct commit *commit = &store->commit;
    uint64_t ids[DROPS_MAX];
    size_t count = now ? gc_compact(commit, COMPACT_WORTH_PERCENT, ids, DROPS_MAX) : 0;
    return count > 0 && upkeep_drop(commit, ids, count, 0);
}

uint64_t gc_ask(struct commit *commit)
{
    uint64_t number = atomic_fetch_add(&commit->upkeep->gc_asked, 1) + 1;
    horizon_kick(commit->horizon);
    return number;
}

bool gc_is_done(const struct commit *commit, uint64_t number)
{
    return atomic_load(&commit->upkeep->gc_done) >= number;
}

void gc_ask_soon(struct commit *commit)
{
    atomic_store(&commit->upkeep->gc_soon, true);
}

void upkeep_begin(struct upkeep_state *upkeep)
{
    upkeep->tidy_at = clock_monotonic_ns() + TIDY_AFTER_NS;
}

/* Work that a session leaves due, compactions of the view and a snapshot for the journal, would
 * compete with the next mount and the restore that usually follows it. */
static void upkeep_tidy(struct commit *commit)
{
    if (commit->upkeep->tidy_at && clock_monotonic_ns() >= commit->upkeep->tidy_at) {
        view_begin_compactions(commit->local->view);
        commit->upkeep->tidy_at = 0;
    }
    snapshot_tick(commit->snapshot, !commit->upkeep->tidy_at);
}

static bool do_rounds(struct commit *commit)
{
    bool did = false, freed = false;
    uint64_t asked = atomic_load(&commit->upkeep->gc_asked);
    bool now = room_is_short(commit->room) || asked > atomic_load(&commit->upkeep->gc_done);
    upkeep_tidy(commit);
    for (size_t i = 0; i < commit->upkeep->list->count; i++) {
        const struct upkeep_round *round = &commit->upkeep->list->rounds[i];
        /* dropping, moving and trimming go by the view: not while it lags */
        if (lag_exists(commit->lag))
            return did;
        if (round->frees && freed)
            continue;
        bool done = round->make(commit->store, now);
        did = did || done;
        freed = freed || (round->frees && done);
    }
    if (!freed)
        atomic_store(&commit->upkeep->gc_done, asked);
    return did;
}

bool upkeep_rounds(struct commit *commit)
{
    bool did = do_rounds(commit);
    event_signal(horizon_progress(commit->horizon));
    return did;
}
