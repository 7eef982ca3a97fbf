// SPDX-License-Identifier: Apache-2.0
/* The end of the journal of a store without a remote. When it is much longer than the state that it
 * tells, the whole view becomes one run, STORE/head names it, and the segments before it go: as a
 * published head does for a store with a remote.
 *
 *   run durable in STORE/runs  ->  STORE/head (nonce 0: it is no head of any remote)
 *   ->  older segments and runs go
 *
 * A thread of its own writes the run from a snapshot of the view; the writeback thread, the
 * journal's only writer, does the rest. */
#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "commit/internal.h"
#include "commit/run_file.h"

#define GROWTH_MIN (48 * MIB) /* of the journal since the last: three segments */
#define SHARE 4u /* of the last run's length: a quarter of what is written is snapshots at most */
/* So many times what makes one due: it begins at once, because sessions may all be short. */
#define OVERDUE 4u
#define AGAIN_NS (60ll * 1000000000)

static void snapshot_describe_head(struct store *store, const struct view_state *state,
                                   struct head *head)
{
    *head = (struct head){.number = 1,
                          .epoch = store->epoch,
                          .writer = store->sb.writer,
                          .time = clock_realtime_ns(),
                          .published = clock_realtime_ns(),
                          .cut = state->applied_seq,
                          .max_ino = state->max_ino,
                          .max_id = packs_newest_id(store),
                          .files = state->files,
                          .logical_bytes = state->logical_bytes,
                          .chunks = state->chunks,
                          .stored_bytes = state->stored_bytes,
                          .run_count = 1};
    memcpy(head->history, store->sb.history, sizeof head->history);
    memcpy(head->store, store->sb.store, sizeof head->store);
    memcpy(head->chain, state->chain, sizeof head->chain);
    (void)snprintf(head->holder, sizeof head->holder, "no remote");
    uint64_t number = ++store->commit->snapshot.count;
    head->runs[0] =
        (struct run_info){.id = (uint64_t)store->sb.writer << 48 | store->epoch << 24 | number,
                          .cut = state->applied_seq};
    memcpy(head->runs[0].history, store->sb.history, sizeof head->runs[0].history);
}

static int snapshot_take(struct store *store)
{
    struct view_cut *cut = NULL;
    struct head *head = xmalloc(sizeof *head);
    int r = view_cut_open_alone(store->view, &cut);
    if (r == 0) {
        struct view_state state = view_cut_state(cut);
        snapshot_describe_head(store, &state, head);
        r = runs_write_snapshot(store, cut, &head->runs[0]);
    }
    if (r == 0)
        r = local_head_write(store, head);
    if (r == 0) {
        store->commit->snapshot.cut = head->cut;
        store->commit->snapshot.length = head->runs[0].length;
        runs_tidy(store, head);
    }
    view_cut_close(cut);
    free(head);
    return r;
}

static void *snapshot_main(void *arg)
{
    struct store *store = arg;
    store->commit->snapshot.result = snapshot_take(store);
    atomic_store(&store->commit->snapshot.done, true);
    return NULL;
}

/* A head that is of a remote says what was published there, and is kept for the next mount with it.
 * One that cannot be read says nothing of a store that never had a remote. */
static bool snapshot_may_begin(struct store *store)
{
    struct head *known = xmalloc(sizeof *known);
    int r = store->remote ? -EBUSY : local_head_read(store, known);
    if (r == 0 && known->run_count == 1)
        store->commit->snapshot.length = known->runs[0].length;
    _cleanup_free_ char *remote = local_remote_name(store);
    bool is_damaged = !remote && (r == -EUCLEAN || r == -EBADMSG);
    bool may = r == -ENOENT || is_damaged || (r == 0 && local_head_is_lost(known));
    free(known);
    return may;
}

static void snapshot_finish(struct store *store)
{
    (void)pthread_join(store->commit->snapshot.thread, NULL);
    store->commit->snapshot.started = false;
    store->commit->snapshot.again_at = clock_monotonic_ns() + AGAIN_NS;
    int r = store->commit->snapshot.result;
    if (r == 0) {
        journal_trim(store, store->commit->snapshot.cut);
        store->commit->journal.was_skipped = false;
    } else if (r != -ECANCELED)
        horizon_error(store, "nvme: a snapshot for the journal cannot be written: %s",
                      strerror(-r));
    store->commit->snapshot.left = store->commit->journal.bytes;
    room_account(store);
    log_debug("journal: the run of a snapshot has %llu KiB, %llu KiB of segments are left",
              (unsigned long long)(store->commit->snapshot.length / KIB),
              (unsigned long long)(store->commit->journal.bytes / KIB));
}

void snapshot_tick(struct store *store, bool at_ease)
{
    uint64_t bytes =
        at_ease ? store->commit->journal.bytes : store->commit->journal.bytes / OVERDUE;
    if (store->commit->snapshot.started) {
        if (atomic_load(&store->commit->snapshot.done))
            snapshot_finish(store);
        return;
    }
    /* The journal's damaged part is made unnecessary, too, while the view still has it. */
    bool is_needed = at_ease && store->commit->journal.was_skipped;
    bool is_long = bytes >= store->commit->snapshot.left + GROWTH_MIN &&
                   bytes >= SHARE * store->commit->snapshot.length;
    bool is_time = store->commit->snapshot.result == 0 ||
                   clock_monotonic_ns() >= store->commit->snapshot.again_at;
    if ((!is_long && !is_needed) || !is_time || !snapshot_may_begin(store) ||
        (bytes < SHARE * store->commit->snapshot.length && !is_needed))
        return;
    atomic_store(&store->commit->snapshot.done, false);
    store->commit->snapshot.started =
        thread_start(&store->commit->snapshot.thread, "cairn-snapshot", snapshot_main, store) == 0;
}

void snapshot_stop(struct store *store)
{
    atomic_store(&store->commit->snapshot.stopping, true);
    if (store->commit->snapshot.started)
        snapshot_finish(store);
}
