// SPDX-License-Identifier: Apache-2.0
#include "daemon/store_directory.h"

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>

#include "base/clock.h"
#include "base/io.h"
#include "daemon/control.h"
#include "daemon/lifecycle.h"

#define LOOK_NS (30ll * 1000000000)
#define LOOK_STEP_MS 10
#define REPORT_NS (1ll * 1000000000)

static pid_t read_pid(int fd)
{
    char text[24] = "";
    if (pread(fd, text, sizeof text - 1, 0) <= 0)
        return 0;
    return (pid_t)strtol(text, NULL, 10);
}

/* On a full disk there may be no room for the number: it only makes a message better. */
static void write_pid(int fd)
{
    char text[24];
    int len = snprintf(text, sizeof text, "%d\n", (int)getpid());
    if (ftruncate(fd, 0) < 0 || pwrite(fd, text, (size_t)len, 0) < 0)
        log_debug("cannot write the process number to the store's lock: %s", strerror(errno));
}

/* One attempt. -EAGAIN: the file was replaced between opening and locking it. */
static int lock_once(const char *path, int *ret_fd, pid_t *ret_holder)
{
    _cleanup_close_ int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    struct stat held, named;
    if (fd < 0)
        return -errno;
    if (fcntl(fd, F_OFD_SETLK, &whole) < 0) {
        *ret_holder = read_pid(fd);
        return errno == EAGAIN || errno == EACCES ? -EBUSY : -errno;
    }
    if (fstat(fd, &held) < 0 || stat(path, &named) < 0 || held.st_ino != named.st_ino)
        return -EAGAIN;
    write_pid(fd);
    *ret_fd = take_fd(&fd);
    return 0;
}

int store_directory_lock(const char *store, int *ret_fd, pid_t *ret_holder)
{
    _cleanup_free_ char *path = xasprintf("%s/lock", store);
    int r;
    do
        r = lock_once(path, ret_fd, ret_holder);
    while (r == -EAGAIN);
    return r;
}

static void report_waiting(const char *store, pid_t holder, const struct store_waiter *waiter)
{
    _cleanup_free_ char *line = xasprintf(
        "waiting for pid %d, which holds the store %s but does not answer", (int)holder, store);
    if (waiter && waiter->report)
        waiter->report(line, waiter->arg);
}

int store_directory_lock_patiently(const char *store, const struct store_waiter *waiter,
                                   int *ret_fd, pid_t *ret_holder)
{
    int64_t began = clock_monotonic_ns(), waited = 0;
    bool reported = false;
    int r = store_directory_lock(store, ret_fd, ret_holder);
    while (r == -EBUSY && waited < LOOK_NS && !control_listens(store)) {
        if (waiter && waiter->cancelled && waiter->cancelled(waiter->arg))
            break;
        if (waited >= REPORT_NS && !reported)
            report_waiting(store, *ret_holder, waiter);
        reported = waited >= REPORT_NS;
        (void)nanosleep(&(struct timespec){.tv_nsec = LOOK_STEP_MS * 1000000l}, NULL);
        waited = clock_monotonic_ns() - began;
        r = store_directory_lock(store, ret_fd, ret_holder);
    }
    return r;
}

int store_directory_lock_holder(const char *store, pid_t *ret_holder)
{
    _cleanup_free_ char *path = xasprintf("%s/lock", store);
    _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    if (fd < 0)
        return errno == ENOENT ? STORE_IS_FREE : -errno;
    if (fcntl(fd, F_OFD_GETLK, &whole) < 0)
        return -errno;
    *ret_holder = read_pid(fd);
    return whole.l_type == F_UNLCK ? STORE_IS_FREE : STORE_IS_HELD;
}

static bool is_empty_directory(int parent_fd, const char *name)
{
    DIR *dir;
    if (io_open_dir(parent_fd, name, &dir) < 0)
        return false;
    bool empty = true;
    for (struct dirent *e; (e = readdir(dir));)
        empty = empty && (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0);
    (void)closedir(dir);
    return empty;
}

/* Returns true for a file that a start leaves when it is killed before the superblock exists, and
 * for the files of mkfs. A pack without a superblock is a damaged store and never taken for a fresh
 * one. */
static bool is_leftover(int parent_fd, const char *name)
{
    static const char *const files[] = {".",     "..",      "lock",        "log",
                                        "log.1", "control", "control.new", "superblock.new",
                                        "node",  "node.new"};
    static const char *const directories[] = {"lost+found", "packs", "journal", "room", "view"};
    for (size_t i = 0; i < ARRAY_LEN(files); i++)
        if (strcmp(name, files[i]) == 0)
            return true;
    for (size_t i = 0; i < ARRAY_LEN(directories); i++)
        if (strcmp(name, directories[i]) == 0)
            return is_empty_directory(parent_fd, name);
    return false;
}

/* 0: a store, or fresh. -ENOTEMPTY: neither, because of *ret_found. */
static int inspect_directory(const char *path, bool *ret_fresh, char **ret_found)
{
    DIR *dir = opendir(path);
    if (!dir)
        return -errno;
    int r = 0;
    *ret_fresh = faccessat(dirfd(dir), "superblock", F_OK, AT_SYMLINK_NOFOLLOW) < 0;
    for (struct dirent *e; *ret_fresh && r == 0 && (e = readdir(dir));) {
        if (is_leftover(dirfd(dir), e->d_name))
            continue;
        *ret_found = xstrdup(e->d_name);
        r = -ENOTEMPTY;
    }
    (void)closedir(dir);
    return r;
}

static const char *remedy_for(int error)
{
    switch (error) {
    case EROFS:
        return "give a directory on a writable disk";
    case ENOSPC:
    case EDQUOT:
        return "free some space there or give another directory";
    case EACCES:
    case EPERM:
        return "run as the owner of the directory or give another";
    default:
        return "give another directory";
    }
}

static int make_directory(struct store_directory *directory, struct service_error *error)
{
    if (mkdir(directory->path, 0700) == 0) {
        directory->made = true;
        /* A parent with set-group-ID or a default ACL may have added bits to the mode. */
        (void)chmod(directory->path, 0700);
        return 0;
    }
    int e = errno;
    if (e == EEXIST)
        return 0;
    return service_fail(error, e == EACCES || e == EPERM ? MOUNT_USAGE : MOUNT_FAILED, -e,
                        "cannot create the store %s: %s; %s", directory->path, strerror(e),
                        remedy_for(e));
}

static int check_owner(const struct store_directory *directory, struct service_error *error)
{
    struct stat st;
    if (stat(directory->path, &st) < 0)
        return service_fail(error, MOUNT_FAILED, -errno, "cannot access the store %s: %s; %s",
                            directory->path, strerror(errno), remedy_for(errno));
    if (!S_ISDIR(st.st_mode))
        return service_fail(error, MOUNT_USAGE, -ENOTDIR,
                            "%s is not a directory; give a new or empty directory",
                            directory->path);
    if (st.st_uid != geteuid())
        return service_fail(error, MOUNT_USAGE, -EPERM,
                            "the store %s belongs to user %u, not to you (%u); mount as that user "
                            "or give another directory",
                            directory->path, st.st_uid, geteuid());
    return 0;
}

/* A store must be accessible to its owner only. An empty directory is changed to that; one that has
 * been a store must not have been opened to others. */
static int check_mode(struct store_directory *directory, struct service_error *error)
{
    struct stat st;
    if (stat(directory->path, &st) < 0)
        return service_fail(error, MOUNT_FAILED, -errno, "cannot access the store %s: %s",
                            directory->path, strerror(errno));
    if ((st.st_mode & 077) == 0)
        return 0;
    if (!directory->fresh)
        return service_fail(error, MOUNT_USAGE, -EPERM,
                            "the store %s is open to others (mode %03o); run: chmod 700 %s",
                            directory->path, st.st_mode & 0777, directory->path);
    directory->mode_before = st.st_mode & 07777;
    if (chmod(directory->path, 0700) < 0)
        return service_fail(error, MOUNT_FAILED, -errno, "cannot make the store %s private: %s; %s",
                            directory->path, strerror(errno), remedy_for(errno));
    return 0;
}

static int fail_in_use(const struct store_directory *directory, pid_t holder,
                       struct service_error *error)
{
    if (holder > 0)
        return service_fail(error, MOUNT_FAILED, -EBUSY,
                            "the store %s is in use by pid %d; 'cairn status %s' shows it",
                            directory->path, (int)holder, directory->path);
    return service_fail(error, MOUNT_FAILED, -EBUSY,
                        "the store %s is in use by another process; try again in a moment",
                        directory->path);
}

static int check_content(struct store_directory *directory, struct service_error *error)
{
    _cleanup_free_ char *found = NULL;
    pid_t holder = 0;
    int r = inspect_directory(directory->path, &directory->fresh, &found);
    if (r < 0)
        directory->fresh = false; /* its content may belong to the user */
    /* being created by another mount at this moment */
    if (r == -ENOTEMPTY && directory->lock_fd < 0 &&
        store_directory_lock_holder(directory->path, &holder) == STORE_IS_HELD)
        return fail_in_use(directory, holder, error);
    if (r == -ENOTEMPTY)
        return service_fail(error, MOUNT_USAGE, r,
                            "%s is not empty (%s) and not a store; give a new or empty directory",
                            directory->path, found);
    if (r < 0)
        return service_fail(error, MOUNT_FAILED, r, "cannot read the store %s: %s; %s",
                            directory->path, strerror(-r), remedy_for(-r));
    return 0;
}

static int lock_directory(struct store_directory *directory, const struct store_waiter *waiter,
                          struct service_error *error)
{
    pid_t holder = 0;
    int r = store_directory_lock_patiently(directory->path, waiter, &directory->lock_fd, &holder);
    if (r == -EBUSY)
        return fail_in_use(directory, holder, error);
    if (r < 0)
        return service_fail(error, MOUNT_FAILED, r, "cannot lock the store %s: %s; %s",
                            directory->path, strerror(-r), remedy_for(-r));
    return 0;
}

int store_directory_take(const char *path, const struct store_waiter *waiter,
                         struct store_directory *ret, struct service_error *ret_error)
{
    *ret = (struct store_directory){.path = path, .lock_fd = -1};
    int r;
    /* The content is checked again: another mount may have used the directory until we got the
     * lock. */
    if ((r = make_directory(ret, ret_error)) < 0 || (r = check_owner(ret, ret_error)) < 0 ||
        (r = check_content(ret, ret_error)) < 0 ||
        (r = lock_directory(ret, waiter, ret_error)) < 0 ||
        (r = check_content(ret, ret_error)) < 0 || (r = check_mode(ret, ret_error)) < 0)
        store_directory_release(ret, ret->lock_fd >= 0);
    return r;
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st;
    static const char *const kept[] = {"lost+found", "node"}; /* `node`: its number is taken */
    for (size_t i = 0; i < ARRAY_LEN(kept); i++)
        if (at->level == 0 || (at->level == 1 && strcmp(path + at->base, kept[i]) == 0))
            return 0;
    (void)(type == FTW_DP ? rmdir(path) : unlink(path));
    return 0;
}

void store_directory_adopt(const char *path, int lock_fd, struct store_directory *ret)
{
    *ret = (struct store_directory){.path = path, .lock_fd = lock_fd};
    write_pid(lock_fd);
}

void store_directory_release(struct store_directory *directory, bool undo)
{
    if (undo && directory->fresh)
        (void)nftw(directory->path, remove_entry, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
    if (undo && directory->mode_before)
        (void)chmod(directory->path, directory->mode_before);
    if (directory->made && (undo || directory->lock_fd < 0))
        (void)rmdir(directory->path);
    cleanup_close(&directory->lock_fd);
    directory->lock_fd = -1;
}
