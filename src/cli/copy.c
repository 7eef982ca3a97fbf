// SPDX-License-Identifier: Apache-2.0
#include "cli/copy.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/event.h"
#include "base/io.h"
#include "base/pool.h"
#include "base/vector.h"
#include "cli/command.h"
#include "cli/human.h"

#define QUEUE_MAX 64u
#define TICK_MS 200
#define MODE_COPIED                                                                                \
    01777u /* not the bits that say on whose behalf it runs: the owner is another                  \
            */

struct directory {
    char *path;
    uint32_t mode;
    int64_t mtime;
};

struct copy {
    const char *command;
    struct store *store;
    struct pool *pool;
    pthread_t watcher;
    bool is_tty;
    int64_t began;
    struct copy_counts total;
    _Atomic uint64_t files, bytes;
    _Atomic bool failed, ended;
    struct event end;
    VECTOR(struct directory) directories;
};

/* One file, until its last read has ended. */
struct file_copy {
    struct copy *copy;
    int fd, dir_fd;
    char *name, *temporary, *shown;
    struct attrs attrs;
    _Atomic int error;
    _Atomic unsigned reads; /* reads in flight, and one for the thread that starts them */
};

struct read_job {
    struct file_copy *file;
    struct reader_group *group;
};

static volatile sig_atomic_t interrupted;

static void copy_on_interrupt(int signo)
{
    (void)signo;
    interrupted = 1;
}

bool copy_is_interrupted(void)
{
    return interrupted != 0;
}

/* --- progress --------------------------------------------------------------------------------- */

static void copy_draw(struct copy *copy)
{
    uint64_t bytes = atomic_load(&copy->bytes);
    double seconds = (double)(clock_monotonic_ns() - copy->began) / 1e9;
    struct human done = human_bytes(bytes), all = human_bytes(copy->total.bytes);
    struct human rate = human_bytes(seconds > 0.1 ? (uint64_t)((double)bytes / seconds) : 0);
    (void)fprintf(stderr, "\r\033[Kcairn %s: %s of %s, %llu of %llu files, %s/s", copy->command,
                  done.text, all.text, (unsigned long long)atomic_load(&copy->files),
                  (unsigned long long)copy->total.files, rate.text);
}

/* Draws the progress, and passes an interrupt on to the reads. */
static void *copy_watch(void *arg)
{
    struct copy *copy = arg;
    bool is_reported = false;
    uint64_t seen = event_count(&copy->end);
    while (!atomic_load(&copy->ended)) {
        if (copy_is_interrupted() && !is_reported) {
            reader_interrupt(copy->store);
            is_reported = true;
        }
        if (copy->is_tty)
            copy_draw(copy);
        (void)event_wait(&copy->end, &seen, clock_monotonic_ns() + TICK_MS * MS_NS);
    }
    if (copy->is_tty)
        (void)fprintf(stderr, "\r\033[K");
    return NULL;
}

int copy_begin(const char *command, struct store *store, unsigned threads, struct copy **ret)
{
    /* A second interrupt ends it at once. */
    struct sigaction action = {.sa_handler = copy_on_interrupt, .sa_flags = (int)SA_RESETHAND};
    struct copy *copy = xcalloc(1, sizeof *copy);
    *copy = (struct copy){.command = command,
                          .store = store,
                          .began = clock_monotonic_ns(),
                          .is_tty = isatty(STDERR_FILENO)};
    event_init(&copy->end);
    (void)sigaction(SIGINT, &action, NULL);
    (void)sigaction(SIGTERM, &action, NULL);
    int r = pool_new("cairn-copy", threads, QUEUE_MAX, NULL, NULL, &copy->pool);
    if (r == 0)
        r = thread_start(&copy->watcher, "cairn-progress", copy_watch, copy);
    if (r < 0) {
        pool_free(copy->pool);
        event_done(&copy->end);
        free(copy);
        return r;
    }
    *ret = copy;
    return 0;
}

void copy_expect(struct copy *copy, const struct copy_counts *total)
{
    copy->total = *total;
}

void copy_failed(struct copy *copy, const char *shown, const char *why)
{
    atomic_store(&copy->failed, true);
    if (!copy_is_interrupted())
        complain(copy->command, "%s%s: %s", copy->is_tty ? "\r\033[K" : "", shown, why);
}

/* --- a file ----------------------------------------------------------------------------------- */

static struct timespec timespec_of(int64_t ns)
{
    int64_t seconds = ns / 1000000000 - (ns % 1000000000 < 0);
    return (struct timespec){.tv_sec = seconds, .tv_nsec = ns - seconds * 1000000000};
}

/* Other names than those that are being made now are left alone. */
static char *copy_temporary_name(const char *name)
{
    static _Atomic unsigned count;
    return xasprintf(".%.200s.cairn-%d-%u", name, (int)getpid(), atomic_fetch_add(&count, 1));
}

static int file_copy_finish(const struct file_copy *file)
{
    const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, timespec_of(file->attrs.mtime)};
    if (ftruncate(file->fd, (off_t)file->attrs.size) < 0 ||
        fchmod(file->fd, file->attrs.mode & MODE_COPIED) < 0 || futimens(file->fd, times) < 0 ||
        renameat(file->dir_fd, file->temporary, file->dir_fd, file->name) < 0)
        return -errno;
    return 0;
}

static const char *copy_trouble(int r)
{
    return r == -ENOENT ? "its data is no longer in the remote, or only there; copy it again, or "
                          "from the remote"
                        : source_trouble(r);
}

static void file_copy_put(struct file_copy *file)
{
    if (atomic_fetch_sub(&file->reads, 1) > 1)
        return;
    int r = atomic_load(&file->error);
    if (r == 0)
        r = file_copy_finish(file);
    if (r < 0) {
        copy_failed(file->copy, file->shown, copy_trouble(r));
        (void)unlinkat(file->dir_fd, file->temporary, 0);
    } else {
        atomic_fetch_add(&file->copy->files, 1);
    }
    (void)close(file->fd);
    (void)close(file->dir_fd);
    free(file->name);
    free(file->temporary);
    free(file->shown);
    free(file);
}

static int file_copy_write_part(uint64_t offset, const void *bytes, size_t length, void *arg)
{
    struct file_copy *file = arg;
    int r = io_pwrite_full(file->fd, bytes, length, offset);
    if (r == 0)
        atomic_fetch_add(&file->copy->bytes, length);
    return r;
}

static void file_copy_read_group(void *arg)
{
    struct read_job *job = arg;
    struct file_copy *file = job->file;
    int r = atomic_load(&file->error);
    if (r == 0)
        r = copy_is_interrupted()
                ? -EINTR
                : reader_fetch(file->copy->store, job->group, file_copy_write_part, file);
    if (r < 0)
        atomic_store(&file->error, r);
    reader_group_free(job->group);
    free(job);
    file_copy_put(file);
}

static int file_copy_start_read(struct reader_group *group, void *arg)
{
    struct file_copy *file = arg;
    struct read_job *job = xmalloc(sizeof *job);
    *job = (struct read_job){file, group};
    atomic_fetch_add(&file->reads, 1);
    pool_submit(file->copy->pool, file_copy_read_group, job);
    return atomic_load(&file->error);
}

void copy_file(struct copy *copy, const struct ns_inode *inode, int dir_fd, const char *name,
               const char *shown)
{
    struct file_copy *file = xcalloc(1, sizeof *file);
    *file = (struct file_copy){.copy = copy,
                               .attrs = inode->attrs,
                               .name = xstrdup(name),
                               .temporary = copy_temporary_name(name),
                               .shown = xstrdup(shown),
                               .reads = 1};
    file->dir_fd = fcntl(dir_fd, F_DUPFD_CLOEXEC, 0);
    file->fd =
        openat(dir_fd, file->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    int r = file->fd < 0 || file->dir_fd < 0
                ? -errno
                : reader_plan(copy->store, inode->ino, file_copy_start_read, file);
    if (r < 0)
        atomic_store(&file->error, r);
    file_copy_put(file);
}

void copy_link(struct copy *copy, const struct ns_inode *inode, const char *target, int dir_fd,
               const char *name, const char *shown)
{
    const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, timespec_of(inode->attrs.mtime)};
    _cleanup_free_ char *temporary = copy_temporary_name(name);
    int r = symlinkat(target, dir_fd, temporary) < 0 ? -errno : 0;
    if (r == 0 && (utimensat(dir_fd, temporary, times, AT_SYMLINK_NOFOLLOW) < 0 ||
                   renameat(dir_fd, temporary, dir_fd, name) < 0)) {
        r = -errno;
        (void)unlinkat(dir_fd, temporary, 0);
    }
    if (r < 0)
        copy_failed(copy, shown, strerror(-r));
    else
        atomic_fetch_add(&copy->files, 1);
}

/* --- the end ---------------------------------------------------------------------------------- */

void copy_directory_later(struct copy *copy, const struct ns_inode *inode, const char *path)
{
    vector_add(&copy->directories, (struct directory){.path = xstrdup(path),
                                                      .mode = inode->attrs.mode & MODE_COPIED,
                                                      .mtime = inode->attrs.mtime});
}

/* Paths of what was copied may be longer than the kernel takes at once: then they are walked in
 * parts. */
static int copy_open_directory(const char *path)
{
    int dir = AT_FDCWD;
    while (strlen(path) >= PATH_MAX) {
        size_t len = PATH_MAX - 1;
        while (len > 0 && path[len] != '/')
            len--;
        _cleanup_free_ char *part = len > 0 ? strndup(path, len) : NULL;
        int next = part ? openat(dir, part, O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
        int error = part ? errno : ENAMETOOLONG;
        if (dir >= 0)
            (void)close(dir);
        errno = error;
        if (next < 0)
            return -1;
        dir = next;
        path += len + 1;
    }
    int fd = openat(dir, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int error = errno;
    if (dir >= 0)
        (void)close(dir);
    errno = error;
    return fd;
}

/* The innermost first: a directory that its owner may not write is closed last. */
static void copy_finish_directories(struct copy *copy)
{
    for (size_t i = copy->directories.count; i-- > 0;) {
        const struct directory *directory = &copy->directories.at[i];
        const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, timespec_of(directory->mtime)};
        int fd = copy_open_directory(directory->path);
        if (fd < 0 || futimens(fd, times) < 0 || fchmod(fd, directory->mode) < 0)
            copy_failed(copy, directory->path, strerror(errno));
        if (fd >= 0)
            (void)close(fd);
        free(directory->path);
    }
    vector_free(&copy->directories);
}

int copy_end(struct copy *copy)
{
    pool_free(copy->pool);
    copy_finish_directories(copy);
    atomic_store(&copy->ended, true);
    event_signal(&copy->end);
    (void)pthread_join(copy->watcher, NULL);
    event_done(&copy->end);
    int code = atomic_load(&copy->failed) ? CLI_FAILED : CLI_OK;
    if (copy_is_interrupted()) {
        complain(copy->command, "interrupted; incomplete files were removed");
        code = CLI_INTERRUPTED;
    }
    free(copy);
    return code;
}
