/* What a mount process does around the service: makes or accepts the store folder, locks it, keeps a log,
 * answers signals and the control socket, tells when it is usable, cleans up after a failed start. */
#pragma once

#include <sys/types.h>

#include "base/base.h"
#include "daemon/options.h"
#include "daemon/service.h"

/* Exit codes of mount(8). */
enum mount_exit {
    MOUNT_OK = 0,
    MOUNT_USAGE = 1, /* or permission */
    MOUNT_SYSTEM = 2,
    MOUNT_INTERRUPTED = 8,
    MOUNT_FAILED = 32,
};

/* Sets what the user gets to read, one line; returns `r`. */
int service_fail(struct service_error *error, int exit_code, int r, const char *fmt, ...) CAIRN_PRINTF(4, 5);

/* What lifecycle_run() writes to `ready_fd`: lines for the terminal at any time, and among them once this byte and the
 * exit code, for whoever waits. */
#define READY_MARK '\0'

/* Mounts `store` at `mountpoint` (both absolute, without symbolic links) and serves it until it ends; returns
 * an enum mount_exit. To be called while the process has one thread; it changes limits, signals and umask of
 * the process.
 *
 * While it starts it writes to `ready_fd` what it waits for; once usable or failed, the exit code and more lines; then it
 * closes it and leaves the terminal. With `ready_fd` -1 (foreground) the lines go to standard error. */
int lifecycle_run(const char *store, const char *mountpoint, const struct mount_options *options,
                  int ready_fd);

/* Takes STORE/lock, which is free again when the last copy of *ret_fd is closed, so at the latest when the
 * process dies. -EBUSY: held by process *ret_holder (0 where it cannot be told). */
CAIRN_MUST_CHECK int store_lock(const char *store, int *ret_fd, pid_t *ret_holder);

/* Whether somebody holds STORE/lock: 1 (then *ret_holder as above), 0 or -errno. Takes nothing. */
CAIRN_MUST_CHECK int store_lock_holder(const char *store, pid_t *ret_holder);

/* The path of a store, absolute and without symbolic links; the store need not be there, its parent must.
 * Caller frees. */
CAIRN_MUST_CHECK int store_resolve(const char *store, char **ret_path);

/* A store folder, taken for a mount. */
struct store_folder {
    const char *path; /* as resolved; borrowed */
    bool made;        /* by us, just now */
    mode_t mode_before; /* of an empty folder that was open to others; 0: unchanged */
    bool fresh;       /* holds no store yet */
    int lock_fd;      /* -1: none */
};

/* Makes, checks and locks the folder of a store. On failure nothing is left behind and *ret_error is set. */
CAIRN_MUST_CHECK int store_folder_take(const char *path, struct store_folder *ret,
                                       struct service_error *ret_error);

/* Lets go of it. With `undo`, removes what a failed mount left in a fresh folder, and the folder if we made
 * it. */
void store_folder_release(struct store_folder *folder, bool undo);
