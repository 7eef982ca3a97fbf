// SPDX-License-Identifier: Apache-2.0
/* The calls that open a lane, query it and end it. */
#include "client/lane.h"

#include <sched.h>
#include <stdio.h>

#include "client/fault.h"

#define MAX_BLOCK_MS (10 * 60 * 1000)
#define NICE_MAX 19

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
    TRY(take_struct(options, sizeof *options, given));
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
    lane->log_level = log_level_of(&lane->options);
    mutex_init(&lane->lock, LOCK_LANE);
    cond_init(&lane->changed);
    TAILQ_INIT(&lane->saves);
    TAILQ_INIT(&lane->untold.list);
    lane->refer.lock = &lane->lock;
    opener_init(&lane->opener, &lane->lock, &lane->refer);
    cond_init(&lane->copiers.work);
    TAILQ_INIT(&lane->copiers.now);
    TAILQ_INIT(&lane->copiers.lazy);
    TAILQ_INIT(&lane->copiers.filled);
    cond_init(&lane->devices.work);
    TAILQ_INIT(&lane->devices.now);
    TAILQ_INIT(&lane->devices.lazy);
    ring_init(&lane->devices.ring, lane->options.ring_bytes);
    cond_init(&lane->publisher.work);
    TAILQ_INIT(&lane->publisher.queue);
    cond_init(&lane->syncer.work);
    TAILQ_INIT(&lane->syncer.queue);
}

int cairn_lane_open(const struct cairn_lane_options *given, cairn_lane **ret)
{
    struct cairn_lane_options options;
    *ret = NULL;
    cause_clear();
    TRY(take_lane_options(&options, given));
    struct cairn_lane *lane = calloc(1, sizeof *lane);
    if (!lane)
        return lane_return(NULL, 0, -ENOMEM);
    lane->options = options;
    init_lane(lane);
    lanes_enter(lane);
    *ret = lane;
    return 0;
}

/* Threads are started by the first save: a process that only imports the library has none. */
int lane_start(struct cairn_lane *lane)
{
    fault_install();
    LOCK_SCOPE(&lane->lock);
    int r = copiers_start_locked(lane);
    return r < 0 ? r : publisher_start_locked(lane);
}

/* --- the end ---------------------------------------------------------------------------------- */

static void fail_uncommitted_locked(struct cairn_lane *lane)
{
    check_held(&lane->lock);
    struct cairn_save *save;
    TAILQ_FOREACH(save, &lane->saves, link)
    {
        if (save->publishing.step < STEP_COMMITTED)
            save_fail_locked(save, -ECANCELED,
                             "%.250s: the lane was closed before the save was committed",
                             save->path);
    }
}

static void stop_threads(struct cairn_lane *lane)
{
    mutex_lock(&lane->lock);
    fail_uncommitted_locked(lane);
    while (!TAILQ_EMPTY(&lane->saves))
        (void)wait_changed_locked(lane, -1);
    check(atomic_load(&lane->busy) == 0);
    lane->is_stopping = true;
    (void)pthread_cond_broadcast(&lane->copiers.work);
    (void)pthread_cond_broadcast(&lane->devices.work);
    (void)pthread_cond_broadcast(&lane->publisher.work);
    (void)pthread_cond_broadcast(&lane->syncer.work);
    mutex_unlock(&lane->lock);
    opener_stop(&lane->opener);
    for (unsigned i = 0; i < lane->copiers.count; i++)
        lane_thread_join(&lane->copiers.of[i].thread);
    lane_thread_join(&lane->publisher.thread);
    lane_thread_join(&lane->devices.thread);
    lane_thread_join(&lane->syncer.thread);
}

int cairn_lane_close(cairn_lane *lane)
{
    cause_clear();
    if (!lane)
        return 0;
    bool is_child = lane_check(lane) < 0;
    if (!is_child)
        stop_threads(lane);
    devices_close(lane, is_child);
    for (size_t i = 0; i < ARRAY_LEN(lane->copiers.of); i++)
        free(lane->copiers.of[i].own);
    refer_done(&lane->refer);
    lanes_leave(lane);
    mutex_lock(&lane->lock);
    int r = is_child || TAILQ_EMPTY(&lane->untold.list) ? 0 : -EIO;
    for (struct cairn_save *save; (save = TAILQ_LAST(&lane->untold.list, untold_list));)
        /* the oldest is reported last, so its cause is the one that remains */
        (void)save_report_locked(save);
    lane->refs--;
    lane_unlock_last(lane);
    if (is_child)
        cause_clear();
    return r;
}

/* --- queries ---------------------------------------------------------------------------------- */

/* Reports saves in the order of their failures. */
int cairn_lane_take_error(cairn_lane *lane, char *text, size_t size)
{
    if (text && size > 0)
        text[0] = '\0';
    TRY(lane_call(lane));
    LOCK_SCOPE(&lane->lock);
    struct cairn_save *save = TAILQ_FIRST(&lane->untold.list);
    if (!save)
        return 0;
    if (text && size > 0)
        (void)snprintf(text, size, "%s", save->cause);
    return save_report_locked(save);
}

int cairn_lane_stats(cairn_lane *lane, struct cairn_lane_stats *ret)
{
    TRY(lane_call(lane));
    LOCK_SCOPE(&lane->lock);
    struct cairn_lane_stats stats = lane->stats;
    stats.size = sizeof stats;
    stats.blocked_ns = atomic_load(&lane->blocked_ns);
    lane_add_pending_locked(lane, &stats.pending_bytes, &stats.pending_saves);
    return copy_struct(ret, &stats, sizeof stats);
}

int cairn_lane_prepare(cairn_lane *lane, uint64_t bytes)
{
    int r = lane_call(lane);
    return lane_return(NULL, 0, r < 0 ? r : devices_prepare(lane, bytes));
}
