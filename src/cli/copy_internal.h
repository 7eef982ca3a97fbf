// SPDX-License-Identifier: Apache-2.0
/* The state that copies to files (copy.c) and to standard output (copy_stream.c) share. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "base/event.h"
#include "base/lock.h"
#include "base/pool.h"
#include "base/vector.h"
#include "cli/copy.h"

struct directory {
    char *path;
    struct ns_inode inode;
};

struct copy {
    const char *command;
    bool is_partial, to_output, may_not_replace, restores;
    struct store *store;
    const char *past, *past_of; /* as of struct copy_how */
    struct reader_packs *packs; /* of the store, with `past` */
    struct pool *pool;
    pthread_t watcher;
    bool is_tty;
    int64_t began;
    struct copy_counts total; /* once `is_counted` */
    _Atomic bool is_counted;
    _Atomic uint64_t files, partial_files, bytes;
    _Atomic bool failed, ended;
    struct event end;
    VECTOR(struct directory) directories;
    struct {
        struct cairn_mutex lock; /* LOCK_LEAF */
        cJSON *problems;         /* NULL: messages are enough */
    } locked;
};

/* copy_xattrs.c: of a restore, copies the extended attributes of `inode` to `fd`. Leaves out those
 * that the caller may not set or the filesystem does not have. *ret_why: which one cannot be set
 * for another reason, to be freed; NULL: none. -errno: they cannot be read. */
CAIRN_MUST_CHECK int copy_xattrs(const struct copy *copy, const struct ns_inode *inode, int fd,
                                 char **ret_why);
