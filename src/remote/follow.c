// SPDX-License-Identifier: Apache-2.0
/* A store that follows another writer's heads: it publishes nothing, has no operations of its own,
 * and shows the state of the newest head.
 *
 * The remote's thread looks for heads and fetches runs. The writeback thread makes the change, as
 * the only thread that writes journal and view: it switches the view to the head's state in one
 * write, and begins the journal anew there, since its batches belong to the previous state.
 * Meanwhile the file STORE/adopting exists: after a crash the view is rebuilt from the head's runs.
 * Packs on NVMe stay, as content is named by its hash. */
#include <stdio.h>

#include "base/cause.h"
#include "base/log.h"
#include "base/vector.h"
#include "remote/internal.h"

#define TRIES 5 /* runs may be deleted while they are being fetched: then there is a newer head */
#define RETRY_MS 1000
#define IDLE_MS 60000 /* while it follows nothing */

DEFINE_VECTOR(inos, uint64_t);

/* A change that the remote's thread requests from the writeback thread. */
struct follow_step {
    const struct head *known, *head;
    uint64_t encodings; /* announced by the head's writer */
    struct inos changed;
    bool done;
    int result;
};

/* --- the change, in the writeback thread ------------------------------------------------------ */

static void note_change(uint64_t ino, void *arg)
{
    struct inos *inos = arg;
    vector_add(inos, ino);
}

static int follow_row(const struct run_row *row, void *arg)
{
    return view_follow_row(arg, row);
}

/* Finds the runs that lead from the known head to the new one: all of them, if the known one's are
 * missing. */
static int find_runs(struct store *store, const struct follow_step *step, struct run_lists *lists)
{
    _cleanup_(run_lists_done) struct run_lists known = {0};
    TRY(run_lists_of(&store->local, step->head, lists));
    if (run_lists_of(&store->local, step->known, &known) == 0)
        run_lists_go_on(lists, &known);
    return 0;
}

static int change_view(struct store *store, struct follow_step *step, const struct run_lists *lists)
{
    const struct head *head = step->head;
    struct view_follow *follow = NULL;
    struct view_state state;
    struct view_head of_view;
    view_state_of_head(head, &state, &of_view);
    step->changed.count = 0;
    int r = view_follow_begin(store->local.view, run_lists_are_new(lists), note_change,
                              &step->changed, &follow);
    if (r == 0)
        r = run_lists_read(&store->local, lists, follow_row, follow);
    if (r == 0) {
        change_next_generation(store->commit.change);
        r = view_follow_end(follow, &state, &of_view);
        change_next_generation(store->commit.change);
    }
    view_follow_done(follow);
    return r;
}

static bool has_own_operations(struct store *store)
{
    uint64_t seq;
    int64_t happened;
    bool own = true;
    if (history_oldest(store->commit.history, &seq, &happened) ||
        stage_drafts(store->local.stage, NULL, 0) > 0)
        return true;
    int r = view_has_own_changes(store->local.view, &own);
    return r < 0 || own;
}

/* Uses only the new runs; if that fails, all runs. */
static int change_view_by_runs(struct store *store, struct follow_step *step,
                               struct run_lists *lists)
{
    int r = change_view(store, step, lists);
    if (r != -EUCLEAN || run_lists_are_new(lists))
        return r;
    log_warn("remote: head %llu does not continue the one before: comparing everything",
             (unsigned long long)step->head->number);
    run_lists_forget(lists);
    return change_view(store, step, lists);
}

int follow_show(struct store *store, const struct head *known, const struct head *head,
                void (*changed)(uint64_t ino, void *arg), void *arg)
{
    _cleanup_(run_lists_done) struct run_lists lists = {0};
    struct follow_step step = {.known = known, .head = head};
    int r = find_runs(store, &step, &lists);
    if (r == 0)
        r = change_view_by_runs(store, &step, &lists);
    for (size_t i = 0; i < step.changed.count && r == 0; i++)
        changed(step.changed.at[i], arg);
    vector_free(&step.changed);
    return r;
}

static int perform(struct store *store, struct follow_step *step)
{
    _cleanup_(run_lists_done) struct run_lists lists = {0};
    if (has_own_operations(store))
        return -ESTALE;
    TRY(find_runs(store, step, &lists));
    int r = room_for_view(store->commit.room);
    if (r == 0) /* chunks of the head may be promoted to NVMe unchanged */
        r = local_allow_encodings(&store->local, step->encodings);
    if (r == 0)
        r = adopt_mark(&store->local);
    if (r < 0)
        return r;
    r = change_view_by_runs(store, step, &lists);
    if (r == -EUCLEAN || r == -EFBIG) { /* nothing was changed */
        int removed = adopt_unmark(&store->local);
        return removed < 0 ? removed : r;
    }
    if (r == 0)
        r = view_flush(store->local.view);
    if (r < 0)
        return r;
    history_raise(store->commit.history, step->head->cut);
    r = journal_begin_anew(store->commit.journal, step->head);
    if (r < 0)
        horizon_error(store->commit.horizon, "nvme: beginning the journal anew failed: %s",
                      strerror(-r));
    room_account(store->commit.room);
    return 0;
}

bool follow_round(struct store *store, bool now)
{
    (void)now;
    struct remote *remote = store->remote;
    if (!remote)
        return false;
    mutex_lock(&remote->shared.lock);
    struct follow_step *step = remote->shared.follow;
    remote->shared.follow = NULL;
    mutex_unlock(&remote->shared.lock);
    if (!step)
        return false;
    int r = perform(store, step);
    LOCK_SCOPE(&remote->shared.lock);
    step->result = r;
    step->done = true;
    (void)pthread_cond_broadcast(&remote->shared.changed);
    return false;
}

/* --- the remote's thread ---------------------------------------------------------------------- */

/* Once begun, a step is always waited for, as the caller owns it. */
static int have_performed(struct remote *remote, struct follow_step *step)
{
    mutex_lock(&remote->shared.lock);
    remote->shared.follow = step;
    mutex_unlock(&remote->shared.lock);
    horizon_kick(remote->store->commit.horizon);
    LOCK_SCOPE(&remote->shared.lock);
    while (!step->done) {
        if (remote->shared.stopping && remote->shared.follow == step) {
            remote->shared.follow = NULL;
            return -ECANCELED;
        }
        (void)mutex_wait(&remote->shared.lock, &remote->shared.changed, -1);
    }
    return step->result;
}

struct notification {
    struct store *store;
    struct inos changed;
};

static void notify_changed(void *arg)
{
    struct notification *notification = arg;
    change_notify(notification->store->commit.change, notification->changed.at,
                  notification->changed.count, true);
    vector_free(&notification->changed);
    free(notification);
}

/* In a thread of its own: the kernel makes the notifying thread wait for reads of the pages
 * concerned, which may themselves wait for the next head. */
static void notify_in_background(struct remote *remote, struct follow_step *step)
{
    struct notification *notification = xmalloc(sizeof *notification);
    *notification = (struct notification){remote->store, step->changed};
    step->changed = (struct inos){0};
    pool_submit(remote->notifiers, notify_changed, notification);
}

static void settle(struct remote *remote, struct follow_step *step)
{
    struct store *store = remote->store;
    remote_head_published(remote, step->head);
    remote_advance(remote, step->head->cut);
    notify_in_background(remote, step);
    /* not before the head is STORE/head: otherwise a crash would leave a view and a journal newer
     * than that */
    _cleanup_free_ struct head *there = xmalloc(sizeof *there);
    if (local_head_read(&store->local, there) == 0 && there->number == step->head->number) {
        if (adopt_unmark(&store->local) < 0)
            log_warn("%s/adopting cannot be removed: the next start makes the view anew",
                     store->local.path);
        runs_tidy(&store->local, store->commit.room, step->head);
    }
}

static void explain_failure(struct remote *remote, const struct head *head, int r)
{
    unsigned long long number = head->number;
    if (r == -ESTALE)
        remote_error(remote, 0,
                     "head %llu of %s is by %s, and %s has changes of its own: it is not followed",
                     number, remote->prefix.name, head_writer_text(head),
                     remote->store->local.path);
    else if (r == -EFBIG)
        remote_error(remote, 0,
                     "head %llu differs by too much to be shown at once: mount again to see it",
                     number);
    else if (prefix_object_is_lost(r))
        remote_error(remote, 0, "head %llu cannot be read: %s; an earlier state stays shown",
                     number, *cause_text() ? cause_text() : "it is damaged in the remote");
    else if (r == -EPROTONOSUPPORT)
        remote_error(remote, 0,
                     "head %llu was written by a newer version of CairnFS: %s; the state before it "
                     "stays shown",
                     number, cause_text());
    else if (r != -ECANCELED)
        remote_error(remote, tier_error_is_transient(r) ? r : 0,
                     "head %llu cannot be followed now (%s)", number, strerror(-r));
}

/* 0: the head is shown now. -ENOENT: objects that it needs are gone, among them *lost; there may be
 * a newer head. A head without a state only names the holder of the prefix: the shown state
 * stays. */
static int follow_head(struct remote *remote, const struct head *known, const struct head *head,
                       struct lost_object *lost)
{
    cause_clear();
    *lost = (struct lost_object){0};
    struct follow_step step = {.known = known, .head = head};
    if (head->run_count == 0) {
        remote_head_published(remote, head);
        return 0;
    }
    /* its writer first announced its encodings */
    int r = prefix_meet(&remote->prefix);
    step.encodings = remote->prefix.marker.incompat | head->incompat;
    if (r == 0)
        r = runs_fetch_head(&remote->prefix, head, lost);
    if (r == 0)
        r = have_performed(remote, &step);
    if (r == 0)
        settle(remote, &step);
    vector_free(&step.changed);
    if (r < 0 && !lost->kind)
        explain_failure(remote, head, r);
    return r;
}

/* The newest head lacks a run: looks for a whole one between it and the shown one. */
static int follow_whole_head(struct remote *remote, struct head *known, const struct head *newest,
                             struct lost_object *lost)
{
    _cleanup_free_ struct head *whole = xmalloc(sizeof *whole);
    if (remote->runs.unreadable_head != newest->number)
        explain_failure(remote, newest, -ENOENT);
    remote->runs.unreadable_head = newest->number;
    int r = heads_find_whole(&remote->prefix, known->number, newest->number, lost, whole);
    if (r == 0)
        r = follow_head(remote, known, whole, lost);
    if (r == 0)
        *known = *whole;
    return r == -ENOENT ? 0 : r;
}

/* Looks for a newer head than *known, and shows it. */
static int look_for_head(struct remote *remote, struct head *known)
{
    _cleanup_free_ struct head *head = xmalloc(sizeof *head);
    struct lost_object lost = {0};
    uint64_t lost_of = 0; /* the head that needs *lost */
    int r = 0;
    for (int try = 0; try < TRIES; try++) {
        r = heads_newest(&remote->prefix, known->number, head);
        if (r == -EPROTONOSUPPORT)
            remote_error(remote, 0,
                         "the newest head of %s was written by a newer version of CairnFS: %s; the "
                         "state before it stays shown",
                         remote->prefix.name, cause_text());
        if (r == -ENOENT && try == 0) {
            remote_works(remote);
            r = 0;
            break;
        }
        bool is_lost = r == 0 && head->number == lost_of;
        if (r == 0) {
            remote_works(remote);
            r = is_lost ? follow_whole_head(remote, known, head, &lost)
                        : follow_head(remote, known, head, &lost);
        }
        if (r == 0 && !is_lost) {
            log_debug("remote: following %s: head %llu by %s", remote->prefix.name,
                      (unsigned long long)head->number, head_writer_text(head));
            *known = *head;
        }
        if (!prefix_object_is_lost(r) || !lost.kind)
            break;
        lost_of = head->number;
    }
    if (r == -ENOENT || r == -ETIMEDOUT || (r < 0 && tier_error_is_transient(r)))
        remote_error(remote, r, "looking for a newer head in %s failed (%s)", remote->prefix.name,
                     strerror(-r));
    return r;
}

/* False: the remote must not be used; the reason was logged. */
static bool attach(struct remote *remote)
{
    char *text = NULL;
    struct adoption adoption = adoption_of(remote->store);
    int r = prefix_attach(&remote->prefix, adopt_may, &adoption, &text);
    if (r < 0)
        remote->prefix.is_attached = false;
    if (text)
        remote_hold_off(remote, text);
    free(text);
    return r == 0 || tier_error_is_transient(r);
}

static void look_begins(struct remote *remote)
{
    LOCK_SCOPE(&remote->shared.lock);
    remote->shared.looks_begun++;
}

static void look_is_done(struct remote *remote, bool ended)
{
    LOCK_SCOPE(&remote->shared.lock);
    remote->shared.looks_done = remote->shared.looks_begun;
    remote->shared.looks_ended = ended;
    (void)pthread_cond_broadcast(&remote->shared.changed);
}

void follow_look_now(struct store *store)
{
    struct remote *remote = store->remote;
    if (!local_follows(&store->local) || remote->options.follow_ns == 0)
        return;
    LOCK_SCOPE(&remote->shared.lock);
    uint64_t wanted = remote->shared.looks_begun + 1;
    while (remote->shared.looks_done < wanted && !remote->shared.looks_ended &&
           !remote->shared.stopping) {
        remote_kick_locked(remote);
        (void)mutex_wait(&remote->shared.lock, &remote->shared.changed, -1);
    }
}

void remote_follow_now(struct store *store)
{
    LOCK_SCOPE(&store->remote->shared.lock);
    remote_kick_locked(store->remote);
}

void *follow_main(void *arg)
{
    struct remote *remote = arg;
    int64_t every = remote->options.follow_ns / 1000000;
    _cleanup_free_ struct head *known = xcalloc(1, sizeof *known);
    if (local_head_read(&remote->store->local, known) < 0)
        known->number = 0;
    int64_t pause = every ? every : IDLE_MS;
    while (remote_pause(remote, remote->prefix.is_attached ? pause : RETRY_MS)) {
        pause = every ? every : IDLE_MS;
        look_begins(remote);
        if (!remote->prefix.is_attached && !attach(remote))
            break;
        int r = remote->prefix.is_attached && every ? look_for_head(remote, known) : 0;
        if (r == -ESTALE)
            break;
        if (r < 0)
            pause = every > RETRY_MS ? every : RETRY_MS;
        look_is_done(remote, false);
    }
    look_is_done(remote, true);
    return NULL;
}
