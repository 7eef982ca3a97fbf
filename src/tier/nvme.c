/* A tier in a local directory. Order of a put: the content is durable (fdatasync) before the file gets its
 * name, the name is durable after sync() (fsync of the folder). A failed fdatasync says nothing about later
 * ones, so nothing is ever tried twice on the same file: it is removed, and the caller, who has the bytes,
 * writes them anew. */
#include "tier/tier.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "base/io.h"
#include "base/lock.h"
#include "tier/fd_cache.h"
#include "tier/room.h"

#define READ_FDS_MAX 64u
#define LOG_FDS_MAX 16u
#define IO_ALIGN 4096u

/* A folder with names that are not durable yet. */
struct dirty {
    char *folder;
    struct dirty *next;
};

struct nvme {
    struct tier tier;
    int root_fd;
    struct room *room;
    struct fd_cache *reads, *logs;
    pthread_cond_t synced;
    struct {
        struct cairn_mutex lock;
        struct dirty *dirty;
        bool syncing;
        int sync_error; /* sticky: names may be lost that no later fsync would bring back */
    } locked;
};

static struct nvme *nvme_of(struct tier *tier)
{
    return container_of(tier, struct nvme, tier);
}

/* Length of the part of `object` that names its folder; 0: the tier's own folder. */
static size_t folder_len(const char *object)
{
    const char *slash = strrchr(object, '/');
    return slash ? (size_t)(slash - object) : 0;
}

static void check_name(const char *object)
{
    check(object[0] != '\0' && object[0] != '/' && !strstr(object, ".."));
}

/* `folder`: the first `len` bytes; 0: the tier's own folder. */
static void mark_folder(struct nvme *n, const char *folder, size_t len)
{
    struct dirty *fresh = xcalloc(1, sizeof *fresh);
    fresh->folder = xstrdup(len ? folder : ".");
    if (len)
        fresh->folder[len] = '\0';
    mutex_lock(&n->locked.lock);
    struct dirty *d = n->locked.dirty;
    while (d && strcmp(d->folder, fresh->folder) != 0)
        d = d->next;
    if (!d) {
        fresh->next = n->locked.dirty;
        n->locked.dirty = fresh;
    }
    mutex_unlock(&n->locked.lock);
    if (d) {
        free(fresh->folder);
        free(fresh);
    }
}

/* All folders on the way: another thread may have made one just now and not have marked what is above it yet.
 * Those directly in the tier's folder were made durable when it was opened, or are marked by make_folder().
 */
static void mark_dirty(struct nvme *n, const char *object)
{
    const char *slash = strchr(object, '/');
    if (!slash)
        mark_folder(n, object, 0);
    for (; slash; slash = strchr(slash + 1, '/'))
        mark_folder(n, object, (size_t)(slash - object));
}

static int make_folder(struct nvme *n, const char *folder)
{
    if (mkdirat(n->root_fd, folder, 0700) == 0) {
        mark_folder(n, folder, folder_len(folder));
        return 0;
    }
    return errno == EEXIST ? 0 : -errno;
}

/* Makes all folders above `object`. */
static int make_parents(struct nvme *n, const char *object)
{
    _cleanup_free_ char *path = xstrdup(object);
    for (char *slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        int r = make_folder(n, path);
        if (r < 0)
            return r;
        *slash = '/';
    }
    return 0;
}

/* Gives the finished file its name. */
static int place(struct nvme *n, struct room_file *file, const char *object)
{
    int r = room_file_move(n->room, file, object);
    if (r == -ENOENT) {
        r = make_parents(n, object);
        if (r == 0)
            r = room_file_move(n->room, file, object);
    }
    if (r == 0)
        mark_dirty(n, object);
    return r;
}

/* Some filesystems open with O_DIRECT and then refuse the write. */
static int write_content(struct room_file *file, const void *buf, size_t len)
{
    int r = io_pwrite_full(file->fd, buf, align_up(len, IO_ALIGN), 0);
    if (r == -EINVAL && file->direct) {
        if (fcntl(file->fd, F_SETFL, 0) < 0)
            return -errno;
        file->direct = false;
        r = io_pwrite_full(file->fd, buf, len, 0);
    }
    if (r == 0 && ftruncate(file->fd, (off_t)len) < 0)
        r = -errno;
    if (r == 0 && fdatasync(file->fd) < 0)
        r = -errno;
    return r;
}

static int nvme_put(struct tier *tier, const char *object, const void *buf, size_t len)
{
    struct nvme *n = nvme_of(tier);
    check_name(object);
    check((uintptr_t)buf % IO_ALIGN == 0);
    struct stat st;
    if (fstatat(n->root_fd, object, &st, AT_SYMLINK_NOFOLLOW) == 0)
        return -EEXIST;
    struct room_file file;
    int r = room_take(n->room, align_up(len, IO_ALIGN), true, &file);
    if (r < 0)
        return r;
    r = write_content(&file, buf, len);
    if (r == 0)
        r = place(n, &file, object);
    room_file_done(n->room, &file);
    return r;
}

static int nvme_get_range(struct tier *tier, const char *object, uint64_t offset, void *buf, size_t len)
{
    struct nvme *n = nvme_of(tier);
    check_name(object);
    struct fd_entry *entry;
    int r = fd_cache_get(n->reads, object, &entry);
    if (r < 0)
        return r;
    r = offset > INT64_MAX - len ? -EUCLEAN : io_pread_full(entry->fd, buf, len, offset);
    fd_cache_put(n->reads, entry);
    return r;
}

static int nvme_stat(struct tier *tier, const char *object, uint64_t *ret_len)
{
    struct nvme *n = nvme_of(tier);
    struct stat st;
    check_name(object);
    if (fstatat(n->root_fd, object, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode))
        return -ENOENT;
    *ret_len = (uint64_t)st.st_size;
    return 0;
}

typedef int (*list_fn)(const char *object, uint64_t len, void *arg);

static int list_folder(struct nvme *n, const char *folder, list_fn fn, void *arg);

static int list_entry(struct nvme *n, int dir_fd, const char *folder, const char *name, list_fn fn, void *arg)
{
    if (name[0] == '.')
        return 0;
    struct stat st;
    if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : -errno; /* removed meanwhile */
    _cleanup_free_ char *object = xasprintf("%s/%s", folder, name);
    if (S_ISDIR(st.st_mode))
        return list_folder(n, object, fn, arg);
    return S_ISREG(st.st_mode) ? fn(object, (uint64_t)st.st_size, arg) : 0;
}

/* A folder that is not there holds nothing: folders are not objects. */
static int list_folder(struct nvme *n, const char *folder, list_fn fn, void *arg)
{
    int fd = openat(n->root_fd, folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return errno == ENOENT ? 0 : -errno;
    DIR *dir = fdopendir(fd);
    if (!dir) {
        int r = -errno;
        (void)close(fd);
        return r;
    }
    int r = 0;
    while (r >= 0) {
        errno = 0;
        struct dirent *d = readdir(dir);
        if (!d) {
            r = -errno;
            break;
        }
        r = list_entry(n, fd, folder, d->d_name, fn, arg);
    }
    (void)closedir(dir);
    return r < 0 ? r : 0;
}

static int nvme_list(struct tier *tier, const char *folder, list_fn fn, void *arg)
{
    check_name(folder);
    return list_folder(nvme_of(tier), folder, fn, arg);
}

static int nvme_remove(struct tier *tier, const char *object)
{
    struct nvme *n = nvme_of(tier);
    check_name(object);
    int r = unlinkat(n->root_fd, object, 0) < 0 ? -errno : 0;
    if (r < 0 && r != -ENOENT)
        return r;
    fd_cache_forget(n->reads, object);
    fd_cache_forget(n->logs, object);
    if (r == 0)
        mark_dirty(n, object);
    return 0;
}

static int sync_folder(struct nvme *n, const char *folder)
{
    _cleanup_close_ int fd = openat(n->root_fd, folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    return fd < 0 || fsync(fd) < 0 ? -errno : 0;
}

/* One at a time: a second caller must not return while the first one's fsync of its names is still under way.
 */
static int begin_sync(struct nvme *n, struct dirty **ret_dirty)
{
    LOCK_SCOPE(&n->locked.lock);
    while (n->locked.syncing)
        (void)mutex_wait(&n->locked.lock, &n->synced, -1);
    if (n->locked.sync_error < 0)
        return n->locked.sync_error;
    n->locked.syncing = true;
    *ret_dirty = n->locked.dirty;
    n->locked.dirty = NULL;
    return 0;
}

static void end_sync(struct nvme *n, int r)
{
    LOCK_SCOPE(&n->locked.lock);
    n->locked.syncing = false;
    n->locked.sync_error = r;
    (void)pthread_cond_broadcast(&n->synced);
}

static void free_dirty(struct dirty *d)
{
    while (d) {
        struct dirty *next = d->next;
        free(d->folder);
        free(d);
        d = next;
    }
}

static int nvme_sync(struct tier *tier)
{
    struct nvme *n = nvme_of(tier);
    struct dirty *dirty = NULL;
    int r = begin_sync(n, &dirty);
    if (r < 0)
        return r;
    for (struct dirty *d = dirty; d && r == 0; d = d->next)
        r = sync_folder(n, d->folder);
    free_dirty(dirty);
    end_sync(n, r);
    return r;
}

/* A log is made under another name: one that is there is whole. */
static int nvme_log_create(struct tier *tier, const char *object, uint64_t room)
{
    struct nvme *n = nvme_of(tier);
    check_name(object);
    struct room_file file;
    int r = room_take(n->room, room, false, &file);
    if (r < 0)
        return r;
    if (ftruncate(file.fd, (off_t)room) < 0 || fsync(file.fd) < 0)
        r = -errno;
    if (r == 0)
        r = place(n, &file, object);
    room_file_done(n->room, &file);
    return r < 0 ? r : nvme_sync(tier);
}

static int nvme_log_append(struct tier *tier, const char *object, uint64_t offset, const void *buf,
                           size_t len)
{
    struct nvme *n = nvme_of(tier);
    check_name(object);
    struct fd_entry *entry;
    int r = fd_cache_get(n->logs, object, &entry);
    if (r < 0)
        return r;
    r = io_pwrite_full(entry->fd, buf, len, offset);
    if (r == 0 && fdatasync(entry->fd) < 0)
        r = -errno;
    if (r < 0)
        fd_cache_fail(n->logs, entry);
    fd_cache_put(n->logs, entry);
    return r;
}

static int nvme_reserve(struct tier *tier, uint64_t bytes, uint64_t *ret_held)
{
    return room_reserve(nvme_of(tier)->room, bytes, ret_held);
}

static int nvme_space(struct tier *tier, struct tier_space *ret_space)
{
    struct statvfs s;
    if (fstatvfs(nvme_of(tier)->root_fd, &s) < 0)
        return -errno;
    ret_space->total_bytes = (uint64_t)s.f_blocks * s.f_frsize;
    ret_space->free_bytes = (uint64_t)s.f_bavail * s.f_frsize;
    return 0;
}

static void nvme_close(struct tier *tier)
{
    struct nvme *n = nvme_of(tier);
    fd_cache_free(n->reads);
    fd_cache_free(n->logs);
    room_close(n->room);
    free_dirty(n->locked.dirty);
    mutex_done(&n->locked.lock);
    (void)pthread_cond_destroy(&n->synced);
    (void)close(n->root_fd);
    free(n);
}

static const struct tier_ops nvme_ops = {
    .name = "nvme",
    .close = nvme_close,
    .put = nvme_put,
    .put_new = nvme_put, /* put() replaces nothing either */
    .get_range = nvme_get_range,
    .stat = nvme_stat,
    .list = nvme_list,
    .remove = nvme_remove,
    .sync = nvme_sync,
    .log_create = nvme_log_create,
    .log_append = nvme_log_append,
    .reserve = nvme_reserve,
    .space = nvme_space,
};

static int prepare(struct nvme *n)
{
    static const char *const folders[] = {"packs", "journal", ROOM_FOLDER};
    for (size_t i = 0; i < ARRAY_LEN(folders); i++) {
        int r = make_folder(n, folders[i]);
        if (r < 0)
            return r;
    }
    int r = room_open(n->root_fd, &n->room);
    return r < 0 ? r : nvme_sync(&n->tier);
}

int nvme_tier_open(const char *path, struct tier **ret_tier)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    struct nvme *n = xcalloc(1, sizeof *n);
    n->tier.ops = &nvme_ops;
    n->root_fd = fd;
    n->reads = fd_cache_new(fd, O_RDONLY, READ_FDS_MAX);
    n->logs = fd_cache_new(fd, O_WRONLY, LOG_FDS_MAX);
    mutex_init(&n->locked.lock, LOCK_LEAF);
    cond_init(&n->synced);
    int r = prepare(n);
    if (r < 0) {
        nvme_close(&n->tier);
        return r;
    }
    *ret_tier = &n->tier;
    return 0;
}
