// SPDX-License-Identifier: Apache-2.0
/* The lag: batches in the journal that the view lacks, since its database cannot be written.
 *
 * The journal makes data durable, so the horizon moves on without the view, and no call waits for
 * it. Meanwhile:
 *
 * 1. the overlay keeps the operations, and the stage the content, of every batch that the view
 *    lacks; a newer version of a file lies over the pinned one, and the next batch contains the
 *    changes of both
 * 2. new packs stay in the table of packs that the view does not have
 * 3. nothing is dropped, moved, trimmed or adopted, as all these decisions depend on the view
 *
 * Memory has its usual bounds: the stage, and PENDING_OPS_MAX operations, including the pending
 * ones. When either is full, a writer waits until the view has caught up, or the store is mounted
 * again; fsync does not wait.
 *
 * Once a second, and more often at first, the database is opened again, if it failed, and applies
 * the journal, read from NVMe. If that can never help, because the view itself is damaged,
 * new_view.c makes a start rebuild it. */
#include "base/clock.h"
#include "base/log.h"
#include "base/vector.h"
#include "commit/history_internal.h"
#include "commit/horizon.h"
#include "commit/journal_internal.h"
#include "commit/local.h"
#include "commit/packs_internal.h"
#include "commit/room_internal.h"
#include "commit/writeback_internal.h"

#define WAIT_MIN_NS 10000000ll
#define WAIT_MAX_NS 1000000000ll

bool lag_exists(const struct lag *lag)
{
    return atomic_load(&lag->exists);
}

void lag_done(struct commit *commit)
{
    struct lag *lag = commit->lag;
    vector_free(&lag->inos);
    vector_free(&lag->drops);
    atomic_store(&lag->exists, false);
    history_followed(commit->history);
}

static void report_error(struct commit *commit, int error)
{
    horizon_error(
        commit->horizon,
        "the view cannot follow the journal: %s; new data is durable, but memory stays taken%s",
        strerror(-error), error == -EUCLEAN ? "; mount again: the view is made anew" : "");
}

void lag_add(struct commit *commit, uint64_t cut, const struct batch *batch,
             const struct drops *drops, int error)
{
    struct lag *lag = commit->lag;
    if (!lag_exists(commit->lag))
        report_error(commit, error);
    atomic_store(&lag->exists, true);
    lag->cut = cut;
    packs_note_named(commit->packs, batch->packs.at, batch->packs.count);
    history_retire_lagging(commit->history, cut);
    for (size_t i = 0; i < drops->count; i++)
        vector_add(&lag->drops, drops->ids[i]);
}

/* Adds each file once: the list is limited by the number of files with staged data or pending
 * operations. */
void lag_add_version(struct lag *lag, uint64_t ino)
{
    if (lag->inos.count == lag->inos.capacity)
        vector_sort_unique(&lag->inos);
    vector_add(&lag->inos, ino);
}

/* As writeback does for one target. */
static void release_caught_up(struct commit *commit)
{
    struct lag *lag = commit->lag;
    vector_sort_unique(&lag->inos);
    history_retire_overlay(commit->history, lag->cut);
    for (size_t i = 0; i < lag->inos.count; i++) {
        ns_stored(commit->local->ns, lag->inos.at[i]);
        stage_layer_done(commit->local->stage, lag->inos.at[i]);
    }
    packs_retire_named(commit->packs);
    if (lag->inos.count)
        change_notify(commit->change, lag->inos.at, lag->inos.count, false);
    gc_remove(commit, lag->drops.at, lag->drops.count);
    log_info("the view follows the journal again");
    lag_done(commit);
    room_account(commit->room);
    event_signal(horizon_progress(commit->horizon));
}

/* Frees room and files that the view's database needs in order to be written. */
static int mend_view(struct commit *commit)
{
    TRY(room_for_view(commit->room));
    if (!view_has_failed(commit->local->view))
        return 0;
    int r = view_reopen(commit->local->view);
    if (r == -ENOSPC || r == -EDQUOT) {
        room_give_files(commit->room);
        r = view_reopen(commit->local->view);
    }
    return r;
}

/* After an attempt: if it failed, sets a pause before the next one. */
static int settle(struct commit *commit, int r)
{
    struct lag *lag = commit->lag;
    lag->wait_ns = r == 0                           ? 0
                   : lag->wait_ns == 0              ? WAIT_MIN_NS
                   : lag->wait_ns < WAIT_MAX_NS / 2 ? 2 * lag->wait_ns
                                                    : WAIT_MAX_NS;
    lag->again_at = clock_monotonic_ns() + lag->wait_ns;
    if (r < 0)
        report_error(commit, r);
    new_view_note(commit, r);
    return r;
}

void lag_catch_up(struct commit *commit)
{
    if (clock_monotonic_ns() < commit->lag->again_at)
        return;
    int r = mend_view(commit);
    if (r == 0)
        r = commit_catch_up(commit);
    if (settle(commit, r) == 0)
        release_caught_up(commit);
}

void lag_tick(struct commit *commit)
{
    struct lag *lag = commit->lag;
    if (lag_exists(commit->lag)) {
        lag_catch_up(commit);
        return;
    }
    if (view_is_damaged(commit->local->view))
        new_view_note(commit, 0);
    if (!view_has_failed(commit->local->view) || clock_monotonic_ns() < lag->again_at ||
        settle(commit, mend_view(commit)) < 0)
        return;
    /* the journal has the batches that the database lost */
    atomic_store(&lag->exists, memcmp(view_state(commit->local->view).chain, commit->journal->chain,
                                      CHAIN_LEN) != 0);
}
