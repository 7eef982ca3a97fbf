// SPDX-License-Identifier: Apache-2.0
/* A store and the newest head of its remote: which of them goes on from the other, and a view made
 * from a head's runs. */
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cause.h"
#include "base/io.h"
#include "base/log.h"
#include "base/vector.h"
#include "commit/session.h"
#include "remote/internal.h"
#include "remote/prefix.h"

/* --- the view of a head ----------------------------------------------------------------------- */

static int adopt_row(const struct run_row *row, void *arg)
{
    return view_adopt_row(arg, row);
}

static int adopt_rows(struct store *store, const struct head *head)
{
    struct view_adoption *adoption = NULL;
    struct view_state state = {.applied_seq = head->cut,
                               .max_ino = head->max_ino,
                               .files = head->files,
                               .logical_bytes = head->logical_bytes};
    memcpy(state.chain, head->chain, sizeof state.chain);
    int r = view_adopt_begin(store->view, &adoption);
    if (r == 0)
        r = runs_read(store, head, adopt_row, adoption);
    if (r == 0)
        r = view_adopt_end(adoption, &state, head->number, head->max_id);
    view_adopt_done(adoption);
    return r;
}

struct later {
    uint64_t after;
    VECTOR(uint64_t) made, dropped;
};

static bool has_id(const uint64_t *list, size_t count, uint64_t id)
{
    for (size_t i = 0; i < count; i++)
        if (list[i] == id)
            return true;
    return false;
}

static int each_record(const struct journal_batch *batch,
                       void (*fn)(const struct record *rec, void *arg), void *arg)
{
    size_t at = 0, len;
    struct record rec;
    for (; at < batch->header.payload_len; at += len) {
        int r = record_decode((const char *)batch->records + at, batch->header.payload_len - at,
                              &rec, &len);
        if (r < 0)
            return r;
        fn(&rec, arg);
    }
    return 0;
}

static void adopt_note_pack(const struct record *rec, void *arg)
{
    struct later *later = arg;
    if (rec->type == REC_PACK)
        vector_add(&later->made, rec->pack);
    if (rec->type == REC_DROP)
        vector_add(&later->dropped, rec->pack);
}

/* Packs that come and go after the head's cut are the journal's business. */
static int note_later(const struct journal_batch *batch, void *arg)
{
    const struct later *later = arg;
    return batch->header.cut_seq > later->after ? each_record(batch, adopt_note_pack, arg) : 0;
}

struct whole_pack {
    uint64_t id, length;
};

struct registering {
    struct store *store;
    const struct later *later;
    const struct head *head;
    VECTOR(struct whole_pack) packs;
};

static int count_adopted_entry(const struct chunk_entry *entry, void *arg)
{
    (void)entry;
    (*(uint32_t *)arg)++;
    return 0;
}

typedef int pack_index_fn(uint64_t pack, int (*fn)(const struct chunk_entry *entry, void *fn_arg),
                          void *fn_arg, void *arg);

/* Its file may be there still: the power may have gone between the batch that drops it and the
 * removal. */
static int index_of_dropped(uint64_t pack, int (*fn)(const struct chunk_entry *entry, void *fn_arg),
                            void *fn_arg, void *arg)
{
    (void)pack;
    (void)fn;
    (void)fn_arg;
    (void)arg;
    return -ENOENT;
}

static int register_pack(struct registering *reg, const struct whole_pack *pack, uint32_t count,
                         pack_index_fn *index)
{
    struct record rec = {.type = REC_PACK,
                         .seq = reg->head->cut,
                         .pack = pack->id,
                         .length = pack->length,
                         .count = count};
    size_t len = record_encoded_len(&rec);
    _cleanup_free_ uint8_t *bytes = xcalloc(1, len);
    record_encode(&rec, bytes);
    struct view_batch batch = {.records = bytes,
                               .records_len = len,
                               .cut_seq = reg->head->cut,
                               .pack_index = index,
                               .arg = reg->store};
    memcpy(batch.chain, reg->head->chain, sizeof batch.chain);
    return view_apply(reg->store->view, &batch);
}

static int note_object(const struct tier_object *object, void *arg)
{
    struct registering *reg = arg;
    uint64_t id;
    if (!object_number(object->name, "packs", &id))
        return 0;
    /* One that is dropped later need not be known with what it holds: it may lie in another pack,
     * which counts then. */
    if (has_id(reg->later->made.at, reg->later->made.count, id) ||
        has_id(reg->later->dropped.at, reg->later->dropped.count, id))
        return 0;
    vector_add(&reg->packs, (struct whole_pack){id, object->len});
    return 0;
}

/* Content is named by its hash: a pack that is whole serves this state too, whatever it was written
 * for. The newest last: a chunk that lies in several was stored anew, because it was damaged or its
 * pack was to go. */
static int register_packs(struct registering *reg)
{
    int r = 0;
    vector_sort(&reg->packs, compare_u64);
    for (size_t i = 0; i < reg->packs.count && r == 0; i++) {
        uint32_t count = 0;
        if (!packs_is_ours(reg->store, reg->packs.at[i].id)) /* set aside as a leftover */
            continue;
        r = packs_recover_index(reg->store, reg->packs.at[i].id, count_adopted_entry, &count);
        /* The pack is kept, whatever it holds: runs may refer to it. Where not all of it was found,
         * no count says that (gc.c, may_be_needed()). */
        bool is_lost = r == -EUCLEAN || r == -EBADMSG || r == -EIO;
        if (r == -ENOENT)
            r = 0;
        else if (r >= 0 || is_lost)
            r = register_pack(reg, &reg->packs.at[i], r == 0 ? count : 0, commit_pack_index);
    }
    return r;
}

/* A pack that is dropped later must be known, as one that holds nothing. */
static int register_dropped(struct registering *reg)
{
    int r = 0;
    for (size_t i = 0; i < reg->later->dropped.count && r == 0; i++) {
        struct view_pack known;
        struct whole_pack pack = {.id = reg->later->dropped.at[i]};
        if (!has_id(reg->later->made.at, reg->later->made.count, pack.id) &&
            view_pack(reg->store->view, pack.id, &known) == -ENOENT)
            r = register_pack(reg, &pack, 0, index_of_dropped);
    }
    return r;
}

int adopt_view(struct store *store, const struct head *head)
{
    struct later later = {.after = head->cut};
    struct registering reg = {.store = store, .later = &later, .head = head};
    int r = adopt_rows(store, head);
    if (r == 0)
        r = journal_read(store, 0, note_later, &later);
    if (r == 0)
        r = store->tier->ops->list(store->tier, "packs", NULL, note_object, &reg);
    if (r == 0)
        r = register_packs(&reg);
    if (r == 0)
        r = register_dropped(&reg);
    vector_free(&reg.packs);
    vector_free(&later.made);
    vector_free(&later.dropped);
    return r;
}

/* --- which goes on from which------------------------------------------------------------------ */

struct looking {
    const struct head *head;
    uint64_t known_cut; /* published before */
    bool found;         /* the journal has the head's cut */
    bool has_news;      /* and operations after known_cut */
    size_t batches;
};

/* Where content lies, and when it was read, is no change that another writer's state must not take
 * the place of. */
static bool is_newsworthy(const struct record *rec)
{
    bool is_access = rec->type == REC_SETATTR && rec->mask == ATTR_ATIME;
    return rec->type != REC_PACK && rec->type != REC_DROP && !is_access;
}

static void look_at_record(const struct record *rec, void *arg)
{
    struct looking *look = arg;
    look->has_news = look->has_news || is_newsworthy(rec);
}

static int look_at_batch(const struct journal_batch *batch, void *arg)
{
    struct looking *look = arg;
    look->batches++;
    if (batch->header.cut_seq == look->head->cut &&
        memcmp(batch->chain, look->head->chain, CHAIN_LEN) == 0)
        look->found = true;
    /* Batches before the first one may have been removed. */
    if (batch->header.base_seq == look->head->cut &&
        memcmp(batch->header.prev, look->head->chain, CHAIN_LEN) == 0)
        look->found = true;
    return batch->header.cut_seq > look->known_cut ? each_record(batch, look_at_record, look) : 0;
}

/* --- a crash in the middle -------------------------------------------------------------------- */

static char *adopt_marker_path(const struct store *store)
{
    return xasprintf("%s/adopting", store->path);
}

int adopt_mark(const struct store *store)
{
    _cleanup_free_ char *marker = adopt_marker_path(store);
    return io_write_file_durable(marker, "", 0);
}

/* Durably: were it there again after a power cut, what came since would be removed. */
int adopt_unmark(const struct store *store)
{
    _cleanup_free_ char *marker = adopt_marker_path(store);
    if (unlink(marker) < 0 && errno != ENOENT)
        return -errno;
    return io_fsync_dir(store->path);
}

/* The packs stay: what they hold need not be fetched again. */
static int forget_local(struct store *store)
{
    int r = local_remove_view(store);
    if (r == 0)
        r = journal_remove_all(store);
    return r < 0 ? r : session_forget(store->path, store->sb.store);
}

int adopt_clean_up(struct store *store, char **ret_text)
{
    _cleanup_free_ char *marker = adopt_marker_path(store);
    if (access(marker, F_OK) < 0)
        return 0;
    log_info("%s stopped while it took over a state of its remote: the view is made anew",
             store->path);
    int r = forget_local(store);
    if (r == 0)
        r = adopt_unmark(store);
    if (r < 0)
        *ret_text = xasprintf("%s: view and journal of an older state cannot be removed: %s",
                              store->path, strerror(-r));
    return r;
}

/* --- the verdict ------------------------------------------------------------------------------ */

/* Begins with the head, whose runs are here, whatever else was. */
static int begin_with(struct store *store, const struct head *head, char **ret_text)
{
    int r = adopt_mark(store);
    if (r == 0)
        r = forget_local(store);
    if (r == 0)
        r = local_head_write(store, head);
    if (r == 0)
        r = adopt_unmark(store);
    if (r == 0)
        journal_set_anchor(store, head);
    else
        *ret_text = xasprintf("%s: the state that it holds (head %llu) cannot be taken over: %s",
                              store->remote->name, (unsigned long long)head->number, strerror(-r));
    return r;
}

static bool same_head_state(const struct head *a, const struct head *b)
{
    if (a->cut != b->cut || a->run_count != b->run_count ||
        memcmp(a->chain, b->chain, CHAIN_LEN) != 0)
        return false;
    for (uint32_t i = 0; i < a->run_count; i++)
        if (a->runs[i].id != b->runs[i].id)
            return false;
    return true;
}

static char *explain_other(struct store *store, const struct head *head)
{
    if (memcmp(head->store, store->sb.store, sizeof head->store) == 0)
        return xasprintf("the newest head of %s (%llu) is of another state than this store ever "
                         "published there, or of an "
                         "older one, and %s has data that is not in it; mount it without --remote "
                         "to copy them, and give "
                         "an empty STORE to go on from the remote",
                         store->remote->name, (unsigned long long)head->number, store->path);
    if (!store->stage && session_left_stage(store->path, store->sb.store))
        return xasprintf("%s went on without this store: %s published head %llu, and the stage "
                         "that %s left when it died may have "
                         "data that was never published; mount it without --remote once: what "
                         "there is can be copied then, and "
                         "without any it goes on from the remote the next time",
                         store->remote->name, head->holder, (unsigned long long)head->number,
                         store->path);
    return xasprintf(
        "%s went on without this store: %s published head %llu, and %s has data that was never "
        "published; mount it without --remote to copy them, and give an empty STORE to go on from "
        "the remote",
        store->remote->name, head->holder, (unsigned long long)head->number, store->path);
}

/* The journal is of this history and goes up to the head's cut or beyond: the view is made from the
 * head, whose runs are here, then follows it. */
static int go_on_from(struct store *store, const struct head *head)
{
    int r = local_remove_view(store);
    if (r == 0)
        r = local_head_write(store, head);
    if (r == 0)
        journal_set_anchor(store, head);
    return r;
}

enum verdict { KEEP, BEGIN, GO_ON, REFUSE, DAMAGED };

/* Was the known head published in this remote? Not in one that is gone, or in another. */
static bool was_head_of_remote(struct store *store, const struct head *known)
{
    _cleanup_free_ char *name = local_remote_name(store);
    return known && !local_head_is_lost(known) && (!name || strcmp(name, store->remote->name) == 0);
}

/* The view follows only what was durable: it may know more than the journal has, which ends where
 * it is damaged, and more than a head of ours with the cut `published` has. One that is no view
 * knows nothing; one that cannot be read now may. */
static bool view_may_be_ahead(struct store *store, uint64_t published)
{
    _cleanup_free_ char *path = xasprintf("%s/view", store->path);
    struct view_options options = {.cache_bytes = VIEW_CACHE_BYTES};
    struct view *view;
    if (access(path, F_OK) < 0 && errno == ENOENT)
        return false;
    int r = room_for_view(store);
    if (r == 0)
        r = view_open(path, &options, store->sb.created, &view);
    if (r < 0) {
        log_warn("%s cannot be read: %s", path, strerror(-r));
        return r != -EUCLEAN && r != -ESTALE;
    }
    uint64_t applied = view_state(view).applied_seq;
    view_close(view);
    return applied > max_u64(journal_found(store).cut_seq, published);
}

static char *adopt_explain_damage(const struct store *store)
{
    return xasprintf("%s: the journal is damaged, or it or the view cannot be read (see the log): "
                     "what is there that %s has not is not "
                     "known; nothing was changed; mount it without --remote to copy its files",
                     store->path, store->remote->name);
}

/* Judges what becomes of the store when it goes together with `head`. `is_ours`: we published its
 * state. Changes nothing. */
static enum verdict judge_head(struct store *store, const struct head *known,
                               const struct head *head, bool is_ours)
{
    bool was_here = was_head_of_remote(store, known);
    struct looking look = {.head = head, .known_cut = was_here ? known->cut : 0};
    if (known && !local_head_is_lost(known) && same_head_state(known, head))
        return KEEP;
    if (journal_read(store, 0, look_at_batch, &look) < 0)
        return DAMAGED;
    if (view_may_be_ahead(store, is_ours ? head->cut : 0))
        return DAMAGED;
    struct journal_found found = journal_found(store);
    if (look.batches == 0 && !known && found.is_empty)
        return BEGIN;
    bool has_news = look.has_news || session_left_stage(store->path, store->sb.store);
    bool ends_there =
        found.cut_seq == head->cut && memcmp(found.chain, head->chain, CHAIN_LEN) == 0;
    if ((look.found || ends_there) && (is_ours || !has_news || found.cut_seq == head->cut))
        return GO_ON;
    /* Staged operations go on from what the journal has lost. */
    if (is_ours && found.cut_seq < head->cut)
        return session_left_stage(store->path, store->sb.store) ? DAMAGED : BEGIN;
    /* An older state than the one that we published there: the remote lost heads. */
    bool is_own = was_here && memcmp(known->store, store->sb.store, sizeof known->store) == 0;
    bool goes_on = was_here && (head->cut >= known->cut || !is_own) && found.cut_seq >= known->cut;
    return !has_news && goes_on ? BEGIN : REFUSE;
}

/* Judges the newest head, and makes sure that STORE/runs has what the verdict needs: before
 * anything is changed here or there. A remote that lacks a run of it may have an older head that is
 * whole: remote->head is that one then. */
static int judge_and_fetch(struct store *store, const struct head *known, enum verdict *ret,
                           char **ret_text)
{
    struct remote *remote = store->remote;
    uint64_t run, after = was_head_of_remote(store, known) ? known->number : 0;
    for (;;) {
        bool is_ours = memcmp(remote->head.store, store->sb.store, sizeof store->sb.store) == 0;
        *ret = judge_head(store, known, &remote->head, is_ours);
        if (*ret != BEGIN && *ret != GO_ON)
            return 0;
        int r = runs_fetch_of(store, remote, &remote->head, &run);
        if (!run_is_lost(r))
            return r;
        _cleanup_free_ char *why = xstrdup(cause_text());
        r = remote_go_back(remote, after, run, why, ret_text);
        if (r < 0)
            return r;
    }
}

static int settle_adoption(struct store *store, const struct head *known, char **ret_text)
{
    enum verdict verdict;
    const struct head *head = &store->remote->head;
    int r = judge_and_fetch(store, known, &verdict, ret_text);
    if (r < 0 && !*ret_text)
        *ret_text = xasprintf("%s: the state that it holds (head %llu) cannot be taken over: %s",
                              store->remote->name, (unsigned long long)head->number, strerror(-r));
    if (r < 0)
        return r;
    switch (verdict) {
    case KEEP:
        return local_head_write(store, head);
    case DAMAGED:
        *ret_text = adopt_explain_damage(store);
        return -EUCLEAN;
    case GO_ON:
        return go_on_from(store, head);
    case BEGIN:
        if (known)
            log_info("%s went on since this store published last (head %llu): going on from there",
                     store->remote->name, (unsigned long long)head->number);
        return begin_with(store, head, ret_text);
    default:
        *ret_text = explain_other(store, head);
        return -ESTALE;
    }
}

/* The head that the store knows, and with it where its journal begins. False: it knows none. */
static bool adopt_read_known(struct store *store, struct head *known)
{
    int r = local_head_read(store, known);
    if (r < 0 && r != -ENOENT)
        log_warn("%s/head cannot be read (%s)", store->path, strerror(-r));
    if (r == 0 && known->run_count > 0)
        journal_set_anchor(store, known);
    return r == 0;
}

static int adopt_note_batch(const struct journal_batch *batch, void *arg)
{
    (void)batch;
    (void)arg;
    return 0;
}

bool adopt_is_blank(struct store *store)
{
    struct head *known = xmalloc(sizeof *known);
    bool has_known = adopt_read_known(store, known);
    free(known);
    return !has_known && journal_read(store, 0, adopt_note_batch, NULL) == 0 &&
           journal_found(store).is_empty;
}

int adopt_decide(struct store *store, char **ret_text)
{
    const struct remote *remote = store->remote;
    struct head *known = xmalloc(sizeof *known);
    bool has_known = adopt_read_known(store, known);
    /* A head without a state only names the holder of the prefix. */
    bool has_state = remote && remote->is_attached && remote->head.run_count > 0;
    int r = 0;
    if (has_state &&
        (!has_known || memcmp(known->nonce, remote->head.nonce, sizeof known->nonce) != 0))
        r = settle_adoption(store, has_known ? known : NULL, ret_text);
    free(known);
    return r;
}

int adopt_may(struct remote *remote, char **ret_text)
{
    struct store *store = remote->store;
    const struct head *head = &remote->head;
    struct head *known = xmalloc(sizeof *known);
    bool has_known = adopt_read_known(store, known);
    enum verdict verdict = KEEP;
    int r = head->run_count > 0
                ? judge_and_fetch(store, has_known ? known : NULL, &verdict, ret_text)
                : 0;
    free(known);
    if (r < 0)
        return r;
    if (verdict == REFUSE)
        *ret_text = explain_other(store, head);
    if (verdict == DAMAGED)
        *ret_text = adopt_explain_damage(store);
    return verdict == REFUSE ? -ESTALE : verdict == DAMAGED ? -EUCLEAN : 0;
}

static int report_all_of_head(struct store *store, const struct head *head)
{
    log_info("remote: head %llu was published and not noted: the next one names everything anew",
             (unsigned long long)head->number);
    int r = room_for_view(store);
    return r < 0 ? r : view_report_all(store->view);
}

int adopt_is_consistent(struct remote *remote, char **ret_text)
{
    struct store *store = remote->store;
    const struct head *head = &remote->head;
    struct head *known = xmalloc(sizeof *known);
    bool knows = local_head_read(store, known) == 0 && !local_head_is_lost(known);
    bool is_known = knows && (memcmp(known->nonce, head->nonce, sizeof known->nonce) == 0 ||
                              same_head_state(known, head));
    bool is_ours = memcmp(head->store, store->sb.store, sizeof head->store) == 0;
    bool has_other = head->run_count > 0 && !is_known;
    /* Publishing it seemed to fail at mount: a claim has the state that we know, a take-over may
     * have another writer's. */
    bool is_own_try = remote_is_own_try(remote, head);
    bool is_older = knows && is_ours && head->number < known->number;
    int r = 0;
    if (is_older) {
        /* A stale listing. Heads that are not shown would be taken for those that come next. */
        *ret_text = xasprintf(
            "%s shows head %llu, but this store published head %llu there; if it lost what "
            "came later, unmount and mount again",
            remote->name, (unsigned long long)head->number, (unsigned long long)known->number);
    } else if (is_own_try && (is_ours || !has_other)) {
        /* Nothing came between. A predecessor may have been killed before it noted its head: the
         * view's marks were made against the head before. */
        r = has_other ? report_all_of_head(store, head) : 0;
    } else if (has_other && !is_own_try && !(knows && is_ours)) {
        *ret_text = explain_other(store, head);
    } else if (has_other || (head->number > 0 && head->epoch >= store->epoch)) {
        /* Another store may give out the numbers of our epoch. */
        *ret_text = xasprintf(
            "%s has a head that this store does not remember: mount again to go on from it",
            remote->name);
    }
    free(known);
    return *ret_text ? -ESTALE : r;
}

bool adopt_is_lost_for_good(struct remote *remote, int error)
{
    struct head *known = xmalloc(sizeof *known);
    bool is_older = prefix_known_head(remote, known) && remote->head.number <= known->number;
    free(known);
    if (error == -ESTALE)
        return !is_older;
    return error != -EBUSY && !remote->store->options.adopting;
}
