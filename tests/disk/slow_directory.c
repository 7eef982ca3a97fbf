// SPDX-License-Identifier: Apache-2.0
/* A directory whose filesystem answers, but takes its time to make files durable, and to give some
 * their names (tests/remote/test_slow.py, tests/lane/test_after_saves.py).
 *
 *   slow_directory MOUNTPOINT DIRECTORY CONTROL
 *
 * Shows DIRECTORY at MOUNTPOINT; runs until unmounted.
 *
 * An fsync of a file of 1 MiB or more, and a rename to a name that begins with "slow", takes as
 * many seconds as the first line of the file CONTROL says when it begins; all else is done at once.
 * Each of these adds a line to CONTROL ("begun", then "done"). */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#define LARGE (1 << 20)

static int below = -1; /* DIRECTORY */
static const char *control;

static const char *inside(const char *path)
{
    return path[1] ? path + 1 : ".";
}

static int result(int r)
{
    return r < 0 ? -errno : 0;
}

static void *slow_init(struct fuse_conn_info *conn, struct fuse_config *config)
{
    (void)conn;
    config->use_ino = 1;
    config->attr_timeout = config->entry_timeout = config->negative_timeout = 0;
    return NULL;
}

static int slow_getattr(const char *path, struct stat *st, struct fuse_file_info *fi)
{
    return result(fi ? fstat((int)fi->fh, st)
                     : fstatat(below, inside(path), st, AT_SYMLINK_NOFOLLOW));
}

static int slow_access(const char *path, int mask)
{
    return result(faccessat(below, inside(path), mask, 0));
}

static int slow_readdir(const char *path, void *buf, fuse_fill_dir_t fill, off_t offset,
                        struct fuse_file_info *fi, enum fuse_readdir_flags flags)
{
    (void)offset;
    (void)fi;
    (void)flags;
    int fd = openat(below, inside(path), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir)
        return -errno;
    for (struct dirent *e; (e = readdir(dir));)
        (void)fill(buf, e->d_name, NULL, 0, 0);
    (void)closedir(dir);
    return 0;
}

static int slow_mkdir(const char *path, mode_t mode)
{
    return result(mkdirat(below, inside(path), mode));
}

static int slow_unlink(const char *path)
{
    return result(unlinkat(below, inside(path), 0));
}

static int slow_rmdir(const char *path)
{
    return result(unlinkat(below, inside(path), AT_REMOVEDIR));
}

static int slow_link(const char *from, const char *to)
{
    return result(linkat(below, inside(from), below, inside(to), 0));
}

static int slow_utimens(const char *path, const struct timespec times[2], struct fuse_file_info *fi)
{
    return result(fi ? futimens((int)fi->fh, times)
                     : utimensat(below, inside(path), times, AT_SYMLINK_NOFOLLOW));
}

static int slow_create(const char *path, mode_t mode, struct fuse_file_info *fi)
{
    int fd = openat(below, inside(path), fi->flags | O_CREAT | O_CLOEXEC, mode);
    fi->fh = (uint64_t)fd;
    return result(fd);
}

static int slow_open(const char *path, struct fuse_file_info *fi)
{
    return slow_create(path, 0, fi);
}

static int slow_read(const char *path, char *buf, size_t size, off_t offset,
                     struct fuse_file_info *fi)
{
    (void)path;
    ssize_t n = pread((int)fi->fh, buf, size, offset);
    return n < 0 ? -errno : (int)n;
}

static int slow_write(const char *path, const char *buf, size_t size, off_t offset,
                      struct fuse_file_info *fi)
{
    (void)path;
    ssize_t n = pwrite((int)fi->fh, buf, size, offset);
    return n < 0 ? -errno : (int)n;
}

static int slow_truncate(const char *path, off_t size, struct fuse_file_info *fi)
{
    (void)path;
    return fi ? result(ftruncate((int)fi->fh, size)) : -EOPNOTSUPP;
}

static void note(const char *line)
{
    int fd = open(control, O_WRONLY | O_APPEND | O_CLOEXEC);
    if (fd < 0 || write(fd, line, strlen(line)) < 0)
        perror(control);
    if (fd >= 0)
        (void)close(fd);
}

static void take_time(void)
{
    char text[32] = "";
    int fd = open(control, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || read(fd, text, sizeof text - 1) < 0)
        perror(control);
    if (fd >= 0)
        (void)close(fd);
    note("begun\n");
    /* The slow call itself, as long as the test asks for. */
    (void)nanosleep(&(struct timespec){.tv_sec = strtol(text, NULL, 10)}, NULL);
    note("done\n");
}

static int slow_rename(const char *from, const char *to, unsigned flags)
{
    if (strncmp(strrchr(to, '/') + 1, "slow", 4) == 0)
        take_time();
    return result(renameat2(below, inside(from), below, inside(to), flags));
}

static int slow_fsync(const char *path, int datasync, struct fuse_file_info *fi)
{
    struct stat st;
    (void)path;
    (void)datasync;
    if (fstat((int)fi->fh, &st) == 0 && st.st_size >= LARGE)
        take_time();
    return result(fsync((int)fi->fh));
}

static int slow_release(const char *path, struct fuse_file_info *fi)
{
    (void)path;
    return result(close((int)fi->fh));
}

static int slow_statfs(const char *path, struct statvfs *st)
{
    (void)path;
    return result(fstatvfs(below, st));
}

int main(int argc, char **argv)
{
    static const struct fuse_operations ops = {.init = slow_init,
                                               .getattr = slow_getattr,
                                               .access = slow_access,
                                               .readdir = slow_readdir,
                                               .mkdir = slow_mkdir,
                                               .unlink = slow_unlink,
                                               .rmdir = slow_rmdir,
                                               .rename = slow_rename,
                                               .link = slow_link,
                                               .utimens = slow_utimens,
                                               .create = slow_create,
                                               .open = slow_open,
                                               .truncate = slow_truncate,
                                               .read = slow_read,
                                               .write = slow_write,
                                               .fsync = slow_fsync,
                                               .release = slow_release,
                                               .statfs = slow_statfs};
    char foreground[] = "-f";
    if (argc != 4) {
        fprintf(stderr, "usage: slow_directory MOUNTPOINT DIRECTORY CONTROL\n");
        return 2;
    }
    char *arguments[] = {argv[0], foreground, argv[1], NULL};
    below = open(argv[2], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    control = argv[3];
    if (below < 0) {
        perror(argv[2]);
        return 1;
    }
    return fuse_main(3, arguments, &ops, NULL);
}
