// SPDX-License-Identifier: Apache-2.0
/* The calls that open a load, name its targets, wait for them and end it. */
#include "client/load.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <sys/statfs.h>
#include <sys/xattr.h>

#include "client/fault.h"
#include "client/lane.h"

/* With more threads, reads would be further out of order than a mount accepts from one reader
 * (STRAY_AHEAD in fetch/prefetch.c). */
#define LOAD_THREADS 4
#define LOAD_SHARED 2 /* with so many loads or more */

/* --- opening ---------------------------------------------------------------------------------- */

static int take_load_options(struct cairn_load_options *options,
                             const struct cairn_load_options *given)
{
    TRY(take_struct(options, sizeof *options, given));
    if (options->threads > LOAD_THREADS_MAX || options->flags & ~(uint32_t)CAIRN_LOAD_BUFFERED) {
        cause_note("threads is 0 to %d, flags 0 or CAIRN_LOAD_BUFFERED", LOAD_THREADS_MAX);
        return -EINVAL;
    }
    if (options->threads == 0)
        options->threads = LOAD_THREADS;
    return 0;
}

/* How many loads have the file open, including this one; -1: it is not on a CairnFS mount. */
static long loads_of(int fd)
{
    char text[256];
    ssize_t n = fgetxattr(fd, "user.cairn.lane", text, sizeof text - 1);
    if (n <= 0)
        return -1;
    text[n] = '\0';
    const char *loads = strstr(text, "loads=");
    return loads ? strtol(loads + strlen("loads="), NULL, 10) : 1;
}

static bool is_cairn_file(int fd)
{
    struct statfs st;
    return fstatfs(fd, &st) == 0 && st.f_type == FUSE_SUPER_MAGIC && loads_of(fd) >= 0;
}

/* Opens the same file for direct I/O. A mount accepts O_DIRECT at any offset and for any memory;
 * disks do not. -1: refused, or no /proc; then reads use the page cache. */
static int open_directly(int fd)
{
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_DIRECT);
}

void load_share(struct cairn_load *load)
{
    if (atomic_load(&load->is_direct) && loads_of(load->fd) >= LOAD_SHARED)
        atomic_store(&load->is_direct, false);
}

/* O_NONBLOCK: does not block on a fifo without a writer; it also tells a mount that this is a
 * load. */
static int open_regular(const char *path, struct stat *ret)
{
    _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0 || fstat(fd, ret) < 0) {
        int r = -errno;
        cause_note("cannot open %.250s: %s", path, strerror(-r));
        return r;
    }
    if (!S_ISREG(ret->st_mode)) {
        cause_note("%.250s is no regular file", path);
        return S_ISDIR(ret->st_mode) ? -EISDIR : -ENOTSUP;
    }
    return take_fd(&fd);
}

static struct cairn_load *new_load(struct cairn_lane *lane, const char *path, unsigned threads)
{
    struct cairn_load *load = calloc(1, sizeof *load);
    char *copy = strdup(path);
    if (!load || !copy) {
        free(load);
        free(copy);
        return NULL;
    }
    load->lane = lane;
    load->path = copy;
    load->thread_max = threads;
    STAILQ_INIT(&load->queue.batches);
    mutex_init(&load->lock, LOCK_LOAD);
    cond_init(&load->work);
    cond_init(&load->changed);
    LOCK_SCOPE(&lane->lock);
    lane->refs++;
    return load;
}

static int open_load(struct cairn_lane *lane, const char *path,
                     const struct cairn_load_options *given, struct cairn_load **ret)
{
    struct cairn_load_options options;
    struct stat opened;
    TRY(take_load_options(&options, given));
    int fd = open_regular(path, &opened);
    if (fd < 0)
        return fd;
    struct cairn_load *load = new_load(lane, path, options.threads);
    if (!load) {
        (void)close(fd);
        return -ENOMEM;
    }
    load->is_on_cairn = is_cairn_file(fd);
    bool is_buffered = !load->is_on_cairn || options.flags & CAIRN_LOAD_BUFFERED;
    load->direct_fd = is_buffered ? -1 : open_directly(fd);
    atomic_store(&load->is_direct, load->direct_fd >= 0);
    load->fd = fd;
    load->opened = opened;
    *ret = load;
    return 0;
}

int cairn_load_open(cairn_lane *lane, const char *path, const struct cairn_load_options *options,
                    cairn_load **ret)
{
    *ret = NULL;
    TRY(lane_call(lane));
    return lane_return(NULL, 0, open_load(lane, path, options, ret));
}

/* --- queries ---------------------------------------------------------------------------------- */

int cairn_load_fd(const cairn_load *load)
{
    return load->direct_fd >= 0 ? load->direct_fd : load->fd;
}

uint64_t cairn_load_size(const cairn_load *load)
{
    return (uint64_t)load->opened.st_size;
}

/* --- targets ---------------------------------------------------------------------------------- */

static int load_error_locked(const struct cairn_load *load)
{
    check_held(&load->lock);
    int error = atomic_load(&load->error);
    if (error)
        cause_note("%s", load->cause);
    return error;
}

static int enter_batch(struct cairn_load *load, struct load_batch *batch)
{
    LOCK_SCOPE(&load->lock);
    TRY(load_error_locked(load));
    if (batch->request_count > 0)
        TRY(load_start_locked(load, batch->request_count));
    batch->first = load->queue.target_count;
    load->queue.target_count += batch->target_count;
    STAILQ_INSERT_TAIL(&load->queue.batches, batch, link);
    if (!load->queue.current && batch->request_count > 0)
        load->queue.current = batch;
    (void)pthread_cond_broadcast(&load->work);
    return 0;
}

static int get_targets(struct cairn_load *load, const struct cairn_target *targets, size_t count)
{
    struct load_batch *batch;
    fault_install();
    TRY(load_batch_new(targets, count, cairn_load_size(load), &batch));
    int r = enter_batch(load, batch);
    if (r < 0)
        load_batch_free(batch);
    return r;
}

int cairn_load_get(cairn_load *load, const struct cairn_target *targets, size_t count)
{
    TRY(lane_call(load->lane));
    return lane_return(NULL, 0, get_targets(load, targets, count));
}

/* --- waiting ---------------------------------------------------------------------------------- */

/* The progress of a wait: each target is checked until it is filled, and then no more. */
struct load_wait {
    const struct load_batch *batch;
    size_t next, end; /* indexes of targets */
};

static bool is_filled_locked(const struct cairn_load *load, struct load_wait *wait)
{
    check_held(&load->lock);
    for (; wait->next < wait->end; wait->next++) {
        while (wait->next >= wait->batch->first + wait->batch->target_count)
            wait->batch = STAILQ_NEXT(wait->batch, link);
        if (wait->batch->targets[wait->next - wait->batch->first].left > 0)
            return false;
    }
    return true;
}

static int begin_wait_locked(const struct cairn_load *load, size_t first, size_t count,
                             struct load_wait *ret)
{
    check_held(&load->lock);
    if (first > load->queue.target_count || count > load->queue.target_count - first) {
        cause_note("the load has %zu targets: none of number %zu", load->queue.target_count,
                   first > load->queue.target_count ? first : load->queue.target_count);
        return -EINVAL;
    }
    *ret = (struct load_wait){STAILQ_FIRST(&load->queue.batches), first, first + count};
    return 0;
}

static int wait_filled(struct cairn_load *load, size_t first, size_t count, int64_t deadline)
{
    struct load_wait wait;
    LOCK_SCOPE(&load->lock);
    TRY(begin_wait_locked(load, first, count, &wait));
    for (;;) {
        if (is_filled_locked(load, &wait))
            return 0;
        if (atomic_load(&load->error) && load->active == 0)
            return load_error_locked(load);
        if (!wait_until_locked(&load->lock, &load->changed, deadline)) {
            cause_note("%s: target %zu is not filled yet", load->path, wait.next);
            return -ETIMEDOUT;
        }
    }
}

/* Otherwise bytes of two versions could be read as one file. */
static int check_unchanged(struct cairn_load *load)
{
    struct stat now;
    int r = fstat(load->fd, &now) < 0 ? -errno : 0;
    const struct stat *then = &load->opened;
    if (r == 0 && now.st_size == then->st_size && now.st_mtim.tv_sec == then->st_mtim.tv_sec &&
        now.st_mtim.tv_nsec == then->st_mtim.tv_nsec)
        return 0;
    cause_note("%s %s", load->path,
               r < 0 ? strerror(-r) : "was changed in place while it was loaded");
    r = r < 0 ? r : -EBADMSG;
    LOCK_SCOPE(&load->lock);
    load_fail_locked(load, r, cause_text());
    return r;
}

int cairn_load_wait(cairn_load *load, size_t first, size_t count, int timeout_ms)
{
    int64_t deadline = deadline_of(timeout_ms);
    TRY(lane_call(load->lane));
    TRY(wait_filled(load, first, count, deadline));
    return check_unchanged(load);
}

/* --- the end ---------------------------------------------------------------------------------- */

static void cancel(struct cairn_load *load)
{
    char cause[CAUSE_MAX];
    (void)snprintf(cause, sizeof cause, "the load of %.300s was cancelled", load->path);
    LOCK_SCOPE(&load->lock);
    if (load->queue.current || load->active > 0) {
        load_fail_locked(load, -ECANCELED, cause);
        load_cancel_locked(load);
    }
}

int cairn_load_cancel(cairn_load *load)
{
    TRY(lane_call(load->lane));
    cancel(load);
    return 0;
}

static void free_memory(struct cairn_load *load)
{
    struct load_batch *batch;
    while ((batch = STAILQ_FIRST(&load->queue.batches))) {
        STAILQ_REMOVE_HEAD(&load->queue.batches, link);
        load_batch_free(batch);
    }
    free(load->path);
    free(load);
}

/* A child does not close the descriptor: the mount would notice that. */
void cairn_load_free(cairn_load *load)
{
    if (!load)
        return;
    struct cairn_lane *lane = load->lane;
    if (lane_check(lane) == 0) {
        cancel(load);
        load_stop(load);
        (void)close(load->fd);
        if (load->direct_fd >= 0)
            (void)close(load->direct_fd);
        mutex_done(&load->lock);
        (void)pthread_cond_destroy(&load->work);
        (void)pthread_cond_destroy(&load->changed);
    }
    free_memory(load);
    mutex_lock(&lane->lock);
    lane->refs--;
    lane_unlock_last(lane);
}
