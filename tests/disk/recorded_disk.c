// SPDX-License-Identifier: Apache-2.0
/* A disk that records what is done to it, below the power-cut tests (tests/recorded_disk.py).
 *
 *   recorded_disk MOUNTPOINT DIRECTORY SIZE
 *
 * One file, MOUNTPOINT/disk, for a loop device with direct I/O; runs until unmounted.
 *
 * DIRECTORY/content is the disk as a reader sees it now. DIRECTORY/requests has one record for each
 * request that changes it or flushes it, in the order in which they came, DIRECTORY/data the bytes
 * of the writes. So the disk can be made anew as it was at any request, with any part of what was
 * not flushed then. DIRECTORY/bad has offset and length (two uint64_t) of sectors that cannot be
 * read: EIO.
 *
 * Requests are served one by one: what is recorded before a flush had been acknowledged before it.
 *
 * The kernel may wait for this process while it frees memory. So it is locked in memory, and what
 * it allocates never waits for a disk (PR_SET_IO_FLUSHER). DIRECTORY has to be in memory, too
 * (/dev/shm). */
#include <errno.h>
#include <fcntl.h>
#include <fuse_lowlevel.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define DISK_INO 2
#define READ_MAX (1u << 20)
#ifndef PR_SET_IO_FLUSHER
#define PR_SET_IO_FLUSHER 57
#endif

enum kind { WRITE = 1, ZERO = 2, FLUSH = 3 };

/* As tests/recorded_disk.py reads it. */
struct request {
    uint64_t time_ns; /* CLOCK_MONOTONIC, when it came */
    uint64_t offset, len;
    uint64_t data_at; /* WRITE: where in DIRECTORY/data its bytes are */
    uint64_t kind;
};

struct disk {
    int content, requests, data, bad;
    uint64_t size, data_len;
};

static struct disk *disk_of(fuse_req_t req)
{
    return fuse_req_userdata(req);
}

static int write_full(int fd, const void *buf, size_t len, off_t offset)
{
    for (const char *at = buf; len > 0;) {
        ssize_t n = pwrite(fd, at, len, offset);
        if (n < 0 && errno != EINTR)
            return errno;
        if (n < 0)
            continue;
        at += n;
        offset += n;
        len -= (size_t)n;
    }
    return 0;
}

/* The last step: a request counts when its record is there. */
static int record(struct disk *disk, enum kind kind, uint64_t offset, uint64_t len,
                  uint64_t data_at, uint64_t time_ns)
{
    struct request request = {
        .time_ns = time_ns, .offset = offset, .len = len, .data_at = data_at, .kind = kind};
    ssize_t n = write(disk->requests, &request, sizeof request);
    return n == sizeof request ? 0 : EIO;
}

static uint64_t now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static bool is_inside(const struct disk *disk, off_t offset, uint64_t len)
{
    return offset >= 0 && (uint64_t)offset <= disk->size && len <= disk->size - (uint64_t)offset;
}

static void attributes(const struct disk *disk, fuse_ino_t ino, struct stat *st)
{
    *st = (struct stat){.st_ino = ino, .st_nlink = 1, .st_mode = S_IFDIR | 0700};
    if (ino == DISK_INO) {
        st->st_mode = S_IFREG | 0600;
        st->st_size = (off_t)disk->size;
    }
}

static void disk_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    struct fuse_entry_param e = {.ino = DISK_INO, .attr_timeout = 3600, .entry_timeout = 3600};
    (void)parent;
    attributes(disk_of(req), DISK_INO, &e.attr);
    if (strcmp(name, "disk") == 0)
        fuse_reply_entry(req, &e);
    else
        fuse_reply_err(req, ENOENT);
}

static void disk_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    struct stat st;
    (void)fi;
    attributes(disk_of(req), ino, &st);
    fuse_reply_attr(req, &st, 3600);
}

static void disk_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    (void)ino;
    fi->direct_io = 1;
    fuse_reply_open(req, fi);
}

static bool is_bad(const struct disk *disk, uint64_t offset, uint64_t len)
{
    uint64_t bad[2];
    return pread(disk->bad, bad, sizeof bad, 0) == sizeof bad && offset < bad[0] + bad[1] &&
           bad[0] < offset + len;
}

static void disk_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
                      struct fuse_file_info *fi)
{
    static char buffer[READ_MAX];
    (void)ino;
    (void)fi;
    if (is_bad(disk_of(req), (uint64_t)offset, size)) {
        fuse_reply_err(req, EIO);
        return;
    }
    ssize_t n = pread(disk_of(req)->content, buffer, size < READ_MAX ? size : READ_MAX, offset);
    if (n < 0)
        fuse_reply_err(req, errno);
    else
        fuse_reply_buf(req, buffer, (size_t)n);
}

static void disk_write(fuse_req_t req, fuse_ino_t ino, const char *buf, size_t size, off_t offset,
                       struct fuse_file_info *fi)
{
    struct disk *disk = disk_of(req);
    uint64_t time_ns = now_ns(), data_at = disk->data_len;
    (void)ino;
    (void)fi;
    int error = is_inside(disk, offset, size) ? 0 : ENOSPC;
    if (!error)
        error = write_full(disk->content, buf, size, offset);
    if (!error)
        error = write_full(disk->data, buf, size, (off_t)data_at);
    if (!error)
        error = record(disk, WRITE, (uint64_t)offset, size, data_at, time_ns);
    if (error) {
        fuse_reply_err(req, error);
        return;
    }
    disk->data_len += size;
    fuse_reply_write(req, size);
}

/* What a loop device makes of discards and of writes of zeros. */
static void disk_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t offset, off_t len,
                           struct fuse_file_info *fi)
{
    struct disk *disk = disk_of(req);
    uint64_t time_ns = now_ns();
    (void)ino;
    (void)fi;
    int error = mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE) ? 0 : EOPNOTSUPP;
    if (!error && (len < 0 || !is_inside(disk, offset, (uint64_t)len)))
        error = ENOSPC;
    if (!error &&
        fallocate(disk->content, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, len) < 0)
        error = errno;
    if (!error)
        error = record(disk, ZERO, (uint64_t)offset, (uint64_t)len, 0, time_ns);
    fuse_reply_err(req, error);
}

static void disk_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
    (void)ino;
    (void)datasync;
    (void)fi;
    fuse_reply_err(req, record(disk_of(req), FLUSH, 0, 0, 0, now_ns()));
}

static int open_in(const char *directory, const char *name, int flags)
{
    char path[4096];
    (void)snprintf(path, sizeof path, "%s/%s", directory, name);
    return open(path, flags | O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
}

static int open_disk(struct disk *disk, const char *directory, const char *size)
{
    disk->size = strtoull(size, NULL, 10);
    disk->content = open_in(directory, "content", 0);
    disk->requests = open_in(directory, "requests", O_APPEND);
    disk->data = open_in(directory, "data", 0);
    disk->bad = open_in(directory, "bad", 0);
    if (disk->content < 0 || disk->requests < 0 || disk->data < 0 || disk->bad < 0)
        return -1;
    return ftruncate(disk->content, (off_t)disk->size);
}

int main(int argc, char **argv)
{
    static const struct fuse_lowlevel_ops ops = {.lookup = disk_lookup,
                                                 .getattr = disk_getattr,
                                                 .open = disk_open,
                                                 .read = disk_read,
                                                 .write = disk_write,
                                                 .fallocate = disk_fallocate,
                                                 .fsync = disk_fsync};
    struct disk disk = {0};
    char *arguments[] = {argv[0], NULL};
    struct fuse_args args = FUSE_ARGS_INIT(1, arguments);
    if (argc != 4) {
        fprintf(stderr, "usage: recorded_disk MOUNTPOINT DIRECTORY SIZE\n");
        return 2;
    }
    if (open_disk(&disk, argv[2], argv[3]) < 0) {
        perror(argv[2]);
        return 1;
    }
    struct fuse_session *session = fuse_session_new(&args, &ops, sizeof ops, &disk);
    if (!session || fuse_session_mount(session, argv[1]) != 0)
        return 1;
    if (mlockall(MCL_CURRENT | MCL_FUTURE) < 0)
        perror("recorded_disk: it can be swapped out: mlockall");
    if (prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0) < 0)
        perror(
            "recorded_disk: the kernel may wait for it while memory is short: PR_SET_IO_FLUSHER");
    /* It ends when it is unmounted: what it serves must not go while a filesystem lies on it. */
    for (int number = 0; number < 3; number++)
        (void)signal((int[]){SIGINT, SIGHUP, SIGTERM}[number], SIG_IGN);
    fuse_opt_free_args(&args);
    int r = fuse_session_loop(session);
    fuse_session_unmount(session);
    fuse_session_destroy(session);
    return r < 0;
}
