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

/* As lifecycle_run(), in a child of this process; returns what the last daemon's end says. One thread. */
int holder_run(const char *store, const char *mountpoint, const struct mount_options *options, int ready_fd);

/* The daemon's part: it serves, and whoever comes after it will need this. Returns when the holder has it. */
CAIRN_MUST_CHECK int holder_tell(int link_fd, const struct front_passport *passport, int fuse_fd, int lock_fd);

/* The daemon's part: it ends now, and a daemon of the program `binary` is to go on. Returns when the holder knows. */
CAIRN_MUST_CHECK int holder_upgrade(int link_fd, const char *binary);

/* The daemon's part: it ends with this exit code, as it should, and nobody is to go on. Async-signal-safe. A holder that is not the
 * daemon's parent cannot see that otherwise. */
void holder_end(int link_fd, int exit_code);
/* The same of a death that is meant, by this signal: somebody is to go on. */
void holder_die(int link_fd, int signo);

/* As the program that has taken the place of another holder's, or follows one that died: goes on with what was handed
 * over. Its daemon may be no child of this process. */
struct handover;
int holder_go_on(const struct handover *handover);
