// SPDX-License-Identifier: Apache-2.0
/* The life of a daemon around its service: locks the store, keeps a log, handles signals and the
 * control socket, reports when the mount is usable, and cleans up after a failed start. */
#pragma once

#include "base/base.h"
#include "daemon/options.h"
#include "daemon/service.h"
#include "fuse/front.h"

/* Exit codes of mount(8). A service manager does not retry after MOUNT_USAGE: so this code is only
 * for faults that need another command line, or another owner or mode of STORE and MOUNTPOINT.
 * Causes that may be gone a minute later (files, filesystems, credentials, servers) have another
 * code. */
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
    bool is_adopting; /* the mount exists: the daemon takes it over */
    int lock_fd;      /* STORE/lock, locked */
    struct front_adopted adopted;
    unsigned deaths;      /* of daemons of this mount, so far */
    unsigned view_deaths; /* those of them that were for a new view */
    int64_t died_at;      /* monotonic ns: time of the last death */
    char last_death[64];  /* "signal 9" */
    bool is_upgrade;      /* no death, but an upgrade, or the return from an upgrade that failed */
    unsigned upgrades, upgrade_tries; /* successful upgrades, and all attempts */
    char upgrade_error[512];          /* of the last attempt; "": none */
    char version_before[64];          /* is_upgrade: of the daemon that handed over */
};

/* Mounts `store` at `mountpoint` (both absolute, without symbolic links) and serves it until it
 * ends; returns an enum mount_exit. To be called while the process has one thread; changes limits,
 * signals and umask of the process. During the start it writes to `ready_fd` what it is waiting
 * for; once the mount is usable or has failed, the exit status and more lines; then it closes
 * `ready_fd` and leaves the terminal. With `ready_fd` -1 (foreground) the lines are written to
 * standard error. `holder_link`: NULL without a holder; its descriptors are the process's. */
int lifecycle_main(const char *store, const char *mountpoint, const struct mount_options *options,
                   int ready_fd, const struct holder_link *holder_link);
