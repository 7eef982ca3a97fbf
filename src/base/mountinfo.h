// SPDX-License-Identifier: Apache-2.0
/* Mounts as the kernel lists them in /proc/PID/mountinfo. Reading the list sends no request to any
 * filesystem, so it never blocks on one that hangs. */
#pragma once

#include <sys/types.h>

#include "base/base.h"

/* One line of the list. The strings are borrowed, with the kernel's escapes undone. */
struct mountinfo {
    unsigned id, parent; /* of mounts; unique among all namespaces */
    /* peer group of the mount, and of its master if it is a slave; 0: none */
    unsigned shared, master;
    dev_t device;
    const char *root; /* which directory of the filesystem is mounted */
    const char *mountpoint, *type, *source;
    const char *options; /* of the filesystem, separated by commas */
};

/* Is the word among the options of the filesystem? */
CAIRN_MUST_CHECK bool mountinfo_has_option(const struct mountinfo *mount, const char *word);

/* Calls fn for each line that can be parsed, until it returns false. Returns -errno if the file
 * cannot be read. */
CAIRN_MUST_CHECK int
mountinfo_read(const char *path, bool (*fn)(const struct mountinfo *mount, void *arg), void *arg);
