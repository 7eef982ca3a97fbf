// SPDX-License-Identifier: Apache-2.0
/* Runs of the remote are fetched into STORE/runs. One that is missing or damaged in its first place
 * is read from the copy. */
#include <fcntl.h>
#include <stdio.h>

#include "base/cause.h"
#include "base/io.h"
#include "base/log.h"
#include "commit/run_file.h"
#include "remote/internal.h"

#define FETCH_THREADS 8u
#define FETCH_PIECE (RUN_FETCH_WINDOW / FETCH_THREADS)
#define RETRY_MS 250
/* Tries of the two places in turn: the damage may be of the way here. */
#define FETCH_TRIES 4

bool head_names_run(const struct head *head, uint64_t id)
{
    for (uint32_t i = 0; i < head->run_count; i++)
        if (head->runs[i].id == id)
            return true;
    return false;
}

/* --- what is wrong in the remote -------------------------------------------------------------- */

bool run_is_bad(const struct remote *remote, uint64_t id, enum run_place place)
{
    for (size_t i = 0; i < remote->runs.bad_count; i++)
        if (remote->runs.bad[i].id == id && remote->runs.bad[i].place == place)
            return true;
    return false;
}

static void note_bad_run(struct remote *remote, uint64_t id, enum run_place place)
{
    if (run_is_bad(remote, id, place) || remote->runs.bad_count == ARRAY_LEN(remote->runs.bad))
        return; /* one that has no room is found again */
    remote->runs.bad[remote->runs.bad_count++] = (struct bad_run){id, place};
    atomic_store(&remote->runs.are_due, true);
}

/* --- one place -------------------------------------------------------------------------------- */

/* A run that is being fetched. */
struct new_run {
    bool is_open; /* else it is there already */
    int fd;
    _Atomic int error;
};

struct piece_job {
    struct remote *remote;
    const struct run_info *info;
    struct new_run *run;
    enum run_place place;
    uint64_t offset;
};

static int fetch_bytes(const struct piece_job *job, uint64_t len)
{
    char object[OBJECT_NAME_LEN];
    object_name(run_directories[job->place], job->info->id, object);
    void *bytes = xmalloc_large(len);
    int r = job->remote->prefix.tier->ops->get_range(job->remote->prefix.tier, object, job->offset,
                                                     bytes, len);
    if (r == 0)
        r = io_pwrite_full(job->run->fd, bytes, len, job->offset);
    free(bytes);
    return r;
}

static void fetch_piece(void *arg)
{
    struct piece_job *job = arg;
    uint64_t len = min_u64(FETCH_PIECE, job->info->length - job->offset);
    int r = atomic_load(&job->run->error);
    if (r == 0)
        r = fetch_bytes(job, len);
    if (r < 0) {
        atomic_store(&job->run->error, r);
    } else {
        atomic_fetch_add(&job->remote->prefix.fetched_total, len);
        /* The disk begins now, beside what still has to come: the call that makes it durable has
         * less to wait for. */
        (void)sync_file_range(job->run->fd, (off_t)job->offset, (off_t)len, SYNC_FILE_RANGE_WRITE);
    }
    free(job);
}

/* A file of the run's length under a preliminary name. */
static int open_new_run(const struct store *store, const struct run_info *info, struct new_run *run)
{
    _cleanup_free_ char *path = run_path(&store->local, info->id, ".new");
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
    _cleanup_free_ char *from = run_path(&store->local, info->id, ".new");
    _cleanup_free_ char *to = run_path(&store->local, info->id, "");
    int r = run_input_verify(&input, info->hash);
    if (r == 0 && fsync(run->fd) < 0)
        r = -errno;
    if (r == 0 && rename(from, to) < 0)
        r = -errno;
    return r;
}

static void fetch_run(struct remote *remote, struct pool *pool, const struct run_info *info,
                      struct new_run *run, enum run_place place)
{
    for (uint64_t at = 0; at < info->length; at += FETCH_PIECE) {
        struct piece_job *job = xmalloc(sizeof *job);
        *job = (struct piece_job){
            .remote = remote, .info = info, .run = run, .place = place, .offset = at};
        pool_submit(pool, fetch_piece, job);
    }
}

/* --- both places ------------------------------------------------------------------------------ */

/* The runs of a head, over all tries. */
struct run_fetch {
    struct store *store;
    struct remote *remote;
    const struct head *head;
    int lost[HEAD_RUNS_MAX][RUN_PLACES]; /* how each place failed last; 0: not, or not tried */
    uint32_t first_lost;                 /* of the last try; run_count: none */
    bool fetched;
};

static int begin_fetch(struct run_fetch *fetch, enum run_place place, struct new_run *runs,
                       struct pool **pool)
{
    const struct head *head = fetch->head;
    int r = 0;
    for (uint32_t i = 0; i < head->run_count && r == 0; i++) {
        if (run_look(&fetch->store->local, &head->runs[i]) == 0)
            continue;
        if (!*pool)
            r = pool_new("cairn-fetch", FETCH_THREADS, 64, NULL, NULL, pool);
        if (r == 0)
            r = open_new_run(fetch->store, &head->runs[i], &runs[i]);
        if (r == 0)
            fetch_run(fetch->remote, *pool, &head->runs[i], &runs[i], place);
    }
    return r;
}

/* A run that is whole now is kept, whatever became of the others. */
static int end_run(struct run_fetch *fetch, enum run_place place, uint32_t i,
                   const struct new_run *run)
{
    const struct run_info *info = &fetch->head->runs[i];
    int r = atomic_load(&run->error);
    if (r == 0)
        r = settle_fetched(fetch->store, info, run);
    (void)close(run->fd);
    if (r < 0)
        run_file_abandon(&fetch->store->local, info->id);
    else
        fetch->fetched = true;
    fetch->lost[i][place] = r;
    if (prefix_object_is_lost(r))
        fetch->first_lost = min_u64(fetch->first_lost, i);
    return r;
}

/* An error of the disk or the way counts more than a run that is lost. */
static int fetch_once(struct run_fetch *fetch, enum run_place place)
{
    struct new_run runs[HEAD_RUNS_MAX] = {0};
    struct pool *pool = NULL;
    int lost = 0, r = run_directory_make(&fetch->store->local);
    if (r == 0)
        r = begin_fetch(fetch, place, runs, &pool);
    pool_free(pool);
    fetch->first_lost = fetch->head->run_count;
    for (uint32_t i = 0; i < fetch->head->run_count; i++) {
        int one = runs[i].is_open ? end_run(fetch, place, i, &runs[i]) : 0;
        if (prefix_object_is_lost(one))
            lost = lost ? lost : one;
        else if (one < 0 && r == 0)
            r = one;
    }
    return r < 0 ? r : lost;
}

static const char *explain(int error)
{
    return error == -ENOENT ? "missing" : "damaged";
}

static void explain_lost(const struct run_fetch *fetch)
{
    uint32_t i = fetch->first_lost;
    check(i < fetch->head->run_count);
    cause_note("runs/%016llx is %s, and its copy copies/%016llx is %s",
               (unsigned long long)fetch->head->runs[i].id, explain(fetch->lost[i][RUN_FIRST]),
               (unsigned long long)fetch->head->runs[i].id, explain(fetch->lost[i][RUN_COPY]));
}

/* Runs that came from one place while the other has them not, or damaged. */
static void note_bad_runs(const struct run_fetch *fetch)
{
    for (uint32_t i = 0; i < fetch->head->run_count; i++)
        for (unsigned place = 0; place < RUN_PLACES; place++) {
            unsigned long long id = fetch->head->runs[i].id;
            if (!prefix_object_is_lost(fetch->lost[i][place]))
                continue;
            log_warn("remote: %s/%016llx is %s; its state was read from %s/%016llx",
                     run_directories[place], id, explain(fetch->lost[i][place]),
                     run_directories[RUN_PLACES - 1 - place], id);
            note_bad_run(fetch->remote, id, place);
        }
}

int runs_fetch_of(struct store *store, struct remote *remote, const struct head *head,
                  uint64_t *ret_run)
{
    struct run_fetch fetch = {.store = store, .remote = remote, .head = head};
    int r = 0;
    *ret_run = 0;
    if (!remote) {
        r = runs_verify(&store->local, head);
        room_account_runs(store->commit.room);
        return r;
    }
    for (int i = 0; i < FETCH_TRIES; i++) {
        enum run_place place = i % RUN_PLACES;
        r = fetch_once(&fetch, place);
        if (!prefix_object_is_lost(r) || (place == RUN_COPY && !remote_pause(remote, RETRY_MS)))
            break;
    }
    _cleanup_free_ char *directory = xasprintf("%s/runs", store->local.path);
    room_account_runs(store->commit.room);
    *ret_run = prefix_object_is_lost(r) ? head->runs[fetch.first_lost].id : 0;
    if (prefix_object_is_lost(r))
        explain_lost(&fetch);
    else if (r == 0)
        note_bad_runs(&fetch);
    return r == 0 && fetch.fetched ? io_fsync_dir(directory) : r;
}

int runs_fetch(struct store *store, struct remote *remote, const struct head *head)
{
    uint64_t run;
    return runs_fetch_of(store, remote, head, &run);
}
