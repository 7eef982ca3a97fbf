// SPDX-License-Identifier: Apache-2.0
/* A call opens its draft by a thread "cairn-open" of the lane, for a filesystem may hold up an open
 * for as long as it likes, in a way that nothing ends (a daemon that stands still, a server that is
 * gone), and the call may keep its caller only for as long as the save may hold up the training.
 * That thread takes away what comes of an open that no call waits for any more. */
#include "client/client.h"

#include <stdio.h>

#include "base/pool.h"

/* A draft that is to be opened. The caller owns it until a thread takes it; that thread owns it
 * once no caller waits. */
struct opening {
    struct opening *next; /* in the lane's queue */
    struct cairn_save *save;
    char *path;
    mode_t mode;
    bool is_taken, is_done, is_given_up; /* guarded by the lane's lock */
    int result;
    char cause[CAUSE_MAX];
};

static void opening_free(struct opening *opening)
{
    if (opening)
        free(opening->path);
    free(opening);
}

/* A save that is in no list. */
static void drop_save(struct cairn_save *save)
{
    draft_discard(&save->draft);
    refer_close(save);
    {
        LOCK_SCOPE(&save->lane->lock);
        refer_end_locked(save);
    }
    draft_done(&save->draft);
    free(save->pattern);
    free(save->after);
    free(save);
}

/* --- the threads ------------------------------------------------------------------------------ */

static struct opening *open_take_locked(struct cairn_lane *lane)
{
    check_held(&lane->lock);
    struct opening *opening = lane->opening.first;
    if (!opening)
        return NULL;
    lane->opening.first = opening->next;
    if (!lane->opening.first)
        lane->opening.last = &lane->opening.first;
    lane->opening.queued--;
    opening->is_taken = true;
    return opening;
}

static void open_draft(struct opening *opening)
{
    struct cairn_save *save = opening->save;
    cause_clear();
    opening->result =
        draft_open(&save->draft, opening->path, save->bytes, opening->mode, save->flags);
    if (opening->result == 0)
        refer_begin(save);
    (void)snprintf(opening->cause, sizeof opening->cause, "%s", cause_text());
}

static void open_one_locked(struct cairn_lane *lane, struct opening *opening)
{
    check_held(&lane->lock);
    mutex_unlock(&lane->lock);
    open_draft(opening);
    mutex_lock(&lane->lock);
    opening->is_done = true;
    (void)pthread_cond_broadcast(&lane->opening.done);
    if (!opening->is_given_up)
        return;
    mutex_unlock(&lane->lock);
    drop_save(opening->save);
    opening_free(opening);
    mutex_lock(&lane->lock);
}

void *opener_main(void *arg)
{
    struct cairn_lane *lane = arg;
    mutex_lock(&lane->lock);
    for (;;) {
        struct opening *opening = open_take_locked(lane);
        if (opening) {
            open_one_locked(lane, opening);
            continue;
        }
        if (lane->stopping)
            break;
        lane->opening.idle++;
        (void)mutex_wait(&lane->lock, &lane->opening.work, -1);
        lane->opening.idle--;
    }
    mutex_unlock(&lane->lock);
    return NULL;
}

/* --- the call --------------------------------------------------------------------------------- */

/* One more thread where all are at it: some of them may be held up. */
static int start_opener_locked(struct cairn_lane *lane)
{
    check_held(&lane->lock);
    if (lane->opening.idle > lane->opening.queued || lane->opening.thread_count == OPENERS_MAX)
        return 0;
    int r = thread_start(&lane->opening.threads[lane->opening.thread_count], "cairn-open",
                         opener_main, lane);
    lane->opening.thread_count += r == 0;
    if (r == 0 || lane->opening.thread_count > 0)
        return 0;
    cause_note("no thread can be started: %s", strerror(-r));
    return r;
}

static int enter_queue(struct cairn_lane *lane, struct opening *opening)
{
    LOCK_SCOPE(&lane->lock);
    int r = start_opener_locked(lane);
    if (r < 0)
        return r;
    *lane->opening.last = opening;
    lane->opening.last = &opening->next;
    lane->opening.queued++;
    (void)pthread_cond_signal(&lane->opening.work);
    return 0;
}

static void leave_queue_locked(struct cairn_lane *lane, struct opening *opening)
{
    check_held(&lane->lock);
    struct opening **link = &lane->opening.first;
    while (*link != opening)
        link = &(*link)->next;
    *link = opening->next;
    if (!opening->next)
        lane->opening.last = link;
    lane->opening.queued--;
}

/* False: the time has passed, and a thread has the opening: it is not the caller's any more. */
static bool wait_for_opening(struct cairn_lane *lane, struct opening *opening, int64_t deadline)
{
    LOCK_SCOPE(&lane->lock);
    while (!opening->is_done && wait_locked(lane, &lane->opening.done, deadline)) {
    }
    if (opening->is_done)
        return true;
    cause_note("cannot create %.250s: the filesystem has not answered for %d ms", opening->path,
               opening->save->max_block_ms);
    opening->result = -ETIMEDOUT;
    opening->is_given_up = opening->is_taken;
    if (!opening->is_taken)
        leave_queue_locked(lane, opening);
    return !opening->is_given_up;
}

static int begin_opening(struct opening *opening, const char *path)
{
    opening->path = strdup(path);
    return opening->path ? enter_queue(opening->save->lane, opening) : -ENOMEM;
}

int save_open(struct cairn_save *save, const char *path, mode_t mode)
{
    int64_t deadline = deadline_of(save->max_block_ms);
    struct opening *opening = calloc(1, sizeof *opening);
    if (opening)
        *opening = (struct opening){.save = save, .mode = mode};
    int r = opening ? begin_opening(opening, path) : -ENOMEM;
    if (r == 0 && !wait_for_opening(save->lane, opening, deadline))
        return -ETIMEDOUT;
    if (r == 0)
        r = opening->result;
    if (r < 0 && opening && opening->cause[0])
        cause_note("%s", opening->cause);
    opening_free(opening);
    if (r == DRAFT_IS_SPECIAL)
        r = draft_open_special(&save->draft, path, save->bytes);
    if (r < 0)
        drop_save(save);
    return r;
}
