// SPDX-License-Identifier: Apache-2.0
/* The writeback thread: it carries targets (target.c), writes pieces of drafts when the stage runs
 * full of them (pieces.c), seals what is ripe, and does the upkeep between (upkeep.c). A few
 * threads work for it. */
#include <pthread.h>

#include "base/clock.h"
#include "commit/internal.h"

#define TICK_MS 250
#define DRAFT_IDLE_NS (5ll * 1000000000)
#define DRAFT_AGE_NS (60ll * 1000000000)
#define DRAFT_SMALL (8 * MIB)
#define RIPE_MAX 64u

struct pressure {
    bool urgent, stopping;
    unsigned waiting;
};

static struct pressure read_pressure(struct store *store)
{
    LOCK_SCOPE(&store->commit->horizon.lock);
    store->commit->horizon.kicked = store->commit->horizon.noted = false;
    rate_limit_lift(&store->commit->limit, horizon_is_awaited_locked(store));
    return (struct pressure){.urgent = horizon_is_urgent_locked(store),
                             .stopping = store->commit->horizon.stopping,
                             .waiting = store->commit->horizon.waiting_writers};
}

/* Not sooner: drafts that fit are better left alone until they are sealed. */
static bool is_stage_filling_up(struct store *store)
{
    struct stage_usage usage = stage_usage(store->stage);
    return usage.dirty_bytes > usage.total_bytes / 4 * 3;
}

static void seal_ripe(struct store *store)
{
    /* An open new file has no other place than the log, and leaves it when it is durable. */
    bool all = atomic_load(&store->commit->seal_rest) || history_is_crowded(store);
    if (all && !local_follows(store)) {
        if (history_seal_all(store) < 0)
            return;
        atomic_store(&store->commit->seal_rest, false);
    }
    history_seal_ripe(store, store->options.writeback_delay_ns);
    uint64_t inos[RIPE_MAX];
    size_t count = stage_ripe_drafts(store->stage, clock_monotonic_ns(), DRAFT_IDLE_NS,
                                     DRAFT_AGE_NS, DRAFT_SMALL, inos, RIPE_MAX);
    for (size_t i = 0; i < count; i++)
        if (history_seal(store, inos[i]) == -EAGAIN)
            return; /* no room in the log now: they stay ripe */
}

/* Is there something that is worth a round now? */
static bool wants_round(struct store *store, const struct pressure *pressure)
{
    uint64_t seq;
    int64_t happened;
    if (!history_oldest(store, &seq, &happened))
        return false;
    if (pressure->urgent || is_stage_filling_up(store))
        return true;
    return clock_monotonic_ns() - happened >= store->options.writeback_delay_ns &&
           !target_is_void(store);
}

/* True: there was something to carry. */
static bool carry_once(struct store *store, const struct pressure *pressure)
{
    if (!wants_round(store, pressure))
        return false;
    target_carry(store);
    return true;
}

/* Drafts ripen, and rounds of the upkeep are due, by the clock: every TICK_MS. What waits for
 * writeback_delay is carried when that is over. */
static int64_t next_look(struct store *store)
{
    uint64_t seq;
    int64_t happened, now = clock_monotonic_ns(), tick = now + TICK_MS * MS_NS;
    if (!history_oldest(store, &seq, &happened))
        return tick;
    int64_t due = happened + store->options.writeback_delay_ns;
    return due > now && due < tick ? due : tick;
}

/* Until something is wanted, or the next look is due. */
static void writeback_rest(struct store *store)
{
    struct horizon *horizon = &store->commit->horizon;
    int64_t until = next_look(store);
    LOCK_SCOPE(&horizon->lock);
    horizon->rest_until = until;
    if (!horizon->stopping && !horizon->kicked && !horizon_must_wake_locked(store))
        (void)mutex_wait_until(&horizon->lock, &horizon->changed, until);
    horizon->rest_until = 0;
}

static void *writeback_main(void *arg)
{
    struct store *store = arg;
    struct pieces pieces = {.store = store};
    upkeep_begin(store);
    for (;;) {
        int64_t began = clock_monotonic_ns();
        struct pressure pressure = read_pressure(store);
        priority_settle(store);
        if (pressure.stopping)
            break;
        lag_tick(store);
        seal_ripe(store);
        bool carried = carry_once(store, &pressure);
        bool found = pieces_relieve(&pieces, pressure.waiting > 0, is_stage_filling_up(store));
        /* No other cut may take what a target holds that was given up. */
        if (horizon_is_stopping(store))
            break;
        found = (!lag_exists(store) && upkeep_rounds(store)) || found;
        room_settle(store, began, found);
        if (carried || found)
            continue;
        writeback_rest(store);
    }
    pieces_done(&pieces);
    return NULL;
}

int writeback_start(struct store *store)
{
    unsigned threads = store->options.writeback_threads;
    int r = pool_new("cairn-chunk", threads, 256, priority_join, store, &store->commit->workers);
    if (r == 0)
        r = pool_new("cairn-pack", PACK_WRITERS, PACK_BUFFERS + 1, priority_join, store,
                     &store->commit->pack_writers);
    if (r == 0)
        r = thread_start(&store->commit->thread, "cairn-writeback", writeback_main, store);
    store->commit->thread_started = r == 0;
    return r;
}

void writeback_for_each(struct store *store, void (*fn)(void *item), void *items, size_t count,
                        size_t size)
{
    for (size_t i = 0; i < count; i++)
        pool_submit(store->commit->workers, fn, (uint8_t *)items + i * size);
    pool_drain(store->commit->workers);
}

void writeback_stop(struct store *store)
{
    mutex_lock(&store->commit->horizon.lock);
    store->commit->horizon.stopping = true;
    (void)pthread_cond_signal(&store->commit->horizon.changed);
    mutex_unlock(&store->commit->horizon.lock);
    if (store->commit->thread_started)
        (void)pthread_join(store->commit->thread, NULL);
    store->commit->thread_started = false;
    snapshot_stop(store);
    pool_free(store->commit->workers);
    pool_free(store->commit->pack_writers);
    store->commit->workers = store->commit->pack_writers = NULL;
}
