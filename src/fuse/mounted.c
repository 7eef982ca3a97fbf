// SPDX-License-Identifier: Apache-2.0
/* The end of a mount, and whether its path still leads to it. The mount may be gone from its path
 * and live on elsewhere, as a copy in another mount namespace, or be covered by another mount. Then
 * the path leads to the directory below, or to a newer mount: neither is ours to unmount. */
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/wait.h>

#include "base/log.h"
#include "base/mountinfo.h"
#include "fuse/internal.h"

extern char **environ;

struct look {
    const struct front *front;
    dev_t device; /* of the topmost mount there */
    bool is_here; /* the mount is among those at the path */
    unsigned id;  /* of the mount there */
    bool is_covered;
};

static bool is_at_mountpoint(const struct look *look, const struct mountinfo *mount)
{
    return strcmp(mount->mountpoint, look->front->options.mountpoint) == 0;
}

static bool see_mount(const struct mountinfo *mount, void *arg)
{
    struct look *look = arg;
    if (!is_at_mountpoint(look, mount))
        return true;
    look->device = mount->device;
    if (mount->device == look->front->device) {
        look->is_here = true;
        look->id = mount->id;
    }
    return true;
}

/* The kernel lists mounts by age; a moved mount may be older than the mount that it covers. */
static bool see_cover(const struct mountinfo *mount, void *arg)
{
    struct look *look = arg;
    look->is_covered = is_at_mountpoint(look, mount) && mount->parent == look->id &&
                       mount->device != look->front->device;
    return !look->is_covered;
}

static struct look mounted_look(const struct front *front)
{
    struct look look = {.front = front};
    if (mountinfo_read("/proc/self/mountinfo", see_mount, &look) < 0 ||
        (look.is_here && mountinfo_read("/proc/self/mountinfo", see_cover, &look) < 0))
        look.is_here = true; /* unknown: assume that nothing has happened */
    return look;
}

void mounted_note(struct front *front)
{
    front->device = mounted_look(front).device;
}

bool mounted_is_here(const struct front *front)
{
    struct look look = mounted_look(front);
    if (front->device != 0 && look.is_covered)
        log_warn("%s is covered by another mount, and stays there without a daemon: unmount the "
                 "other one, then this one",
                 front->options.mountpoint);
    return front->device == 0 || (look.is_here && !look.is_covered);
}

/* Ordinary users mount and unmount through fusermount3. */
static void execute_fusermount(const char *mountpoint)
{
    char program[] = "fusermount3", flags[] = "-uqz", end_of_flags[] = "--";
    _cleanup_free_ char *path = xstrdup(mountpoint);
    char *argv[] = {program, flags, end_of_flags, path, NULL};
    pid_t child;
    if (posix_spawnp(&child, program, NULL, NULL, argv, environ) == 0)
        while (waitpid(child, NULL, 0) < 0 && errno == EINTR)
            ;
}

/* fuse_session_unmount() would close the descriptor first, while threads still receive from it: one
 * that is about to would read from a file that another thread opens under the same number. */
void mounted_end(struct front *front)
{
    struct pollfd gone = {.fd = fuse_session_fd(front->se)};
    if (poll(&gone, 1, 0) > 0 && gone.revents & POLLERR)
        return; /* the mount is gone already */
    if (umount2(front->options.mountpoint, MNT_DETACH | UMOUNT_NOFOLLOW) < 0 && errno == EPERM)
        execute_fusermount(front->options.mountpoint);
}

/* The kernel aborts the connection with its last descriptor. libfuse would unmount by path, unless
 * its descriptor polls like that of an ended connection: a pipe without a reader does. */
void mounted_release(struct front *front)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0) {
        log_warn("out of file descriptors: the mount at %s is left as it is",
                 front->options.mountpoint);
        return;
    }
    (void)close(ends[0]);
    (void)dup3(ends[1], fuse_session_fd(front->se), O_CLOEXEC);
    (void)close(ends[1]);
    fuse_session_unmount(front->se);
}
