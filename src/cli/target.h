// SPDX-License-Identifier: Apache-2.0
/* What an argument of a verb names: a mount, a store, or something on a mount. One thread. */
#pragma once

#include "cli/cli.h"

struct target {
    char *store;      /* owned */
    char *mountpoint; /* owned; NULL: the store is not mounted, as far as the kernel knows */
};
void target_done(struct target *target);

/* Each returns CLI_OK with *ret to be freed, or the exit code; then it was said what is wrong. */

/* A mountpoint. */
CAIRN_MUST_CHECK int target_of_mount(const struct verb *verb, const char *argument, struct target *ret);
/* A mountpoint or a store; NULL: the one mount that there is. */
CAIRN_MUST_CHECK int target_of_any(const struct verb *verb, const char *argument, struct target *ret);
/* A file or folder on a mount; *ret_ino is its inode number. A symbolic link is followed. */
CAIRN_MUST_CHECK int target_of_path(const struct verb *verb, const char *path, struct target *ret, uint64_t *ret_ino);
