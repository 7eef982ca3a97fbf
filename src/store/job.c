// SPDX-License-Identifier: Apache-2.0
/* One job at a time, in a thread of its own; the client may disconnect and come back. */
#include "store/job.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/clock.h"
#include "remote/maintenance.h"
#include "snapshots/snapshots.h"
#include "store/local_snapshots.h"
#include "store/lookback_internal.h"

#define LINES_MAX 4096u
#define JOB_EPOCH_SHIFT 20 /* above the numbers of an epoch's jobs */

struct job {
    struct cairn_mutex lock; /* LOCK_LEAF */
    pthread_t thread;
    bool is_started; /* the thread must be joined */
    struct store *store;
    struct job_options options;
    job_work_fn *work;
    struct job_status status;
    char *lines[LINES_MAX];
    size_t line_count;
    _Atomic bool cancelled;
    pthread_cond_t was_cancelled;
};

struct job *job_new(void)
{
    struct job *job = xcalloc(1, sizeof *job);
    mutex_init(&job->lock, LOCK_LEAF);
    cond_init(&job->was_cancelled);
    return job;
}

static void forget_lines(struct job *job)
{
    for (size_t i = 0; i < job->line_count; i++)
        free(job->lines[i]);
    job->line_count = 0;
}

void job_free(struct job *job)
{
    if (!job)
        return;
    forget_lines(job);
    mutex_done(&job->lock);
    (void)pthread_cond_destroy(&job->was_cancelled);
    free(job);
}

/* --- for the job itself --- */

bool job_is_cancelled(struct job *job)
{
    return atomic_load(&job->cancelled);
}

bool job_await_progress(struct store *store, uint64_t *seen, int64_t until_ns)
{
    if (!job_is_cancelled(store->own->job))
        (void)event_wait(horizon_progress(store->commit.horizon), seen, until_ns);
    return !job_is_cancelled(store->own->job);
}

bool job_sleep(struct job *job, int64_t until_ns)
{
    LOCK_SCOPE(&job->lock);
    while (!job_is_cancelled(job) && clock_monotonic_ns() < until_ns)
        (void)mutex_wait_until(&job->lock, &job->was_cancelled, until_ns);
    return !job_is_cancelled(job);
}

void job_say(struct job *job, const char *fmt, ...)
{
    char *line = NULL;
    va_list ap;
    va_start(ap, fmt);
    if (vasprintf(&line, fmt, ap) < 0)
        line = NULL;
    va_end(ap);
    LOCK_SCOPE(&job->lock);
    if (line && job->line_count < LINES_MAX)
        job->lines[job->line_count++] = line;
    else
        free(line);
    job->status.lines++;
}

void job_count(struct job *job, const struct job_counts *more)
{
    LOCK_SCOPE(&job->lock);
    struct job_counts *counts = &job->status.counts;
    counts->bytes += more->bytes;
    counts->bytes_total += more->bytes_total;
    counts->packs += more->packs;
    counts->chunks += more->chunks;
    counts->found += more->found;
    counts->healed += more->healed;
    counts->unhealed += more->unhealed;
    counts->files += more->files;
    counts->objects += more->objects;
    counts->removed_bytes += more->removed_bytes;
}

/* --- life ------------------------------------------------------------------------------------- */

static void *job_thread(void *arg)
{
    struct store *store = arg;
    struct job *job = store->own->job;
    int r = job->work(store, &job->options);
    LOCK_SCOPE(&job->lock);
    job->status.cancelled = job_is_cancelled(job);
    job->status.error = r == -ECANCELED ? 0 : r;
    job->status.running = false;
    return NULL;
}

void store_job_cancel(struct store *store)
{
    LOCK_SCOPE(&store->own->job->lock);
    atomic_store(&store->own->job->cancelled, true);
    (void)pthread_cond_broadcast(&store->own->job->was_cancelled);
    event_signal(horizon_progress(store->commit.horizon));
}

void job_join(struct store *store)
{
    struct job *job = store->own->job;
    mutex_lock(&job->lock);
    bool join = job->is_started;
    job->is_started = false;
    mutex_unlock(&job->lock);
    if (join)
        (void)pthread_join(job->thread, NULL);
}

/* Takes the slot of the last job. */
static int take_place(struct store *store, const struct job_options *options)
{
    struct job *job = store->own->job;
    LOCK_SCOPE(&job->lock);
    if (job->status.running)
        return -EBUSY;
    /* No two daemons of a store have an epoch in common: so a number identifies one job forever. */
    uint64_t number = max_u64(job->status.number, store->local.epoch << JOB_EPOCH_SHIFT) + 1;
    job->status = (struct job_status){.kind = options->kind, .number = number, .running = true};
    return 0;
}

int job_start(struct store *store, const struct job_options *options, job_work_fn *work,
              uint64_t *ret_number)
{
    struct job *job = store->own->job;
    TRY(take_place(store, options));
    job_join(store); /* the last one has ended */
    atomic_store(&job->cancelled, false);
    mutex_lock(&job->lock);
    job->options = *options;
    job->work = work;
    *ret_number = job->status.number;
    forget_lines(job);
    mutex_unlock(&job->lock);
    pthread_t thread;
    int r = thread_start(&thread, "cairn-job", job_thread, store);
    LOCK_SCOPE(&job->lock);
    job->thread = thread;
    job->is_started = r == 0;
    if (r < 0)
        job->status.running = false;
    return r;
}

void store_job_status(struct store *store, uint64_t from, void (*fn)(const char *line, void *arg),
                      void *arg, struct job_status *ret)
{
    struct job *job = store->own->job;
    LOCK_SCOPE(&job->lock);
    *ret = job->status;
    for (size_t i = from; i < job->line_count; i++)
        fn(job->lines[i], arg);
}

/* --- snapshots with names --------------------------------------------------------------------- */

bool store_naming_is_local(struct store *store, const struct naming *naming)
{
    bool is_known = local_snapshots_have(store->own->snapshots, naming->name);
    return !store->remote || (naming->kind == NAMING_CREATE ? naming->is_local : is_known);
}

/* Is the name known to be one of the other kind? */
static bool is_taken_by_other(struct store *store, const struct naming *naming)
{
    const char *name = naming->kind == NAMING_RENAME ? naming->new_name : naming->name;
    return naming->kind != NAMING_DELETE && store->remote &&
           (naming->is_local ? lookback_knows(store->own->lookback, name)
                             : local_snapshots_have(store->own->snapshots, name));
}

int store_naming_start(struct store *store, const struct naming *naming, uint64_t *ret_number)
{
    if (naming->is_local && store->node)
        return -EOPNOTSUPP;
    if (is_taken_by_other(store, naming))
        return -EEXIST;
    return naming->is_local ? local_snapshots_ask(store->own->snapshots, naming, ret_number)
                            : snapshots_ask(remote_snapshots(store->remote), naming, ret_number);
}

void store_naming_look(struct store *store, bool is_local, struct naming_state *ret)
{
    *ret = (struct naming_state){0};
    if (is_local || !store->remote)
        local_snapshots_look(store->own->snapshots, ret);
    else
        snapshots_look(remote_snapshots(store->remote), ret);
    if (!ret->running)
        lookback_names_changed(store->own->lookback);
}

void store_kept_each(struct store *store, void (*fn)(uint64_t head, uint64_t bytes, void *arg),
                     void *arg)
{
    if (store->remote)
        snapshots_each(remote_snapshots(store->remote), fn, arg);
    if (store->own->snapshots)
        local_snapshots_each(store->own->snapshots, fn, arg);
}
