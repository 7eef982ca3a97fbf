// SPDX-License-Identifier: Apache-2.0
/* Folders of a tier that is a directory: makes them, and makes durable what was named in them. Any
 * thread; no lock is held over I/O. */
#pragma once

#include "base/base.h"

struct folders;

/* Makes names of `folder` anew, for whose durability an fsync that failed says nothing, and none
 * that is tried again would: `objects` are those that were touched since the last one that worked.
 * Called until it works; the folder's fsync follows. */
typedef int folders_renew_fn(const char *folder, char *const *objects, size_t count, void *arg);

/* `root_fd` is borrowed. */
struct folders *folders_new(int root_fd, folders_renew_fn *renew, void *arg);

/* How the folders are reached, where not by a descriptor. 0 or -errno; make: -EEXIST is fine.
 * *ret_in_doubt: an fsync failed, or may have. */
struct folders_ops {
    int (*make)(void *arg, const char *folder);
    int (*sync)(void *arg, const char *folder, bool *ret_in_doubt);
};
struct folders *folders_new_by(const struct folders_ops *ops, folders_renew_fn *renew, void *arg);

/* NULL is fine. */
void folders_free(struct folders *folders);

/* Makes one folder, whose parent is there; there already is no error. */
CAIRN_MUST_CHECK int folders_make(struct folders *folders, const char *folder);

/* Makes all folders above `object`. */
CAIRN_MUST_CHECK int folders_make_parents(struct folders *folders, const char *object);

/* A name was made or removed: the folders above it are not durable until the next sync. */
void folders_touch(struct folders *folders, const char *object);

/* Names in it may not be durable. */
void folders_mark(struct folders *folders, const char *folder);

/* Everything touched before is durable on return. */
CAIRN_MUST_CHECK int folders_sync(struct folders *folders);
