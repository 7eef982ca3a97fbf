// SPDX-License-Identifier: Apache-2.0
/* Seals: a draft becomes a version, a nascent file part of history, a file that was made without a
 * name gets one. */
#include "base/clock.h"
#include "base/log.h"
#include "base/vector.h"
#include "commit/internal.h"
#include "stage/requests.h"

static void seal_record(const struct ns_inode *inode, const struct stage_draft *draft,
                        const struct ns_birth *birth, struct record *rec)
{
    rec->ino = inode->ino;
    rec->version = inode->version + 1;
    rec->keep = draft->keep;
    rec->attrs = inode->attrs;
    rec->attrs.size = draft->size;
    if (draft->mtime) {
        /* One that was set already moved ctime then. */
        if (draft->mtime != rec->attrs.mtime && draft->mtime > rec->attrs.ctime)
            rec->attrs.ctime = draft->mtime;
        rec->attrs.mtime = draft->mtime;
    }
    if (birth) {
        rec->flags |= RECORD_BIRTH;
        rec->parent = birth->parent;
        rec->cookie = birth->cookie;
        rec->name = birth->name;
        rec->name_len = birth->name_len;
    }
}

/* A SEAL, and the xattrs of a file that was nascent, which become history with its first version.
 */
struct seal_group {
    VECTOR(struct record) recs;
    struct bytes texts; /* names and values of the xattrs, one behind the other */
    size_t xattrs_len;  /* of their records, encoded */
};

static void seal_group_done(struct seal_group *group)
{
    vector_free(&group->recs);
    vector_free(&group->texts);
}

static int seal_group_add(const struct record *rec, void *arg)
{
    struct seal_group *group = arg;
    vector_add(&group->recs, *rec);
    vector_add_all(&group->texts, (const uint8_t *)rec->name, rec->name_len);
    vector_add_all(&group->texts, (const uint8_t *)rec->value, rec->value_len);
    group->xattrs_len += record_encoded_len(rec);
    return 0;
}

/* The overlay lends names and values only while it gives them. */
static int seal_group_gather(struct store *store, uint64_t ino, bool is_nascent,
                             struct seal_group *group)
{
    vector_add(&group->recs, (struct record){.type = REC_SEAL});
    int r = is_nascent ? ns_dump_xattrs(store->ns, ino, seal_group_add, group) : 0;
    const uint8_t *text = group->texts.at;
    for (size_t i = 1; i < group->recs.count; i++) {
        struct record *rec = &group->recs.at[i];
        rec->name = (const char *)text;
        rec->value = text + rec->name_len;
        text += rec->name_len + rec->value_len;
    }
    return r;
}

static void seal_roomy_locked(struct store *store, const struct ns_inode *inode,
                              struct seal_group *group)
{
    check_held(&store->commit->history.lock);
    struct ns_birth birth;
    bool is_born = ns_birth(store->ns, inode->ino, &birth);
    struct record *seal = group->recs.at;
    struct stage_draft draft;
    history_stamp_locked(store, seal);
    if (!stage_seal(store->stage, inode->ino, inode->version + 1, seal->seq, is_born, &draft))
        return;
    seal_record(inode, &draft, is_born ? &birth : NULL, seal);
    for (size_t i = 1; i < group->recs.count; i++)
        history_stamp_locked(store, &group->recs.at[i]);
    history_enter_group_locked(store, group->recs.at, group->recs.count);
}

static bool must_be_sealed(const struct ns_inode *inode, const struct stage_file_state *state)
{
    return inode->nlink > 0 && (inode->nascent || state->has_draft);
}

static int seal_locked(struct store *store, const struct ns_inode *inode)
{
    check_held(&store->commit->history.lock);
    struct seal_group group = {0};
    int r = seal_group_gather(store, inode->ino, inode->nascent, &group);
    if (r == 0)
        r = history_group_room_locked(store, group.xattrs_len);
    if (r == 0)
        seal_roomy_locked(store, inode, &group);
    seal_group_done(&group);
    return r;
}

int history_seal_locked(struct store *store, uint64_t ino)
{
    check_held(&store->commit->history.lock);
    struct ns_inode inode;
    struct stage_file_state state;
    int r = ns_inode(store->ns, ino, &inode);
    if (r < 0)
        return r == -ENOENT ? 0 : r;
    (void)stage_file_state(store->stage, ino, &state);
    return must_be_sealed(&inode, &state) ? seal_locked(store, &inode) : 0;
}

/* A file's birth moves the times of its directory to when it was made, and not to now. */
static void touch_parent_locked(struct store *store, const struct record *named)
{
    check_held(&store->commit->history.lock);
    struct record rec = {.type = REC_SETATTR,
                         .ino = named->parent,
                         .mask = ATTR_MTIME | ATTR_CTIME,
                         .attrs = {.mtime = named->time, .ctime = named->time}};
    history_stamp_locked(store, &rec);
    history_enter_group_locked(store, &rec, 1);
}

/* Staged content of a file that was made without a name, and so is not in the log, enters it; there
 * it means nothing until the SEAL names the file, for which there is room then. -EAGAIN: there is
 * not, and all is as before. */
static int relink_locked(struct store *store, uint64_t ino, size_t xattrs_len)
{
    check_held(&store->commit->history.lock);
    size_t reserve = xattrs_len + STAGE_LOG_MARGIN / 2;
    int r = stage_relink(store->stage, ino, reserve);
    if (r != -EAGAIN)
        return r;
    r = history_compact_locked(store);
    return r < 0 ? r : stage_relink(store->stage, ino, reserve);
}

static int name_roomy_locked(struct store *store, struct record *rec, struct seal_group *group)
{
    check_held(&store->commit->history.lock);
    struct ns_inode inode;
    int r = relink_locked(store, rec->ino, group->xattrs_len);
    if (r < 0)
        return r;
    history_stamp_with_cookies_locked(store, rec);
    touch_parent_locked(store, rec);
    ns_apply(store->ns, rec);
    r = ns_inode(store->ns, rec->ino, &inode);
    check(r == 0); /* the caller holds it */
    stage_request_decide(1ull << REC_SEAL);
    seal_roomy_locked(store, &inode, group);
    return 0;
}

static int seal_name_locked(struct store *store, struct record *rec)
{
    check_held(&store->commit->history.lock);
    struct seal_group group = {0};
    int r = history_seal_due_locked(store);
    if (r == 0)
        r = seal_group_gather(store, rec->ino, true, &group);
    if (r == 0)
        r = group.xattrs_len > GROUP_MAX ? -ENOSPC : history_draft_room_locked(store);
    if (r == 0)
        r = name_roomy_locked(store, rec, &group);
    seal_group_done(&group);
    return r;
}

int history_name(struct store *store, struct record *rec)
{
    mutex_lock(&store->commit->history.lock);
    return history_leave(store, seal_name_locked(store, rec));
}

/* As st_blocks shows it: never more than the size. */
static uint64_t shown_bytes(const struct ns_inode *inode, const struct stage_file_state *state)
{
    uint64_t size = state->has_draft    ? state->draft_size
                    : state->has_sealed ? state->sealed_size
                                        : inode->attrs.size;
    return min_u64(inode->blocks_bytes + state->dirty_bytes + state->chunk_bytes, size);
}

/* *ret_recount: until now a draft over a version that is not durable yet counted in addition to
 * what it replaces there. One that lies over no such version counts as before. */
static int seal_counted_locked(struct store *store, uint64_t ino, bool *ret_recount)
{
    check_held(&store->commit->history.lock);
    struct ns_inode inode;
    struct stage_file_state before, after;
    *ret_recount = false;
    int r = ns_hold(store->ns, ino, &inode);
    if (r < 0)
        return r == -ENOENT ? 0 : r;
    (void)stage_file_state(store->stage, ino, &before);
    if (must_be_sealed(&inode, &before))
        r = seal_locked(store, &inode);
    if (before.has_draft && before.has_sealed) {
        (void)stage_file_state(store->stage, ino, &after);
        *ret_recount = shown_bytes(&inode, &after) != shown_bytes(&inode, &before);
    }
    ns_drop(store->ns, ino);
    return r;
}

/* --- seals that wait ----------------------------------------------------------------------------
 *
 * They are of drafts, which show, and which a recovery finds and seals as any others. Each enters
 * before whatever else enters the history: so of two things that happened one after the other, no
 * cut has only the later. */

bool history_is_due_locked(struct store *store, uint64_t ino)
{
    check_held(&store->commit->history.lock);
    for (unsigned i = 0; i < store->commit->history.due_count; i++)
        if (store->commit->history.due[i] == ino)
            return true;
    return false;
}

/* One that fails for another reason than room keeps no other operations from happening: it
 * stays a draft, which is tried again when it has been idle. */
int history_seal_due_locked(struct store *store)
{
    check_held(&store->commit->history.lock);
    unsigned done = 0;
    int r = 0;
    for (; done < store->commit->history.due_count; done++) {
        uint64_t ino = store->commit->history.due[done];
        bool recount;
        r = seal_counted_locked(store, ino, &recount);
        if (r == -EAGAIN)
            break;
        if (r < 0)
            log_warn("inode %llu was closed and cannot be sealed: %s; retrying",
                     (unsigned long long)ino, strerror(-r));
        if (recount)
            store->commit->history.recount[store->commit->history.recount_count++] = ino;
    }
    store->commit->history.due_count -= done;
    memmove(store->commit->history.due, store->commit->history.due + done,
            store->commit->history.due_count * sizeof *store->commit->history.due);
    if (done)
        stage_set_due(store->stage, store->commit->history.due, store->commit->history.due_count);
    if (store->commit->history.due_count > 0)
        return -EAGAIN;
    store->commit->history.due_since = 0;
    return 0;
}

static void notify_recounts(struct store *store)
{
    uint64_t inos[DUE_MAX];
    mutex_lock(&store->commit->history.lock);
    unsigned count = store->commit->history.recount_count;
    memcpy(inos, store->commit->history.recount, count * sizeof *inos);
    store->commit->history.recount_count = 0;
    mutex_unlock(&store->commit->history.lock);
    if (count)
        change_notify(store, inos, count, false);
}

int history_seal_due(struct store *store)
{
    mutex_lock(&store->commit->history.lock);
    int r = history_seal_due_locked(store);
    mutex_unlock(&store->commit->history.lock);
    horizon_note(store);
    notify_recounts(store);
    return r;
}

int history_seal(struct store *store, uint64_t ino)
{
    bool recount = false;
    mutex_lock(&store->commit->history.lock);
    int r = history_seal_due_locked(store);
    if (r == 0)
        r = seal_counted_locked(store, ino, &recount);
    mutex_unlock(&store->commit->history.lock);
    horizon_note(store);
    notify_recounts(store);
    if (recount)
        change_notify(store, &ino, 1, false);
    return r;
}

int history_seal_later(struct store *store, uint64_t ino)
{
    struct stage_file_state state;
    mutex_lock(&store->commit->history.lock);
    (void)stage_file_state(store->stage, ino, &state);
    bool is_new = state.has_draft && !history_is_due_locked(store, ino);
    bool fits = store->commit->history.due_count + store->commit->history.recount_count < DUE_MAX;
    if (is_new && fits) {
        if (store->commit->history.due_count == 0)
            store->commit->history.due_since = clock_monotonic_ns();
        store->commit->history.due[store->commit->history.due_count++] = ino;
        stage_set_due(store->stage, store->commit->history.due, store->commit->history.due_count);
    }
    mutex_unlock(&store->commit->history.lock);
    return is_new && !fits ? history_seal(store, ino) : 0;
}

void history_seal_ripe(struct store *store, int64_t ns)
{
    mutex_lock(&store->commit->history.lock);
    int64_t since = store->commit->history.due_since;
    bool is_ripe = since && clock_monotonic_ns() - since >= ns;
    mutex_unlock(&store->commit->history.lock);
    if (is_ripe && history_seal_due(store) < 0)
        log_debug("files that were closed stay drafts for now");
    notify_recounts(store);
}

/* Calls `fn` for each draft below a directory, until it does not return 0. */
static int for_drafts_below(struct store *store, uint64_t dir,
                            int (*fn)(struct store *store, uint64_t ino))
{
    size_t count = stage_drafts(store->stage, NULL, 0);
    uint64_t *inos = xcalloc(count, sizeof *inos);
    size_t got = stage_drafts(store->stage, inos, count);
    int r = 0;
    for (size_t i = 0; i < got && i < count && r == 0; i++) {
        if (ns_may_be_below(store->ns, inos[i], dir))
            r = fn(store, inos[i]);
    }
    free(inos);
    return r;
}

int history_seal_below(struct store *store, uint64_t dir)
{
    return for_drafts_below(store, dir, history_seal);
}

static int found_draft_to_seal(struct store *store, uint64_t ino)
{
    struct ns_inode inode;
    return ns_inode(store->ns, ino, &inode) == 0 && inode.nlink > 0;
}

bool history_has_draft_below(struct store *store, uint64_t dir)
{
    if (for_drafts_below(store, dir, found_draft_to_seal) > 0)
        return true;
    LOCK_SCOPE(
        &store->commit->history.lock); /* what is being sealed is in the namespace after this */
    return false;
}

/* --- all of them ------------------------------------------------------------------------------ */

DEFINE_VECTOR(ino_list, uint64_t);

static int add_nascent(const struct record *rec, void *arg)
{
    struct ino_list *inos = arg;
    if (rec->type == REC_NASCENT)
        vector_add(inos, rec->ino);
    return 0;
}

int history_seal_all_but(struct store *store, const uint64_t *but, size_t but_count)
{
    size_t drafts = stage_drafts(store->stage, NULL, 0);
    struct ino_list inos = {0};
    vector_reserve(&inos, drafts);
    inos.count = min_u64(stage_drafts(store->stage, inos.at, drafts),
                         drafts); /* others may open more meanwhile */
    int r = ns_dump_nascent(store->ns, false, add_nascent, &inos);
    for (size_t i = 0; i < inos.count && r == 0; i++) {
        bool stays = but_count && bsearch(&inos.at[i], but, but_count, sizeof *but, compare_u64);
        r = stays ? 0 : history_seal(store, inos.at[i]);
    }
    vector_free(&inos);
    return r;
}

void history_seal_rest_later(struct store *store)
{
    atomic_store(&store->commit->seal_rest, true);
}

int history_seal_all(struct store *store)
{
    return history_seal_all_but(store, NULL, 0);
}
