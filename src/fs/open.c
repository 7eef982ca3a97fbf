// SPDX-License-Identifier: Apache-2.0
/* Open files: opening, closing, sealing at close and at fsync. */
#include <fcntl.h>

#include "base/cause.h"
#include "base/clock.h"
#include "base/log.h"
#include "fs/internal.h"

static struct live_inode *find_live_locked(struct fs *fs, uint64_t ino)
{
    check_held(&fs->locked.lock);
    struct live_inode *live = NULL;
    HASH_FIND(hh, fs->locked.live, &ino, sizeof ino, live);
    return live;
}

static struct live_inode *get_live_locked(struct fs *fs, uint64_t ino)
{
    check_held(&fs->locked.lock);
    struct live_inode *live = find_live_locked(fs, ino);
    if (!live) {
        live = xcalloc(1, sizeof *live);
        live->ino = ino;
        HASH_ADD(hh, fs->locked.live, ino, sizeof live->ino, live);
    }
    return live;
}

bool fs_is_open(struct fs *fs, uint64_t ino)
{
    LOCK_SCOPE(&fs->locked.lock);
    const struct live_inode *live = find_live_locked(fs, ino);
    return live && live->opens > 0;
}

static bool opens_to_write(uint32_t flags)
{
    return (flags & O_ACCMODE) != O_RDONLY && !(flags & HANDLE_FLUSHED);
}

uint64_t fs_loads(struct fs *fs, uint64_t ino)
{
    LOCK_SCOPE(&fs->locked.lock);
    const struct live_inode *live = find_live_locked(fs, ino);
    return live ? live->loads : 0;
}

static bool counts_as_load(uint32_t flags)
{
    return fs_is_load((int)flags) && !(flags & O_DIRECT);
}

static void count_open(struct fs *fs, uint64_t ino, uint32_t flags)
{
    LOCK_SCOPE(&fs->locked.lock);
    struct live_inode *live = get_live_locked(fs, ino);
    live->opens++;
    live->writers += opens_to_write(flags);
    live->loads += counts_as_load(flags);
}

/* The kernel knows the inode: it must have found the name before it asked for its removal; or it is
 * about to know it, and the call that created it cleans up if that fails. */
struct live_inode *live_note_nameless_locked(struct fs *fs, uint64_t ino)
{
    check_held(&fs->locked.lock);
    struct live_inode *live = get_live_locked(fs, ino);
    live->is_nameless = true;
    return live;
}

struct live_inode *live_nameless_locked(struct fs *fs, uint64_t ino)
{
    check_held(&fs->locked.lock);
    struct live_inode *live = find_live_locked(fs, ino);
    return live && live->is_nameless ? live : NULL;
}

bool close_seals(int flags)
{
    return (flags & O_ACCMODE) != O_RDONLY || flags & O_CREAT;
}

/* Ends an inode without a name. */
static int reap_inode(struct fs *fs, uint64_t ino)
{
    struct ns_inode inode;
    int r = ns_hold(fs->ns, ino, &inode);
    if (r < 0)
        return r == -ENOENT ? 0 : r;
    struct record rec = {.type = REC_REAP, .ino = ino};
    r = history_commit(fs->commit->history, &rec);
    ns_drop(fs->ns, ino);
    return r;
}

/* Ends an inode without a name that is neither open nor known to the kernel. -EAGAIN, only if
 * `may_wait`: there is no room to commit its end, and it still lives. */
static int end_if_not_open_locked(struct fs *fs, struct live_inode *live, bool may_wait)
{
    check_held(&fs->locked.lock);
    if (live->opens > 0 || (live->is_nameless && !live->is_forgotten))
        return 0;
    int r = live->is_nameless ? reap_inode(fs, live->ino) : 0;
    if (r == -EAGAIN && may_wait)
        return r;
    if (r < 0)
        log_warn("inode %llu was deleted and is open nowhere, but its room comes free only at the "
                 "next mount: %s",
                 (unsigned long long)live->ino, strerror(-r));
    HASH_DEL(fs->locked.live, live);
    free(live);
    return 0;
}

void live_note_named_locked(struct fs *fs, struct live_inode *live)
{
    check_held(&fs->locked.lock);
    live->is_nameless = live->may_get_name = false;
    int r = end_if_not_open_locked(fs, live, false);
    check(r == 0);
}

void live_end_all(struct fs *fs)
{
    LOCK_SCOPE(&fs->locked.lock);
    struct live_inode *live, *next;
    HASH_ITER(hh, fs->locked.live, live, next)
    {
        live->opens = live->writers = live->loads = 0;
        live->is_forgotten = true;
        int r = end_if_not_open_locked(fs, live, false);
        check(r == 0);
    }
}

bool fs_is_nameless(struct fs *fs, uint64_t ino)
{
    LOCK_SCOPE(&fs->locked.lock);
    return live_nameless_locked(fs, ino) != NULL;
}

int fs_forget(struct fs *fs, uint64_t ino)
{
    LOCK_SCOPE(&fs->locked.lock);
    struct live_inode *live = live_nameless_locked(fs, ino);
    if (!live)
        return 0;
    live->is_forgotten = true;
    return end_if_not_open_locked(fs, live, true);
}

/* Files that a new file replaced are no longer needed by the history; the kernel may still know
 * them, and then gets an error. */
void fs_end_replaced(struct fs *fs)
{
    uint64_t ino;
    while ((ino = history_replaced(fs->commit->history))) {
        mutex_lock(&fs->locked.lock);
        (void)live_note_nameless_locked(fs, ino);
        mutex_unlock(&fs->locked.lock);
        if (fs_forget(fs, ino) < 0)
            log_debug("inode %llu, which was replaced, stays until the next mount",
                      (unsigned long long)ino);
    }
}

/* -EAGAIN, only if `may_wait`: it is open still. */
static int close_handle(struct fs *fs, uint64_t ino, uint64_t handle, bool may_wait)
{
    LOCK_SCOPE(&fs->locked.lock);
    struct live_inode *live = find_live_locked(fs, ino);
    uint32_t flags = stage_handle_flags(fs->stage, handle);
    check(live->opens > 0 && live->writers >= opens_to_write(flags));
    live->opens--;
    live->writers -= opens_to_write(flags);
    live->loads -= counts_as_load(flags);
    int r = end_if_not_open_locked(fs, live, may_wait);
    if (r < 0) {
        live->opens++;
        live->writers += opens_to_write(flags);
        live->loads += counts_as_load(flags);
        return r;
    }
    (void)stage_handle_close(fs->stage, handle, &flags);
    return 0;
}

int open_ahead(struct fs *fs, uint64_t ino, int flags, uint64_t *ret_handle)
{
    int r = stage_handle_open(fs->stage, ino, (uint32_t)flags, ret_handle);
    if (r == 0)
        count_open(fs, ino, (uint32_t)flags);
    return r;
}

void open_undo(struct fs *fs, uint64_t ino, uint64_t handle)
{
    check(close_handle(fs, ino, handle, false) == 0);
}

/* Fills in everything except the handle. */
static void describe_opened(struct fs *fs, const struct ns_inode *inode, int flags,
                            struct fs_opened *ret)
{
    struct stage_file_state state;
    (void)stage_file_state(fs->stage, inode->ino, &state);
    ret->has_draft = state.has_draft || inode->nascent;
    ret->atime_due = access_due(fs, inode->ino, clock_realtime_ns());
    ret->seals = close_seals(flags);
    ret->is_elsewhere = inode->is_elsewhere;
}

/* Checked before a handle is taken: the successor of a daemon that dies right after that would
 * return the handle, and the caller would write to the other node's file. A file that belongs to
 * another node always will. */
static int check_elsewhere(struct fs *fs, uint64_t ino)
{
    struct ns_inode inode;
    TRY(local_takes_changes(fs->commit->local));
    if (!fs->commit->local->sb.node)
        return 0;
    int r = ns_inode(fs->ns, ino, &inode);
    return r == 0 && inode.is_elsewhere ? FS_IS_ELSEWHERE : r;
}

int fs_open(struct fs *fs, uint64_t ino, int flags, struct fs_opened *ret)
{
    bool changes = opens_to_write((uint32_t)flags) || flags & O_TRUNC;
    struct ns_inode inode;
    int r = changes ? check_elsewhere(fs, ino) : FS_DONE;
    if (r != FS_DONE)
        return r;
    TRY(open_ahead(fs, ino, flags & ~O_TRUNC, &ret->handle));
    r = ns_hold(fs->ns, ino, &inode);
    if (r < 0) {
        open_undo(fs, ino, ret->handle);
        return r;
    }
    describe_opened(fs, &inode, flags, ret);
    return FS_DONE;
}

/* --- open files of a daemon that died --- */

static void adopt_handle(struct fs *fs, uint64_t handle, uint64_t ino, uint32_t flags)
{
    struct ns_inode inode;
    if (ino == STAGE_INODE_LOST)
        return;
    if (ns_hold(fs->ns, ino, &inode) == 0) {
        count_open(fs, ino, flags);
        return;
    }
    log_warn("inode %llu was open and is not there any more: it had no name, and the log of the "
             "stage no room for it",
             (unsigned long long)ino);
    stage_handle_lose(fs->stage, handle);
}

/* An inode that was created without a name may get one: the kernel requests this for no other. */
static void adopt_nameless(struct fs *fs, uint64_t ino)
{
    struct ns_inode inode;
    LOCK_SCOPE(&fs->locked.lock);
    if (ns_inode(fs->ns, ino, &inode) == 0 && inode.nlink == 0)
        live_note_nameless_locked(fs, ino)->may_get_name = inode.nascent;
}

void fs_adopt(struct fs *fs)
{
    uint64_t cursor = 0, handle, ino;
    uint32_t flags;
    const uint64_t *nameless;
    size_t count = store_nameless(fs->store, &nameless);
    for (size_t i = 0; i < count; i++)
        adopt_nameless(fs, nameless[i]);
    while (stage_handle_next(fs->stage, &cursor, &handle, &ino, &flags))
        adopt_handle(fs, handle, ino, flags);
}

int fs_opened_again(struct fs *fs, uint64_t handle, struct fs_opened *ret)
{
    struct ns_inode inode;
    uint64_t ino = stage_handle_inode(fs->stage, handle);
    TRY(ino == STAGE_INODE_LOST ? -ENOENT : ns_inode(fs->ns, ino, &inode));
    ret->handle = handle;
    describe_opened(fs, &inode, fs_handle_flags(fs, handle), ret);
    return 0;
}

int fs_handle_flags(struct fs *fs, uint64_t handle)
{
    return (int)(stage_handle_flags(fs->stage, handle) & ~HANDLE_FLUSHED);
}

/* Called when a descriptor of the file is closed: returns whether another process writes the file
 * through another descriptor, none of whose copies was closed yet. A descriptor that was
 * duplicated, or inherited by a process that ended, does not count any more then, though it may
 * still be used to write: its file is sealed more often than necessary, never less often. */
static bool others_write(struct fs *fs, uint64_t ino, uint64_t handle)
{
    LOCK_SCOPE(&fs->locked.lock);
    struct live_inode *live = find_live_locked(fs, ino);
    if (stage_handle_inode(fs->stage, handle) != ino)
        return false; /* the handle was lost with a daemon that died */
    bool was_writer = opens_to_write(stage_handle_flags(fs->stage, handle));
    if (stage_handle_flushed(fs->stage, handle))
        live->writers -= was_writer;
    return live->writers > 0;
}

int fs_flush(struct fs *fs, uint64_t ino, uint64_t handle)
{
    if (!close_seals(fs_handle_flags(fs, handle)))
        return 0;
    int r = others_write(fs, ino, handle) ? history_seal_later(fs->commit->history, ino)
                                          : history_seal(fs->commit->history, ino);
    fs_end_replaced(fs);
    return r;
}

int fs_release(struct fs *fs, uint64_t handle, bool may_wait)
{
    uint64_t ino = stage_handle_inode(fs->stage, handle);
    if (ino == 0)
        return 0;
    if (ino == STAGE_INODE_LOST) {
        uint32_t flags;
        (void)stage_handle_close(fs->stage, handle, &flags);
        return 0;
    }
    /* A process that was killed may not have flushed. */
    if (fs_flush(fs, ino, handle) < 0)
        log_debug("inode %llu stays a draft for now", (unsigned long long)ino);
    int r = close_handle(fs, ino, handle, may_wait);
    if (r == 0)
        ns_drop(fs->ns, ino);
    return r;
}

int fs_fsync(struct fs *fs, uint64_t ino, struct fs_barrier *ret)
{
    struct ns_inode inode;
    int r = ns_inode(fs->ns, ino, &inode);
    if (r == 0)
        r = S_ISREG(inode.attrs.mode) ? history_seal(fs->commit->history, ino)
                                      : history_seal_due(fs->commit->history);
    *ret = (struct fs_barrier){
        .level = fs->fsync_level,
        .seq = fs->fsync_level == FS_FSYNC_STAGE ? 0 : history_newest(fs->commit->history)};
    return r;
}

void fs_await(struct fs *fs, const struct fs_barrier *barrier, void (*fn)(int result, void *arg),
              void *arg, uint64_t *ret_ticket)
{
    if (barrier->level == FS_FSYNC_REMOTE)
        remote_start_wait(fs->store, barrier->seq, fn, arg, ret_ticket);
    else
        horizon_await(fs->commit->horizon, barrier->seq, fn, arg, ret_ticket);
}

int fs_after_barrier(struct fs *fs, uint64_t ino, enum fs_fsync level)
{
    struct fetch_unsafe unsafe = {0};
    if (level == FS_FSYNC_REMOTE)
        TRY(fetch_remote_damaged(fs->store, ino, &unsafe));
    if (unsafe.lost_bytes + unsafe.pending_bytes == 0)
        return 0;
    cause_note("%llu bytes of it can be read neither from NVMe nor from the remote, and %llu are "
               "on NVMe alone, to be uploaded again",
               (unsigned long long)unsafe.lost_bytes, (unsigned long long)unsafe.pending_bytes);
    return -EIO;
}
