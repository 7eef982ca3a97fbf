// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/io.h"
#include "cli/command.h"
#include "cli/copy_internal.h"
#include "cli/human.h"
#include "cli/interrupt.h"
#include "cli/mounts.h"
#include "commit/past_views.h"

#define QUEUE_MAX 64u
#define TICK_MS 200
#define STEP (1u << 20)
#define RANGE_MAX (256ull << 20) /* between two checks for an interrupt */
#define CAUSES_NAMED 3u
/* without the bits that say on whose behalf a program runs: the owner is another */
#define MODE_COPIED 01777u

/* A pack because of which bytes of a file cannot be read. */
struct cause_of_holes {
    struct reader_loss loss; /* the first */
    uint64_t chunks;
};

struct hole {
    uint64_t offset, length;
    size_t cause;
};

/* One file, until its last read has ended. */
struct file_copy {
    struct copy *copy;
    struct new_file out;
    int dir_fd;
    char *name, *shown;
    struct ns_inode inode;
    bool is_dropped; /* it did not become whole; of the thread that ends it */
    _Atomic int error;
    _Atomic unsigned reads; /* reads in flight, and one for the thread that starts them */
    struct {
        struct cairn_mutex lock; /* LOCK_LEAF */
        VECTOR(struct cause_of_holes) causes;
        VECTOR(struct hole) holes; /* with is_partial */
    } lost;
};

struct read_job {
    struct file_copy *file;
    struct reader_group *group;
};

/* --- progress --------------------------------------------------------------------------------- */

static void draw(struct copy *copy)
{
    uint64_t bytes = atomic_load(&copy->bytes);
    double seconds = (double)(clock_monotonic_ns() - copy->began) / 1e9;
    struct human done = human_bytes(bytes), all = human_bytes(copy->total.bytes);
    struct human rate = human_bytes(seconds > 0.1 ? (uint64_t)((double)bytes / seconds) : 0);
    (void)fprintf(stderr, "\r\033[Kcairn %s: %s of %s, %llu of %llu files, %s/s", copy->command,
                  done.text, all.text, (unsigned long long)atomic_load(&copy->files),
                  (unsigned long long)copy->total.files, rate.text);
}

/* Draws the progress, and forwards an interrupt to the reads. */
static void *watch(void *arg)
{
    struct copy *copy = arg;
    bool is_reported = false;
    uint64_t seen = event_count(&copy->end);
    while (!atomic_load(&copy->ended)) {
        if (interrupted() && !is_reported) {
            store_interrupt(copy->store);
            is_reported = true;
        }
        if (copy->is_tty && atomic_load(&copy->is_counted))
            draw(copy);
        (void)event_wait(&copy->end, &seen, clock_monotonic_ns() + TICK_MS * MS_NS);
    }
    if (copy->is_tty)
        (void)fprintf(stderr, "\r\033[K");
    return NULL;
}

static void copy_free(struct copy *copy)
{
    reader_packs_free(copy->packs);
    event_done(&copy->end);
    mutex_done(&copy->locked.lock);
    free(copy);
}

int copy_begin(const struct copy_how *how, struct store *store, struct copy **ret)
{
    struct copy *copy = xcalloc(1, sizeof *copy);
    *copy = (struct copy){.command = how->command,
                          .is_partial = how->is_partial,
                          .may_not_replace = how->may_not_replace,
                          .restores = how->restores,
                          .store = store,
                          .past = how->past,
                          .past_of = how->past_of,
                          .began = clock_monotonic_ns(),
                          .to_output = how->to_output,
                          .is_tty =
                              isatty(STDERR_FILENO) && !(how->to_output && isatty(STDOUT_FILENO))};
    copy->locked.problems = how->problems;
    copy->packs = how->past ? reader_packs_new(store) : NULL;
    event_init(&copy->end);
    mutex_init(&copy->locked.lock, LOCK_LEAF);
    interrupt_catch(true);
    int r = pool_new("cairn-copy", how->threads, QUEUE_MAX, NULL, NULL, &copy->pool);
    if (r == 0)
        r = thread_start(&copy->watcher, "cairn-progress", watch, copy);
    if (r < 0) {
        pool_free(copy->pool);
        copy_free(copy);
        return r;
    }
    *ret = copy;
    return 0;
}

void copy_expect(struct copy *copy, const struct copy_counts *total)
{
    copy->total = *total;
    atomic_store(&copy->is_counted, true);
    event_signal(&copy->end); /* the first line is drawn now */
}

void copy_failed(struct copy *copy, const char *shown, const char *why)
{
    atomic_store(&copy->failed, true);
    if (interrupted())
        return;
    complain(copy->command, "%s%s: %s", copy->is_tty ? "\r\033[K" : "", shown, why);
    LOCK_SCOPE(&copy->locked.lock);
    if (!copy->locked.problems)
        return;
    cJSON *problem = cJSON_CreateObject();
    (void)cJSON_AddStringToObject(problem, "path", shown);
    (void)cJSON_AddStringToObject(problem, "problem", why);
    (void)cJSON_AddItemToArray(copy->locked.problems, problem);
}

/* --- a file ----------------------------------------------------------------------------------- */

static struct timespec timespec_of(int64_t ns)
{
    int64_t seconds = ns / 1000000000 - (ns % 1000000000 < 0);
    return (struct timespec){.tv_sec = seconds, .tv_nsec = ns - seconds * 1000000000};
}

/* For an open file or directory (`name` is ""), or for a link. Only root can give files to other
 * owners; another caller keeps them as its own, as with cp. */
static int set_owner(const struct copy *copy, const struct attrs *attrs, int fd, const char *name)
{
    if (!copy->restores ||
        fchownat(fd, name, attrs->uid, attrs->gid, AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) == 0 ||
        (errno == EPERM && geteuid() != 0))
        return 0;
    return -errno;
}

/* An attribute that cannot be set is no reason to lose the file. */
static int set_xattrs(struct copy *copy, const struct ns_inode *inode, int fd, const char *shown)
{
    _cleanup_free_ char *why = NULL;
    int r = copy_xattrs(copy, inode, fd, &why);
    if (why)
        copy_failed(copy, shown, why);
    return r;
}

/* If an existing file may not be replaced, nothing is read for it. */
static bool is_there(const struct copy *copy, int dir_fd, const char *name)
{
    struct stat st;
    return copy->may_not_replace && fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

static int file_copy_finish(struct file_copy *file, const char *name)
{
    const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT},
                                      timespec_of(file->inode.attrs.mtime)};
    TRY(set_owner(file->copy, &file->inode.attrs, file->out.fd, ""));
    TRY(set_xattrs(file->copy, &file->inode, file->out.fd, file->shown));
    if (ftruncate(file->out.fd, (off_t)file->inode.attrs.size) < 0 ||
        fchmod(file->out.fd, file->inode.attrs.mode & MODE_COPIED) < 0 ||
        futimens(file->out.fd, times) < 0)
        return -errno;
    return new_file_name(&file->out, file->copy, file->dir_fd, name);
}

/* --- bytes that cannot be read ---------------------------------------------------------------- */

static size_t find_cause(struct file_copy *file, const struct reader_loss *loss)
{
    for (size_t i = 0; i < file->lost.causes.count; i++)
        if (file->lost.causes.at[i].loss.pack == loss->pack &&
            file->lost.causes.at[i].loss.is_through_base == loss->is_through_base)
            return i;
    vector_add(&file->lost.causes, (struct cause_of_holes){.loss = *loss});
    return file->lost.causes.count - 1;
}

/* Without is_partial the rest is read nevertheless, so that the message lists all damage. */
static int file_copy_lose(const struct reader_loss *loss, void *arg)
{
    struct file_copy *file = arg;
    LOCK_SCOPE(&file->lost.lock);
    size_t cause = find_cause(file, loss);
    file->lost.causes.at[cause].chunks++;
    if (file->copy->is_partial)
        vector_add(&file->lost.holes, (struct hole){loss->offset, loss->length, cause});
    return 0;
}

static char *describe_causes(const struct file_copy *file)
{
    char *text = NULL;
    size_t count = file->lost.causes.count;
    for (size_t i = 0; i < count && i < CAUSES_NAMED; i++) {
        _cleanup_free_ char *before = text;
        _cleanup_free_ char *what = reader_describe_loss(&file->lost.causes.at[i].loss);
        text = xasprintf("%s%s%s (needed by %llu chunks)", before ? before : "", before ? "; " : "",
                         what, (unsigned long long)file->lost.causes.at[i].chunks);
    }
    if (count <= CAUSES_NAMED)
        return text;
    _cleanup_free_ char *before = text;
    return xasprintf("%s; and %zu more packs", before, count - CAUSES_NAMED);
}

static int compare_holes(const void *a, const void *b)
{
    return compare_u64(&((const struct hole *)a)->offset, &((const struct hole *)b)->offset);
}

/* One line for each: offset, length, reason. */
static int write_holes(struct file_copy *file, const char *name)
{
    int fd =
        openat(file->dir_fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    FILE *out = fd < 0 ? NULL : fdopen(fd, "w");
    if (!out) {
        int r = -errno;
        if (fd >= 0)
            (void)close(fd);
        return r;
    }
    vector_sort(&file->lost.holes, compare_holes);
    for (size_t i = 0; i < file->lost.holes.count; i++) {
        const struct hole *hole = &file->lost.holes.at[i];
        _cleanup_free_ char *why = reader_describe_loss(&file->lost.causes.at[hole->cause].loss);
        (void)fprintf(out, "%llu %llu %s\n", (unsigned long long)hole->offset,
                      (unsigned long long)hole->length, why);
    }
    bool failed = ferror(out) != 0;
    return fclose(out) != 0 || failed ? -EIO : 0;
}

static void file_copy_end_lost(struct file_copy *file)
{
    struct copy *copy = file->copy;
    _cleanup_free_ char *why = describe_causes(file);
    _cleanup_free_ char *partial = xasprintf("%s.partial", file->name);
    _cleanup_free_ char *holes = xasprintf("%s.holes", file->name);
    int r = copy->is_partial ? write_holes(file, holes) : 0;
    if (r == 0 && copy->is_partial)
        r = file_copy_finish(file, partial);
    copy_failed(copy, file->shown, why);
    if (r < 0)
        copy_failed(copy, file->shown, strerror(-r));
    file->is_dropped = r < 0 || !copy->is_partial;
    atomic_fetch_add(&copy->partial_files, !file->is_dropped);
}

/* --- its end ---------------------------------------------------------------------------------- */

static void file_copy_put(struct file_copy *file)
{
    unsigned reads = atomic_fetch_sub(&file->reads, 1);
    check(reads > 0);
    if (reads > 1)
        return;
    int r = atomic_load(&file->error);
    bool is_lost = r == 0 && file->lost.causes.count > 0;
    if (r == 0 && !is_lost)
        r = file_copy_finish(file, file->name);
    if (is_lost) {
        file_copy_end_lost(file);
    } else if (r < 0) {
        copy_failed(file->copy, file->shown, source_trouble(r));
        file->is_dropped = true;
    } else {
        atomic_fetch_add(&file->copy->files, 1);
    }
    new_file_close(&file->out, file->dir_fd, file->is_dropped);
    (void)close(file->dir_fd);
    mutex_done(&file->lost.lock);
    vector_free(&file->lost.causes);
    vector_free(&file->lost.holes);
    free(file->name);
    free(file->shown);
    free(file);
}

static int file_copy_write_part(uint64_t offset, const void *bytes, size_t length, void *arg)
{
    struct file_copy *file = arg;
    int r = io_pwrite_full(file->out.fd, bytes, length, offset);
    if (r == 0)
        atomic_fetch_add(&file->copy->bytes, length);
    return r;
}

static void file_copy_read_group(void *arg)
{
    struct read_job *job = arg;
    struct file_copy *file = job->file;
    const struct reader_calls calls = {file_copy_write_part, file_copy_lose, file};
    int r = atomic_load(&file->error);
    if (r == 0)
        r = interrupted() ? -EINTR : reader_fetch(file->copy->store, job->group, &calls);
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

/* --- by reference ----------------------------------------------------------------------------- */

/* Opens the same file in the mount's .history; -1: it is not there, or not accessible to this
 * caller. */
static int open_past(const struct file_copy *file, uint64_t ino)
{
    const struct copy *copy = file->copy;
    struct stat st;
    if (!copy->past || !path_is_inside(file->shown, copy->past_of))
        return -1;
    _cleanup_free_ char *path = xasprintf("%s%s", copy->past, file->shown + strlen(copy->past_of));
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return -1;
    bool is_same = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && past_slot(st.st_ino) != 0 &&
                   past_number(st.st_ino) == ino && (uint64_t)st.st_size == file->inode.attrs.size;
    if (is_same)
        return fd;
    (void)close(fd);
    return -1;
}

struct past_job {
    struct file_copy *file;
    uint64_t ino;
    int from; /* in .history */
};

/* The kernel reads and writes the ranges that the mount cannot copy by reference. */
static int copy_range(struct file_copy *file, int from, uint64_t *done)
{
    off64_t in = 0, out = 0;
    while (*done < file->inode.attrs.size) {
        if (interrupted())
            return -EINTR;
        ssize_t n = copy_file_range(from, &in, file->out.fd, &out,
                                    min_u64(file->inode.attrs.size - *done, RANGE_MAX), 0);
        if (n <= 0)
            return n < 0 ? -errno : -EIO;
        *done += (uint64_t)n;
        atomic_fetch_add(&file->copy->bytes, (uint64_t)n);
    }
    return 0;
}

/* If a copy by reference is refused: copies the bytes from the same offset on. */
static int copy_bytes(struct file_copy *file, int from, uint64_t done)
{
    _cleanup_free_ uint8_t *bytes = xmalloc(STEP);
    while (done < file->inode.attrs.size) {
        if (interrupted())
            return -EINTR;
        ssize_t n = pread(from, bytes, STEP, (off_t)done);
        if (n <= 0)
            return n < 0 ? -errno : -EIO;
        TRY(io_pwrite_full(file->out.fd, bytes, (size_t)n, done));
        done += (uint64_t)n;
        atomic_fetch_add(&file->copy->bytes, (uint64_t)n);
    }
    return 0;
}

/* A reference to lost content would result in a file that cannot be read. If a pack is missing, the
 * bytes are read: NVMe may still have them; if not, the file fails. */
static int may_refer(const struct past_job *job, bool *ret)
{
    int r = reader_packs_have(job->file->copy->packs, job->ino, ret);
    return r == -EINTR ? r : 0;
}

static void copy_past(void *arg)
{
    struct past_job *job = arg;
    struct file_copy *file = job->file;
    uint64_t done = 0;
    bool refers = false;
    int r = may_refer(job, &refers);
    if (r == 0)
        r = refers ? copy_range(file, job->from, &done) : -EXDEV;
    if (r < 0 && r != -EINTR)
        r = copy_bytes(file, job->from, done);
    if (r < 0)
        atomic_store(&file->error, r);
    (void)close(job->from);
    free(job);
    file_copy_put(file);
}

/* False: the file's bytes must be read from the store. */
static bool start_past(struct file_copy *file, uint64_t ino)
{
    int from = open_past(file, ino);
    if (from < 0)
        return false;
    struct past_job *job = xmalloc(sizeof *job);
    *job = (struct past_job){file, ino, from};
    atomic_fetch_add(&file->reads, 1);
    pool_submit(file->copy->pool, copy_past, job);
    return true;
}

void copy_file(struct copy *copy, const struct ns_inode *inode, int dir_fd, const char *name,
               const char *shown)
{
    if (is_there(copy, dir_fd, name)) {
        copy_failed(copy, shown, strerror(EEXIST));
        return;
    }
    struct file_copy *file = xcalloc(1, sizeof *file);
    *file = (struct file_copy){.copy = copy,
                               .out = {.fd = -1},
                               .inode = *inode,
                               .name = xstrdup(name),
                               .shown = xstrdup(shown),
                               .reads = 1};
    const struct reader_calls calls = {file_copy_write_part, file_copy_lose, file};
    mutex_init(&file->lost.lock, LOCK_LEAF);
    file->dir_fd = fcntl(dir_fd, F_DUPFD_CLOEXEC, 0);
    int r = file->dir_fd < 0 ? -errno : new_file_open(&file->out, dir_fd, name);
    if (r == 0 && !start_past(file, inode->ino))
        r = reader_plan(copy->store, inode->ino, file_copy_start_read, &calls);
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
    if (r == 0)
        r = set_owner(copy, &inode->attrs, dir_fd, temporary);
    if (r == 0 && utimensat(dir_fd, temporary, times, AT_SYMLINK_NOFOLLOW) < 0)
        r = -errno;
    if (r == 0)
        r = copy_rename(copy, dir_fd, temporary, name);
    if (r < 0)
        (void)unlinkat(dir_fd, temporary, 0);
    if (r < 0)
        copy_failed(copy, shown, strerror(-r));
    else
        atomic_fetch_add(&copy->files, 1);
}

/* --- the end ---------------------------------------------------------------------------------- */

void copy_directory_later(struct copy *copy, const struct ns_inode *inode, const char *path)
{
    vector_add(&copy->directories, (struct directory){.path = xstrdup(path), .inode = *inode});
}

/* A copied path may be longer than the kernel accepts at once: then it is opened in parts. */
static int open_directory(const char *path)
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

static int finish_directory(struct copy *copy, const struct directory *directory, int fd)
{
    const struct ns_inode *inode = &directory->inode;
    const struct attrs *attrs = &inode->attrs;
    const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, timespec_of(attrs->mtime)};
    uint32_t kept = MODE_COPIED | (copy->restores ? S_ISGID : 0u);
    TRY(set_owner(copy, attrs, fd, ""));
    TRY(set_xattrs(copy, inode, fd, directory->path));
    return futimens(fd, times) < 0 || fchmod(fd, attrs->mode & kept) < 0 ? -errno : 0;
}

/* The innermost first: a directory that its owner may not write must be closed last. */
static void finish_directories(struct copy *copy)
{
    for (size_t i = copy->directories.count; i-- > 0;) {
        const struct directory *directory = &copy->directories.at[i];
        int fd = open_directory(directory->path);
        int r = fd < 0 ? -errno : finish_directory(copy, directory, fd);
        if (r < 0)
            copy_failed(copy, directory->path, strerror(-r));
        if (fd >= 0)
            (void)close(fd);
        free(directory->path);
    }
    vector_free(&copy->directories);
}

int copy_end(struct copy *copy, struct copy_result *sum)
{
    pool_free(copy->pool);
    finish_directories(copy);
    atomic_store(&copy->ended, true);
    event_signal(&copy->end);
    (void)pthread_join(copy->watcher, NULL);
    int code = atomic_load(&copy->failed) ? CLI_FAILED : CLI_OK;
    check(copy->directories.count == 0);
    sum->copied += atomic_load(&copy->files);
    sum->partial += atomic_load(&copy->partial_files);
    sum->total += copy->total.files;
    sum->bytes += atomic_load(&copy->bytes);
    if (interrupted()) {
        complain(copy->command, "interrupted%s",
                 copy->to_output ? "" : "; incomplete files were removed");
        code = CLI_INTERRUPTED;
    }
    copy_free(copy);
    return code;
}
