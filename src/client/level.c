// SPDX-License-Identifier: Apache-2.0
#include "client/level.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "base/clock.h"
#include "client/lane.h"
#include "client/moved.h"

#define ASK_MS 20 /* interval of polls */

/* Opens the file that this save published, for reading, also if the file or its directory was
 * renamed since. -ESTALE: another file has its name, and it has none; -ENOENT: not found. */
static int open_published(const struct cairn_save *save)
{
    const struct stat *file = &save->publishing.file;
    struct stat st;
    int r = -ESTALE;
    int fd = open(save->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        r = -errno;
    else if (fstat(fd, &st) == 0 && st.st_dev == file->st_dev && st.st_ino == file->st_ino)
        return fd;
    else
        (void)close(fd);
    if (r == -ESTALE || r == -ENOENT || r == -ENOTDIR || r == -ELOOP) {
        fd = moved_open(save->path, file);
        if (fd >= 0)
            return fd;
    }
    cause_note("%s: %s", save->path, r == -ESTALE ? "another file has the name now" : strerror(-r));
    return r;
}

/* Syncs the directory that contains the open file now. */
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
        cause_note("fsync %s: %s", save->path, strerror(-r));
    return r;
}

/* --- the mount's answers ---------------------------------------------------------------------- */

static int asked_level(const struct cairn_save *save, int fd)
{
    char text[32];
    ssize_t n = fgetxattr(fd, "user.cairn.level", text, sizeof text - 1);
    if (n < 0) {
        int r = -errno;
        cause_note("%s: the mount does not tell its level: %s", save->path, strerror(-r));
        return r;
    }
    text[n] = '\0';
    return strcmp(text, "remote") == 0 ? CAIRN_REMOTE
           : strcmp(text, "nvme") == 0 ? CAIRN_NVME
                                       : CAIRN_PUBLISHED;
}

/* Reads the mount's own report, "1 stage=BYTES remote=0|1 loads=N". */
static bool has_no_remote(int fd)
{
    char text[256];
    ssize_t n = fgetxattr(fd, "user.cairn.lane", text, sizeof text - 1);
    text[n < 0 ? 0 : n] = '\0';
    return strstr(text, "remote=0") != NULL;
}

/* Makes one step towards the level: returns the level reached now, or an error. */
static int step_to_level(struct cairn_save *save, enum cairn_level level, bool is_synced)
{
    bool on_cairn = draft_on_cairn(&save->publishing.draft);
    _cleanup_close_ int fd = open_published(save);
    if (level == CAIRN_REMOTE && (!on_cairn || (fd >= 0 && has_no_remote(fd)))) {
        cause_note("%s is on no mount with a remote", save->path);
        return -ENODATA;
    }
    if (fd < 0)
        return fd;
    TRY(is_synced ? 0 : sync_file(save, fd));
    return on_cairn ? asked_level(save, fd) : CAIRN_NVME;
}

/* --- the thread ------------------------------------------------------------------------------- */

/* Does a caller wait for a level that the save has not reached? */
static bool is_wanted_locked(const struct cairn_save *save)
{
    check_held(&save->lane->lock);
    return (save->levels.waiters[CAIRN_NVME] && save->levels.reached < CAIRN_NVME) ||
           (save->levels.waiters[CAIRN_REMOTE] && save->levels.reached < CAIRN_REMOTE);
}

/* Ends the waits for that level and higher ones. */
static void fail_waits_locked(struct cairn_save *save, enum cairn_level level, int error,
                              const char *cause)
{
    check_held(&save->lane->lock);
    save->levels.error = error;
    (void)snprintf(save->levels.cause, sizeof save->levels.cause, "%s", cause);
    for (int i = level; i <= CAIRN_REMOTE; i++)
        save->levels.failures[i]++;
}

/* Answers waiters for the remote first, as there may be no remote. False: nothing is left to wait
 * for. */
static bool step_locked(struct cairn_save *save)
{
    check_held(&save->lane->lock);
    enum cairn_level level = save->levels.waiters[CAIRN_REMOTE] ? CAIRN_REMOTE : CAIRN_NVME;
    bool is_synced = save->levels.is_synced;
    mutex_unlock(&save->lane->lock);
    cause_clear();
    int r = step_to_level(save, level, is_synced);
    mutex_lock(&save->lane->lock);
    bool is_of_remote = level == CAIRN_REMOTE && r == -ENODATA;
    if (r < 0)
        fail_waits_locked(save, is_of_remote ? CAIRN_REMOTE : CAIRN_NVME, r, cause_text());
    save->levels.is_synced = save->levels.is_synced || r >= 0;
    if (r >= CAIRN_NVME && r > save->levels.reached)
        save->levels.reached = r;
    (void)pthread_cond_broadcast(&save->lane->changed);
    return (r >= 0 || is_of_remote) && is_wanted_locked(save);
}

static void give_up_level_locked(struct cairn_save *save)
{
    check_held(&save->lane->lock);
    char cause[CAUSE_MAX];
    (void)snprintf(cause, sizeof cause, "%.250s: the lane was closed meanwhile", save->path);
    fail_waits_locked(save, CAIRN_NVME, -ECANCELED, cause);
    (void)pthread_cond_broadcast(&save->lane->changed);
}

/* Makes one step for the first save in the queue, and queues it again while a caller waits for
 * it. */
static void sync_first_locked(struct cairn_lane *lane)
{
    check_held(&lane->lock);
    struct syncer *syncer = &lane->syncer;
    struct cairn_save *save = TAILQ_FIRST(&syncer->queue);
    check(save->levels.is_queued && save->state == SAVE_PUBLISHED);
    TAILQ_REMOVE(&syncer->queue, save, levels.link);
    if (!lane->is_stopping && is_wanted_locked(save) && step_locked(save)) {
        TAILQ_INSERT_TAIL(&syncer->queue, save, levels.link);
        (void)mutex_wait(&lane->lock, &syncer->work, ASK_MS);
        return;
    }
    if (lane->is_stopping)
        give_up_level_locked(save);
    save->levels.is_queued = false;
    save_unref_locked(save);
}

static void *syncer_main(void *arg)
{
    struct cairn_lane *lane = arg;
    mutex_lock(&lane->lock);
    while (!lane->is_stopping || !TAILQ_EMPTY(&lane->syncer.queue)) {
        if (TAILQ_EMPTY(&lane->syncer.queue))
            (void)mutex_wait(&lane->lock, &lane->syncer.work, -1);
        else
            sync_first_locked(lane);
    }
    mutex_unlock(&lane->lock);
    return NULL;
}

/* --- the call --------------------------------------------------------------------------------- */

static int ask_locked(struct cairn_save *save)
{
    check_held(&save->lane->lock);
    struct syncer *syncer = &save->lane->syncer;
    TRY(lane_thread_start(&syncer->thread, "cairn-sync", syncer_main, save->lane));
    if (!save->levels.is_queued) {
        save->levels.is_queued = true;
        save->refs++;
        TAILQ_INSERT_TAIL(&syncer->queue, save, levels.link);
    }
    (void)pthread_cond_signal(&syncer->work);
    return 0;
}

/* False: the deadline has passed. A save that has outlived its lane has no thread any more. */
static bool wait_for_step_locked(struct cairn_save *save, int64_t deadline)
{
    check_held(&save->lane->lock);
    if (!save->lane->is_stopping)
        return wait_changed_locked(save->lane, deadline);
    if (step_locked(save))
        (void)mutex_wait(&save->lane->lock, &save->lane->syncer.work, ASK_MS);
    return deadline < 0 || clock_monotonic_ns() < deadline;
}

static int wait_for_level_locked(struct cairn_save *save, enum cairn_level level, int64_t deadline)
{
    check_held(&save->lane->lock);
    const struct levels *levels = &save->levels;
    unsigned failures = levels->failures[level];
    if (!save->lane->is_stopping)
        TRY(ask_locked(save));
    while (levels->reached < (int)level && levels->failures[level] == failures &&
           wait_for_step_locked(save, deadline)) {
    }
    if (levels->reached >= (int)level)
        return 0;
    if (levels->failures[level] == failures) {
        cause_note("%s is not that far yet", save->path);
        return -ETIMEDOUT;
    }
    cause_note("%s", levels->cause);
    return levels->error;
}

int level_wait(struct cairn_save *save, enum cairn_level level, int64_t deadline)
{
    if (!save->publishing.draft.name)
        return 0; /* a device or a stream */
    LOCK_SCOPE(&save->lane->lock);
    check(save->state == SAVE_PUBLISHED);
    save->levels.waiters[level]++;
    int r = wait_for_level_locked(save, level, deadline);
    save->levels.waiters[level]--;
    return r;
}
