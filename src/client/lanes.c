// SPDX-License-Identifier: Apache-2.0
/* All lanes of the process, and fork. */
#include <stdio.h>

#include "client/lane.h"

/* While the process forks, no thread is in the middle of a change of a lane: a child finds each
 * lane in a consistent state. */
static struct {
    struct cairn_mutex lock;
    TAILQ_HEAD(, cairn_lane) list; /* guarded by lock */
    /* sums of closed lanes, and the last error of all; guarded by lock */
    struct lanes_stats ended;
    _Atomic unsigned generation; /* counts the forks from the first process to this one */
    pthread_once_t once;
} lanes = {.list = TAILQ_HEAD_INITIALIZER(lanes.list), .once = PTHREAD_ONCE_INIT};

/* The rank of a lane's lock allows one of them at a time; here all are taken, in list order,
 * without the rank check. */
static void before_fork(void)
{
    struct cairn_lane *lane;
    (void)pthread_mutex_lock(&lanes.lock.mutex);
    TAILQ_FOREACH(lane, &lanes.list, link)
    {
        (void)pthread_mutex_lock(&lane->lock.mutex);
    }
}

static void after_fork(void)
{
    struct cairn_lane *lane;
    TAILQ_FOREACH(lane, &lanes.list, link)
    {
        (void)pthread_mutex_unlock(&lane->lock.mutex);
    }
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
    /* fails without memory: then children cannot detect the fork */
    (void)pthread_atfork(before_fork, after_fork, after_fork_in_child);
}

static bool is_of_this_process(const struct cairn_lane *lane)
{
    return lane->generation == atomic_load_explicit(&lanes.generation, memory_order_relaxed);
}

int lane_check(const struct cairn_lane *lane)
{
    if (is_of_this_process(lane))
        return 0;
    cause_note("the lane belongs to the process that opened it, and this is a child of that");
    return -ECHILD;
}

int lane_call(const struct cairn_lane *lane)
{
    cause_clear();
    return lane_check(lane);
}

void lanes_enter(struct cairn_lane *lane)
{
    (void)pthread_once(&lanes.once, lanes_init);
    LOCK_SCOPE(&lanes.lock);
    lane->generation = atomic_load(&lanes.generation);
    TAILQ_INSERT_HEAD(&lanes.list, lane, link);
}

void lanes_leave(struct cairn_lane *lane)
{
    LOCK_SCOPE(&lanes.lock);
    TAILQ_REMOVE(&lanes.list, lane, link);
    lanes.ended.published += lane->stats.saves_published;
    lanes.ended.failed += lane->stats.saves_failed;
    lanes.ended.blocked_ns += atomic_load(&lane->blocked_ns);
}

void lane_unlock_last(struct cairn_lane *lane)
{
    bool is_last = lane->refs == 0;
    check(!is_last || TAILQ_EMPTY(&lane->saves) || !is_of_this_process(lane));
    mutex_unlock(&lane->lock);
    if (!is_last)
        return;
    /* in a child, destroying the conditions would wait for threads that do not exist */
    if (is_of_this_process(lane)) {
        mutex_done(&lane->lock);
        (void)pthread_cond_destroy(&lane->changed);
        (void)pthread_cond_destroy(&lane->copiers.work);
        (void)pthread_cond_destroy(&lane->devices.work);
        (void)pthread_cond_destroy(&lane->publisher.work);
        (void)pthread_cond_destroy(&lane->syncer.work);
        (void)pthread_cond_destroy(&lane->opener.work);
        (void)pthread_cond_destroy(&lane->opener.done);
    }
    free(lane);
}

void lanes_note_error(const char *cause)
{
    LOCK_SCOPE(&lanes.lock);
    (void)snprintf(lanes.ended.error, sizeof lanes.ended.error, "%s", cause);
}

void lane_add_pending_locked(const struct cairn_lane *lane, uint64_t *bytes, uint64_t *saves)
{
    check_held(&lane->lock);
    const struct cairn_save *save;
    TAILQ_FOREACH(save, &lane->saves, link)
    {
        *bytes += save->copying.unread;
        *saves += save->state == SAVE_OPEN;
    }
}

void lanes_stats(struct lanes_stats *ret)
{
    LOCK_SCOPE(&lanes.lock);
    struct cairn_lane *lane;
    *ret = lanes.ended;
    TAILQ_FOREACH(lane, &lanes.list, link)
    {
        if (!is_of_this_process(lane))
            continue;
        LOCK_SCOPE(&lane->lock);
        ret->published += lane->stats.saves_published;
        ret->failed += lane->stats.saves_failed;
        ret->blocked_ns += atomic_load(&lane->blocked_ns);
        lane_add_pending_locked(lane, &ret->pending_bytes, &ret->pending_saves);
    }
}
