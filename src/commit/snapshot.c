// SPDX-License-Identifier: Apache-2.0
/* Limits the journal of a store without a remote. When it is much longer than its state, the whole
 * view becomes one run, STORE/head names it, and the segments before it are removed: as a published
 * head does for a store with a remote.
 *
 *   run durable in STORE/runs  ->  STORE/head (nonce 0: not a head of any remote)
 *       ->  older segments and runs are removed
 *
 * A thread of its own writes the run from a snapshot of the view; the writeback thread, the
 * journal's only writer, does the rest. */
#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/pool.h"
#include "commit/horizon.h"
#include "commit/journal_internal.h"
#include "commit/local.h"
#include "commit/packs.h"
#include "commit/room.h"
#include "commit/run_lists.h"
#include "commit/writeback_internal.h"

#define GROWTH_MIN (48 * MIB) /* growth of the journal since the last snapshot: three segments */
#define SHARE 4u /* of the last run's length: so at most a quarter of all writes is snapshots */
/* At this multiple of the length that makes a snapshot due, it begins at once, because all sessions
 * may be short. */
#define OVERDUE 4u
#define AGAIN_NS (60ll * 1000000000)

struct snapshot *snapshot_new(struct local *local, struct journal *journal, struct horizon *horizon,
                              struct packs *packs, struct room *room)
{
    struct snapshot *snapshot = xcalloc(1, sizeof *snapshot);
    *snapshot = (struct snapshot){
        .local = local, .journal = journal, .horizon = horizon, .packs = packs, .room = room};
    return snapshot;
}

static void describe_head(struct snapshot *snapshot, const struct view_state *state,
                          struct head *head)
{
    *head = (struct head){.number = 1,
                          .epoch = snapshot->local->epoch,
                          .writer = snapshot->local->sb.writer,
                          .time = clock_realtime_ns(),
                          .published = clock_realtime_ns(),
                          .cut = state->applied_seq,
                          .max_ino = state->max_ino,
                          .max_id = packs_newest_id(snapshot->packs),
                          .files = state->files,
                          .logical_bytes = state->logical_bytes,
                          .chunks = state->chunks,
                          .stored_bytes = state->stored_bytes,
                          .run_count = 1};
    memcpy(head->history, snapshot->local->sb.history, sizeof head->history);
    memcpy(head->store, snapshot->local->sb.store, sizeof head->store);
    memcpy(head->chain, state->chain, sizeof head->chain);
    (void)snprintf(head->holder, sizeof head->holder, "no remote");
    uint64_t number = ++snapshot->count;
    head->runs[0] = (struct run_info){.id = (uint64_t)snapshot->local->sb.writer << 48 |
                                            snapshot->local->epoch << 24 | number,
                                      .cut = state->applied_seq};
    memcpy(head->runs[0].history, snapshot->local->sb.history, sizeof head->runs[0].history);
}

struct snapshot_rows {
    const struct snapshot *snapshot;
    struct run_file file;
};

static int add_snapshot_row(const struct run_row *row, void *arg)
{
    struct snapshot_rows *rows = arg;
    return atomic_load(&rows->snapshot->stopping) ? -ECANCELED : run_file_add(row, &rows->file);
}

/* Writes the complete rows of a cut as a run in STORE/runs; *info has its id, history and cut, and
 * gets the rest. -ECANCELED: the store is stopping. */
static int write_run(struct snapshot *snapshot, struct view_cut *cut, struct run_info *info)
{
    struct snapshot_rows rows = {.snapshot = snapshot};
    uint64_t missing;
    int r = run_file_begin(&rows.file, snapshot->local, snapshot->room, info);
    if (r == 0)
        r = view_cut_rows(cut, 0, add_snapshot_row, &rows, &missing);
    if (r == 0)
        r = run_file_finish(&rows.file, info);
    run_file_done(&rows.file);
    if (r < 0)
        run_file_abandon(snapshot->local, info);
    return r;
}

static void close_cut(struct view_cut **cut)
{
    view_cut_close(*cut);
}

static int snapshot_take(struct snapshot *snapshot)
{
    _cleanup_(close_cut) struct view_cut *cut = NULL;
    _cleanup_free_ struct head *head = xmalloc(sizeof *head);
    TRY(view_cut_open_alone(snapshot->local->view, &cut));
    struct view_state state = view_cut_state(cut);
    describe_head(snapshot, &state, head);
    TRY(write_run(snapshot, cut, &head->runs[0]));
    TRY(local_head_write(snapshot->local, head));
    snapshot->cut = head->cut;
    snapshot->length = head->runs[0].length;
    runs_tidy(snapshot->local, snapshot->room, head);
    return 0;
}

static void *snapshot_main(void *arg)
{
    struct snapshot *snapshot = arg;
    snapshot->result = snapshot_take(snapshot);
    atomic_store(&snapshot->done, true);
    return NULL;
}

/* A head of a remote records the published state, and is kept for the next mount with that remote.
 * If STORE/head cannot be read, it is not needed in a store that never had a remote. */
static bool snapshot_may_begin(struct snapshot *snapshot)
{
    _cleanup_free_ struct head *known = xmalloc(sizeof *known);
    int r = local_has_remote(snapshot->local) ? -EBUSY : local_head_read(snapshot->local, known);
    if (r == 0 && known->run_count == 1)
        snapshot->length = known->runs[0].length;
    _cleanup_free_ char *remote = local_remote_name(snapshot->local);
    bool is_damaged = !remote && (r == -EUCLEAN || r == -EBADMSG);
    return r == -ENOENT || is_damaged || (r == 0 && local_head_is_lost(known));
}

static void snapshot_finish(struct snapshot *snapshot)
{
    (void)pthread_join(snapshot->thread, NULL);
    snapshot->started = false;
    snapshot->again_at = clock_monotonic_ns() + AGAIN_NS;
    int r = snapshot->result;
    if (r == 0) {
        journal_trim(snapshot->journal, snapshot->cut);
        snapshot->journal->was_skipped = false;
    } else if (r != -ECANCELED)
        horizon_error(snapshot->horizon, "nvme: a snapshot for the journal cannot be written: %s",
                      strerror(-r));
    snapshot->left = snapshot->journal->bytes;
    room_account(snapshot->room);
    log_debug("journal: the run of a snapshot has %llu KiB, %llu KiB of segments are left",
              (unsigned long long)(snapshot->length / KIB),
              (unsigned long long)(snapshot->journal->bytes / KIB));
}

void snapshot_tick(struct snapshot *snapshot, bool at_ease)
{
    uint64_t bytes = at_ease ? snapshot->journal->bytes : snapshot->journal->bytes / OVERDUE;
    if (snapshot->started) {
        if (atomic_load(&snapshot->done))
            snapshot_finish(snapshot);
        return;
    }
    /* also makes a damaged part of the journal unnecessary, while the view still has it */
    bool is_needed = at_ease && snapshot->journal->was_skipped;
    bool is_long = bytes >= snapshot->left + GROWTH_MIN && bytes >= SHARE * snapshot->length;
    bool is_time = snapshot->result == 0 || clock_monotonic_ns() >= snapshot->again_at;
    if ((!is_long && !is_needed) || !is_time || !snapshot_may_begin(snapshot) ||
        (bytes < SHARE * snapshot->length && !is_needed))
        return;
    atomic_store(&snapshot->done, false);
    snapshot->started =
        thread_start(&snapshot->thread, "cairn-snapshot", snapshot_main, snapshot) == 0;
}

void snapshot_stop(struct snapshot *snapshot)
{
    atomic_store(&snapshot->stopping, true);
    if (snapshot->started)
        snapshot_finish(snapshot);
}
