// SPDX-License-Identifier: Apache-2.0
/* Seals: a draft becomes a version, a nascent file enters the history, a file created without a
 * name gets one. */
#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/vector.h"
#include "commit/history_internal.h"
#include "commit/horizon_internal.h"
#include "commit/local.h"
#include "stage/requests.h"

/* Fills in a SEAL record, whose version is set. */
static void seal_record(const struct ns_inode *inode, const struct stage_draft *draft,
                        const struct ns_birth *birth, struct record *rec)
{
    rec->ino = inode->ino;
    rec->keep = draft->keep;
    rec->attrs = inode->attrs;
    rec->attrs.size = draft->size;
    if (draft->mtime) {
        /* an explicitly set mtime has changed ctime at that time */
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

#define FIRST_NAME_LEN 32u /* of ".cairn-INODE" */
#define RENAME_LEN_MAX (RECORD_HEADER_LEN + 128u + FIRST_NAME_LEN + NAME_LEN_MAX)

/* A SEAL, and the xattrs of a file that was nascent, which enter the history with its first
 * version. If that file takes the name of another one, a RENAME over that name is the last record;
 * until then, within these records only, the new file has a temporary name. */
struct seal_group {
    VECTOR(struct record) recs;
    struct bytes texts;       /* names and values of the xattrs, concatenated */
    size_t others_len;        /* upper bound for the other records, encoded */
    struct ns_inode replaced; /* by the RENAME; ino 0: none */
    char first_name[FIRST_NAME_LEN];
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
    group->others_len += record_encoded_len(rec);
    return 0;
}

/* Copies names and values: the overlay's are valid only during the callback. */
static int seal_group_gather(struct history *history, uint64_t ino, bool is_nascent,
                             struct seal_group *group)
{
    vector_add(&group->recs, (struct record){.type = REC_SEAL});
    int r = is_nascent ? ns_dump_xattrs(history->local->ns, ino, seal_group_add, group) : 0;
    const uint8_t *text = group->texts.at;
    for (size_t i = 1; i < group->recs.count; i++) {
        struct record *rec = &group->recs.at[i];
        rec->name = (const char *)text;
        rec->value = text + rec->name_len;
        text += rec->name_len + rec->value_len;
    }
    return r;
}

/* The nascent file will take the name of `replaced`, which the caller holds until the group is
 * entered. */
static void seal_group_replace(struct seal_group *group, const struct ns_inode *replaced)
{
    group->replaced = *replaced;
    group->others_len += RENAME_LEN_MAX;
    vector_add(&group->recs, (struct record){.type = REC_RENAME});
}

/* Splits the birth: the file is created under a temporary name, and the RENAME moves it to its
 * own. */
static void make_replacing(struct seal_group *group, const struct ns_birth *birth)
{
    struct record *seal = group->recs.at, *rename = &group->recs.at[group->recs.count - 1];
    int len = snprintf(group->first_name, sizeof group->first_name, ".cairn-%llx",
                       (unsigned long long)seal->ino);
    *rename = (struct record){.type = REC_RENAME,
                              .flags = group->replaced.nlink == 1 ? RECORD_ORPHAN : 0,
                              .ino = seal->ino,
                              .ino2 = group->replaced.ino,
                              .parent = birth->parent,
                              .parent2 = birth->parent,
                              .cookie = birth->cookie,
                              .name = group->first_name,
                              .name_len = (uint16_t)len,
                              .name2 = birth->name,
                              .name2_len = birth->name_len};
    seal->cookie = seal->seq;
    seal->name = rename->name;
    seal->name_len = rename->name_len;
}

static void seal_roomy_locked(struct history *history, const struct ns_inode *inode,
                              struct seal_group *group)
{
    check_held(&history->lock);
    struct ns_birth birth;
    bool is_born = ns_birth(history->local->ns, inode->ino, &birth);
    struct record *seal = group->recs.at;
    struct stage_draft draft;
    history_stamp_locked(history, seal);
    seal->version = local_next_version(history->local, inode->version);
    if (!stage_seal(history->local->stage, inode->ino, seal->version, seal->seq, is_born, &draft))
        return;
    seal_record(inode, &draft, is_born ? &birth : NULL, seal);
    if (group->replaced.ino)
        make_replacing(group, &birth);
    for (size_t i = 1; i < group->recs.count; i++)
        history_stamp_locked(history, &group->recs.at[i]);
    history_enter_group_locked(history, group->recs.at, group->recs.count);
    if (group->replaced.nlink == 1) {
        vector_add(&history->replaced, group->replaced.ino);
        atomic_store(&history->has_replaced, true);
    }
}

static bool must_be_sealed(const struct ns_inode *inode, const struct stage_file_state *state)
{
    return inode->nlink > 0 && (inode->nascent || state->has_draft);
}

static int seal_group_locked(struct history *history, const struct ns_inode *inode,
                             const struct ns_inode *replaced)
{
    check_held(&history->lock);
    _cleanup_(seal_group_done) struct seal_group group = {0};
    TRY(seal_group_gather(history, inode->ino, inode->nascent, &group));
    if (replaced)
        seal_group_replace(&group, replaced);
    TRY(history_reserve_locked(history, RESERVE_RECORD, group.others_len));
    seal_roomy_locked(history, inode, &group);
    return 0;
}

static int seal_locked(struct history *history, const struct ns_inode *inode)
{
    check_held(&history->lock);
    struct ns_birth birth = {0};
    struct ns_inode replaced;
    if (!inode->nascent || !ns_birth(history->local->ns, inode->ino, &birth) || !birth.covers)
        return seal_group_locked(history, inode, NULL);
    TRY(ns_hold(history->local->ns, birth.covers, &replaced));
    int r = seal_group_locked(history, inode, &replaced);
    ns_drop(history->local->ns, birth.covers);
    return r;
}

int history_seal_locked(struct history *history, uint64_t ino)
{
    check_held(&history->lock);
    struct ns_inode inode;
    struct stage_file_state state;
    int r = ns_inode(history->local->ns, ino, &inode);
    if (r < 0)
        return r == -ENOENT ? 0 : r;
    (void)stage_file_state(history->local->stage, ino, &state);
    return must_be_sealed(&inode, &state) ? seal_locked(history, &inode) : 0;
}

/* A file's birth sets the times of its directory to when the file was created, not to now. */
static void touch_parent_locked(struct history *history, const struct record *named)
{
    check_held(&history->lock);
    struct record rec = {.type = REC_SETATTR,
                         .ino = named->parent,
                         .mask = ATTR_MTIME | ATTR_CTIME,
                         .attrs = {.mtime = named->time, .ctime = named->time}};
    history_stamp_locked(history, &rec);
    history_enter_group_locked(history, &rec, 1);
}

/* Enters the staged content of a file created without a name into the log, which did not have it;
 * it has no meaning there until the SEAL names the file, for which room is left. -EAGAIN: no room,
 * nothing has changed. */
static int relink_locked(struct history *history, uint64_t ino, size_t others_len)
{
    check_held(&history->lock);
    size_t reserve = others_len + STAGE_LOG_MARGIN / 2;
    int r = stage_relink(history->local->stage, ino, reserve);
    if (r != -EAGAIN)
        return r;
    r = history_compact_locked(history);
    return r < 0 ? r : stage_relink(history->local->stage, ino, reserve);
}

static int name_roomy_locked(struct history *history, struct record *rec, struct seal_group *group)
{
    check_held(&history->lock);
    struct ns_inode inode;
    TRY(relink_locked(history, rec->ino, group->others_len));
    history_stamp_with_cookies_locked(history, rec);
    touch_parent_locked(history, rec);
    ns_apply(history->local->ns, rec);
    int r = ns_inode(history->local->ns, rec->ino, &inode);
    check(r == 0); /* the caller holds the inode */
    stage_request_decide(1ull << REC_SEAL);
    seal_roomy_locked(history, &inode, group);
    return 0;
}

static int seal_name_locked(struct history *history, struct record *rec)
{
    check_held(&history->lock);
    _cleanup_(seal_group_done) struct seal_group group = {0};
    struct ns_inode replaced;
    TRY(history_seal_due_locked(history));
    TRY(rec->ino2 ? ns_inode(history->local->ns, rec->ino2, &replaced) : 0);
    TRY(seal_group_gather(history, rec->ino, true, &group));
    if (rec->ino2)
        seal_group_replace(&group, &replaced);
    if (group.others_len > GROUP_MAX)
        return -ENOSPC;
    TRY(history_reserve_locked(history, RESERVE_DRAFT, 0));
    return name_roomy_locked(history, rec, &group);
}

int history_name(struct history *history, struct record *rec)
{
    mutex_lock(&history->lock);
    return history_leave(history, seal_name_locked(history, rec));
}

/* The bytes behind st_blocks: never more than the size. */
static uint64_t shown_bytes(const struct ns_inode *inode, const struct stage_file_state *state)
{
    uint64_t size = state->has_draft    ? state->draft_size
                    : state->has_sealed ? state->sealed_size
                                        : inode->attrs.size;
    return min_u64(inode->blocks_bytes + state->dirty_bytes + state->chunk_bytes, size);
}

/* *ret_recount: st_blocks has changed. Before the seal, a draft over a version that is not durable
 * counted in addition to the bytes that it replaces there. For a draft without such a version
 * below, nothing changes. */
static int seal_counted_locked(struct history *history, uint64_t ino, bool *ret_recount)
{
    check_held(&history->lock);
    struct ns_inode inode;
    struct stage_file_state before, after;
    *ret_recount = false;
    int r = ns_hold(history->local->ns, ino, &inode);
    if (r < 0)
        return r == -ENOENT ? 0 : r;
    (void)stage_file_state(history->local->stage, ino, &before);
    if (must_be_sealed(&inode, &before))
        r = seal_locked(history, &inode);
    if (before.has_draft && before.has_sealed) {
        (void)stage_file_state(history->local->stage, ino, &after);
        *ret_recount = shown_bytes(&inode, &after) != shown_bytes(&inode, &before);
    }
    ns_drop(history->local->ns, ino);
    return r;
}

/* --- delayed seals ------------------------------------------------------------------------------
 *
 * Their drafts are visible, and a recovery finds and seals them like any other. Each is entered
 * before any other record enters the history: so of two consecutive changes, no cut has only the
 * later. */

bool history_is_due_locked(struct history *history, uint64_t ino)
{
    check_held(&history->lock);
    for (unsigned i = 0; i < history->due_count; i++)
        if (history->due[i] == ino)
            return true;
    return false;
}

/* A seal that fails for another reason than room does not block other operations: the file stays a
 * draft, and is tried again when it has been idle. */
int history_enter_due_locked(struct history *history)
{
    check_held(&history->lock);
    unsigned done = 0;
    int r = 0;
    for (; done < history->due_count; done++) {
        uint64_t ino = history->due[done];
        bool recount;
        r = seal_counted_locked(history, ino, &recount);
        if (r == -EAGAIN)
            break;
        if (r < 0)
            log_warn("inode %llu was closed and cannot be sealed: %s; retrying",
                     (unsigned long long)ino, strerror(-r));
        if (recount)
            history->recount[history->recount_count++] = ino;
    }
    history->due_count -= done;
    memmove(history->due, history->due + done, history->due_count * sizeof *history->due);
    if (done)
        stage_set_due(history->local->stage, history->due, history->due_count);
    if (history->due_count > 0)
        return -EAGAIN;
    history->due_since = 0;
    return 0;
}

/* Files closed before the round began are included in it. So are those for which a recovery has not
 * found room yet: until it has, no round is published. */
static void pass_rounds_locked(struct history *history, const struct clock_look *look)
{
    check_held(&history->lock);
    if (!rounds_are_due(history->rounds, look))
        return;
    history->is_passing = true;
    int r = atomic_load(&history->seal_rest) ? -EAGAIN : history_enter_due_locked(history);
    history->is_passing = false;
    if (r == 0)
        rounds_pass(history->rounds, look, history->newest);
    else
        rounds_lose(history->rounds, look);
}

void history_pass_rounds(struct history *history)
{
    struct clock_look look;
    LOCK_SCOPE(&history->lock);
    (void)history_look_locked(history, &look);
    pass_rounds_locked(history, &look);
}

static int pass_gate_locked(struct history *history, struct clock_look *ret)
{
    check_held(&history->lock);
    (void)history_look_locked(history, ret);
    pass_rounds_locked(history, ret);
    return history_hold_locked(history, ret) ? -EAGAIN : 0;
}

int history_gate_taken_locked(struct history *history)
{
    check_held(&history->lock);
    struct clock_look look;
    return !history->rounds || history->is_passing ? 0 : pass_gate_locked(history, &look);
}

int history_gate_locked(struct history *history)
{
    check_held(&history->lock);
    struct clock_look look;
    if (!history->rounds || history->is_passing)
        return 0;
    TRY(pass_gate_locked(history, &look));
    return history_has_lease_locked(history, &look) ? 0 : -EAGAIN;
}

int history_seal_due_locked(struct history *history)
{
    check_held(&history->lock);
    TRY(history_gate_locked(history));
    return history_enter_due_locked(history);
}

static void notify_recounts(struct history *history)
{
    uint64_t inos[DUE_MAX];
    mutex_lock(&history->lock);
    unsigned count = history->recount_count;
    memcpy(inos, history->recount, count * sizeof *inos);
    history->recount_count = 0;
    mutex_unlock(&history->lock);
    if (count)
        change_notify(history->change, inos, count, false);
}

int history_seal_due(struct history *history)
{
    mutex_lock(&history->lock);
    int r = history_seal_due_locked(history);
    mutex_unlock(&history->lock);
    horizon_note(history->horizon);
    notify_recounts(history);
    return r;
}

int history_seal(struct history *history, uint64_t ino)
{
    bool recount = false;
    mutex_lock(&history->lock);
    int r = history_seal_due_locked(history);
    if (r == 0)
        r = seal_counted_locked(history, ino, &recount);
    mutex_unlock(&history->lock);
    horizon_note(history->horizon);
    notify_recounts(history);
    if (recount)
        change_notify(history->change, &ino, 1, false);
    return r;
}

int history_seal_later(struct history *history, uint64_t ino)
{
    struct stage_file_state state;
    mutex_lock(&history->lock);
    int r = history_gate_locked(history);
    if (r < 0) {
        mutex_unlock(&history->lock);
        return r;
    }
    (void)stage_file_state(history->local->stage, ino, &state);
    bool is_new = state.has_draft && !history_is_due_locked(history, ino);
    bool fits = history->due_count + history->recount_count < DUE_MAX;
    if (is_new && fits) {
        if (history->due_count == 0)
            history->due_since = clock_monotonic_ns();
        history->due[history->due_count++] = ino;
        stage_set_due(history->local->stage, history->due, history->due_count);
    }
    mutex_unlock(&history->lock);
    return is_new && !fits ? history_seal(history, ino) : 0;
}

void history_seal_ripe(struct history *history, int64_t ns)
{
    mutex_lock(&history->lock);
    int64_t since = history->due_since;
    bool is_ripe = since && clock_monotonic_ns() - since >= ns;
    mutex_unlock(&history->lock);
    if (is_ripe && history_seal_due(history) < 0)
        log_debug("files that were closed stay drafts for now");
    notify_recounts(history);
}

/* Calls `fn` for each draft below a directory, until it returns nonzero. */
static int for_drafts_below(struct history *history, uint64_t dir,
                            int (*fn)(struct history *history, uint64_t ino))
{
    size_t count = stage_drafts(history->local->stage, NULL, 0);
    _cleanup_free_ uint64_t *inos = xcalloc(count, sizeof *inos);
    size_t got = stage_drafts(history->local->stage, inos, count);
    int r = 0;
    for (size_t i = 0; i < got && i < count && r == 0; i++)
        if (ns_may_be_below(history->local->ns, inos[i], dir))
            r = fn(history, inos[i]);
    return r;
}

int history_seal_below(struct history *history, uint64_t dir)
{
    return for_drafts_below(history, dir, history_seal);
}

static int found_draft_to_seal(struct history *history, uint64_t ino)
{
    struct ns_inode inode;
    return ns_inode(history->local->ns, ino, &inode) == 0 && inode.nlink > 0;
}

bool history_has_draft_below(struct history *history, uint64_t dir)
{
    if (for_drafts_below(history, dir, found_draft_to_seal) > 0)
        return true;
    /* once the lock is taken, every seal in progress is in the namespace */
    LOCK_SCOPE(&history->lock);
    return false;
}

/* --- sealing all drafts ----------------------------------------------------------------------- */

DEFINE_VECTOR(ino_list, uint64_t);

static int add_nascent(const struct record *rec, void *arg)
{
    struct ino_list *inos = arg;
    if (rec->type == REC_NASCENT)
        vector_add(inos, rec->ino);
    return 0;
}

int history_seal_all_but(struct history *history, const uint64_t *but, size_t but_count)
{
    size_t drafts = stage_drafts(history->local->stage, NULL, 0);
    _cleanup_vector_ struct ino_list inos = {0};
    vector_reserve(&inos, drafts);
    inos.count = min_u64(stage_drafts(history->local->stage, inos.at, drafts),
                         drafts); /* other threads may open more meanwhile */
    TRY(ns_dump_nascent(history->local->ns, false, add_nascent, &inos));
    for (size_t i = 0; i < inos.count; i++)
        if (!but_count || !bsearch(&inos.at[i], but, but_count, sizeof *but, compare_u64))
            TRY(history_seal(history, inos.at[i]));
    return 0;
}

void history_seal_rest_later(struct history *history)
{
    atomic_store(&history->seal_rest, true);
}

/* An open new file is stored only in the log, and leaves it when it is durable. */
int history_seal_rest(struct history *history)
{
    if (!atomic_load(&history->seal_rest) && !history_is_crowded(history))
        return 0;
    if (!local_follows(history->local))
        TRY(history_seal_all(history));
    atomic_store(&history->seal_rest, false);
    return 0;
}

int history_seal_all(struct history *history)
{
    return history_seal_all_but(history, NULL, 0);
}
