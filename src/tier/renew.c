// SPDX-License-Identifier: Apache-2.0
/* The kernel reports a failed fsync once, and then treats the unwritten pages as clean. So a second
 * fsync of the same directory proves nothing about names from before. In a new directory every name
 * is a new one:
 *
 *   create a new directory, link every file there  ->  fsync it
 *   ->  exchange the names of both directories
 *   ->  link files that were moved into the old one meanwhile  ->  fsync both
 *   ->  remove the names in the old one
 *
 * At any moment every file has a name in at least one of the two. A call that finds the second
 * directory merges it back into the first. */
#include "tier/renew.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/io.h"

static int open_directory(int root_fd, const char *directory)
{
    int fd = openat(root_fd, directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    return fd < 0 ? -errno : fd;
}

static int each_name(int root_fd, const char *directory,
                     int (*fn)(int from_fd, const char *name, int to_fd), int to_fd)
{
    DIR *dir;
    int r = io_open_dir(root_fd, directory, &dir);
    if (r < 0)
        return r;
    struct dirent *d;
    while (r == 0 && (errno = 0, d = readdir(dir)))
        if (strcmp(d->d_name, ".") != 0 && strcmp(d->d_name, "..") != 0)
            r = fn(dirfd(dir), d->d_name, to_fd);
    if (r == 0 && errno != 0)
        r = -errno;
    (void)closedir(dir);
    return r;
}

/* A subdirectory cannot have a second name: it is moved. */
static int renew_link(int from_fd, const char *name, int to_fd)
{
    struct stat st;
    if (linkat(from_fd, name, to_fd, name, 0) == 0 || errno == EEXIST || errno == ENOENT)
        return 0;
    int r = -errno;
    if (fstatat(from_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISDIR(st.st_mode))
        return r;
    return renameat2(from_fd, name, to_fd, name, RENAME_NOREPLACE) < 0 && errno != EEXIST ? -errno
                                                                                          : 0;
}

/* Removes a name only if the same file has a name in the other directory, too. */
static int unlink_one(int from_fd, const char *name, int to_fd)
{
    struct stat here, there;
    if (fstatat(from_fd, name, &here, AT_SYMLINK_NOFOLLOW) < 0 ||
        fstatat(to_fd, name, &there, AT_SYMLINK_NOFOLLOW) < 0 || here.st_ino != there.st_ino)
        return -EEXIST;
    return unlinkat(from_fd, name, 0) < 0 ? -errno : 0;
}

static char *name_of_second(const char *directory)
{
    return xasprintf("%s.anew", directory);
}

static int remove_second(int root_fd, const char *second, int directory_fd)
{
    int r = each_name(root_fd, second, unlink_one, directory_fd);
    if (r == 0 && unlinkat(root_fd, second, AT_REMOVEDIR) < 0)
        r = -errno;
    return r;
}

/* Links first, durably, then removes the names in the second directory. */
int renew_settle(int root_fd, const char *directory)
{
    _cleanup_free_ char *second = name_of_second(directory);
    struct stat st;
    if (fstatat(root_fd, second, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : -errno;
    _cleanup_close_ int fd = open_directory(root_fd, directory);
    TRY(fd < 0 ? fd : each_name(root_fd, second, renew_link, fd));
    return fsync(fd) < 0 ? -errno : remove_second(root_fd, second, fd);
}

static int exchange_directories(int root_fd, const char *directory, const char *second,
                                int second_fd)
{
    TRY(each_name(root_fd, directory, renew_link, second_fd));
    return fsync(second_fd) < 0 ||
                   renameat2(root_fd, second, root_fd, directory, RENAME_EXCHANGE) < 0
               ? -errno
               : 0;
}

int renew_directory(int root_fd, const char *directory)
{
    _cleanup_free_ char *second = name_of_second(directory);
    TRY(renew_settle(root_fd, directory)); /* of an earlier attempt */
    if (mkdirat(root_fd, second, 0700) < 0)
        return -errno;
    _cleanup_close_ int fd = open_directory(root_fd, second);
    TRY(fd < 0 ? fd : exchange_directories(root_fd, directory, second, fd));
    /* `fd` now refers to the directory under its own name. Adds files that were moved into the old
     * one meanwhile. */
    TRY(each_name(root_fd, second, renew_link, fd));
    return fsync(fd) < 0 || fsync(root_fd) < 0 ? -errno : remove_second(root_fd, second, fd);
}
