// SPDX-License-Identifier: Apache-2.0
/* Mounts as the kernel lists them in /proc/PID/mountinfo. Reading it asks no filesystem, so it
 * never waits for one that hangs. */
#pragma once

#include <sys/types.h>

#include "base/base.h"

/* One line. The strings are lent, and whole: what the kernel escapes is as it was. */
struct mountinfo {
    unsigned id, parent; /* of mounts; unique among all namespaces */
    /* peer groups: of the mount, of the one that it is a slave of; 0: none */
    unsigned shared, master;
    dev_t device;
    const char *root; /* what of the filesystem is mounted */
    const char *mountpoint, *type, *source;
};

/* Calls fn for each line that can be understood, until it returns false. -errno where the file
 * cannot be read. */
CAIRN_MUST_CHECK int
mountinfo_read(const char *path, bool (*fn)(const struct mountinfo *mount, void *arg), void *arg);
