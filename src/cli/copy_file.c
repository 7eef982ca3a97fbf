// SPDX-License-Identifier: Apache-2.0
/* Files that get their names when they are whole. */
#include <fcntl.h>
#include <stdio.h>

#include "cli/copy_internal.h"

char *copy_temporary_name(const char *name)
{
    static _Atomic unsigned count;
    return xasprintf(".%.200s.cairn-%d-%u", name, (int)getpid(), atomic_fetch_add(&count, 1));
}

int copy_rename(const struct copy *copy, int dir_fd, const char *temporary, const char *name)
{
    unsigned flags = copy->may_not_replace ? RENAME_NOREPLACE : 0;
    return renameat2(dir_fd, temporary, dir_fd, name, flags) < 0 ? -errno : 0;
}

/* "/proc/self/fd/3": linkat() gives a file its first name by this path. With AT_EMPTY_PATH only
 * root may do that. */
static char *path_of(int fd)
{
    return xasprintf("/proc/self/fd/%d", fd);
}

static int open_nameless(int dir_fd)
{
    int fd = openat(dir_fd, ".", O_WRONLY | O_TMPFILE | O_CLOEXEC, 0600);
    if (fd < 0)
        return -1;
    _cleanup_free_ char *path = path_of(fd);
    if (access(path, F_OK) == 0)
        return fd;
    (void)close(fd); /* /proc is not mounted */
    return -1;
}

int new_file_open(struct new_file *file, int dir_fd, const char *name)
{
    *file = (struct new_file){.fd = open_nameless(dir_fd)};
    if (file->fd >= 0)
        return 0;
    char *temporary = copy_temporary_name(name);
    file->fd =
        openat(dir_fd, temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (file->fd >= 0) {
        file->temporary = temporary;
        return 0;
    }
    int r = -errno;
    free(temporary);
    return r;
}

static int link_nameless(const struct new_file *file, int dir_fd, const char *name)
{
    _cleanup_free_ char *path = path_of(file->fd);
    return linkat(AT_FDCWD, path, dir_fd, name, AT_SYMLINK_FOLLOW) < 0 ? -errno : 0;
}

/* A file without a name can take no other's place. So it gets a temporary name first. */
int new_file_name(struct new_file *file, const struct copy *copy, int dir_fd, const char *name)
{
    if (!file->temporary) {
        int r = link_nameless(file, dir_fd, name);
        if (r != -EEXIST || copy->may_not_replace)
            return r;
        _cleanup_free_ char *temporary = copy_temporary_name(name);
        TRY(link_nameless(file, dir_fd, temporary));
        file->temporary = xstrdup(temporary);
    }
    return copy_rename(copy, dir_fd, file->temporary, name);
}

void new_file_close(struct new_file *file, int dir_fd, bool is_dropped)
{
    if (is_dropped && file->temporary)
        (void)unlinkat(dir_fd, file->temporary, 0);
    if (file->fd >= 0)
        (void)close(file->fd);
    free(file->temporary);
}
