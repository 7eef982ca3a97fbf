// SPDX-License-Identifier: Apache-2.0
/* Files as they are at a cut: names, content, chunks. For code that has to know the files
 * of a cut. Any thread, several at once; none of the callbacks may wait for anything.
 * Errors as in view.h; -ESTALE: the cut is void. */
#pragma once

#include "view/remote.h"

/* The regular files whose rows the newest published head does not say as they are at the cut (their
 * content may be the same), in order of number; all, where the cut's run is whole. `fn` returns 0
 * to go on, 1 to stop. */
CAIRN_MUST_CHECK int view_cut_changed_files(struct view_cut *cut,
                                            int (*fn)(const struct view_inode *file, void *arg),
                                            void *arg);

/* As view_path(). Caller frees. NULL: the cut is void. */
char *view_cut_path(struct view_cut *cut, uint64_t ino);

/* Finds the inode at a path; at an empty one, the root. -ENOENT. */
CAIRN_MUST_CHECK int view_cut_lookup(struct view_cut *cut, const char *path,
                                     struct view_inode *ret_inode);

/* The names in a directory that begin with these bytes, in their order, and the inodes that have
 * them. `fn` returns 0 to go on, 1 to stop. */
CAIRN_MUST_CHECK int view_cut_names(struct view_cut *cut, uint64_t parent, const char *prefix,
                                    size_t prefix_len,
                                    int (*fn)(const char *name, uint64_t ino, void *arg),
                                    void *arg);

/* The whole content of a file, as view_extents(). */
CAIRN_MUST_CHECK int view_cut_content(struct view_cut *cut, uint64_t ino,
                                      int (*fn)(const struct view_extent *part, void *arg),
                                      void *arg);

/* As view_chunk(), at the cut. */
CAIRN_MUST_CHECK int view_cut_chunk(struct view_cut *cut, const struct chunk_name *name,
                                    struct chunk_entry *ret_entry);
