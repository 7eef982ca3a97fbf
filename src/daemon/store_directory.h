// SPDX-License-Identifier: Apache-2.0
/* The directory of a store: found, created, checked, locked, and restored if the mount fails. All
 * calls block for as long as the filesystem does; one thread. */
#pragma once

#include <sys/types.h>

#include "base/base.h"
#include "daemon/service.h"

/* Locks STORE/lock, which is free again when the last copy of *ret_fd is closed, so at the latest
 * when the process dies. -EBUSY: held by process *ret_holder (0: not known). */
CAIRN_MUST_CHECK int store_directory_lock(const char *store, int *ret_fd, pid_t *ret_holder);

struct store_waiter {
    /* reports the reason of the wait, once; NULL: not needed */
    void (*report)(const char *line, void *arg);
    bool (*cancelled)(void *arg); /* called now and then; NULL: never cancelled */
    void *arg;
};

/* As store_directory_lock(), but waits for up to 30 s while no daemon listens: a command that reads
 * a store (`cairn status`, `ls` or `fsck` after the daemon's death) holds the lock for a moment,
 * longer on a busy machine; so does a daemon that exits. `waiter` may be NULL. */
CAIRN_MUST_CHECK int store_directory_lock_patiently(const char *store,
                                                    const struct store_waiter *waiter, int *ret_fd,
                                                    pid_t *ret_holder);

/* Returns whether a process holds STORE/lock: enum store_lock, with *ret_holder as above, or
 * -errno. Takes no lock. */
enum store_lock { STORE_IS_FREE, STORE_IS_HELD };
CAIRN_MUST_CHECK int store_directory_lock_holder(const char *store, pid_t *ret_holder);

/* A store directory, locked for a mount. */
struct store_directory {
    const char *path;   /* as resolved; the caller's */
    bool made;          /* created by us, just now */
    mode_t mode_before; /* of an empty directory that was open to other users; 0: unchanged */
    bool fresh;         /* contains no store yet */
    int lock_fd;        /* -1: none */
};

/* Creates, checks and locks the directory of a store; waits for its lock as
 * store_directory_lock_patiently(). On failure nothing is left behind and *ret_error is set. */
CAIRN_MUST_CHECK int store_directory_take(const char *path, const struct store_waiter *waiter,
                                          struct store_directory *ret,
                                          struct service_error *ret_error);

/* As store_directory_take(), for a successor, which holds the lock already: `lock_fd` belongs to
 * the directory from then on. */
void store_directory_adopt(const char *path, int lock_fd, struct store_directory *ret);

/* Releases the directory. With `undo`, removes the files of a failed mount from a fresh directory,
 * and the directory if we created it. */
void store_directory_release(struct store_directory *directory, bool undo);
