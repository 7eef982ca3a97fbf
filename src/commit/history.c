// SPDX-License-Identifier: Apache-2.0
/* History: the order of operations, from acknowledgement to the horizon.
 *
 * An operation gets its number and enters the stage's log, the overlay and the list of operations
 * that are not durable, all under one lock. So these three always agree, and after a crash the log
 * rebuilds the overlay. */
#include "base/cause.h"
#include "base/clock.h"
#include "base/log.h"
#include "commit/history_internal.h"
#include "commit/horizon_internal.h"
#include "commit/local.h"
#include "commit/packs_internal.h"

#define COMPACT_EVERY_NS 200000000 /* for a draft */
#define LOOK_EVERY_NS 1000000000

struct history *history_new(struct local *local, struct horizon *horizon, struct packs *packs,
                            struct change *change)
{
    struct history *history = xcalloc(1, sizeof *history);
    *history =
        (struct history){.local = local, .horizon = horizon, .packs = packs, .change = change};
    mutex_init(&history->lock, LOCK_HISTORY);
    TAILQ_INIT(&history->ops);
    return history;
}

void history_free(struct history *history)
{
    struct op *op;
    while ((op = TAILQ_FIRST(&history->ops))) {
        TAILQ_REMOVE(&history->ops, op, link);
        free(op);
    }
    rounds_free(history->rounds);
    touched_free(history->touched);
    vector_free(&history->replaced);
    mutex_done(&history->lock);
    free(history);
}

/* Two consecutive seals of the same file: the stage has merged both versions, and no cut can be
 * chosen between them any more (its floor). So the older seal leaves the list: a file closed once
 * per tensor adds few operations. Not if it is a birth, which has the file's name, or if a cut
 * includes it or a thread reads the list. Returns when the older seal happened, 0: none. */
static int64_t supersede_locked(struct history *history, const struct record *rec)
{
    check_held(&history->lock);
    struct op *last = TAILQ_LAST(&history->ops, op_list);
    if (!last || rec->type != REC_SEAL || last->type != REC_SEAL ||
        (rec->flags | last->flags) & RECORD_BIRTH)
        return 0;
    if (last->ino != rec->ino || last->seq <= history->chosen || history->lookers > 0)
        return 0;
    int64_t happened = last->happened;
    history_unlist_op_locked(history, last);
    return happened;
}

/* --- log -------------------------------------------------------------------------------------- */

int history_dump_record(const struct record *rec, void *arg)
{
    struct bytes *bytes = arg;
    record_encode(rec, bytes_extend(bytes, record_encoded_len(rec)));
    return 0;
}

/* Packs that no batch names yet: a recovery must not treat them as leftovers. */
static void dump_pack(struct new_pack *pack, void *bytes)
{
    struct record rec = {
        .type = REC_PACK, .pack = pack->id, .length = pack->length, .count = pack->count};
    (void)history_dump_record(&rec, bytes);
}

static int compact_locked(struct history *history, bool with_nameless)
{
    check_held(&history->lock);
    _cleanup_vector_ struct bytes dump = {0};
    struct op *op;
    TAILQ_FOREACH(op, &history->ops, link)
    vector_add_all(&dump, op->bytes, op->len);
    TRY(ns_dump_nascent(history->local->ns, with_nameless, history_dump_record, &dump));
    packs_each_durable(history->packs, dump_pack, &dump);
    return stage_log_compact(history->local->stage, dump.at, dump.count, with_nameless);
}

/* Only a successor that adopts the mount needs the files without a name: they are omitted if the
 * log is too small. */
int history_compact_locked(struct history *history)
{
    check_held(&history->lock);
    int r = compact_locked(history, true);
    return r == -EAGAIN ? compact_locked(history, false) : r;
}

int history_compact(struct history *history)
{
    LOCK_SCOPE(&history->lock);
    return history_compact_locked(history);
}

int history_log(struct history *history, const struct record *recs, size_t count)
{
    LOCK_SCOPE(&history->lock);
    for (size_t i = 0; i < count; i++)
        TRY(stage_log_append(history->local->stage, &recs[i]));
    return 0;
}

/* Once in `every_ns` at most: if most of the log is live, each compaction gains little. */
static void compact_at_times_locked(struct history *history, int64_t every_ns)
{
    check_held(&history->lock);
    int64_t now = clock_monotonic_ns();
    if (now - history->compacted < every_ns)
        return;
    history->compacted = now;
    if (history_compact_locked(history) < 0)
        log_debug("stage: the log could not be compacted");
}

/* --- room in the log -------------------------------------------------------------------------- */

/* Least room for each kind of change. A record that frees room is admitted whenever it fits. */
static const struct reserve {
    size_t least;
    /* counts against PENDING_OPS_MAX, with lagging operations; and at most as many may be missing
     * in the union of all nodes */
    bool is_bounded;
    bool takes_draft; /* stricter, so that seals find room */
} reserves[] = {
    [RESERVE_NONE] = {0},
    [RESERVE_RECORD] = {.least = STAGE_LOG_MARGIN / 2, .is_bounded = true},
    [RESERVE_DRAFT] = {.least = STAGE_LOG_MARGIN / 2, .is_bounded = true, .takes_draft = true},
    [RESERVE_REAP] = {.least = STAGE_LOG_MARGIN / 4},
};

int history_reserve_locked(struct history *history, enum reserve_kind kind, size_t len)
{
    check_held(&history->lock);
    struct stage *stage = history->local->stage;
    const struct reserve *reserve = &reserves[kind];
    TRY(local_takes_changes(history->local));
    if (kind == RESERVE_NONE)
        return 0;
    if (reserve->is_bounded &&
        history->op_count + atomic_load(&history->lagging) >= PENDING_OPS_MAX)
        return -EAGAIN;
    if (reserve->is_bounded && history->touched &&
        touched_count(history->touched) >= PENDING_OPS_MAX)
        return -EAGAIN;
    if ((stage_log_wants_compaction(stage) ||
         stage_log_room(stage) <= len + STAGE_LOG_MARGIN / 2) &&
        history_compact_locked(history) < 0)
        log_debug("stage: the log could not be compacted");
    if (stage_log_room(stage) <= len + reserve->least)
        return -EAGAIN;
    if (reserve->takes_draft && !stage_log_takes_draft(stage))
        compact_at_times_locked(history, COMPACT_EVERY_NS);
    return !reserve->takes_draft || stage_log_takes_draft(stage) ? 0 : -EAGAIN;
}

bool history_is_crowded(struct history *history)
{
    if (!stage_log_is_crowded(history->local->stage))
        return false;
    LOCK_SCOPE(&history->lock);
    compact_at_times_locked(history, LOOK_EVERY_NS);
    return stage_log_is_crowded(history->local->stage);
}

/* --- operations ------------------------------------------------------------------------------- */

/* Times ascend with the order of operations, even if the clock is set back a little. If the clock
 * is far behind the last operation, it was ahead at that time, and is not followed. Order is
 * defined by sequence numbers. */
void history_stamp_locked(struct history *history, struct record *rec)
{
    check_held(&history->lock);
    struct clock_look look;
    int64_t now = history_look_locked(history, &look);
    history_note_number_locked(history, &look);
    if (now <= history->last_time && history->last_time - now <= CLOCK_BACK_MAX_NS)
        now = history->last_time + 1;
    history->last_time = now;
    rec->time = now;
    rec->writer = history->local->sb.writer;
    rec->seq = stage_next_seq(history->local->stage);
    check(rec->seq > history->newest);
}

/* A new name without a cookie becomes the newest entry of its directory. */
void history_stamp_with_cookies_locked(struct history *history, struct record *rec)
{
    check_held(&history->lock);
    bool names = rec->type == REC_MAKE || rec->type == REC_LINK || rec->type == REC_RENAME ||
                 rec->type == REC_NASCENT || record_makes_inode(rec);
    history_stamp_locked(history, rec);
    if (names && rec->cookie == 0)
        rec->cookie = rec->seq;
}

/* The state of an operation's inode in the history: a nascent file is not part of it, and a file
 * that has lost its only name is needed only by a successor that adopts the mount. */
struct standing {
    bool nascent, lost;
};

/* Enters delayed seals, and checks that the operation is still possible: its caller checked without
 * the history's lock. -ENOENT: the inode was removed since; -ENODATA: the xattr was. */
static int prepare_locked(struct history *history, const struct record *rec, struct standing *ret)
{
    check_held(&history->lock);
    struct ns_inode inode;
    *ret = (struct standing){0};
    /* A new file is not history yet, and the removal of a file without a name is visible nowhere:
     * these need not wait for a round. */
    if (rec->flags & RECORD_TAKEN) {
        TRY(history_gate_taken_locked(history));
        TRY(history_enter_due_locked(history));
    } else if (rec->type != REC_NASCENT && rec->type != REC_REAP)
        TRY(history_seal_due_locked(history));
    else if (history_gate_locked(history) == -EAGAIN)
        log_debug("a round is near, for which this does not wait");
    if (rec->type == REC_NASCENT || record_makes_inode(rec))
        return 0;
    TRY(ns_inode(history->local->ns, rec->ino, &inode));
    *ret = (struct standing){.nascent = inode.nascent, .lost = inode.nascent && inode.nlink == 0};
    if (rec->type == REC_REMOVEXATTR)
        TRY((int)ns_getxattr(history->local->ns, rec->ino, rec->name, rec->name_len, NULL, 0));
    return 0;
}

static void drop_content_of_locked(struct history *history, uint64_t ino, uint64_t seq, bool orphan)
{
    check_held(&history->lock);
    if (stage_unlink(history->local->stage, ino, seq, orphan) == -EAGAIN &&
        history_compact_locked(history) < 0)
        log_debug("inode %llu, without a name, would not outlive this daemon",
                  (unsigned long long)ino);
}

/* Drops the content of an inode that lost its last name. */
static void drop_content_locked(struct history *history, const struct record *rec)
{
    check_held(&history->lock);
    uint64_t lost = rec->type == REC_UNLINK                                      ? rec->ino
                    : rec->type == REC_RENAME && !(rec->flags & RECORD_EXCHANGE) ? rec->ino2
                                                                                 : 0;
    struct ns_inode inode;
    if (rec->type == REC_REAP)
        stage_forget(history->local->stage, rec->ino);
    if (lost == 0)
        return;
    int r = ns_inode(history->local->ns, lost, &inode);
    if (r == -ENOENT || inode.nlink == 0)
        drop_content_of_locked(history, lost, rec->seq, r == 0);
}

static int add_encoded_len(const struct record *rec, void *arg)
{
    size_t *len = arg;
    *len += record_encoded_len(rec);
    return 0;
}

/* The records that a first seal enters together must fit the log: if a file gets more xattrs than
 * that, or the log has little room, it is sealed now. */
static int bound_group_locked(struct history *history, const struct record *rec,
                              struct standing *standing)
{
    check_held(&history->lock);
    size_t len = record_encoded_len(rec);
    if (rec->type != REC_SETXATTR || !standing->nascent)
        return 0;
    TRY(ns_dump_xattrs(history->local->ns, rec->ino, add_encoded_len, &len));
    bool fits = len <= GROUP_MAX;
    if (fits && (standing->lost || stage_log_takes_draft(history->local->stage)))
        return 0;
    if (standing->lost) {
        cause_note("a file without a name has more xattrs than it could get one with");
        return -ENOSPC;
    }
    TRY(history_seal_locked(history, rec->ino));
    standing->nascent = false;
    return 0;
}

static enum reserve_kind reserve_for(const struct record *rec, bool is_lost)
{
    return is_lost                    ? RESERVE_NONE
           : rec->type == REC_NASCENT ? RESERVE_DRAFT
           : rec->type == REC_REAP    ? RESERVE_REAP
                                      : RESERVE_RECORD;
}

/* The record of a file without name and version is for a successor only: it is omitted if there is
 * no room. `op`: NULL if the record is not history. */
static int log_locked(struct history *history, const struct record *rec, struct op *op,
                      bool may_be_left_out)
{
    check_held(&history->lock);
    if (may_be_left_out && history_reserve_locked(history, RESERVE_RECORD, 0) < 0)
        return 0;
    if (!op)
        return stage_log_append(history->local->stage, rec);
    return stage_log_append_group(history->local->stage, rec, &(struct iovec){op->bytes, op->len},
                                  1);
}

static int commit_locked(struct history *history, struct record *rec)
{
    check_held(&history->lock);
    struct standing standing;
    TRY(prepare_locked(history, rec, &standing));
    TRY(bound_group_locked(history, rec, &standing));
    TRY(history_reserve_locked(history, reserve_for(rec, standing.lost), 0));
    bool makes_draft = rec->type == REC_NASCENT;
    bool nameless = makes_draft && rec->flags & RECORD_ORPHAN;
    history_stamp_with_cookies_locked(history, rec);
    if (makes_draft) /* it changes its directory's times, in the order of operations */
        rec->attrs.btime = rec->time;
    struct op *op = makes_draft || standing.nascent ? NULL : history_op_new(rec);
    int r = log_locked(history, rec, op, standing.lost || nameless);
    if (r < 0) {
        free(op);
        return r;
    }
    ns_apply(history->local->ns, rec);
    if (makes_draft)
        stage_open_draft(history->local->stage, rec->ino);
    if (nameless)
        drop_content_of_locked(history, rec->ino, rec->seq, true);
    if (op) {
        history_list_op_locked(history, op, 0);
        history_touch_locked(history, rec);
    }
    drop_content_locked(history, rec);
    return 0;
}

/* The xattrs of a nascent file enter the log with it, and the history with its first seal. */
static int make_locked(struct history *history, struct record *recs, size_t count)
{
    check_held(&history->lock);
    bool nameless = recs->flags & RECORD_ORPHAN;
    size_t len = 0;
    for (size_t i = 1; i < count; i++)
        (void)add_encoded_len(&recs[i], &len);
    if (len > GROUP_MAX) {
        cause_note("the file has more xattrs than a new one can get at once");
        return -ENOSPC;
    }
    if (history_gate_locked(history) == -EAGAIN)
        log_debug("a round is near, for which a new file does not wait");
    TRY(history_reserve_locked(history, RESERVE_DRAFT, len));
    for (size_t i = 0; i < count; i++) {
        history_stamp_with_cookies_locked(history, &recs[i]);
        if (i == 0)
            recs->attrs.btime = recs->time;
        int r = stage_log_append(history->local->stage, &recs[i]);
        check(r == 0); /* there is room */
        ns_apply(history->local->ns, &recs[i]);
    }
    stage_open_draft(history->local->stage, recs->ino);
    if (nameless)
        drop_content_of_locked(history, recs->ino, recs->seq, true);
    return 0;
}

int history_make(struct history *history, struct record *recs, size_t count)
{
    mutex_lock(&history->lock);
    return history_leave(history, make_locked(history, recs, count));
}

uint64_t history_replaced(struct history *history)
{
    if (!atomic_load_explicit(&history->has_replaced, memory_order_relaxed))
        return 0;
    LOCK_SCOPE(&history->lock);
    uint64_t ino = history->replaced.count ? history->replaced.at[--history->replaced.count] : 0;
    atomic_store(&history->has_replaced, history->replaced.count > 0);
    return ino;
}

int history_leave(struct history *history, int r)
{
    bool must_notify = history->recount_count > 0;
    mutex_unlock(&history->lock);
    if (r == 0)
        horizon_note(history->horizon);
    if (must_notify) /* the caller may hold locks, so the writeback thread notifies */
        horizon_kick(history->horizon);
    return r;
}

/* Enters operations that belong together: a recovery finds all of them or none, and no cut is
 * between them. The caller has reserved room. */
void history_enter_group_locked(struct history *history, const struct record *recs, size_t count)
{
    check_held(&history->lock);
    struct op **ops = xcalloc(count, sizeof(struct op *));
    struct iovec *encoded = xcalloc(count, sizeof *encoded);
    for (size_t i = 0; i < count; i++) {
        ops[i] = history_op_new(&recs[i]);
        encoded[i] = (struct iovec){ops[i]->bytes, ops[i]->len};
    }
    int r = stage_log_append_group(history->local->stage, recs, encoded, count);
    check(r == 0); /* only the history appends within the margin */
    for (size_t i = 0; i < count; i++) {
        ns_apply(history->local->ns, &recs[i]);
        int64_t happened = supersede_locked(history, &recs[i]);
        history_list_op_locked(history, ops[i], happened ? happened : history->due_since);
        history_touch_locked(history, &recs[i]);
    }
    free(encoded);
    free(ops);
}

static int commit_both_locked(struct history *history, struct record *rec, struct record *rec2)
{
    check_held(&history->lock);
    struct standing standing;
    TRY(prepare_locked(history, rec, &standing));
    TRY(history_reserve_locked(history, RESERVE_RECORD,
                               record_encoded_len(rec) + record_encoded_len(rec2)));
    check(!standing.nascent);
    history_stamp_with_cookies_locked(history, rec);
    history_stamp_with_cookies_locked(history, rec2);
    history_enter_group_locked(history, (const struct record[]){*rec, *rec2}, 2);
    drop_content_locked(history, rec);
    drop_content_locked(history, rec2);
    return 0;
}

/* A new file changes its directory's times, but enters the history later, with a comparison of its
 * directory's ctime. So a record of ctime alone would hide the new file's mtime; mtime is recorded
 * as well. True: *ret is a second operation. */
static bool keep_times(struct history *history, struct record *rec, struct record *ret)
{
    int64_t time;
    bool is_xattr = rec->type == REC_SETXATTR || rec->type == REC_REMOVEXATTR;
    if (!is_xattr && (rec->type != REC_SETATTR || rec->mask & ATTR_MTIME))
        return false;
    if (!ns_has_times_of_nascent(history->local->ns, rec->ino, &time))
        return false;
    if (!is_xattr) {
        rec->mask |= ATTR_MTIME;
        rec->attrs.mtime = time;
        return false;
    }
    *ret = (struct record){
        .type = REC_SETATTR, .ino = rec->ino, .mask = ATTR_MTIME, .attrs = {.mtime = time}};
    return true;
}

int history_commit(struct history *history, struct record *rec)
{
    struct record times;
    mutex_lock(&history->lock);
    bool is_both = keep_times(history, rec, &times);
    return history_leave(history, is_both ? commit_both_locked(history, rec, &times)
                                          : commit_locked(history, rec));
}

int history_commit_both(struct history *history, struct record *rec, struct record *rec2)
{
    mutex_lock(&history->lock);
    return history_leave(history, commit_both_locked(history, rec, rec2));
}
