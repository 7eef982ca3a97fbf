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
        cJSON *problems;         /* NULL: messages are only printed */
    } locked;
};

/* --- copy_file.c ------------------------------------------------------------------------------ */

/* A file that is being made. It has no name at all until it is whole (O_TMPFILE), so that a process
 * which is killed leaves nothing of it. Where the filesystem has no such files it has a temporary
 * name. One thread at a time, but for writes to `fd`. */
struct new_file {
    int fd;
    char *temporary; /* NULL: it has none */
};
/* `name`: the future name. Call new_file_close() in any case. */
CAIRN_MUST_CHECK int new_file_open(struct new_file *file, int dir_fd, const char *name);
/* Names the file in the directory where it was opened, once. An existing file of that name is
 * replaced: for that moment the new one has a temporary name; -EEXIST: copy->may_not_replace. */
CAIRN_MUST_CHECK int new_file_name(struct new_file *file, const struct copy *copy, int dir_fd,
                                   const char *name);
/* `is_dropped`: the file got no name, and is removed. */
void new_file_close(struct new_file *file, int dir_fd, bool is_dropped);

/* Returns a temporary name for a link, which cannot be without one. Caller frees. */
char *copy_temporary_name(const char *name);
/* Renames `temporary`, and replaces an existing file of that name; -EEXIST:
 * copy->may_not_replace. */
CAIRN_MUST_CHECK int copy_rename(const struct copy *copy, int dir_fd, const char *temporary,
                                 const char *name);

/* --- copy_xattrs.c ---------------------------------------------------------------------------- */

/* Of a restore, copies the extended attributes of `inode` to `fd`. Leaves out those
 * that the caller may not set or the filesystem does not have. *ret_why: which one cannot be set
 * for another reason, to be freed; NULL: none. -errno: they cannot be read. */
CAIRN_MUST_CHECK int copy_xattrs(const struct copy *copy, const struct ns_inode *inode, int fd,
                                 char **ret_why);
