/* The holder of a mount: a small process that keeps /dev/fuse and the store's lock, and starts another daemon when the one that serves
 * dies. It reads nothing from /dev/fuse, has no threads, opens no store, and ends with the mount.
 *
 * Deaths that come one soon after the other are answered more and more slowly, and the sixth not at all: then the mount is given up, and
 * whoever waits gets an error. */
#pragma once

#include "base/base.h"
#include "daemon/lifecycle.h"

/* As lifecycle_run(), in a child of this process; returns what the last daemon's end says. One thread. */
int holder_run(const char *store, const char *mountpoint, const struct mount_options *options, int ready_fd);

/* The daemon's part: it serves, and whoever comes after it will need this. Returns when the holder has it. */
CAIRN_MUST_CHECK int holder_tell(int link_fd, const struct front_passport *passport, int fuse_fd, int lock_fd);
