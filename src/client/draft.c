// SPDX-License-Identifier: Apache-2.0
#include "client/draft.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <signal.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <sys/xattr.h>

#include <cairn/cairn.h>

#include "base/cause.h"
#include "base/io.h"
#include "client/place.h"
#include "client/signals.h"

/* Size limit of a nameless file on a mount: half of the table of ranges of its stage, which covers
 * 16 times the stage, or 8 GiB with the smallest table (docs/posix.md); and half of that, as
 * there are other files. */
#define NAMELESS_STAGES 8
#define NAMELESS_LEAST (4 * GIB)

#define HIDDEN_TRIES 1000
/* A file up to this size is written in one or a few writes, which set its size: the call that opens
 * it saves a request. */
#define SIZED_LATER (64 * KIB)
#define NAME_BYTES 255

enum on_cairn { UNKNOWN, NO, YES };

/* Notes which operation failed, on which path. */
static int note_failed(const char *act, const char *path, int error)
{
    cause_note("cannot %s %s: %s", act, path, strerror(-error));
    return error;
}

/* --- opening ---------------------------------------------------------------------------------- */

static int open_directory(const char *path)
{
    /* searching it is enough, so the filesystem gets no open request */
    int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

static ssize_t directory_xattr(int fd, const char *name, char *text, size_t size)
{
    char path[64];
    /* an O_PATH descriptor does not support the call itself */
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    ssize_t n = getxattr(path, name, text, size - 1);
    text[n < 0 ? 0 : n] = '\0';
    return n;
}

static bool is_on_cairn(int directory_fd)
{
    struct statfs st;
    char level[32];
    return fstatfs(directory_fd, &st) == 0 && st.f_type == FUSE_SUPER_MAGIC &&
           directory_xattr(directory_fd, "user.cairn.level", level, sizeof level) > 0;
}

bool draft_on_cairn(const struct draft *draft)
{
    /* not part of the draft's constant content */
    _Atomic int *known = (_Atomic int *)(uintptr_t)&draft->on_cairn;
    if (atomic_load(known) == UNKNOWN && draft->directory_fd >= 0)
        atomic_store(known, is_on_cairn(draft->directory_fd) ? YES : NO);
    return atomic_load(known) == YES;
}

static bool may_be_nameless(const struct draft *draft, uint64_t bytes)
{
    char text[256];
    if (bytes <= NAMELESS_LEAST || !draft_on_cairn(draft))
        return true;
    const char *found =
        directory_xattr(draft->directory_fd, "user.cairn.lane", text, sizeof text) > 0
            ? strstr(text, "stage=")
            : NULL;
    uint64_t stage = found ? strtoull(found + strlen("stage="), NULL, 10) : 0;
    return bytes <= (stage < UINT64_MAX / NAMELESS_STAGES ? stage * NAMELESS_STAGES : UINT64_MAX);
}

static int hidden_name(const struct draft *draft, char ret[NAME_BYTES + 1])
{
    static _Atomic unsigned count;
    char suffix[64];
    int n = snprintf(suffix, sizeof suffix, ".cairn-%ld-%u", (long)getpid(),
                     atomic_fetch_add(&count, 1) + 1);
    size_t length = strlen(draft->name);
    if (length > (size_t)(NAME_BYTES - 1 - n))
        length = (size_t)(NAME_BYTES - 1 - n);
    return snprintf(ret, NAME_BYTES + 1, ".%.*s%s", (int)length, draft->name, suffix);
}

/* A save for which the caller waits is written by several threads at once, which CairnFS allows
 * with O_DIRECT. Other filesystems would require aligned pieces. A draft is never mapped
 * meanwhile. */
static int direct_flag(const struct draft *draft, uint64_t bytes, uint32_t flags)
{
    bool helps = flags & CAIRN_SAVE_URGENT && bytes > SIZED_LATER;
    return helps && draft_on_cairn(draft) ? O_DIRECT : 0;
}

/* A hidden file is locked while a process uses it: draft_clean() of another process skips it. */
static int open_hidden(struct draft *draft, int direct, mode_t mode)
{
    char name[NAME_BYTES + 1];
    int fd = -1;
    for (unsigned i = 0; i < HIDDEN_TRIES && fd < 0; i++) {
        (void)hidden_name(draft, name);
        fd =
            openat(draft->directory_fd, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | direct, mode);
        if (fd < 0 && errno != EEXIST)
            return -errno;
    }
    if (fd < 0)
        return -EEXIST;
    (void)flock(fd, LOCK_EX | LOCK_NB);
    draft->fd = fd;
    draft->kind = DRAFT_HIDDEN;
    draft->hidden = strdup(name);
    if (draft->hidden)
        return 0;
    (void)unlinkat(draft->directory_fd, name, 0);
    return -ENOMEM;
}

static int open_draft_in_directory(struct draft *draft, uint64_t bytes, mode_t mode, uint32_t flags)
{
    int direct = direct_flag(draft, bytes, flags);
    /* The name is given through /proc: a process without it uses a hidden file from the start. */
    bool may = access("/proc/self/fd", X_OK) == 0 && may_be_nameless(draft, bytes);
    draft->fd =
        may ? openat(draft->directory_fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC | direct, mode) : -1;
    if (draft->fd >= 0) {
        draft->kind = DRAFT_NAMELESS;
        (void)flock(draft->fd, LOCK_EX | LOCK_NB);
        return 0;
    }
    if (may && errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL && errno != ENOENT)
        return -errno;
    return open_hidden(draft, direct, mode);
}

/* A file that may not be written must not be replaced either. */
static int may_replace(const struct place *place)
{
    return !place->exists || faccessat(AT_FDCWD, place->path, W_OK, AT_EACCESS) == 0 ? 0 : -errno;
}

static int open_regular(struct draft *draft, const struct place *place, uint64_t bytes, mode_t mode,
                        uint32_t flags)
{
    struct stat st;
    int r = may_replace(place);
    int directory = r < 0 ? r : open_directory(place->directory);
    if (directory < 0)
        return directory;
    draft->directory_fd = directory;
    draft->name = strdup(place->name);
    if (!draft->name)
        return -ENOMEM;
    if (fstat(directory, &st) < 0)
        return -errno;
    draft->directory_dev = st.st_dev;
    draft->directory_ino = st.st_ino;
    return open_draft_in_directory(draft, bytes, mode, flags);
}

/* For calls that open the file later, perhaps with another working directory; stays relative if no
 * absolute path can be found. The call itself uses the path as given: the directories above need
 * not be searchable. */
static char *absolute_path(const char *path)
{
    char *whole = NULL;
    _cleanup_free_ char *here = path[0] == '/' ? NULL : getcwd(NULL, 0);
    if (!here || here[0] != '/')
        return strdup(path);
    return asprintf(&whole, "%s/%s", here, strncmp(path, "./", 2) == 0 ? path + 2 : path) < 0
               ? NULL
               : whole;
}

static int open_draft_at(struct draft *draft, const struct place *place, uint64_t bytes,
                         mode_t mode, uint32_t flags)
{
    draft->path = absolute_path(place->path);
    if (!draft->path)
        return -ENOMEM;
    if (!place->exists || S_ISREG(place->st.st_mode))
        return open_regular(draft, place, bytes, mode, flags);
    if (flags & CAIRN_SAVE_EXCLUSIVE)
        return -EEXIST;
    draft->kind = DRAFT_SPECIAL;
    return flags & CAIRN_SAVE_REGULAR ? -ENOTSUP : 0;
}

/* Removes the draft if opening it failed. */
static int discard_if_failed(struct draft *draft, const char *path, int r)
{
    if (r == 0)
        return r;
    (void)note_failed("create", path, r);
    draft_discard(draft);
    draft_done(draft);
    return r;
}

int draft_open(struct draft *draft, const char *path, uint64_t bytes, mode_t mode, uint32_t flags)
{
    struct place place;
    *draft = DRAFT_NONE;
    if (bytes > INT64_MAX)
        return note_failed("create", path, -EFBIG);
    TRY(place_find(path, &place));
    int r = open_draft_at(draft, &place, bytes, mode, flags);
    place_done(&place);
    bool is_sized = draft->kind != DRAFT_SPECIAL && bytes > SIZED_LATER;
    if (r == 0 && is_sized && ftruncate(draft->fd, (off_t)bytes) < 0)
        r = -errno;
    return discard_if_failed(draft, path, r);
}

static int open_stream(struct draft *draft, int fd, uint64_t bytes)
{
    draft->kind = DRAFT_STREAM;
    draft->stream_fd = fd;
    draft->fd = memfd_create("cairn-stream", MFD_CLOEXEC);
    return draft->fd < 0 || ftruncate(draft->fd, (off_t)bytes) < 0 ? -errno : 0;
}

int draft_open_special(struct draft *draft, const char *path, uint64_t bytes)
{
    check(draft->kind == DRAFT_SPECIAL && draft->fd < 0);
    int r = 0, fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC | O_NOCTTY);
    if (fd < 0)
        return discard_if_failed(draft, path, -errno);
    draft->kind = DRAFT_DIRECT;
    if (lseek(fd, 0, SEEK_CUR) == 0)
        draft->fd = fd;
    else
        r = open_stream(draft, fd, bytes);
    return discard_if_failed(draft, path, r);
}

/* --- content ---------------------------------------------------------------------------------- */

int draft_write(const struct draft *draft, const void *data, size_t length, uint64_t at)
{
    check(draft->fd >= 0);
    int r = io_pwrite_full(draft->fd, data, length, at);
    return r < 0 ? note_failed("write", draft->path, r) : 0;
}

int draft_size(const struct draft *draft, uint64_t bytes, struct stat *ret)
{
    bool has_size = draft->kind == DRAFT_NAMELESS || draft->kind == DRAFT_HIDDEN;
    int r = fstat(draft->fd, ret);
    if (r == 0 && has_size && (uint64_t)ret->st_size != bytes) {
        r = ftruncate(draft->fd, (off_t)bytes);
        r = r == 0 ? fstat(draft->fd, ret) : r;
    }
    return r < 0 ? note_failed("write", draft->path, -errno) : 0;
}

int draft_stream(struct draft *draft, uint64_t bytes)
{
    check(draft->kind == DRAFT_STREAM && draft->stream_fd >= 0);
    struct signals_held held;
    void *data = bytes ? mmap(NULL, bytes, PROT_READ, MAP_SHARED, draft->fd, 0) : NULL;
    if (data == MAP_FAILED)
        return note_failed("write", draft->path, -errno);
    signals_hold_pipe(&held);
    int r = io_write_full(draft->stream_fd, data, bytes);
    signals_release_pipe(&held);
    if (data)
        (void)munmap(data, bytes);
    if (r < 0)
        (void)note_failed("write", draft->path, r);
    draft_discard(draft);
    return r;
}

/* --- the name --------------------------------------------------------------------------------- */

static int link_as(const struct draft *draft, const char *name)
{
    char self[64];
    (void)snprintf(self, sizeof self, "/proc/self/fd/%d", draft->fd);
    return linkat(AT_FDCWD, self, draft->directory_fd, name, AT_SYMLINK_FOLLOW) < 0 ? -errno : 0;
}

/* Gives a nameless file its name or, if that is taken, first a hidden one. */
static int name_nameless(struct draft *draft, bool exclusive)
{
    char name[NAME_BYTES + 1];
    int r = link_as(draft, draft->name);
    if (r != -EEXIST || exclusive)
        return r;
    for (unsigned i = 0; i < HIDDEN_TRIES && r == -EEXIST; i++) {
        (void)hidden_name(draft, name);
        r = link_as(draft, name);
    }
    if (r < 0)
        return r;
    if (renameat(draft->directory_fd, name, draft->directory_fd, draft->name) == 0)
        return 0;
    r = -errno;
    (void)unlinkat(draft->directory_fd, name, 0);
    return r;
}

static int rename_exclusive(const struct draft *draft)
{
    if (renameat2(draft->directory_fd, draft->hidden, draft->directory_fd, draft->name,
                  RENAME_NOREPLACE) == 0)
        return 0;
    if (errno != EINVAL && errno != ENOSYS)
        return -errno;
    /* NFS */
    if (linkat(draft->directory_fd, draft->hidden, draft->directory_fd, draft->name, 0) < 0)
        return -errno;
    (void)unlinkat(draft->directory_fd, draft->hidden, 0);
    return 0;
}

/* Filesystems with write-behind report failed writes at close: closes a duplicate, as the lock is
 * released with the last descriptor. */
static int flush_all(const struct draft *draft)
{
    int copy = dup(draft->fd);
    return copy < 0 || close(copy) < 0 ? -errno : 0;
}

static int name_hidden(struct draft *draft, bool exclusive)
{
    TRY(flush_all(draft));
    int r = 0;
    if (exclusive)
        r = rename_exclusive(draft);
    else if (renameat(draft->directory_fd, draft->hidden, draft->directory_fd, draft->name) < 0)
        r = -errno;
    if (r < 0)
        return r;
    free(draft->hidden);
    draft->hidden = NULL;
    return 0;
}

int draft_publish(struct draft *draft, bool exclusive)
{
    check(draft->fd >= 0 && (draft->kind == DRAFT_HIDDEN) == (draft->hidden != NULL));
    int r = 0;
    if (draft->kind == DRAFT_NAMELESS)
        r = name_nameless(draft, exclusive);
    else if (draft->kind == DRAFT_HIDDEN)
        r = name_hidden(draft, exclusive);
    if (r < 0)
        (void)note_failed("give the file its name", draft->path, r);
    draft_discard(draft);
    return r;
}

/* --- the end ---------------------------------------------------------------------------------- */

static void close_fd(int *fd)
{
    if (*fd >= 0)
        (void)close(take_fd(fd));
}

void draft_done(struct draft *draft)
{
    check(!draft->hidden); /* draft_discard() has removed it */
    free(draft->name);
    free(draft->path);
    draft->name = draft->path = NULL;
}

void draft_discard(struct draft *draft)
{
    if (draft->hidden)
        (void)unlinkat(draft->directory_fd, draft->hidden, 0);
    close_fd(&draft->fd);
    close_fd(&draft->stream_fd);
    close_fd(&draft->directory_fd);
    free(draft->hidden);
    draft->hidden = NULL;
}

/* --- drafts of processes that have ended ------------------------------------------------------ */

/* Parses the PID in ".NAME.cairn-PID-N"; 0: not such a name. */
static pid_t pid_of(const char *name)
{
    const char *at = NULL;
    if (name[0] != '.')
        return 0;
    for (const char *p = name; (p = strstr(p, ".cairn-")); p++)
        at = p;
    if (!at)
        return 0;
    char *end;
    long pid = strtol(at + strlen(".cairn-"), &end, 10);
    if (pid <= 0 || pid > INT32_MAX || *end != '-' || end[1] < '0' || end[1] > '9')
        return 0;
    (void)strtoul(end + 1, &end, 10);
    return *end == '\0' ? (pid_t)pid : 0;
}

/* Removes a leftover draft, unless its process lives, perhaps in another container or on another
 * node: then it holds a lock on the file. */
static void clean_one(const struct draft *draft, const char *name)
{
    struct stat st;
    _cleanup_close_ int fd =
        openat(draft->directory_fd, name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || flock(fd, LOCK_EX | LOCK_NB) < 0)
        return;
    (void)unlinkat(draft->directory_fd, name, 0);
}

void draft_clean(const struct draft *draft)
{
    if (draft->directory_fd < 0)
        return;
    DIR *directory;
    if (io_open_dir(draft->directory_fd, ".", &directory) < 0)
        return;
    for (struct dirent *entry; (entry = readdir(directory));) {
        pid_t pid = pid_of(entry->d_name);
        if (pid > 0 && kill(pid, 0) < 0 && errno == ESRCH)
            clean_one(draft, entry->d_name);
    }
    (void)closedir(directory);
}
