// SPDX-License-Identifier: Apache-2.0
/* The programs that mount(8) and umount(8) run for the types cairnfs and fuse.cairnfs: links to
 * cairn, known by their names.
 *
 *   mount.cairnfs STORE MOUNTPOINT [-sfnv] [-N NAMESPACE] [-o OPTIONS] [-t TYPE]
 *   umount.cairnfs MOUNTPOINT [-flnrv] [-N NAMESPACE] [-t TYPE] */
#include <fcntl.h>
#include <getopt.h>
#include <sched.h>
#include <sys/mount.h>

#include "cli/command.h"
#include "cli/helper.h"
#include "cli/mount.h"
#include "cli/mounts.h"
#include "daemon/lifecycle.h"

struct helper_request {
    char *list; /* all of -o */
    const char *namespace;
    bool sloppy, fake, force, lazy;
};

static void add_helper_options(struct helper_request *request, const char *list)
{
    char *both = request->list ? xasprintf("%s,%s", request->list, list) : xstrdup(list);
    free(request->list);
    request->list = both;
}

static int parse_arguments(const struct command *command, const char *flags, int operands,
                           struct helper_request *request, int argc, char **argv)
{
    int found;
    opterr = 0;
    optind = 1;
    while ((found = getopt(argc, argv, flags)) != -1) {
        if (found == '?' || found == ':')
            return flags_complain(command, found, argv);
        if (found == 'o')
            add_helper_options(request, optarg);
        if (found == 'N')
            request->namespace = optarg;
        request->sloppy = request->sloppy || found == 's';
        request->fake = request->fake || (found == 'f' && operands == 2);
        request->force = request->force || (found == 'f' && operands == 1);
        request->lazy = request->lazy || found == 'l';
    }
    if (argc - optind != operands)
        return complain_usage(command, "wrong number of arguments; usage: %s %s", argv[0],
                              operands == 2 ? "STORE MOUNTPOINT [-o OPTIONS]" : "MOUNTPOINT");
    return 0;
}

/* mount(8) leaves it to us to enter the namespace of -N: a process, or a file that stands for a
 * mount namespace. */
static int enter_namespace(const struct command *command, const char *namespace)
{
    if (!namespace)
        return 0;
    bool is_process = namespace[strspn(namespace, "0123456789")] == '\0';
    _cleanup_free_ char *path =
        is_process ? xasprintf("/proc/%s/ns/mnt", namespace) : xstrdup(namespace);
    _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0 && setns(fd, CLONE_NEWNS) == 0)
        return 0;
    int e = errno;
    complain(command->name,
             "cannot enter the mount namespace %s: %s; as root, give the pid of a process in it",
             namespace, strerror(e));
    return e == EPERM || e == EACCES ? MOUNT_USAGE : MOUNT_SYSTEM;
}

static bool has_item(const char *list, const char *name)
{
    size_t len = strlen(name);
    for (const char *at = list; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (strncmp(at, name, len) == 0 && (at[len] == ',' || at[len] == '\0'))
            return true;
    return false;
}

/* Changes the flags of a mount that the kernel keeps; the daemon need not know them, and one that
 * follows another writer refuses changes by itself. Other options of an fstab line keep the value
 * that they had when the store was mounted. */
static int change_mount(const struct mount_options *o, const char *mountpoint)
{
    unsigned long flags = MS_REMOUNT | (o->read_only ? MS_RDONLY : 0) |
                          (o->nosuid ? MS_NOSUID : 0) | (o->nodev ? MS_NODEV : 0) |
                          (o->noexec ? MS_NOEXEC : 0) | (o->noatime ? MS_NOATIME : 0);
    _cleanup_(mounts_done) struct mount_list mounts = {0};
    if (mounts_read("/proc/self/mountinfo", &mounts) < 0 || !mounts_find(&mounts, mountpoint)) {
        complain("mount", "%s is not a CairnFS mountpoint; 'cairn status' lists them", mountpoint);
        return MOUNT_USAGE;
    }
    if (mount(NULL, mountpoint, NULL, flags, NULL) == 0)
        return MOUNT_OK;
    int e = errno;
    complain("mount", "cannot change the mount at %s: %s%s", mountpoint, strerror(e),
             e == EBUSY   ? "; a file is open for writing there"
             : e == EPERM ? "; try as root"
                          : "");
    return e == EPERM ? MOUNT_USAGE : MOUNT_FAILED;
}

static int mount_as_asked(const struct command *command, const struct helper_request *request,
                          const char *store, const char *mountpoint)
{
    struct mount_options options;
    char *error = NULL;
    options_init(&options);
    /* For a remount mount(8) adds all options that the kernel shows. */
    bool sloppy = request->sloppy || has_item(request->list, "remount");
    int r = request->list ? options_set_list(&options, request->list, sloppy, &error) : 0;
    if (r == 0 && !options.remount)
        r = options_finish(&options, &error);
    int code =
        r < 0 ? complain_usage(command, "%s", error) : enter_namespace(command, request->namespace);
    if (code == 0)
        code = options.remount ? change_mount(&options, mountpoint)
                               : mount_store(&options, request->fake, store, mountpoint);
    free(error);
    options_done(&options);
    return code;
}

int mount_helper(int argc, char **argv)
{
    const struct command *command = command_find("mount");
    struct helper_request request = {0};
    int code = parse_arguments(command, ":o:sfnvN:t:", 2, &request, argc, argv);
    if (code == 0)
        code = mount_as_asked(command, &request, argv[optind], argv[optind + 1]);
    free(request.list);
    return code;
}

/* A detached or forced unmount does not wait for data to be written: the daemon writes it after the
 * kernel has released the mount. */
static int detach_mount(const struct helper_request *request, const char *mountpoint)
{
    int flags =
        UMOUNT_NOFOLLOW | (request->lazy ? MNT_DETACH : 0) | (request->force ? MNT_FORCE : 0);
    if (umount2(mountpoint, flags) == 0)
        return CLI_OK;
    return complain("umount", "cannot unmount %s: %s", mountpoint, strerror(errno));
}

int umount_helper(int argc, char **argv)
{
    const struct command *command = command_find("umount");
    struct helper_request request = {0};
    int code = parse_arguments(command, ":flnrvN:t:", 1, &request, argc, argv);
    if (code == 0)
        code = enter_namespace(command, request.namespace);
    if (code != 0)
        return code;
    if (request.lazy || request.force)
        return detach_mount(&request, argv[optind]);
    char name[] = "umount";
    char *arguments[] = {name, argv[optind], NULL};
    return command_run(command, 2, arguments);
}
