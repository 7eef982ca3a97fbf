// SPDX-License-Identifier: Apache-2.0
/* A lane: its threads, the fence, the end, and what fork makes of it. */
#include "client/client.h"

#include <sched.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/pool.h"
#include "client/fault.h"

#define MAX_BLOCK_MS (10 * 60 * 1000)
#define NICE_MAX 19
#define PAGE 4096u

/* --- fork ------------------------------------------------------------------------------------- */

/* All lanes of the process. While it forks, no thread is in the middle of a change of one: a child
 * finds each as it was between two. */
static struct {
    struct cairn_mutex lock;
    struct cairn_lane *first; /* guarded by lock */
    /* of those that are closed, and the last error of all; guarded by lock */
    struct lanes_stats ended;
    _Atomic unsigned generation; /* counts forks that lead to this process */
    pthread_once_t once;
} lanes = {.once = PTHREAD_ONCE_INIT};

/* The rank of a lane's lock allows one of them at a time; here they are all taken, in the order of
 * the list, below them its own. */
static void before_fork(void)
{
    (void)pthread_mutex_lock(&lanes.lock.mutex);
    for (struct cairn_lane *lane = lanes.first; lane; lane = lane->next)
        (void)pthread_mutex_lock(&lane->lock.mutex);
}

static void after_fork(void)
{
    for (struct cairn_lane *lane = lanes.first; lane; lane = lane->next)
        (void)pthread_mutex_unlock(&lane->lock.mutex);
    (void)pthread_mutex_unlock(&lanes.lock.mutex);
}

static void after_fork_in_child(void)
{
    atomic_fetch_add(&lanes.generation, 1);
    lanes.ended = (struct lanes_stats){0};
    after_fork();
}

static void lanes_init(void)
{
    mutex_init(&lanes.lock, LOCK_LANES);
    check_means("a bug of libcairn ends this program; files that have their names are whole, saves "
                "under way are not there");
    /* no memory: then children are not told */
    (void)pthread_atfork(before_fork, after_fork, after_fork_in_child);
}

int lane_check(const struct cairn_lane *lane)
{
    if (atomic_load_explicit(&lanes.generation, memory_order_relaxed) == lane->generation)
        return 0;
    cause_note("the lane belongs to the process that opened it, and this is a child of that");
    return -ECHILD;
}

static void enter_lanes(struct cairn_lane *lane)
{
    LOCK_SCOPE(&lanes.lock);
    lane->next = lanes.first;
    lanes.first = lane;
}

static void leave_lanes(struct cairn_lane *lane)
{
    LOCK_SCOPE(&lanes.lock);
    struct cairn_lane **link = &lanes.first;
    while (*link != lane)
        link = &(*link)->next;
    *link = lane->next;
    lanes.ended.published += lane->stats.saves_published;
    lanes.ended.failed += lane->stats.saves_failed;
    lanes.ended.blocked_ns += atomic_load(&lane->blocked_ns);
}

/* --- opening ---------------------------------------------------------------------------------- */

static uint32_t copy_threads_by_cores(void)
{
    cpu_set_t set;
    int cores = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    return cores < 8 ? 1 : cores < 16 ? (uint32_t)cores / 4 : 4;
}

static int take_lane_options(struct cairn_lane_options *options,
                             const struct cairn_lane_options *given)
{
    int r = take_struct(options, sizeof *options, given);
    if (r < 0)
        return r;
    if (options->nice < 0 || options->nice > NICE_MAX || options->copy_threads > COPY_THREADS_MAX ||
        options->flags & ~(uint32_t)CAIRN_LANE_TELLS) {
        cause_note("nice is 0 to %d, copy_threads 0 to %d, flags 0 or CAIRN_LANE_TELLS", NICE_MAX,
                   COPY_THREADS_MAX);
        return -EINVAL;
    }
    if (options->copy_threads == 0)
        options->copy_threads = copy_threads_by_cores();
    if (options->max_block_ms == 0)
        options->max_block_ms = MAX_BLOCK_MS;
    return 0;
}

static void init_lane(struct cairn_lane *lane)
{
    lane->refs = 1;
    lane->generation = atomic_load(&lanes.generation);
    lane->saves_last = &lane->saves;
    lane->opening.last = &lane->opening.first;
    lane->now.last = &lane->now.first;
    lane->lazy.last = &lane->lazy.first;
    lane->device.now.last = &lane->device.now.first;
    lane->device.lazy.last = &lane->device.lazy.first;
    lane->device.filled_last = &lane->device.filled;
    lane->ring.piece = ring_piece_for(lane->options.ring_bytes);
    lane->log_level = log_level_of(&lane->options);
    mutex_init(&lane->lock, LOCK_LANE);
    cond_init(&lane->work);
    cond_init(&lane->publish);
    cond_init(&lane->changed);
    cond_init(&lane->device.work);
    cond_init(&lane->sync_work);
    cond_init(&lane->opening.work);
    cond_init(&lane->opening.done);
}

int cairn_lane_open(const struct cairn_lane_options *given, cairn_lane **ret)
{
    struct cairn_lane_options options;
    *ret = NULL;
    cause_clear();
    (void)pthread_once(&lanes.once, lanes_init);
    int r = take_lane_options(&options, given);
    if (r < 0)
        return lane_return(NULL, 0, r);
    struct cairn_lane *lane = calloc(1, sizeof *lane);
    if (!lane)
        return lane_return(NULL, 0, -ENOMEM);
    lane->options = options;
    init_lane(lane);
    enter_lanes(lane);
    *ret = lane;
    return 0;
}

/* The first is that of saves that a caller waits for. */
static int start_copier(struct cairn_lane *lane)
{
    struct copier *copier = &lane->copiers[lane->copier_count];
    copier->lane = lane;
    if (!copier->own)
        copier->own = aligned_alloc(PAGE, PIECE_BYTES);
    if (!copier->own)
        return -ENOMEM;
    int r = thread_start(&copier->thread, "cairn-copy",
                         lane->copier_count ? copier_main : copier_now_main, copier);
    lane->copier_count += r == 0;
    return r;
}

/* Threads come with the first save: a process that only imports the library has none. */
int lane_start(struct cairn_lane *lane)
{
    fault_install();
    LOCK_SCOPE(&lane->lock);
    int r = 0;
    while (lane->copier_count < lane->options.copy_threads + 1 && r == 0)
        r = start_copier(lane);
    if (r == 0 && !lane->has_publisher) {
        r = thread_start(&lane->publisher, "cairn-publish", publisher_main, lane);
        lane->has_publisher = r == 0;
    }
    if (r < 0)
        cause_note("no thread can be started: %s", strerror(-r));
    return r;
}

/* --- the end ---------------------------------------------------------------------------------- */

void lane_unlock_last(struct cairn_lane *lane)
{
    bool is_last = lane->refs == 0;
    mutex_unlock(&lane->lock);
    /* in a child the conditions wait for threads that it lacks */
    if (is_last && lane->generation == atomic_load(&lanes.generation)) {
        mutex_done(&lane->lock);
        (void)pthread_cond_destroy(&lane->work);
        (void)pthread_cond_destroy(&lane->publish);
        (void)pthread_cond_destroy(&lane->changed);
        (void)pthread_cond_destroy(&lane->device.work);
        (void)pthread_cond_destroy(&lane->sync_work);
        (void)pthread_cond_destroy(&lane->opening.work);
        (void)pthread_cond_destroy(&lane->opening.done);
    }
    if (is_last)
        free(lane);
}

static void fail_uncommitted_locked(struct cairn_lane *lane)
{
    check_held(&lane->lock);
    char cause[CAUSE_MAX];
    for (struct cairn_save *save = lane->saves; save; save = save->next) {
        if (save->is_committed || save->state != SAVE_OPEN)
            continue;
        (void)snprintf(cause, sizeof cause,
                       "%.250s: the lane was closed before the save was committed",
                       save->draft.path);
        save_fail_locked(save, -ECANCELED, cause);
    }
}

static void stop_threads(struct cairn_lane *lane)
{
    mutex_lock(&lane->lock);
    fail_uncommitted_locked(lane);
    while (lane->saves)
        (void)wait_changed_locked(lane, -1);
    lane->stopping = true;
    (void)pthread_cond_broadcast(&lane->work);
    (void)pthread_cond_broadcast(&lane->publish);
    (void)pthread_cond_broadcast(&lane->device.work);
    (void)pthread_cond_broadcast(&lane->sync_work);
    (void)pthread_cond_broadcast(&lane->opening.work);
    mutex_unlock(&lane->lock);
    for (unsigned i = 0; i < lane->copier_count; i++)
        (void)pthread_join(lane->copiers[i].thread, NULL);
    for (unsigned i = 0; i < lane->opening.thread_count; i++)
        (void)pthread_join(lane->opening.threads[i], NULL);
    if (lane->has_publisher)
        (void)pthread_join(lane->publisher, NULL);
    if (lane->device.has_thread)
        (void)pthread_join(lane->device.thread, NULL);
    if (lane->has_syncer)
        (void)pthread_join(lane->syncer, NULL);
}

/* In the order of their failures; what did not fit is told with the last. */
static int take_untold_locked(struct cairn_lane *lane, char *text, size_t size)
{
    check_held(&lane->lock);
    if (lane->unreported.count == 0)
        return 0;
    struct cairn_save *save = lane->unreported.of[0];
    if (text && size > 0)
        (void)snprintf(text, size, "%s", save->cause);
    return save_report_locked(save);
}

int cairn_lane_close(cairn_lane *lane)
{
    cause_clear();
    if (!lane)
        return 0;
    bool is_child = lane_check(lane) < 0;
    if (!is_child)
        stop_threads(lane);
    lane_close_devices(lane, is_child);
    for (size_t i = 0; i < ARRAY_LEN(lane->copiers); i++)
        free(lane->copiers[i].own);
    refer_done(&lane->refer);
    leave_lanes(lane);
    mutex_lock(&lane->lock);
    int r = is_child || lane->unreported.count == 0 ? 0 : -EIO;
    if (r < 0)
        cause_note("%s", lane->unreported.of[0]->cause);
    while (lane->unreported.count > 0)
        save_unref_locked(lane->unreported.of[--lane->unreported.count]);
    lane->refs--;
    lane_unlock_last(lane);
    if (is_child)
        cause_clear();
    return r;
}

/* --- what is asked ---------------------------------------------------------------------------- */

int cairn_lane_take_error(cairn_lane *lane, char *text, size_t size)
{
    cause_clear();
    if (text && size > 0)
        text[0] = '\0';
    int r = lane_check(lane);
    if (r < 0)
        return lane_return(NULL, 0, r);
    LOCK_SCOPE(&lane->lock);
    return take_untold_locked(lane, text, size);
}

static void add_pending_locked(const struct cairn_lane *lane, uint64_t *bytes, uint64_t *saves)
{
    check_held(&lane->lock);
    for (const struct cairn_save *save = lane->saves; save; save = save->next) {
        *bytes += save->unread;
        *saves += save->state == SAVE_OPEN;
    }
}

void lanes_note_error(const char *cause)
{
    LOCK_SCOPE(&lanes.lock);
    (void)snprintf(lanes.ended.error, sizeof lanes.ended.error, "%s", cause);
}

void lanes_stats(struct lanes_stats *ret)
{
    LOCK_SCOPE(&lanes.lock);
    *ret = lanes.ended;
    for (struct cairn_lane *lane = lanes.first; lane; lane = lane->next) {
        if (lane->generation != atomic_load(&lanes.generation))
            continue;
        LOCK_SCOPE(&lane->lock);
        ret->published += lane->stats.saves_published;
        ret->failed += lane->stats.saves_failed;
        ret->blocked_ns += atomic_load(&lane->blocked_ns);
        add_pending_locked(lane, &ret->pending_bytes, &ret->pending_saves);
    }
}

int cairn_lane_stats(cairn_lane *lane, struct cairn_lane_stats *ret)
{
    cause_clear();
    int r = lane_check(lane);
    if (r < 0)
        return lane_return(NULL, 0, r);
    LOCK_SCOPE(&lane->lock);
    struct cairn_lane_stats stats = lane->stats;
    stats.size = sizeof stats;
    stats.blocked_ns = atomic_load(&lane->blocked_ns);
    add_pending_locked(lane, &stats.pending_bytes, &stats.pending_saves);
    return lane_return(NULL, 0, copy_struct(ret, &stats, sizeof stats));
}

int cairn_lane_prepare(cairn_lane *lane, uint64_t bytes)
{
    cause_clear();
    int r = lane_check(lane);
    return lane_return(NULL, 0, r < 0 ? r : lane_prepare(lane, bytes));
}
