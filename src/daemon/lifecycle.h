// SPDX-License-Identifier: Apache-2.0
/* The life of a daemon around its service: locks the store, keeps a log, handles signals and the
 * control socket, reports when the mount is usable, and cleans up after a failed start. */
#pragma once

#include "base/base.h"
#include "daemon/options.h"
#include "daemon/service.h"
#include "fuse/front.h"

/* Exit codes of mount(8). A service manager does not try again after MOUNT_USAGE: so that is for
 * faults that only another command line, or another owner or mode of STORE and MOUNTPOINT, mends.
 * All that may be right a minute later (files, filesystems, credentials, servers) has another code.
 */
enum mount_exit {
    MOUNT_OK = 0,
    MOUNT_USAGE = 1, /* or permission */
    MOUNT_SYSTEM = 2,
    MOUNT_INTERRUPTED = 8,
    MOUNT_FAILED = 32,
};

/* lifecycle_main() writes lines for the terminal to `ready_fd`, and once, between them, this byte
 * and the exit status. */
#define READY_MARK '\0'

/* The link between a daemon and its holder. */
struct holder_link {
    int link_fd;      /* to the holder; -1: none */
    bool is_adopting; /* the mount is there: */
    int lock_fd;      /* STORE/lock, taken */
    struct front_adopted adopted;
    unsigned deaths;      /* of daemons of this mount, so far */
    unsigned view_deaths; /* of these, those that were for a new view */
    int64_t died_at;      /* monotonic ns: when the last one did */
    char last_death[64];  /* "signal 9" */
    bool is_upgrade;      /* no death, but an upgrade, or the return from one that failed */
    unsigned upgrades, upgrade_tries; /* of the second, the first were successful */
    char upgrade_error[512];          /* of the last try; "": none */
    char version_before[64];          /* is_upgrade: of the daemon that handed over */
};

/* Mounts `store` at `mountpoint` (both absolute, without symbolic links) and serves it until it
 * ends; returns an enum mount_exit. To be called while the process has one thread; it changes
 * limits, signals and umask of the process. While it starts, it writes to `ready_fd` what it waits
 * for; once usable or failed, the exit status and more lines; then it closes it and leaves the
 * terminal. With `ready_fd` -1 (foreground) the lines go to standard error. `holder_link`: NULL
 * without a holder; its descriptors are the process's. */
int lifecycle_main(const char *store, const char *mountpoint, const struct mount_options *options,
                   int ready_fd, const struct holder_link *holder_link);
