// SPDX-License-Identifier: Apache-2.0
/* The level of a published file: CAIRN_NVME and CAIRN_REMOTE. An fsync of file and directory brings
 * it to the disk, on CairnFS at once, too, and not when writeback comes to it; there the mount
 * tells the level (user.cairn.level).
 *
 * A filesystem takes as long as it likes for an fsync or an answer, and a caller that waits may
 * have a timeout: the thread "cairn-sync" asks, for one save after the other, as long as a caller
 * waits. */
#include "client/client.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "base/clock.h"
#include "base/pool.h"
#include "client/moved.h"

#define ASK_MS 20 /* between two questions */

static bool is_of_save(const struct cairn_save *save, int fd)
{
    struct stat st;
    return fstat(fd, &st) == 0 && st.st_dev == save->dev && st.st_ino == save->ino;
}

/* The file that this save published, for reading, also if it or its directory was renamed since.
 * -ESTALE: another file has the name now, and this one has none; -ENOENT: no file has it. */
static int open_published(const struct cairn_save *save)
{
    struct stat st = {.st_dev = save->dev,
                      .st_ino = save->ino,
                      .st_size = (off_t)save->bytes,
                      .st_mtim = save->mtime};
    int fd = open(save->draft.path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    int r = fd < 0 ? -errno : 0;
    if (r == 0 && is_of_save(save, fd))
        return fd;
    if (r == 0) {
        (void)close(fd);
        r = -ESTALE;
    }
    fd = r == -ESTALE || r == -ENOENT || r == -ENOTDIR || r == -ELOOP
             ? moved_open(save->draft.path, &st)
             : r;
    if (fd < 0)
        cause_note("%s: %s", save->draft.path,
                   r == -ESTALE ? "another file has the name now" : strerror(-r));
    return fd < 0 ? r : fd;
}

/* The directory that names an open file now. */
static int sync_directory(int file)
{
    char self[64], path[PATH_MAX];
    (void)snprintf(self, sizeof self, "/proc/self/fd/%d", file);
    ssize_t n = readlink(self, path, sizeof path - 1);
    if (n <= 0)
        return n < 0 ? -errno : -ENOENT;
    path[n] = '\0';
    char *slash = strrchr(path, '/');
    if (!slash)
        return -ENOENT;
    slash[slash == path] = '\0';
    _cleanup_close_ int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 || fsync(fd) < 0 ? -errno : 0;
}

static int sync_file(const struct cairn_save *save, int fd)
{
    int r = fsync(fd) < 0 ? -errno : sync_directory(fd);
    if (r < 0)
        cause_note("fsync %s: %s", save->draft.path, strerror(-r));
    return r;
}

/* --- what a mount tells ----------------------------------------------------------------------- */

static int asked_level(const struct cairn_save *save, int fd)
{
    char text[32];
    ssize_t n = fgetxattr(fd, "user.cairn.level", text, sizeof text - 1);
    if (n < 0) {
        int r = -errno;
        cause_note("%s: the mount does not tell its level: %s", save->draft.path, strerror(-r));
        return r;
    }
    text[n] = '\0';
    return strcmp(text, "remote") == 0 ? CAIRN_REMOTE
           : strcmp(text, "nvme") == 0 ? CAIRN_NVME
                                       : CAIRN_PUBLISHED;
}

/* Reads the mount's own report, "1 stage=BYTES remote=0|1". */
static bool has_no_remote(int fd)
{
    char text[256];
    ssize_t n = fgetxattr(fd, "user.cairn.lane", text, sizeof text - 1);
    text[n < 0 ? 0 : n] = '\0';
    return strstr(text, "remote=0") != NULL;
}

/* One step towards the level: the one that is reached now, or an error. */
static int step_to_level(struct cairn_save *save, enum cairn_level level, bool is_synced)
{
    bool on_cairn = draft_on_cairn(&save->draft);
    _cleanup_close_ int fd = open_published(save);
    if (level == CAIRN_REMOTE && (!on_cairn || (fd >= 0 && has_no_remote(fd)))) {
        cause_note("%s is on no mount with a remote", save->draft.path);
        return -ENODATA;
    }
    if (fd < 0)
        return fd;
    int r = is_synced ? 0 : sync_file(save, fd);
    if (r < 0)
        return r;
    return on_cairn ? asked_level(save, fd) : CAIRN_NVME;
}

/* --- the thread ------------------------------------------------------------------------------- */

/* Does a caller wait for a level that the save has not reached? */
static bool is_wanted_locked(const struct cairn_save *save)
{
    check_held(&save->lane->lock);
    return (save->sync.waiters[CAIRN_NVME] && save->level < CAIRN_NVME) ||
           (save->sync.waiters[CAIRN_REMOTE] && save->level < CAIRN_REMOTE);
}

/* Ends the waits for that level, and those above it. */
static void fail_waits_locked(struct cairn_save *save, enum cairn_level level, int error,
                              const char *cause)
{
    check_held(&save->lane->lock);
    save->sync.error = error;
    (void)snprintf(save->sync.cause, sizeof save->sync.cause, "%s", cause);
    for (int i = level; i <= CAIRN_REMOTE; i++)
        save->sync.failures[i]++;
}

/* Answers waiters for the remote first, for there may be none. False: nothing is left to wait for.
 */
static bool step_locked(struct cairn_save *save)
{
    check_held(&save->lane->lock);
    enum cairn_level level = save->sync.waiters[CAIRN_REMOTE] ? CAIRN_REMOTE : CAIRN_NVME;
    bool is_synced = save->sync.is_synced;
    mutex_unlock(&save->lane->lock);
    cause_clear();
    int r = step_to_level(save, level, is_synced);
    mutex_lock(&save->lane->lock);
    bool is_of_remote = level == CAIRN_REMOTE && r == -ENODATA;
    if (r < 0)
        fail_waits_locked(save, is_of_remote ? CAIRN_REMOTE : CAIRN_NVME, r, cause_text());
    save->sync.is_synced = save->sync.is_synced || r >= 0;
    if (r >= CAIRN_NVME && r > save->level)
        save->level = r;
    (void)pthread_cond_broadcast(&save->lane->changed);
    return (r >= 0 || is_of_remote) && is_wanted_locked(save);
}

static void queue_locked(struct cairn_save *save)
{
    check_held(&save->lane->lock);
    struct cairn_save **link = &save->lane->to_sync;
    while (*link)
        link = &(*link)->sync.next;
    *link = save;
    save->sync.next = NULL;
}

static void give_up_level_locked(struct cairn_save *save)
{
    check_held(&save->lane->lock);
    char cause[CAUSE_MAX];
    (void)snprintf(cause, sizeof cause, "%.250s: the lane was closed meanwhile", save->draft.path);
    fail_waits_locked(save, CAIRN_NVME, -ECANCELED, cause);
    (void)pthread_cond_broadcast(&save->lane->changed);
}

/* Takes one step of the first save in the queue, and puts it back while a caller waits for it. */
static void sync_first_locked(struct cairn_lane *lane)
{
    check_held(&lane->lock);
    struct cairn_save *save = lane->to_sync;
    lane->to_sync = save->sync.next;
    bool goes_on = !lane->stopping && is_wanted_locked(save) && step_locked(save);
    if (goes_on) {
        queue_locked(save);
        (void)mutex_wait(&lane->lock, &lane->sync_work, ASK_MS);
        return;
    }
    if (lane->stopping)
        give_up_level_locked(save);
    save->sync.is_queued = false;
    save_unref_locked(save);
}

void *syncer_main(void *arg)
{
    struct cairn_lane *lane = arg;
    mutex_lock(&lane->lock);
    while (!lane->stopping || lane->to_sync) {
        if (lane->to_sync)
            sync_first_locked(lane);
        else
            (void)mutex_wait(&lane->lock, &lane->sync_work, -1);
    }
    mutex_unlock(&lane->lock);
    return NULL;
}

/* --- the call --------------------------------------------------------------------------------- */

static int ask_locked(struct cairn_save *save)
{
    check_held(&save->lane->lock);
    struct cairn_lane *lane = save->lane;
    int r = lane->has_syncer ? 0 : thread_start(&lane->syncer, "cairn-sync", syncer_main, lane);
    if (r < 0) {
        cause_note("no thread can be started: %s", strerror(-r));
        return r;
    }
    lane->has_syncer = true;
    if (!save->sync.is_queued) {
        save->sync.is_queued = true;
        save->refs++;
        queue_locked(save);
    }
    (void)pthread_cond_signal(&lane->sync_work);
    return 0;
}

/* False: the deadline has passed. A save that has outlived its lane has no thread any more. */
static bool wait_for_step_locked(struct cairn_save *save, int64_t deadline)
{
    check_held(&save->lane->lock);
    if (!save->lane->stopping)
        return wait_changed_locked(save->lane, deadline);
    if (step_locked(save))
        (void)mutex_wait(&save->lane->lock, &save->lane->sync_work, ASK_MS);
    return deadline < 0 || clock_monotonic_ns() < deadline;
}

static int wait_for_level_locked(struct cairn_save *save, enum cairn_level level, int64_t deadline)
{
    check_held(&save->lane->lock);
    unsigned failures = save->sync.failures[level];
    int r = save->lane->stopping ? 0 : ask_locked(save);
    if (r < 0)
        return r;
    while (save->level < (int)level && save->sync.failures[level] == failures &&
           wait_for_step_locked(save, deadline)) {
    }
    if (save->level >= (int)level)
        return 0;
    if (save->sync.failures[level] == failures) {
        cause_note("%s is not that far yet", save->draft.path);
        return -ETIMEDOUT;
    }
    cause_note("%s", save->sync.cause);
    return save->sync.error;
}

int level_wait(struct cairn_save *save, enum cairn_level level, int64_t deadline)
{
    if (!save->draft.name)
        return 0; /* a device or a stream */
    LOCK_SCOPE(&save->lane->lock);
    save->sync.waiters[level]++;
    int r = wait_for_level_locked(save, level, deadline);
    save->sync.waiters[level]--;
    return r;
}
