// SPDX-License-Identifier: Apache-2.0
/* Creates the directories of a tier that is itself a directory, and makes the names in them
 * durable. Any thread; no lock is held over I/O. */
#pragma once

#include "base/base.h"

struct directories;

/* Called after a failed fsync of `directory`: retrying the fsync would prove nothing about names
 * from before. Makes new names for `objects`, those touched since the last fsync that worked.
 * Called until it succeeds; then the directory is fsynced. */
typedef int directories_renew_fn(const char *directory, char *const *objects, size_t count,
                                 void *arg);

/* `root_fd` is borrowed. */
struct directories *directories_new(int root_fd, directories_renew_fn *renew, void *arg);

/* For directories that cannot be reached by a descriptor. Return 0 or -errno; make: -EEXIST is
 * fine. *ret_in_doubt: an fsync failed, or may have failed. */
struct directories_ops {
    int (*make)(void *arg, const char *directory);
    int (*sync)(void *arg, const char *directory, bool *ret_in_doubt);
};
struct directories *directories_new_by(const struct directories_ops *ops,
                                       directories_renew_fn *renew, void *arg);

/* NULL is fine. */
void directories_free(struct directories *directories);

/* Creates one directory, whose parent exists. It may exist already. */
CAIRN_MUST_CHECK int directories_make(struct directories *directories, const char *directory);

/* Creates all directories above `object`. */
CAIRN_MUST_CHECK int directories_make_parents(struct directories *directories, const char *object);

/* Call when a name was created or removed: the directories above it are not durable until the next
 * sync. */
void directories_touch(struct directories *directories, const char *object);

/* Marks a directory whose names may not be durable. */
void directories_mark(struct directories *directories, const char *directory);

/* On return, every name touched before is durable. */
CAIRN_MUST_CHECK int directories_sync(struct directories *directories);
