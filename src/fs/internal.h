// SPDX-License-Identifier: Apache-2.0
/* Inside fs/. */
#pragma once

#include <stdatomic.h>

#include "base/lock.h"
#include "base/tables.h"
#include "fs/fs.h"

#define FILE_SIZE_MAX ((uint64_t)INT64_MAX - 4096)
#define BLOCK_SIZE (1024u * 1024) /* st_blksize: the payload of a request */
/* libc uses it as the buffer of a listing. With the first buffer the kernel asks for attributes,
 * too: so it is no larger than many listings need. */
#define DIR_BLOCK_SIZE 4096u

/* A time of access that is not in history yet. */
struct accessed {
    UT_hash_handle hh; /* in order of first access */
    uint64_t ino;
    int64_t atime;
};

/* An inode that is open or has lost its last name. Without a name it lives until no handle is left
 * and the kernel has forgotten it. An inode that only the kernel knows (a working directory, an
 * O_PATH descriptor, a fifo) can be opened again and changed. */
struct live_inode {
    UT_hash_handle hh;
    uint64_t ino;
    uint64_t opens;
    uint64_t writers; /* those of them that can write, of whose descriptors none was closed yet */
    uint64_t loads;   /* those of them that are loads of libcairn */
    bool is_nameless;
    bool may_get_name; /* only for a nameless one: it was created without a name */
    /* only for a nameless one: the request to forget it may arrive before those that close it */
    bool is_forgotten;
};

/* Programs that save lazily: lanes.c. */
struct lanes {
    struct cairn_mutex lock; /* a leaf */
    struct fs_lane *list;    /* FS_LANES_MAX; NULL: none has reported */
    unsigned count;
    uint64_t forgotten; /* entries that were dropped for others */
};
void lanes_init(struct lanes *lanes);
void lanes_done(struct lanes *lanes);

/* bring.c */
struct brings;
struct brings *brings_new(void);
void brings_free(struct brings *brings);
/* Starts the threads; brings_end() waits for them. */
void brings_begin(struct brings *brings);
void brings_end(struct brings *brings);

#define FS_MOVED_MAX 64u

struct fs {
    struct store *store;
    struct commit *commit; /* the store's */
    struct ns *ns;
    struct stage *stage;
    enum fs_fsync fsync_level;
    uint64_t shown_root; /* the root of the earlier state that the mount shows; 0: the newest one */
    _Atomic bool updates_atime;
    struct {
        /* also held over commits that remove a last name, or end an inode without a name */
        struct cairn_mutex lock;
        struct live_inode *live;
    } locked;
    struct {
        struct cairn_mutex lock;   /* a leaf */
        struct accessed *accessed; /* inodes whose atime is newer than in history */
    } access;
    struct lanes lanes;
    /* Calls that change names take it for reading; taking changes of other nodes (taken.h) excludes
     * them. */
    pthread_rwlock_t gate;
    struct {
        uint64_t ino;
        int64_t at;        /* monotonic ns; 0: none */
    } moved[FS_MOVED_MAX]; /* the inodes that taking moved last; with the gate closed */
    unsigned moved_count;
    struct brings *brings;
    struct store *_Atomic others; /* has the content of other nodes' files; NULL: none */
    struct {
        struct cairn_mutex lock; /* a leaf */
        pthread_cond_t settled;  /* `is_expected` became false */
        bool is_expected;        /* `others` is about to be set, or will be found impossible */
        struct waiting_read *reads;
    } elsewhere;
};

/* elsewhere.c: whether a file of another node can be read. -EAGAIN: this is known soon. -EIO: it
 * cannot. */
CAIRN_MUST_CHECK int elsewhere_check(struct fs *fs);
/* The same, but waits until it is known. */
CAIRN_MUST_CHECK int elsewhere_await(struct fs *fs);
void elsewhere_read(struct fs *fs, const struct fetch_read_request *request);

/* Returns the store that has earlier states, with their content. On the mount of one of several
 * nodes these are the states of the union, which another store follows; it exists until the last
 * request is answered. */
static inline struct store *history_store(struct fs *fs)
{
    struct store *others = atomic_load(&fs->others);
    return others ? others : fs->store;
}

/* taken.c: with the gate closed. Returns whether the file, or a directory above it, got its name
 * from the union lately, so that the kernel may still use an older one. */
bool taken_moved_lately(struct fs *fs, uint64_t ino);

/* Returns how many loads of libcairn have the file open. */
uint64_t fs_loads(struct fs *fs, uint64_t ino);
/* Within the block names that were looked up stay unchanged, except by other calls that hold the
 * gate for reading, too. */
static inline pthread_rwlock_t *names_enter(struct fs *fs)
{
    check(pthread_rwlock_rdlock(&fs->gate) == 0);
    return &fs->gate;
}
static inline void names_leave(pthread_rwlock_t **gate)
{
    check(pthread_rwlock_unlock(*gate) == 0);
}
#define NAMES_SCOPE(fs)                                                                            \
    __attribute__((cleanup(names_leave), unused)) pthread_rwlock_t *names_scope = names_enter(fs)

/* Ends files that were replaced by files which covered them, and were sealed (history_make()). */
void fs_end_replaced(struct fs *fs);
/* Notes that an inode has lost its last name, or was created without one. With fs->locked.lock. */
struct live_inode *live_note_nameless_locked(struct fs *fs, uint64_t ino);
/* NULL: the inode has a name. */
struct live_inode *live_nameless_locked(struct fs *fs, uint64_t ino);
/* Notes that the inode has a name now. */
void live_note_named_locked(struct fs *fs, struct live_inode *live);
/* Drops the whole table. */
void live_end_all(struct fs *fs);
/* Creates a handle and counts the inode as open before it is read, or even created: a call that
 * removes its last name from then on leaves the inode to those that have it open. Then the inode
 * must be held, or the opening undone. -ENFILE. */
CAIRN_MUST_CHECK int open_ahead(struct fs *fs, uint64_t ino, int flags, uint64_t *ret_handle);
void open_undo(struct fs *fs, uint64_t ino, uint64_t handle);
/* Returns whether a close seals the file: if the handle could write, or created the file, as also a
 * file that was created and opened only to read is part of history after its close. */
bool close_seals(int flags);
/* Removes the privileges that end with a change of content: capabilities, and, if `caller` is
 * without privilege, setuid and setgid. */
CAIRN_MUST_CHECK int kill_privileges(struct fs *fs, const struct ns_inode *inode,
                                     const struct fs_caller *caller);
/* xattrs.c: removes the capabilities of a process that executes the file. */
CAIRN_MUST_CHECK int drop_capabilities(struct fs *fs, const struct ns_inode *inode);
/* Sets mtime and ctime; the content stays unchanged. */
CAIRN_MUST_CHECK int touch(struct fs *fs, uint64_t ino);
/* Discards content and sets the size, for truncation or punching. */
CAIRN_MUST_CHECK int content_erase(struct fs *fs, uint64_t ino, uint64_t offset, uint64_t length,
                                   uint64_t new_size);
/* Returns the bytes that st_blocks counts. May read the view. */
uint64_t blocks_now(struct fs *fs, const struct commit_now *now);

/* allocated.c: adds a range that fallocate allocates, in whole blocks; the inode is held. -EAGAIN,
 * -ENOSPC: nothing happened. */
CAIRN_MUST_CHECK int allocated_add(struct fs *fs, const struct ns_inode *inode, uint64_t from,
                                   uint64_t to);
/* Removes the whole blocks within [from, to). -EAGAIN. */
CAIRN_MUST_CHECK int allocated_remove(struct fs *fs, const struct ns_inode *inode, uint64_t from,
                                      uint64_t to);
/* Returns the bytes of a file that are content, or allocated. `content`: those that are content.
 * May read the view. */
uint64_t allocated_bytes(struct fs *fs, const struct commit_now *now, uint64_t content);
/* Returns whether this is the extended attribute that contains the ranges. No program can use
 * it. */
bool allocated_is_name(const char *name, size_t name_len);

/* attrs.c: ns since 1970. */
struct timespec fs_timespec(int64_t ns);

/* xattrs.c: checks whether an attribute may have this name. -EOPNOTSUPP, -EINVAL, -ERANGE. */
CAIRN_MUST_CHECK int xattr_check_name(const char *name);
/* A list of names, in the format of listxattr(2); size 0: its length only. */
struct xattr_names {
    const struct fs_caller *caller;
    char *buf;
    size_t size, len;
};
/* Adds a name, if the caller may see it; `arg`: the list. */
CAIRN_MUST_CHECK int xattr_add_name(const char *name, size_t name_len, void *arg);

/* data.c: SEEK_DATA or SEEK_HOLE in a file all of which is in the view; `size`: its own. */
struct seek_range {
    uint64_t offset, size;
    int whence;
};
CAIRN_MUST_CHECK int64_t seek_view(struct view *view, uint64_t ino, const struct seek_range *range);

/* access.c */
int64_t access_time(struct fs *fs, const struct ns_inode *inode);
/* Returns whether a read at `time` would move the time of access. May read the view. */
bool access_due(struct fs *fs, uint64_t ino, int64_t time);
/* Notes a read: moves the access time if it is due. May commit an older one. */
void access_note(struct fs *fs, const struct commit_now *now);
/* Another time was set. */
void access_forget(struct fs *fs, uint64_t ino);
