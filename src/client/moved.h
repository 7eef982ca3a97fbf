// SPDX-License-Identifier: Apache-2.0
/* Finds a file again that was renamed, or whose directory was. Any thread; blocks as long as the
 * filesystem does. */
#pragma once

#include <sys/stat.h>

#include "base/base.h"

/* Compares inode, size and mtime; not the device, which changes when a filesystem is mounted
 * again. */
bool moved_is_same(const struct stat *a, const struct stat *b);

/* Returns a descriptor of the file, for reading. It has the device, inode, size and mtime of
 * `wanted`, as inode numbers are reused. Searches below the nearest existing directory of `path`,
 * then below the directories above it, within its filesystem, up to 20,000 entries. -ENOENT: not
 * found. */
CAIRN_MUST_CHECK int moved_open(const char *path, const struct stat *wanted);
