// SPDX-License-Identifier: Apache-2.0
/* The state of saves: how they end, and which wait for which. */
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

/* References to saves that have ended; with `all`, to the others, too. */
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

/* Kept until a caller is told. Of more than fit the newest are counted only. */
static void note_untold_locked(struct cairn_save *save)
{
    check_held(&save->lane->lock);
    struct unreported *unreported = &save->lane->unreported;
    if (save->is_reported)
        return;
    if (unreported->count == UNREPORTED_MAX) {
        unreported->lost++;
        return;
    }
    save->refs++;
    unreported->of[unreported->count++] = save;
}

static void fail_one_locked(struct cairn_save *save, int error, const char *cause)
{
    check_held(&save->lane->lock);
    struct cairn_lane *lane = save->lane;
    if (save->state != SAVE_OPEN)
        return;
    check(error < 0);
    save->state = SAVE_FAILED;
    save->error = error;
    (void)snprintf(save->cause, sizeof save->cause, "%s", cause[0] ? cause : strerror(-error));
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

/* A stream is written by the call that commits it. */
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

/* Predecessors were begun earlier, so they stand before their successors in the list: one pass
 * reaches all. */
void saves_settle_locked(struct cairn_lane *lane)
{
    check_held(&lane->lock);
    char cause[CAUSE_MAX];
    struct cairn_save *save;
    TAILQ_FOREACH(save, &lane->saves, link)
    {
        const struct cairn_save *failed =
            save->state == SAVE_OPEN ? failed_predecessor_locked(save) : NULL;
        if (failed) {
            (void)snprintf(cause, sizeof cause, "%.150s comes after a save that failed: %.200s",
                           save->path, failed->cause);
            fail_one_locked(save, -ECANCELED, cause);
        }
        if (save->state == SAVE_OPEN)
            drop_predecessors_locked(save, false);
        save_offer_locked(save);
    }
    (void)pthread_cond_broadcast(&lane->changed);
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

/* --- what is asked ---------------------------------------------------------------------------- */

static void forget_unreported_locked(struct cairn_save *save)
{
    check_held(&save->lane->lock);
    struct unreported *unreported = &save->lane->unreported;
    size_t left = 0;
    for (size_t i = 0; i < unreported->count; i++)
        if (unreported->of[i] != save)
            unreported->of[left++] = unreported->of[i];
    check(unreported->count - left <= 1);
    if (unreported->count > left)
        save_unref_locked(save);
    unreported->count = left;
}

int save_report_locked(struct cairn_save *save)
{
    check_held(&save->lane->lock);
    check((save->state == SAVE_FAILED) == (save->error < 0));
    if (save->state != SAVE_FAILED)
        return 0;
    save->is_reported = true;
    cause_note("%s", save->cause);
    int error = save->error;
    forget_unreported_locked(save);
    return error;
}

bool save_has_failed(struct cairn_save *save)
{
    LOCK_SCOPE(&save->lane->lock);
    return save->state == SAVE_FAILED;
}

/* Of a save that failed: no thread is in a source, and no copy or fingerprint of a device begins or
 * is under way. Its `waiting` bytes are of a piece that the device thread has in its hands. */
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
