/* Inside fs/. */
#pragma once

#include <uthash.h>

#include "base/lock.h"
#include "fs/fs.h"

#define BLOCK_SIZE (1024u * 1024) /* st_blksize: what a request carries */

struct open_inode {
    UT_hash_handle hh;
    uint64_t ino;
    uint64_t opens;
};

struct fs {
    struct store *store;
    struct ns *ns;
    struct stage *stage;
    enum fs_fsync fsync_level;
    struct {
        struct cairn_mutex lock; /* also held over commits that ask whether an inode is open */
        struct open_inode *open;
    } locked;
};

bool is_open_locked(struct fs *fs, uint64_t ino);
void fill_stat(struct fs *fs, const struct ns_inode *inode, struct stat *ret);
/* Clears setuid and setgid, as a write or a change of owner by somebody without privilege does. */
CAIRN_MUST_CHECK int kill_privileges(struct fs *fs, const struct ns_inode *inode, const struct fs_caller *caller);
/* Content discarded and size set, by truncation or punching. */
CAIRN_MUST_CHECK int cut(struct fs *fs, uint64_t ino, uint64_t offset, uint64_t length, uint64_t new_size);
/* Size as it is now, drafts included. */
uint64_t size_now(struct fs *fs, const struct ns_inode *inode);
