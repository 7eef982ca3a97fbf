// SPDX-License-Identifier: Apache-2.0
/* The directory of a store: found, made, checked, locked, and left as it was if the mount fails.
 * All calls block for as long as the filesystem does; one thread. */
#pragma once

#include <sys/types.h>

#include "base/base.h"
#include "daemon/service.h"

/* Takes STORE/lock, which is free again when the last copy of *ret_fd is closed, so at the latest
 * when the process dies. -EBUSY: held by process *ret_holder (0 where it cannot be told). */
CAIRN_MUST_CHECK int store_directory_lock(const char *store, int *ret_fd, pid_t *ret_holder);

struct store_waiter {
    /* reports the reason of the wait, once; NULL: not needed */
    void (*report)(const char *line, void *arg);
    bool (*cancelled)(void *arg); /* asked now and then; NULL: never */
    void *arg;
};

/* The same, and waits for up to 30 s while no daemon listens: a command that reads a store (`cairn
 * status`, `ls` or `fsck` after the daemon's death) holds it for a moment, longer on a busy
 * machine; so does a daemon that exits. `waiter` may be NULL. */
CAIRN_MUST_CHECK int store_directory_lock_patiently(const char *store,
                                                    const struct store_waiter *waiter, int *ret_fd,
                                                    pid_t *ret_holder);

/* Does a process hold STORE/lock? Then *ret_holder as above. enum store_lock, or -errno. Takes no
 * lock. */
enum store_lock { STORE_IS_FREE, STORE_IS_HELD };
CAIRN_MUST_CHECK int store_directory_lock_holder(const char *store, pid_t *ret_holder);

/* A store directory, taken for a mount. */
struct store_directory {
    const char *path;   /* as resolved; borrowed */
    bool made;          /* by us, just now */
    mode_t mode_before; /* of an empty directory that was open to others; 0: unchanged */
    bool fresh;         /* holds no store yet */
    int lock_fd;        /* -1: none */
};

/* Makes, checks and locks the directory of a store; waits for its lock as
 * store_directory_lock_patiently(). On failure nothing is left behind and *ret_error is set. */
CAIRN_MUST_CHECK int store_directory_take(const char *path, const struct store_waiter *waiter,
                                          struct store_directory *ret,
                                          struct service_error *ret_error);

/* The same for a successor, which has the lock already: `lock_fd` is the directory's from here on.
 */
void store_directory_adopt(const char *path, int lock_fd, struct store_directory *ret);

/* Lets go of it. With `undo`, removes the files of a failed mount from a fresh directory, and the
 * directory if we made it. */
void store_directory_release(struct store_directory *directory, bool undo);
