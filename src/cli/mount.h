// SPDX-License-Identifier: Apache-2.0
/* Mounting, as `cairn mount` and the helper of mount(8) do it. One thread. */
#pragma once

#include "cli/command.h"

/* Mounts in the background or in the foreground; with `fake` it only checks the arguments. Prints
 * errors, and returns an exit status of mount(8). `options` went through options_finish(). */
CAIRN_MUST_CHECK int mount_store(const struct mount_options *options, bool fake, const char *store,
                                 const char *mountpoint);

/* Prints the reason against the mount, or a warning; returns an exit status of mount(8). `store`
 * is resolved. */
CAIRN_MUST_CHECK int check_mount(const struct mount_options *options, const char *store,
                                 const char *mountpoint);
