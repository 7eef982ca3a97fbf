// SPDX-License-Identifier: Apache-2.0
/* Judges how a store and the newest head of its remote fit together. A store begins with the head's
 * state only if that continues from everything that the store has: no data is discarded unless the
 * user asked for it. */
#include "prefix/verdict.h"

#include <unistd.h>

#include "base/log.h"
#include "commit/journal.h"
#include "commit/session.h"
#include "prefix/heads.h"
#include "view/view.h"

/* --- state of the journal --------------------------------------------------------------------- */

struct judging {
    struct prefix *prefix;
    struct journal *journal;
    const struct head *known; /* NULL: none */
    const struct head *head;
    bool is_ours;  /* this store published the head's state */
    bool was_here; /* the known head was published in this remote */
    bool is_own;   /* and by this store */

    uint64_t known_cut; /* of the known head, if it was published here */
    bool found;         /* the journal has the head's cut */
    bool has_news;      /* the journal, or the rest of a stage, has operations after known_cut */
    bool has_stage;     /* a dead daemon left a stage */
    size_t batches;
    struct journal_found end;
};

int batch_each_record(const struct journal_batch *batch,
                      void (*fn)(const struct record *rec, void *arg), void *arg)
{
    size_t at = 0, len;
    struct record rec;
    for (; at < batch->header.payload_len; at += len) {
        TRY(record_decode((const char *)batch->records + at, batch->header.payload_len - at, &rec,
                          &len));
        fn(&rec, arg);
    }
    return 0;
}

/* The place of content, and the time when it was read, are no changes that would have to be kept
 * against another writer's state. */
static bool is_newsworthy(const struct record *rec)
{
    bool is_access = rec->type == REC_SETATTR && rec->mask == ATTR_ATIME;
    return rec->type != REC_PACK && rec->type != REC_DROP && !is_access;
}

static void look_at_record(const struct record *rec, void *arg)
{
    struct judging *j = arg;
    j->has_news = j->has_news || is_newsworthy(rec);
}

static int look_at_batch(const struct journal_batch *batch, void *arg)
{
    struct judging *j = arg;
    j->batches++;
    if (batch->header.cut_seq == j->head->cut &&
        memcmp(batch->chain, j->head->chain, CHAIN_LEN) == 0)
        j->found = true;
    /* Batches before the first one may have been removed. */
    if (batch->header.base_seq == j->head->cut &&
        memcmp(batch->header.prev, j->head->chain, CHAIN_LEN) == 0)
        j->found = true;
    return batch->header.cut_seq > j->known_cut ? batch_each_record(batch, look_at_record, j) : 0;
}

bool head_is_from_here(const struct prefix *prefix, const struct head *known)
{
    _cleanup_free_ char *name = local_remote_name(prefix->local);
    return known && !local_head_is_lost(known) && (!name || strcmp(name, prefix->name) == 0);
}

static bool same_writers(const struct head *a, const struct head *b)
{
    if (a->writer_count != b->writer_count)
        return false;
    for (uint32_t i = 0; i < a->writer_count; i++)
        if (memcmp(a->writers[i].feed_hash, b->writers[i].feed_hash,
                   sizeof a->writers[i].feed_hash) != 0)
            return false;
    return true;
}

bool head_same_state(const struct head *a, const struct head *b)
{
    if (a->cut != b->cut || a->run_count != b->run_count ||
        memcmp(a->chain, b->chain, CHAIN_LEN) != 0)
        return false;
    for (uint32_t i = 0; i < a->run_count; i++)
        if (a->runs[i].id != b->runs[i].id)
            return false;
    return same_writers(a, b);
}

int prefix_look_at_view(const struct prefix *prefix, struct view **ret_view)
{
    _cleanup_free_ char *path = xasprintf("%s/view", prefix->local->path);
    struct view_options options = {.cache_bytes = VIEW_CACHE_BYTES};
    if (access(path, F_OK) < 0 && errno == ENOENT)
        return -ENOENT;
    int r = room_for_view(prefix->room);
    if (r == 0)
        r = view_open(path, &options, prefix->local->sb.created, ret_view);
    if (r < 0)
        log_warn("%s cannot be read: %s", path, strerror(-r));
    return r;
}

/* The view follows only durable operations: it may be ahead of the journal, which ends where it is
 * damaged, and ahead of a head of ours. A directory that is no view has nothing; a view that cannot
 * be read just now may be ahead. */
static bool view_may_be_ahead(const struct judging *j)
{
    uint64_t published = j->is_ours ? j->head->cut : 0;
    struct view *view;
    int r = prefix_look_at_view(j->prefix, &view);
    if (r < 0)
        return r != -ENOENT && r != -EUCLEAN && r != -ESTALE;
    uint64_t applied = view_state(view).applied_seq;
    view_close(view);
    return applied > max_u64(journal_found(j->journal).cut_seq, published);
}

/* False: the store's state is not known. */
static bool look_at_journal_and_view(struct judging *j)
{
    if (journal_read(j->journal, 0, look_at_batch, j) < 0 || view_may_be_ahead(j))
        return false;
    j->end = journal_found(j->journal);
    j->has_stage = session_left_stage(j->prefix->local->path, j->prefix->local->sb.store);
    j->has_news = j->has_news || j->has_stage;
    return true;
}

/* --- the verdict ------------------------------------------------------------------------------ */

static bool has_nothing(const struct judging *j)
{
    return j->batches == 0 && !j->known && j->end.is_empty;
}

/* Returns whether the head's cut is one of the journal's, so that all later operations of this
 * store stay. */
static bool may_go_on(const struct judging *j)
{
    bool ends_there =
        j->end.cut_seq == j->head->cut && memcmp(j->end.chain, j->head->chain, CHAIN_LEN) == 0;
    return (j->found || ends_there) &&
           (j->is_ours || !j->has_news || j->end.cut_seq == j->head->cut);
}

bool head_was_published(const struct head *known)
{
    uint32_t count = known->given_up_count;
    return count == 0 || known->given_up[count - 1].last != known->number;
}

/* Numbers ascend, and each is assigned once. */
static bool is_replaced(const struct judging *j)
{
    return j->is_own && head_was_published(j->known) && j->head->number <= j->known->number &&
           memcmp(j->head->nonce, j->known->nonce, sizeof j->known->nonce) != 0;
}

/* Returns whether the head's state continues from the one that this store published, or knows to be
 * published. If this store published a newer one than the head's, the remote lost heads: false. */
static bool is_continued(const struct judging *j)
{
    return j->was_here && !is_replaced(j) && (j->head->cut >= j->known->cut || !j->is_own) &&
           j->end.cut_seq >= j->known->cut;
}

bool head_was_given_up(const struct prefix *prefix, const struct head *known,
                       const struct head *head)
{
    return head_is_from_here(prefix, known) && head_gave_up(head, known) &&
           !head_is_theirs(prefix->local, known);
}

static enum verdict judge_store(struct judging *j)
{
    if (j->known && !local_head_is_lost(j->known) && head_same_state(j->known, j->head))
        return VERDICT_KEEP;
    if (!look_at_journal_and_view(j))
        return VERDICT_DAMAGED;
    if (has_nothing(j))
        return VERDICT_BEGIN;
    if (may_go_on(j))
        return VERDICT_GO_ON;
    if (head_was_given_up(j->prefix, j->known, j->head))
        return VERDICT_GIVEN_UP;
    /* Staged operations follow operations that the journal has lost. */
    if (j->is_ours && j->end.cut_seq < j->head->cut)
        return j->has_stage ? VERDICT_DAMAGED : VERDICT_BEGIN;
    if (j->has_news || !is_continued(j))
        return VERDICT_REFUSE;
    if (head_gave_up(j->head, j->known))
        log_warn("%s: head %llu, whose state this store has from there, was given up since",
                 j->prefix->name, (unsigned long long)j->known->number);
    return VERDICT_BEGIN;
}

/* An older state replaces the state of a store that has only read from this remote. */
static enum verdict judge_to_look_back(struct judging *j)
{
    bool is_reader = j->was_here && !j->is_own;
    if (!look_at_journal_and_view(j))
        return VERDICT_DAMAGED;
    if (has_nothing(j))
        return VERDICT_BEGIN;
    if (!is_reader || j->has_news)
        return VERDICT_REFUSE;
    return head_same_state(j->known, j->head) ? VERDICT_KEEP : VERDICT_BEGIN;
}

enum verdict verdict_of(struct prefix *prefix, struct journal *journal, const struct head *known,
                        const struct head *head)
{
    struct judging j = {.prefix = prefix, .journal = journal, .known = known, .head = head};
    j.is_ours = !head_is_theirs(prefix->local, head);
    j.was_here = head_is_from_here(prefix, known);
    j.is_own = j.was_here && !head_is_theirs(prefix->local, known);
    j.known_cut = j.was_here ? known->cut : 0;
    return head_choice_is_made(&prefix->options->at) ? judge_to_look_back(&j) : judge_store(&j);
}

int head_check_number(struct prefix *prefix, const struct head *known, bool *ret_other)
{
    _cleanup_free_ struct head *there = xmalloc(sizeof *there);
    bool is_own = head_is_from_here(prefix, known) && head_was_published(known) &&
                  !head_is_theirs(prefix->local, known) &&
                  head_is_theirs(prefix->local, &prefix->head);
    int r = is_own ? head_read(prefix, known->number, there) : -ENOENT;
    *ret_other = r == 0 && memcmp(there->nonce, known->nonce, sizeof there->nonce) != 0;
    return prefix_object_is_lost(r) ? 0 : r;
}

/* --- messages --- */

static char *explain_other(const struct prefix *prefix, const struct head *head)
{
    if (!head_is_theirs(prefix->local, head))
        return xasprintf("the newest head of %s (%llu) is of another state than this store ever "
                         "published there, or of an "
                         "older one, and %s has data that is not in it; mount it without --remote "
                         "to copy them, and give "
                         "an empty STORE to go on from the remote",
                         prefix->name, (unsigned long long)head->number, prefix->local->path);
    if (!prefix->local->stage && session_left_stage(prefix->local->path, prefix->local->sb.store))
        return xasprintf("%s went on without this store: %s published head %llu, and the stage "
                         "that %s left when it died may have "
                         "data that was never published; mount it without --remote once: what "
                         "there is can be copied then, and "
                         "without any it goes on from the remote the next time",
                         prefix->name, head_writer_text(head), (unsigned long long)head->number,
                         prefix->local->path);
    return xasprintf(
        "%s went on without this store: %s published head %llu, and %s has data that is not in "
        "it; mount it without --remote to copy them, and give an empty STORE to go on from "
        "the remote",
        prefix->name, head_writer_text(head), (unsigned long long)head->number,
        prefix->local->path);
}

static char *explain_unknown(const struct prefix *prefix)
{
    return xasprintf("%s: the journal is damaged, or it or the view cannot be read (see the log): "
                     "what is there that %s has not is not "
                     "known; nothing was changed; mount it without --remote to copy its files",
                     prefix->local->path, prefix->name);
}

static char *explain_given_up(const struct prefix *prefix, const struct head *known,
                              const struct head *head)
{
    const struct head_given_up *given_up = head_gave_up(head, known);
    char when[HEAD_TIME_LEN], of[HEAD_TIME_LEN];
    check(given_up);
    head_time_text(given_up->time, when);
    head_time_text(known->published, of);
    return xasprintf(
        "%s: head %llu of %s, which this store published, was given up there: since %s a mount "
        "with --rollback goes on from an older state, now at head %llu by %s. %s has the state of "
        "head %llu (%llu files, %.1f MiB), and would lose what is not in the remote's. Nothing was "
        "changed. To copy its files, mount it without --remote; to publish its state elsewhere, "
        "mount it with an empty prefix; to go on from the remote without it, give an empty STORE",
        prefix->name, (unsigned long long)known->number, of, when, (unsigned long long)head->number,
        head_writer_text(head), prefix->local->path, (unsigned long long)known->number,
        (unsigned long long)known->files, (double)known->logical_bytes / MIB);
}

static char *explain_not_a_reader(const struct prefix *prefix)
{
    return xasprintf("%s has a state of its own: a mount with -o at= shows an older one of %s, and "
                     "needs a STORE of its own; give an empty directory. Nothing was changed",
                     prefix->local->path, prefix->name);
}

char *verdict_explain(const struct prefix *prefix, const struct head *known,
                      const struct head *head, enum verdict verdict)
{
    bool looks_back = head_choice_is_made(&prefix->options->at);
    return verdict == VERDICT_DAMAGED    ? explain_unknown(prefix)
           : looks_back                  ? explain_not_a_reader(prefix)
           : verdict == VERDICT_GIVEN_UP ? explain_given_up(prefix, known, head)
                                         : explain_other(prefix, head);
}
