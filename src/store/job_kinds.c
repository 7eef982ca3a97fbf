// SPDX-License-Identifier: Apache-2.0
/* The kinds of jobs: a scrub, or a round of gc. */
#include "remote/maintenance.h"
#include "store/job.h"

static int say_dead(const struct view_pack *pack, void *arg)
{
    struct job *job = arg;
    if (pack->live_count > 0)
        return 0;
    job_say(job, "NVMe: would delete packs/%016llx, %llu bytes: no file refers to it",
            (unsigned long long)pack->pack, (unsigned long long)pack->length);
    job_count(job, &(struct job_counts){.objects = 1, .removed_bytes = pack->length});
    return 0;
}

static int gc_local(struct store *store, bool dry_run)
{
    struct job *job = store->own->job;
    if (dry_run)
        return view_packs(store->local.view, say_dead, job);
    struct view_state before = view_state(store->local.view);
    uint64_t seen = event_count(horizon_progress(store->commit.horizon));
    uint64_t number = gc_ask(&store->commit);
    while (!gc_is_done(&store->commit, number))
        if (!job_await_progress(store, &seen, INT64_MAX))
            return -ECANCELED;
    struct view_state after = view_state(store->local.view);
    uint64_t bytes =
        before.pack_bytes > after.pack_bytes ? before.pack_bytes - after.pack_bytes : 0;
    uint64_t packs = before.packs > after.packs ? before.packs - after.packs : 0;
    if (bytes)
        job_say(job, "NVMe: %llu packs fewer, %llu bytes", (unsigned long long)packs,
                (unsigned long long)bytes);
    job_count(job, &(struct job_counts){.objects = packs, .removed_bytes = bytes});
    return 0;
}

static void say_remote(const char *line, void *arg)
{
    job_say(arg, "remote: %s", line);
}

static bool is_job_cancelled(void *arg)
{
    return job_is_cancelled(arg);
}

static int gc_remote(struct store *store, bool dry_run)
{
    struct job *job = store->own->job;
    struct remote_gc_request request = {
        .dry_run = dry_run, .say = say_remote, .is_cancelled = is_job_cancelled, .arg = job};
    int r = remote_gc_ask(store->remote, &request);
    job_count(job,
              &(struct job_counts){.objects = request.objects, .removed_bytes = request.bytes});
    if (r == -EAGAIN) {
        job_say(job, "remote: not checked: its newest changes are not published yet");
        return 0;
    }
    if (r < 0 && r != -ECANCELED)
        job_say(job, "remote: %s",
                r == -ESHUTDOWN ? "this mount does not hold the prefix, so it deletes nothing there"
                : r == -ENOTCONN ? "it cannot be reached now"
                : r == -ESTALE   ? "another writer has taken it over: nothing was deleted"
                                 : strerror(-r));
    return r;
}

static int gc_store(struct store *store, const struct job_options *options)
{
    if (options->local)
        TRY(gc_local(store, options->dry_run));
    return options->remote && store->remote ? gc_remote(store, options->dry_run) : 0;
}

int store_job_start(struct store *store, const struct job_options *options, uint64_t *ret_number)
{
    return job_start(store, options, options->kind == JOB_SCRUB ? scrub_store : gc_store,
                     ret_number);
}
