// SPDX-License-Identifier: Apache-2.0
/* Checks before the daemon of a mount is started: they refuse, or warn of, paths that are exchanged
 * or lie on CairnFS, and sizes that the machine does not have. */
#include <stdio.h>
#include <sys/stat.h>

#include "cli/human.h"
#include "cli/mount.h"
#include "cli/mounts.h"
#include "daemon/lifecycle.h"

static bool has_superblock(const char *directory)
{
    _cleanup_free_ char *path = xasprintf("%s/superblock", directory);
    struct stat st;
    return lstat(path, &st) == 0 && S_ISREG(st.st_mode);
}

/* Returns the device of the path, or of the directory in which it will be created. */
static bool device_of_path(const char *path, dev_t *ret)
{
    struct stat st;
    _cleanup_free_ char *parent = xstrdup(path);
    char *slash = strrchr(parent, '/');
    if (slash)
        slash[slash == parent] = '\0';
    bool known = stat(path, &st) == 0 || (slash && stat(parent, &st) == 0);
    *ret = known ? st.st_dev : 0;
    return known;
}

/* Returns the mountpoint of the CairnFS on which the path lies, or NULL. Caller frees. */
static char *cairn_mount_of(const char *path)
{
    _cleanup_(mounts_done) struct mount_list list = {0};
    dev_t device;
    if (!device_of_path(path, &device) || mounts_read("/proc/self/mountinfo", &list) < 0)
        return NULL;
    const struct mount_entry *mount = mounts_find_device(&list, device);
    return mount ? xstrdup(mount->mountpoint) : NULL;
}

static int check_store_place(const char *store)
{
    _cleanup_free_ char *mountpoint = cairn_mount_of(store);
    if (!mountpoint)
        return MOUNT_OK;
    complain(
        "mount",
        "the store %s lies on the CairnFS that is mounted at %s; give a directory on a local disk",
        store, mountpoint);
    return MOUNT_USAGE;
}

/* By the paths alone: a remote that hangs must not block the mount. */
static void warn_of_remote_place(const char *remote)
{
    _cleanup_(mounts_done) struct mount_list list = {0};
    _cleanup_free_ char *path = path_absolute(remote);
    const char *mountpoint = NULL;
    if (path && mounts_read("/proc/self/mountinfo", &list) == 0)
        for (size_t i = 0; i < list.count; i++)
            if (path_is_inside(path, list.at[i].mountpoint))
                mountpoint = list.at[i].mountpoint;
    if (mountpoint)
        complain("mount",
                 "warning: the remote %s lies on the CairnFS that is mounted at %s: it is lost "
                 "with that store, and out of reach while that is not mounted. Give a directory of "
                 "another filesystem, or s3://BUCKET/PREFIX",
                 remote, mountpoint);
}

static int check_mount_paths(const struct mount_options *o, const char *store,
                             const char *mountpoint)
{
    if (has_superblock(mountpoint)) {
        complain("mount", "the mountpoint %s is a store; STORE comes first: cairn mount %s %s",
                 mountpoint, mountpoint, store);
        return MOUNT_USAGE;
    }
    int code = check_store_place(store);
    const char *address = o->remote.address;
    if (code == MOUNT_OK && o->read_only && !address && !has_superblock(store)) {
        complain("mount",
                 "there is no store at %s, and -o ro makes none; correct the path, mount without "
                 "ro, or give a remote to read",
                 store);
        code = MOUNT_USAGE;
    }
    if (code == MOUNT_OK && address && strncmp(address, "dir:", 4) == 0)
        warn_of_remote_place(address + 4);
    return code;
}

/* Leaves room for the daemon itself, and for other programs. */
static uint64_t stage_most(uint64_t memory)
{
    return align_down(memory - memory / 8, MIB);
}

static int check_mount_sizes(const struct mount_options *o)
{
    uint64_t most = stage_most(o->memory_granted), available = options_memory_available();
    if (o->stage_bytes > most) {
        complain("mount",
                 "stage=%s is more than memory can hold: machine and memory cgroup grant %s; give "
                 "at most stage=%lluM",
                 human_bytes(o->stage_bytes).text, human_bytes(o->memory_granted).text,
                 (unsigned long long)(most / MIB));
        return MOUNT_USAGE;
    }
    if (o->stage_bytes > available)
        complain("mount",
                 "warning: stage=%s, but only %s of memory are available now; programs may be "
                 "killed when the stage fills. Give less, e.g. stage=%lluM",
                 human_bytes(o->stage_bytes).text, human_bytes(available).text,
                 (unsigned long long)(available / 2 / MIB));
    if (o->nvme_bytes && o->stage_bytes > o->nvme_bytes)
        complain("mount",
                 "warning: stage=%s is larger than the store may become (nvme=%s); writers wait "
                 "for room on NVMe long before the stage is full",
                 human_bytes(o->stage_bytes).text, human_bytes(o->nvme_bytes).text);
    return MOUNT_OK;
}

int check_mount(const struct mount_options *options, const char *store, const char *mountpoint)
{
    int code = check_mount_paths(options, store, mountpoint);
    return code == MOUNT_OK ? check_mount_sizes(options) : code;
}
