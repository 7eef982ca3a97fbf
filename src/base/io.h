// SPDX-License-Identifier: Apache-2.0
/* Full I/O on file descriptors: no short counts, no EINTR. 0 or -errno. Blocking. */
#pragma once

#include <dirent.h>
#include <sys/types.h>

#include "base/base.h"

/* Reads exactly `len` bytes at `offset`; -EUCLEAN where the file ends before. */
CAIRN_MUST_CHECK int io_pread_full(int fd, void *buf, size_t len, uint64_t offset);
CAIRN_MUST_CHECK int io_pwrite_full(int fd, const void *buf, size_t len, uint64_t offset);
/* In order, to a pipe or another descriptor without offsets. */
CAIRN_MUST_CHECK int io_write_full(int fd, const void *buf, size_t len);
CAIRN_MUST_CHECK int io_fsync_dir(const char *path);

/* Opens a directory, not a link to one, to read its names; the caller closes it. */
CAIRN_MUST_CHECK int io_open_dir(int at_fd, const char *name, DIR **ret);

/* The path as absolute and without symbolic links. What it names need not be there, its parent
 * must. Caller frees. */
CAIRN_MUST_CHECK int io_resolve_path(const char *path, char **ret);

/* Reads a whole small file (at most `max` bytes, else -EFBIG) into a new buffer with a NUL after
 * it; caller frees. */
CAIRN_MUST_CHECK int io_read_file(const char *path, size_t max, char **ret_data, size_t *ret_len);

/* Writes `path` so that after a crash it holds the old content or the new one: temporary file,
 * fsync, rename, fsync of the directory. Mode 0600. */
CAIRN_MUST_CHECK int io_write_file_durable(const char *path, const void *data, size_t len);

/* Sizes of all files below a directory, and of those that have no other name (hard link), which
 * alone cost space there. 0 where there is none. */
struct io_sizes {
    uint64_t bytes, only_there_bytes;
};
CAIRN_MUST_CHECK int io_tree_sizes(const char *path, struct io_sizes *ret);

/* Removes a directory with all that is in it, symbolic links not followed; 0 where there is none.
 */
CAIRN_MUST_CHECK int io_remove_tree(const char *path);
