// SPDX-License-Identifier: Apache-2.0
/* Files: the semantics of POSIX over a store, without a word of FUSE.
 *
 * Each call is one operation. Errors are negative errno. -EAGAIN from a call that changes something
 * means that there is no room at the moment and nothing happened: the caller repeats it when the
 * room callback was called (fs_new()). Permissions are the kernel's task (default_permissions).
 * Threads: any. Calls may read the view; those that read content from NVMe say so.
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
/* Reading moves atime (relatime), or not (at first). Any thread, at any time; never for a store
 * that is only read. */
void fs_update_atime(struct fs *fs, bool updates);
/* Enters into history what is only in memory: times of access, and the end of files without a name.
 * After the last request, before the last drain. */
void fs_settle(struct fs *fs);
void fs_free(struct fs *fs);

struct fs_caller {
    uid_t uid;
    gid_t gid;
    bool (*is_member)(gid_t gid, void *arg); /* of a further group; NULL: of none */
    bool (*is_admin)(void *arg);             /* has CAP_SYS_ADMIN; NULL: has not */
    void *arg;
};

/* Takes over what a daemon that died had open, and what has no name; first of all calls, of a store
 * that was opened to adopt. */
void fs_adopt(struct fs *fs);

/* --- names ------------------------------------------------------------------------------------ */

CAIRN_MUST_CHECK int fs_lookup(struct fs *fs, uint64_t parent, const char *name, struct stat *ret);
/* An inode to be made, for `caller`. */
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
/* *ret_ino: what was removed; valid with 0. */
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
/* Drafts that move are sealed first. `caller`: whose a whiteout is. *ret is valid with 0. */
CAIRN_MUST_CHECK int fs_rename(struct fs *fs, const struct fs_rename *names,
                               const struct fs_caller *caller, struct fs_renamed *ret);
/* `buf` has room for 4096 bytes; returns the length. */
CAIRN_MUST_CHECK ssize_t fs_readlink(struct fs *fs, uint64_t ino, char buf[4096]);

/* Returns the sequence number up to which the open directory is listed, for a request that reads on
 * after the offset `after`. A stream of entries ends with those that the directory had when it was
 * begun (offset 0: opened or rewound), however many are made while it is read, also across a
 * successor: the number is kept with the handle in the stage. */
uint64_t fs_listing_end(struct fs *fs, uint64_t handle, uint64_t after);

struct fs_entry {
    uint64_t ino;
    uint64_t offset; /* to go on after it */
    mode_t type;
    const char *name; /* NUL-terminated */
};
struct fs_listing {
    uint64_t dir;
    uint64_t after;  /* offset; 0: from the start, where "." and ".." come first */
    uint64_t until;  /* entries made up to this sequence number; UINT64_MAX: all */
    size_t expected; /* about as many entries as `fn` takes */
    /* a result other than 0 ends the listing */
    int (*fn)(const struct fs_entry *entry, void *arg);
    void *arg;
};
/* Calls `fn` for entries of a directory. Offsets stay valid while entries come and go. */
CAIRN_MUST_CHECK int fs_readdir(struct fs *fs, const struct fs_listing *listing);

/* --- attributes ------------------------------------------------------------------------------- */

CAIRN_MUST_CHECK int fs_getattr(struct fs *fs, uint64_t ino, struct stat *ret);
bool fs_is_open(struct fs *fs, uint64_t ino);
bool fs_is_nameless(struct fs *fs, uint64_t ino);
/* The kernel knows this inode no longer: one without a name ends here, unless it is open. -EAGAIN
 * as above: it lives still. */
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
    /* Nothing was done: another node's file is to be changed. First fs_bring(), or
     * fs_bring_empty(). */
    FS_IS_ELSEWHERE,
};
/* Sets what `set` (enum fs_set) says from `st`; `ret` is the result. Clears setuid and setgid as
 * chown and truncate do; that alone, if `set` is 0: a chown to no owner, by root or the owner, or a
 * change of content that the kernel tells of before the call comes that makes it, which then does
 * this for others. enum fs_outcome, or -errno. */
CAIRN_MUST_CHECK int fs_setattr(struct fs *fs, uint64_t ino, unsigned set, const struct stat *st,
                                const struct fs_caller *caller, struct stat *ret);
CAIRN_MUST_CHECK int fs_statfs(struct fs *fs, struct statvfs *ret);
/* Is it another writer's state, which no call here changes? */
bool fs_follows(const struct fs *fs);
/* Something was read: moves atime if it is due. May read the view. */
void fs_accessed(struct fs *fs, uint64_t ino);

/* size 0: the length only. user.*, trusted.* and security.* are stored (whether the caller may is
 * for the kernel to say); user.cairn.* are answered by the filesystem and never listed, but for
 * user.cairn.pin, which is stored. */
CAIRN_MUST_CHECK ssize_t fs_getxattr(struct fs *fs, uint64_t ino, const char *name, void *buf,
                                     size_t size);
CAIRN_MUST_CHECK int fs_setxattr(struct fs *fs, uint64_t ino, const char *name, const void *value,
                                 size_t size, int flags);
CAIRN_MUST_CHECK int fs_removexattr(struct fs *fs, uint64_t ino, const char *name);
/* trusted.* are listed for an admin alone. */
CAIRN_MUST_CHECK ssize_t fs_listxattr(struct fs *fs, uint64_t ino, const struct fs_caller *caller,
                                      char *buf, size_t size);

/* --- lane clients ----------------------------------------------------------------------------- */

/* A program that saves lazily (libcairn) reports by setting the attribute user.cairn.lane of
 * anything on the mount. It becomes no attribute, and changes nothing of the inode: neither stored
 * nor listed. The value is the text "1 pending=BYTES saves=N blocked_ns=NS published=N failed=N
 * error=TEXT", 512 bytes at most. Read, the attribute is "1 stage=BYTES remote=0|1
 * loads=N": the size of the stage, whether what is written here goes to a remote, and how many
 * loads have the file open. */
#define FS_LANES_MAX 256u
struct fs_lane {
    struct process process;
    uid_t uid;
    int64_t seen; /* monotonic, ns: its last report */
    uint64_t pending_bytes, pending_saves, blocked_ns, published, failed;
    char error[256]; /* of the last save that failed; as the program says it, any bytes */
};
bool fs_is_lane_report(const char *name);
/* `tid`: the thread that reports, as the kernel says it. -EINVAL: bad text; -ESRCH: a process that
 * cannot be seen from here. Reads /proc. */
CAIRN_MUST_CHECK int fs_lane_report(struct fs *fs, pid_t tid, uid_t uid, const void *value,
                                    size_t size);
/* Calls `fn` for each whose process lives, in the order of their numbers. *ret_forgotten: places
 * that others got. Reads /proc. */
void fs_lanes(struct fs *fs, void (*fn)(const struct fs_lane *lane, void *arg), void *arg,
              uint64_t *ret_forgotten);

/* --- open files ------------------------------------------------------------------------------- */

/* Says how the kernel should treat an open file. */
struct fs_opened {
    uint64_t handle;
    bool has_draft;    /* it is being changed: its pages must not be cached */
    bool atime_due;    /* the next read moves atime: it must come here, not end in the page cache */
    bool seals;        /* closing it seals the file: fs_flush() must be called */
    bool is_elsewhere; /* another node's file, which may change without a call */
};

/* A file, or a directory to be listed. O_TRUNC says only that it is going to be emptied, by
 * fs_setattr(). enum fs_outcome, or -errno. */
CAIRN_MUST_CHECK int fs_open(struct fs *fs, uint64_t ino, int flags, struct fs_opened *ret);
/* A handle that a daemon that died took, and did not tell of. -ENOENT: its inode is gone. */
CAIRN_MUST_CHECK int fs_opened_again(struct fs *fs, uint64_t handle, struct fs_opened *ret);
/* A new regular file: part of history with its first seal. `new->name` NULL: it has none
 * (O_TMPFILE) until fs_link() gives it one, and ends like a file that lost its last name. */
CAIRN_MUST_CHECK int fs_create(struct fs *fs, const struct fs_new_inode *new, int flags,
                               struct stat *ret_stat, struct fs_opened *ret);
/* 0; only if `may_wait` also -EAGAIN: then it is open still, since there is no room to say that
 * what has no name is closed. */
int fs_release(struct fs *fs, uint64_t handle, bool may_wait);
int fs_handle_flags(struct fs *fs, uint64_t handle);

/* A descriptor was closed: what was written becomes a version; where others write the file through
 * descriptors of their own, with the next operation of the history (history_seal_later()). */
CAIRN_MUST_CHECK int fs_flush(struct fs *fs, uint64_t ino, uint64_t handle);

/* An fsync waits until the horizon of `level` is at `seq`. At the level of the stage seq is 0, and
 * it does not wait. */
struct fs_barrier {
    enum fs_fsync level;
    uint64_t seq;
};

/* Seals a file and tells what to wait for. A directory has no draft: what happened in it is history
 * already, but for files that are still being written. */
CAIRN_MUST_CHECK int fs_fsync(struct fs *fs, uint64_t ino, struct fs_barrier *ret);

/* Calls `fn` once, when the barrier is reached: see horizon_await() and remote_start_wait(). */
void fs_await(struct fs *fs, const struct fs_barrier *barrier, void (*fn)(int result, void *arg),
              void *arg, uint64_t *ret_ticket);
/* The barrier is reached. Is what it stands for in its tier? -EIO: bytes of the file never will be,
 * as the cause says. Reads the view. */
CAIRN_MUST_CHECK int fs_after_barrier(struct fs *fs, uint64_t ino, enum fs_fsync level);

/* --- content ---------------------------------------------------------------------------------- */

struct fs_write {
    uint64_t ino, offset;
    uint32_t length;
    uint32_t slab; /* as in struct stage_write */
    const void *data;
};
/* `caller`: NULL for bytes stored through a map, which take no privileges away. */
CAIRN_MUST_CHECK int fs_write(struct fs *fs, const struct fs_write *w,
                              const struct fs_caller *caller);

/* Loads of libcairn have a file open in this way, which means nothing else of a regular file: once,
 * and once more with O_DIRECT, which is not counted as one. */
static inline bool fs_is_load(int flags)
{
    return (flags & O_ACCMODE) == O_RDONLY && flags & O_NONBLOCK;
}
/* As fetch_start_read(). `leaves_atime`: the time of access stays as it is (O_NOATIME). */
void fs_read(struct fs *fs, const struct fetch_read_request *request, bool leaves_atime);
/* Returns when no read is under way; of other nodes' files, those that wait for the remote fail. No
 * caller starts new ones. */
void fs_end_reads(struct fs *fs);

/* As fallocate(2); collapsing and inserting are -EOPNOTSUPP. */
CAIRN_MUST_CHECK int fs_fallocate(struct fs *fs, uint64_t ino, int mode, uint64_t offset,
                                  uint64_t length, const struct fs_caller *caller);

/* SEEK_DATA or SEEK_HOLE; -ENXIO past the end. May read the view. */
CAIRN_MUST_CHECK int64_t fs_lseek(struct fs *fs, uint64_t ino, uint64_t offset, int whence);

struct fs_copy {
    uint64_t from, from_offset; /* inode, and where it begins there */
    uint64_t to, to_offset;
    size_t length;
};
/* Copies within the mount; what is stored already is copied by reference. Returns what was copied,
 * at least something unless at the end. Blocks on NVMe for what cannot be: chunks that the view
 * does not know yet. -EXDEV: a part would have to come from the remote. */
CAIRN_MUST_CHECK ssize_t fs_copy(struct fs *fs, const struct fs_copy *how,
                                 const struct fs_caller *caller);
