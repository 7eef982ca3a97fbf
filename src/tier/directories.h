// SPDX-License-Identifier: Apache-2.0
/* Directories of a tier that is a directory: makes them, and makes durable what was named in them.
 * Any thread; no lock is held over I/O. */
#pragma once

#include "base/base.h"

struct directories;

/* Makes names of `directory` anew, for whose durability an fsync that failed says nothing, and none
 * that is tried again would: `objects` are those that were touched since the last one that worked.
 * Called until it works; the directory's fsync follows. */
typedef int directories_renew_fn(const char *directory, char *const *objects, size_t count,
                                 void *arg);

/* `root_fd` is borrowed. */
struct directories *directories_new(int root_fd, directories_renew_fn *renew, void *arg);

/* The calls that reach the directories, where a descriptor does not. 0 or -errno; make: -EEXIST is
 * fine. *ret_in_doubt: an fsync failed, or may have. */
struct directories_ops {
    int (*make)(void *arg, const char *directory);
    int (*sync)(void *arg, const char *directory, bool *ret_in_doubt);
};
struct directories *directories_new_by(const struct directories_ops *ops,
                                       directories_renew_fn *renew, void *arg);

/* NULL is fine. */
void directories_free(struct directories *directories);

/* Makes one directory, whose parent is there; there already is no error. */
CAIRN_MUST_CHECK int directories_make(struct directories *directories, const char *directory);

/* Makes all directories above `object`. */
CAIRN_MUST_CHECK int directories_make_parents(struct directories *directories, const char *object);

/* A name was made or removed: the directories above it are not durable until the next sync. */
void directories_touch(struct directories *directories, const char *object);

/* Names in it may not be durable. */
void directories_mark(struct directories *directories, const char *directory);

/* Everything touched before is durable on return. */
CAIRN_MUST_CHECK int directories_sync(struct directories *directories);
