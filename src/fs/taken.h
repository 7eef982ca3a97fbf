// SPDX-License-Identifier: Apache-2.0
/* How this node takes over changes from the union of all nodes that write the remote (take/): names
 * and attributes of other nodes' files become operations of its own history, which are not
 * published, and the content of these files is read from another store, which follows the union. */
#pragma once

#include "fs/fs.h"

/* The store that has the content of other nodes' files is about to be opened: until it is, or
 * cannot be, calls that need it wait. */
void fs_expect_others(struct fs *fs);
/* That store is open, or is not expected any more: calls that wait for it continue, or fail. Any
 * thread. */
void fs_expect_no_others(struct fs *fs);
/* Sets that store; NULL: it cannot be opened now, or is closed: copies of its files in progress
 * end. One thread. */
void fs_show_others(struct fs *fs, struct store *others);

/* A file of another node is to be changed: it becomes one of this node, under its name. Threads of
 * fs/ copy its content, for as long as a caller waits for it. *ret is the caller's until
 * fs_bring_leave(). -EAGAIN: too many are being copied. -EIO. */
struct bringing;
CAIRN_MUST_CHECK int fs_bring(struct fs *fs, uint64_t ino, struct bringing **ret);
/* -EAGAIN: it is being copied. -ESTALE: it is a file of this node now, or its node changed it
 * meanwhile: the caller must look the name up again. Else the error, with its cause. */
CAIRN_MUST_CHECK int fs_bring_result(struct bringing *bringing);
void fs_bring_leave(struct bringing *bringing);
/* `over` is called when a copy has ended, successfully or not. Called before the first
 * fs_bring(). */
void fs_bring_subscribe(struct fs *fs, void (*over)(void *arg), void *arg);

/* As fs_bring(), for a file that is to be emptied: its content is not read. Other nodes see the old
 * content until the new file is sealed for the first time; if it `seals`, at once. -ESTALE as
 * above, -EAGAIN as all calls. FS_IS_ELSEWHERE: the caller may have found the file by a name that
 * it does not have any more, and fail when it looks the name up again: the file must be copied, as
 * above. */
CAIRN_MUST_CHECK int fs_bring_empty(struct fs *fs, uint64_t ino, bool seals);

/* Between these two calls no name is created, removed or moved by another call: names that were
 * looked up stay unchanged. For a short time, and only with the calls declared here. */
void fs_taken_begin(struct fs *fs);
void fs_taken_end(struct fs *fs);

/* Performs `rec` as history_commit() does; the inodes that it names need not be held. An inode that
 * loses its last name by this lives on without one: *ret_nameless, for fs_forget(); else 0. */
CAIRN_MUST_CHECK int fs_taken_commit(struct fs *fs, struct record *rec, uint64_t *ret_nameless);
