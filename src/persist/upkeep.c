// SPDX-License-Identifier: Apache-2.0
/* What the writeback thread does between its targets: damaged chunks get another place, what was fetched becomes part of the journal,
 * and room comes free: packs that nothing needs go, those that the remote has leave, those that are mostly dead are made anew.
 *
 * Each of these is a cut of its own: the same state, with other packs. */
#include "base/clock.h"
#include "persist/pull.h"

#define DROPS_MAX 256u
#define GC_EVERY_NS (5ll * 1000000000)
#define COMPACT_WORTH_PERCENT 10u /* of a pack that must be dead */
#define COMPACT_HALF_PERCENT 50u
#define KEEP_PATIENCE_NS (1ll * 1000000000)
#define KEEP_BYTES_MAX (256 * MIB)
#define TIDY_AFTER_NS (2ll * 1000000000)
#define EVICT_EVERY_NS (100ll * 1000000)
#define EVICT_REST_NS (2ll * 1000000000) /* when nothing was found */

/* Chunks that get another place must have it before a cut says so: a try of a cut that fails forgets what its packs were to hold. */
static bool finish_moved(struct store *store)
{
    int r = packs_finish(store);
    if (r < 0)
        packs_abandon(store);
    return r == 0;
}

/* Chunks that were damaged get another place. */
static bool heal_round(struct store *store)
{
    if (!heal_add(store) || !finish_moved(store) || !writeback_own_cut(store, &(struct drops){0}))
        return false;
    heal_settle(store);
    return true;
}

/* What was fetched becomes part of the journal. Operations that wait for writeback take it along, unless they wait for long. */
static bool keep_round(struct store *store)
{
    uint64_t seq;
    int64_t happened;
    if (!keep_is_due(store))
        return false;
    if (history_oldest(store, &seq, &happened) &&
        clock_monotonic_ns() - happened < store->options.writeback_delay_ns + KEEP_PATIENCE_NS &&
        room_kept(store) < KEEP_BYTES_MAX && !atomic_load(&store->keep_flush))
        return false;
    return writeback_own_cut(store, &(struct drops){0});
}

static bool drop_packs(struct store *store, const uint64_t *ids, size_t count, uint32_t flags)
{
    struct drops drops = {.ids = ids, .count = count, .flags = flags};
    if (!finish_moved(store)) {
        for (size_t i = 0; i < count; i++)
            packs_end_drop(store, ids[i]);
        return false;
    }
    return writeback_own_cut(store, &drops); /* the files go when the view has it */
}

/* Nothing was found that could go. It may be that packs are in use for a moment, or were published this instant: only when that
 * lasts is NVMe full. */
static void note_no_evict(struct store *store, struct upkeep *up)
{
    int64_t now = clock_monotonic_ns();
    uint64_t horizon = store_remote_horizon(store);
    if (!atomic_load(&store->no_evict_since) || horizon != up->evict_horizon)
        atomic_store(&store->no_evict_since, now);
    up->evict_horizon = horizon;
    atomic_store(&store->no_evict_until, now + EVICT_REST_NS);
}

/* What is to go because room is short, or will be: before writers have to wait, so that they need not. */
static size_t evict_for_room(struct store *store, struct upkeep *up, bool now, uint64_t *ids, size_t max)
{
    int64_t time = clock_monotonic_ns();
    if (!store->remote || time < up->evict_at || (!now && time < atomic_load(&store->no_evict_until)))
        return 0;
    up->evict_at = time + EVICT_EVERY_NS;
    uint64_t missing = room_missing(store);
    size_t count = missing ? evict_choose(store, missing, ids, max) : 0;
    if (missing && count == 0)
        note_no_evict(store, up);
    return count;
}

static bool evict_round(struct store *store, struct upkeep *up, bool now)
{
    uint64_t ids[DROPS_MAX];
    size_t count = evict_requested(store, ids, DROPS_MAX);
    if (count == 0)
        count = evict_for_room(store, up, now, ids, DROPS_MAX);
    bool dropped = count > 0 && drop_packs(store, ids, count, RECORD_EVICTED);
    evict_served(store, dropped);
    if (!dropped)
        return false;
    up->evict_at = 0;
    atomic_store(&store->no_evict_since, 0);
    atomic_store(&store->no_evict_until, 0);
    return true;
}

/* What the newest published head has need not be repeated by a recovery: that begins with the head's runs. */
static void trim_journal(struct store *store, struct upkeep *up)
{
    struct head *head = xmalloc(sizeof *head);
    uint64_t cut = store->remote ? store_remote_horizon(store) : 0;
    if (cut > up->trimmed && local_head_read(store, head) == 0) {
        journal_trim(store, head->cut);
        up->trimmed = cut;
    }
    free(head);
}

/* What was written of files without a name that are gone: no operation will take those packs into the view, from which they are
 * dropped. `now`: nor wait for one that will. */
static bool adopt_leftovers(struct store *store, bool now)
{
    if (!packs_have_leftovers(store) || !(now || writeback_has_nothing(store)))
        return false;
    bool carried = writeback_own_cut(store, &(struct drops){0});
    atomic_store(&store->gc_soon, carried);
    return carried;
}

/* True if something was freed. With `now`, because room is short, also by moving what is alive together: packs that are half
 * dead first; then what the remote has goes; then whatever is worth it. */
static bool gc_round(struct store *store, struct upkeep *up, bool now)
{
    uint64_t ids[DROPS_MAX];
    size_t count = 0;
    if (atomic_exchange(&store->gc_soon, false) || now || clock_monotonic_ns() >= up->gc_at) {
        up->gc_at = clock_monotonic_ns() + GC_EVERY_NS;
        trim_journal(store, up);
        count = gc_dead_packs(store, ids, DROPS_MAX);
        if (count == 0 && adopt_leftovers(store, now))
            return true;
        if (count == 0 && now)
            count = gc_compact(store, COMPACT_HALF_PERCENT, ids, DROPS_MAX);
    }
    if (count == 0 && evict_round(store, up, now))
        return true;
    if (count == 0 && now)
        count = gc_compact(store, COMPACT_WORTH_PERCENT, ids, DROPS_MAX);
    return count > 0 && drop_packs(store, ids, count, 0);
}

void upkeep_begin(struct upkeep *up)
{
    *up = (struct upkeep){.tidy_at = clock_monotonic_ns() + TIDY_AFTER_NS};
}

/* What a session leaves due, compactions of the view and a snapshot for the journal, would compete with the next one's mount and with the
 * restore that most often follows. */
static void tidy(struct store *store, struct upkeep *up)
{
    if (up->tidy_at && clock_monotonic_ns() >= up->tidy_at) {
        view_begin_compactions(store->view);
        up->tidy_at = 0;
    }
    snapshot_tick(store, !up->tidy_at);
}

bool upkeep_rounds(struct store *store, struct upkeep *up)
{
    tidy(store, up);
    evict_account(store, up);
    bool did = heal_round(store);
    did = (!lag_exists(store) && keep_round(store)) || did;
    if (lag_exists(store))
        return did;
    uint64_t asked = atomic_load(&store->gc_asked);
    bool freed = gc_round(store, up, room_is_short(store) || asked > atomic_load(&store->gc_done));
    if (!freed)
        atomic_store(&store->gc_done, asked);
    return freed || did;
}
