// SPDX-License-Identifier: Apache-2.0
#include "commit/round_cut.h"

#include "base/log.h"
#include "commit/horizon_internal.h"
#include "commit/packs.h"
#include "commit/writeback_internal.h"
#include "view/remote.h"

#define LOOK_MS 100

struct round_cut {
    struct cairn_mutex lock; /* LOCK_WAITERS */
    pthread_cond_t changed;
    bool is_wanted;
    uint64_t after;
    struct view_cut *cut; /* made, and not yet taken */
    struct rounds_span span;
};

struct round_cut *round_cut_new(void)
{
    struct round_cut *of = xcalloc(1, sizeof *of);
    mutex_init(&of->lock, LOCK_WAITERS);
    cond_init(&of->changed);
    return of;
}

void round_cut_free(struct round_cut *of)
{
    if (!of)
        return;
    check(!of->cut);
    (void)pthread_cond_destroy(&of->changed);
    mutex_done(&of->lock);
    free(of);
}

static void set_wanted(struct round_cut *of, bool is_wanted, uint64_t after)
{
    LOCK_SCOPE(&of->lock);
    of->is_wanted = is_wanted;
    of->after = after;
}

/* NULL: not made yet. With a cut, drops are held. */
static struct view_cut *take_cut(struct round_cut *of, struct rounds_span *ret_span)
{
    LOCK_SCOPE(&of->lock);
    if (!of->cut)
        (void)mutex_wait(&of->lock, &of->changed, LOOK_MS);
    struct view_cut *cut = of->cut;
    of->cut = NULL;
    *ret_span = of->span;
    return cut;
}

int round_cut_await(struct commit *commit, const struct round_cut_wish *wish,
                    struct view_cut **ret_cut, struct rounds_span *ret_span)
{
    struct round_cut *of = commit->round_cut;
    set_wanted(of, true, wish->after);
    history_want_round(commit->history, true, wish->bits);
    do
        horizon_kick(commit->horizon);
    while (!(*ret_cut = take_cut(of, ret_span)) && !wish->is_over(wish->arg));
    set_wanted(of, false, 0);
    history_want_round(commit->history, false, 0);
    if (!*ret_cut)
        *ret_cut = take_cut(of, ret_span); /* made meanwhile */
    return *ret_cut ? 0 : -ECANCELED;
}

/* False: the cut is not wanted any more. */
static bool give_cut(struct round_cut *of, struct view_cut *cut, const struct rounds_span *span)
{
    LOCK_SCOPE(&of->lock);
    if (!of->is_wanted)
        return false;
    of->cut = cut;
    of->span = *span;
    (void)pthread_cond_signal(&of->changed);
    return true;
}

/* Drops in progress must end first: the next offer comes then. */
static struct view_cut *make_cut(struct commit *commit)
{
    struct view_cut *cut = NULL;
    packs_hold_drops(commit->packs, true);
    int r = packs_are_dropping(commit->packs) ? -EAGAIN : view_cut_open(commit->local->view, &cut);
    if (r == 0)
        return cut;
    packs_hold_drops(commit->packs, false);
    if (r != -EAGAIN)
        log_warn("view: no cut of it can be made: %s", strerror(-r));
    return NULL;
}

void round_cut_offer(struct commit *commit)
{
    struct round_cut *of = commit->round_cut;
    struct view_cut *cut;
    struct rounds_span span;
    mutex_lock(&of->lock);
    uint64_t after = of->after;
    bool is_wanted = of->is_wanted && !of->cut;
    mutex_unlock(&of->lock);
    if (!is_wanted || lag_exists(commit->lag) ||
        !history_wanted_round_of(commit->history, view_state(commit->local->view).applied_seq,
                                 after, &span) ||
        !(cut = make_cut(commit)) || give_cut(of, cut, &span))
        return;
    packs_hold_drops(commit->packs, false);
    view_cut_close(cut);
}
