// SPDX-License-Identifier: Apache-2.0
#include "cli/target.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "daemon/store_directory.h"

const struct operand operands_mount[] = {{.name = "MOUNTPOINT", .offers = OFFER_MOUNTPOINTS}, {0}};
const struct operand operands_any[] = {{.name = "MOUNTPOINT|STORE",
                                        .offers = OFFER_MOUNTPOINTS | OFFER_DIRECTORIES,
                                        .is_optional = true},
                                       {0}};
const struct operand operands_paths[] = {
    {.name = "PATH", .offers = OFFER_FILES, .is_repeated = true}, {0}};

void target_done(struct target *target)
{
    free(target->store);
    free(target->mountpoint);
    *target = (struct target){0};
}

bool may_be_store(const char *directory)
{
    _cleanup_free_ char *superblock = xasprintf("%s/superblock", directory);
    return faccessat(AT_FDCWD, superblock, F_OK, AT_SYMLINK_NOFOLLOW) == 0 ||
           (errno != ENOENT && errno != ENOTDIR);
}

bool target_lock(const struct command *command, const char *store, int *ret_fd)
{
    pid_t holder = 0;
    int r = store_directory_lock_patiently(store, NULL, ret_fd, &holder);
    if (r == -EBUSY)
        complain(command->name,
                 "store %s is in use by pid %d; unmount it first with 'cairn umount'", store,
                 (int)holder);
    else if (r < 0)
        complain(command->name, "cannot lock store %s: %s; run as its owner, on a writable disk",
                 store, strerror(-r));
    return r == 0;
}

int target_mounts(const struct command *command, struct mount_list *ret)
{
    int r = mounts_read("/proc/self/mountinfo", ret);
    return r < 0 ? complain(command->name,
                            "cannot read /proc/self/mountinfo: %s; is /proc mounted?", strerror(-r))
                 : CLI_OK;
}

/* Returns the mount of a mountpoint, or else of a path on a mount. */
static const struct mount_entry *find_mount(const struct mount_list *list, const char *path)
{
    const struct mount_entry *mount = mounts_find(list, path);
    struct stat st;
    return mount || stat(path, &st) < 0 ? mount : mounts_find_device(list, st.st_dev);
}

/* Distinguishes a path inside a mount from a path on no mount. */
int target_no_mount(const struct command *command, const struct mount_list *list,
                    const char *argument)
{
    const struct mount_entry *mount = find_mount(list, argument);
    if (mount)
        return complain_usage(command, "%s is on the mount %s; give that", argument,
                              mount->mountpoint);
    return complain_usage(command, "%s is not a CairnFS mountpoint; 'cairn status' lists them",
                          argument);
}

static int take_mount(const struct mount_entry *mount, struct target *ret)
{
    *ret = (struct target){xstrdup(mount->store), xstrdup(mount->mountpoint)};
    return CLI_OK;
}

int target_of_mount(const struct command *command, const char *argument, struct target *ret)
{
    _cleanup_(mounts_done) struct mount_list list = {0};
    int code = target_mounts(command, &list);
    if (code != CLI_OK)
        return code;
    const struct mount_entry *mount = find_mount(&list, argument);
    return mount ? take_mount(mount, ret) : target_no_mount(command, &list, argument);
}

static int take_store_or_path(const struct command *command, const struct mount_list *list,
                              const char *argument, struct target *ret)
{
    _cleanup_free_ char *superblock = xasprintf("%s/superblock", argument);
    struct stat st;
    int r = lstat(superblock, &st) < 0 ? -errno : 0;
    if (r == 0) {
        *ret = (struct target){.store = xstrdup(argument)};
        return CLI_OK;
    }
    const struct mount_entry *mount = find_mount(list, argument);
    if (mount)
        return take_mount(mount, ret);
    if (r == -EACCES)
        return complain(command->name, "cannot access %s: %s; run as its owner", argument,
                        strerror(EACCES));
    return complain_usage(
        command, "%s is neither on a CairnFS mount nor a store; 'cairn status' lists the mounts",
        argument);
}

static int take_only(const struct command *command, const struct mount_list *list,
                     struct target *ret)
{
    if (list->count == 1)
        return take_mount(&list->at[0], ret);
    _cleanup_free_ char *usage = command_usage(command);
    return complain_usage(command, "%s CairnFS is mounted; name the one to show; usage: %s",
                          list->count == 0 ? "no" : "more than one", usage);
}

int target_of_any(const struct command *command, const char *argument, struct target *ret)
{
    _cleanup_(mounts_done) struct mount_list list = {0};
    int code = target_mounts(command, &list);
    if (code != CLI_OK)
        return code;
    const struct mount_entry *mount = argument ? mounts_find(&list, argument) : NULL;
    if (mount)
        return take_mount(mount, ret);
    return argument ? take_store_or_path(command, &list, argument, ret)
                    : take_only(command, &list, ret);
}

int target_find(const struct command *command, const struct mount_list *mounts, const char *path,
                const struct mount_entry **ret, uint64_t *ret_ino)
{
    struct stat st;
    if (stat(path, &st) < 0) {
        int e = errno;
        complain(command->name, "cannot access %s: %s; give a file or directory on a CairnFS mount",
                 path, strerror(e));
        return e == ENOENT || e == ENOTDIR ? CLI_USAGE : CLI_FAILED;
    }
    *ret = mounts_find_device(mounts, st.st_dev);
    *ret_ino = st.st_ino;
    return *ret ? CLI_OK
                : complain_usage(command,
                                 "%s is not on a CairnFS mount; 'cairn status' lists the mounts",
                                 path);
}

int target_of_path(const struct command *command, const char *path, struct target *ret,
                   uint64_t *ret_ino)
{
    _cleanup_(mounts_done) struct mount_list list = {0};
    const struct mount_entry *mount;
    int code = target_mounts(command, &list);
    if (code != CLI_OK)
        return code;
    code = target_find(command, &list, path, &mount, ret_ino);
    return code == CLI_OK ? take_mount(mount, ret) : code;
}
