// SPDX-License-Identifier: Apache-2.0
/* Runs published by the store: made from a cut, and merged to keep their number low. */
#include "base/clock.h"
#include "base/log.h"
#include "commit/run_file.h"
#include "remote/maintenance_internal.h"

#define KEEP_RETRY_NS (30ll * 1000000000)
#define MERGE_URGED (32 * KIB) /* bytes of runs merged while a caller waits */
/* With more runs than this, no merge is postponed. */
#define RUNS_DEFER_MAX (HEAD_RUNS_MAX * 3 / 4)

/* --- publishing ------------------------------------------------------------------------------- */

static uint64_t new_run_id(struct remote *remote)
{
    const struct store *store = remote->store;
    return ((uint64_t)store->local.sb.writer << 48) | (store->local.epoch << 24) |
           (atomic_fetch_add(&remote->next_run, 1) + 1);
}

/* Adds the newest run to the merged one, whose cut is `cut`. */
static int merge_from(struct remote *remote, struct run_info *runs, size_t *count, size_t first,
                      uint64_t cut)
{
    if (first + 1 == *count)
        return 0;
    const struct run_info info = {.id = new_run_id(remote), .cut = cut};
    return runs_merge_from(&remote->store->local, remote->store->commit.room, &info, runs, count,
                           first);
}

/* While a caller waits, merges that cost more than the new run itself are postponed. */
static uint64_t merge_limit(struct remote *remote, const struct run_info *newest, size_t count)
{
    bool may_wait = remote_is_urged(remote) && count <= RUNS_DEFER_MAX;
    return may_wait ? max_u64(newest->length, MERGE_URGED) : UINT64_MAX;
}

/* Writes the cut's own rows. */
static int write_run(struct remote *remote, struct view_cut *cut, struct run_info *info,
                     bool *ret_has_rows, uint64_t *ret_missing)
{
    struct run_file file;
    /* becomes the time at which packs were unreferenced; by another clock that time could be long
     * ago */
    int64_t now;
    TRY(remote->prefix.tier->ops->now(remote->prefix.tier, &now));
    memcpy(info->history, remote->store->local.sb.history, sizeof info->history);
    int r = run_file_begin(&file, &remote->store->local, remote->store->commit.room, info);
    if (r == 0)
        r = view_cut_rows(cut, now, run_file_add, &file, ret_missing);
    *ret_has_rows = file.rows > 0;
    if (r == 0 && *ret_has_rows)
        r = run_file_finish(&file, info);
    run_file_done(&file);
    if (r < 0 || !*ret_has_rows)
        run_file_abandon(&remote->store->local, info);
    return r;
}

int runs_publish(struct remote *remote, struct view_cut *cut, struct head *head, bool *ret_is_news,
                 uint64_t *ret_missing)
{
    bool whole = view_cut_is_whole(cut) || head->run_count == 0;
    uint64_t cut_seq = view_cut_state(cut).applied_seq;
    struct run_info own = {
        .id = new_run_id(remote), .base_cut = whole ? 0 : head->cut, .cut = cut_seq};
    struct run_info runs[HEAD_RUNS_MAX + 1];
    size_t count = whole ? 0 : head->run_count;
    memcpy(runs, head->runs, count * sizeof *runs);
    int r = write_run(remote, cut, &own, ret_is_news, ret_missing);
    if (r == 0 && *ret_is_news)
        runs[count++] = own;
    if (r < 0 || count == 0)
        return r;
    uint64_t limit = merge_limit(remote, &runs[count - 1], count);
    size_t first = runs_first_to_merge(runs, count, limit);
    *ret_is_news = *ret_is_news || (limit == UINT64_MAX && first < count - 1);
    if (*ret_is_news) {
        r = merge_from(remote, runs, &count, first, cut_seq);
        if (r == 0)
            r = run_put(&remote->prefix, &runs[count - 1]);
    }
    if (runs_first_to_merge(runs, count, UINT64_MAX) < count - 1)
        remote_defer_merge(remote);
    if (r < 0 || !*ret_is_news)
        return r;
    memset(head->runs, 0, sizeof head->runs);
    memcpy(head->runs, runs, count * sizeof *runs);
    head->run_count = (uint32_t)count;
    return 0;
}

/* --- between two rounds ----------------------------------------------------------------------- */

void remote_scrub_runs(struct remote *remote)
{
    atomic_store(&remote->prefix.runs.scrub_found, 0);
    atomic_store(&remote->prefix.runs.scrub_healed, 0);
    atomic_store(&remote->runs.scrub, RUN_SCRUB_ASKED);
    LOCK_SCOPE(&remote->shared.lock);
    remote_kick_locked(remote);
}

bool remote_runs_are_scrubbed(struct remote *remote, uint64_t *ret_found, uint64_t *ret_healed)
{
    *ret_found = atomic_load(&remote->prefix.runs.scrub_found);
    *ret_healed = atomic_load(&remote->prefix.runs.scrub_healed);
    return atomic_load(&remote->runs.scrub) == RUN_SCRUB_DONE;
}

static void scrub_now(struct remote *remote)
{
    runs_scrub(&remote->prefix);
    atomic_store(&remote->runs.scrub, RUN_SCRUB_DONE);
    event_signal(horizon_progress(remote->store->commit.horizon));
}

void runs_tick(struct remote *remote)
{
    static const uint64_t none[RUN_PLACES];
    int64_t now = clock_monotonic_ns();
    if (atomic_load(&remote->runs.scrub) == RUN_SCRUB_ASKED)
        scrub_now(remote);
    if (now < remote->runs.due_at || !atomic_exchange(&remote->prefix.runs.are_due, false))
        return;
    int r = runs_keep(&remote->prefix, none);
    if (r == 0)
        return;
    atomic_store(&remote->prefix.runs.are_due, true);
    remote->runs.due_at = now + KEEP_RETRY_NS;
    if (r != -ECANCELED)
        log_warn("remote: runs of head %llu cannot be stored again now (%s); retrying",
                 (unsigned long long)remote->prefix.head.number, strerror(-r));
}
