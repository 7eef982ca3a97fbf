// SPDX-License-Identifier: Apache-2.0
/* On a real mount: every call that changes something fails for a process that began before the
 * node opened, and none for others. Needs root and /dev/fuse. */
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <sys/xattr.h>

#include "../expect.h"
#include "../fixtures/store_fixture.h"
#include "base/clock.h"
#include "base/log.h"
#include "fuse/front.h"

static struct store_fixture fixture;
static struct fs *fs;
static struct front *_Atomic front;
static char mountpoint[] = "/tmp/cairn-refused-XXXXXX";

static void begin(void)
{
    if (geteuid() != 0 || access("/dev/fuse", R_OK | W_OK) < 0)
        cr_skip_test("needs root and /dev/fuse");
    const struct front_options options = {
        .mountpoint = mountpoint, .fsname = "refused", .threads = 4, .attr_timeout = 1};
    _cleanup_free_ char *text = NULL;
    cr_assert_not_null(mkdtemp(mountpoint));
    fixture_make(&fixture);
    fixture_open(&fixture);
    fs = fs_new(fixture.store, FS_FSYNC_STAGE);
    assert_i64(front_start(&options, fs, fixture.store, &front, &text), 0, "%s", text);
}

static void end(void)
{
    if (!front)
        return;
    front_stop(front);
    front_free(front);
    fs_free(fs);
    fixture_remove(&fixture);
    (void)rmdir(mountpoint);
}

TestSuite(refused, .init = begin, .fini = end, .timeout = 300);

/* --- calls ------------------------------------------------------------------------------------ */

/* What a process has open. */
static int directory_fd = -1, file_fd = -1, source_fd = -1;

static int make(const char *name)
{
    int fd = openat(directory_fd, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0 || write(fd, "text", 4) != 4)
        return -1;
    return fd;
}

/* A directory of its own, with what the calls below need. */
static int prepare(void)
{
    char path[64];
    (void)snprintf(path, sizeof path, "%s/%d", mountpoint, (int)getpid());
    if (mkdir(path, 0755) < 0)
        return -1;
    directory_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    file_fd = make("file");
    source_fd = make("source");
    int victim = make("victim"), doomed = make("doomed");
    bool fails = mkdirat(directory_fd, "empty", 0755) < 0 ||
                 symlinkat("target", directory_fd, "link") < 0 ||
                 fsetxattr(file_fd, "user.old", "1", 1, 0) < 0;
    return fails || directory_fd < 0 || file_fd < 0 || source_fd < 0 || close(victim) < 0 ||
                   close(doomed) < 0
               ? -1
               : 0;
}

static int call_mkdir(void)
{
    return mkdirat(directory_fd, "d", 0755);
}

static int call_mknod(void)
{
    return mknodat(directory_fd, "fifo", S_IFIFO | 0644, 0);
}

static int call_create(void)
{
    return openat(directory_fd, "new", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
}

static int call_tmpfile(void)
{
    return openat(directory_fd, ".", O_WRONLY | O_TMPFILE | O_CLOEXEC, 0644);
}

static int call_symlink(void)
{
    return symlinkat("target", directory_fd, "link2");
}

static int call_link(void)
{
    return linkat(directory_fd, "source", directory_fd, "twice", 0);
}

static int call_rename(void)
{
    return renameat(directory_fd, "victim", directory_fd, "moved");
}

static int call_exchange(void)
{
    return renameat2(directory_fd, "source", directory_fd, "link", RENAME_EXCHANGE);
}

static int call_unlink(void)
{
    return unlinkat(directory_fd, "doomed", 0);
}

static int call_rmdir(void)
{
    return unlinkat(directory_fd, "empty", AT_REMOVEDIR);
}

static int call_chmod(void)
{
    return fchmodat(directory_fd, "file", 0600, 0);
}

static int call_utimes(void)
{
    return utimensat(directory_fd, "file", NULL, 0);
}

static int call_truncate(void)
{
    return ftruncate(file_fd, 2);
}

static int call_setxattr(void)
{
    return fsetxattr(file_fd, "user.new", "1", 1, 0);
}

static int call_removexattr(void)
{
    return fremovexattr(file_fd, "user.old");
}

static int call_open_to_write(void)
{
    return openat(directory_fd, "file", O_WRONLY | O_CLOEXEC);
}

static int call_open_to_truncate(void)
{
    return openat(directory_fd, "file", O_RDWR | O_TRUNC | O_CLOEXEC);
}

static int call_write(void)
{
    return write(file_fd, "more", 4) == 4 ? 0 : -1;
}

static int call_write_large(void)
{
    static char bytes[3 * MIB];
    return pwrite(file_fd, bytes, sizeof bytes, 0) == sizeof bytes ? 0 : -1;
}

static int call_fallocate(void)
{
    return fallocate(file_fd, 0, 0, 8192);
}

static int call_copy(void)
{
    off_t from = 0, to = 0;
    return copy_file_range(source_fd, &from, file_fd, &to, 4, 0) < 0 ? -1 : 0;
}

static int (*const changes[])(void) = {call_mkdir,
                                       call_mknod,
                                       call_create,
                                       call_tmpfile,
                                       call_symlink,
                                       call_link,
                                       call_rename,
                                       call_exchange,
                                       call_unlink,
                                       call_rmdir,
                                       call_chmod,
                                       call_utimes,
                                       call_truncate,
                                       call_setxattr,
                                       call_removexattr,
                                       call_open_to_write,
                                       call_open_to_truncate,
                                       call_write,
                                       call_write_large,
                                       call_fallocate,
                                       call_copy};

static int read_all(void)
{
    char text[8];
    struct stat st;
    struct statvfs space;
    int fd = openat(directory_fd, "source", O_RDONLY | O_CLOEXEC);
    bool reads = fd >= 0 && pread(fd, text, 4, 0) == 4 && memcmp(text, "text", 4) == 0 &&
                 close(fd) == 0 && pread(source_fd, text, 4, 0) == 4 && fstat(file_fd, &st) == 0 &&
                 readlinkat(directory_fd, "link", text, sizeof text) == 6 &&
                 fgetxattr(file_fd, "user.old", text, sizeof text) == 1 &&
                 fstatvfs(directory_fd, &space) == 0 && fsync(file_fd) == 0;
    fd = reads ? openat(directory_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    int entries = 0;
    while (dir && readdir(dir))
        entries++;
    return dir && closedir(dir) == 0 && entries == 8 ? 0 : -1;
}

/* --- processes -------------------------------------------------------------------------------- */

struct worker {
    pid_t pid;
    int fd;
};

/* The leader of a group, which makes the calls that it is told, and says each errno. */
static struct worker start_worker(void)
{
    int fds[2], (*call)(void);
    assert_i64(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds), 0);
    struct worker worker = {fork(), fds[0]};
    if (worker.pid == 0) {
        (void)setsid();
        /* It keeps no descriptor of the mount's, which would outlive its daemon. */
        (void)dup2(fds[1], STDIN_FILENO);
        (void)close_range(STDERR_FILENO + 1, UINT_MAX, 0);
        while (recv(STDIN_FILENO, &call, sizeof call, 0) == sizeof call) {
            int error = call() < 0 ? errno : 0;
            if (send(STDIN_FILENO, &error, sizeof error, MSG_NOSIGNAL) < 0)
                break;
        }
        _exit(0);
    }
    (void)close(fds[1]);
    return worker;
}

static int ask(const struct worker *worker, int (*call)(void))
{
    int error = -1;
    assert_i64(send(worker->fd, &call, sizeof call, MSG_NOSIGNAL), sizeof call);
    assert_i64(recv(worker->fd, &error, sizeof error, 0), sizeof error);
    return error;
}

static void end_worker(const struct worker *worker)
{
    (void)close(worker->fd);
    assert_i64(waitpid(worker->pid, NULL, 0), worker->pid);
}

static void expect_changes(const struct worker *worker, int error)
{
    for (size_t i = 0; i < ARRAY_LEN(changes); i++)
        expect_i64(ask(worker, changes[i]), error, "call %zu", i);
}

struct causes {
    unsigned count, told;
};

static void see_failure(const struct front_failure *failure, void *arg)
{
    struct causes *causes = arg;
    causes->count++;
    causes->told += strstr(failure->cause, "this process began before") != NULL;
}

Test(refused, what_changes_fails_for_older_processes_and_they_read_on)
{
    struct worker old = start_worker();
    struct causes causes = {0};
    uint64_t total, forgotten;
    assert_i64(ask(&old, prepare), 0);
    (void)usleep(30000);
    front_refuse_older(front, clock_boottime_ns());
    log_set_level(LOG_LEVEL_ERROR);
    (void)usleep(30000);
    struct worker fresh = start_worker();
    assert_i64(ask(&fresh, prepare), 0);
    expect_i64(ask(&fresh, read_all), 0);
    expect_changes(&old, EIO);
    expect_i64(ask(&old, read_all), 0);
    expect_changes(&fresh, 0);
    front_failures(front, see_failure, &causes, &total, &forgotten);
    expect_u64(total, ARRAY_LEN(changes));
    expect_u64(causes.told, causes.count);
    assert_i64(front_rejoin(front, old.pid), 0);
    expect_changes(&old, 0);
    end_worker(&old);
    end_worker(&fresh);
}
