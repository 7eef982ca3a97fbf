/* How safe a published file is: CAIRN_NVME and CAIRN_REMOTE. On CairnFS the mount tells (user.cairn.level); elsewhere fsync does. */
#include "client/client.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "base/clock.h"

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

/* The level that the mount tells; -1: none does. */
static int asked_level(const struct cairn_save *save)
{
    char text[32];
    ssize_t n = getxattr(save->draft.path, "user.cairn.level", text, sizeof text - 1);
    if (n < 0)
        return -errno;
    text[n] = '\0';
    return strcmp(text, "remote") == 0 ? CAIRN_REMOTE : strcmp(text, "nvme") == 0 ? CAIRN_NVME : CAIRN_PUBLISHED;
}

static int ask_until(const struct cairn_save *save, enum cairn_level level, int64_t deadline)
{
    for (;;) {
        int have = asked_level(save);
        if (have < 0) {
            cause_note("%s: the mount does not tell its level: %s", save->draft.path, strerror(-have));
            return have;
        }
        if (have >= (int)level)
            return 0;
        if (deadline >= 0 && clock_monotonic_ns() >= deadline) {
            cause_note("%s is not that far yet", save->draft.path);
            return -ETIMEDOUT;
        }
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

static int reach(const struct cairn_save *save, enum cairn_level level, int64_t deadline)
{
    if (level == CAIRN_REMOTE && (!save->draft.on_cairn || has_no_remote(save))) {
        cause_note("%s is on no mount with a remote", save->draft.path);
        return -ENODATA;
    }
    int r = save->draft.on_cairn && deadline >= 0 ? 0 : sync_file(save);
    return r == 0 && save->draft.on_cairn ? ask_until(save, level, deadline) : r;
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
