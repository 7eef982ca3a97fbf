// SPDX-License-Identifier: Apache-2.0
/* Faults of a disk in a running daemon: a library for LD_PRELOAD between the daemon (with RocksDB
 * in it) and libc.
 *
 * A site is a class of files below the store (or the stage) and a call. The test maps the same
 * control file and says which site fails, how, after how many calls, and how often. What is not
 * below the store or the stage is never touched.
 *
 * Environment: FAULT_CONTROL (file of struct control), FAULT_STORE, FAULT_STAGE (absolute
 * directories). tests/faultdisk.py is the other side. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "real.h"

#define EXPORT __attribute__((visibility("default")))

/* The order of these is that of CLASSES, CALLS and KINDS in faultdisk.py. */
enum class {
    NONE,
    PACKS,
    ROOM,
    JOURNAL,
    RUNS,
    SUPERBLOCK,
    SESSION,
    HEAD,
    VIEW_LOG,
    VIEW_TABLE,
    VIEW_MANIFEST,
    VIEW_CURRENT,
    VIEW_OPTIONS,
    VIEW_INFO,
    STAGE,
    DIRECTORY,
    REMOTE_NOTE,
    OTHER,
    CLASSES
};
enum call {
    OPEN,
    PREAD,
    PWRITE,
    FDATASYNC,
    FSYNC,
    FALLOCATE,
    FTRUNCATE,
    RENAME,
    UNLINK,
    MMAP,
    MKDIR,
    READDIR,
    CALLS
};
enum kind { KIND_NONE, KIND_ERRNO, KIND_SHORT, KIND_MISREAD, KIND_MISDIRECT, KIND_LIE };

struct control {
    _Atomic uint32_t armed;
    uint32_t class, call, kind;
    int32_t error;
    uint32_t skip;         /* calls of the site that go through before */
    uint32_t times;        /* 0: until it is disarmed */
    _Atomic uint32_t seen; /* calls of the site since it was armed */
    _Atomic uint32_t fired;
    uint32_t calls_too;   /* bit per further call of the class that fails alike */
    uint32_t classes_too; /* bit per further class */
    uint32_t reserved;
    _Atomic uint64_t count[32][16]; /* calls ever, by class and call */
};

static struct control *control;
static char store[PATH_MAX], stage[PATH_MAX];
static size_t store_len, stage_len;
static _Atomic uint8_t class_of_fd[65536];

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("FAULT_CONTROL"), *a = getenv("FAULT_STORE"),
               *b = getenv("FAULT_STAGE");
    if (!path || !a)
        return;
    (void)snprintf(store, sizeof store, "%s/", a);
    (void)snprintf(stage, sizeof stage, "%s/", b ? b : "/nowhere");
    store_len = strlen(store);
    stage_len = strlen(stage);
    int (*open_file)(const char *, int, ...) = (int (*)(const char *, int, ...))real("open64");
    void *(*map)(void *, size_t, int, int, int, off_t) =
        (void *(*)(void *, size_t, int, int, int, off_t))real("mmap64");
    int fd = open_file(path, O_RDWR | O_CLOEXEC);
    void *p =
        fd < 0 ? MAP_FAILED : map(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED)
        abort();
    ((void)((int (*)(int))real("close"))(fd));
    control = p;
}

static int begins(const char *s, const char *with)
{
    return strncmp(s, with, strlen(with)) == 0;
}

static int ends(const char *s, const char *with)
{
    size_t n = strlen(s), m = strlen(with);
    return n >= m && strcmp(s + n - m, with) == 0;
}

static enum class class_of_view(const char *name) {
    const char *file = strrchr(name, '/') + 1;
    return begins(file, "MANIFEST-")                                                 ? VIEW_MANIFEST
           : begins(file, "OPTIONS-")                                                ? VIEW_OPTIONS
           : begins(file, "CURRENT") || ends(file, ".dbtmp")                         ? VIEW_CURRENT
           : begins(file, "LOG") || begins(file, "LOCK") || begins(file, "IDENTITY") ? VIEW_INFO
           : ends(file, ".log")                                                      ? VIEW_LOG
           : ends(file, ".sst")                                                      ? VIEW_TABLE
                                                                                     : OTHER;
}

/* `rest`: below the store's directory. */
static enum class class_below(const char *rest) {
    static const struct {const char * name; enum class class;}
files[] = {{"packs/", PACKS},
           {"room/", ROOM},
           {"journal/", JOURNAL},
           {"runs/", RUNS},
           {"superblock", SUPERBLOCK},
           {"session", SESSION},
           {"head", HEAD},
           {"remote", REMOTE_NOTE}};
static const char *const directories[] = {"",     ".",    "packs",    "room",     "journal",
                                          "runs", "view", "view.new", "view.old", "lost+found"};
for (size_t i = 0; i < sizeof directories / sizeof *directories; i++)
    if (strcmp(rest, directories[i]) == 0)
        return DIRECTORY;
if (begins(rest, "view/") || begins(rest, "view.new/") || begins(rest, "view.old/"))
    return class_of_view(rest);
for (size_t i = 0; i < sizeof files / sizeof *files; i++)
    if (begins(rest, files[i].name))
        return files[i].class;
return begins(rest, "log") || begins(rest, "lock") || begins(rest, "control") ? NONE : OTHER;
}

static enum class class_of_path(int dir, const char *path) {
    char whole[2 * PATH_MAX], link[64]; if (!control || !path) return NONE;
    if (path[0] != '/'){ssize_t n = -1; if (dir == AT_FDCWD){
        n = getcwd(whole, PATH_MAX) ? (ssize_t)strlen(whole) : -1;}
else
{
    (void)snprintf(link, sizeof link, "/proc/self/fd/%d", dir);
    n = readlink(link, whole, PATH_MAX);
}
if (n < 0)
    return NONE;
(void)snprintf(whole + n, sizeof whole - (size_t)n, "/%s", path);
path = whole;
}
if (strncmp(path, store, store_len - 1) == 0 &&
    (path[store_len - 1] == '/' || path[store_len - 1] == '\0'))
    return class_below(path[store_len - 1] ? path + store_len : "");
return strncmp(path, stage, stage_len) == 0 ? STAGE : NONE;
}

static enum class class_at(int fd) {
    return control && fd >= 0 && fd < 65536 ? (enum class)atomic_load(&class_of_fd[fd]) : NONE;
}

static void note_fd(int fd, enum class class)
{
    if (fd >= 0 && fd < 65536)
        atomic_store(&class_of_fd[fd], (uint8_t) class);
}

/* Which fault this call is to have. */
static enum kind fault(enum class class, enum call call)
{
    if (class == NONE || !control)
        return KIND_NONE;
    atomic_fetch_add(&control->count[class][call], 1);
    if (!atomic_load(&control->armed))
        return KIND_NONE;
    if (control->class != class && !(control->classes_too >> class & 1))
        return KIND_NONE;
    if (control->call != call && !(control->calls_too >> call & 1))
        return KIND_NONE;
    uint32_t number = atomic_fetch_add(&control->seen, 1);
    if (number < control->skip || (control->times && number - control->skip >= control->times))
        return KIND_NONE;
    atomic_fetch_add(&control->fired, 1);
    if (control->kind == KIND_ERRNO)
        errno = control->error;
    return (enum kind)control->kind;
}

/* --- names ------------------------------------------------------------------------------------ */

static int open_any(int dir, const char *path, int flags, mode_t mode)
{
    REAL(int, openat64, int, const char *, int, ...);
    enum class class = class_of_path(dir, path);
    if (fault(class, OPEN) == KIND_ERRNO)
        return -1;
    int fd = f(dir, path, flags, mode);
    note_fd(fd, fd >= 0 ? class : NONE);
    return fd;
}

#define MODE_OF(flags)                                                                             \
    ({                                                                                             \
        mode_t m = 0;                                                                              \
        if ((flags) & (O_CREAT | __O_TMPFILE)) {                                                   \
            va_list ap;                                                                            \
            va_start(ap, flags);                                                                   \
            m = va_arg(ap, mode_t);                                                                \
            va_end(ap);                                                                            \
        }                                                                                          \
        m;                                                                                         \
    })
EXPORT int open64(const char *path, int flags, ...)
{
    mode_t mode = MODE_OF(flags);
    return open_any(AT_FDCWD, path, flags, mode);
}
EXPORT int open(const char *path, int flags, ...)
{
    mode_t mode = MODE_OF(flags);
    return open_any(AT_FDCWD, path, flags, mode);
}
EXPORT int openat64(int dir, const char *path, int flags, ...)
{
    mode_t mode = MODE_OF(flags);
    return open_any(dir, path, flags, mode);
}
EXPORT int openat(int dir, const char *path, int flags, ...)
{
    mode_t mode = MODE_OF(flags);
    return open_any(dir, path, flags, mode);
}

EXPORT FILE *fopen(const char *path, const char *how)
{
    REAL(FILE *, fopen64, const char *, const char *);
    return fault(class_of_path(AT_FDCWD, path), OPEN) == KIND_ERRNO ? NULL : f(path, how);
}

EXPORT int close(int fd)
{
    REAL(int, close, int);
    note_fd(fd, NONE);
    return f(fd);
}

EXPORT int renameat2(int a, const char *from, int b, const char *to, unsigned flags)
{
    REAL(int, renameat2, int, const char *, int, const char *, unsigned);
    enum kind kind = fault(class_of_path(b, to), RENAME);
    return kind == KIND_ERRNO ? -1 : kind == KIND_LIE ? 0 : f(a, from, b, to, flags);
}
EXPORT int renameat(int a, const char *from, int b, const char *to)
{
    return renameat2(a, from, b, to, 0);
}
EXPORT int rename(const char *from, const char *to)
{
    return renameat2(AT_FDCWD, from, AT_FDCWD, to, 0);
}

EXPORT int unlinkat(int dir, const char *path, int flags)
{
    REAL(int, unlinkat, int, const char *, int);
    enum kind kind = fault(class_of_path(dir, path), UNLINK);
    return kind == KIND_ERRNO ? -1 : kind == KIND_LIE ? 0 : f(dir, path, flags);
}
EXPORT int unlink(const char *path)
{
    return unlinkat(AT_FDCWD, path, 0);
}

EXPORT int mkdirat(int dir, const char *path, mode_t mode)
{
    REAL(int, mkdirat, int, const char *, mode_t);
    enum kind kind = fault(class_of_path(dir, path), MKDIR);
    return kind == KIND_ERRNO ? -1 : f(dir, path, mode);
}
EXPORT int mkdir(const char *path, mode_t mode)
{
    return mkdirat(AT_FDCWD, path, mode);
}

/* libc's own opendir() opens behind our back: its directories have no descriptor that we know. */
EXPORT struct dirent64 *readdir64(DIR *dir)
{
    REAL(struct dirent64 *, readdir64, DIR *);
    return fault(class_at(dirfd(dir)), READDIR) == KIND_ERRNO ? NULL : f(dir);
}

/* --- content ---------------------------------------------------------------------------------- */

static void flip(void *buf, ssize_t len)
{
    for (ssize_t i = len / 3; i < len; i += len / 2 + 1)
        ((unsigned char *)buf)[i] ^= 0x40;
}

static off_t elsewhere(off_t at)
{
    return at >= 4096 ? at - 4096 : at + 4096;
}

static ssize_t pread_any(int fd, void *buf, size_t len, off_t at)
{
    REAL(ssize_t, pread64, int, void *, size_t, off_t);
    enum kind kind = fault(class_at(fd), PREAD);
    if (kind == KIND_ERRNO)
        return -1;
    if (kind == KIND_LIE) /* the end of the file, far too soon */
        return 0;
    ssize_t n = f(fd, buf, kind == KIND_SHORT && len > 1 ? len / 2 : len,
                  kind == KIND_MISDIRECT ? elsewhere(at) : at);
    if (kind == KIND_MISREAD && n > 0)
        flip(buf, n);
    return n;
}
EXPORT ssize_t pread64(int fd, void *buf, size_t len, off_t at)
{
    return pread_any(fd, buf, len, at);
}
EXPORT ssize_t pread(int fd, void *buf, size_t len, off_t at)
{
    return pread_any(fd, buf, len, at);
}

static ssize_t pwrite_any(int fd, const void *buf, size_t len, off_t at)
{
    REAL(ssize_t, pwrite64, int, const void *, size_t, off_t);
    enum kind kind = fault(class_at(fd), PWRITE);
    if (kind == KIND_ERRNO)
        return -1;
    if (kind == KIND_LIE)
        return (ssize_t)len;
    /* O_DIRECT takes whole sectors only. */
    size_t half = len >= 8192 ? len / 2 / 4096 * 4096 : len / 2;
    return f(fd, buf, kind == KIND_SHORT && half ? half : len,
             kind == KIND_MISDIRECT ? elsewhere(at) : at);
}
EXPORT ssize_t pwrite64(int fd, const void *buf, size_t len, off_t at)
{
    return pwrite_any(fd, buf, len, at);
}
EXPORT ssize_t pwrite(int fd, const void *buf, size_t len, off_t at)
{
    return pwrite_any(fd, buf, len, at);
}

EXPORT ssize_t write(int fd, const void *buf, size_t len)
{
    REAL(ssize_t, write, int, const void *, size_t);
    enum kind kind = fault(class_at(fd), PWRITE);
    if (kind == KIND_ERRNO)
        return -1;
    if (kind == KIND_LIE) { /* a disk loses the bytes; what follows them is where it belongs */
        (void)lseek(fd, (off_t)len, SEEK_CUR);
        return (ssize_t)len;
    }
    return f(fd, buf, kind == KIND_SHORT && len > 1 ? len / 2 : len);
}

EXPORT int fdatasync(int fd)
{
    REAL(int, fdatasync, int);
    enum kind kind = fault(class_at(fd), FDATASYNC);
    return kind == KIND_ERRNO ? -1 : kind == KIND_LIE ? 0 : f(fd);
}

EXPORT int fsync(int fd)
{
    REAL(int, fsync, int);
    enum kind kind = fault(class_at(fd), FSYNC);
    return kind == KIND_ERRNO ? -1 : kind == KIND_LIE ? 0 : f(fd);
}

static int fallocate_any(int fd, int mode, off_t at, off_t len)
{
    REAL(int, fallocate64, int, int, off_t, off_t);
    enum kind kind = fault(class_at(fd), FALLOCATE);
    return kind == KIND_ERRNO ? -1 : kind == KIND_LIE ? 0 : f(fd, mode, at, len);
}
EXPORT int fallocate64(int fd, int mode, off_t at, off_t len)
{
    return fallocate_any(fd, mode, at, len);
}
EXPORT int fallocate(int fd, int mode, off_t at, off_t len)
{
    return fallocate_any(fd, mode, at, len);
}

static int posix_fallocate_any(int fd, off_t at, off_t len)
{
    REAL(int, posix_fallocate64, int, off_t, off_t);
    enum kind kind = fault(class_at(fd), FALLOCATE);
    return kind == KIND_ERRNO ? errno : kind == KIND_LIE ? 0 : f(fd, at, len);
}
EXPORT int posix_fallocate64(int fd, off_t at, off_t len)
{
    return posix_fallocate_any(fd, at, len);
}
EXPORT int posix_fallocate(int fd, off_t at, off_t len)
{
    return posix_fallocate_any(fd, at, len);
}

static int ftruncate_any(int fd, off_t len)
{
    REAL(int, ftruncate64, int, off_t);
    enum kind kind = fault(class_at(fd), FTRUNCATE);
    return kind == KIND_ERRNO ? -1 : kind == KIND_LIE ? 0 : f(fd, len);
}
EXPORT int ftruncate64(int fd, off_t len)
{
    return ftruncate_any(fd, len);
}
EXPORT int ftruncate(int fd, off_t len)
{
    return ftruncate_any(fd, len);
}

static void *mmap_any(void *at, size_t len, int prot, int flags, int fd, off_t offset)
{
    REAL(void *, mmap64, void *, size_t, int, int, int, off_t);
    return fault(fd >= 0 ? class_at(fd) : NONE, MMAP) == KIND_ERRNO
               ? MAP_FAILED
               : f(at, len, prot, flags, fd, offset);
}
EXPORT void *mmap64(void *at, size_t len, int prot, int flags, int fd, off_t offset)
{
    return mmap_any(at, len, prot, flags, fd, offset);
}
EXPORT void *mmap(void *at, size_t len, int prot, int flags, int fd, off_t offset)
{
    return mmap_any(at, len, prot, flags, fd, offset);
}
