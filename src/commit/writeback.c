// SPDX-License-Identifier: Apache-2.0
/* The writeback thread: carries targets (target.c), writes pieces of drafts when the stage fills up
 * with them (pieces.c), seals drafts that are due, and does the upkeep in between (upkeep.c). A few
 * helper threads work for it. */
#include <pthread.h>

#include "base/clock.h"
#include "base/pool.h"
#include "commit/history_internal.h"
#include "commit/horizon_internal.h"
#include "commit/local.h"
#include "commit/packs_internal.h"
#include "commit/room_internal.h"
#include "commit/round_cut.h"
#include "commit/writeback_internal.h"

#define TICK_MS 250
#define DRAFT_IDLE_NS (5ll * 1000000000)
#define DRAFT_AGE_NS (60ll * 1000000000)
#define DRAFT_SMALL (8 * MIB)
#define RIPE_MAX 64u

/* No earlier: drafts that fit are better left until they are sealed. */
static bool is_stage_filling_up(struct commit *commit)
{
    struct stage_usage usage = stage_usage(commit->local->stage);
    return usage.dirty_bytes > usage.total_bytes / 4 * 3;
}

static void seal_ripe(struct commit *commit)
{
    if (history_seal_rest(commit->history) < 0)
        return;
    history_seal_ripe(commit->history, commit->local->options.writeback_delay_ns);
    const struct stage_ripeness ripe = {.now = clock_monotonic_ns(),
                                        .idle_ns = DRAFT_IDLE_NS,
                                        .age_ns = DRAFT_AGE_NS,
                                        .small_bytes = DRAFT_SMALL};
    uint64_t inos[RIPE_MAX];
    size_t count = stage_ripe_drafts(commit->local->stage, &ripe, inos, RIPE_MAX);
    for (size_t i = 0; i < count; i++)
        if (history_seal(commit->history, inos[i]) == -EAGAIN)
            return; /* no room in the log now: they stay due */
}

/* Is there work for a round now? */
static bool wants_round(struct commit *commit, const struct pressure *pressure)
{
    uint64_t seq;
    int64_t happened;
    if (!history_oldest(commit->history, &seq, &happened))
        return false;
    if (pressure->urgent || is_stage_filling_up(commit))
        return true;
    return clock_monotonic_ns() - happened >= commit->local->options.writeback_delay_ns &&
           !target_is_void(commit->history);
}

/* True: there was a target to carry. */
static bool carry_once(struct commit *commit, const struct pressure *pressure)
{
    if (!wants_round(commit, pressure))
        return false;
    target_carry(commit);
    return true;
}

/* Drafts become due, and rounds of the upkeep, by time: checked every TICK_MS. Operations waiting
 * for writeback_delay are carried when it has passed. */
static int64_t next_look(struct commit *commit)
{
    uint64_t seq;
    int64_t happened, now = clock_monotonic_ns(), tick = now + TICK_MS * MS_NS;
    if (!history_oldest(commit->history, &seq, &happened))
        return tick;
    int64_t due = happened + commit->local->options.writeback_delay_ns;
    return due > now && due < tick ? due : tick;
}

static void *writeback_main(void *arg)
{
    struct commit *commit = arg;
    struct pieces pieces = {.commit = commit};
    upkeep_begin(commit->upkeep);
    for (;;) {
        int64_t began = clock_monotonic_ns();
        struct pressure pressure = horizon_pressure(commit->horizon);
        priority_settle(commit->priority, commit->horizon, room_promoted(commit->room) > 0);
        if (pressure.stopping)
            break;
        lag_tick(commit);
        seal_ripe(commit);
        if (commit->round_cut)
            history_pass_rounds(commit->history);
        bool carried = carry_once(commit, &pressure);
        if (commit->round_cut)
            round_cut_offer(commit);
        bool found = pieces_relieve(&pieces, pressure.waiting > 0, is_stage_filling_up(commit));
        /* no other cut may take the versions of an abandoned target */
        if (horizon_is_stopping(commit->horizon))
            break;
        found = (!lag_exists(commit->lag) && upkeep_rounds(commit)) || found;
        room_settle(commit->room, began, found);
        if (carried || found)
            continue;
        horizon_rest(commit->horizon, next_look(commit));
    }
    pieces_done(&pieces);
    return NULL;
}

int writeback_start(struct commit *commit)
{
    struct writeback *writeback = commit->writeback;
    int r = pool_new("cairn-chunk", commit->local->options.writeback_threads, 256, priority_join,
                     commit->priority, &writeback->workers);
    if (r == 0)
        r = packs_start(commit->packs, commit->priority);
    if (r == 0)
        r = thread_start(&writeback->thread, "cairn-writeback", writeback_main, commit);
    writeback->thread_started = r == 0;
    return r;
}

void writeback_for_each(struct commit *commit, void (*fn)(void *item), void *items, size_t count,
                        size_t size)
{
    for (size_t i = 0; i < count; i++)
        pool_submit(commit->writeback->workers, fn, (uint8_t *)items + i * size);
    pool_drain(commit->writeback->workers);
}

void writeback_stop(struct commit *commit)
{
    struct writeback *writeback = commit->writeback;
    horizon_stop(commit->horizon);
    if (writeback->thread_started)
        (void)pthread_join(writeback->thread, NULL);
    writeback->thread_started = false;
    snapshot_stop(commit->snapshot);
    pool_free(writeback->workers);
    writeback->workers = NULL;
    packs_stop(commit->packs);
}
