// SPDX-License-Identifier: Apache-2.0
/* A tier in a local directory. Order of a put: the content is made durable (fdatasync) and read
 * back before the file gets its name; the name is durable after sync() (fsync of the directory).
 * After a failed fdatasync a later one proves nothing, so nothing is ever retried on the same file:
 * it is removed, and the caller, which has the bytes, writes them again. Likewise for a directory:
 * if its fsync fails, a new one replaces it (renew.c). */
#include "tier/tier.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "base/io.h"
#include "base/log.h"
#include "tier/fd_cache.h"
#include "tier/directories.h"
#include "tier/renew.h"
#include "tier/room.h"

#define READ_FDS_MAX 64u
#define LOG_FDS_MAX 16u
#define IO_ALIGN 4096u
#define VERIFY_STEP MIB
#define VERIFY_END (64 * KIB)

struct nvme {
    struct tier tier;
    int root_fd;
    struct room *room;
    struct directories *directories;
    struct fd_cache *reads, *logs;
};

static struct nvme *nvme_of(struct tier *tier)
{
    return container_of(tier, struct nvme, tier);
}

static void check_name(const char *object)
{
    check(object[0] != '\0' && object[0] != '/' && !strstr(object, ".."));
}

/* Moves the finished file to its name. */
static int place_nvme_file(struct nvme *n, struct room_file *file, const char *object)
{
    int r = room_file_move(n->room, file, object);
    if (r == -ENOENT) {
        TRY(directories_make_parents(n->directories, object));
        r = room_file_move(n->room, file, object);
    }
    if (r == 0)
        directories_touch(n->directories, object);
    return r;
}

/* Some filesystems open a file with O_DIRECT and then refuse the write. */
static int write_content(struct room_file *file, const void *buf, size_t len)
{
    int r = io_pwrite_full(file->fd, buf, align_up(len, IO_ALIGN), 0);
    if (r == -EINVAL && file->direct) {
        if (fcntl(file->fd, F_SETFL, 0) < 0)
            return -errno;
        file->direct = false;
        r = io_pwrite_full(file->fd, buf, len, 0);
    }
    TRY(r);
    return ftruncate(file->fd, (off_t)len) < 0 || fdatasync(file->fd) < 0 ? -errno : 0;
}

static int compare_nvme_part(int fd, const uint8_t *buf, uint8_t *read, size_t at, size_t len)
{
    int r = io_pread_full(fd, read, len, at);
    if (r == -EINVAL && fcntl(fd, F_SETFL, 0) == 0) /* as in write_content() */
        r = io_pread_full(fd, read, len, at);
    return r < 0 ? r : memcmp(read, buf + at, len) == 0 ? 0 : -EBADMSG;
}

/* Compares the bytes on the medium, read past the page cache if the filesystem allows it. A lost or
 * misplaced write affects a whole request, so comparing both ends and a page of each MiB detects
 * it, for a tenth of the time of reading all. */
static int verify_content(struct nvme *n, const struct room_file *file, const void *buf, size_t len)
{
    _cleanup_close_ int fd =
        openat(n->root_fd, file->path, O_RDONLY | O_DIRECT | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0 && errno == EINVAL)
        fd = openat(n->root_fd, file->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return -errno;
    _cleanup_free_ uint8_t *read = aligned_alloc(IO_ALIGN, VERIFY_END);
    check(read != NULL);
    size_t tail = len > VERIFY_END ? align_down(len - VERIFY_END, IO_ALIGN) : 0;
    int r = compare_nvme_part(fd, buf, read, 0, min_u64(len, VERIFY_END));
    for (size_t at = VERIFY_STEP; at < tail && r == 0; at += VERIFY_STEP)
        r = compare_nvme_part(fd, buf, read, at, IO_ALIGN);
    for (size_t at = tail; at < len && tail && r == 0; at += VERIFY_END)
        r = compare_nvme_part(fd, buf, read, at, min_u64(len - at, VERIFY_END));
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
    TRY(room_take(n->room, align_up(len, IO_ALIGN), true, &file));
    int r = write_content(&file, buf, len);
    if (r == 0)
        r = verify_content(n, &file, buf, len);
    if (r == 0)
        r = place_nvme_file(n, &file, object);
    room_file_done(n->room, &file);
    return r;
}

static int nvme_get_range(struct tier *tier, const char *object, uint64_t offset, void *buf,
                          size_t len)
{
    struct nvme *n = nvme_of(tier);
    check_name(object);
    struct fd_entry *entry;
    TRY(fd_cache_get(n->reads, object, &entry));
    int r = offset > INT64_MAX - len ? -EUCLEAN : io_pread_full(entry->fd, buf, len, offset);
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

struct listing {
    const char *after; /* NULL: all */
    int (*fn)(const struct tier_object *object, void *arg);
    void *arg;
};

static int nvme_list_directory(struct nvme *n, const char *directory, const struct listing *l);

static int nvme_list_entry(struct nvme *n, int dir_fd, const char *directory, const char *name,
                           const struct listing *l)
{
    if (name[0] == '.')
        return 0;
    struct stat st;
    if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : -errno; /* removed meanwhile */
    _cleanup_free_ char *object = xasprintf("%s/%s", directory, name);
    if (S_ISDIR(st.st_mode))
        return nvme_list_directory(n, object, l);
    if (!S_ISREG(st.st_mode) || (l->after && strcmp(object, l->after) <= 0))
        return 0;
    struct tier_object found = {
        .name = object,
        .len = (uint64_t)st.st_size,
        .modified_ns = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec,
    };
    return l->fn(&found, l->arg);
}

/* A missing directory is empty, as directories are not objects. Returns 1 if the callback ended the
 * list. */
static int nvme_list_directory(struct nvme *n, const char *directory, const struct listing *l)
{
    DIR *dir;
    int r = io_open_dir(n->root_fd, directory, &dir);
    if (r < 0)
        return r == -ENOENT ? 0 : r;
    while (r == 0) {
        errno = 0;
        struct dirent *d = readdir(dir);
        if (!d) {
            r = -errno;
            break;
        }
        r = nvme_list_entry(n, dirfd(dir), directory, d->d_name, l);
    }
    (void)closedir(dir);
    return r;
}

static int nvme_list(struct tier *tier, const char *directory, const char *after,
                     int (*fn)(const struct tier_object *object, void *arg), void *arg)
{
    check_name(directory);
    struct listing l = {after, fn, arg};
    int r = nvme_list_directory(nvme_of(tier), directory, &l);
    return r < 0 ? r : 0;
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
        directories_touch(n->directories, object);
    return 0;
}

static int nvme_sync(struct tier *tier)
{
    return directories_sync(nvme_of(tier)->directories);
}

/* A log is created under another name, so that a log with its final name is whole. */
static int nvme_log_create(struct tier *tier, const char *object, uint64_t room)
{
    struct nvme *n = nvme_of(tier);
    check_name(object);
    struct room_file file;
    TRY(room_take(n->room, room, false, &file));
    int r = 0;
    if (ftruncate(file.fd, (off_t)room) < 0 || fsync(file.fd) < 0)
        r = -errno;
    if (r == 0)
        r = place_nvme_file(n, &file, object);
    room_file_done(n->room, &file);
    return r < 0 ? r : nvme_sync(tier);
}

static int nvme_log_append(struct tier *tier, const char *object, uint64_t offset, const void *buf,
                           size_t len)
{
    struct nvme *n = nvme_of(tier);
    check_name(object);
    struct fd_entry *entry;
    TRY(fd_cache_get(n->logs, object, &entry));
    int r = io_pwrite_full(entry->fd, buf, len, offset);
    if (r == 0 && fdatasync(entry->fd) < 0)
        r = -errno;
    if (r < 0)
        fd_cache_fail(n->logs, entry);
    fd_cache_put(n->logs, entry);
    return r;
}

static int nvme_reserve(struct tier *tier, uint64_t bytes, unsigned files, uint64_t *ret_held)
{
    return room_reserve(nvme_of(tier)->room, bytes, files, ret_held);
}

static int nvme_space(struct tier *tier, struct tier_space *ret_space)
{
    struct nvme *n = nvme_of(tier);
    struct statvfs s;
    if (fstatvfs(n->root_fd, &s) < 0)
        return -errno;
    *ret_space = (struct tier_space){.total_bytes = (uint64_t)s.f_blocks * s.f_frsize,
                                     .free_bytes = (uint64_t)s.f_bavail * s.f_frsize};
    /* In this order: a file that a put() reuses meanwhile is counted in neither, rather than in
     * both. */
    ret_space->held_bytes = room_held(n->room);
    return 0;
}

static void nvme_close(struct tier *tier)
{
    struct nvme *n = nvme_of(tier);
    fd_cache_free(n->reads);
    fd_cache_free(n->logs);
    room_close(n->room);
    directories_free(n->directories);
    (void)close(n->root_fd);
    free(n);
}

static const struct tier_ops nvme_ops = {
    .name = "nvme",
    .close = nvme_close,
    .put = nvme_put,
    .put_new = nvme_put, /* put() does not replace objects either */
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

/* The tier's own directory cannot be replaced. */
static int nvme_renew(const char *directory, char *const *objects, size_t count, void *arg)
{
    const struct nvme *n = arg;
    (void)objects;
    (void)count;
    int r = strcmp(directory, ".") == 0 ? -EIO : renew_directory(n->root_fd, directory);
    if (r == 0)
        log_warn("nvme: fsync of %s/ failed; a new directory with the same entries replaced it",
                 directory);
    return r;
}

static int prepare_directories(struct nvme *n)
{
    static const char *const directories[] = {"packs", "journal", ROOM_DIRECTORY};
    for (size_t i = 0; i < ARRAY_LEN(directories); i++) {
        int r = directories_make(n->directories, directories[i]);
        if (r == 0)
            r = renew_settle(n->root_fd, directories[i]);
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
    n->directories = directories_new(fd, nvme_renew, n);
    int r = prepare_directories(n);
    if (r < 0) {
        nvme_close(&n->tier);
        return r;
    }
    *ret_tier = &n->tier;
    return 0;
}
