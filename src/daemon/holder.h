// SPDX-License-Identifier: Apache-2.0
/* The holder of a mount: a small process that keeps /dev/fuse and the store's lock, and starts
 * another daemon when the serving one dies. It reads nothing from /dev/fuse, has no threads, opens
 * no store, and ends with the mount.
 *
 * After deaths in quick succession it waits longer and longer, and after the sixth it gives the
 * mount up: waiting calls get an error.
 *
 * When the holder itself dies, its daemon starts another holder, from its own program.
 *
 * The daemon may ask for another program (upgrade.h): then the next daemon is of that program, and
 * the holder becomes that program, too, once the daemon serves. */
#pragma once

#include "base/base.h"
#include "daemon/lifecycle.h"

/* As lifecycle_main(), in a child of this process; returns the exit status of the last daemon. One
 * thread. */
int holder_main(const char *store, const char *mountpoint, const struct mount_options *options,
                int ready_fd);

/* Runs as the program that replaced another holder's, or as the successor of a dead holder:
 * continues with the handover. Its daemon need not be a child of this process. */
struct handover;
int holder_go_on(const struct handover *handover);
