// SPDX-License-Identifier: Apache-2.0
/* Runs of the remote: made from a cut, merged so that they stay few, put there, and fetched from
 * there into STORE/runs. */
#include <fcntl.h>
#include <stdio.h>

#include "base/io.h"
#include "base/log.h"
#include "commit/run_file.h"
#include "remote/maintenance_internal.h"

#define FETCH_THREADS 8u
#define FETCH_PIECE (RUN_FETCH_WINDOW / FETCH_THREADS)
#define RETRY_MS 1000
/* The tries for runs that do not hash to their names: the damage may be of the way here. */
#define FETCH_TRIES 4
#define RUN_LIMITED MIB
#define MERGE_URGED (32 * KIB) /* of runs that are merged while a caller waits */
/* With more than these, no merge is left for later. */
#define RUNS_DEFER_MAX (HEAD_RUNS_MAX * 3 / 4)

static void run_object_name(uint64_t id, char buf[32])
{
    object_name("runs", id, buf);
}

/* --- publishing ------------------------------------------------------------------------------- */

static uint64_t new_run_id(struct remote *remote)
{
    const struct store *store = remote->store;
    return ((uint64_t)store->sb.writer << 48) | (store->epoch << 24) |
           (atomic_fetch_add(&remote->next_run, 1) + 1);
}

static int put_run(struct remote *remote, const struct run_info *info)
{
    struct run_input input;
    char object[32];
    run_object_name(info->id, object);
    int r = run_input_open(remote->store, info, &input);
    /* A small one must not keep a state waiting that is there already. */
    if (r == 0 && info->length > RUN_LIMITED && !remote_limit_wait(remote, info->length))
        r = -ECANCELED;
    while (r == 0) {
        struct tier_source source = {.len = info->length, .read = run_input_bytes, .arg = &input};
        r = tier_put_from(remote->tier, object, &source);
        if (r == 0 || source.error < 0)
            break;
        remote_error(remote, r, "storing %s failed (%s)", object, strerror(-r));
        r = remote_pause(remote, RETRY_MS) ? 0 : -ECANCELED;
    }
    if (r == 0)
        atomic_fetch_add(&remote->uploaded_total, info->length);
    run_input_done(&input);
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
    memcpy(info.history, remote->store->sb.history, sizeof info.history);
    int r = run_file_begin(&file, remote->store, &info);
    if (r == 0)
        r = runs_merge(remote->store, runs + first, merged, first == 0, run_file_add, &file);
    if (r == 0)
        r = run_file_finish(&file, &info);
    run_file_done(&file);
    if (r < 0) {
        run_file_abandon(remote->store, info.id);
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

static int write_run(struct remote *remote, struct view_cut *cut, struct run_info *info,
                     uint64_t *ret_missing)
{
    struct run_file file;
    int64_t now; /* when packs were unreferenced: by another clock that may be long ago */
    int r = remote->tier->ops->now(remote->tier, &now);
    if (r < 0)
        return r;
    memcpy(info->history, remote->store->sb.history, sizeof info->history);
    r = run_file_begin(&file, remote->store, info);
    if (r == 0)
        r = view_cut_rows(cut, now, run_file_add, &file, ret_missing);
    if (r == 0 && file.rows == 0)
        r = 1;
    if (r == 0)
        r = run_file_finish(&file, info);
    run_file_done(&file);
    if (r != 0)
        run_file_abandon(remote->store, info->id);
    return r;
}

/* Adds the cut's own run; 1: it has no rows. */
static int add_run(struct remote *remote, struct view_cut *cut, uint64_t base_cut,
                   struct run_info *runs, size_t *count, uint64_t *ret_missing)
{
    struct run_info info = {
        .id = new_run_id(remote), .base_cut = base_cut, .cut = view_cut_state(cut).applied_seq};
    int r = write_run(remote, cut, &info, ret_missing);
    if (r == 0)
        runs[(*count)++] = info;
    return r;
}

int runs_publish(struct remote *remote, struct view_cut *cut, struct head *head,
                 uint64_t *ret_missing)
{
    bool whole = view_cut_is_whole(cut) || head->run_count == 0;
    struct run_info runs[HEAD_RUNS_MAX + 1];
    size_t count = whole ? 0 : head->run_count;
    memcpy(runs, head->runs, count * sizeof *runs);
    int r = add_run(remote, cut, whole ? 0 : head->cut, runs, &count, ret_missing);
    if (r < 0 || count == 0)
        return r;
    uint64_t limit = merge_limit(remote, &runs[count - 1], count);
    size_t first = first_to_merge(runs, count, limit);
    bool is_worth_it = r == 0 || (limit == UINT64_MAX && first < count - 1);
    if (is_worth_it) {
        r = merge_from(remote, runs, &count, first, view_cut_state(cut).applied_seq);
        if (r == 0)
            r = put_run(remote, &runs[count - 1]);
    }
    if (first_to_merge(runs, count, UINT64_MAX) < count - 1)
        remote_defer_merge(remote);
    if (r != 0)
        return r;
    memset(head->runs, 0, sizeof head->runs);
    memcpy(head->runs, runs, count * sizeof *runs);
    head->run_count = (uint32_t)count;
    return 0;
}

/* --- fetching --------------------------------------------------------------------------------- */

/* A run that is being fetched. */
struct new_run {
    bool is_open; /* else it is there already */
    int fd;
};

struct piece_job {
    struct remote *remote;
    const struct run_info *info;
    const struct new_run *run;
    uint64_t offset;
    _Atomic int *error;
};

static int fetch_bytes(const struct piece_job *job, uint64_t len)
{
    char object[32];
    run_object_name(job->info->id, object);
    void *bytes = xmalloc_large(len);
    int r = job->remote->tier->ops->get_range(job->remote->tier, object, job->offset, bytes, len);
    if (r == 0)
        r = io_pwrite_full(job->run->fd, bytes, len, job->offset);
    free(bytes);
    return r;
}

static void fetch_piece(void *arg)
{
    struct piece_job *job = arg;
    uint64_t len = min_u64(FETCH_PIECE, job->info->length - job->offset);
    int r = atomic_load(job->error);
    if (r == 0)
        r = fetch_bytes(job, len);
    if (r < 0) {
        atomic_store(job->error, r);
    } else {
        atomic_fetch_add(&job->remote->fetched_total, len);
        /* The disk begins now, beside what still has to come: the call that makes it durable has
         * less to wait for. */
        (void)sync_file_range(job->run->fd, (off_t)job->offset, (off_t)len, SYNC_FILE_RANGE_WRITE);
    }
    free(job);
}

/* A file of the run's length under a preliminary name. */
static int open_new_run(const struct store *store, const struct run_info *info, struct new_run *run)
{
    _cleanup_free_ char *path = run_path(store, info->id, ".new");
    run->fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (run->fd < 0)
        return -errno;
    run->is_open = true;
    /* A full disk is found before anything is fetched. */
    return -posix_fallocate(run->fd, 0, (off_t)info->length);
}

/* Durable, and what its name says, before it gets that. */
static int settle_fetched(const struct store *store, const struct run_info *info,
                          const struct new_run *run)
{
    struct run_input input = {.fd = run->fd, .id = info->id, .length = info->length};
    _cleanup_free_ char *from = run_path(store, info->id, ".new");
    _cleanup_free_ char *to = run_path(store, info->id, "");
    int r = run_input_verify(&input, info->hash);
    if (r == 0 && fsync(run->fd) < 0)
        r = -errno;
    if (r == 0 && rename(from, to) < 0)
        r = -errno;
    return r;
}

static void fetch_run(struct remote *remote, struct pool *pool, const struct run_info *info,
                      const struct new_run *run, _Atomic int *error)
{
    for (uint64_t at = 0; at < info->length; at += FETCH_PIECE) {
        struct piece_job *job = xmalloc(sizeof *job);
        *job = (struct piece_job){
            .remote = remote, .info = info, .run = run, .offset = at, .error = error};
        pool_submit(pool, fetch_piece, job);
    }
}

static int fetch_once(struct store *store, struct remote *remote, const struct head *head)
{
    struct new_run runs[HEAD_RUNS_MAX] = {0};
    _Atomic int error = 0;
    struct pool *pool = NULL;
    int r = run_directory_make(store);
    for (uint32_t i = 0; i < head->run_count && r == 0; i++) {
        if (run_look(store, &head->runs[i]) == 0)
            continue;
        if (!pool)
            r = pool_new("cairn-fetch", FETCH_THREADS, 64, NULL, NULL, &pool);
        if (r == 0)
            r = open_new_run(store, &head->runs[i], &runs[i]);
        if (r == 0)
            fetch_run(remote, pool, &head->runs[i], &runs[i], &error);
    }
    bool fetched = pool != NULL;
    pool_free(pool);
    if (r == 0)
        r = atomic_load(&error);
    for (uint32_t i = 0; i < head->run_count; i++) {
        if (!runs[i].is_open)
            continue;
        if (r == 0)
            r = settle_fetched(store, &head->runs[i], &runs[i]);
        (void)close(runs[i].fd);
        if (r < 0)
            run_file_abandon(store, head->runs[i].id);
    }
    _cleanup_free_ char *directory = xasprintf("%s/runs", store->path);
    room_account_runs(store);
    return r == 0 && fetched ? io_fsync_dir(directory) : r;
}

int runs_fetch(struct store *store, struct remote *remote, const struct head *head)
{
    int r = 0;
    if (!remote) {
        r = runs_verify(store, head);
        room_account_runs(store);
        return r;
    }
    for (int i = 0; i < FETCH_TRIES; i++) {
        r = fetch_once(store, remote, head);
        bool looks_damaged = r == -EUCLEAN || r == -EBADMSG;
        if (!looks_damaged || !remote_pause(remote, RETRY_MS / 4))
            break;
    }
    return r;
}
