/* A remote in a directory that others see too. Order of a put: the content is durable (fsync) under a temporary name, then it gets its
 * own by rename() or, where that must not replace anything, by link(); names are durable after sync() (fsync of the folders).
 * What failed is done anew from the beginning, in a new file: a failed fsync says nothing about a second one.
 *
 * Servers go away and come back: ESTALE, EIO and the like are tried again for a while, like those of S3. An EIO that stays while the
 * filesystem answers is of the medium below it, and lasts: what cannot be read is damaged. */
#include "tier/tier.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>

#include "base/clock.h"
#include "base/io.h"
#include "tier/dir_list.h"
#include "tier/folders.h"
#include "tier/retry.h"

#define PATIENCE_NS (60ll * 1000000000)
#define CLOCK_FILE ".clock"
#define COPY_STEP MIB
#define EIO_TRIES 5u /* within about a second */

struct dir {
    struct tier tier;
    char *path;
    int root_fd;
    ino_t root_ino;
    long fs_type;
    bool read_only;
    struct folders *folders;
    struct retry_gate gate;
    struct {
        struct cairn_mutex lock;
        int64_t newest_ns; /* latest time of a file that was seen */
        char error[512];
        struct tier_traffic traffic;
    } locked;
};

static struct dir *dir_of(struct tier *tier)
{
    return container_of(tier, struct dir, tier);
}

static void check_name(const char *object)
{
    check(object[0] != '\0' && object[0] != '/' && object[0] != '.' && !strstr(object, "/."));
}

/* --- one call, tried again ------------------------------------------------------------------------------------------------ */

struct op {
    struct dir *dir;
    const char *name, *object;
    struct retry retry;
    unsigned io_errors;
};

static void op_begin(struct op *op, struct dir *d, const char *name, const char *object)
{
    *op = (struct op){.dir = d, .name = name, .object = object};
    retry_begin(&op->retry, &d->gate, d->tier.patience_ns);
}

static void keep_error(struct op *op, int error)
{
    struct dir *d = op->dir;
    const char *advice = error == -EACCES || error == -EPERM ? "; the daemon's user must own the directory" : "";
    LOCK_SCOPE(&d->locked.lock);
    (void)snprintf(d->locked.error, sizeof d->locked.error, "%s %s/%s: %s%s", op->name, d->path, op->object,
                   strerror(-error), advice);
}

/* The directory itself is not found again by its descriptor. What is there now must be the same one: where the filesystem was
 * unmounted, the path leads to an empty folder of this machine. */
static void reopen_root(struct dir *d)
{
    _cleanup_close_ int fd = open(d->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct stat st;
    struct statfs fs;
    if (fd >= 0 && fstat(fd, &st) == 0 && fstatfs(fd, &fs) == 0 && st.st_ino == d->root_ino &&
        (long)fs.f_type == d->fs_type)
        (void)dup3(fd, d->root_fd, O_CLOEXEC);
}

static void count(struct dir *d, int r, bool again)
{
    LOCK_SCOPE(&d->locked.lock);
    d->locked.traffic.requests++;
    d->locked.traffic.retries += again;
    d->locked.traffic.failures += r < 0 && !again && r != -ENOENT && r != -EEXIST && r != -ECANCELED;
}

/* Of a server that is away this is not answered, or with an error. */
static bool filesystem_answers(struct dir *d)
{
    struct statvfs s;
    return fstatvfs(d->root_fd, &s) == 0;
}

static bool is_lasting(struct op *op, int r)
{
    return r == -EIO && ++op->io_errors >= EIO_TRIES && filesystem_answers(op->dir);
}

/* After each try, with its result; true: once more. */
static bool op_again(struct op *op, int *r)
{
    struct dir *d = op->dir;
    if (*r == 0)
        retry_gate_success(&d->gate);
    else if (*r != -ENOENT && *r != -EEXIST && *r != -ECANCELED)
        keep_error(op, *r);
    bool again = false;
    if (tier_error_is_transient(*r) && !is_lasting(op, *r)) {
        int waited = retry_wait(&op->retry, 0);
        again = waited == 0;
        *r = waited == -ECANCELED ? waited : *r;
    }
    count(d, *r, again);
    if (again && *r == -ESTALE)
        reopen_root(d);
    else if (*r == -ESTALE)
        *r = -EREMOTEIO; /* ESTALE is for the caller: that somebody else has written */
    return again;
}

static int writable(struct dir *d)
{
    if (d->read_only)
        return -EROFS;
    return retry_gate_is_interrupted(&d->gate) ? -ECANCELED : 0;
}

static int readable(struct dir *d)
{
    return retry_gate_is_interrupted(&d->gate) ? -ECANCELED : 0;
}

/* --- put ------------------------------------------------------------------------------------------------------------------ */

/* Beside the object, so that it can be moved to its name; no object begins with a dot. */
static char *temporary_name(const char *object)
{
    uint64_t number = 0;
    (void)getrandom(&number, sizeof number, 0);
    const char *slash = strrchr(object, '/');
    return xasprintf("%.*s" DIR_TEMPORARY "%016llx", slash ? (int)(slash + 1 - object) : 0, object,
                     (unsigned long long)number);
}

static int open_temporary(struct dir *d, const char *name)
{
    int fd = openat(d->root_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 && errno == ENOENT) {
        int r = folders_make_parents(d->folders, name);
        if (r < 0)
            return r;
        fd = openat(d->root_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    }
    return fd < 0 ? -errno : fd;
}

/* The content is not read again soon, and memory belongs to the trainer. */
static int write_content(int fd, const void *buf, size_t len)
{
    int r = io_pwrite_full(fd, buf, len, 0);
    if (r == 0 && fsync(fd) < 0)
        r = -errno;
    if (r == 0)
        (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    return r;
}

/* Over NFS the answer to a link() that was carried out may be lost, and its repetition says that the name is taken: by our file. */
static bool is_ours(struct dir *d, int fd, const char *object)
{
    struct stat ours, theirs;
    return fstat(fd, &ours) == 0 && fstatat(d->root_fd, object, &theirs, AT_SYMLINK_NOFOLLOW) == 0 &&
           ours.st_ino == theirs.st_ino && ours.st_dev == theirs.st_dev;
}

static int name_new(struct dir *d, int fd, const char *temporary, const char *object)
{
    if (linkat(d->root_fd, temporary, d->root_fd, object, 0) == 0) {
        (void)unlinkat(d->root_fd, temporary, 0);
        return 0;
    }
    if (errno == EEXIST)
        return is_ours(d, fd, object) ? 0 : -EEXIST;
    if (errno != EPERM && errno != EOPNOTSUPP && errno != ENOSYS)
        return -errno;
    /* A filesystem without hard links. */
    return renameat2(d->root_fd, temporary, d->root_fd, object, RENAME_NOREPLACE) < 0 ? -errno : 0;
}

static int put_once(struct dir *d, const char *object, const void *buf, size_t len, bool is_new)
{
    _cleanup_free_ char *temporary = temporary_name(object);
    _cleanup_close_ int fd = open_temporary(d, temporary);
    if (fd < 0)
        return fd;
    int r = write_content(fd, buf, len);
    if (r == 0 && is_new)
        r = name_new(d, fd, temporary, object);
    else if (r == 0 && renameat(d->root_fd, temporary, d->root_fd, object) < 0)
        r = -errno;
    if (r < 0)
        (void)unlinkat(d->root_fd, temporary, 0);
    else
        folders_touch(d->folders, object);
    return r;
}

static int put(struct tier *tier, const char *object, const void *buf, size_t len, bool is_new)
{
    struct dir *d = dir_of(tier);
    struct op op;
    check_name(object);
    int r = writable(d);
    if (r < 0)
        return r;
    op_begin(&op, d, "put", object);
    do
        r = put_once(d, object, buf, len, is_new);
    while (op_again(&op, &r));
    if (r == 0) {
        LOCK_SCOPE(&d->locked.lock);
        d->locked.traffic.sent_bytes += len;
    }
    return r;
}

static int dir_put(struct tier *tier, const char *object, const void *buf, size_t len)
{
    return put(tier, object, buf, len, false);
}

static int dir_put_new(struct tier *tier, const char *object, const void *buf, size_t len)
{
    return put(tier, object, buf, len, true);
}

static int copy_content(int from, int to)
{
    struct stat st;
    _cleanup_free_ uint8_t *bytes = xmalloc(COPY_STEP);
    int r = fstat(from, &st) < 0 ? -errno : 0;
    for (uint64_t at = 0; r == 0 && at < (uint64_t)st.st_size; at += COPY_STEP) {
        size_t part = min_u64((uint64_t)st.st_size - at, COPY_STEP);
        r = io_pread_full(from, bytes, part, at);
        if (r == 0)
            r = io_pwrite_full(to, bytes, part, at);
    }
    return r == 0 && fsync(to) < 0 ? -errno : r;
}

/* In a file of its own. What is gone meanwhile need not be. */
static int store_again(struct dir *d, const char *object)
{
    _cleanup_close_ int from = openat(d->root_fd, object, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (from < 0)
        return errno == ENOENT ? 0 : -errno;
    _cleanup_free_ char *temporary = temporary_name(object);
    _cleanup_close_ int to = open_temporary(d, temporary);
    int r = to < 0 ? to : copy_content(from, to);
    if (r == 0 && renameat(d->root_fd, temporary, d->root_fd, object) < 0)
        r = -errno;
    if (r < 0 && to >= 0)
        (void)unlinkat(d->root_fd, temporary, 0);
    return r;
}

/* Names whose fsync failed: the objects are stored again, so that their names are new ones. A folder does not take another's place here, since
 * others read in it. */
static int renew(const char *folder, char *const *objects, size_t count, void *arg)
{
    int r = 0;
    (void)folder;
    for (size_t i = 0; i < count && r == 0; i++)
        r = store_again(arg, objects[i]);
    return r;
}

/* --- get ------------------------------------------------------------------------------------------------------------------ */

static void see_time(struct dir *d, int64_t modified_ns)
{
    LOCK_SCOPE(&d->locked.lock);
    if (modified_ns > d->locked.newest_ns)
        d->locked.newest_ns = modified_ns;
}

static int64_t time_of(const struct stat *st)
{
    return (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec;
}

/* Opened anew each time: a descriptor that is kept may be of a file that was replaced. */
static int get_once(struct dir *d, const char *object, uint64_t offset, void *buf, size_t len)
{
    _cleanup_close_ int fd = openat(d->root_fd, object, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return -errno;
    int r = io_pread_full(fd, buf, len, offset);
    return r == -EISDIR ? -ENOENT : r;
}

static int dir_get_range(struct tier *tier, const char *object, uint64_t offset, void *buf, size_t len)
{
    struct dir *d = dir_of(tier);
    struct op op;
    check_name(object);
    int r = readable(d);
    if (r < 0)
        return r;
    if (offset > INT64_MAX - len)
        return -EUCLEAN;
    op_begin(&op, d, "get", object);
    do
        r = get_once(d, object, offset, buf, len);
    while (op_again(&op, &r));
    if (r == -EIO && op.io_errors >= EIO_TRIES)
        r = -EUCLEAN;
    if (r == 0) {
        LOCK_SCOPE(&d->locked.lock);
        d->locked.traffic.received_bytes += len;
    }
    return r;
}

static int dir_stat(struct tier *tier, const char *object, uint64_t *ret_len)
{
    struct dir *d = dir_of(tier);
    struct stat st;
    struct op op;
    check_name(object);
    int r = readable(d);
    if (r < 0)
        return r;
    op_begin(&op, d, "stat", object);
    do
        r = fstatat(d->root_fd, object, &st, AT_SYMLINK_NOFOLLOW) < 0 ? -errno : 0;
    while (op_again(&op, &r));
    if (r == 0 && !S_ISREG(st.st_mode))
        r = -ENOENT;
    if (r < 0)
        return r;
    see_time(d, time_of(&st));
    *ret_len = (uint64_t)st.st_size;
    return 0;
}

/* --- the rest ------------------------------------------------------------------------------------------------------------- */

static int dir_remove(struct tier *tier, const char *object)
{
    struct dir *d = dir_of(tier);
    struct op op;
    check_name(object);
    int r = writable(d);
    if (r < 0)
        return r;
    op_begin(&op, d, "remove", object);
    do
        r = unlinkat(d->root_fd, object, 0) < 0 ? -errno : 0;
    while (op_again(&op, &r));
    if (r == -ENOENT)
        r = 0; /* perhaps by a try of ours that seemed to fail */
    if (r == 0)
        folders_touch(d->folders, object);
    return r;
}

static int dir_sync(struct tier *tier)
{
    struct dir *d = dir_of(tier);
    struct op op;
    int r = readable(d);
    if (r < 0)
        return r;
    op_begin(&op, d, "sync", "");
    do
        r = folders_sync(d->folders);
    while (op_again(&op, &r));
    return r;
}

/* The time that the server gives a file which is touched. (Lustre takes the client's: there the nodes' clocks must agree.) */
static int touch_clock(struct dir *d, int64_t *ret_ns)
{
    _cleanup_close_ int fd =
        openat(d->root_fd, CLOCK_FILE, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    struct stat st;
    if (fd < 0 || futimens(fd, NULL) < 0 || fstat(fd, &st) < 0)
        return -errno;
    *ret_ns = time_of(&st);
    return 0;
}

/* Who may not touch a file knows only that it is not earlier than what was written last. */
static int64_t guessed_now(struct dir *d)
{
    int64_t ours = clock_realtime_ns();
    LOCK_SCOPE(&d->locked.lock);
    return ours > d->locked.newest_ns ? ours : d->locked.newest_ns;
}

static int dir_now(struct tier *tier, int64_t *ret_ns)
{
    struct dir *d = dir_of(tier);
    struct op op;
    int r = readable(d);
    if (r < 0)
        return r;
    if (d->read_only) {
        *ret_ns = guessed_now(d);
        return 0;
    }
    op_begin(&op, d, "touch", CLOCK_FILE);
    do
        r = touch_clock(d, ret_ns);
    while (op_again(&op, &r));
    return r;
}

struct listing {
    struct dir_listing below;
    struct dir *dir;
    int (*fn)(const struct tier_object *object, void *arg);
    void *arg;
    bool is_over; /* by what fn said, which is not tried again */
};

static int give(const struct tier_object *object, void *arg)
{
    struct listing *l = arg;
    see_time(l->dir, object->modified_ns);
    int r = l->fn(object, l->arg);
    l->is_over = r != 0;
    return r;
}

static int clock_for_list(void *arg, int64_t *ret_ns)
{
    struct listing *l = arg;
    return l->dir->read_only ? -EROFS : touch_clock(l->dir, ret_ns);
}

static int dir_list(struct tier *tier, const char *folder, const char *after,
                    int (*fn)(const struct tier_object *object, void *arg), void *arg)
{
    struct dir *d = dir_of(tier);
    struct listing l = {.dir = d, .fn = fn, .arg = arg};
    struct op op;
    check_name(folder);
    int r = readable(d);
    if (r < 0)
        return r;
    l.below = (struct dir_listing){
        .root_fd = d->root_fd, .after = after, .fn = give, .now = clock_for_list, .arg = &l};
    op_begin(&op, d, "list", folder);
    do
        r = dir_list_folder(&l.below, folder);
    while (!l.is_over && op_again(&op, &r));
    dir_listing_done(&l.below);
    return r < 0 ? r : 0;
}

static int dir_space(struct tier *tier, struct tier_space *ret_space)
{
    struct statvfs s;
    if (fstatvfs(dir_of(tier)->root_fd, &s) < 0)
        return -errno;
    *ret_space = (struct tier_space){.total_bytes = (uint64_t)s.f_blocks * s.f_frsize,
                                     .free_bytes = (uint64_t)s.f_bavail * s.f_frsize};
    return 0;
}

static void dir_interrupt(struct tier *tier)
{
    retry_gate_interrupt(&dir_of(tier)->gate);
}

static void dir_last_error(struct tier *tier, char *buf, size_t size)
{
    struct dir *d = dir_of(tier);
    LOCK_SCOPE(&d->locked.lock);
    (void)snprintf(buf, size, "%s", d->locked.error);
}

static void dir_traffic(struct tier *tier, struct tier_traffic *ret_traffic)
{
    struct dir *d = dir_of(tier);
    LOCK_SCOPE(&d->locked.lock);
    *ret_traffic = d->locked.traffic;
}

static void dir_close(struct tier *tier)
{
    struct dir *d = dir_of(tier);
    folders_free(d->folders);
    retry_gate_done(&d->gate);
    mutex_done(&d->locked.lock);
    (void)close(d->root_fd);
    free(d->path);
    free(d);
}

static const struct tier_ops dir_ops = {
    .name = "dir",
    .is_sorted = true,
    .close = dir_close,
    .put = dir_put,
    .put_new = dir_put_new,
    .get_range = dir_get_range,
    .stat = dir_stat,
    .list = dir_list,
    .remove = dir_remove,
    .sync = dir_sync,
    .now = dir_now,
    .interrupt = dir_interrupt,
    .last_error = dir_last_error,
    .traffic = dir_traffic,
    .space = dir_space,
};

static int open_root(const char *path, bool read_only)
{
    bool made = !read_only && mkdir(path, 0700) == 0;
    if (!made && !read_only && errno != EEXIST)
        return -errno;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    if (!read_only && faccessat(fd, ".", W_OK | X_OK, AT_EACCESS) < 0) {
        int r = -errno;
        (void)close(fd);
        return r;
    }
    return fd;
}

/* The directory's own name must last, too. A parent that may not be read is not ours, and nothing was made in it. */
static int sync_parent(const char *path)
{
    _cleanup_free_ char *parent = xasprintf("%s/..", path);
    int r = io_fsync_dir(parent);
    return r == -EACCES ? 0 : r;
}

/* A process that died may not have made durable what it named in them. */
static void mark_folders(struct dir *d)
{
    static const char *const folders[] = {"packs", "runs", "heads"};
    struct stat st;
    for (size_t i = 0; i < ARRAY_LEN(folders); i++)
        if (fstatat(d->root_fd, folders[i], &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode))
            folders_mark(d->folders, folders[i]);
}

int dir_tier_open(const char *path, bool read_only, struct tier **ret_tier, char **ret_error)
{
    struct stat st;
    struct statfs fs;
    int fd = open_root(path, read_only);
    int r = fd < 0 ? fd : read_only ? 0 : sync_parent(path);
    if (r == 0 && (fstat(fd, &st) < 0 || fstatfs(fd, &fs) < 0))
        r = -errno;
    if (r < 0) {
        *ret_error = xasprintf("directory %s: %s", path, strerror(-r));
        if (fd >= 0)
            (void)close(fd);
        return r;
    }
    struct dir *d = xcalloc(1, sizeof *d);
    d->tier.ops = &dir_ops;
    d->tier.patience_ns = PATIENCE_NS;
    d->path = xstrdup(path);
    d->root_fd = fd;
    d->root_ino = st.st_ino;
    d->fs_type = (long)fs.f_type;
    d->read_only = read_only;
    d->folders = folders_new(fd, renew, d);
    if (!read_only)
        mark_folders(d);
    retry_gate_init(&d->gate);
    mutex_init(&d->locked.lock, LOCK_LEAF);
    *ret_tier = &d->tier;
    return 0;
}
