// SPDX-License-Identifier: Apache-2.0
/* Attributes: stat, chmod, chown, utimens, truncate by path, statfs. */
#include <fcntl.h>

#include "base/clock.h"
#include "fs/internal.h"

struct timespec fs_timespec(int64_t ns)
{
    int64_t part = ns % 1000000000;
    bool before_1970 = part < 0; /* nanoseconds count forwards also before 1970 */
    return (struct timespec){.tv_sec = ns / 1000000000 - before_1970,
                             .tv_nsec = part + before_1970 * 1000000000ll};
}

/* Replaces a time outside of the years 1677 to 2262 by the nearest one that can be stored. */
static int64_t to_ns(struct timespec t)
{
    int64_t ns;
    if (__builtin_mul_overflow((int64_t)t.tv_sec, (int64_t)1000000000, &ns) ||
        __builtin_add_overflow(ns, t.tv_nsec, &ns))
        return t.tv_sec < 0 ? INT64_MIN : INT64_MAX;
    return ns;
}

uint64_t blocks_now(struct fs *fs, const struct commit_now *now)
{
    uint64_t bytes = now->inode.blocks_bytes + now->staged.dirty_bytes + now->staged.chunk_bytes;
    if (!S_ISREG(now->inode.attrs.mode))
        return bytes;
    if (bytes >= now->size) /* no holes; staged bytes may overlap durable ones */
        bytes = align_up(now->size, 4096);
    return allocated_bytes(fs, now, bytes);
}

static void fill_stat(struct fs *fs, const struct commit_now *now, struct stat *ret)
{
    const struct attrs *a = &now->inode.attrs;
    *ret = (struct stat){.st_ino = now->inode.ino,
                         .st_mode = a->mode,
                         .st_nlink = now->inode.nlink,
                         .st_uid = a->uid,
                         .st_gid = a->gid,
                         .st_rdev = a->rdev,
                         .st_size = (off_t)now->size,
                         .st_blksize = S_ISDIR(a->mode) ? DIR_BLOCK_SIZE : BLOCK_SIZE,
                         .st_atim = fs_timespec(access_time(fs, &now->inode)),
                         .st_mtim = fs_timespec(now->mtime),
                         .st_ctim = fs_timespec(a->ctime)};
    if (now->mtime != a->mtime && now->mtime > a->ctime)
        ret->st_ctim = ret->st_mtim;
    ret->st_blocks = (blkcnt_t)((blocks_now(fs, now) + 511) / 512);
}

/* Another node's file: its size is that of the content that a read would return, which may be newer
 * or older than the attributes that were taken. With a larger size the kernel would show zeros at
 * the end. */
static void settle_elsewhere(struct fs *fs, struct commit_now *now)
{
    struct store *others = atomic_load(&fs->others);
    struct ns_inode there;
    if (!others || ns_inode(store_ns(others), now->inode.ino, &there) < 0 ||
        there.version == now->inode.version)
        return;
    now->size = there.attrs.size;
    now->mtime = there.attrs.mtime;
}

int fs_getattr(struct fs *fs, uint64_t ino, struct stat *ret)
{
    struct commit_now now;
    TRY(commit_look(fs->commit, ino, &now));
    if (now.inode.is_elsewhere)
        settle_elsewhere(fs, &now);
    fill_stat(fs, &now, ret);
    return 0;
}

/* Without a ctime: now. */
static int commit_attrs(struct fs *fs, uint64_t ino, uint32_t mask, const struct attrs *attrs)
{
    struct record rec = {
        .type = REC_SETATTR, .ino = ino, .mask = mask | ATTR_CTIME, .attrs = *attrs};
    if (rec.attrs.ctime == 0)
        rec.attrs.ctime = clock_realtime_ns();
    return history_commit(fs->commit->history, &rec);
}

static bool is_in_group(const struct fs_caller *caller, gid_t gid)
{
    return caller->uid == 0 || caller->gid == gid ||
           (caller->is_member && caller->is_member(gid, caller->arg));
}

/* Returns the mode without the bits that a change of content or owner by `caller` removes;
 * directories keep all bits, which mean something else there. A set-group-ID bit without group
 * execution is no privilege; only users outside the group remove it. */
static uint32_t without_privileges(const struct attrs *attrs, const struct fs_caller *caller)
{
    uint32_t mode = attrs->mode;
    if (S_ISDIR(mode))
        return mode;
    mode &= ~(uint32_t)S_ISUID;
    bool stays = !(mode & S_ISGID) || (!(mode & S_IXGRP) && is_in_group(caller, attrs->gid));
    return stays ? mode : mode & ~(uint32_t)S_ISGID;
}

int kill_privileges(struct fs *fs, const struct ns_inode *inode, const struct fs_caller *caller)
{
    uint32_t mode = without_privileges(&inode->attrs, caller);
    int r = drop_capabilities(fs, inode);
    if (r < 0 || mode == inode->attrs.mode || caller->uid == 0)
        return r;
    struct attrs attrs = {.mode = mode};
    return commit_attrs(fs, inode->ino, ATTR_MODE, &attrs);
}

int touch(struct fs *fs, uint64_t ino)
{
    int64_t now = clock_realtime_ns();
    struct attrs attrs = {.mtime = now, .ctime = now};
    TRY(stage_set_mtime(fs->stage, ino, now));
    return commit_attrs(fs, ino, ATTR_MTIME, &attrs);
}

static uint32_t collect_attrs(unsigned set, const struct stat *st, const struct ns_inode *inode,
                              const struct fs_caller *caller, struct attrs *attrs)
{
    uint32_t mask = 0, left = without_privileges(&inode->attrs, caller);
    if (set & FS_SET_MODE) {
        mask |= ATTR_MODE;
        attrs->mode = st->st_mode;
    } else if ((set == 0 || set & (FS_SET_UID | FS_SET_GID)) && left != inode->attrs.mode) {
        mask |= ATTR_MODE;
        attrs->mode = left;
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

static int set_size(struct fs *fs, const struct ns_inode *inode, uint64_t size,
                    const struct fs_caller *caller)
{
    struct commit_now now;
    if (S_ISDIR(inode->attrs.mode))
        return -EISDIR;
    if (inode->is_elsewhere)
        return FS_IS_ELSEWHERE;
    if (size > FILE_SIZE_MAX)
        return -EFBIG;
    TRY(kill_privileges(fs, inode, caller));
    TRY(commit_look(fs->commit, inode->ino, &now));
    int r = size == now.size ? touch(fs, inode->ino)
                             : content_erase(fs, inode->ino, size, UINT64_MAX, size);
    return r < 0 || size > now.size ? r : allocated_remove(fs, inode, size, FILE_SIZE_MAX);
}

static int set_held_attrs(struct fs *fs, const struct ns_inode *inode, unsigned set,
                          const struct stat *st, const struct fs_caller *caller)
{
    int r = set & FS_SET_SIZE ? set_size(fs, inode, (uint64_t)st->st_size, caller) : FS_DONE;
    if (r != FS_DONE)
        return r;
    struct attrs attrs = {0};
    uint32_t mask = collect_attrs(set, st, inode, caller, &attrs);
    bool may_clear = caller->uid == 0 || caller->uid == inode->attrs.uid;
    /* Nothing to set: either a chown(-1, -1), which may be refused, or the request before an
     * fallocate by a user who may change the file; the two look the same. */
    if (set == 0 && !may_clear && !S_ISREG(inode->attrs.mode) && mask != 0)
        return -EPERM;
    if (set == 0 ? !may_clear : mask == 0)
        return 0;
    bool changes_owner = set & (FS_SET_UID | FS_SET_GID) && !S_ISDIR(inode->attrs.mode);
    TRY(changes_owner ? drop_capabilities(fs, inode) : 0);
    /* The draft first: a seal in between would restore its time. */
    TRY(mask & ATTR_MTIME ? stage_set_mtime(fs->stage, inode->ino, attrs.mtime) : 0);
    TRY(commit_attrs(fs, inode->ino, mask, &attrs));
    if (mask & ATTR_ATIME)
        access_forget(fs, inode->ino);
    return FS_DONE;
}

int fs_setattr(struct fs *fs, uint64_t ino, unsigned set, const struct stat *st,
               const struct fs_caller *caller, struct stat *ret)
{
    struct ns_inode inode;
    TRY(ns_hold(fs->ns, ino, &inode));
    int r = set_held_attrs(fs, &inode, set, st, caller);
    ns_drop(fs->ns, ino);
    return r == FS_DONE ? fs_getattr(fs, ino, ret) : r;
}

bool fs_follows(const struct fs *fs)
{
    return local_follows(fs->commit->local);
}

int fs_statfs(struct fs *fs, struct statvfs *ret)
{
    struct store_status status;
    store_status(fs->store, &status);
    *ret = (struct statvfs){.f_bsize = 4096, .f_frsize = 4096, .f_namemax = NAME_LEN_MAX};
    ret->f_blocks = status.cap_bytes / 4096;
    ret->f_bfree = ret->f_bavail = (status.available_bytes + status.evictable_bytes) / 4096;
    ret->f_files = status.view.files + ret->f_bavail;
    ret->f_ffree = ret->f_favail = ret->f_bavail;
    return 0;
}
