// SPDX-License-Identifier: Apache-2.0
/* Runs of the remote: made from a cut, merged so that they stay few, and put there twice.
 *
 * All that a head says hangs on each of its runs, and runs are small: so the same bytes lie in two
 * objects, runs/ID and copies/ID. The head waits for the first, and for one try at the copy, which
 * goes at the same time. What is missing of either later is put again from STORE/runs. */
#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "commit/run_file.h"
#include "remote/maintenance_internal.h"

#define RETRY_MS 1000
#define KEEP_RETRY_NS (30ll * 1000000000)
#define RUN_LIMITED MIB
#define MERGE_URGED (32 * KIB) /* of runs that are merged while a caller waits */
/* With more than these, no merge is left for later. */
#define RUNS_DEFER_MAX (HEAD_RUNS_MAX * 3 / 4)

/* --- publishing ------------------------------------------------------------------------------- */

static uint64_t new_run_id(struct remote *remote)
{
    const struct store *store = remote->store;
    return ((uint64_t)store->local.sb.writer << 48) | (store->local.epoch << 24) |
           (atomic_fetch_add(&remote->next_run, 1) + 1);
}

/* One try, from STORE/runs. */
static int put_run_at(struct remote *remote, const struct run_info *info, enum run_place place,
                      bool *ret_is_local)
{
    struct run_input input;
    char object[OBJECT_NAME_LEN];
    object_name(run_directories[place], info->id, object);
    int r = run_input_open(&remote->store->local, info, &input);
    struct tier_source source = {.len = info->length, .read = run_input_bytes, .arg = &input};
    /* A small one must not keep a state waiting that is there already. */
    if (r == 0 && info->length > RUN_LIMITED && !remote_limit_wait(remote, info->length))
        r = -ECANCELED;
    *ret_is_local = r < 0;
    if (r == 0)
        r = tier_put_from(remote->prefix.tier, object, &source);
    *ret_is_local = *ret_is_local || source.error < 0;
    if (r == 0)
        atomic_fetch_add(&remote->prefix.uploaded_total, info->length);
    run_input_done(&input);
    return r;
}

struct copying {
    struct remote *remote;
    const struct run_info *info;
};

/* Without it nothing is lost yet: it does not keep the head waiting. */
static void *put_run_copy(void *arg)
{
    const struct copying *copying = arg;
    struct remote *remote = copying->remote;
    bool is_local;
    int r = put_run_at(remote, copying->info, RUN_COPY, &is_local);
    if (r < 0) {
        log_warn("remote: storing %s/%016llx failed (%s); retrying later",
                 run_directories[RUN_COPY], (unsigned long long)copying->info->id, strerror(-r));
        atomic_store(&remote->runs.are_due, true);
    }
    return NULL;
}

static int put_run(struct remote *remote, const struct run_info *info)
{
    struct copying copying = {remote, info};
    char object[OBJECT_NAME_LEN];
    bool is_local;
    pthread_t copier;
    int r, started = thread_start(&copier, "cairn-copies", put_run_copy, &copying);
    object_name(run_directories[RUN_FIRST], info->id, object);
    while ((r = put_run_at(remote, info, RUN_FIRST, &is_local)) < 0 && !is_local) {
        remote_error(remote, r, "storing %s failed (%s)", object, strerror(-r));
        if (!remote_pause(remote, RETRY_MS)) {
            r = -ECANCELED;
            break;
        }
    }
    if (started == 0)
        (void)pthread_join(copier, NULL);
    else
        (void)put_run_copy(&copying);
    return r;
}

/* From which on the runs become one: those that together are at least half as long as the one
 * before them are merged with it. So there are as many as the logarithm of the whole, and each row
 * is written again as seldom. At most `most` bytes, where the head has room. */
static size_t first_to_merge(const struct run_info *runs, size_t count, uint64_t most)
{
    uint64_t newer = runs[count - 1].length;
    size_t first = count - 1;
    for (size_t i = count - 1; i-- > 0; newer += runs[i].length) {
        if (count > HEAD_RUNS_MAX && i + 1 >= HEAD_RUNS_MAX)
            first = i;
        else if (newer + runs[i].length > most)
            break;
        else if (2 * newer >= runs[i].length)
            first = i;
    }
    return first;
}

/* The newest becomes part of the merged one, whose cut is `cut`. */
static int merge_from(struct remote *remote, struct run_info *runs, size_t *count, size_t first,
                      uint64_t cut)
{
    size_t merged = *count - first;
    if (merged < 2)
        return 0;
    struct run_info info = {.id = new_run_id(remote), .base_cut = runs[first].base_cut, .cut = cut};
    struct run_file file;
    memcpy(info.history, remote->store->local.sb.history, sizeof info.history);
    int r = run_file_begin(&file, &remote->store->local, remote->store->commit.room, &info);
    if (r == 0)
        r = runs_merge(&remote->store->local, runs + first, merged, first == 0, run_file_add,
                       &file);
    if (r == 0)
        r = run_file_finish(&file, &info);
    run_file_done(&file);
    if (r < 0) {
        run_file_abandon(&remote->store->local, info.id);
        return r;
    }
    runs[first] = info;
    *count = first + 1;
    return 0;
}

/* While a caller waits, what it waits for is published, and merges that would cost more than that
 * are left for later. */
static uint64_t merge_limit(struct remote *remote, const struct run_info *newest, size_t count)
{
    bool may_wait = remote_is_urged(remote) && count <= RUNS_DEFER_MAX;
    return may_wait ? max_u64(newest->length, MERGE_URGED) : UINT64_MAX;
}

/* The cut's own rows. */
static int write_run(struct remote *remote, struct view_cut *cut, struct run_info *info,
                     bool *ret_has_rows, uint64_t *ret_missing)
{
    struct run_file file;
    int64_t now; /* when packs were unreferenced: by another clock that may be long ago */
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
        run_file_abandon(&remote->store->local, info->id);
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
    size_t first = first_to_merge(runs, count, limit);
    *ret_is_news = *ret_is_news || (limit == UINT64_MAX && first < count - 1);
    if (*ret_is_news) {
        r = merge_from(remote, runs, &count, first, cut_seq);
        if (r == 0)
            r = put_run(remote, &runs[count - 1]);
    }
    if (first_to_merge(runs, count, UINT64_MAX) < count - 1)
        remote_defer_merge(remote);
    if (r < 0 || !*ret_is_news)
        return r;
    memset(head->runs, 0, sizeof head->runs);
    memcpy(head->runs, runs, count * sizeof *runs);
    head->run_count = (uint32_t)count;
    return 0;
}

/* --- put again -------------------------------------------------------------------------------- */

/* STORE/runs has it: verified, or else fetched from where it is whole. */
static int put_run_again(struct remote *remote, const struct run_info *info, enum run_place place,
                         const char *why)
{
    bool is_local;
    int r = run_look(&remote->store->local, info);
    if (r == -ENOENT)
        r = runs_fetch(remote->store, remote, &remote->prefix.head);
    if (r == 0)
        r = put_run_at(remote, info, place, &is_local);
    if (r == 0)
        log_info("remote: %s/%016llx was %s: stored again", run_directories[place],
                 (unsigned long long)info->id, why);
    return r;
}

/* 0: it is there, as far as a request for its length tells. */
static int keep_run_at(struct remote *remote, const struct run_info *info, enum run_place place)
{
    if (run_is_bad(remote, info->id, place))
        return put_run_again(remote, info, place, "damaged or missing");
    int r = run_check_at(remote, info, place, false);
    return prefix_object_is_lost(r)
               ? put_run_again(remote, info, place, r == -ENOENT ? "missing" : "truncated")
               : r;
}

int runs_keep(struct remote *remote, const uint64_t seen[RUN_PLACES])
{
    int r = 0;
    check(remote->prefix.head.run_count <= HEAD_RUNS_MAX);
    for (uint32_t i = 0; i < remote->prefix.head.run_count && r == 0; i++)
        for (unsigned place = 0; place < RUN_PLACES && r == 0; place++)
            if (!(seen[place] >> i & 1) ||
                run_is_bad(remote, remote->prefix.head.runs[i].id, place))
                r = keep_run_at(remote, &remote->prefix.head.runs[i], place);
    if (r == 0)
        remote->runs.bad_count = 0;
    return r;
}

/* The file in STORE/runs: a view that is lost is made from it. */
static int scrub_local_run(struct remote *remote, const struct run_info *info)
{
    if (run_look(&remote->store->local, info) != -ENOENT)
        return 0;
    atomic_fetch_add(&remote->runs.scrub_found, 1);
    int r = runs_fetch(remote->store, remote, &remote->prefix.head);
    if (r == 0) {
        atomic_fetch_add(&remote->runs.scrub_healed, 1);
        log_info("NVMe: runs/%016llx was missing or damaged: fetched again",
                 (unsigned long long)info->id);
    }
    return r;
}

static int scrub_run_at(struct remote *remote, const struct run_info *info, enum run_place place)
{
    int r = run_check_at(remote, info, place, true);
    if (!prefix_object_is_lost(r))
        return r;
    atomic_fetch_add(&remote->runs.scrub_found, 1);
    r = put_run_again(remote, info, place, r == -ENOENT ? "missing" : "damaged");
    if (r == 0)
        atomic_fetch_add(&remote->runs.scrub_healed, 1);
    return r;
}

static void scrub_runs_now(struct remote *remote)
{
    int r = 0;
    for (uint32_t i = 0; i < remote->prefix.head.run_count && r != -ECANCELED; i++) {
        r = scrub_local_run(remote, &remote->prefix.head.runs[i]);
        for (unsigned place = 0; place < RUN_PLACES && r != -ECANCELED; place++) {
            r = scrub_run_at(remote, &remote->prefix.head.runs[i], place);
            if (r < 0 && r != -ECANCELED)
                remote_error(remote, r, "%s/%016llx cannot be verified or stored again now (%s)",
                             run_directories[place],
                             (unsigned long long)remote->prefix.head.runs[i].id, strerror(-r));
        }
    }
    atomic_store(&remote->runs.scrub, RUN_SCRUB_DONE);
    event_signal(horizon_progress(remote->store->commit.horizon));
}

void remote_scrub_runs(struct remote *remote)
{
    atomic_store(&remote->runs.scrub_found, 0);
    atomic_store(&remote->runs.scrub_healed, 0);
    atomic_store(&remote->runs.scrub, RUN_SCRUB_ASKED);
    LOCK_SCOPE(&remote->shared.lock);
    remote_kick_locked(remote);
}

bool remote_runs_are_scrubbed(struct remote *remote, uint64_t *ret_found, uint64_t *ret_healed)
{
    *ret_found = atomic_load(&remote->runs.scrub_found);
    *ret_healed = atomic_load(&remote->runs.scrub_healed);
    return atomic_load(&remote->runs.scrub) == RUN_SCRUB_DONE;
}

void runs_tick(struct remote *remote)
{
    static const uint64_t none[RUN_PLACES];
    int64_t now = clock_monotonic_ns();
    if (atomic_load(&remote->runs.scrub) == RUN_SCRUB_ASKED)
        scrub_runs_now(remote);
    if (now < remote->runs.due_at || !atomic_exchange(&remote->runs.are_due, false))
        return;
    int r = runs_keep(remote, none);
    if (r == 0)
        return;
    atomic_store(&remote->runs.are_due, true);
    remote->runs.due_at = now + KEEP_RETRY_NS;
    if (r != -ECANCELED)
        log_warn("remote: runs of head %llu cannot be stored again now (%s); retrying",
                 (unsigned long long)remote->prefix.head.number, strerror(-r));
}
