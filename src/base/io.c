// SPDX-License-Identifier: Apache-2.0
#include "base/io.h"

#include <ftw.h>

#include <dirent.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <sys/stat.h>

int io_pread_full(int fd, void *buf, size_t len, uint64_t offset)
{
    while (len > 0) {
        ssize_t n = pread(fd, buf, len, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        if (n == 0)
            return -EUCLEAN;
        buf = (char *)buf + n;
        len -= (size_t)n;
        offset += (uint64_t)n;
    }
    return 0;
}

int io_pwrite_full(int fd, const void *buf, size_t len, uint64_t offset)
{
    while (len > 0) {
        ssize_t n = pwrite(fd, buf, len, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        if (n == 0)
            return -EIO;
        buf = (const char *)buf + n;
        len -= (size_t)n;
        offset += (uint64_t)n;
    }
    return 0;
}

int io_write_full(int fd, const void *buf, size_t len)
{
    while (len > 0) {
        ssize_t n = write(fd, buf, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        buf = (const char *)buf + n;
        len -= (size_t)n;
    }
    return 0;
}

int io_fsync_dir(const char *path)
{
    _cleanup_close_ int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || fsync(fd) < 0)
        return -errno;
    return 0;
}

int io_open_dir(int at_fd, const char *name, DIR **ret)
{
    int fd = openat(at_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return -errno;
    *ret = fdopendir(fd);
    if (*ret)
        return 0;
    int r = -errno;
    (void)close(fd);
    return r;
}

int io_resolve_path(const char *path, char **ret)
{
    *ret = realpath(path, NULL);
    if (*ret)
        return 0;
    if (errno != ENOENT)
        return -errno;
    _cleanup_free_ char *for_parent = xstrdup(path);
    _cleanup_free_ char *for_name = xstrdup(path);
    _cleanup_free_ char *parent = realpath(dirname(for_parent), NULL);
    if (!parent)
        return -errno;
    *ret = xasprintf("%s/%s", strcmp(parent, "/") == 0 ? "" : parent, basename(for_name));
    return 0;
}

int io_read_file(const char *path, size_t max, char **ret_data, size_t *ret_len)
{
    _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0)
        return -errno;
    if (st.st_size < 0 || (uint64_t)st.st_size > max)
        return -EFBIG;
    size_t len = (size_t)st.st_size;
    _cleanup_free_ char *data = xmalloc(len + 1);
    TRY(io_pread_full(fd, data, len, 0));
    data[len] = '\0';
    *ret_data = data;
    if (ret_len)
        *ret_len = len;
    data = NULL;
    return 0;
}

int io_write_file_durable(const char *path, const void *data, size_t len)
{
    _cleanup_free_ char *tmp = xasprintf("%s.new", path);
    (void)unlink(tmp);
    _cleanup_close_ int fd = open(tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return -errno;
    int r = io_pwrite_full(fd, data, len, 0);
    if (r == 0 && fsync(fd) < 0)
        r = -errno;
    if (r == 0 && rename(tmp, path) < 0)
        r = -errno;
    if (r < 0) {
        (void)unlink(tmp);
        return r;
    }
    _cleanup_free_ char *directory = xstrdup(path);
    return io_fsync_dir(dirname(directory));
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

int io_remove_tree(const char *path)
{
    return nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS) < 0 && errno != ENOENT ? -errno : 0;
}

/* --- sizes ------------------------------------------------------------------------------------ */

static int add_entry(int dir_fd, const char *name, struct io_sizes *sizes);

static int add_directory(int at_fd, const char *name, struct io_sizes *sizes)
{
    int fd = openat(at_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    int r = dir ? 0 : -errno;
    for (struct dirent *entry; r == 0 && (entry = readdir(dir));)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            r = add_entry(fd, entry->d_name, sizes);
    if (dir)
        (void)closedir(dir);
    else if (fd >= 0)
        (void)close(fd);
    return r == -ENOENT ? 0 : r;
}

/* The entry may be removed concurrently. */
static int add_entry(int dir_fd, const char *name, struct io_sizes *sizes)
{
    struct stat st;
    if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : -errno;
    if (S_ISDIR(st.st_mode))
        return add_directory(dir_fd, name, sizes);
    sizes->bytes += (uint64_t)st.st_size;
    sizes->only_there_bytes += st.st_nlink == 1 ? (uint64_t)st.st_size : 0;
    return 0;
}

int io_tree_sizes(const char *path, struct io_sizes *ret)
{
    *ret = (struct io_sizes){0};
    return add_directory(AT_FDCWD, path, ret);
}
