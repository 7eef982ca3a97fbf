// SPDX-License-Identifier: Apache-2.0
/* Upkeep: the writeback thread's work between its targets, in rounds. store/ lists them in order,
 * those of the components above too. Here: damaged chunks get another place, packs that nothing
 * needs go, those that are mostly dead are made anew.
 *
 * Each of these is a cut of its own: the same state, with other packs. */
#include "base/clock.h"
#include "commit/internal.h"

#define GC_EVERY_NS (5ll * 1000000000)
#define COMPACT_WORTH_PERCENT 10u /* of a pack that must be dead */
#define COMPACT_HALF_PERCENT 50u
#define TIDY_AFTER_NS (2ll * 1000000000)

/* Chunks that get another place must have it before a cut says so: a try of a cut that fails
 * forgets what its packs were to hold. */
static bool finish_moved(struct store *store)
{
    int r = packs_finish(store);
    if (r < 0)
        packs_abandon(store);
    return r == 0;
}

bool upkeep_carry(struct store *store)
{
    return target_carry_own(store, &(struct drops){0});
}

/* Chunks that were damaged get another place. */
bool heal_round(struct store *store, bool now)
{
    (void)now;
    if (!heal_add(store) || !finish_moved(store) || !upkeep_carry(store))
        return false;
    heal_settle(store);
    return true;
}

bool upkeep_drop(struct store *store, const uint64_t *ids, size_t count, uint32_t flags)
{
    struct drops drops = {.ids = ids, .count = count, .flags = flags};
    if (!finish_moved(store)) {
        for (size_t i = 0; i < count; i++)
            packs_end_drop(store, ids[i]);
        return false;
    }
    return target_carry_own(store, &drops); /* the files go when the view has it */
}

/* Batches that the newest published head has need not be repeated by a recovery: that begins with
 * the head's runs. */
static void trim_journal(struct store *store)
{
    struct head *head = xmalloc(sizeof *head);
    uint64_t cut = store->remote ? horizon_published(store) : 0;
    if (cut > store->commit->rounds.trimmed && local_head_read(store, head) == 0) {
        journal_trim(store, head->cut);
        store->commit->rounds.trimmed = cut;
    }
    free(head);
}

/* Adopts packs left of files without a name that are gone: no operation will take those packs into
 * the view, from which they are dropped. `now`: nor wait for one that will. */
static bool adopt_leftovers(struct store *store, bool now)
{
    if (!packs_have_leftovers(store) || !(now || target_is_void(store)))
        return false;
    bool carried = upkeep_carry(store);
    atomic_store(&store->commit->gc_soon, carried);
    return carried;
}

/* Packs that were left because there was room go before anything is evicted. */
static bool is_gc_due(struct store *store)
{
    return atomic_exchange(&store->commit->gc_soon, false) ||
           clock_monotonic_ns() >= store->commit->rounds.gc_at ||
           (store->commit->rounds.has_spared && room_missing(store) > 0);
}

bool gc_round(struct store *store, bool now)
{
    uint64_t ids[DROPS_MAX];
    if (!is_gc_due(store) && !now)
        return false;
    store->commit->rounds.gc_at = clock_monotonic_ns() + GC_EVERY_NS;
    trim_journal(store);
    size_t count = gc_dead_packs(store, now, ids, DROPS_MAX);
    if (count == 0 && adopt_leftovers(store, now))
        return true;
    if (count == 0 && now)
        count = gc_compact(store, COMPACT_HALF_PERCENT, ids, DROPS_MAX);
    return count > 0 && upkeep_drop(store, ids, count, 0);
}

bool compact_round(struct store *store, bool now)
{
    uint64_t ids[DROPS_MAX];
    size_t count = now ? gc_compact(store, COMPACT_WORTH_PERCENT, ids, DROPS_MAX) : 0;
    return count > 0 && upkeep_drop(store, ids, count, 0);
}

uint64_t gc_ask(struct store *store)
{
    uint64_t number = atomic_fetch_add(&store->commit->gc_asked, 1) + 1;
    horizon_kick(store);
    return number;
}

bool gc_is_done(const struct store *store, uint64_t number)
{
    return atomic_load(&store->commit->gc_done) >= number;
}

void gc_ask_soon(struct store *store)
{
    atomic_store(&store->commit->gc_soon, true);
}

void upkeep_begin(struct store *store)
{
    store->commit->rounds.tidy_at = clock_monotonic_ns() + TIDY_AFTER_NS;
}

/* Work that a session leaves due, compactions of the view and a snapshot for the journal, would
 * compete with the next one's mount and with the restore that most often follows. */
static void upkeep_tidy(struct store *store)
{
    if (store->commit->rounds.tidy_at && clock_monotonic_ns() >= store->commit->rounds.tidy_at) {
        view_begin_compactions(store->view);
        store->commit->rounds.tidy_at = 0;
    }
    snapshot_tick(store, !store->commit->rounds.tidy_at);
}

static bool do_rounds(struct store *store)
{
    bool did = false, freed = false;
    uint64_t asked = atomic_load(&store->commit->gc_asked);
    bool now = room_is_short(store) || asked > atomic_load(&store->commit->gc_done);
    upkeep_tidy(store);
    for (size_t i = 0; i < store->commit->upkeep->count; i++) {
        const struct upkeep_round *round = &store->commit->upkeep->rounds[i];
        if (lag_exists(store)) /* what is dropped, moved or trimmed is chosen by what the view says:
                                  not while that is old */
            return did;
        if (round->frees && freed)
            continue;
        bool done = round->make(store, now);
        did = did || done;
        freed = freed || (round->frees && done);
    }
    if (!freed)
        atomic_store(&store->commit->gc_done, asked);
    return did;
}

bool upkeep_rounds(struct store *store)
{
    bool did = do_rounds(store);
    event_signal(&store->commit->progress);
    return did;
}
