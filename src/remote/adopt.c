// SPDX-License-Identifier: Apache-2.0
/* A store and the newest head of its remote: which of them goes on from the other. */
#include <stdio.h>
#include <unistd.h>

#include "base/cause.h"
#include "base/io.h"
#include "base/log.h"
#include "base/vector.h"
#include "commit/session.h"
#include "remote/internal.h"
#include "prefix/verdict.h"

/* --- a crash in the middle -------------------------------------------------------------------- */

static char *marker_path(const struct store *store)
{
    return xasprintf("%s/adopting", store->local.path);
}

int adopt_mark(const struct store *store)
{
    _cleanup_free_ char *marker = marker_path(store);
    return io_write_file_durable(marker, "", 0);
}

/* Durably: were it there again after a power cut, what came since would be removed. */
int adopt_unmark(const struct store *store)
{
    _cleanup_free_ char *marker = marker_path(store);
    if (unlink(marker) < 0 && errno != ENOENT)
        return -errno;
    return io_fsync_dir(store->local.path);
}

/* The packs stay: what they hold need not be fetched again. */
static int forget_local(struct store *store)
{
    int r = local_remove_view(&store->local);
    if (r == 0)
        r = journal_remove_all(store->commit.journal);
    return r < 0 ? r : session_forget(store->local.path, store->local.sb.store);
}

int adopt_clean_up(struct store *store, char **ret_text)
{
    _cleanup_free_ char *marker = marker_path(store);
    if (access(marker, F_OK) < 0)
        return 0;
    log_info("%s stopped while it took over a state of its remote: the view is made anew",
             store->local.path);
    int r = forget_local(store);
    if (r == 0)
        r = adopt_unmark(store);
    if (r < 0)
        *ret_text = xasprintf("%s: view and journal of an older state cannot be removed: %s",
                              store->local.path, strerror(-r));
    return r;
}

/* --- carrying the verdict out ----------------------------------------------------------------- */

/* Begins with the head, whose runs are here, whatever else was. One without runs has no state: the
 * view is that of a new store. */
int adopt_begin_with(struct store *store, const struct head *head, char **ret_text)
{
    int r = adopt_mark(store);
    if (r == 0)
        r = forget_local(store);
    if (r == 0)
        r = local_head_write(&store->local, head);
    if (r == 0)
        r = adopt_unmark(store);
    journal_forget_anchor(store->commit.journal);
    if (r == 0 && head->run_count > 0)
        journal_set_anchor(store->commit.journal, head);
    if (r < 0)
        *ret_text =
            xasprintf("%s: the state that it holds (head %llu) cannot be taken over: %s",
                      store->remote->prefix.name, (unsigned long long)head->number, strerror(-r));
    return r;
}

/* The union has nothing of it yet. */
static void empty_head(struct head *head)
{
    head->number = head->cut = 0;
    head->run_count = 0;
    memset(head->runs, 0, sizeof head->runs);
    memset(head->chain, 0, sizeof head->chain);
    head->files = head->logical_bytes = head->chunks = head->stored_bytes = 0;
    head->packs = head->pack_bytes = 0;
}

/* Nothing was ever published. */
static int begin_with_nothing(struct store *store)
{
    _cleanup_free_ char *head = xasprintf("%s/head", store->local.path);
    TRY(adopt_mark(store));
    TRY(forget_local(store));
    journal_forget_anchor(store->commit.journal);
    if (unlink(head) < 0 && errno != ENOENT)
        return -errno;
    return adopt_unmark(store);
}

int remote_go_back(struct remote *remote, uint64_t number, char **ret_text)
{
    struct prefix *prefix = &remote->prefix;
    struct lost_object lost;
    _cleanup_free_ struct head *whole = xmalloc(sizeof *whole);
    *whole = prefix->head;
    if (whole->number == 0)
        return begin_with_nothing(remote->store);
    if (number == 0)
        empty_head(whole);
    else if (number != whole->number)
        TRY(head_read(prefix, number, whole));
    if (whole->run_count > 0)
        TRY(runs_fetch_head(prefix, whole, &lost));
    if (number != prefix->head.number)
        TRY(heads_rest_on(prefix, whole));
    return adopt_begin_with(remote->store, &prefix->head, ret_text);
}

/* The journal is of this history and goes up to the head's cut or beyond: the view is made from the
 * head, whose runs are here, then follows it. If the head gives up what the journal has behind its
 * cut, that is taken back; but not what stores had that went on from there. */
static int go_on_from(struct store *store, const struct head *known, struct head *head)
{
    uint64_t cut = journal_found(store->commit.journal).cut_seq;
    if (head_is_from_here(&store->remote->prefix, known) && known->cut <= cut)
        head_take_back(head, known, known->cut);
    else
        head_take_back(head, NULL, cut);
    int r = local_remove_view(&store->local);
    if (r == 0)
        r = local_head_write(&store->local, head);
    if (r == 0)
        journal_set_anchor(store->commit.journal, head);
    return r;
}

/* An older head takes the place of a damaged one only if its number is above this: the known state
 * goes on from the heads before. */
static uint64_t number_before_candidates(const struct store *store, const struct head *known)
{
    bool looks_back = head_choice_is_made(&store->remote->options.at);
    if (looks_back || !head_is_from_here(&store->remote->prefix, known))
        return 0;
    if (head_was_published(known))
        return known->number;
    uint64_t gone_back_to = known->given_up[known->given_up_count - 1].first - 1;
    return gone_back_to ? gone_back_to - 1 : 0;
}

/* Did the store go back from this head before, and fail to publish that it did? Its journal may go
 * on from there since. */
static bool went_back_from(const struct store *store, const struct head *known,
                           const struct head *head)
{
    return head_is_from_here(&store->remote->prefix, known) && !head_was_published(known) &&
           head_gave_up(known, head);
}

/* A node that went back goes on from the state of then, whether or not its remote says so yet: what
 * it gave up counts nowhere. The next head rests on it. */
static bool goes_on_from_back_then(struct store *store, const struct head *known)
{
    struct head *head = &store->remote->prefix.head;
    if (!store->node || !known || !went_back_from(store, known, head))
        return false;
    struct head newest = *head;
    *head = *known;
    head->number = max_u64(known->number, newest.number);
    head->epoch = max_u64(known->epoch, newest.epoch);
    head->max_ino = max_u64(known->max_ino, newest.max_ino);
    head->max_id = max_u64(known->max_id, newest.max_id);
    struct head_given_up *last = &head->given_up[head->given_up_count - 1];
    last->last = head->number;
    last->epoch = max_u64(last->epoch, head->epoch);
    return true;
}

/* Judges the newest head, and makes sure that STORE/runs has what the verdict needs: before
 * anything is changed here or there. A remote that lacks a run of it may have an older head that is
 * whole: remote->prefix.head is that one then. */
static int judge_and_fetch(struct store *store, const struct head *known, enum verdict *ret,
                           char **ret_text)
{
    struct remote *remote = store->remote;
    struct lost_object lost;
    uint64_t after = number_before_candidates(store, known);
    for (;;) {
        *ret = verdict_of(&remote->prefix, store->commit.journal, known, &remote->prefix.head);
        bool may_go_back =
            *ret == VERDICT_REFUSE && went_back_from(store, known, &remote->prefix.head);
        if (*ret != VERDICT_BEGIN && *ret != VERDICT_GO_ON && !may_go_back)
            return 0;
        int r = runs_fetch_head(&remote->prefix, &remote->prefix.head, &lost);
        if (!prefix_object_is_lost(r))
            return r;
        _cleanup_free_ char *why = xstrdup(cause_text());
        TRY(heads_go_back(&remote->prefix, after, &lost, why, ret_text));
    }
}

static int settle_adoption(struct store *store, const struct head *known, char **ret_text)
{
    enum verdict verdict;
    struct head *head = &store->remote->prefix.head;
    int r = judge_and_fetch(store, known, &verdict, ret_text);
    if (r < 0 && !*ret_text)
        *ret_text =
            xasprintf("%s: the state that it holds (head %llu) cannot be taken over: %s",
                      store->remote->prefix.name, (unsigned long long)head->number, strerror(-r));
    if (r < 0)
        return r;
    switch (verdict) {
    case VERDICT_KEEP:
        return local_head_write(&store->local, head);
    case VERDICT_GO_ON:
        return go_on_from(store, known, head);
    case VERDICT_BEGIN:
        if (known)
            log_info("%s went on since this store published last (head %llu): going on from there",
                     store->remote->prefix.name, (unsigned long long)head->number);
        return adopt_begin_with(store, head, ret_text);
    default:
        *ret_text = verdict_explain(&store->remote->prefix, known, head, verdict);
        return verdict == VERDICT_DAMAGED ? -EUCLEAN : -ESTALE;
    }
}

/* The head that the store knows, and with it where its journal begins. False: it knows none. */
static bool read_known(struct store *store, struct head *known)
{
    int r = local_head_read(&store->local, known);
    if (r < 0 && r != -ENOENT)
        log_warn("%s/head cannot be read (%s)", store->local.path, strerror(-r));
    if (r == 0 && known->run_count > 0)
        journal_set_anchor(store->commit.journal, known);
    return r == 0;
}

static int note_batch(const struct journal_batch *batch, void *arg)
{
    (void)batch;
    (void)arg;
    return 0;
}

bool adopt_is_blank(struct store *store)
{
    _cleanup_free_ struct head *known = xmalloc(sizeof *known);
    bool has_known = read_known(store, known);
    return !has_known && journal_read(store->commit.journal, 0, note_batch, NULL) == 0 &&
           journal_found(store->commit.journal).is_empty;
}

int adopt_decide(struct store *store, char **ret_text)
{
    const struct remote *remote = store->remote;
    _cleanup_free_ struct head *known = xmalloc(sizeof *known);
    bool has_known = read_known(store, known);
    /* A head without a state only names the holder of the prefix. */
    bool has_state = remote && remote->prefix.is_attached && remote->prefix.head.run_count > 0;
    int r = 0;
    /* A writer's store has more than the newest head says. */
    bool looks_back = has_state && head_choice_is_made(&remote->options.at);
    if (has_state && goes_on_from_back_then(store, has_known ? known : NULL))
        return 0;
    if (has_state && (looks_back || !has_known ||
                      memcmp(known->nonce, remote->prefix.head.nonce, sizeof known->nonce) != 0))
        r = settle_adoption(store, has_known ? known : NULL, ret_text);
    return r;
}

/* Before the store begins with the newest head: is the one that it published still that one? */
static int check_known_number(struct remote *remote, const struct head *known,
                              enum verdict *verdict)
{
    bool other = false;
    int r =
        *verdict == VERDICT_BEGIN && known ? head_check_number(&remote->prefix, known, &other) : 0;
    if (other)
        *verdict = VERDICT_REFUSE;
    return r;
}

int adopt_may(void *arg, char **ret_text)
{
    struct remote *remote = arg;
    struct store *store = remote->store;
    _cleanup_free_ struct head *read = xmalloc(sizeof *read);
    const struct head *known = read_known(store, read) ? read : NULL;
    enum verdict verdict = VERDICT_KEEP;
    if (goes_on_from_back_then(store, known))
        return 0;
    int r = older_judge(remote, known, ret_text);
    if (r == 0 && remote->prefix.head.run_count > 0)
        r = judge_and_fetch(store, known, &verdict, ret_text);
    if (r == 0)
        r = check_known_number(remote, known, &verdict);
    bool is_refused =
        verdict != VERDICT_KEEP && verdict != VERDICT_BEGIN && verdict != VERDICT_GO_ON;
    if (r == 0 && is_refused) {
        *ret_text = verdict_explain(&store->remote->prefix, known, &remote->prefix.head, verdict);
        r = verdict == VERDICT_DAMAGED ? -EUCLEAN : -ESTALE;
    }
    return r;
}

static int report_all_of_head(struct store *store, const struct head *head)
{
    log_info("remote: head %llu was published and not noted: the next one names everything anew",
             (unsigned long long)head->number);
    int r = room_for_view(store->commit.room);
    return r < 0 ? r : view_report_all(store->local.view);
}

int adopt_is_consistent(void *arg, char **ret_text)
{
    struct remote *remote = arg;
    struct store *store = remote->store;
    const struct head *head = &remote->prefix.head;
    _cleanup_free_ struct head *known = xmalloc(sizeof *known);
    bool knows = local_head_read(&store->local, known) == 0 && !local_head_is_lost(known);
    if (goes_on_from_back_then(store, knows ? known : NULL))
        return 0;
    bool is_known = knows && (memcmp(known->nonce, head->nonce, sizeof known->nonce) == 0 ||
                              head_same_state(known, head));
    bool is_ours = !head_is_theirs(&store->local, head);
    bool has_other = head->run_count > 0 && !is_known;
    /* Publishing it seemed to fail at mount: a claim has the state that we know, a take-over may
     * have another writer's. */
    bool is_own_try = tried_is_own(&remote->prefix, head);
    bool is_older = knows && is_ours && head->number < known->number;
    int r = 0;
    if (is_older) {
        /* A stale listing. Heads that are not shown would be taken for those that come next. */
        *ret_text = xasprintf(
            "%s shows head %llu, but this store published head %llu there; if it lost what "
            "came later, unmount and mount again",
            remote->prefix.name, (unsigned long long)head->number,
            (unsigned long long)known->number);
    } else if (is_own_try && (is_ours || !has_other)) {
        /* Nothing came between. A predecessor may have been killed before it noted its head: the
         * view's marks were made against the head before. */
        r = has_other ? report_all_of_head(store, head) : 0;
    } else if (has_other && !is_own_try && !(knows && is_ours)) {
        bool is_given_up = knows && head_was_given_up(&store->remote->prefix, known, head);
        *ret_text = verdict_explain(&store->remote->prefix, known, head,
                                    is_given_up ? VERDICT_GIVEN_UP : VERDICT_REFUSE);
    } else if (has_other || (head->number > 0 && head->epoch >= store->local.epoch)) {
        /* Another store may give out the numbers of our epoch. */
        *ret_text = xasprintf(
            "%s has a head that this store does not remember: mount again to go on from it",
            remote->prefix.name);
    }
    return *ret_text ? -ESTALE : r;
}

bool adopt_is_lost_for_good(struct remote *remote, int error)
{
    _cleanup_free_ struct head *known = xmalloc(sizeof *known);
    bool is_older =
        prefix_known_head(&remote->prefix, known) && remote->prefix.head.number <= known->number;
    if (error == -ESTALE)
        return !is_older;
    return error != -EBUSY && !remote->store->local.options.adopting;
}
