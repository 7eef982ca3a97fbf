// SPDX-License-Identifier: Apache-2.0
/* Mounts of CairnFS as the kernel lists them, and actions on a mountpoint. No function waits for a
 * daemon unless its comment says so. */
#pragma once

#include <stdio.h>
#include <sys/types.h>

#include "base/vector.h"
#include "daemon/service.h"

#define CAIRN_FSTYPE "fuse.cairnfs"

struct mount_entry {
    char *mountpoint;
    char *store;
    dev_t device;
    unsigned id, parent; /* of the mount, and of the mount that contains its mountpoint */
    char *cover;         /* type of a mount over this one, to which its path leads; NULL: none */
};

/* In the order of mounting: of two on one mountpoint the later is seen. */
DEFINE_VECTOR(mount_list, struct mount_entry);

/* Reads a file in the format of /proc/self/mountinfo; keeps the mounts of CairnFS. */
CAIRN_MUST_CHECK int mounts_read(const char *path, struct mount_list *ret);
void mounts_done(struct mount_list *list);

/* The mount at `path`, or NULL. The path may be relative; a mountpoint of a dead daemon is found,
 * too. */
const struct mount_entry *mounts_find(const struct mount_list *list, const char *path);
const struct mount_entry *mounts_find_device(const struct mount_list *list, dev_t device);
/* The last mount of the store, whose path may have symbolic links. */
const struct mount_entry *mounts_find_store(const struct mount_list *list, const char *store);

/* Absolute, without "." and ".." and double slashes; symbolic links stay. Caller frees; NULL
 * without a working directory. */
char *path_absolute(const char *path);

/* DIRECTORY/NAME. Caller frees. */
char *path_below(const char *directory, const char *name);
/* Returns whether the path is the directory, or below it. By the names alone; both are absolute. */
bool path_is_inside(const char *path, const char *directory);

/* Checks that `mountpoint` and /dev/fuse can be used, and clears a dead daemon's mount
 * (*ret_cleared). `store` is resolved. *ret_path is absolute and without symbolic links; caller
 * frees. */
CAIRN_MUST_CHECK int mountpoint_take(const char *mountpoint, const char *store, char **ret_path,
                                     bool *ret_cleared, struct service_error *ret_error);

/* Returns true if the daemon of the mount there is dead. Calls into the filesystem. */
bool mount_is_dead(const char *mountpoint);

/* Unmounts: as root directly, else through fusermount3. `lazy`: even while in use. -EBUSY, -EINVAL,
 * -EPERM; then cause_text() has the message of fusermount3, if it was run. */
CAIRN_MUST_CHECK int mount_remove(const char *mountpoint, bool lazy);

/* Prints the processes that keep `mountpoint` busy, as far as the user may see them; returns their
 * number. */
unsigned print_holders(const char *mountpoint, FILE *out);

/* The name of a process in /proc; "?": the process has ended. */
struct process_name {
    char text[64];
};
struct process_name process_name(const char *pid);
