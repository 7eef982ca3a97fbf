// SPDX-License-Identifier: Apache-2.0
/* A store and the newest head of its remote: which of them continues from the other. */
#include "prefix/adopt.h"

#include <unistd.h>

#include "base/cause.h"
#include "base/io.h"
#include "base/log.h"
#include "base/text.h"
#include "commit/journal.h"
#include "commit/session.h"
#include "prefix/heads.h"
#include "prefix/runs.h"
#include "prefix/verdict.h"
#include "view/remote.h"

/* --- a crash in the middle -------------------------------------------------------------------- */

static char *marker_path(const struct local *local)
{
    return xasprintf("%s/adopting", local->path);
}

int adopt_mark(const struct local *local)
{
    _cleanup_free_ char *marker = marker_path(local);
    return io_write_file_durable(marker, "", 0);
}

/* Durable: if the mark existed again after a power cut, later changes would be removed. */
int adopt_unmark(const struct local *local)
{
    _cleanup_free_ char *marker = marker_path(local);
    if (unlink(marker) < 0 && errno != ENOENT)
        return -errno;
    return io_fsync_dir(local->path);
}

/* The packs stay: their chunks need not be fetched again. */
static int forget_local(const struct adoption *adoption)
{
    TRY(local_remove_view(adoption->local));
    TRY(journal_remove_all(adoption->journal));
    return session_forget(adoption->local->path, adoption->local->sb.store);
}

int adopt_clean_up(const struct adoption *adoption, char **ret_text)
{
    _cleanup_free_ char *marker = marker_path(adoption->local);
    if (access(marker, F_OK) < 0)
        return 0;
    log_info("%s stopped while it took over a state of its remote: the view is made anew",
             adoption->local->path);
    int r = forget_local(adoption);
    if (r == 0)
        r = adopt_unmark(adoption->local);
    if (r < 0)
        *ret_text = xasprintf("%s: view and journal of an older state cannot be removed: %s",
                              adoption->local->path, strerror(-r));
    return r;
}

/* --- carrying the verdict out ----------------------------------------------------------------- */

/* Begins with the head, whose runs are here, whatever the store's state was. A head without runs
 * has no state: the view is that of a new store. */
int adopt_begin_with(const struct adoption *adoption, const struct head *head, char **ret_text)
{
    int r = adopt_mark(adoption->local);
    if (r == 0)
        r = forget_local(adoption);
    if (r == 0)
        r = local_head_write(adoption->local, head);
    if (r == 0)
        r = adopt_unmark(adoption->local);
    journal_forget_anchor(adoption->journal);
    if (r == 0 && head->run_count > 0)
        journal_set_anchor(adoption->journal, head);
    if (r < 0)
        *ret_text =
            xasprintf("%s: the state that it holds (head %llu) cannot be taken over: %s",
                      adoption->prefix->name, (unsigned long long)head->number, strerror(-r));
    return r;
}

/* Clears the state of the head: the union has nothing of this node yet. */
static void empty_head(struct head *head)
{
    head->number = head->cut = 0;
    head->run_count = 0;
    memset(head->runs, 0, sizeof head->runs);
    memset(head->chain, 0, sizeof head->chain);
    head->files = head->logical_bytes = head->chunks = head->stored_bytes = 0;
    head->packs = head->pack_bytes = 0;
}

/* Begins with an empty state, since nothing was ever published. */
static int begin_with_nothing(const struct adoption *adoption)
{
    _cleanup_free_ char *head = xasprintf("%s/head", adoption->local->path);
    TRY(adopt_mark(adoption->local));
    TRY(forget_local(adoption));
    journal_forget_anchor(adoption->journal);
    if (unlink(head) < 0 && errno != ENOENT)
        return -errno;
    return adopt_unmark(adoption->local);
}

int adopt_go_back(const struct adoption *adoption, uint64_t number, char **ret_text)
{
    struct prefix *prefix = adoption->prefix;
    struct lost_object lost;
    _cleanup_free_ struct head *whole = xmalloc(sizeof *whole);
    *whole = prefix->head;
    if (whole->number == 0)
        return begin_with_nothing(adoption);
    if (number == 0)
        empty_head(whole);
    else if (number != whole->number)
        TRY(head_read(prefix, number, whole));
    if (whole->run_count > 0)
        TRY(runs_fetch_head(prefix, whole, &lost));
    if (number != prefix->head.number)
        TRY(heads_rest_on(prefix, whole));
    return adopt_begin_with(adoption, &prefix->head, ret_text);
}

/* The journal is of this history and reaches the head's cut or beyond: the view is made from the
 * head, whose runs are here, and then follows the journal. If the head gives up operations that the
 * journal has behind its cut, this is taken back, but not for other stores that continued from
 * there. */
static int go_on_from(const struct adoption *adoption, const struct head *known, struct head *head)
{
    uint64_t cut = journal_found(adoption->journal).cut_seq;
    if (head_is_from_here(adoption->prefix, known) && known->cut <= cut)
        head_take_back(head, known, known->cut);
    else
        head_take_back(head, NULL, cut);
    TRY(local_remove_view(adoption->local));
    TRY(local_head_write(adoption->local, head));
    journal_set_anchor(adoption->journal, head);
    return 0;
}

/* An older head replaces a damaged one only if its number is above this one: the known state
 * continues from the heads before. */
static uint64_t number_before_candidates(const struct adoption *adoption, const struct head *known)
{
    bool looks_back = head_choice_is_made(&adoption->prefix->options->at);
    if (looks_back || !head_is_from_here(adoption->prefix, known))
        return 0;
    if (head_was_published(known))
        return known->number;
    uint64_t gone_back_to = known->given_up[known->given_up_count - 1].first - 1;
    return gone_back_to ? gone_back_to - 1 : 0;
}

/* Returns whether the store went back from this head before, but failed to publish this. Its
 * journal may have continued from there. */
static bool went_back_from(const struct adoption *adoption, const struct head *known,
                           const struct head *head)
{
    return head_is_from_here(adoption->prefix, known) && !head_was_published(known) &&
           head_gave_up(known, head);
}

/* A node that went back continues from the state of that time, even if its remote does not show
 * this yet: the states that it gave up count nowhere. Its next head is based on that state. */
static bool goes_on_from_back_then(const struct adoption *adoption, const struct head *known)
{
    struct head *head = &adoption->prefix->head;
    if (!adoption->is_node || !known || !went_back_from(adoption, known, head))
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

/* Judges the newest head, and makes sure that STORE/runs has the runs that the verdict needs,
 * before anything is changed here or in the remote. If the remote lacks a run, it may have an older
 * head that is whole: prefix->head is set to that one. */
static int judge_and_fetch(const struct adoption *adoption, const struct head *known,
                           enum verdict *ret, char **ret_text)
{
    struct prefix *prefix = adoption->prefix;
    struct lost_object lost;
    uint64_t after = number_before_candidates(adoption, known);
    for (;;) {
        *ret = verdict_of(prefix, adoption->journal, known, &prefix->head);
        bool may_go_back = *ret == VERDICT_REFUSE && went_back_from(adoption, known, &prefix->head);
        if (*ret != VERDICT_BEGIN && *ret != VERDICT_GO_ON && !may_go_back)
            return 0;
        int r = runs_fetch_head(prefix, &prefix->head, &lost);
        if (!prefix_object_is_lost(r))
            return r;
        _cleanup_free_ char *why = xstrdup(cause_text());
        TRY(heads_go_back(prefix, after, &lost, why, ret_text));
    }
}

static int settle_adoption(const struct adoption *adoption, const struct head *known,
                           char **ret_text)
{
    enum verdict verdict;
    struct head *head = &adoption->prefix->head;
    int r = judge_and_fetch(adoption, known, &verdict, ret_text);
    if (r < 0 && !*ret_text)
        *ret_text =
            xasprintf("%s: the state that it holds (head %llu) cannot be taken over: %s",
                      adoption->prefix->name, (unsigned long long)head->number, strerror(-r));
    if (r < 0)
        return r;
    switch (verdict) {
    case VERDICT_KEEP:
        return local_head_write(adoption->local, head);
    case VERDICT_GO_ON:
        return go_on_from(adoption, known, head);
    case VERDICT_BEGIN:
        if (known)
            log_info("%s went on since this store published last (head %llu): going on from there",
                     adoption->prefix->name, (unsigned long long)head->number);
        return adopt_begin_with(adoption, head, ret_text);
    default:
        *ret_text = verdict_explain(adoption->prefix, known, head, verdict);
        return verdict == VERDICT_DAMAGED ? -EUCLEAN : -ESTALE;
    }
}

/* Reads the head that the store knows, and with it where its journal begins. False: it knows
 * none. */
static bool read_known(const struct adoption *adoption, struct head *known)
{
    int r = local_head_read(adoption->local, known);
    if (r < 0 && r != -ENOENT)
        log_warn("%s/head cannot be read (%s)", adoption->local->path, strerror(-r));
    if (r == 0 && known->run_count > 0)
        journal_set_anchor(adoption->journal, known);
    return r == 0;
}

bool adopt_is_blank(const struct adoption *adoption)
{
    _cleanup_free_ struct head *known = xmalloc(sizeof *known);
    bool has_known = read_known(adoption, known);
    return !has_known && journal_read(adoption->journal, 0, NULL, NULL) == 0 &&
           journal_found(adoption->journal).is_empty;
}

int adopt_decide(const struct adoption *adoption, char **ret_text)
{
    const struct prefix *prefix = adoption->prefix;
    _cleanup_free_ struct head *known = xmalloc(sizeof *known);
    bool has_known = read_known(adoption, known);
    /* A head without a state only names the holder of the prefix. */
    bool has_state = prefix && prefix->is_attached && prefix->head.run_count > 0;
    /* A writer's store has more than the newest head. */
    bool looks_back = has_state && head_choice_is_made(&prefix->options->at);
    if (!has_state || goes_on_from_back_then(adoption, has_known ? known : NULL))
        return 0;
    if (!looks_back && has_known &&
        memcmp(known->nonce, prefix->head.nonce, sizeof known->nonce) == 0)
        return 0;
    return settle_adoption(adoption, has_known ? known : NULL, ret_text);
}

/* Before the store begins with the newest head: checks that the head it published itself is still
 * the same. */
static int check_known_number(struct prefix *prefix, const struct head *known,
                              enum verdict *verdict)
{
    bool other = false;
    int r = *verdict == VERDICT_BEGIN && known ? head_check_number(prefix, known, &other) : 0;
    if (other)
        *verdict = VERDICT_REFUSE;
    return r;
}

int adopt_may(void *arg, char **ret_text)
{
    const struct adoption *adoption = arg;
    struct prefix *prefix = adoption->prefix;
    _cleanup_free_ struct head *read = xmalloc(sizeof *read);
    const struct head *known = read_known(adoption, read) ? read : NULL;
    enum verdict verdict = VERDICT_KEEP;
    if (goes_on_from_back_then(adoption, known))
        return 0;
    TRY(older_judge(adoption, known, ret_text));
    if (prefix->head.run_count > 0)
        TRY(judge_and_fetch(adoption, known, &verdict, ret_text));
    TRY(check_known_number(prefix, known, &verdict));
    if (verdict == VERDICT_KEEP || verdict == VERDICT_BEGIN || verdict == VERDICT_GO_ON)
        return 0;
    *ret_text = verdict_explain(prefix, known, &prefix->head, verdict);
    return verdict == VERDICT_DAMAGED ? -EUCLEAN : -ESTALE;
}

static int report_all_of_head(const struct adoption *adoption, const struct head *head)
{
    log_info("remote: head %llu was published and not noted: the next one names everything anew",
             (unsigned long long)head->number);
    int r = room_for_view(adoption->prefix->room);
    return r < 0 ? r : view_report_all(adoption->local->view);
}

int adopt_is_consistent(void *arg, char **ret_text)
{
    const struct adoption *adoption = arg;
    struct prefix *prefix = adoption->prefix;
    const struct head *head = &prefix->head;
    _cleanup_free_ struct head *known = xmalloc(sizeof *known);
    bool knows = local_head_read(adoption->local, known) == 0 && !local_head_is_lost(known);
    if (goes_on_from_back_then(adoption, knows ? known : NULL))
        return 0;
    bool is_known = knows && (memcmp(known->nonce, head->nonce, sizeof known->nonce) == 0 ||
                              head_same_state(known, head));
    bool is_ours = !head_is_theirs(adoption->local, head);
    bool has_other = head->run_count > 0 && !is_known;
    /* Creating the head seemed to fail at the mount: a claim has the state that we know, a
     * take-over may have another writer's. */
    bool is_own_try = tried_is_own(prefix, head);
    if (knows && is_ours && head->number < known->number)
        /* A stale listing. Heads that are not shown would be taken for the next ones. */
        return text_fail(ret_text, -ESTALE,
                         "%s shows head %llu, but this store published head %llu there; if it lost "
                         "what came later, unmount and mount again",
                         prefix->name, (unsigned long long)head->number,
                         (unsigned long long)known->number);
    if (is_own_try && (is_ours || !has_other))
        /* No other head came between. A predecessor may have been killed before it noted its head:
         * the view's marks were made against the head before. */
        return has_other ? report_all_of_head(adoption, head) : 0;
    if (has_other && !is_own_try && !(knows && is_ours)) {
        bool is_given_up = knows && head_was_given_up(prefix, known, head);
        *ret_text =
            verdict_explain(prefix, known, head, is_given_up ? VERDICT_GIVEN_UP : VERDICT_REFUSE);
        return -ESTALE;
    }
    /* Another store may assign the numbers of our epoch. */
    if (has_other || (head->number > 0 && head->epoch >= adoption->local->epoch))
        return text_fail(ret_text, -ESTALE,
                         "%s has a head that this store does not remember: mount again to go on "
                         "from it",
                         prefix->name);
    return 0;
}

bool adopt_is_lost_for_good(const struct adoption *adoption, int error)
{
    _cleanup_free_ struct head *known = xmalloc(sizeof *known);
    bool is_older = prefix_known_head(adoption->prefix, known) &&
                    adoption->prefix->head.number <= known->number;
    if (error == -ESTALE)
        return !is_older;
    return error != -EBUSY && !adoption->local->options.adopting;
}
