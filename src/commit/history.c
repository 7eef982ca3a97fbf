// SPDX-License-Identifier: Apache-2.0
/* History: the order of operations, from acknowledgement to the horizon.
 *
 * An operation gets its number, enters the stage's log, the overlay and the list of what is not
 * durable, all under one lock; so these three agree at every moment, and the log repeats after a
 * crash what the overlay was. */
#include "commit/internal.h"

#include "base/cause.h"
#include "base/clock.h"
#include "base/log.h"

#define COMPACT_EVERY_NS 200000000 /* where most of the log is alive, each time gains little */
#define LOOK_EVERY_NS 1000000000

void history_init(struct store *store)
{
    mutex_init(&store->commit->history.lock, LOCK_HISTORY);
    TAILQ_INIT(&store->commit->history.ops);
}

void history_done(struct store *store)
{
    struct op *op;
    while ((op = TAILQ_FIRST(&store->commit->history.ops))) {
        TAILQ_REMOVE(&store->commit->history.ops, op, link);
        free(op);
    }
    mutex_done(&store->commit->history.lock);
}

static void unlist_op_locked(struct store *store, struct op *op)
{
    check_held(&store->commit->history.lock);
    TAILQ_REMOVE(&store->commit->history.ops, op, link);
    store->commit->history.op_count--;
    store->commit->history.op_bytes -= op->len;
    free(op);
}

/* One seal after the other of the same file: the stage has made one of both versions, and no cut
 * can be chosen between them any more (its floor). So the older leaves the list: a file that is
 * closed for each of its tensors is few operations. Not a birth, which names the file, nor what a
 * cut has chosen or that is looked at. Returns when it happened, 0: there is none. */
static int64_t supersede_locked(struct store *store, const struct record *rec)
{
    check_held(&store->commit->history.lock);
    struct op *last = TAILQ_LAST(&store->commit->history.ops, op_list);
    if (!last || rec->type != REC_SEAL || last->type != REC_SEAL ||
        (rec->flags | last->flags) & RECORD_BIRTH)
        return 0;
    if (last->ino != rec->ino || last->seq <= store->commit->history.chosen ||
        store->commit->history.lookers > 0)
        return 0;
    int64_t happened = last->happened;
    unlist_op_locked(store, last);
    return happened;
}

/* The operation with its bytes, encoded here and nowhere else: the stage's log and the journal get
 * copies of these. The caller's until it is listed. */
static struct op *op_new(const struct record *rec)
{
    uint32_t len = (uint32_t)record_encoded_len(rec);
    struct op *op = xmalloc(sizeof *op + len);
    *op = (struct op){.seq = rec->seq,
                      .type = rec->type,
                      .flags = rec->flags,
                      .ino = rec->ino,
                      .ino2 = rec->ino2,
                      .version = rec->version,
                      .len = len};
    record_encode(rec, op->bytes);
    return op;
}

/* `happened`: monotonic ns; 0: now. */
static void list_op_locked(struct store *store, struct op *op, int64_t happened)
{
    check_held(&store->commit->history.lock);
    op->happened = happened ? happened : clock_monotonic_ns();
    TAILQ_INSERT_TAIL(&store->commit->history.ops, op, link);
    store->commit->history.op_count++;
    store->commit->history.op_bytes += op->len;
    store->commit->history.newest = op->seq;
}

/* --- log -------------------------------------------------------------------------------------- */

int history_dump_record(const struct record *rec, void *arg)
{
    struct bytes *bytes = arg;
    record_encode(rec, bytes_extend(bytes, record_encoded_len(rec)));
    return 0;
}

/* Packs that no batch names yet: a recovery must not take them for leftovers. */
static void dump_packs(struct store *store, struct bytes *bytes)
{
    LOCK_SCOPE(&store->commit->packs.lock);
    struct new_pack *pack;
    TAILQ_FOREACH(pack, &store->commit->packs.written, link)
    {
        if (pack->state != PACK_DURABLE)
            continue;
        struct record rec = {
            .type = REC_PACK, .pack = pack->id, .length = pack->length, .count = pack->count};
        (void)history_dump_record(&rec, bytes);
    }
}

static int compact_locked(struct store *store, bool with_nameless)
{
    check_held(&store->commit->history.lock);
    _cleanup_vector_ struct bytes dump = {0};
    struct op *op;
    TAILQ_FOREACH(op, &store->commit->history.ops, link)
    vector_add_all(&dump, op->bytes, op->len);
    int r = ns_dump_nascent(store->ns, with_nameless, history_dump_record, &dump);
    dump_packs(store, &dump);
    if (r == 0)
        r = stage_log_compact(store->stage, dump.at, dump.count, with_nameless);
    return r;
}

/* A file without a name is needed by a successor that adopts the mount, and by nothing else: it
 * stands back where the log is too small. */
int history_compact_locked(struct store *store)
{
    check_held(&store->commit->history.lock);
    int r = compact_locked(store, true);
    return r == -EAGAIN ? compact_locked(store, false) : r;
}

int history_compact(struct store *store)
{
    LOCK_SCOPE(&store->commit->history.lock);
    return history_compact_locked(store);
}

/* Before each change. */
static int make_log_room_locked(struct store *store)
{
    check_held(&store->commit->history.lock);
    int r = local_takes_changes(store);
    if (r < 0)
        return r;
    if (store->commit->history.op_count + lag_ops(store) >= PENDING_OPS_MAX)
        return -EAGAIN;
    if (!stage_log_wants_compaction(store->stage) &&
        stage_log_room(store->stage) > STAGE_LOG_MARGIN / 2)
        return 0;
    if (history_compact_locked(store) < 0)
        log_debug("stage: the log could not be compacted");
    return stage_log_room(store->stage) > STAGE_LOG_MARGIN / 2 ? 0 : -EAGAIN;
}

int history_draft_room_locked(struct store *store)
{
    check_held(&store->commit->history.lock);
    int r = make_log_room_locked(store);
    if (r < 0 || stage_log_takes_draft(store->stage))
        return r;
    int64_t now = clock_monotonic_ns();
    if (now - store->commit->history.compacted < COMPACT_EVERY_NS)
        return -EAGAIN;
    store->commit->history.compacted = now;
    if (history_compact_locked(store) < 0)
        log_debug("stage: the log could not be compacted");
    return stage_log_takes_draft(store->stage) ? 0 : -EAGAIN;
}

bool history_is_crowded(struct store *store)
{
    if (!stage_log_is_crowded(store->stage))
        return false;
    LOCK_SCOPE(&store->commit->history.lock);
    int64_t now = clock_monotonic_ns();
    if (now - store->commit->history.compacted >= LOOK_EVERY_NS) {
        store->commit->history.compacted = now;
        if (history_compact_locked(store) < 0)
            log_debug("stage: the log could not be compacted");
    }
    return stage_log_is_crowded(store->stage);
}

int history_change_room_locked(struct store *store, uint64_t ino)
{
    check_held(&store->commit->history.lock);
    struct stage_file_state state;
    bool has_draft = stage_file_state(store->stage, ino, &state) && state.has_draft;
    return has_draft ? make_log_room_locked(store) : history_draft_room_locked(store);
}

/* --- operations ------------------------------------------------------------------------------- */

/* Times ascend with the order of operations while the clock is only set by a little. One that is
 * far behind the last operation was ahead when that happened: it is not followed for ever. Order is
 * what sequence numbers say. */
void history_stamp_locked(struct store *store, struct record *rec)
{
    check_held(&store->commit->history.lock);
    int64_t now = clock_realtime_ns();
    if (now <= store->commit->history.last_time &&
        store->commit->history.last_time - now <= CLOCK_BACK_MAX_NS)
        now = store->commit->history.last_time + 1;
    store->commit->history.last_time = now;
    rec->time = now;
    rec->writer = store->sb.writer;
    rec->seq = stage_next_seq(store->stage);
}

/* A name without a place yet is the newest of its directory. */
void history_stamp_with_cookies_locked(struct store *store, struct record *rec)
{
    check_held(&store->commit->history.lock);
    bool names = rec->type == REC_MAKE || rec->type == REC_LINK || rec->type == REC_RENAME ||
                 rec->type == REC_NASCENT;
    history_stamp_locked(store, rec);
    if (names && rec->cookie == 0)
        rec->cookie = rec->seq;
}

/* Standing of an operation's inode in the history: a nascent file is not part of it, and of one
 * that has lost its only name nothing is to come back, unless a successor adopts the mount. */
struct standing {
    bool nascent, lost;
};

/* -ENOENT: it is gone. A caller that asked before, without the history's lock, may have been
 * overtaken by its removal. */
static int standing_of(struct store *store, const struct record *rec, struct standing *ret)
{
    struct ns_inode inode;
    *ret = (struct standing){0};
    if (rec->type == REC_MAKE || rec->type == REC_NASCENT)
        return 0;
    int r = ns_inode(store->ns, rec->ino, &inode);
    if (r == 0)
        *ret =
            (struct standing){.nascent = inode.nascent, .lost = inode.nascent && inode.nlink == 0};
    return r;
}

static void drop_content_of_locked(struct store *store, uint64_t ino, uint64_t seq, bool orphan)
{
    check_held(&store->commit->history.lock);
    if (stage_unlink(store->stage, ino, seq, orphan) == -EAGAIN &&
        history_compact_locked(store) < 0)
        log_debug("inode %llu, without a name, would not outlive this daemon",
                  (unsigned long long)ino);
}

/* Content of what lost its last name. */
static void drop_content_locked(struct store *store, const struct record *rec)
{
    check_held(&store->commit->history.lock);
    uint64_t lost = rec->type == REC_UNLINK                                      ? rec->ino
                    : rec->type == REC_RENAME && !(rec->flags & RECORD_EXCHANGE) ? rec->ino2
                                                                                 : 0;
    struct ns_inode inode;
    if (rec->type == REC_REAP)
        stage_forget(store->stage, rec->ino);
    if (lost == 0)
        return;
    int r = ns_inode(store->ns, lost, &inode);
    if (r == -ENOENT || inode.nlink == 0)
        drop_content_of_locked(store, lost, rec->seq, r == 0);
}

static int add_encoded_len(const struct record *rec, void *arg)
{
    size_t *len = arg;
    *len += record_encoded_len(rec);
    return 0;
}

/* Records that a first seal enters at once must fit the log: a file that gets more xattrs than
 * that, or when the log has little room, is sealed now. */
static int bound_group_locked(struct store *store, const struct record *rec,
                              struct standing *standing)
{
    check_held(&store->commit->history.lock);
    size_t len = record_encoded_len(rec);
    if (rec->type != REC_SETXATTR || !standing->nascent)
        return 0;
    int r = ns_dump_xattrs(store->ns, rec->ino, add_encoded_len, &len);
    bool fits = len <= GROUP_MAX;
    if (standing->lost && !fits)
        cause_note("a file without a name has more xattrs than it could get one with");
    if (standing->lost)
        return r < 0 || fits ? r : -ENOSPC;
    if (r < 0 || (fits && stage_log_takes_draft(store->stage)))
        return r;
    r = history_seal_locked(store, rec->ino);
    standing->nascent = r < 0;
    return r;
}

/* The caller found it there without the history's lock. */
static int check_removable(struct store *store, const struct record *rec)
{
    ssize_t r = ns_getxattr(store->ns, rec->ino, rec->name, rec->name_len, NULL, 0);
    return r < 0 ? (int)r : 0;
}

/* A record that frees room waits for none as long as it fits. */
static int make_history_room_locked(struct store *store, const struct record *rec, bool is_lost)
{
    check_held(&store->commit->history.lock);
    if (is_lost)
        return local_takes_changes(store);
    int r =
        rec->type == REC_NASCENT ? history_draft_room_locked(store) : make_log_room_locked(store);
    bool fits = rec->type == REC_REAP && stage_log_room(store->stage) > STAGE_LOG_MARGIN / 4;
    return r == -EAGAIN && fits ? 0 : r;
}

/* A record of a file without name and version is for a successor to know: where there is no room,
 * it is left out. `op`: NULL, if it is not history. */
static int log_locked(struct store *store, const struct record *rec, struct op *op,
                      bool may_be_left_out)
{
    check_held(&store->commit->history.lock);
    if (may_be_left_out && make_log_room_locked(store) < 0)
        return 0;
    if (!op)
        return stage_log_append(store->stage, rec);
    return stage_log_append_group(store->stage, rec, &(struct iovec){op->bytes, op->len}, 1);
}

static int commit_locked(struct store *store, struct record *rec)
{
    check_held(&store->commit->history.lock);
    struct standing standing = {0};
    /* A new file is not history yet, and the end of what has no name shows nowhere. */
    int r = rec->type == REC_NASCENT || rec->type == REC_REAP ? 0 : history_seal_due_locked(store);
    if (r == 0)
        r = standing_of(store, rec, &standing);
    if (r == 0 && rec->type == REC_REMOVEXATTR)
        r = check_removable(store, rec);
    if (r == 0)
        r = bound_group_locked(store, rec, &standing);
    bool history = rec->type != REC_NASCENT && !standing.nascent;
    bool nameless = rec->type == REC_NASCENT && rec->flags & RECORD_ORPHAN;
    if (r == 0)
        r = make_history_room_locked(store, rec, standing.lost);
    if (r < 0)
        return r;
    history_stamp_with_cookies_locked(store, rec);
    if (rec->type == REC_NASCENT) /* it changes its directory in the order of operations */
        rec->attrs.btime = rec->time;
    struct op *op = history ? op_new(rec) : NULL;
    r = log_locked(store, rec, op, standing.lost || nameless);
    if (r < 0) {
        free(op);
        return r;
    }
    ns_apply(store->ns, rec);
    if (rec->type == REC_NASCENT)
        stage_open_draft(store->stage, rec->ino);
    if (nameless)
        drop_content_of_locked(store, rec->ino, rec->seq, true);
    if (op)
        list_op_locked(store, op, 0);
    drop_content_locked(store, rec);
    return 0;
}

int history_leave(struct store *store, int r)
{
    bool must_notify = store->commit->history.recount_count > 0;
    mutex_unlock(&store->commit->history.lock);
    if (r == 0)
        horizon_note(store);
    if (must_notify) /* the caller may hold locks: the writeback thread tells */
        horizon_kick(store);
    return r;
}

int history_group_room_locked(struct store *store, size_t len)
{
    check_held(&store->commit->history.lock);
    int r = make_log_room_locked(store);
    if (r < 0 || stage_log_room(store->stage) > len + STAGE_LOG_MARGIN / 2)
        return r;
    r = history_compact_locked(store);
    return r == 0 && stage_log_room(store->stage) > len + STAGE_LOG_MARGIN / 2 ? 0 : -EAGAIN;
}

/* Operations that are one: a recovery finds all of them or none, and no cut lies between. There is
 * room. */
void history_enter_group_locked(struct store *store, const struct record *recs, size_t count)
{
    check_held(&store->commit->history.lock);
    struct op **ops = xcalloc(count, sizeof(struct op *));
    struct iovec *encoded = xcalloc(count, sizeof *encoded);
    for (size_t i = 0; i < count; i++) {
        ops[i] = op_new(&recs[i]);
        encoded[i] = (struct iovec){ops[i]->bytes, ops[i]->len};
    }
    int r = stage_log_append_group(store->stage, recs, encoded, count);
    check(r == 0); /* only the history appends within the margin */
    for (size_t i = 0; i < count; i++) {
        ns_apply(store->ns, &recs[i]);
        int64_t happened = supersede_locked(store, &recs[i]);
        list_op_locked(store, ops[i], happened ? happened : store->commit->history.due_since);
    }
    free(encoded);
    free(ops);
}

static int commit_both_locked(struct store *store, struct record *rec, struct record *rec2)
{
    check_held(&store->commit->history.lock);
    struct standing standing = {0};
    int r = history_seal_due_locked(store);
    if (r == 0)
        r = standing_of(store, rec, &standing);
    if (r == 0 && rec->type == REC_REMOVEXATTR)
        r = check_removable(store, rec);
    if (r == 0)
        r = history_group_room_locked(store, record_encoded_len(rec) + record_encoded_len(rec2));
    if (r < 0)
        return r;
    check(!standing.nascent);
    history_stamp_with_cookies_locked(store, rec);
    history_stamp_with_cookies_locked(store, rec2);
    history_enter_group_locked(store, (const struct record[]){*rec, *rec2}, 2);
    drop_content_locked(store, rec);
    drop_content_locked(store, rec2);
    return 0;
}

/* A new file changes its directory's times, and is history only later: then its directory's ctime
 * is compared. What moves ctime alone would hide what the file did to mtime: so that becomes
 * history with it. True: by `*ret`, a second operation. */
static bool keep_times(struct store *store, struct record *rec, struct record *ret)
{
    int64_t time;
    bool is_xattr = rec->type == REC_SETXATTR || rec->type == REC_REMOVEXATTR;
    if (!is_xattr && (rec->type != REC_SETATTR || rec->mask & ATTR_MTIME))
        return false;
    if (!ns_has_times_of_nascent(store->ns, rec->ino, &time))
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

int history_commit(struct store *store, struct record *rec)
{
    struct record times;
    mutex_lock(&store->commit->history.lock);
    bool is_both = keep_times(store, rec, &times);
    return history_leave(store, is_both ? commit_both_locked(store, rec, &times)
                                        : commit_locked(store, rec));
}

int history_commit_both(struct store *store, struct record *rec, struct record *rec2)
{
    mutex_lock(&store->commit->history.lock);
    return history_leave(store, commit_both_locked(store, rec, rec2));
}

uint64_t history_newest(struct store *store)
{
    LOCK_SCOPE(&store->commit->history.lock);
    return store->commit->history.newest;
}

int64_t history_last_time(struct store *store)
{
    LOCK_SCOPE(&store->commit->history.lock);
    return store->commit->history.last_time;
}

/* --- the list --------------------------------------------------------------------------------- */

void history_resume(struct store *store, int64_t last_time)
{
    LOCK_SCOPE(&store->commit->history.lock);
    store->commit->history.last_time = last_time;
}

/* The last one counts, and not the latest: that may be of a clock that was ahead. */
void history_readd(struct store *store, const struct record *rec)
{
    LOCK_SCOPE(&store->commit->history.lock);
    store->commit->history.last_time = rec->time;
    list_op_locked(store, op_new(rec), 0);
}

static struct op **list_history_up_to_locked(struct store *store, uint64_t seq, size_t *ret_count)
{
    check_held(&store->commit->history.lock);
    struct op **ops = xcalloc(store->commit->history.op_count, sizeof(struct op *));
    size_t count = 0;
    struct op *op;
    TAILQ_FOREACH(op, &store->commit->history.ops, link)
    {
        if (op->seq > seq)
            break;
        ops[count++] = op;
    }
    *ret_count = count;
    return ops;
}

struct op **history_up_to(struct store *store, uint64_t cut, size_t *ret_count)
{
    LOCK_SCOPE(&store->commit->history.lock);
    return list_history_up_to_locked(store, cut, ret_count);
}

struct op **history_look(struct store *store, size_t *ret_count)
{
    LOCK_SCOPE(&store->commit->history.lock);
    store->commit->history.lookers++;
    return list_history_up_to_locked(store, UINT64_MAX, ret_count);
}

void history_looked(struct store *store, struct op **ops)
{
    LOCK_SCOPE(&store->commit->history.lock);
    store->commit->history.lookers--;
    free(ops);
}

size_t history_retire(struct store *store, uint64_t seq)
{
    LOCK_SCOPE(&store->commit->history.lock);
    struct op *op;
    size_t count = 0;
    while ((op = TAILQ_FIRST(&store->commit->history.ops)) && op->seq <= seq) {
        unlist_op_locked(store, op);
        count++;
    }
    return count;
}

bool history_oldest(struct store *store, uint64_t *ret_seq, int64_t *ret_happened)
{
    LOCK_SCOPE(&store->commit->history.lock);
    const struct op *op = TAILQ_FIRST(&store->commit->history.ops);
    if (op) {
        *ret_seq = op->seq;
        *ret_happened = op->happened;
    }
    return op != NULL;
}

bool local_follows(const struct store *store)
{
    return store->remote && store->options.remote.read_only;
}

int local_takes_changes(const struct store *store)
{
    if (!local_follows(store))
        return 0;
    cause_note("this mount follows another writer, and changes nothing");
    return -EROFS;
}
