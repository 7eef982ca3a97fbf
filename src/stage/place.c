// SPDX-License-Identifier: Apache-2.0
/* Where stages are stored: the names of their files, a directory that no other user can write to,
 * and the information in a control file. */
#include <dirent.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>

#include "base/clock.h"
#include "base/crc.h"
#include "base/hex.h"
#include "base/log.h"
#include "stage/internal.h"

#define PREFIX "cairn-"
#define HEX_LEN 32u
#define UNMADE_S 60 /* if its creator lives, a stage is complete sooner */

char *stage_path(const char *dir, const uint8_t name[16], const char *suffix)
{
    char hex[HEX_LEN + 1];
    hex_print(hex, name, 16);
    return xasprintf("%s/" PREFIX "%s.%s", dir, hex, suffix);
}

char *stage_ctl_path(const char *dir, const uint8_t name[16])
{
    return stage_path(dir, name, "ctl");
}

static int parse_control_name(const char *base, uint8_t ret_name[16])
{
    if (strncmp(base, PREFIX, strlen(PREFIX)) != 0)
        return -EINVAL;
    const char *hex = base + strlen(PREFIX);
    if (strspn(hex, "0123456789abcdef") != HEX_LEN || strcmp(hex + HEX_LEN, ".ctl") != 0)
        return -EINVAL;
    return hex_read(ret_name, hex, 16) ? 0 : -EINVAL;
}

int stage_parse_path(const char *path, char **ret_dir, uint8_t ret_name[16])
{
    const char *slash = strrchr(path, '/');
    if (path[0] != '/' || !slash || parse_control_name(slash + 1, ret_name) < 0)
        return -EINVAL;
    *ret_dir = xasprintf("%.*s", (int)(slash - path), path);
    return 0;
}

/* --- the directory ---------------------------------------------------------------------------- */

static bool is_private(const struct stat *st)
{
    return S_ISDIR(st->st_mode) && st->st_uid == geteuid() && (st->st_mode & 077) == 0;
}

/* Creates or finds the directory. -EACCES: it belongs to another user, *ret_uid; -ENOTDIR. */
static int take_private_directory(const char *path, uid_t *ret_uid)
{
    struct stat st;
    if (mkdir(path, 0700) < 0 && errno != EEXIST)
        return -errno;
    _cleanup_close_ int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if ((fd < 0 ? lstat(path, &st) : fstat(fd, &st)) < 0)
        return -errno;
    *ret_uid = st.st_uid;
    if (st.st_uid != geteuid())
        return -EACCES;
    if (fd < 0)
        return -ENOTDIR;
    /* created under another umask, or by hand */
    return is_private(&st) || fchmod(fd, 0700) == 0 ? 0 : -errno;
}

char *stage_own_directory(const char *dir)
{
    return xasprintf("%s/" PREFIX "%u", dir, geteuid());
}

int stage_make_directory(const char *dir, char **ret_directory)
{
    struct stat st;
    uid_t uid = 0;
    if (stat(dir, &st) < 0)
        return -errno;
    if (st.st_uid == geteuid() && (st.st_mode & 022) == 0) {
        *ret_directory = xstrdup(dir);
        return 0;
    }
    _cleanup_free_ char *usual = stage_own_directory(dir);
    int r = take_private_directory(usual, &uid);
    if (r == 0) {
        *ret_directory = xstrdup(usual);
        return 0;
    }
    if (r != -EACCES && r != -ENOTDIR)
        return r;
    if (r == -EACCES)
        log_warn("stage: %s belongs to user %u, not to you (%u): the stage gets a directory of "
                 "another name",
                 usual, uid, geteuid());
    else
        log_warn("stage: %s is not a directory; the stage uses one of another name", usual);
    _cleanup_free_ char *other = xasprintf("%s-XXXXXX", usual);
    if (!mkdtemp(other))
        return -errno;
    *ret_directory = xstrdup(other);
    return 0;
}

void stage_leave_directory(const char *directory)
{
    _cleanup_free_ char *begin = xasprintf("/" PREFIX "%u", geteuid());
    const char *slash = strrchr(directory, '/');
    if (slash && strncmp(slash, begin, strlen(begin)) == 0)
        (void)rmdir(directory); /* fails while another stage is in it */
}

/* --- information in a control file ------------------------------------------------------------ */

static bool is_in_use(int fd)
{
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    return fcntl(fd, F_OFD_GETLK, &whole) == 0 && whole.l_type != F_UNLCK;
}

uint32_t stage_owner_crc(const struct stage_header *h)
{
    uint32_t crc = crc32_of(0, &h->owner_device, sizeof h->owner_device);
    crc = crc32_of(crc, &h->owner_ino, sizeof h->owner_ino);
    crc = crc32_of(crc, h->owner, sizeof h->owner);
    return crc ? crc : 1;
}

/* A network or overlay filesystem may renumber files that its cache has dropped. */
void stage_directory_identity(const char *path, uint64_t *ret_device, uint64_t *ret_ino)
{
    struct stat st;
    struct statfs fs;
    *ret_device = *ret_ino = 0;
    if (stat(path, &st) < 0 || statfs(path, &fs) < 0)
        return;
    if (major(st.st_dev) == 0 && fs.f_type != BTRFS_SUPER_MAGIC && fs.f_type != TMPFS_MAGIC)
        return;
    *ret_device = st.st_dev;
    *ret_ino = st.st_ino;
}

int stage_look(const char *dir, const uint8_t name[16], struct stage_look *ret)
{
    _cleanup_free_ char *path = stage_ctl_path(dir, name);
    _cleanup_close_ int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    _cleanup_free_ struct stage_header *h = xcalloc(1, sizeof *h);
    struct stat st;
    *ret = (struct stage_look){0};
    if ((fd < 0 ? lstat(path, &st) : fstat(fd, &st)) < 0)
        return -errno;
    ret->uid = st.st_uid;
    if (st.st_uid != geteuid() || !S_ISREG(st.st_mode) || (st.st_mode & 077) != 0)
        return -EACCES;
    if (fd < 0)
        return -EACCES;
    if (pread(fd, (void *)h, sizeof *h, 0) != (ssize_t)sizeof *h || h->magic != STAGE_MAGIC)
        return -EUCLEAN;
    memcpy(ret->store, h->store, sizeof ret->store);
    ret->in_use = is_in_use(fd);
    if (h->version != STAGE_VERSION)
        return 0;
    ret->pid = (pid_t)h->pid;
    h->owner[sizeof h->owner - 1] = '\0';
    ret->owner = xstrdup(h->owner);
    if (h->owner_crc && h->owner_crc == stage_owner_crc(h)) {
        ret->owner_device = h->owner_device;
        ret->owner_ino = h->owner_ino;
    }
    return 0;
}

void stage_look_done(struct stage_look *look)
{
    free(look->owner);
    look->owner = NULL;
}

void stage_each(const char *dir, void (*fn)(const uint8_t name[16], void *arg), void *arg)
{
    DIR *directory = opendir(dir);
    if (!directory)
        return;
    for (struct dirent *e; (e = readdir(directory));) {
        uint8_t name[16];
        if (parse_control_name(e->d_name, name) == 0)
            fn(name, arg);
    }
    (void)closedir(directory);
}

/* --- files of no live stage ------------------------------------------------------------------- */

struct sweep {
    const char *dir, *owner;
    const uint8_t *store;
};

static bool is_of_sweep(const struct stage_header *h, const struct sweep *sweep)
{
    return h->magic == STAGE_MAGIC && h->version == STAGE_VERSION &&
           memcmp(h->store, sweep->store, sizeof h->store) == 0 &&
           (strncmp(h->owner, sweep->owner, sizeof h->owner) == 0 ||
            (!h->owner[0] && !h->is_named));
}

static void sweep_one(const uint8_t name[16], void *arg)
{
    const struct sweep *sweep = arg;
    _cleanup_free_ char *path = stage_ctl_path(sweep->dir, name);
    _cleanup_close_ int fd = open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    _cleanup_free_ struct stage_header *h = xcalloc(1, sizeof *h);
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0 || st.st_uid != geteuid() || !S_ISREG(st.st_mode) ||
        fcntl(fd, F_OFD_SETLK, &whole) < 0)
        return;
    bool is_unmade = pread(fd, (void *)h, sizeof *h, 0) < (ssize_t)sizeof *h || h->magic == 0;
    if (is_unmade ? st.st_mtim.tv_sec + UNMADE_S < clock_realtime_ns() / 1000000000
                  : is_of_sweep(h, sweep) && !h->is_named) {
        log_info("stage: removing %s, which was never in use", path);
        stage_remove_files(sweep->dir, name);
    } else if (!is_unmade && is_of_sweep(h, sweep)) {
        log_warn("stage: %s and its .slabs (%llu MiB) are of an earlier session of %s, and nothing "
                 "names them any more: remove them if what was not on NVMe then is not needed",
                 path, (unsigned long long)(stage_files_bytes(sweep->dir, name) / MIB),
                 sweep->owner);
    }
}

void stage_sweep(const char *dir, const uint8_t store[16], const char *owner)
{
    struct sweep sweep = {.dir = dir, .owner = owner, .store = store};
    stage_each(dir, sweep_one, &sweep);
}

/* --- its files -------------------------------------------------------------------------------- */

void stage_remove_files(const char *dir, const uint8_t name[16])
{
    _cleanup_free_ char *ctl = stage_path(dir, name, "ctl");
    _cleanup_free_ char *slabs = stage_path(dir, name, "slabs");
    (void)unlink(ctl);
    (void)unlink(slabs);
}

static uint64_t allocated_bytes(const char *path)
{
    struct stat st;
    return lstat(path, &st) < 0 ? 0 : (uint64_t)st.st_blocks * 512;
}

uint64_t stage_files_bytes(const char *dir, const uint8_t name[16])
{
    _cleanup_free_ char *ctl = stage_path(dir, name, "ctl");
    _cleanup_free_ char *slabs = stage_path(dir, name, "slabs");
    return allocated_bytes(ctl) + allocated_bytes(slabs);
}

static uint64_t held_in_slab(int slabs_fd, uint32_t slab, const struct stage_header *h,
                             uint32_t use)
{
    struct slab_record record;
    uint64_t most = SLAB_PAYLOAD;
    if (slab_use_state(use) == SLAB_SHARED_FREE)
        return 0;
    if (h->version != STAGE_VERSION)
        return most;
    if (slab_use_state(use) == SLAB_SHARED_USED)
        return slab_use_fill(use);
    off_t at = (off_t)slab * (off_t)SLAB_STRIDE;
    return pread(slabs_fd, &record, sizeof record, at) == (ssize_t)sizeof record
               ? min_u64(record.length, most)
               : most;
}

uint64_t stage_held_bytes(const char *dir, const uint8_t name[16])
{
    _cleanup_free_ char *ctl = stage_path(dir, name, "ctl");
    _cleanup_free_ char *slabs = stage_path(dir, name, "slabs");
    _cleanup_close_ int ctl_fd = open(ctl, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    _cleanup_close_ int slabs_fd = open(slabs, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    _cleanup_free_ struct stage_header *h = xcalloc(1, sizeof *h);
    struct slab_entry entry;
    uint64_t bytes = 0;
    if (ctl_fd < 0 || slabs_fd < 0 ||
        pread(ctl_fd, (void *)h, sizeof *h, 0) != (ssize_t)sizeof *h || h->magic != STAGE_MAGIC)
        return 0;
    for (uint32_t slab = 0; slab < h->slab_count; slab++) {
        off_t at = (off_t)sizeof *h + (off_t)slab * (off_t)sizeof entry;
        if (pread(ctl_fd, (void *)&entry, sizeof entry, at) != (ssize_t)sizeof entry)
            break;
        bytes += held_in_slab(slabs_fd, slab, h, atomic_load(&entry.use));
    }
    return bytes;
}

/* Without its .ctl the content and owner are unknown. The slabs may contain acknowledged data, so
 * they stay. */
static void report_if_parted(const char *dir, const char *base)
{
    size_t stem = strlen(PREFIX) + HEX_LEN;
    if (strncmp(base, PREFIX, strlen(PREFIX)) != 0 || strlen(base) <= stem ||
        strcmp(base + stem, ".slabs") != 0)
        return;
    _cleanup_free_ char *slabs = xasprintf("%s/%s", dir, base);
    _cleanup_free_ char *ctl = xasprintf("%s/%.*s.ctl", dir, (int)stem, base);
    struct stat st;
    if (lstat(ctl, &st) == 0 || errno != ENOENT || lstat(slabs, &st) < 0 || st.st_uid != geteuid())
        return;
    log_warn("stage: %s (%llu MiB) is of a stage whose .ctl was removed: without that it cannot be "
             "read, and it stays; remove it if what was not on NVMe then is not needed, and no "
             "daemon runs whose status says that the files of its stage were removed",
             slabs, (unsigned long long)st.st_blocks * 512 / MIB);
}

void stage_report_parted(const char *dir)
{
    DIR *directory = opendir(dir);
    if (!directory)
        return;
    for (struct dirent *e; (e = readdir(directory));)
        report_if_parted(dir, e->d_name);
    (void)closedir(directory);
}

bool stage_is_left(const char *dir, const uint8_t name[16])
{
    _cleanup_free_ char *ctl = stage_path(dir, name, "ctl");
    return access(ctl, F_OK) == 0;
}

bool stage_is_unlinked(const struct stage *stage)
{
    struct stat ctl, slabs;
    return fstat(stage->ctl_fd, &ctl) == 0 && fstat(stage->slabs_fd, &slabs) == 0 &&
           (ctl.st_nlink == 0 || slabs.st_nlink == 0);
}
