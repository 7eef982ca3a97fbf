// SPDX-License-Identifier: Apache-2.0
/* The state of saves: how they end, and which wait for which. */
#include <stdarg.h>
#include <stdio.h>

#include "client/lane.h"

/* --- references ------------------------------------------------------------------------------- */

void save_unref_locked(struct cairn_save *save)
{
    check_held(&save->lane->lock);
    check(save->refs > 0);
    if (--save->refs > 0)
        return;
    struct publishing *publishing = &save->publishing;
    check(save->copying.in_flight == 0 && !publishing->before);
    for (struct batch *batch = save->copying.batches, *next; batch; batch = next) {
        next = batch->next;
        batch_free(batch);
    }
    draft_done(&publishing->draft);
    refer_end_locked(&publishing->older);
    free(publishing->zip.entries);
    free(publishing->after);
    check(save->lane->refs > 0);
    save->lane->refs--;
    free(save);
}

/* Drops references to saves that have ended; with `all`, also to the others. */
static void drop_predecessors_locked(struct cairn_save *save, bool all)
{
    check_held(&save->lane->lock);
    struct publishing *publishing = &save->publishing;
    if (publishing->before && (all || publishing->before->state != SAVE_OPEN)) {
        save_unref_locked(publishing->before);
        publishing->before = NULL;
    }
    for (size_t i = 0; i < publishing->after_count; i++) {
        struct cairn_save *after = publishing->after[i];
        if (!after || (!all && after->state != SAVE_PUBLISHED))
            continue;
        save_unref_locked(after);
        publishing->after[i] = NULL;
    }
}

/* --- the end of a save ------------------------------------------------------------------------ */

/* Keeps the failed save until a caller is informed. If too many fail, the newest are not kept. */
static void note_untold_locked(struct cairn_save *save)
{
    check_held(&save->lane->lock);
    struct untold *untold = &save->lane->untold;
    if (save->is_reported || untold->count == UNTOLD_MAX)
        return;
    save->refs++;
    save->is_untold = true;
    untold->count++;
    TAILQ_INSERT_TAIL(&untold->list, save, untold);
}

/* May free the save. */
static void forget_untold_locked(struct cairn_save *save)
{
    check_held(&save->lane->lock);
    struct untold *untold = &save->lane->untold;
    if (!save->is_untold)
        return;
    check(untold->count > 0);
    save->is_untold = false;
    untold->count--;
    TAILQ_REMOVE(&untold->list, save, untold);
    save_unref_locked(save);
}

/* The cause must be written before. */
static void fail_one_locked(struct cairn_save *save, int error)
{
    check_held(&save->lane->lock);
    struct cairn_lane *lane = save->lane;
    check(save->state == SAVE_OPEN && error < 0);
    save->state = SAVE_FAILED;
    save->error = error;
    jobs_drop_locked(&lane->copiers.now, save);
    jobs_drop_locked(&lane->copiers.lazy, save);
    jobs_drop_locked(&lane->devices.now, save);
    jobs_drop_locked(&lane->devices.lazy, save);
    look_drop_locked(save);
    drop_predecessors_locked(save, true);
    lane->stats.saves_failed++;
    note_untold_locked(save);
}

static struct cairn_save *failed_predecessor_locked(const struct cairn_save *save)
{
    check_held(&save->lane->lock);
    const struct publishing *publishing = &save->publishing;
    for (size_t i = 0; i < publishing->after_count; i++)
        if (publishing->after[i] && publishing->after[i]->state == SAVE_FAILED)
            return publishing->after[i];
    return NULL;
}

bool save_is_ready_locked(const struct cairn_save *save)
{
    check_held(&save->lane->lock);
    const struct publishing *publishing = &save->publishing;
    if (save->state != SAVE_OPEN || publishing->step < STEP_COMMITTED || save->copying.unread > 0 ||
        save->copying.in_flight > 0 || publishing->before)
        return false;
    for (size_t i = 0; i < publishing->after_count; i++)
        if (publishing->after[i])
            return false;
    return true;
}

/* A stream is not queued: the call that commits it writes it. */
void save_offer_locked(struct cairn_save *save)
{
    check_held(&save->lane->lock);
    struct publishing *publishing = &save->publishing;
    bool is_due = save->state == SAVE_FAILED
                      ? save->copying.in_flight == 0
                      : publishing->draft.kind != DRAFT_STREAM && save_is_ready_locked(save);
    if (!is_due || publishing->was_queued || publishing->step >= STEP_WRITING)
        return;
    publishing->was_queued = true;
    TAILQ_INSERT_TAIL(&save->lane->publisher.queue, save, publishing.link);
    (void)pthread_cond_signal(&save->lane->publisher.work);
}

/* Predecessors were begun earlier, so they precede their successors in the list: one pass
 * suffices. */
void saves_settle_locked(struct cairn_lane *lane)
{
    check_held(&lane->lock);
    struct cairn_save *save;
    TAILQ_FOREACH(save, &lane->saves, link)
    {
        const struct cairn_save *failed =
            save->state == SAVE_OPEN ? failed_predecessor_locked(save) : NULL;
        if (failed) {
            (void)snprintf(save->cause, sizeof save->cause,
                           "%.150s comes after a save that failed: %.200s", save->path,
                           failed->cause);
            fail_one_locked(save, -ECANCELED);
        }
        if (save->state == SAVE_OPEN)
            drop_predecessors_locked(save, false);
        save_offer_locked(save);
    }
    (void)pthread_cond_broadcast(&lane->changed);
}

void save_fail_locked(struct cairn_save *save, int error, const char *fmt, ...)
{
    check_held(&save->lane->lock);
    va_list ap;
    if (save->state != SAVE_OPEN)
        return;
    va_start(ap, fmt);
    (void)vsnprintf(save->cause, sizeof save->cause, fmt, ap);
    va_end(ap);
    if (!save->cause[0])
        (void)snprintf(save->cause, sizeof save->cause, "%s", strerror(-error));
    fail_one_locked(save, error);
    saves_settle_locked(save->lane);
}

void save_published_locked(struct cairn_save *save)
{
    check_held(&save->lane->lock);
    check(save->state == SAVE_OPEN && save->publishing.step == STEP_NAMING);
    check(save->copying.unread == 0 && save->copying.in_flight == 0);
    save->state = SAVE_PUBLISHED;
    save->lane->stats.saves_published++;
    saves_settle_locked(save->lane);
}

void save_piece_ended_locked(struct cairn_save *save)
{
    check_held(&save->lane->lock);
    check(save->copying.in_flight > 0);
    if (--save->copying.in_flight > 0 || (save->state == SAVE_OPEN && save->copying.unread > 0))
        return;
    (void)pthread_cond_broadcast(&save->lane->changed);
    save_offer_locked(save);
}

/* --- queries ---------------------------------------------------------------------------------- */

int save_report_locked(struct cairn_save *save)
{
    check_held(&save->lane->lock);
    check((save->state == SAVE_FAILED) == (save->error < 0));
    if (save->state != SAVE_FAILED)
        return 0;
    save->is_reported = true;
    cause_note("%s", save->cause);
    int error = save->error;
    forget_untold_locked(save);
    return error;
}

bool save_has_failed(struct cairn_save *save)
{
    LOCK_SCOPE(&save->lane->lock);
    return save->state == SAVE_FAILED;
}

/* For a failed save: no thread is reading a source, and no copy or fingerprint of a device is in
 * progress or will begin. Its `waiting` bytes belong to a piece that the device thread is just
 * handling. */
bool save_is_quiet_locked(const struct cairn_save *save)
{
    check_held(&save->lane->lock);
    const struct copying *copying = &save->copying;
    if (save->state != SAVE_FAILED)
        return copying->unread == 0;
    for (int i = 0; i < save->lane->devices.count; i++) {
        const struct bytes_on_device *bytes = &copying->on_device[i];
        if (bytes->waiting + bytes->flying + bytes->looking > 0)
            return false;
    }
    return copying->reading == 0;
}
