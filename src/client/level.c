// SPDX-License-Identifier: Apache-2.0
/* How safe a published file is: CAIRN_NVME and CAIRN_REMOTE. An fsync of file and folder brings it to the disk, on CairnFS at once, too, and not
 * when writeback comes to it; there the mount tells the level (user.cairn.level).
 *
 * An fsync takes as long as the filesystem makes it, and who waits may have a timeout: the thread "cairn-sync" calls it, for one save after the
 * other. */
#include "client/client.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "base/clock.h"
#include "base/pool.h"

#define ASK_MS 20 /* between two questions */

/* The file that this save published, for reading. -ESTALE: another has the name now. */
static int open_published(const struct cairn_save *save)
{
    struct stat st;
    int fd = open(save->draft.path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    int r = fd < 0 || fstat(fd, &st) < 0 ? -errno : 0;
    if (r == 0 && (st.st_dev != save->dev || st.st_ino != save->ino))
        r = -ESTALE;
    if (r == 0)
        return fd;
    cause_note("%s: %s", save->draft.path, r == -ESTALE ? "another file has the name now" : strerror(-r));
    if (fd >= 0)
        (void)close(fd);
    return r;
}

static int sync_folder(const char *path)
{
    _cleanup_free_ char *folder = strdup(path);
    if (!folder)
        return -ENOMEM;
    char *slash = strrchr(folder, '/');
    slash[slash == folder] = '\0';
    _cleanup_close_ int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 || fsync(fd) < 0 ? -errno : 0;
}

static int sync_file(const struct cairn_save *save)
{
    _cleanup_close_ int fd = open_published(save);
    if (fd < 0)
        return fd;
    int r = fsync(fd) < 0 ? -errno : sync_folder(save->draft.path);
    if (r < 0)
        cause_note("fsync %s: %s", save->draft.path, strerror(-r));
    return r;
}

/* --- the thread ------------------------------------------------------------------------------------------------------- */

static void synced_locked(struct cairn_save *save, int r)
{
    save->sync = SYNC_DONE;
    save->sync_error = r;
    (void)snprintf(save->sync_cause, sizeof save->sync_cause, "%s", r < 0 ? cause_text() : "");
    (void)pthread_cond_broadcast(&save->lane->changed);
}

static void sync_one_locked(struct cairn_save *save)
{
    mutex_unlock(&save->lane->lock);
    cause_clear();
    int r = sync_file(save);
    mutex_lock(&save->lane->lock);
    synced_locked(save, r);
}

static void give_up_locked(struct cairn_save *save)
{
    cause_note("%s: the lane was closed meanwhile", save->draft.path);
    synced_locked(save, -ECANCELED);
}

void *syncer_run(void *arg)
{
    struct cairn_lane *lane = arg;
    mutex_lock(&lane->lock);
    while (!lane->stopping || lane->to_sync) {
        struct cairn_save *save = lane->to_sync;
        if (!save) {
            (void)mutex_wait(&lane->lock, &lane->sync_work, -1);
            continue;
        }
        lane->to_sync = save->next_to_sync;
        if (lane->stopping)
            give_up_locked(save);
        else
            sync_one_locked(save);
        save_unref_locked(save);
    }
    mutex_unlock(&lane->lock);
    return NULL;
}

/* Of a save whose last fsync failed another one is asked for. */
static int ask_for_sync_locked(struct cairn_save *save)
{
    struct cairn_lane *lane = save->lane;
    if (save->sync == SYNC_ASKED || (save->sync == SYNC_DONE && save->sync_error == 0))
        return 0;
    if (lane->stopping) { /* the save has outlived its lane, which has no threads any more */
        sync_one_locked(save);
        return 0;
    }
    int r = lane->has_syncer ? 0 : thread_start(&lane->syncer, "cairn-sync", syncer_run, lane);
    if (r < 0) {
        cause_note("no thread can be started: %s", strerror(-r));
        return r;
    }
    lane->has_syncer = true;
    struct cairn_save **link = &lane->to_sync;
    while (*link)
        link = &(*link)->next_to_sync;
    *link = save;
    save->next_to_sync = NULL;
    save->sync = SYNC_ASKED;
    save->refs++;
    (void)pthread_cond_signal(&lane->sync_work);
    return 0;
}

static int not_yet(const struct cairn_save *save)
{
    cause_note("%s is not that far yet", save->draft.path);
    return -ETIMEDOUT;
}

static int wait_for_sync(struct cairn_save *save, int64_t deadline)
{
    LOCK_SCOPE(&save->lane->lock);
    int r = ask_for_sync_locked(save);
    while (r == 0 && save->sync == SYNC_ASKED)
        if (!wait_changed_locked(save->lane, deadline) && save->sync == SYNC_ASKED)
            return not_yet(save);
    if (r < 0 || save->sync_error == 0)
        return r;
    cause_note("%s", save->sync_cause);
    return save->sync_error;
}

/* --- what a mount tells ----------------------------------------------------------------------------------------------- */

static int asked_level(const struct cairn_save *save)
{
    char text[32];
    _cleanup_close_ int fd = open_published(save);
    if (fd < 0)
        return fd;
    ssize_t n = fgetxattr(fd, "user.cairn.level", text, sizeof text - 1);
    if (n < 0) {
        int r = -errno;
        cause_note("%s: the mount does not tell its level: %s", save->draft.path, strerror(-r));
        return r;
    }
    text[n] = '\0';
    return strcmp(text, "remote") == 0 ? CAIRN_REMOTE : strcmp(text, "nvme") == 0 ? CAIRN_NVME : CAIRN_PUBLISHED;
}

static int ask_until(const struct cairn_save *save, enum cairn_level level, int64_t deadline)
{
    for (;;) {
        int have = asked_level(save);
        if (have < 0)
            return have;
        if (have >= (int)level)
            return 0;
        if (deadline >= 0 && clock_monotonic_ns() >= deadline)
            return not_yet(save);
        (void)usleep(ASK_MS * 1000);
    }
}

/* Reads the mount's own report, "1 stage=BYTES remote=0|1". */
static bool has_no_remote(const struct cairn_save *save)
{
    char text[256];
    ssize_t n = getxattr(save->draft.path, "user.cairn.lane", text, sizeof text - 1);
    text[n < 0 ? 0 : n] = '\0';
    return strstr(text, "remote=0") != NULL;
}

static int reach(struct cairn_save *save, enum cairn_level level, int64_t deadline)
{
    if (level == CAIRN_REMOTE && (!draft_on_cairn(&save->draft) || has_no_remote(save))) {
        cause_note("%s is on no mount with a remote", save->draft.path);
        return -ENODATA;
    }
    int r = wait_for_sync(save, deadline);
    return r == 0 && draft_on_cairn(&save->draft) ? ask_until(save, level, deadline) : r;
}

int level_wait(struct cairn_save *save, enum cairn_level level, int64_t deadline)
{
    if (!save->draft.name)
        return 0; /* a device or a stream */
    int r = reach(save, level, deadline);
    LOCK_SCOPE(&save->lane->lock);
    if (r == 0 && save->level < (int)level)
        save->level = (int)level;
    return r;
}
