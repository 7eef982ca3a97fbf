// SPDX-License-Identifier: Apache-2.0
/* Runs are fetched into STORE/runs. A run that is missing or damaged in its first place is read
 * from the copy. */
#include <fcntl.h>
#include <stdio.h>

#include "base/cause.h"
#include "base/io.h"
#include "base/log.h"
#include "base/pool.h"
#include "commit/run_lists.h"
#include "prefix/runs.h"

#define FETCH_THREADS 8u
#define FETCH_PIECE (RUN_FETCH_WINDOW / FETCH_THREADS)
#define RETRY_MS 250
/* Attempts, alternating between the two places: it may be damaged only in transfer. */
#define FETCH_TRIES 4

bool head_names_run(const struct head *head, uint64_t id)
{
    for (uint32_t i = 0; i < head->run_count; i++)
        if (head->runs[i].id == id)
            return true;
    return false;
}

/* --- bad objects in the remote --- */

bool run_is_bad(const struct prefix *prefix, uint64_t id, enum run_place place)
{
    for (size_t i = 0; i < prefix->runs.bad_count; i++)
        if (prefix->runs.bad[i].id == id && prefix->runs.bad[i].place == place)
            return true;
    return false;
}

/* Runs of other nodes are put again by those nodes. */
static void note_bad_run(struct prefix *prefix, const struct run_info *info, enum run_place place)
{
    uint64_t id = info->id;
    if (info->node || run_is_bad(prefix, id, place) ||
        prefix->runs.bad_count == ARRAY_LEN(prefix->runs.bad))
        return; /* a run for which there is no room in the list is found again later */
    prefix->runs.bad[prefix->runs.bad_count++] = (struct bad_run){id, place};
    atomic_store(&prefix->runs.are_due, true);
}

/* --- one place -------------------------------------------------------------------------------- */

/* A run that is being fetched. */
struct new_run {
    bool is_open; /* false: the run exists already */
    int fd;
    _Atomic int error;
};

struct piece_job {
    struct prefix *prefix;
    const struct run_info *info;
    struct new_run *run;
    enum run_place place;
    uint64_t offset;
};

static int fetch_bytes(const struct piece_job *job, uint64_t len)
{
    char object[RUN_OBJECT_LEN];
    run_object_name(job->info, job->place, object);
    void *bytes = xmalloc_large(len);
    int r = job->prefix->tier->ops->get_range(job->prefix->tier, object, job->offset, bytes, len);
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
        atomic_fetch_add(&job->prefix->fetched_total, len);
        /* The disk begins to write now, while the rest is still being fetched: the final fsync has
         * less to wait for. */
        (void)sync_file_range(job->run->fd, (off_t)job->offset, (off_t)len, SYNC_FILE_RANGE_WRITE);
    }
    free(job);
}

/* Creates a file of the run's length under a preliminary name. */
static int open_new_run(const struct local *local, const struct run_info *info, struct new_run *run)
{
    _cleanup_free_ char *path = run_path(local, info, ".new");
    run->fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (run->fd < 0)
        return -errno;
    run->is_open = true;
    /* A full disk is detected before anything is fetched. */
    return -posix_fallocate(run->fd, 0, (off_t)info->length);
}

/* The file is made durable and verified before it gets its name. */
static int settle_fetched(const struct local *local, const struct run_info *info,
                          const struct new_run *run)
{
    struct run_input input = {.fd = run->fd, .id = info->id, .length = info->length};
    _cleanup_free_ char *from = run_path(local, info, ".new");
    _cleanup_free_ char *to = run_path(local, info, "");
    TRY(run_input_verify(&input, info->hash));
    return fsync(run->fd) < 0 || rename(from, to) < 0 ? -errno : 0;
}

static void fetch_run(struct prefix *prefix, struct pool *pool, const struct run_info *info,
                      struct new_run *run, enum run_place place)
{
    for (uint64_t at = 0; at < info->length; at += FETCH_PIECE) {
        struct piece_job *job = xmalloc(sizeof *job);
        *job = (struct piece_job){
            .prefix = prefix, .info = info, .run = run, .place = place, .offset = at};
        pool_submit(pool, fetch_piece, job);
    }
}

/* --- both places ------------------------------------------------------------------------------ */

/* The runs of one fetch, over all attempts. */
struct run_fetch {
    struct prefix *prefix;
    const struct run_info *runs;
    size_t count;
    /* the last error of each place; 0: no error, or not tried */
    int lost[HEAD_RUNS_MAX][RUN_PLACES];
    size_t first_lost; /* of the last attempt; `count`: none */
    bool fetched;
};

static int begin_fetch(struct run_fetch *fetch, enum run_place place, struct new_run *runs,
                       struct pool **pool)
{
    int r = 0;
    for (size_t i = 0; i < fetch->count && r == 0; i++) {
        if (run_look(fetch->prefix->local, &fetch->runs[i]) == 0)
            continue;
        if (!*pool)
            r = pool_new("cairn-fetch", FETCH_THREADS, 64, NULL, NULL, pool);
        if (r == 0)
            r = open_new_run(fetch->prefix->local, &fetch->runs[i], &runs[i]);
        if (r == 0)
            fetch_run(fetch->prefix, *pool, &fetch->runs[i], &runs[i], place);
    }
    return r;
}

/* Keeps a run that is whole now, independent of the others. */
static int end_run(struct run_fetch *fetch, enum run_place place, size_t i,
                   const struct new_run *run)
{
    const struct run_info *info = &fetch->runs[i];
    int r = atomic_load(&run->error);
    if (r == 0)
        r = settle_fetched(fetch->prefix->local, info, run);
    (void)close(run->fd);
    if (r < 0)
        run_file_abandon(fetch->prefix->local, info);
    else
        fetch->fetched = true;
    fetch->lost[i][place] = r;
    if (prefix_object_is_lost(r))
        fetch->first_lost = min_u64(fetch->first_lost, i);
    return r;
}

/* An error of the disk or of the connection takes precedence over a lost run. */
static int fetch_once(struct run_fetch *fetch, enum run_place place)
{
    struct new_run runs[HEAD_RUNS_MAX] = {0};
    struct pool *pool = NULL;
    int lost = 0, r = run_directory_make(fetch->prefix->local);
    if (r == 0)
        r = begin_fetch(fetch, place, runs, &pool);
    pool_free(pool);
    fetch->first_lost = fetch->count;
    for (size_t i = 0; i < fetch->count; i++) {
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
    size_t i = fetch->first_lost;
    check(i < fetch->count);
    char first[RUN_OBJECT_LEN], copy[RUN_OBJECT_LEN];
    run_object_name(&fetch->runs[i], RUN_FIRST, first);
    run_object_name(&fetch->runs[i], RUN_COPY, copy);
    cause_note("%s is %s, and its copy %s is %s", first, explain(fetch->lost[i][RUN_FIRST]), copy,
               explain(fetch->lost[i][RUN_COPY]));
}

/* Notes runs that were read from one place while the other one lacks them, or has them damaged. */
static void note_bad_runs(const struct run_fetch *fetch)
{
    for (size_t i = 0; i < fetch->count; i++)
        for (unsigned place = 0; place < RUN_PLACES; place++) {
            char bad[RUN_OBJECT_LEN], other[RUN_OBJECT_LEN];
            if (!prefix_object_is_lost(fetch->lost[i][place]))
                continue;
            run_object_name(&fetch->runs[i], place, bad);
            run_object_name(&fetch->runs[i], RUN_PLACES - 1 - place, other);
            log_warn("remote: %s is %s; its state was read from %s", bad,
                     explain(fetch->lost[i][place]), other);
            note_bad_run(fetch->prefix, &fetch->runs[i], place);
        }
}

/* At most HEAD_RUNS_MAX. */
static int fetch_some(struct prefix *prefix, const struct run_info *runs, size_t count,
                      struct lost_object *ret_lost)
{
    struct run_fetch fetch = {.prefix = prefix, .runs = runs, .count = count};
    int r = 0;
    for (int i = 0; i < FETCH_TRIES; i++) {
        enum run_place place = i % RUN_PLACES;
        r = fetch_once(&fetch, place);
        if (!prefix_object_is_lost(r) || (place == RUN_COPY && !prefix_pause(prefix, RETRY_MS)))
            break;
    }
    _cleanup_free_ char *directory = xasprintf("%s/runs", prefix->local->path);
    room_account_runs(prefix->room);
    *ret_lost = (struct lost_object){0};
    if (prefix_object_is_lost(r)) {
        const struct run_info *lost = &runs[fetch.first_lost];
        *ret_lost = (struct lost_object){.kind = LOST_RUN, .node = lost->node, .number = lost->id};
        explain_lost(&fetch);
    }
    if (r == 0)
        note_bad_runs(&fetch);
    return r == 0 && fetch.fetched ? io_fsync_dir(directory) : r;
}

int runs_fetch(struct prefix *prefix, const struct run_info *runs, size_t count,
               struct lost_object *ret_lost)
{
    size_t at = 0;
    do {
        size_t some = min_u64(count - at, HEAD_RUNS_MAX);
        TRY(fetch_some(prefix, runs + at, some, ret_lost));
        at += some;
    } while (at < count);
    return 0;
}

int runs_fetch_head(struct prefix *prefix, const struct head *head, struct lost_object *ret_lost)
{
    _cleanup_(run_lists_done) struct run_lists lists = {0};
    VECTOR(struct run_info) all = {0};
    TRY(feeds_fetch(prefix, head, ret_lost));
    TRY(run_lists_of(prefix->local, head, &lists));
    for (size_t i = 0; i < lists.lists.count; i++)
        vector_add_all(&all, lists.lists.at[i].runs, lists.lists.at[i].count);
    int r = runs_fetch(prefix, all.at, all.count, ret_lost);
    vector_free(&all);
    return r;
}

static int node_names_run(struct prefix *prefix, const struct head *head, uint32_t writer,
                          uint64_t id, bool *ret_names)
{
    _cleanup_free_ struct feed *feed = xmalloc(sizeof *feed);
    TRY(feed_fetch(prefix, head, writer));
    TRY(feed_look(prefix->local, head, writer, feed));
    for (uint32_t i = 0; i < feed->run_count; i++)
        *ret_names = *ret_names || feed->runs[i].id == id;
    return 0;
}

int head_names_lost(struct prefix *prefix, const struct head *head, const struct lost_object *lost,
                    bool *ret_names)
{
    *ret_names = lost->kind == LOST_RUN && !lost->node && head_names_run(head, lost->number);
    for (uint32_t i = 0; i < head->writer_count && !*ret_names; i++) {
        const struct head_writer *writer = &head->writers[i];
        if (lost->kind == LOST_FEED)
            *ret_names = writer->feed_round == lost->number && writer->epoch == lost->epoch;
        else if (lost->kind == LOST_RUN && writer->node == lost->node && head_reads_writer(head, i))
            TRY(node_names_run(prefix, head, i, lost->number, ret_names));
    }
    return 0;
}
