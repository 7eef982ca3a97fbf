// SPDX-License-Identifier: Apache-2.0
/* Open descriptors of objects, shared by threads: opening a file for every chunk read would cost
 * more than the read. Unused descriptors are closed, least recently used first. Any thread; no lock
 * is held while a file is opened. */
#pragma once

#include "base/base.h"

struct fd_cache;

struct fd_entry {
    int fd;
    /* owned by the cache */
    char *object;
    unsigned users;
    bool forgotten, failed;
    uint64_t used;
    struct fd_entry *next;
};

/* Keeps up to `max` descriptors open, and more only while they are in use. Objects are relative to
 * `root_fd` (borrowed); `flags` are those of open(). */
struct fd_cache *fd_cache_new(int root_fd, int flags, unsigned max);

/* No entry may be in use. */
void fd_cache_free(struct fd_cache *cache);

/* -EIO after fd_cache_fail(); otherwise the error of open(). */
CAIRN_MUST_CHECK int fd_cache_get(struct fd_cache *cache, const char *object,
                                  struct fd_entry **ret_entry);
void fd_cache_put(struct fd_cache *cache, struct fd_entry *entry);

/* Marks the object as unusable: every later fd_cache_get() of it fails, until fd_cache_forget(). */
void fd_cache_fail(struct fd_cache *cache, struct fd_entry *entry);

/* The object was removed: closes its descriptor, now or after its last use. */
void fd_cache_forget(struct fd_cache *cache, const char *object);
