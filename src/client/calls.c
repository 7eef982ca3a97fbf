// SPDX-License-Identifier: Apache-2.0
/* The calls that query a save, wait for it and end it. */
#include <stdio.h>

#include "client/lane.h"

static bool has_level_locked(const struct cairn_save *save, enum cairn_level level)
{
    check_held(&save->lane->lock);
    if (level == CAIRN_COPIED)
        return save->copying.unread == 0;
    return save->state == SAVE_PUBLISHED &&
           (level == CAIRN_PUBLISHED || save->levels.reached >= (int)level);
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
            cause_note("%s: %llu bytes are not copied yet", save->path,
                       (unsigned long long)save->copying.unread);
            return -ETIMEDOUT;
        }
    }
}

int cairn_save_wait(cairn_save *save, enum cairn_level level, int timeout_ms)
{
    int64_t deadline = deadline_of(timeout_ms);
    TRY(lane_call(save->lane));
    if ((unsigned)level > CAIRN_REMOTE)
        return lane_return(NULL, 0, -EINVAL);
    int r = wait_here(save, level < CAIRN_PUBLISHED ? level : CAIRN_PUBLISHED, deadline);
    if (r < 0 || level <= CAIRN_PUBLISHED)
        return r;
    return lane_return(NULL, 0, level_wait(save, level, deadline));
}

int cairn_save_progress(cairn_save *save, struct cairn_save_progress *ret)
{
    TRY(lane_call(save->lane));
    LOCK_SCOPE(&save->lane->lock);
    struct cairn_save_progress progress = {.size = sizeof progress,
                                           .bytes = save->copying.source_bytes,
                                           .bytes_copied = save->copying.copied_bytes,
                                           .bytes_referenced = save->copying.referenced_bytes,
                                           .level = -1,
                                           .error = save->error};
    for (int level = CAIRN_COPIED; level <= CAIRN_REMOTE; level++)
        if (!save->error && has_level_locked(save, level))
            progress.level = level;
    return copy_struct(ret, &progress, sizeof progress);
}

/* While the save is being named, only the filesystem decides: no source is read any more, and no
 * call can undo it. */
static int fail_quietly(struct cairn_save *save, int error, const char *cause, bool is_reported)
{
    LOCK_SCOPE(&save->lane->lock);
    if (save->state == SAVE_PUBLISHED) {
        cause_note("%s has its name already", save->path);
        return -EALREADY;
    }
    if (save->state == SAVE_OPEN && save->publishing.step == STEP_NAMING) {
        cause_note("%s is just being given its name", save->path);
        return -EINPROGRESS;
    }
    save->is_reported = save->is_reported || is_reported;
    save_fail_locked(save, error, "%s", cause);
    if (is_reported)
        (void)save_report_locked(save);
    while (!save_is_quiet_locked(save))
        (void)wait_changed_locked(save->lane, -1);
    return 0;
}

int cairn_save_abort(cairn_save *save)
{
    char cause[CAUSE_MAX];
    int r = lane_call(save->lane);
    (void)snprintf(cause, sizeof cause, "%.300s was aborted", save->path);
    return r < 0 ? r : fail_quietly(save, -ECANCELED, cause, true);
}

int cairn_save_fail(cairn_save *save, int error, const char *cause)
{
    char text[CAUSE_MAX];
    TRY(lane_call(save->lane));
    if (error >= 0) {
        cause_note("%d is not an error; give a negative errno", error);
        return -EINVAL;
    }
    (void)snprintf(text, sizeof text, "%.150s: %.200s", save->path,
                   cause && cause[0] ? cause : strerror(-error));
    return fail_quietly(save, error, text, false);
}

int cairn_save_error(cairn_save *save, const char **ret_text)
{
    if (ret_text)
        *ret_text = "";
    TRY(lane_call(save->lane));
    LOCK_SCOPE(&save->lane->lock);
    int r = save_report_locked(save);
    if (ret_text && r < 0)
        *ret_text = save->cause; /* constant: written once, by the failure */
    return r;
}

const char *cairn_save_path(const cairn_save *save)
{
    return save->path;
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
