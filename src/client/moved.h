// SPDX-License-Identifier: Apache-2.0
/* Finds a file again whose directory, or itself, was renamed. Any thread; blocks as the filesystem
 * does. */
#pragma once

#include <sys/stat.h>

#include "base/base.h"

/* Inode, size and mtime: a mount that was made anew has another device. */
bool moved_is_same(const struct stat *a, const struct stat *b);

/* Returns a descriptor of the file, for reading. It has the device, inode, size and mtime of
 * `wanted`: inodes are used again. The file is looked for below the nearest directory
 * of `path` that exists, then below the directories above it, on its filesystem alone, among 20,000
 * entries. -ENOENT: it was not found. */
CAIRN_MUST_CHECK int moved_open(const char *path, const struct stat *wanted);
