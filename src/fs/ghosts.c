/* What lost its last name while nobody had it open, but is still known to the kernel: a process's working directory, a fifo that
 * two processes talk through, an O_PATH descriptor. Nothing is left of it in history; what stat says of it stays here until the
 * kernel has forgotten the inode, or more than a bound have come since. */
#include "base/clock.h"
#include "fs/internal.h"

#define GHOSTS_MAX 4096u

struct ghost {
    UT_hash_handle hh; /* in order of removal */
    uint64_t ino;
    struct stat st;
};

static void remove_locked(struct fs *fs, struct ghost *ghost)
{
    HASH_DEL(fs->ghosts.all, ghost);
    free(ghost);
}

void ghost_add(struct fs *fs, const struct ns_inode *inode)
{
    struct now now = {.inode = *inode, .size = inode->attrs.size, .mtime = inode->attrs.mtime};
    struct ghost *ghost = xcalloc(1, sizeof *ghost);
    ghost->ino = inode->ino;
    now.inode.nlink = 0;
    now.inode.attrs.ctime = clock_realtime_ns();
    fill_stat(fs, &now, &ghost->st);
    LOCK_SCOPE(&fs->ghosts.lock);
    HASH_ADD(hh, fs->ghosts.all, ino, sizeof ghost->ino, ghost);
    if (HASH_COUNT(fs->ghosts.all) > GHOSTS_MAX)
        remove_locked(fs, fs->ghosts.all);
}

bool ghost_stat(struct fs *fs, uint64_t ino, struct stat *ret)
{
    LOCK_SCOPE(&fs->ghosts.lock);
    struct ghost *ghost = NULL;
    HASH_FIND(hh, fs->ghosts.all, &ino, sizeof ino, ghost);
    if (ghost)
        *ret = ghost->st;
    return ghost != NULL;
}

bool fs_is_ghost(struct fs *fs, uint64_t ino)
{
    struct stat st;
    return ghost_stat(fs, ino, &st);
}

void fs_forget(struct fs *fs, uint64_t ino)
{
    LOCK_SCOPE(&fs->ghosts.lock);
    struct ghost *ghost = NULL;
    HASH_FIND(hh, fs->ghosts.all, &ino, sizeof ino, ghost);
    if (ghost)
        remove_locked(fs, ghost);
}

void ghosts_free(struct fs *fs)
{
    while (fs->ghosts.all)
        remove_locked(fs, fs->ghosts.all);
}
