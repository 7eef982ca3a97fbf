// SPDX-License-Identifier: Apache-2.0
#include "cli/target.h"

#include <stdio.h>
#include <sys/stat.h>

#include "cli/mounts.h"

void target_done(struct target *target)
{
    free(target->store);
    free(target->mountpoint);
    *target = (struct target){0};
}

static int read_mounts(const struct verb *verb, struct mount_list *ret)
{
    int r = mounts_read("/proc/self/mountinfo", ret);
    if (r < 0)
        complain(verb->name, "cannot read /proc/self/mountinfo: %s; is /proc mounted?", strerror(-r));
    return r < 0 ? CLI_FAILED : CLI_OK;
}

static int take_mount(const struct mount_entry *mount, struct target *ret)
{
    *ret = (struct target){xstrdup(mount->store), xstrdup(mount->mountpoint)};
    return CLI_OK;
}

int target_of_mount(const struct verb *verb, const char *argument, struct target *ret)
{
    struct mount_list list;
    int code = read_mounts(verb, &list);
    if (code != CLI_OK)
        return code;
    const struct mount_entry *mount = mounts_find(&list, argument);
    code = mount ? take_mount(mount, ret)
                 : complain_usage(verb, "%s is not a mount of CairnFS; 'cairn status' lists them", argument);
    mounts_done(&list);
    return code;
}

static int take_store(const struct verb *verb, const char *argument, struct target *ret)
{
    _cleanup_free_ char *superblock = xasprintf("%s/superblock", argument);
    struct stat st;
    if (lstat(superblock, &st) == 0) {
        *ret = (struct target){.store = xstrdup(argument)};
        return CLI_OK;
    }
    if (errno == EACCES) {
        complain(verb->name, "cannot look into %s: %s; run as its owner", argument, strerror(EACCES));
        return CLI_FAILED;
    }
    return complain_usage(verb, "%s is neither a mountpoint of CairnFS nor a store; 'cairn status' lists the mounts",
                          argument);
}

static int take_only(const struct verb *verb, const struct mount_list *list, struct target *ret)
{
    if (list->count == 1)
        return take_mount(&list->at[0], ret);
    return complain_usage(verb, "%s CairnFS is mounted here; say which: cairn %s %s",
                          list->count == 0 ? "no" : "more than one", verb->name, verb->synopsis);
}

int target_of_any(const struct verb *verb, const char *argument, struct target *ret)
{
    struct mount_list list;
    int code = read_mounts(verb, &list);
    if (code != CLI_OK)
        return code;
    const struct mount_entry *mount = argument ? mounts_find(&list, argument) : NULL;
    if (mount)
        code = take_mount(mount, ret);
    else
        code = argument ? take_store(verb, argument, ret) : take_only(verb, &list, ret);
    mounts_done(&list);
    return code;
}

int target_of_path(const struct verb *verb, const char *path, struct target *ret, uint64_t *ret_ino)
{
    struct mount_list list;
    struct stat st;
    if (stat(path, &st) < 0) {
        complain(verb->name, "cannot look at %s: %s; give a file or folder on a mount of CairnFS", path, strerror(errno));
        return errno == ENOENT || errno == ENOTDIR ? CLI_USAGE : CLI_FAILED;
    }
    int code = read_mounts(verb, &list);
    if (code != CLI_OK)
        return code;
    const struct mount_entry *mount = mounts_find_device(&list, st.st_dev);
    *ret_ino = st.st_ino;
    code = mount ? take_mount(mount, ret)
                 : complain_usage(verb, "%s is not on a mount of CairnFS; 'cairn status' lists them", path);
    mounts_done(&list);
    return code;
}
