/* Attributes: stat, chmod, chown, utimens, truncate by path, statfs. */
#include <fcntl.h>

#include "base/clock.h"
#include "fs/internal.h"

static struct timespec to_timespec(int64_t ns)
{
    return (struct timespec){.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
}

static int64_t to_ns(struct timespec t)
{
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

uint64_t size_now(struct fs *fs, const struct ns_inode *inode)
{
    struct stage_file_state state;
    if (S_ISREG(inode->attrs.mode) && stage_file_state(fs->stage, inode->ino, &state) && state.has_draft)
        return state.draft_size;
    return inode->attrs.size;
}

void fill_stat(struct fs *fs, const struct ns_inode *inode, struct stat *ret)
{
    const struct attrs *a = &inode->attrs;
    *ret = (struct stat){.st_ino = inode->ino,
                         .st_mode = a->mode,
                         .st_nlink = inode->nlink,
                         .st_uid = a->uid,
                         .st_gid = a->gid,
                         .st_rdev = a->rdev,
                         .st_size = (off_t)a->size,
                         .st_blksize = BLOCK_SIZE};
    int64_t mtime = a->mtime, ctime = a->ctime;
    uint64_t bytes = inode->blocks_bytes;
    struct stage_file_state state;
    if (S_ISREG(a->mode) && stage_file_state(fs->stage, inode->ino, &state)) {
        bytes += state.dirty_bytes;
        if (state.has_draft) {
            ret->st_size = (off_t)state.draft_size;
            mtime = state.draft_mtime ? state.draft_mtime : mtime;
            ctime = mtime > ctime ? mtime : ctime;
        }
    }
    if (S_ISREG(a->mode))
        bytes = min_u64(bytes, align_up((uint64_t)ret->st_size, 4096));
    ret->st_blocks = (blkcnt_t)((bytes + 511) / 512);
    ret->st_atim = to_timespec(a->atime);
    ret->st_mtim = to_timespec(mtime);
    ret->st_ctim = to_timespec(ctime);
}

int fs_getattr(struct fs *fs, uint64_t ino, struct stat *ret)
{
    struct ns_inode inode;
    int r = ns_inode(fs->ns, ino, &inode);
    if (r == 0)
        fill_stat(fs, &inode, ret);
    return r;
}

static int commit_attrs(struct fs *fs, uint64_t ino, uint32_t mask, const struct attrs *attrs)
{
    struct record rec = {.type = REC_SETATTR, .ino = ino, .mask = mask | ATTR_CTIME, .attrs = *attrs};
    rec.attrs.ctime = clock_realtime_ns();
    return store_commit(fs->store, &rec);
}

/* Bits that a change of content or owner takes away. */
static uint32_t without_privileges(uint32_t mode)
{
    if (!S_ISREG(mode))
        return mode;
    mode &= ~(uint32_t)S_ISUID;
    return mode & S_IXGRP ? mode & ~(uint32_t)S_ISGID : mode;
}

int kill_privileges(struct fs *fs, const struct ns_inode *inode, const struct fs_caller *caller)
{
    uint32_t mode = without_privileges(inode->attrs.mode);
    if (mode == inode->attrs.mode || caller->uid == 0)
        return 0;
    struct attrs attrs = {.mode = mode};
    return commit_attrs(fs, inode->ino, ATTR_MODE, &attrs);
}

static uint32_t collect_attrs(unsigned set, const struct stat *st, const struct ns_inode *inode, struct attrs *attrs)
{
    uint32_t mask = 0;
    if (set & FS_SET_MODE) {
        mask |= ATTR_MODE;
        attrs->mode = st->st_mode;
    } else if (set & (FS_SET_UID | FS_SET_GID) && without_privileges(inode->attrs.mode) != inode->attrs.mode) {
        mask |= ATTR_MODE;
        attrs->mode = without_privileges(inode->attrs.mode);
    }
    if (set & FS_SET_UID) {
        mask |= ATTR_UID;
        attrs->uid = st->st_uid;
    }
    if (set & FS_SET_GID) {
        mask |= ATTR_GID;
        attrs->gid = st->st_gid;
    }
    if (set & FS_SET_ATIME) {
        mask |= ATTR_ATIME;
        attrs->atime = to_ns(st->st_atim);
    }
    if (set & FS_SET_MTIME) {
        mask |= ATTR_MTIME;
        attrs->mtime = to_ns(st->st_mtim);
    }
    return mask;
}

static int set_held(struct fs *fs, const struct ns_inode *inode, unsigned set, const struct stat *st,
                    const struct fs_caller *caller)
{
    if (set & FS_SET_SIZE) {
        if (S_ISDIR(inode->attrs.mode))
            return -EISDIR;
        int r = kill_privileges(fs, inode, caller);
        if (r == 0 && (uint64_t)st->st_size != size_now(fs, inode))
            r = cut(fs, inode->ino, (uint64_t)st->st_size, UINT64_MAX, (uint64_t)st->st_size);
        if (r < 0)
            return r;
    }
    struct attrs attrs = {0};
    uint32_t mask = collect_attrs(set, st, inode, &attrs);
    if (mask == 0)
        return 0;
    int r = commit_attrs(fs, inode->ino, mask, &attrs);
    if (r == 0 && mask & ATTR_MTIME)
        r = stage_set_mtime(fs->stage, inode->ino, attrs.mtime);
    return r;
}

int fs_setattr(struct fs *fs, uint64_t ino, unsigned set, const struct stat *st, const struct fs_caller *caller,
               struct stat *ret)
{
    struct ns_inode inode;
    int r = ns_hold(fs->ns, ino, &inode);
    if (r < 0)
        return r;
    r = set_held(fs, &inode, set, st, caller);
    ns_drop(fs->ns, ino);
    return r < 0 ? r : fs_getattr(fs, ino, ret);
}

int fs_statfs(struct fs *fs, struct statvfs *ret)
{
    struct store_status status;
    store_status(fs->store, &status);
    *ret = (struct statvfs){.f_bsize = 4096, .f_frsize = 4096, .f_namemax = NAME_LEN_MAX};
    ret->f_blocks = status.cap_bytes / 4096;
    ret->f_bfree = ret->f_bavail = status.available_bytes / 4096;
    ret->f_files = status.view.files + ret->f_bavail;
    ret->f_ffree = ret->f_favail = ret->f_bavail;
    return 0;
}
