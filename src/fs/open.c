/* Open files: opening, closing, sealing at close and at fsync. */
#include <fcntl.h>

#include "base/log.h"
#include "fs/internal.h"

struct fs *fs_new(struct store *store, enum fs_fsync fsync_level)
{
    struct fs *fs = xcalloc(1, sizeof *fs);
    fs->store = store;
    fs->ns = store_ns(store);
    fs->stage = store_stage(store);
    fs->fsync_level = fsync_level;
    mutex_init(&fs->locked.lock, LOCK_FS);
    return fs;
}

void fs_free(struct fs *fs)
{
    if (!fs)
        return;
    struct open_inode *open, *next;
    HASH_ITER(hh, fs->locked.open, open, next) {
        HASH_DEL(fs->locked.open, open);
        free(open);
    }
    mutex_done(&fs->locked.lock);
    free(fs);
}

static struct open_inode *find_open_locked(struct fs *fs, uint64_t ino)
{
    struct open_inode *open = NULL;
    HASH_FIND(hh, fs->locked.open, &ino, sizeof ino, open);
    return open;
}

bool is_open_locked(struct fs *fs, uint64_t ino)
{
    return find_open_locked(fs, ino) != NULL;
}

static void count_open(struct fs *fs, uint64_t ino)
{
    LOCK_SCOPE(&fs->locked.lock);
    struct open_inode *open = find_open_locked(fs, ino);
    if (!open) {
        open = xcalloc(1, sizeof *open);
        open->ino = ino;
        HASH_ADD(hh, fs->locked.open, ino, sizeof open->ino, open);
    }
    open->opens++;
}

static bool is_writable(int flags)
{
    return (flags & O_ACCMODE) != O_RDONLY;
}

int fs_open(struct fs *fs, uint64_t ino, int flags, const struct fs_caller *caller, struct fs_opened *ret)
{
    struct ns_inode inode;
    int r = ns_hold(fs->ns, ino, &inode);
    if (r < 0)
        return r;
    if (flags & O_TRUNC && size_now(fs, &inode) > 0) {
        r = kill_privileges(fs, &inode, caller);
        if (r == 0)
            r = cut(fs, ino, 0, UINT64_MAX, 0);
    }
    if (r == 0)
        r = stage_handle_open(fs->stage, ino, (uint32_t)flags, &ret->handle);
    if (r < 0) {
        ns_drop(fs->ns, ino);
        return r;
    }
    count_open(fs, ino);
    struct stage_file_state state;
    (void)stage_file_state(fs->stage, ino, &state);
    ret->has_draft = state.has_draft || inode.nascent;
    return 0;
}

int fs_handle_flags(struct fs *fs, uint64_t handle)
{
    return (int)stage_handle_flags(fs->stage, handle);
}

/* The last handle of something without a name is closed. */
static void reap(struct fs *fs, uint64_t ino)
{
    struct ns_inode inode;
    if (ns_inode(fs->ns, ino, &inode) < 0 || inode.nlink > 0)
        return;
    struct record rec = {.type = REC_REAP, .ino = ino};
    int r = store_commit(fs->store, &rec);
    if (r < 0)
        log_warn("inode %llu was deleted and is closed, but its room comes free only at the next mount: %s",
                 (unsigned long long)ino, strerror(-r));
}

void fs_release(struct fs *fs, uint64_t handle)
{
    uint32_t flags;
    uint64_t ino = stage_handle_close(fs->stage, handle, &flags);
    /* A process that was killed may not have flushed. */
    if (is_writable((int)flags) && store_seal(fs->store, ino) < 0)
        log_debug("inode %llu stays a draft for now", (unsigned long long)ino);
    mutex_lock(&fs->locked.lock);
    struct open_inode *open = find_open_locked(fs, ino);
    check(open && open->opens > 0);
    if (--open->opens == 0) {
        HASH_DEL(fs->locked.open, open);
        free(open);
        reap(fs, ino);
    }
    mutex_unlock(&fs->locked.lock);
    ns_drop(fs->ns, ino);
}

int fs_flush(struct fs *fs, uint64_t ino, uint64_t handle)
{
    if (!is_writable(fs_handle_flags(fs, handle)))
        return 0;
    return store_seal(fs->store, ino);
}

int fs_fsync(struct fs *fs, uint64_t ino, uint64_t *ret_seq)
{
    struct ns_inode inode;
    int r = ns_inode(fs->ns, ino, &inode);
    if (r == 0)
        r = S_ISREG(inode.attrs.mode) ? store_seal(fs->store, ino) : 0;
    *ret_seq = fs->fsync_level == FS_FSYNC_NVME ? store_newest(fs->store) : 0;
    return r;
}
