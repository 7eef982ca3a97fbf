// SPDX-License-Identifier: Apache-2.0
/* Files as of a cut: names, content, chunks. For code that needs the files of a cut. Any thread,
 * several at once; the callbacks must not wait for anything. Errors as in view.h; -ESTALE: the cut
 * is void. */
#pragma once

#include "view/remote.h"

/* Regular files whose rows at the cut differ from those of the newest published head (their content
 * may be the same), in order of number; all files, if the cut's run is whole. `fn` returns 0 to
 * continue, 1 to stop. */
CAIRN_MUST_CHECK int view_cut_changed_files(struct view_cut *cut,
                                            int (*fn)(const struct view_inode *file, void *arg),
                                            void *arg);

/* As view_path(). Caller frees. NULL: the cut is void. */
char *view_cut_path(struct view_cut *cut, uint64_t ino);

/* Finds the inode at a path; the empty path is the root. -ENOENT. */
CAIRN_MUST_CHECK int view_cut_lookup(struct view_cut *cut, const char *path,
                                     struct view_inode *ret_inode);

/* The names in a directory that begin with `prefix`, in order, with their inodes. `fn` returns 0 to
 * continue, 1 to stop. */
CAIRN_MUST_CHECK int view_cut_names(struct view_cut *cut, uint64_t parent, const char *prefix,
                                    size_t prefix_len,
                                    int (*fn)(const char *name, uint64_t ino, void *arg),
                                    void *arg);

/* The whole content of a file, like view_extents(). */
CAIRN_MUST_CHECK int view_cut_content(struct view_cut *cut, uint64_t ino,
                                      int (*fn)(const struct view_extent *part, void *arg),
                                      void *arg);

/* As view_chunk(), at the cut. */
CAIRN_MUST_CHECK int view_cut_chunk(struct view_cut *cut, const struct chunk_name *name,
                                    struct chunk_entry *ret_entry);
