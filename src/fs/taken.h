// SPDX-License-Identifier: Apache-2.0
/* What this node takes from the union of all nodes that write the remote (take/): names and
 * attributes of other nodes' files become operations of its own history, told to nobody, and their
 * content is read from another store, which follows the union. */
#pragma once

#include "fs/fs.h"

/* The store that has the content of other nodes' files; as long as `fs`, or until NULL is given.
 * Any thread. */
void fs_show_others(struct fs *fs, struct store *others);

/* A file of another node is to be changed: it becomes one of this node, under its name. -ESTALE: it
 * has, and the caller is to look the name up again. Blocks for the whole content. */
CAIRN_MUST_CHECK int fs_bring_here(struct fs *fs, uint64_t ino);

/* Between these two no name is made, removed or moved by another call: what was looked up stays so.
 * Short, and without other calls than those here. */
void fs_taken_begin(struct fs *fs);
void fs_taken_end(struct fs *fs);

/* Performs `rec` as history_commit() does; the inodes that it names need not be held. What it takes
 * the last name of lives on without one: *ret_nameless, for fs_forget(); else 0. */
CAIRN_MUST_CHECK int fs_taken_commit(struct fs *fs, struct record *rec, uint64_t *ret_nameless);
