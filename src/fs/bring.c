// SPDX-License-Identifier: Apache-2.0
/* A file of another node is about to be changed: its content is stored again, in a new file of this
 * node, which replaces it under its name. Other nodes see that one file was replaced by another.
 *
 * The copies are made by threads of their own, as the remote that has the content may be slow, or
 * hang. During the copy the new file has no name: no other node sees it, and if the daemon dies its
 * successor removes it, or it was never known to anyone else. */
#include "base/cause.h"
#include "base/clock.h"
#include "base/event.h"
#include "base/log.h"
#include "base/pool.h"
#include "base/vector.h"
#include "fs/internal.h"
#include "fs/taken.h"

#define PIECE (128u * 1024)    /* below STAGE_STEAL_MIN: it is copied into the stage */
#define AGAIN_MS 50            /* for a change that waits for room, or for a round */
#define VALUE_MAX (64u * 1024) /* of an xattr */
#define COPIES_MAX 64u         /* that wait, or are being made */
#define THREADS 4u

struct bringing {
    struct fs *fs;
    struct ns_inode from; /* which is held */
    /* callers that wait; 0: the copy is given up. This and the next three with the lock of
     * brings */
    unsigned askers;
    bool is_over;
    int result;
    char *cause;
    /* Used only by the copying thread. */
    uint64_t copy;       /* the new file; 0: there is none */
    int64_t waits_since; /* for room, monotonic ns; 0: not waiting */
};

struct brings {
    struct cairn_mutex lock; /* a leaf */
    struct bringing *copies[COPIES_MAX];
    struct pool *pool; /* NULL: the remote could not be read yet */
    bool stops;
    void (*over)(void *arg);
    void *over_arg;
};

struct brings *brings_new(void)
{
    struct brings *brings = xcalloc(1, sizeof *brings);
    mutex_init(&brings->lock, LOCK_LEAF);
    return brings;
}

void brings_free(struct brings *brings)
{
    check(!brings->pool);
    mutex_done(&brings->lock);
    free(brings);
}

/* --- the new file ----------------------------------------------------------------------------- */

struct new_file {
    /* NASCENT, and a SETXATTR for each xattr, with copies of the names */
    VECTOR(struct record) recs;
    struct ns *ns;
    uint64_t from;
    int result;
};

static void new_file_done(struct new_file *new)
{
    for (size_t i = 1; i < new->recs.count; i++) {
        free((void *)(uintptr_t) new->recs.at[i].name);
        free((void *)(uintptr_t) new->recs.at[i].value);
    }
    vector_free(&new->recs);
}

static int add_xattr(const char *name, size_t name_len, void *arg)
{
    struct new_file *new = arg;
    uint8_t *value = xmalloc(VALUE_MAX);
    ssize_t len = ns_getxattr(new->ns, new->from, name, name_len, value, VALUE_MAX);
    if (len < 0) {
        free(value);
        new->result = len == -ENODATA ? 0 : (int)len; /* removed meanwhile */
        return new->result < 0;
    }
    char *own_name = xmalloc(name_len);
    memcpy(own_name, name, name_len);
    vector_add(&new->recs, (struct record){.type = REC_SETXATTR,
                                           .ino = new->recs.at[0].ino,
                                           .name = own_name,
                                           .name_len = (uint16_t)name_len,
                                           .value = value,
                                           .value_len = (uint32_t)len});
    return 0;
}

/* Creates an empty file of this node with the attributes of another node's: `rec` has its name, or
 * none. *ret_ino: its number. */
static int make_file(struct fs *fs, const struct ns_inode *from, const struct record *rec,
                     uint64_t *ret_ino)
{
    __attribute__((cleanup(new_file_done))) struct new_file new = {.ns = fs->ns, .from = from->ino};
    struct record nascent = *rec;
    nascent.type = REC_NASCENT;
    nascent.ino = *ret_ino = store_new_ino(fs->store);
    nascent.attrs = from->attrs;
    nascent.attrs.size = 0;
    nascent.attrs.mtime = nascent.attrs.ctime = clock_realtime_ns();
    vector_add(&new.recs, nascent);
    TRY(room_admit_change(fs->commit->room, 4096));
    TRY(ns_listxattr(fs->ns, from->ino, add_xattr, &new));
    TRY(new.result);
    LOCK_SCOPE(&fs->locked.lock);
    int r = history_make(fs->commit->history, new.recs.at, new.recs.count);
    if (r == 0 && nascent.flags & RECORD_ORPHAN)
        live_note_nameless_locked(fs, nascent.ino)->may_get_name = true;
    return r;
}

/* --- its name --------------------------------------------------------------------------------- */

struct name {
    uint64_t ino, parent;
    char text[NAME_LEN_MAX + 1];
};

static int note_name(const struct view_entry *entry, const char *text, size_t len, void *arg)
{
    struct name *name = arg;
    if (entry->ino != name->ino)
        return 0;
    memcpy(name->text, text, len);
    name->text[len] = '\0';
    return 1;
}

/* Finds the only name of a file. -ESTALE: it is being removed, or moved, or is covered already. */
static int find_name(struct fs *fs, const struct ns_inode *from, struct name *ret)
{
    *ret = (struct name){.ino = from->ino, .parent = from->parent};
    if (from->nlink > 1) {
        cause_note("a file of another node that has several names cannot be changed here");
        return -EROFS;
    }
    if (from->nlink == 1 && from->parent)
        TRY(ns_readdir(fs->ns, from->parent, 0, 1024, note_name, ret));
    return ret->text[0] ? 0 : -ESTALE;
}

typedef int cover_fn(struct fs *fs, const struct ns_inode *from, struct record *rec);

/* Called with the gate closed. -ESTALE: the name belongs to another file meanwhile. */
static int cover_closed(struct fs *fs, const struct name *name, struct record *rec, cover_fn *fn)
{
    struct ns_inode dir, from;
    struct view_entry entry;
    size_t len = strlen(name->text);
    int r = ns_inode(fs->ns, name->ino, &from);
    if (r == 0)
        r = ns_lookup(fs->ns, name->parent, name->text, len, &entry);
    if (r < 0 || entry.ino != name->ino || from.nlink != 1)
        return r < 0 && r != -ENOENT ? r : -ESTALE;
    TRY(ns_hold(fs->ns, name->parent, &dir));
    rec->ino2 = name->ino;
    rec->parent = name->parent;
    rec->cookie = entry.cookie;
    rec->name = name->text;
    rec->name_len = (uint16_t)len;
    r = fn(fs, &from, rec);
    ns_drop(fs->ns, name->parent);
    return r;
}

/* Gives a new file the name of another node's file, which is held: `rec` is its NASCENT. */
static int cover(struct fs *fs, const struct name *name, struct record *rec, cover_fn *fn)
{
    fs_taken_begin(fs);
    int r = cover_closed(fs, name, rec, fn);
    fs_taken_end(fs);
    return r;
}

static int give_name(struct fs *fs, const struct ns_inode *from, struct record *rec)
{
    (void)from;
    LOCK_SCOPE(&fs->locked.lock);
    struct live_inode *live = live_nameless_locked(fs, rec->ino);
    check(live && live->may_get_name);
    int r = history_name(fs->commit->history, rec);
    if (r == 0)
        live_note_named_locked(fs, live);
    return r;
}

static int name_copy(struct bringing *b)
{
    struct record rec = {.type = REC_NASCENT, .ino = b->copy, .attrs = {.mode = S_IFREG}};
    struct ns_inode from;
    struct name name;
    TRY(ns_inode(b->fs->ns, b->from.ino, &from));
    TRY(find_name(b->fs, &from, &name));
    int r = cover(b->fs, &name, &rec, give_name);
    fs_end_replaced(b->fs);
    return r;
}

/* --- copying ---------------------------------------------------------------------------------- */

static bool is_given_up(struct bringing *b)
{
    struct brings *brings = b->fs->brings;
    LOCK_SCOPE(&brings->lock);
    return b->askers == 0 || brings->stops;
}

/* Repeats an operation for which there was no room, as a parked request is repeated; room.c must
 * know since when it waits, to report in the end that there will be none. */
static bool must_repeat(struct bringing *b, int *r)
{
    struct event *progress = horizon_progress(b->fs->commit->horizon);
    uint64_t seen = event_count(progress);
    if (*r == -EAGAIN && is_given_up(b))
        *r = -ECANCELED;
    b->waits_since = *r != -EAGAIN ? 0 : b->waits_since ? b->waits_since : clock_monotonic_ns();
    room_waits_since(b->waits_since);
    if (*r != -EAGAIN)
        return false;
    (void)event_wait(progress, &seen, clock_monotonic_ns() + AGAIN_MS * MS_NS);
    return true;
}

static int write_piece(struct bringing *b, const struct fs_write *w)
{
    int r;
    do
        r = fs_write(b->fs, w, NULL);
    while (must_repeat(b, &r));
    return r;
}

static int copy_pieces(struct bringing *b, struct store *others, uint64_t size)
{
    _cleanup_free_ uint8_t *bytes = xmalloc(PIECE);
    for (uint64_t at = 0; at < size; at += PIECE) {
        struct fetch_read_end end;
        const struct fetch_read how = {.ino = b->from.ino,
                                       .offset = at,
                                       .buf = bytes,
                                       .length = (size_t)min_u64(PIECE, size - at),
                                       .reach = STORE_REACH_REMOTE};
        const struct fs_write w = {.ino = b->copy,
                                   .offset = at,
                                   .length = (uint32_t)how.length,
                                   .slab = SLAB_NONE,
                                   .data = bytes};
        if (is_given_up(b))
            return -ECANCELED;
        TRY(fetch_read(others, &how, &end));
        TRY(write_piece(b, &w));
    }
    return 0;
}

/* -ESTALE: the other node changed it meanwhile, and a copy would be a mixture. */
static int copy_content(struct bringing *b)
{
    struct store *others = atomic_load(&b->fs->others);
    struct ns_inode there, now;
    int r = ns_inode(store_ns(others), b->from.ino, &there);
    if (r == 0)
        r = copy_pieces(b, others, there.attrs.size);
    if (r == 0)
        r = ns_inode(store_ns(others), b->from.ino, &now);
    if (r < 0)
        return r == -ENOENT ? -ESTALE : r;
    if (now.version != there.version)
        return -ESTALE;
    return stage_set_mtime(b->fs->stage, b->copy, there.attrs.mtime);
}

static int make_copy(struct bringing *b)
{
    const struct record nameless = {.flags = RECORD_ORPHAN, .parent = ROOT_INO};
    struct ns_inode root;
    uint64_t ino;
    int r;
    TRY(ns_hold(b->fs->ns, ROOT_INO, &root));
    do
        r = make_file(b->fs, &b->from, &nameless, &ino);
    while (must_repeat(b, &r));
    ns_drop(b->fs->ns, ROOT_INO);
    TRY(r);
    b->copy = ino;
    TRY(copy_content(b));
    do
        r = name_copy(b);
    while (must_repeat(b, &r));
    return r;
}

static void drop_copy(struct bringing *b)
{
    if (fs_forget(b->fs, b->copy) < 0)
        log_debug("inode %llu, a copy that failed, is kept until the next mount",
                  (unsigned long long)b->copy);
}

static int copy_here(struct bringing *b)
{
    struct name name;
    cause_clear();
    TRY(find_name(b->fs, &b->from, &name));
    int r = make_copy(b);
    if (r < 0 && b->copy)
        drop_copy(b);
    if (r == 0 || r == -ESTALE)
        cause_clear(); /* the caller looks the name up again */
    return r == 0 ? -ESTALE : r;
}

/* --- callers that wait --- */

static void bringing_free(struct bringing *b)
{
    ns_drop(b->fs->ns, b->from.ino);
    free(b->cause);
    free(b);
}

static void run_copy(void *arg)
{
    struct bringing *b = arg;
    struct brings *brings = b->fs->brings;
    int r = is_given_up(b) ? -ECANCELED : copy_here(b);
    mutex_lock(&brings->lock);
    b->is_over = true;
    b->result = r;
    b->cause = xstrdup(cause_text());
    for (size_t i = 0; i < COPIES_MAX; i++)
        if (brings->copies[i] == b)
            brings->copies[i] = NULL;
    bool is_mine = b->askers == 0;
    mutex_unlock(&brings->lock);
    if (is_mine)
        bringing_free(b);
    if (brings->over)
        brings->over(brings->over_arg);
}

/* A copy that is given up is not joined, and frees its place soon. */
static struct bringing *join_locked(struct brings *brings, uint64_t ino, size_t *ret_free)
{
    check_held(&brings->lock);
    *ret_free = COPIES_MAX;
    for (size_t i = 0; i < COPIES_MAX; i++) {
        struct bringing *b = brings->copies[i];
        if (b && b->from.ino == ino && b->askers > 0) {
            b->askers++;
            return b;
        }
        if (!b)
            *ret_free = i;
    }
    return NULL;
}

/* NULL: there is no place. *ret_begins: the caller must submit it to a thread. */
static struct bringing *join_or_begin(struct fs *fs, const struct ns_inode *from, bool *ret_begins)
{
    struct brings *brings = fs->brings;
    size_t place;
    LOCK_SCOPE(&brings->lock);
    struct bringing *b = join_locked(brings, from->ino, &place);
    *ret_begins = !b && place < COPIES_MAX;
    if (!*ret_begins)
        return b;
    b = xcalloc(1, sizeof *b);
    *b = (struct bringing){.fs = fs, .from = *from, .askers = 1};
    brings->copies[place] = b;
    return b;
}

int fs_bring(struct fs *fs, uint64_t ino, struct bringing **ret)
{
    struct ns_inode from;
    bool begins;
    TRY(elsewhere_check(fs));
    if (!fs->brings->pool) {
        cause_note("threads for copies of other nodes' files could not be started");
        return -EIO;
    }
    TRY(ns_hold(fs->ns, ino, &from));
    *ret = join_or_begin(fs, &from, &begins);
    if (begins)
        pool_submit(fs->brings->pool, run_copy, *ret);
    else
        ns_drop(fs->ns, ino);
    return *ret ? 0 : -EAGAIN;
}

int fs_bring_result(struct bringing *b)
{
    LOCK_SCOPE(&b->fs->brings->lock);
    if (!b->is_over)
        return -EAGAIN;
    if (*b->cause)
        cause_note("%s", b->cause);
    return b->result;
}

void fs_bring_leave(struct bringing *b)
{
    struct brings *brings = b->fs->brings;
    mutex_lock(&brings->lock);
    check(b->askers > 0);
    bool is_mine = --b->askers == 0 && b->is_over;
    mutex_unlock(&brings->lock);
    if (is_mine)
        bringing_free(b);
}

void fs_bring_subscribe(struct fs *fs, void (*over)(void *arg), void *arg)
{
    fs->brings->over = over;
    fs->brings->over_arg = arg;
}

void brings_begin(struct brings *brings)
{
    struct pool *pool = NULL;
    int r = pool_new("cairn-bring", THREADS, COPIES_MAX, NULL, NULL, &pool);
    if (r < 0)
        log_warn("files of other nodes cannot be changed until the next mount: %s", strerror(-r));
    LOCK_SCOPE(&brings->lock);
    brings->pool = pool;
}

void brings_end(struct brings *brings)
{
    mutex_lock(&brings->lock);
    brings->stops = true;
    mutex_unlock(&brings->lock);
    pool_free(brings->pool);
    brings->pool = NULL;
}

/* --- without the content --- */

/* FS_IS_ELSEWHERE: the caller may have found the file by a path that is gone meanwhile; its call
 * would then fail, but the file would be empty. */
static int make_covering(struct fs *fs, const struct ns_inode *from, struct record *rec)
{
    if (taken_moved_lately(fs, from->ino))
        return FS_IS_ELSEWHERE;
    return make_file(fs, from, rec, &rec->ino);
}

int fs_bring_empty(struct fs *fs, uint64_t ino, bool seals)
{
    struct ns_inode from;
    struct record rec = {0};
    struct name name;
    TRY(ns_hold(fs->ns, ino, &from));
    int r = find_name(fs, &from, &name);
    if (r == 0)
        r = cover(fs, &name, &rec, make_covering);
    ns_drop(fs->ns, ino);
    if (r == 0 && seals && history_seal(fs->commit->history, rec.ino) == -EAGAIN)
        log_debug("inode %llu is sealed later, as other drafts are", (unsigned long long)rec.ino);
    return r == 0 ? -ESTALE : r;
}
