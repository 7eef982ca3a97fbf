// SPDX-License-Identifier: Apache-2.0
/* The holder of a mount: a small process that keeps /dev/fuse and the store's lock, and starts
 * another daemon when the one that serves dies. It reads nothing from /dev/fuse, has no threads,
 * opens no store, and ends with the mount.
 *
 * Deaths that come one soon after the other are answered more and more slowly, and the sixth not at
 * all: then the mount is given up, and waiting calls get an error.
 *
 * When the holder itself dies, its daemon starts another, from its own program.
 *
 * The daemon may ask for another program (upgrade.h): then the next daemon is of that, and the
 * holder becomes that, too, once it serves. */
#pragma once

#include "base/base.h"
#include "daemon/lifecycle.h"

/* Like lifecycle_main(), in a child of this process; returns the exit status of the last
 * daemon. One thread. */
int holder_main(const char *store, const char *mountpoint, const struct mount_options *options,
                int ready_fd);

/* Runs as the program that replaced another holder's, or that follows a dead holder: continues with
 * the handover. Its daemon need not be a child of this process. */
struct handover;
int holder_go_on(const struct handover *handover);
