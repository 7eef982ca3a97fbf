// SPDX-License-Identifier: Apache-2.0
/* The holder of a mount: a small process that keeps /dev/fuse and the store's lock, and starts another daemon when the one that serves
 * dies. It reads nothing from /dev/fuse, has no threads, opens no store, and ends with the mount.
 *
 * Deaths that come one soon after the other are answered more and more slowly, and the sixth not at all: then the mount is given up, and
 * whoever waits gets an error.
 *
 * When the holder itself dies, its daemon starts another, from its own program.
 *
 * The daemon may ask for another program (upgrade.h): then the next daemon is of that, and the holder becomes that, too, once it serves. */
#pragma once

#include "base/base.h"
#include "daemon/lifecycle.h"

#define HOLDER_PATH_MAX 4096u
/* A daemon that ends by it does so for its successor to make the view anew. To a holder that does not know, it is a death like others. */
#define HOLDER_NEW_VIEW_SIGNAL SIGUSR2

/* Does what lifecycle_run() does, in a child of this process; returns the exit status of the last daemon. One thread. */
int holder_run(const char *store, const char *mountpoint, const struct mount_options *options, int ready_fd);

/* Called by the daemon once it serves: gives the holder what a successor needs. Returns when the holder has it. */
CAIRN_MUST_CHECK int holder_tell(int link_fd, const struct front_passport *passport, int fuse_fd, int lock_fd);

/* The daemon's part: it ends now, and a daemon of the program `binary` is to go on. Returns when the holder knows. */
CAIRN_MUST_CHECK int holder_upgrade(int link_fd, const char *binary);

/* Called by the daemon: it ends normally, with this exit status, and needs no successor. Async-signal-safe. A holder that is not
 * its parent cannot see that otherwise. */
void holder_end(int link_fd, int exit_code);
/* Called by the daemon: it ends by this signal on purpose, and needs a successor. */
void holder_die(int link_fd, int signo);

/* Runs as the program that replaced another holder's, or that follows a dead holder: continues with the handover. Its daemon need
 * not be a child of this process. */
struct handover;
int holder_go_on(const struct handover *handover);
