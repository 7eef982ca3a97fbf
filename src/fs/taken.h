// SPDX-License-Identifier: Apache-2.0
/* What this node takes from the union of all nodes that write the remote (take/): names and
 * attributes of other nodes' files become operations of its own history, told to nobody, and their
 * content is read from another store, which follows the union. */
#pragma once

#include "fs/fs.h"

/* The store that has the content of other nodes' files is about to be opened: until it is, or is
 * found to be impossible, what needs it waits. */
void fs_expect_others(struct fs *fs);
/* It is open, or is not expected any more: what waits for it goes on, or fails. Any thread. */
void fs_expect_no_others(struct fs *fs);
/* That store; NULL: it cannot be opened now, or is no longer. Then copies that are being made of
 * its files end. One thread. */
void fs_show_others(struct fs *fs, struct store *others);

/* A file of another node is to be changed: it becomes one of this node, under its name. Threads of
 * fs/ copy its content, for as long as somebody waits for it. *ret is the caller's until
 * fs_bring_leave(). -EAGAIN: too many are being copied. -EIO. */
struct bringing;
CAIRN_MUST_CHECK int fs_bring(struct fs *fs, uint64_t ino, struct bringing **ret);
/* -EAGAIN: it is being copied. -ESTALE: it is one of this node, or its node changed it meanwhile:
 * the caller is to look the name up again. Else why it cannot become one, with its cause. */
CAIRN_MUST_CHECK int fs_bring_result(struct bringing *bringing);
void fs_bring_leave(struct bringing *bringing);
/* `over` is called when a copy is over, one way or the other. Before the first. */
void fs_bring_subscribe(struct fs *fs, void (*over)(void *arg), void *arg);

/* The same of a file that is to be emptied: its content is not read. The others see what it had
 * until the new one is sealed for the first time, which it is at once if it `seals`. -ESTALE as
 * above, -EAGAIN as all calls. FS_IS_ELSEWHERE: the caller may have found it by a name that it has
 * no more, and fail when it looks again: it is to be copied, as above. */
CAIRN_MUST_CHECK int fs_bring_empty(struct fs *fs, uint64_t ino, bool seals);

/* Between these two no name is made, removed or moved by another call: what was looked up stays so.
 * Short, and without other calls than those here. */
void fs_taken_begin(struct fs *fs);
void fs_taken_end(struct fs *fs);

/* Performs `rec` as history_commit() does; the inodes that it names need not be held. What it takes
 * the last name of lives on without one: *ret_nameless, for fs_forget(); else 0. */
CAIRN_MUST_CHECK int fs_taken_commit(struct fs *fs, struct record *rec, uint64_t *ret_nameless);
