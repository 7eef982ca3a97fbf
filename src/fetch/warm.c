// SPDX-License-Identifier: Apache-2.0
/* Whole files and directories that are fetched onto NVMe, or evicted from it, on request.
 *
 * A job has a thread of its own that walks the file or directory: first to count, then to pass
 * bounded portions to the fetching threads (or, for an eviction, to the writeback thread). */
#include <sys/stat.h>

#include "base/clock.h"
#include "base/vector.h"
#include "dense/dense.h"
#include "fetch/pull.h"
#include "view/remote.h"

#define PORTION 4096u /* chunks looked up at once */
#define EVICT_PORTION 65536u
#define PLAN_MAX 32u /* groups that wait */
#define BUSY_TRIES 50
#define BUSY_NS (5ll * 1000000000)
#define VIEW_NS (5ll * 1000000000)

DEFINE_VECTOR(wanted_list, struct pull_wanted);

struct warm_job {
    uint64_t id;
    struct pull *pull;
    uint64_t root;
    bool evicts;
    pthread_t thread;
    struct pull_plan plan;
    unsigned under_way; /* groups that were taken */
    bool cancelled;
    struct warm_status status;

    /* Used only by the job's thread. */
    struct pull_wanted *wanted;
    struct chunk_name *names;
    size_t count;
    bool counting;
    struct wanted_list others; /* chunks that readers or other jobs are fetching */
    VECTOR(uint64_t) dirs;     /* directories that are still to be walked */
};

static bool is_over_locked(const struct warm_job *job)
{
    check_held(&job->pull->locked.lock);
    return job->cancelled || job->pull->locked.stopping;
}

static bool is_cancelled(struct warm_job *job)
{
    LOCK_SCOPE(&job->pull->locked.lock);
    return is_over_locked(job);
}

/* --- fetching --------------------------------------------------------------------------------- */

/* Records the chunks of a group that readers or other jobs fetch: planning leaves these out. */
static void note_others_locked(struct warm_job *job, const struct pull_group *group)
{
    check_held(&job->pull->locked.lock);
    for (uint32_t i = 0; i < group->count; i++)
        if (pull_find_locked(job->pull, &group->entries[i].name))
            vector_add(&job->others,
                       (struct pull_wanted){.entry = group->entries[i], .first = group->first});
}

/* Plans the chunks; waits while the plan is full. */
static void plan_chunks(struct warm_job *job, struct pull_wanted *wanted, size_t count)
{
    struct pull *pull = job->pull;
    struct pull_group_list groups;
    struct pull_group *group;
    pull_make_groups(wanted, count, false, &groups);
    mutex_lock(&pull->locked.lock);
    while ((group = TAILQ_FIRST(&groups))) {
        TAILQ_REMOVE(&groups, group, link);
        while (job->plan.count >= PLAN_MAX && !is_over_locked(job))
            (void)mutex_wait(&pull->locked.lock, &pull->changed, -1);
        if (is_over_locked(job)) {
            pull_group_free(group);
        } else {
            note_others_locked(job, group);
            pull_plan_locked(pull, &job->plan, group);
        }
        (void)pthread_cond_broadcast(&pull->changed);
    }
    mutex_unlock(&pull->locked.lock);
}

/* Waits for the groups of the job that are planned or under way. */
static void await_groups(struct warm_job *job)
{
    struct pull *pull = job->pull;
    LOCK_SCOPE(&pull->locked.lock);
    while (job->plan.count > 0 || job->under_way > 0) {
        if (is_over_locked(job))
            pull_unplan_locked(pull, &job->plan);
        if (job->plan.count > 0 || job->under_way > 0)
            (void)mutex_wait(&pull->locked.lock, &pull->changed, -1);
    }
}

/* Returns when no thread is fetching or promoting the chunk. False: the job ends sooner. */
static bool await_other(struct warm_job *job, const struct chunk_name *name)
{
    struct pull *pull = job->pull;
    LOCK_SCOPE(&pull->locked.lock);
    while (pull_is_coming_locked(pull, name) && !is_over_locked(job))
        (void)mutex_wait(&pull->locked.lock, &pull->changed, -1);
    return !is_over_locked(job);
}

/* Drops a chunk that was fetched for a reader but not promoted, for lack of room: planning would
 * leave it out again. */
static void forget_unpromoted(struct pull *pull, const struct chunk_name *name)
{
    LOCK_SCOPE(&pull->locked.lock);
    struct pull_chunk *chunk = pull_find_locked(pull, name);
    if (chunk && !pull_is_coming_locked(pull, name))
        pull_forget_locked(pull, chunk);
}

/* Waits for the chunks that others were fetching, and plans those that are not on NVMe afterwards:
 * their fetch failed or was given up, or they found no room in the short time that a reader's
 * chunks wait for it. The job's own groups come first: the second occurrence of a chunk is among
 * `others`. */
static void settle_others(struct warm_job *job)
{
    struct pull *pull = job->pull;
    struct wanted_list others = job->others;
    size_t missing = 0;
    job->others = (struct wanted_list){0};
    await_groups(job);
    for (size_t i = 0; i < others.count && await_other(job, &others.at[i].entry.name); i++) {
        const struct chunk_entry *entry = &others.at[i].entry;
        if (pull_is_local(pull->store, &entry->name)) {
            LOCK_SCOPE(&pull->locked.lock);
            job->status.done_bytes += entry->stored_len;
        } else {
            forget_unpromoted(pull, &entry->name);
            others.at[missing++] = others.at[i];
        }
    }
    plan_chunks(job, others.at, missing);
    vector_free(&others);
}

static void flush_wanted(struct warm_job *job)
{
    plan_chunks(job, job->wanted, job->count);
    job->count = 0;
    if (job->others.count >= PORTION)
        settle_others(job);
}

/* Returns when everything that was planned is on NVMe, or failed. */
static void await_fetched(struct warm_job *job)
{
    await_groups(job);
    while (job->others.count > 0)
        settle_others(job);
    await_groups(job);
}

/* --- evicting --------------------------------------------------------------------------------- */

/* Waits until no upload and no writeback uses the pack: they release it soon. False: it is still in
 * use at `until`, or the job was cancelled. */
static bool await_free(struct warm_job *job, uint64_t pack, int64_t until)
{
    struct store *store = job->pull->store;
    uint64_t seen = event_count(horizon_progress(store->commit.horizon));
    while (!packs_is_free(store->commit.packs, pack))
        if (is_cancelled(job) || !event_wait(horizon_progress(store->commit.horizon), &seen, until))
            return false;
    return !is_cancelled(job);
}

static int flush_names(struct warm_job *job)
{
    struct evict_request request = {.names = job->names, .count = job->count};
    int r = job->count ? evict_now(job->pull->store, &request) : 0;
    int64_t until = clock_monotonic_ns() + BUSY_NS;
    for (int try = 0; r == 0 && request.busy_pack && try < BUSY_TRIES &&
                      await_free(job, request.busy_pack, until);
         try++) {
        request.done = false;
        r = evict_now(job->pull->store, &request);
    }
    job->count = 0;
    LOCK_SCOPE(&job->pull->locked.lock);
    struct warm_status *s = &job->status;
    s->done_bytes += request.dropped_bytes + request.pinned_bytes + request.unpublished_bytes +
                     request.busy_bytes;
    s->dropped_bytes += request.dropped_bytes;
    s->pinned_bytes += request.pinned_bytes;
    s->unpublished_bytes += request.unpublished_bytes;
    s->busy_bytes += request.busy_bytes;
    return r;
}

/* --- walking ---------------------------------------------------------------------------------- */

static void count_bytes(struct warm_job *job, uint64_t bytes, bool lost)
{
    LOCK_SCOPE(&job->pull->locked.lock);
    job->status.total_bytes += bytes;
    job->status.failed_bytes += lost ? bytes : 0;
}

static int add_chunk(const struct view_extent *part, void *arg)
{
    struct warm_job *job = arg;
    struct store *store = job->pull->store;
    struct chunk_entry entry;
    uint64_t refs;
    if (part->extent.kind != EXTENT_CHUNK)
        return 0;
    const struct chunk_name *name = &part->extent.chunk;
    if (job->evicts) {
        if (view_chunk(store->local.view, name, &entry, &refs) < 0 || entry.pack == 0)
            return 0;
    } else if (pull_is_local(store, name)) {
        return 0;
    } else if (dense_find_place(store, name, &entry) < 0) {
        if (job->counting)
            count_bytes(job, part->extent.length, true);
        return 0;
    }
    if (job->counting) {
        count_bytes(job, entry.stored_len, false);
        return is_cancelled(job) ? -ECANCELED : 0;
    }
    check(job->count < (job->evicts ? EVICT_PORTION : PORTION));
    if (job->evicts)
        job->names[job->count++] = *name;
    else
        job->wanted[job->count++] =
            (struct pull_wanted){.entry = entry, .first = part->extent.offset};
    return job->count == (job->evicts ? EVICT_PORTION : PORTION) ? 1 : 0;
}

static int flush_portion(struct warm_job *job)
{
    if (job->evicts)
        return flush_names(job);
    flush_wanted(job);
    return 0;
}

/* A file may have more chunks than a portion: the walk continues where the portion ended. */
struct file_walk {
    struct warm_job *job;
    uint64_t at;
};

static int walk_part(const struct view_extent *part, void *arg)
{
    struct file_walk *walk = arg;
    walk->at = part->extent.offset + part->extent.length;
    return add_chunk(part, walk->job);
}

/* Staged bytes, on their way to NVMe, cannot be evicted, and the remote lacks them. */
static void count_staged(struct warm_job *job, uint64_t ino)
{
    struct stage_file_state state;
    if (!job->counting || !stage_file_state(job->pull->store->local.stage, ino, &state) ||
        state.dirty_bytes == 0)
        return;
    LOCK_SCOPE(&job->pull->locked.lock);
    struct warm_status *s = &job->status;
    s->total_bytes += state.dirty_bytes;
    s->done_bytes += state.dirty_bytes;
    s->unpublished_bytes += state.dirty_bytes;
}

/* This store has no content of the file. */
static void count_other_nodes(struct warm_job *job, uint64_t ino)
{
    struct view_inode inode;
    if (!job->counting || !job->pull->store->local.sb.node ||
        view_inode(job->pull->store->local.view, ino, &inode) < 0 || !inode.is_elsewhere)
        return;
    LOCK_SCOPE(&job->pull->locked.lock);
    job->status.other_bytes += inode.attrs.size;
}

static int walk_file(struct warm_job *job, uint64_t ino)
{
    struct file_walk walk = {.job = job};
    if (job->evicts)
        count_staged(job, ino);
    else
        count_other_nodes(job, ino);
    uint64_t from;
    do {
        from = walk.at;
        int r = view_extents(job->pull->store->local.view, ino, from, INT64_MAX - from, walk_part,
                             &walk);
        if (r < 0)
            return r == -ENOENT ? 0 : r;
        bool is_full = job->count == (job->evicts ? EVICT_PORTION : PORTION);
        if (is_full && (r = flush_portion(job)) < 0)
            return r;
        if (!is_full)
            break;
    } while (walk.at > from);
    return is_cancelled(job) ? -ECANCELED : 0;
}

static int walk_inode(struct warm_job *job, uint64_t ino, mode_t type)
{
    if (S_ISREG(type))
        return walk_file(job, ino);
    if (!S_ISDIR(type))
        return 0;
    vector_add(&job->dirs, ino);
    return 0;
}

static int walk_entry(const struct view_entry *entry, const char *name, size_t name_len, void *arg)
{
    (void)name;
    (void)name_len;
    return walk_inode(arg, entry->ino, entry->type);
}

static int walk_all(struct warm_job *job)
{
    struct view *view = job->pull->store->local.view;
    struct view_inode inode;
    int r = view_inode(view, job->root, &inode);
    /* created after the view's state: no part of it can be in the remote only, or be evicted */
    if (r == -ENOENT) {
        if (job->evicts)
            count_staged(job, job->root);
        return 0;
    }
    if (r == 0)
        r = walk_inode(job, job->root, inode.attrs.mode);
    while (r == 0 && job->dirs.count > 0)
        r = view_readdir(view, job->dirs.at[--job->dirs.count], 0, walk_entry, job);
    job->dirs.count = 0;
    return r;
}

/* --- the job ---------------------------------------------------------------------------------- */

/* The walk must see everything that is known to be on NVMe. */
static void await_view(struct warm_job *job)
{
    struct store *store = job->pull->store;
    int64_t until = clock_monotonic_ns() + VIEW_NS;
    uint64_t seen = event_count(horizon_progress(store->commit.horizon));
    while (lag_exists(store->commit.lag) && !is_cancelled(job) &&
           event_wait(horizon_progress(store->commit.horizon), &seen, until))
        ;
}

static void *job_main(void *arg)
{
    struct warm_job *job = arg;
    await_view(job);
    job->counting = true;
    int r = walk_all(job);
    job->counting = false;
    if (job->evicts)
        job->names = xcalloc(EVICT_PORTION, sizeof *job->names);
    else
        job->wanted = xcalloc(PORTION, sizeof *job->wanted);
    if (r == 0)
        r = walk_all(job);
    if (r == 0)
        r = flush_portion(job);
    if (!job->evicts) {
        await_fetched(job);
        promote_flush(job->pull->store);
    }
    free(job->names);
    free(job->wanted);
    vector_free(&job->others);
    vector_free(&job->dirs);
    LOCK_SCOPE(&job->pull->locked.lock);
    job->status.ended = true;
    job->status.error = r;
    return NULL;
}

struct pull_group *warm_take_locked(struct pull *pull, struct warm_job **ret_job)
{
    check_held(&pull->locked.lock);
    for (unsigned i = 0; i < PULL_JOBS; i++) {
        struct warm_job *job = pull->locked.jobs[i];
        struct pull_group *group = job ? TAILQ_FIRST(&job->plan.groups) : NULL;
        if (!group || !pull_take_locked(pull, group, false))
            continue;
        job->under_way++;
        *ret_job = job;
        return group;
    }
    return NULL;
}

void warm_group_done_locked(struct pull *pull, struct warm_job *job, uint64_t bytes, int error,
                            uint64_t not_promoted)
{
    check_held(&pull->locked.lock);
    job->under_way--;
    job->status.done_bytes += bytes;
    if (error < 0)
        job->status.failed_bytes += bytes;
    else
        job->status.not_kept_bytes += not_promoted;
    (void)pthread_cond_broadcast(&pull->changed);
}

/* --- from outside ----------------------------------------------------------------------------- */

static void warm_free(struct warm_job *job)
{
    (void)pthread_join(job->thread, NULL);
    free(job);
}

/* Returns a free slot for a job; a job that has ended is replaced. */
static int free_slot_locked(struct pull *pull, struct warm_job **ret_old)
{
    check_held(&pull->locked.lock);
    int found = -EBUSY;
    *ret_old = NULL;
    for (int i = 0; i < (int)PULL_JOBS && found < 0; i++)
        if (!pull->locked.jobs[i])
            found = i;
    for (int i = 0; i < (int)PULL_JOBS && found < 0; i++)
        if (pull->locked.jobs[i]->status.ended) {
            *ret_old = pull->locked.jobs[i];
            pull->locked.jobs[i] = NULL;
            found = i;
        }
    return found;
}

int fetch_warm_start(struct store *store, uint64_t ino, bool evicts, uint64_t *ret_job)
{
    struct pull *pull = pull_of(store);
    struct warm_job *old;
    if (!pull)
        return -ENOTCONN;
    struct warm_job *job = xcalloc(1, sizeof *job);
    *job = (struct warm_job){.pull = pull, .root = ino, .evicts = evicts};
    TAILQ_INIT(&job->plan.groups);
    mutex_lock(&pull->locked.lock);
    int slot = pull->locked.stopping ? -ESHUTDOWN : free_slot_locked(pull, &old);
    int r = slot < 0
                ? slot
                : thread_start(&job->thread, evicts ? "cairn-evict" : "cairn-warm", job_main, job);
    if (r == 0) {
        *ret_job = job->id = ++pull->locked.next_job;
        pull->locked.jobs[slot] = job;
    }
    mutex_unlock(&pull->locked.lock);
    if (slot >= 0 && old)
        warm_free(old);
    if (r < 0)
        free(job);
    return r;
}

/* Wakes a cancelled job, whatever it waits for. */
static void wake_jobs_locked(struct pull *pull)
{
    check_held(&pull->locked.lock);
    (void)pthread_cond_broadcast(&pull->changed);
    event_signal(horizon_progress(pull->store->commit.horizon));
}

int fetch_warm_status(struct store *store, uint64_t id, bool cancel, struct warm_status *ret)
{
    struct pull *pull = pull_of(store);
    if (!pull)
        return -ENOENT;
    LOCK_SCOPE(&pull->locked.lock);
    for (unsigned i = 0; i < PULL_JOBS; i++) {
        struct warm_job *job = pull->locked.jobs[i];
        if (!job || job->id != id)
            continue;
        job->cancelled = job->cancelled || cancel;
        *ret = job->status;
        if (cancel)
            wake_jobs_locked(pull);
        return 0;
    }
    return -ENOENT;
}

void warm_stop(struct pull *pull)
{
    LOCK_SCOPE(&pull->locked.lock);
    for (unsigned i = 0; i < PULL_JOBS; i++)
        if (pull->locked.jobs[i])
            pull->locked.jobs[i]->cancelled = true;
    wake_jobs_locked(pull);
}

void warm_end(struct pull *pull)
{
    for (unsigned i = 0; i < PULL_JOBS; i++) {
        mutex_lock(&pull->locked.lock);
        struct warm_job *job = pull->locked.jobs[i];
        pull->locked.jobs[i] = NULL;
        mutex_unlock(&pull->locked.lock);
        if (job)
            warm_free(job);
    }
}
