// SPDX-License-Identifier: Apache-2.0
/* The mount, the store, or the file on a mount that an argument of a command names. One thread. */
#pragma once

#include "cli/command.h"
#include "cli/mounts.h"

void target_done(struct target *target);

/* Each returns CLI_OK with *ret to be freed, or the exit status after a message. */

CAIRN_MUST_CHECK int target_mounts(const struct command *command, struct mount_list *ret);

/* A mountpoint, or any path on the mount. */
CAIRN_MUST_CHECK int target_of_mount(const struct command *command, const char *argument,
                                     struct target *ret);
/* A mountpoint, a store, or any path on a mount; NULL: the only mount. */
CAIRN_MUST_CHECK int target_of_any(const struct command *command, const char *argument,
                                   struct target *ret);
/* A file or directory on a mount; *ret_ino is its inode number. A symbolic link is followed. */
CAIRN_MUST_CHECK int target_of_path(const struct command *command, const char *path,
                                    struct target *ret, uint64_t *ret_ino);

/* As target_of_path(), among `mounts`; *ret points into it. */
CAIRN_MUST_CHECK int target_find(const struct command *command, const struct mount_list *mounts,
                                 const char *path, const struct mount_entry **ret,
                                 uint64_t *ret_ino);

/* Returns false if the directory has no superblock; -EACCES and such leave it open. */
bool may_be_store(const char *directory);

/* Locks a store that must not be mounted. False after a message. */
CAIRN_MUST_CHECK bool target_lock(const struct command *command, const char *store, int *ret_fd);

/* The message for an argument that is not a mountpoint; returns the exit status. */
int target_no_mount(const struct command *command, const struct mount_list *list,
                    const char *argument);
