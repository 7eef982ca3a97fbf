// SPDX-License-Identifier: Apache-2.0
/* Full I/O on file descriptors: no short counts, no EINTR. 0 or -errno. Blocking. */
#pragma once

#include <dirent.h>
#include <sys/types.h>

#include "base/base.h"

/* Reads exactly `len` bytes at `offset`; -EUCLEAN if the file ends earlier. */
CAIRN_MUST_CHECK int io_pread_full(int fd, void *buf, size_t len, uint64_t offset);
CAIRN_MUST_CHECK int io_pwrite_full(int fd, const void *buf, size_t len, uint64_t offset);
/* Writes sequentially, to a pipe or another descriptor without offsets. */
CAIRN_MUST_CHECK int io_write_full(int fd, const void *buf, size_t len);
CAIRN_MUST_CHECK int io_fsync_dir(const char *path);

/* Opens a directory to read its names, and follows no link in its place; the caller closes it. */
CAIRN_MUST_CHECK int io_open_dir(int at_fd, const char *name, DIR **ret);

/* Makes the path absolute and resolves its symbolic links. The last component need not exist, its
 * parent must. Caller frees. */
CAIRN_MUST_CHECK int io_resolve_path(const char *path, char **ret);

/* Reads a whole small file (at most `max` bytes, else -EFBIG) into a new buffer with a NUL after
 * it; caller frees. */
CAIRN_MUST_CHECK int io_read_file(const char *path, size_t max, char **ret_data, size_t *ret_len);

/* Replaces the content of `path` such that after a crash it is either the old or the new one:
 * temporary file, fsync, rename, fsync of the directory. Mode 0600. */
CAIRN_MUST_CHECK int io_write_file_durable(const char *path, const void *data, size_t len);

/* Sizes of all files below a directory, and of those without another name (hard link), whose
 * removal alone frees space. Both are 0 if the directory does not exist. */
struct io_sizes {
    uint64_t bytes, only_there_bytes;
};
CAIRN_MUST_CHECK int io_tree_sizes(const char *path, struct io_sizes *ret);

/* Removes a directory and everything below it; symbolic links are removed, not followed. Returns 0
 * if it does not exist. */
CAIRN_MUST_CHECK int io_remove_tree(const char *path);
