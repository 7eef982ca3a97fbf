// SPDX-License-Identifier: Apache-2.0
/* Inside fs/. */
#pragma once

#include <stdatomic.h>

#include "base/lock.h"
#include "base/tables.h"
#include "fs/fs.h"

#define FILE_SIZE_MAX ((uint64_t)INT64_MAX - 4096)
#define BLOCK_SIZE (1024u * 1024) /* st_blksize: what a request carries */
/* libc takes it for the buffer of a listing. The kernel asks for attributes too with the first
 * buffer: no more than many need. */
#define DIR_BLOCK_SIZE 4096u

/* A time of access that history does not know yet. */
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
    uint64_t writers; /* of them: for writing, and none of their descriptors was closed yet */
    uint64_t loads;   /* of them: by loads of libcairn */
    bool is_nameless;
    bool may_get_name; /* only of a nameless one: it was made so */
    /* only of a nameless one: the request for that may come before those that close it */
    bool is_forgotten;
};

/* Programs that save lazily: lanes.c. */
struct lanes {
    struct cairn_mutex lock; /* a leaf */
    struct fs_lane *list;    /* FS_LANES_MAX; NULL: none has reported */
    unsigned count;
    uint64_t forgotten; /* whose place another got */
};
void lanes_init(struct lanes *lanes);
void lanes_done(struct lanes *lanes);

/* bring.c */
struct brings;
struct brings *brings_new(void);
void brings_free(struct brings *brings);
/* Its threads; the end waits for them. */
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
        /* also held over commits that take a last name, or end what has none */
        struct cairn_mutex lock;
        struct live_inode *live;
    } locked;
    struct {
        struct cairn_mutex lock;   /* a leaf */
        struct accessed *accessed; /* whose atime is newer than history knows */
    } access;
    struct lanes lanes;
    /* Calls that change names read it; taking what other nodes wrote (taken.h) excludes them. */
    pthread_rwlock_t gate;
    struct {
        uint64_t ino;
        int64_t at;        /* monotonic ns; 0: none */
    } moved[FS_MOVED_MAX]; /* by taking, with the gate closed: the last ones */
    unsigned moved_count;
    struct brings *brings;
    struct store *_Atomic others; /* has the content of other nodes' files; NULL: nothing has */
    struct {
        struct cairn_mutex lock; /* a leaf */
        pthread_cond_t settled;  /* `is_expected` became false */
        bool is_expected;        /* `others` is about to be set, or will not be */
        struct waiting_read *reads;
    } elsewhere;
};

/* elsewhere.c: of a file of another node. -EAGAIN: whether that can be read is known soon. -EIO: it
 * cannot. */
CAIRN_MUST_CHECK int elsewhere_check(struct fs *fs);
/* The same, but waits until it is known. */
CAIRN_MUST_CHECK int elsewhere_await(struct fs *fs);
void elsewhere_read(struct fs *fs, const struct fetch_read_request *request);

/* The store that has earlier states, and their content. On the mount of one of several nodes these
 * are the states of their union, which another store follows; it is there until the last request is
 * answered. */
static inline struct store *history_store(struct fs *fs)
{
    struct store *others = atomic_load(&fs->others);
    return others ? others : fs->store;
}

/* taken.c: with the gate closed. Did the file, or a directory above it, get its name from the union
 * lately, so that the kernel may still use an older one? */
bool taken_moved_lately(struct fs *fs, uint64_t ino);

/* How many loads of libcairn have the file open. */
uint64_t fs_loads(struct fs *fs, uint64_t ino);
/* For as long as the block lasts, what was looked up stays so, but for other calls. */
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

/* Ends what was replaced by files that covered it, and were sealed (history_make()). */
void fs_end_replaced(struct fs *fs);
/* Notes that an inode has lost its last name, or was made without one. With fs->locked.lock. */
struct live_inode *live_note_nameless_locked(struct fs *fs, uint64_t ino);
/* NULL: it has a name. */
struct live_inode *live_nameless_locked(struct fs *fs, uint64_t ino);
/* Notes that the inode has a name now. */
void live_note_named_locked(struct fs *fs, struct live_inode *live);
/* All that was known is forgotten. */
void live_end_all(struct fs *fs);
/* Takes a handle and counts the inode as open before it is looked at, or even made: a call that
 * removes its last name from then on leaves it to those that have it open. Then the inode must be
 * held, or the opening undone. -ENFILE. */
CAIRN_MUST_CHECK int open_ahead(struct fs *fs, uint64_t ino, int flags, uint64_t *ret_handle);
void open_undo(struct fs *fs, uint64_t ino, uint64_t handle);
/* Does a close seal the file? It does if the handle could write, or made the file: one that was
 * made to be read only is part of history after its close, too. */
bool close_seals(int flags);
/* Takes away what a change of content does: capabilities, and, if `caller` is without privilege,
 * setuid and setgid. */
CAIRN_MUST_CHECK int kill_privileges(struct fs *fs, const struct ns_inode *inode,
                                     const struct fs_caller *caller);
/* xattrs.c: the capabilities that a process gets which runs the file. */
CAIRN_MUST_CHECK int drop_capabilities(struct fs *fs, const struct ns_inode *inode);
/* mtime and ctime move, though the content stays as it is. */
CAIRN_MUST_CHECK int touch(struct fs *fs, uint64_t ino);
/* Content discarded and size set, by truncation or punching. */
CAIRN_MUST_CHECK int content_erase(struct fs *fs, uint64_t ino, uint64_t offset, uint64_t length,
                                   uint64_t new_size);
/* Bytes that st_blocks counts. May read the view. */
uint64_t blocks_now(struct fs *fs, const struct commit_now *now);

/* allocated.c: ranges that fallocate gave, in whole blocks; the inode is held. -EAGAIN, -ENOSPC:
 * nothing happened. */
CAIRN_MUST_CHECK int allocated_add(struct fs *fs, const struct ns_inode *inode, uint64_t from,
                                   uint64_t to);
/* The whole blocks within [from, to) are given back. -EAGAIN. */
CAIRN_MUST_CHECK int allocated_remove(struct fs *fs, const struct ns_inode *inode, uint64_t from,
                                      uint64_t to);
/* The part of a file that is content, or was given. `content`: that content. May read the view. */
uint64_t allocated_bytes(struct fs *fs, const struct commit_now *now, uint64_t content);
/* Is it the extended attribute that they are kept in? It is no program's. */
bool allocated_is_name(const char *name, size_t name_len);

/* attrs.c: ns since 1970. */
struct timespec fs_timespec(int64_t ns);

/* xattrs.c: may an attribute have this name? -EOPNOTSUPP, -EINVAL, -ERANGE. */
CAIRN_MUST_CHECK int xattr_check_name(const char *name);
/* A list of names, as listxattr(2) gives it; size 0: its length only. */
struct xattr_names {
    const struct fs_caller *caller;
    char *buf;
    size_t size, len;
};
/* Adds one, if the caller may see it; `arg`: the list. */
CAIRN_MUST_CHECK int xattr_add_name(const char *name, size_t name_len, void *arg);

/* data.c: SEEK_DATA or SEEK_HOLE in a file that the view has whole; `size`: its own. */
struct seek_range {
    uint64_t offset, size;
    int whence;
};
CAIRN_MUST_CHECK int64_t seek_view(struct view *view, uint64_t ino, const struct seek_range *range);

/* access.c */
int64_t access_time(struct fs *fs, const struct ns_inode *inode);
/* Would a read at `time` move it? May read the view. */
bool access_due(struct fs *fs, uint64_t ino, int64_t time);
/* Notes a read: moves the access time if it is due. May become history what is older. */
void access_note(struct fs *fs, const struct commit_now *now);
/* Another time was set. */
void access_forget(struct fs *fs, uint64_t ino);
