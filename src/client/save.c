// SPDX-License-Identifier: Apache-2.0
/* The state of saves: how they end, which wait for which, and the calls that ask and wait. */
#include "client/client.h"

#include <stdio.h>

#include "base/clock.h"

int64_t deadline_of(int64_t timeout_ms)
{
    return timeout_ms < 0 ? -1 : clock_monotonic_ns() + timeout_ms * 1000000;
}

bool wait_locked(struct cairn_lane *lane, pthread_cond_t *cond, int64_t deadline)
{
    check_held(&lane->lock);
    int64_t left = deadline < 0 ? -1 : deadline - clock_monotonic_ns();
    if (deadline >= 0 && left <= 0)
        return false;
    (void)mutex_wait(&lane->lock, cond, deadline < 0 ? -1 : left / 1000000 + 1);
    return true;
}

bool wait_changed_locked(struct cairn_lane *lane, int64_t deadline)
{
    check_held(&lane->lock);
    return wait_locked(lane, &lane->changed, deadline);
}

/* --- references ------------------------------------------------------------------------------- */

static void batch_free_job(struct job *job)
{
    free(job->crcs);
    free(job->samples);
    free(job->prints);
    free(job->key);
}

void batch_free(struct batch *batch)
{
    if (!batch)
        return;
    for (size_t i = 0; i < batch->job_count; i++)
        batch_free_job(&batch->jobs[i]);
    for (size_t i = 0; i < batch->segment_count; i++)
        free(batch->segments[i].data);
    free(batch->jobs);
    free(batch->segments);
    free(batch);
}

void save_unref_locked(struct cairn_save *save)
{
    check_held(&save->lane->lock);
    if (--save->refs > 0)
        return;
    for (struct batch *next; save->batches; save->batches = next) {
        next = save->batches->next;
        batch_free(save->batches);
    }
    save->lane->refs--;
    draft_done(&save->draft);
    free(save->zip.entries);
    free(save->pattern);
    refer_end_locked(save);
    free(save->after);
    free(save);
}

static void drop_predecessors_locked(struct cairn_save *save)
{
    check_held(&save->lane->lock);
    if (save->before)
        save_unref_locked(save->before);
    save->before = NULL;
    for (size_t i = 0; i < save->after_count; i++)
        if (save->after[i])
            save_unref_locked(save->after[i]);
    save->after_count = 0;
}

/* --- the end of a save ------------------------------------------------------------------------ */

static void drop_jobs_locked(struct queue *queue, struct cairn_save *save)
{
    check_held(&save->lane->lock);
    struct job **link = &queue->first;
    while (*link) {
        struct job *job = *link;
        if (job->save != save) {
            link = &job->next;
            continue;
        }
        uint64_t left = job->length - job->given;
        save->unread -= left;
        save->now_unread -= job->is_now ? left : 0;
        atomic_fetch_sub(&save->lane->busy, left);
        if (job->slot != ON_HOST)
            save->on_device[job->slot].waiting -= left;
        *link = job->next;
    }
    queue->last = link;
}

/* Kept until a caller is told. Of more than fit the newest are counted only. */
static void note_untold_locked(struct cairn_save *save)
{
    check_held(&save->lane->lock);
    struct cairn_lane *lane = save->lane;
    if (save->is_reported)
        return;
    if (lane->unreported.count == UNREPORTED_MAX) {
        lane->unreported.lost++;
        return;
    }
    save->refs++;
    lane->unreported.of[lane->unreported.count++] = save;
}

static void fail_one_locked(struct cairn_save *save, int error, const char *cause)
{
    check_held(&save->lane->lock);
    struct cairn_lane *lane = save->lane;
    if (save->state != SAVE_OPEN)
        return;
    save->state = SAVE_FAILED;
    save->error = error;
    (void)snprintf(save->cause, sizeof save->cause, "%s", cause[0] ? cause : strerror(-error));
    drop_jobs_locked(&lane->now, save);
    drop_jobs_locked(&lane->lazy, save);
    drop_jobs_locked(&lane->device.now, save);
    drop_jobs_locked(&lane->device.lazy, save);
    look_drop_locked(save);
    drop_predecessors_locked(save);
    lane->stats.saves_failed++;
    note_untold_locked(save);
}

static struct cairn_save *failed_predecessor_locked(const struct cairn_save *save)
{
    check_held(&save->lane->lock);
    for (size_t i = 0; i < save->after_count; i++)
        if (save->after[i] && save->after[i]->state == SAVE_FAILED)
            return save->after[i];
    return NULL;
}

static void drop_ended_saves_locked(struct cairn_save *save)
{
    check_held(&save->lane->lock);
    if (save->before && save->before->state != SAVE_OPEN) {
        save_unref_locked(save->before);
        save->before = NULL;
    }
    for (size_t i = 0; i < save->after_count; i++) {
        if (!save->after[i] || save->after[i]->state != SAVE_PUBLISHED)
            continue;
        save_unref_locked(save->after[i]);
        save->after[i] = NULL;
    }
}

/* Predecessors were begun earlier, so they stand before their successors in the list: one pass
 * reaches all. */
void saves_settle_locked(struct cairn_lane *lane)
{
    check_held(&lane->lock);
    char cause[CAUSE_MAX];
    for (struct cairn_save *save = lane->saves; save; save = save->next) {
        const struct cairn_save *failed =
            save->state == SAVE_OPEN ? failed_predecessor_locked(save) : NULL;
        if (failed) {
            (void)snprintf(cause, sizeof cause, "%.150s comes after a save that failed: %.200s",
                           save->draft.path, failed->cause);
            fail_one_locked(save, -ECANCELED, cause);
        } else if (save->state == SAVE_OPEN) {
            drop_ended_saves_locked(save);
        }
    }
    (void)pthread_cond_broadcast(&lane->changed);
    (void)pthread_cond_signal(&lane->publish);
}

void save_fail_locked(struct cairn_save *save, int error, const char *cause)
{
    check_held(&save->lane->lock);
    fail_one_locked(save, error, cause);
    saves_settle_locked(save->lane);
}

void save_published_locked(struct cairn_save *save)
{
    check_held(&save->lane->lock);
    check(save->state == SAVE_OPEN && save->unread == 0 && save->in_flight == 0);
    save->state = SAVE_PUBLISHED;
    save->lane->stats.saves_published++;
    drop_predecessors_locked(save);
    saves_settle_locked(save->lane);
}

static void forget_unreported_locked(struct cairn_save *save)
{
    check_held(&save->lane->lock);
    struct cairn_lane *lane = save->lane;
    size_t left = 0, dropped = 0;
    for (size_t i = 0; i < lane->unreported.count; i++) {
        if (lane->unreported.of[i] == save)
            dropped++;
        else
            lane->unreported.of[left++] = lane->unreported.of[i];
    }
    lane->unreported.count = left;
    if (dropped)
        save_unref_locked(save);
}

int save_report_locked(struct cairn_save *save)
{
    check_held(&save->lane->lock);
    if (save->state != SAVE_FAILED)
        return 0;
    save->is_reported = true;
    forget_unreported_locked(save);
    cause_note("%s", save->cause);
    return save->error;
}

bool save_has_failed(struct cairn_save *save)
{
    LOCK_SCOPE(&save->lane->lock);
    return save->state == SAVE_FAILED;
}

/* No byte of a source is read any more: all are copied, or it failed, no thread is in one, and no
 * copy or fingerprint of a device begins or is under way: of a save that failed, what is `waiting`
 * is a piece that the device thread has in its hands. */
static bool save_is_quiet_locked(const struct cairn_save *save)
{
    check_held(&save->lane->lock);
    uint64_t on_devices = 0;
    for (int i = 0; i < save->lane->device.count; i++)
        on_devices +=
            save->on_device[i].waiting + save->on_device[i].flying + save->on_device[i].looking;
    return save->error ? save->reading == 0 && on_devices == 0 : save->unread == 0;
}

/* --- calls ------------------------------------------------------------------------------------ */

static bool has_level_locked(const struct cairn_save *save, enum cairn_level level)
{
    check_held(&save->lane->lock);
    if (level == CAIRN_COPIED)
        return save->unread == 0;
    return save->state == SAVE_PUBLISHED && (level == CAIRN_PUBLISHED || save->level >= (int)level);
}

static int wait_here(struct cairn_save *save, enum cairn_level level, int64_t deadline)
{
    LOCK_SCOPE(&save->lane->lock);
    for (;;) {
        if (save->error && save_is_quiet_locked(save))
            return save_report_locked(save);
        if (!save->error && has_level_locked(save, level))
            return 0;
        if (!wait_changed_locked(save->lane, deadline)) {
            cause_note("%s: %llu bytes are not copied yet", save->draft.path,
                       (unsigned long long)save->unread);
            return -ETIMEDOUT;
        }
    }
}

int cairn_save_wait(cairn_save *save, enum cairn_level level, int timeout_ms)
{
    cause_clear();
    int64_t deadline = deadline_of(timeout_ms);
    int r = lane_check(save->lane);
    if (r == 0 && (unsigned)level > CAIRN_REMOTE)
        r = -EINVAL;
    if (r == 0)
        r = wait_here(save, level < CAIRN_PUBLISHED ? level : CAIRN_PUBLISHED, deadline);
    if (r == 0 && level > CAIRN_PUBLISHED)
        r = level_wait(save, level, deadline);
    return lane_return(NULL, 0, r);
}

int cairn_save_progress(cairn_save *save, struct cairn_save_progress *ret)
{
    cause_clear();
    int r = lane_check(save->lane);
    if (r < 0)
        return lane_return(NULL, 0, r);
    LOCK_SCOPE(&save->lane->lock);
    struct cairn_save_progress progress = {.size = sizeof progress,
                                           .bytes = save->source_bytes,
                                           .bytes_copied = save->copied_bytes,
                                           .bytes_referenced = save->referenced_bytes,
                                           .level = -1,
                                           .error = save->error};
    for (int level = CAIRN_COPIED; level <= CAIRN_REMOTE; level++)
        if (!save->error && has_level_locked(save, level))
            progress.level = level;
    return lane_return(NULL, 0, copy_struct(ret, &progress, sizeof progress));
}

/* At the name it is the filesystem's: nothing is read any more, and no call can take it back. */
static int fail_quietly(struct cairn_save *save, int error, const char *cause, bool is_reported)
{
    LOCK_SCOPE(&save->lane->lock);
    if (save->is_naming) {
        cause_note("%s is just being given its name", save->draft.path);
        return -EINPROGRESS;
    }
    if (save->state == SAVE_PUBLISHED) {
        cause_note("%s has its name already", save->draft.path);
        return -EALREADY;
    }
    save->is_reported = save->is_reported || is_reported;
    save_fail_locked(save, error, cause);
    if (is_reported)
        (void)save_report_locked(save);
    while (!save_is_quiet_locked(save))
        (void)wait_changed_locked(save->lane, -1);
    return 0;
}

int cairn_save_abort(cairn_save *save)
{
    char cause[CAUSE_MAX];
    cause_clear();
    int r = lane_check(save->lane);
    (void)snprintf(cause, sizeof cause, "%.300s was aborted", save->draft.path);
    return lane_return(NULL, 0, r < 0 ? r : fail_quietly(save, -ECANCELED, cause, true));
}

int cairn_save_fail(cairn_save *save, int error, const char *cause)
{
    char text[CAUSE_MAX];
    cause_clear();
    int r = lane_check(save->lane);
    if (r == 0 && error >= 0) {
        cause_note("%d is not an error; give a negative errno", error);
        r = -EINVAL;
    }
    if (r < 0)
        return lane_return(NULL, 0, r);
    (void)snprintf(text, sizeof text, "%.150s: %.200s", save->draft.path,
                   cause && cause[0] ? cause : strerror(-error));
    return lane_return(NULL, 0, fail_quietly(save, error, text, false));
}

int cairn_save_error(cairn_save *save, const char **ret_text)
{
    cause_clear();
    if (ret_text)
        *ret_text = "";
    int r = lane_check(save->lane);
    if (r < 0)
        return lane_return(NULL, 0, r);
    LOCK_SCOPE(&save->lane->lock);
    r = save_report_locked(save);
    if (ret_text && r < 0)
        *ret_text = save->cause; /* written once, by what failed it */
    return r;
}

const char *cairn_save_path(const cairn_save *save)
{
    return save->draft.path;
}

void cairn_save_free(cairn_save *save)
{
    if (!save)
        return;
    struct cairn_lane *lane = save->lane;
    mutex_lock(&lane->lock);
    save_unref_locked(save);
    lane_unlock_last(lane);
}
