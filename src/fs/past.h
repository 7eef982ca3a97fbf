// SPDX-License-Identifier: Apache-2.0
/* Earlier states of the remote, as a directory of the mount: MNT/.history/SNAPSHOT/... It is found
 * in the root by its name, and not listed there. Everything below it is read-only.
 *
 * Its inodes are those for which fs_is_past() is true; no other call of fs/ accepts them, except
 * fs_read() and fs_copy(), as the source. Calls return -EAGAIN unless `waits`, if they would wait
 * for the remote, or for a state that is being opened: then they are to be repeated in a thread
 * that may wait.
 *
 * Permissions: a file has the mode that it had then, restricted to the mode that it has now, as
 * long as it exists; set-user-ID and set-group-ID bits are left out. If its owner or group is
 * another one now, each class of users has only the bits that all three classes have now. The same
 * applies to directories, so that the files in a directory that is closed now are closed, too. */
#pragma once

#include "commit/past_views.h"
#include "fs/fs.h"

#define FS_HISTORY_NAME ".history"
#define FS_HISTORY_INO ((uint64_t)(PAST_SLOT_MAX + 1) << PAST_SLOT_SHIFT | 1)

static inline bool fs_is_past(uint64_t ino)
{
    return past_slot(ino) != 0 && ino != UINT64_MAX; /* UINT64_MAX is the file of the self-test */
}

/* The mount shows the state with this number, and no other: *ret_root is its root, which is a
 * directory as others of that state. It stays open, and is not given up, as long as `fs` is there.
 * Before any other call; blocks. -ENOENT: there is no such state; else as lookback_enter(). */
CAIRN_MUST_CHECK int fs_show_past(struct fs *fs, uint64_t number, uint64_t *ret_root);

/* To be called about once a second: closes states that nobody uses. */
void fs_past_tick(struct fs *fs);

/* Returns whether `name` in the directory `parent` is the directory of snapshots. False if the
 * mount has none, or a file of that name exists. */
bool fs_is_history(struct fs *fs, uint64_t parent, const char *name);

CAIRN_MUST_CHECK int fs_past_lookup(struct fs *fs, uint64_t parent, const char *name,
                                    const struct fs_caller *caller, bool waits, struct stat *ret);
CAIRN_MUST_CHECK int fs_past_getattr(struct fs *fs, uint64_t ino, bool waits, struct stat *ret);
/* listing->until is ignored. */
CAIRN_MUST_CHECK int fs_past_readdir(struct fs *fs, const struct fs_listing *listing,
                                     const struct fs_caller *caller, bool waits);
/* `buf` has room for 4096 bytes. */
CAIRN_MUST_CHECK ssize_t fs_past_readlink(struct fs *fs, uint64_t ino, bool waits, char buf[4096]);
CAIRN_MUST_CHECK ssize_t fs_past_getxattr(struct fs *fs, uint64_t ino, const char *name, bool waits,
                                          void *buf, size_t size);
CAIRN_MUST_CHECK ssize_t fs_past_listxattr(struct fs *fs, uint64_t ino,
                                           const struct fs_caller *caller, bool waits, char *buf,
                                           size_t size);
/* The state stays open until the file, or directory, is closed. */
CAIRN_MUST_CHECK int fs_past_open(struct fs *fs, uint64_t ino, bool waits);
void fs_past_close(struct fs *fs, uint64_t ino);
CAIRN_MUST_CHECK int64_t fs_past_lseek(struct fs *fs, uint64_t ino, uint64_t offset, int whence,
                                       bool waits);
