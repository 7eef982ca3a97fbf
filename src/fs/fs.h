// SPDX-License-Identifier: Apache-2.0
/* Files: the semantics of POSIX over a store, independent of FUSE.
 *
 * Each call is one operation. Errors are negative errno. -EAGAIN from a call that changes something
 * means that there is no room at the moment and nothing happened: the caller repeats the call after
 * the room callback (fs_new()). Permissions are the kernel's task (default_permissions). Threads:
 * any. Calls may read the view; calls that read content from NVMe say so.
 *
 * Locks: LOCK_FS guards the table of open inodes; it is held over a commit, never over I/O. */
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>

#include "base/base.h"
#include "base/process.h"
#include "store/store.h"

struct fs;

enum fs_fsync { FS_FSYNC_NVME, FS_FSYNC_STAGE, FS_FSYNC_REMOTE };

struct fs *fs_new(struct store *store, enum fs_fsync fsync_level);
/* Sets whether reading moves atime (relatime); at first it does not. Any thread, at any time; never
 * for a store that is only read. */
void fs_update_atime(struct fs *fs, bool updates);
/* Commits changes that are only in memory: times of access, and the end of files without a name.
 * Called after the last request, before the last drain. */
void fs_settle(struct fs *fs);
void fs_free(struct fs *fs);

struct fs_caller {
    uid_t uid;
    gid_t gid;
    bool (*is_member)(gid_t gid, void *arg); /* of a further group; NULL: of none */
    bool (*is_admin)(void *arg);             /* has CAP_SYS_ADMIN; NULL: has not */
    void *arg;
};

/* Takes over the open files of a daemon that died, and its files without a name; called before all
 * other calls, for a store that was opened to adopt. */
void fs_adopt(struct fs *fs);

/* --- names ------------------------------------------------------------------------------------ */

CAIRN_MUST_CHECK int fs_lookup(struct fs *fs, uint64_t parent, const char *name, struct stat *ret);
/* An inode to be created, for `caller`. */
struct fs_new_inode {
    uint64_t parent;
    const char *name; /* NULL: see fs_create() */
    mode_t mode;      /* not of a symbolic link */
    dev_t rdev;       /* of a device */
    const struct fs_caller *caller;
};
CAIRN_MUST_CHECK int fs_mkdir(struct fs *fs, const struct fs_new_inode *new, struct stat *ret);
CAIRN_MUST_CHECK int fs_mknod(struct fs *fs, const struct fs_new_inode *new, struct stat *ret);
CAIRN_MUST_CHECK int fs_symlink(struct fs *fs, const char *target, const struct fs_new_inode *new,
                                struct stat *ret);
CAIRN_MUST_CHECK int fs_link(struct fs *fs, uint64_t ino, uint64_t parent, const char *name,
                             struct stat *ret);
CAIRN_MUST_CHECK int fs_unlink(struct fs *fs, uint64_t parent, const char *name);
/* *ret_ino: the removed directory; valid with 0. */
CAIRN_MUST_CHECK int fs_rmdir(struct fs *fs, uint64_t parent, const char *name, uint64_t *ret_ino);
/* A rename from `name` in the directory `parent` to `name2` in `parent2`. */
struct fs_rename {
    uint64_t parent;
    const char *name;
    uint64_t parent2;
    const char *name2;
    unsigned flags; /* as of renameat2(2) */
};
/* The inodes that a rename found under the two names; 0: none. */
struct fs_renamed {
    uint64_t source, target;
};
/* Drafts that move are sealed first. `caller`: the owner of a whiteout. *ret is valid with 0. */
CAIRN_MUST_CHECK int fs_rename(struct fs *fs, const struct fs_rename *names,
                               const struct fs_caller *caller, struct fs_renamed *ret);
/* `buf` has room for 4096 bytes; returns the length. */
CAIRN_MUST_CHECK ssize_t fs_readlink(struct fs *fs, uint64_t ino, char buf[4096]);

/* Returns the sequence number up to which the open directory is listed, for a request that
 * continues after the offset `after`. A listing ends with the entries that the directory had when
 * it began (offset 0: opened or rewound), however many are created meanwhile, also across a
 * successor: the number is stored with the handle in the stage. */
uint64_t fs_listing_end(struct fs *fs, uint64_t handle, uint64_t after);

struct fs_entry {
    uint64_t ino;
    uint64_t offset; /* passed as `after`, it continues the listing behind this entry */
    mode_t type;
    const char *name; /* NUL-terminated */
};
struct fs_listing {
    uint64_t dir;
    uint64_t after;  /* offset; 0: from the start, where "." and ".." come first */
    uint64_t until;  /* only entries created up to this sequence number; UINT64_MAX: all */
    size_t expected; /* about how many entries `fn` accepts */
    /* a result other than 0 ends the listing */
    int (*fn)(const struct fs_entry *entry, void *arg);
    void *arg;
};
/* Calls `fn` for entries of a directory. Offsets stay valid while entries are added and removed. */
CAIRN_MUST_CHECK int fs_readdir(struct fs *fs, const struct fs_listing *listing);

/* --- attributes ------------------------------------------------------------------------------- */

CAIRN_MUST_CHECK int fs_getattr(struct fs *fs, uint64_t ino, struct stat *ret);
bool fs_is_open(struct fs *fs, uint64_t ino);
bool fs_is_nameless(struct fs *fs, uint64_t ino);
/* The kernel does not know this inode any more: an inode without a name ends here, unless it is
 * open. -EAGAIN as above: it still lives. */
CAIRN_MUST_CHECK int fs_forget(struct fs *fs, uint64_t ino);

enum fs_set {
    FS_SET_MODE = 1,
    FS_SET_UID = 2,
    FS_SET_GID = 4,
    FS_SET_SIZE = 8,
    FS_SET_ATIME = 16,
    FS_SET_MTIME = 32
};
enum fs_outcome {
    FS_DONE,
    /* Nothing was done: the file to be changed belongs to another node. The caller must first call
     * fs_bring() or fs_bring_empty(). */
    FS_IS_ELSEWHERE,
};
/* Sets the fields in `set` (enum fs_set) from `st`; `ret` is the result. Clears setuid and setgid
 * as chown and truncate do. With `set` 0 that is the only effect: for a chown that changes no
 * owner, by root or the owner; or for a change of content that the kernel announces before it sends
 * the call itself, which then clears the bits for other callers. enum fs_outcome, or -errno. */
CAIRN_MUST_CHECK int fs_setattr(struct fs *fs, uint64_t ino, unsigned set, const struct stat *st,
                                const struct fs_caller *caller, struct stat *ret);
CAIRN_MUST_CHECK int fs_statfs(struct fs *fs, struct statvfs *ret);
/* Returns whether the state is another writer's, which no call here changes. */
bool fs_follows(const struct fs *fs);
/* The inode was read: moves atime if it is due. May read the view. */
void fs_accessed(struct fs *fs, uint64_t ino);

/* size 0: the length only. user.*, trusted.* and security.* are stored (the kernel checks
 * permissions); user.cairn.* are computed by the filesystem and never listed, except
 * user.cairn.pin, which is stored. */
CAIRN_MUST_CHECK ssize_t fs_getxattr(struct fs *fs, uint64_t ino, const char *name, void *buf,
                                     size_t size);
CAIRN_MUST_CHECK int fs_setxattr(struct fs *fs, uint64_t ino, const char *name, const void *value,
                                 size_t size, int flags);
CAIRN_MUST_CHECK int fs_removexattr(struct fs *fs, uint64_t ino, const char *name);
/* trusted.* are listed only for an admin. */
CAIRN_MUST_CHECK ssize_t fs_listxattr(struct fs *fs, uint64_t ino, const struct fs_caller *caller,
                                      char *buf, size_t size);

/* --- lane clients ----------------------------------------------------------------------------- */

/* A program that saves lazily (libcairn) reports by setting the attribute user.cairn.lane of any
 * inode on the mount. The attribute is neither stored nor listed, and does not change the inode.
 * Its value is the text "1 pending=BYTES saves=N blocked_ns=NS published=N failed=N error=TEXT", or
 * "2 step_ns=NS cost_ns=NS" of its training, 512 bytes at most. When read, the attribute is "1
 * stage=BYTES remote=0|1 loads=N": the size of the stage, whether data written here is uploaded to
 * a remote, and how many loads have the file open. */
#define FS_LANES_MAX 256u
struct fs_lane {
    struct process process;
    uid_t uid;
    int64_t seen; /* monotonic, ns: time of its last report */
    uint64_t pending_bytes, pending_saves, blocked_ns, published, failed;
    /* medians: a step of the training, and the time that a save adds to one; 0: not reported */
    uint64_t step_ns, save_cost_ns;
    char error[256]; /* of the last save that failed; from the program, any bytes */
};
bool fs_is_lane_report(const char *name);
/* `tid`: the reporting thread, from the kernel. -EINVAL: bad text; -ESRCH: a process that is not
 * visible from here. Reads /proc. */
CAIRN_MUST_CHECK int fs_lane_report(struct fs *fs, pid_t tid, uid_t uid, const void *value,
                                    size_t size);
/* Calls `fn` for each entry whose process lives, in the order of process numbers. *ret_forgotten:
 * entries that were dropped for others. Reads /proc. */
void fs_lanes(struct fs *fs, void (*fn)(const struct fs_lane *lane, void *arg), void *arg,
              uint64_t *ret_forgotten);

/* --- open files ------------------------------------------------------------------------------- */

/* How the kernel should treat an open file. */
struct fs_opened {
    uint64_t handle;
    bool has_draft; /* the file is being changed: its pages must not be cached */
    /* the next read moves atime: it must be sent here, not be answered from the page cache */
    bool atime_due;
    bool seals;        /* closing it seals the file: fs_flush() must be called */
    bool is_elsewhere; /* another node's file, which may change without a call */
};

/* Opens a file, or a directory to be listed. O_TRUNC only announces that the file will be emptied,
 * by fs_setattr(). enum fs_outcome, or -errno. */
CAIRN_MUST_CHECK int fs_open(struct fs *fs, uint64_t ino, int flags, struct fs_opened *ret);
/* Describes again a handle that a daemon that died created and did not report. -ENOENT: its inode
 * is gone. */
CAIRN_MUST_CHECK int fs_opened_again(struct fs *fs, uint64_t handle, struct fs_opened *ret);
/* Creates a regular file, which is part of history with its first seal. `new->name` NULL: the file
 * has no name (O_TMPFILE) until fs_link() adds one, and ends like a file that lost its last
 * name. */
CAIRN_MUST_CHECK int fs_create(struct fs *fs, const struct fs_new_inode *new, int flags,
                               struct stat *ret_stat, struct fs_opened *ret);
/* 0; only if `may_wait` also -EAGAIN: then the file is still open, since there is no room to commit
 * the end of a file without a name. */
int fs_release(struct fs *fs, uint64_t handle, bool may_wait);
int fs_handle_flags(struct fs *fs, uint64_t handle);

/* A descriptor was closed: written content becomes a version; if other processes write the file
 * through descriptors of their own, with the next operation of the history
 * (history_seal_later()). */
CAIRN_MUST_CHECK int fs_flush(struct fs *fs, uint64_t ino, uint64_t handle);

/* An fsync waits until the horizon of `level` reaches `seq`. At the level of the stage `seq` is 0,
 * and it does not wait. */
struct fs_barrier {
    enum fs_fsync level;
    uint64_t seq;
};

/* Seals a file and returns what to wait for. A directory has no draft: changes of its entries are
 * history already, except for files that are still being written. */
CAIRN_MUST_CHECK int fs_fsync(struct fs *fs, uint64_t ino, struct fs_barrier *ret);

/* Calls `fn` once, when the barrier is reached: see horizon_await() and remote_start_wait(). */
void fs_await(struct fs *fs, const struct fs_barrier *barrier, void (*fn)(int result, void *arg),
              void *arg, uint64_t *ret_ticket);
/* Called when the barrier is reached: checks that the tier has the content. -EIO: it will never
 * have some bytes of the file, as the cause says. Reads the view. */
CAIRN_MUST_CHECK int fs_after_barrier(struct fs *fs, uint64_t ino, enum fs_fsync level);

/* --- content ---------------------------------------------------------------------------------- */

struct fs_write {
    uint64_t ino, offset;
    uint32_t length;
    uint32_t slab; /* as in struct stage_write */
    const void *data;
};
/* `caller`: NULL for bytes stored through a map, which removes no privileges. */
CAIRN_MUST_CHECK int fs_write(struct fs *fs, const struct fs_write *w,
                              const struct fs_caller *caller);

/* Returns whether the flags are those of a load of libcairn, which have no other use for a regular
 * file. A load opens the file once with these flags, and once more with O_DIRECT, which is not
 * counted. */
static inline bool fs_is_load(int flags)
{
    return (flags & O_ACCMODE) == O_RDONLY && flags & O_NONBLOCK;
}
/* As fetch_start_read(). `leaves_atime`: the time of access is not moved (O_NOATIME). */
void fs_read(struct fs *fs, const struct fetch_read_request *request, bool leaves_atime);
/* Returns when no read is under way; reads of other nodes' files that wait for the remote fail. No
 * caller starts new ones. */
void fs_end_reads(struct fs *fs);

/* As fallocate(2); collapsing and inserting are -EOPNOTSUPP. */
CAIRN_MUST_CHECK int fs_fallocate(struct fs *fs, uint64_t ino, int mode, uint64_t offset,
                                  uint64_t length, const struct fs_caller *caller);

/* SEEK_DATA or SEEK_HOLE; -ENXIO past the end. May read the view. */
CAIRN_MUST_CHECK int64_t fs_lseek(struct fs *fs, uint64_t ino, uint64_t offset, int whence);

struct fs_copy {
    uint64_t from, from_offset; /* inode, and where in it the source begins */
    uint64_t to, to_offset;
    size_t length;
};
/* Copies within the mount; stored content is copied by reference. Returns the copied bytes, at
 * least one unless at the end. Blocks on NVMe for content that cannot be copied by reference:
 * chunks that the view does not have yet. -EXDEV: part of it would have to be read from the
 * remote. */
CAIRN_MUST_CHECK ssize_t fs_copy(struct fs *fs, const struct fs_copy *how,
                                 const struct fs_caller *caller);
