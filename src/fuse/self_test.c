// SPDX-License-Identifier: Apache-2.0
/* Do shared mappings work together with direct I/O here? Tested at mount, on a file of the front's
 * own that is in no directory: store and stage may be full, and neither they nor the root's times
 * must change.
 *
 * Only the user of the daemon can look up its name, only while the test runs; its content is in
 * memory here. */
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>

#include "base/log.h"
#include "base/process.h"
#include "fuse/internal.h"

#define READAHEAD_KB "8192"
#define TEST_MS 10000
#define FILE_NAME ".cairn-self-test-%d" /* the daemon's pid */

/* --- its file --------------------------------------------------------------------------------- */

static struct stat stat_of_file(struct front *front)
{
    LOCK_SCOPE(&front->self_test.lock);
    return (struct stat){.st_ino = SELF_TEST_INO,
                         .st_mode = S_IFREG | 0600,
                         .st_nlink = 1,
                         .st_uid = geteuid(),
                         .st_gid = getegid(),
                         .st_blksize = SELF_TEST_SIZE,
                         .st_size = (off_t)front->self_test.size};
}

bool self_test_lookup(fuse_req_t req, const char *name)
{
    struct front *front = front_of(req);
    char own[sizeof FILE_NAME + 16];
    (void)snprintf(own, sizeof own, FILE_NAME, (int)getpid());
    if (!atomic_load(&front->self_test.is_active) || strcmp(name, own) != 0 ||
        fuse_req_ctx(req)->uid != geteuid())
        return false;
    struct fuse_entry_param entry = {
        .ino = SELF_TEST_INO, .generation = 1, .attr = stat_of_file(front)};
    (void)fuse_reply_entry(req, &entry);
    return true;
}

void self_test_getattr(fuse_req_t req)
{
    struct stat st = stat_of_file(front_of(req));
    (void)fuse_reply_attr(req, &st, 0);
}

void self_test_open(fuse_req_t req, struct fuse_file_info *fi)
{
    fi->direct_io = 1;
    (void)fuse_reply_open(req, fi);
}

void self_test_read(fuse_req_t req, size_t size, off_t offset)
{
    struct front *front = front_of(req);
    char bytes[SELF_TEST_SIZE];
    mutex_lock(&front->self_test.lock);
    size_t at = (size_t)min_u64((uint64_t)offset, front->self_test.size),
           len = min_u64(size, front->self_test.size - at);
    memcpy(bytes, front->self_test.bytes + at, len);
    mutex_unlock(&front->self_test.lock);
    (void)fuse_reply_buf(req, bytes, len);
}

void self_test_write(fuse_req_t req, const char *buf, size_t size, off_t offset)
{
    struct front *front = front_of(req);
    if (offset < 0 || offset > SELF_TEST_SIZE || size > SELF_TEST_SIZE - (size_t)offset) {
        (void)fuse_reply_err(req, EFBIG);
        return;
    }
    mutex_lock(&front->self_test.lock);
    memcpy(front->self_test.bytes + offset, buf, size);
    front->self_test.size = max_u64(front->self_test.size, (uint64_t)offset + size);
    mutex_unlock(&front->self_test.lock);
    (void)fuse_reply_write(req, size);
}

/* --- the test --------------------------------------------------------------------------------- */

/* Writes and mappings must see each other, both ways. */
static int try_shared_mapping(int fd)
{
    static const char first[] = "written", second[] = "stored";
    char back[sizeof second] = {0};
    if (pwrite(fd, first, sizeof first, 0) != (ssize_t)sizeof first)
        return -errno;
    char *map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED)
        return -errno;
    bool sees_write = memcmp(map, first, sizeof first) == 0;
    memcpy(map, second, sizeof second);
    bool is_seen = msync(map, 4096, MS_SYNC) == 0 &&
                   pread(fd, back, sizeof back, 0) == (ssize_t)sizeof back &&
                   memcmp(back, second, sizeof back) == 0;
    (void)munmap(map, 4096);
    return sees_write && is_seen ? 0 : -EIO;
}

/* For sequential readers of sealed files: one request should be as large as possible. */
static void raise_readahead(const struct stat *st)
{
    char path[96];
    (void)snprintf(path, sizeof path, "/sys/class/bdi/%u:%u/read_ahead_kb", major(st->st_dev),
                   minor(st->st_dev));
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd >= 0 && write(fd, READAHEAD_KB, strlen(READAHEAD_KB)) < 0)
        (void)0; /* optional: an ordinary user may not set it */
    if (fd >= 0)
        (void)close(fd);
}

static int try_mount(const struct front *front, const char *path)
{
    /* the first request blocks in the kernel until INIT is answered */
    struct stat st;
    if (stat(front->options.mountpoint, &st) < 0)
        return -errno;
    raise_readahead(&st);
    if (front->options.read_only)
        return -EOPNOTSUPP;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    return fd < 0 ? -errno : try_shared_mapping(fd);
}

/* Waits for the child; returns its result, or -ETIMEDOUT. */
static int result_of(pid_t child)
{
    int status, r = process_await_end(child, TEST_MS);
    if (r == PROCESS_HAS_ENDED && waitpid(child, &status, WNOHANG) == child)
        return WIFEXITED(status) ? -WEXITSTATUS(status) : -EINTR;
    (void)kill(child, SIGKILL);
    return r < 0 ? r : -ETIMEDOUT;
}

/* Runs in a process of its own: a daemon killed while it has a request to itself in progress, or a
 * file on its own mount open, could never end. The child has none of our descriptors, or the mount
 * would outlive us. */
void front_self_test(struct front *front)
{
    char path[4200];
    (void)snprintf(path, sizeof path, "%s/" FILE_NAME, front->options.mountpoint, (int)getpid());
    atomic_store(&front->self_test.is_active, true);
    pid_t child = fork();
    if (child == 0) {
        (void)close_range(0, UINT_MAX, 0);
        _exit(-try_mount(front, path));
    }
    int r = child < 0 ? -errno : result_of(child);
    atomic_store(&front->self_test.is_active, false);
    if (r < 0 && r != -EOPNOTSUPP)
        log_info("files that are open for reading and writing use the page cache: shared mappings "
                 "with direct I/O do not work here (%s)",
                 strerror(-r));
    atomic_store(&front->mmap_shared, r == 0 && atomic_load(&front->mmap_offered));
}
