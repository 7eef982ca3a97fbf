// SPDX-License-Identifier: Apache-2.0
#include "client/open.h"

#include <stdio.h>

#include <cairn/cairn.h>

#include "base/cause.h"

/* A draft to be opened. Owned by the call until a thread takes it; then, once the call has given
 * up, by that thread. */
struct opening {
    TAILQ_ENTRY(opening) link; /* in the queue */
    struct open_request request;
    struct opened opened;
    bool is_taken, is_done, is_given_up; /* guarded by the lane's lock */
    int result;
    char cause[CAUSE_MAX];
    char path[]; /* a copy, as the call may give up earlier */
};

/* Closes and removes a file of which no save was made. */
static void discard_opened(struct opened *opened, struct cairn_mutex *lock)
{
    draft_discard(&opened->draft);
    draft_done(&opened->draft);
    refer_close(&opened->older);
    LOCK_SCOPE(lock);
    refer_end_locked(&opened->older);
}

/* --- the threads ------------------------------------------------------------------------------ */

static struct opening *take_opening_locked(struct opener *opener)
{
    check_held(opener->lock);
    struct opening *opening = TAILQ_FIRST(&opener->queue);
    if (!opening)
        return NULL;
    check(opener->queued > 0 && !opening->is_taken && !opening->is_given_up);
    TAILQ_REMOVE(&opener->queue, opening, link);
    opener->queued--;
    opening->is_taken = true;
    return opening;
}

static void open_draft(struct opener *opener, struct opening *opening)
{
    const struct open_request *request = &opening->request;
    struct opened *opened = &opening->opened;
    cause_clear();
    opening->result =
        draft_open(&opened->draft, opening->path, request->bytes, request->mode, request->flags);
    if (opening->result == 0 && request->flags & CAIRN_SAVE_REFER)
        refer_begin(opener->refer, &opened->draft, &opened->older);
    (void)snprintf(opening->cause, sizeof opening->cause, "%s", cause_text());
}

static void open_one_locked(struct opener *opener, struct opening *opening)
{
    check_held(opener->lock);
    mutex_unlock(opener->lock);
    open_draft(opener, opening);
    mutex_lock(opener->lock);
    opening->is_done = true;
    (void)pthread_cond_broadcast(&opener->done);
    if (!opening->is_given_up)
        return;
    mutex_unlock(opener->lock);
    discard_opened(&opening->opened, opener->lock);
    free(opening);
    mutex_lock(opener->lock);
}

static void *opener_main(void *arg)
{
    struct opener *opener = arg;
    mutex_lock(opener->lock);
    for (;;) {
        struct opening *opening = take_opening_locked(opener);
        if (opening) {
            open_one_locked(opener, opening);
            continue;
        }
        if (opener->is_stopping)
            break;
        opener->idle++;
        (void)mutex_wait(opener->lock, &opener->work, -1);
        opener->idle--;
    }
    mutex_unlock(opener->lock);
    return NULL;
}

void opener_init(struct opener *opener, struct cairn_mutex *lock, struct refer *refer)
{
    *opener = (struct opener){.lock = lock, .refer = refer};
    TAILQ_INIT(&opener->queue);
    cond_init(&opener->work);
    cond_init(&opener->done);
}

void opener_stop(struct opener *opener)
{
    mutex_lock(opener->lock);
    opener->is_stopping = true;
    (void)pthread_cond_broadcast(&opener->work);
    mutex_unlock(opener->lock);
    for (unsigned i = 0; i < OPENERS_MAX; i++)
        lane_thread_join(&opener->threads[i]);
    check(opener->queued == 0 && TAILQ_EMPTY(&opener->queue));
}

/* --- the call --------------------------------------------------------------------------------- */

/* Starts another thread if all are busy: some of them may be blocked. */
static int start_opener_locked(struct opener *opener)
{
    check_held(opener->lock);
    if (opener->idle > opener->queued || opener->thread_count == OPENERS_MAX)
        return 0;
    int r = lane_thread_start(&opener->threads[opener->thread_count], "cairn-open", opener_main,
                              opener);
    opener->thread_count += r == 0;
    return opener->thread_count > 0 ? 0 : r;
}

static int enter_queue(struct opener *opener, struct opening *opening)
{
    LOCK_SCOPE(opener->lock);
    TRY(start_opener_locked(opener));
    check(!opener->is_stopping);
    TAILQ_INSERT_TAIL(&opener->queue, opening, link);
    opener->queued++;
    (void)pthread_cond_signal(&opener->work);
    return 0;
}

/* False: the time has passed, and a thread owns the opening now. */
static bool wait_for_opening(struct opener *opener, struct opening *opening, int64_t deadline)
{
    LOCK_SCOPE(opener->lock);
    while (!opening->is_done && wait_until_locked(opener->lock, &opener->done, deadline)) {
    }
    if (opening->is_done)
        return true;
    cause_note("cannot create %.250s: the filesystem has not answered for %d ms", opening->path,
               opening->request.max_block_ms);
    opening->result = -ETIMEDOUT;
    opening->is_given_up = opening->is_taken;
    if (opening->is_taken)
        return false;
    TAILQ_REMOVE(&opener->queue, opening, link);
    opener->queued--;
    return true;
}

/* Lets a thread of the opener open the regular file. */
static int open_by_thread(struct opener *opener, const struct open_request *request,
                          struct opened *ret)
{
    int64_t deadline = deadline_of(request->max_block_ms);
    struct opening *opening = calloc(1, sizeof *opening + strlen(request->path) + 1);
    if (!opening)
        return -ENOMEM;
    opening->request = *request;
    opening->opened = (struct opened){.draft = DRAFT_NONE, .older = REFER_NONE};
    (void)strcpy(opening->path, request->path);
    int r = enter_queue(opener, opening);
    if (r == 0 && !wait_for_opening(opener, opening, deadline))
        return -ETIMEDOUT;
    if (r == 0)
        r = opening->result;
    if (r < 0 && opening->cause[0])
        cause_note("%s", opening->cause);
    *ret = opening->opened;
    free(opening);
    return r;
}

int opener_open(struct opener *opener, const struct open_request *request, struct opened *ret)
{
    int r = open_by_thread(opener, request, ret);
    if (r < 0 || ret->draft.kind != DRAFT_SPECIAL)
        return r;
    return draft_open_special(&ret->draft, request->path, request->bytes);
}
