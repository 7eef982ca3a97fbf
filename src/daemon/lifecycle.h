// SPDX-License-Identifier: Apache-2.0
/* What a mount process does around the service: takes the store's folder, keeps a log, answers signals and the control
 * socket, tells when it is usable, cleans up after a failed start. */
#pragma once

#include "base/base.h"
#include "daemon/options.h"
#include "daemon/service.h"
#include "fuse/front.h"

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

/* What a mount process has to do with whoever keeps its mount, should it die. */
struct lifecycle_keeper {
    int link_fd;          /* to the holder; -1: none */
    bool is_adopting;     /* the mount is there: */
    int lock_fd;          /* STORE/lock, taken */
    struct front_adopted adopted;
    unsigned deaths;      /* of daemons of this mount, so far */
    unsigned view_deaths; /* of these, those that were for a new view */
    int64_t died_at;      /* monotonic ns: when the last one did */
    char last_death[64];  /* "signal 9" */
    bool is_upgrade;      /* no death, but an upgrade, or what goes on after one that failed */
    unsigned upgrades, upgrade_tries; /* of the second, the first were successful */
    char upgrade_error[512];          /* of the last try; "": none */
    char version_before[64];          /* is_upgrade: of the daemon that handed over */
};

/* Mounts `store` at `mountpoint` (both absolute, without symbolic links) and serves it until it ends; returns
 * an enum mount_exit. To be called while the process has one thread; it changes limits, signals and umask of
 * the process.
 *
 * While it starts it writes to `ready_fd` what it waits for; once usable or failed, the exit code and more lines; then it
 * closes it and leaves the terminal. With `ready_fd` -1 (foreground) the lines go to standard error. `keeper`: NULL if nobody keeps
 * the mount; its descriptors are the process's. */
int lifecycle_run(const char *store, const char *mountpoint, const struct mount_options *options,
                  int ready_fd, const struct lifecycle_keeper *keeper);

