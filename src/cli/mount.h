// SPDX-License-Identifier: Apache-2.0
/* What `cairn mount` and the helper of mount(8) share. One thread. */
#pragma once

#include "cli/command.h"

/* Mounts as asked, in the background or in the foreground; with `fake` it only looks whether that would do. Says what is wrong;
 * an exit code of mount(8). `options` went through options_finish(). */
CAIRN_MUST_CHECK int mount_store(const struct mount_options *options, bool fake, const char *store, const char *mountpoint);
