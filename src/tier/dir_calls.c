// SPDX-License-Identifier: Apache-2.0
/* Order of a put: the content is made durable (fsync) under a temporary name, then named by
 * rename() or, if it must not replace anything, by link(). After an error the put starts over in a
 * new file: a second fsync of the same file proves nothing. */
#include "tier/dir_calls.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/mountinfo.h"
#include "base/text.h"
#include "tier/dir_list.h"

#define CLOCK_FILE ".clock"
#define ZFS_SUPER_MAGIC 0x2fc12fc1 /* not in magic.h, like: */
#define BCACHEFS_SUPER_MAGIC 0xca451a4e
#define COPY_STEP MIB
#define ENTRIES_BYTES 8192u /* of one message */

static int64_t time_of(const struct stat *st)
{
    return (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec;
}

/* --- the directory itself --------------------------------------------------------------------- */

/* Makes the directory's own name durable. If the parent cannot be opened for reading, the directory
 * was not created by us. */
static int sync_parent(const char *path)
{
    _cleanup_free_ char *parent = xasprintf("%s/..", path);
    int r = io_fsync_dir(parent);
    return r == -EACCES ? 0 : r;
}

static int dir_answer_with_text(struct dir_answer *answer, char *out, const char *text)
{
    answer->count = (uint32_t)min_u64(strlen(text), DIR_INLINE_MAX);
    memcpy(out, text, answer->count);
    return 0;
}

static int do_resolve(const char *path, struct dir_answer *answer, char *out)
{
    _cleanup_free_ char *whole = NULL;
    int r = io_resolve_path(path, &whole);
    return r < 0 ? r : dir_answer_with_text(answer, out, whole);
}

/* In a directory that anyone may write to, another user may have created the directory first, and
 * could read and replace its objects. `in`: the directory that contains it. */
static int check_maker(int fd, int in)
{
    struct stat st, above;
    if (fstat(fd, &st) < 0 || fstat(in, &above) < 0)
        return -errno;
    bool is_trusted = st.st_uid == geteuid() || st.st_uid == 0;
    return !is_trusted && above.st_mode & S_IWOTH ? -EPERM : 0;
}

/* A parent that cannot be opened is not writable for everyone. */
static int check_maker_of_root(int fd)
{
    _cleanup_close_ int parent = openat(fd, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
    return parent < 0 ? 0 : check_maker(fd, parent);
}

static int open_root(const char *path, bool read_only, bool may_make)
{
    bool made = may_make && mkdir(path, 0700) == 0;
    if (!made && may_make && errno != EEXIST)
        return -errno;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    int r = !read_only && faccessat(fd, ".", W_OK | X_OK, AT_EACCESS) < 0 ? -errno : 0;
    if (r == 0 && !read_only)
        r = check_maker_of_root(fd);
    if (r == 0 && may_make)
        r = sync_parent(path);
    if (r < 0)
        (void)close(fd);
    return r < 0 ? r : fd;
}

static int look_at_place(int fd, struct dir_place *ret)
{
    struct stat st;
    struct statfs fs;
    if (fstat(fd, &st) < 0 || fstatfs(fd, &fs) < 0)
        return -errno;
    struct statx made;
    *ret = (struct dir_place){.ino = st.st_ino, .fs_type = (int64_t)fs.f_type};
    if (statx(fd, "", AT_EMPTY_PATH, STATX_BTIME, &made) == 0 && made.stx_mask & STATX_BTIME)
        ret->made_ns = made.stx_btime.tv_sec * 1000000000 + made.stx_btime.tv_nsec;
    if (faccessat(fd, DIR_MARKER, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
        ret->has_marker = true;
    else if (errno != ENOENT)
        return -errno;
    return 0;
}

/* A directory that was emptied, or replaced, has no marker: a store that started over there would
 * publish beside the lost objects. */
static bool is_same_dir_place(const struct dir_place *known, const struct dir_place *now)
{
    bool made_then = known->made_ns == 0 || now->made_ns == 0 || known->made_ns == now->made_ns;
    return known->ino == now->ino && known->fs_type == now->fs_type && made_then &&
           (now->has_marker || !known->has_marker);
}

struct search {
    dev_t device;
    struct tier_place *place;
};

static bool see_mount(const struct mountinfo *mount, void *arg)
{
    struct search *s = arg;
    if (mount->device != s->device)
        return true;
    (void)snprintf(s->place->shown, sizeof s->place->shown, "%s %s", mount->type, mount->source);
    s->place->lists_may_lag =
        strncmp(mount->type, "nfs", 3) == 0 &&
        !(mountinfo_has_option(mount, "noac") && mountinfo_has_option(mount, "lookupcache=none"));
    return true;
}

/* A filesystem on a disk has an id of its own, which statfs returns on any machine. Others, e.g. of
 * a server, are identified by type and source: they have no id, or each mount makes a new one. */
static int look_at_filesystem(int fd, struct tier_place *ret)
{
    struct stat st, root;
    struct statfs fs;
    *ret = (struct tier_place){0};
    if (fstat(fd, &st) < 0 || fstatfs(fd, &fs) < 0)
        return -errno;
    struct search search = {.device = st.st_dev, .place = ret};
    (void)snprintf(ret->shown, sizeof ret->shown, "type %lx", (unsigned long)fs.f_type);
    if (mountinfo_read("/proc/self/mountinfo", see_mount, &search) < 0)
        search.device = 0; /* without /proc, the number of the type must do */
    ret->is_of_root = stat("/", &root) == 0 && root.st_dev == st.st_dev;
    unsigned id[2];
    memcpy(id, &fs.f_fsid, sizeof id);
    bool on_disk = major(st.st_dev) != 0 || fs.f_type == BTRFS_SUPER_MAGIC;
    if (on_disk && (id[0] || id[1]))
        (void)snprintf(ret->identity, sizeof ret->identity, "type %lx id %08x%08x",
                       (unsigned long)fs.f_type, id[0], id[1]);
    else
        (void)snprintf(ret->identity, sizeof ret->identity, "%s", ret->shown);
    text_hide_controls(ret->identity);
    text_hide_controls(ret->shown);
    return 0;
}

/* If the filesystem is not mounted, the path leads to an empty directory of this machine. */
static int do_open(struct dir_talk *talk, const struct dir_request *request, const char *path,
                   struct dir_answer *answer, char *out)
{
    struct tier_place lies;
    _cleanup_close_ int fd =
        open_root(path, request->read_only, request->may_make && !request->is_known);
    if (fd < 0)
        return fd;
    int r = look_at_place(fd, &answer->place);
    if (r == 0)
        r = look_at_filesystem(fd, &lies);
    if (r < 0)
        return r;
    memcpy(out, &lies, sizeof lies);
    if (request->is_known && !is_same_dir_place(&request->known, &answer->place))
        return -ESTALE;
    if (!atomic_load(&talk->root->path))
        atomic_store(&talk->root->path, xstrdup(path)); /* owned by the process until it ends */
    answer->count = sizeof lies;
    atomic_store(&talk->root->read_only, request->read_only);
    int old = -1, own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (own < 0)
        return -errno;
    if (atomic_compare_exchange_strong(&talk->root->fd, &old, own))
        return 0;
    r = dup3(own, old, O_CLOEXEC) < 0 ? -errno : 0; /* other threads use the number */
    (void)close(own);
    return r;
}

static int root_fd(const struct dir_talk *talk)
{
    return atomic_load(&talk->root->fd);
}

static int open_directory(int root, const char *directory)
{
    struct open_how how = {.flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
                           .resolve = RESOLVE_NO_SYMLINKS | RESOLVE_BENEATH};
    int fd = (int)syscall(SYS_openat2, root, directory, &how, sizeof how);
    /* before Linux 5.6, or in a sandbox that does not know the call */
    if (fd < 0 && (errno == ENOSYS || errno == EPERM))
        fd = openat(root, directory, O_PATH | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    return fd < 0 ? -errno : fd;
}

/* Opens the directory of the object, and sets *name to its name in there. Symbolic links in place
 * of a directory are not followed: another user with write access could lead us out of the remote,
 * and we may be root. The caller closes *ret_own. */
static int enter_directory(struct dir_talk *talk, const char **name, int *ret_own)
{
    const char *slash = strrchr(*name, '/');
    talk->at = root_fd(talk);
    if (!slash)
        return 0;
    _cleanup_free_ char *directory = xasprintf("%.*s", (int)(slash - *name), *name);
    *ret_own = open_directory(talk->at, directory);
    if (*ret_own < 0)
        return *ret_own;
    TRY(atomic_load(&talk->root->read_only) ? 0 : check_maker(*ret_own, talk->at));
    talk->at = *ret_own;
    *name = slash + 1;
    return 0;
}

/* --- put -------------------------------------------------------------------------------------- */

/* In the directory of the object, so that it can be renamed there; no object begins with a dot. */
static char *temporary_name(const char *object)
{
    uint64_t number;
    if (getrandom(&number, sizeof number, 0) != (ssize_t)sizeof number)
        number = (uint64_t)clock_monotonic_ns();
    const char *slash = strrchr(object, '/');
    return xasprintf("%.*s" DIR_TEMPORARY "%016llx", slash ? (int)(slash + 1 - object) : 0, object,
                     (unsigned long long)number);
}

/* Over NFS the answer to a successful link() may be lost; the kernel's retry then finds the name
 * taken, by our own file. */
static bool is_ours(const struct dir_talk *talk, int fd, const char *object)
{
    struct stat ours, theirs;
    return fstat(fd, &ours) == 0 && fstatat(talk->at, object, &theirs, AT_SYMLINK_NOFOLLOW) == 0 &&
           ours.st_ino == theirs.st_ino && ours.st_dev == theirs.st_dev;
}

static int link_new_object(const struct dir_talk *talk, int fd, const char *temporary,
                           const char *object)
{
    int root = talk->at;
    if (linkat(root, temporary, root, object, 0) == 0) {
        (void)unlinkat(root, temporary, 0);
        return 0;
    }
    if (errno == EEXIST)
        return is_ours(talk, fd, object) ? 0 : -EEXIST;
    if (errno != EPERM && errno != EOPNOTSUPP && errno != ENOSYS)
        return -errno;
    /* The filesystem has no hard links. */
    return renameat2(root, temporary, root, object, RENAME_NOREPLACE) < 0 ? -errno : 0;
}

static bool is_given_up(const struct dir_talk *talk)
{
    char byte;
    return recv(talk->socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

/* Drops the content from the page cache: it is not read again soon, and memory belongs to the
 * trainer. */
static int write_content(struct dir_talk *talk, int fd, const struct dir_request *request,
                         const char *content, size_t content_len)
{
    int r = content_len < request->len ? dir_pump_in(&talk->pump, talk->in, fd, request->len)
                                       : io_pwrite_full(fd, content, content_len, 0);
    if (r == 0 && fsync(fd) < 0)
        r = -errno;
    if (r == 0)
        (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    /* The caller may have given up and reused the memory during the write. */
    return r == 0 && is_given_up(talk) ? -ECANCELED : r;
}

static int do_put(struct dir_talk *talk, const struct dir_request *request, const char *object,
                  const char *content, size_t content_len)
{
    int root = talk->at;
    _cleanup_free_ char *temporary = temporary_name(object);
    _cleanup_close_ int fd =
        openat(root, temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return -errno;
    int r = write_content(talk, fd, request, content, content_len);
    if (r == 0 && request->verb == DIR_PUT_NEW)
        r = link_new_object(talk, fd, temporary, object);
    else if (r == 0 && renameat(root, temporary, root, object) < 0)
        r = -errno;
    if (r < 0)
        (void)unlinkat(root, temporary, 0);
    return r;
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

/* Copies the object into a new file and renames that over it. The object may be gone meanwhile. */
static int do_store_again(struct dir_talk *talk, const char *object)
{
    int root = talk->at;
    _cleanup_close_ int from = openat(root, object, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (from < 0)
        return errno == ENOENT ? 0 : -errno;
    _cleanup_free_ char *temporary = temporary_name(object);
    _cleanup_close_ int to =
        openat(root, temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    int r = to < 0 ? -errno : copy_content(from, to);
    if (r == 0 && is_given_up(talk))
        r = -ECANCELED;
    if (r == 0 && renameat(root, temporary, root, object) < 0)
        r = -errno;
    if (r < 0 && to >= 0)
        (void)unlinkat(root, temporary, 0);
    return r;
}

/* Makes the directory's name durable before it is used. If the fsync fails the directory is
 * removed, to be created again later: another fsync of the same name would prove nothing. */
static int do_make_directory(int parent, const char *directory)
{
    if (mkdirat(parent, directory, 0700) < 0)
        return -errno;
    _cleanup_close_ int fd = openat(parent, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int r = fd < 0 || fsync(fd) < 0 ? -errno : 0;
    if (r < 0)
        (void)unlinkat(parent, directory, AT_REMOVEDIR);
    return r;
}

/* --- the rest --------------------------------------------------------------------------------- */

/* Opened for each call: a cached descriptor may belong to a file that was replaced. Nonblocking: a
 * fifo of that name would hold this thread for ever. */
static int do_get(struct dir_talk *talk, const struct dir_request *request, const char *object,
                  struct dir_answer *answer, char *out)
{
    _cleanup_close_ int fd =
        openat(talk->at, object, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return -errno;
    int r;
    if (request->len > DIR_INLINE_MAX)
        r = dir_pump_out(&talk->pump, fd, request->offset, talk->out, request->len);
    else
        r = io_pread_full(fd, out, request->len, request->offset);
    if (r == 0 && request->len <= DIR_INLINE_MAX)
        answer->count = (uint32_t)request->len;
    return r == -EISDIR || r == -ESPIPE ? -ENOENT : r; /* a directory or a fifo is no object */
}

static int do_stat(struct dir_talk *talk, const char *object, struct dir_answer *answer)
{
    struct stat st;
    if (fstatat(talk->at, object, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return -errno;
    answer->len = (uint64_t)st.st_size;
    answer->modified_ns = time_of(&st);
    return S_ISREG(st.st_mode) ? 0 : -ENOENT;
}

/* Names may be lost only if fsync itself fails; if the directory could not be opened (out of
 * descriptors), nothing happened. */
static int do_sync_directory(struct dir_talk *talk, const char *directory,
                             struct dir_answer *answer)
{
    _cleanup_close_ int fd =
        openat(talk->at, directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return -errno;
    if (fsync(fd) == 0)
        return 0;
    answer->is_lost = true;
    return -errno;
}

/* Local filesystems, which have one kernel's clock, and NFS, whose server sets the times. With
 * others (Lustre, CephFS, FUSE) each client may set them by its own clock. */
static bool has_one_clock(int64_t fs_type)
{
    static const int64_t types[] = {EXT4_SUPER_MAGIC,      XFS_SUPER_MAGIC, BTRFS_SUPER_MAGIC,
                                    F2FS_SUPER_MAGIC,      TMPFS_MAGIC,     RAMFS_MAGIC,
                                    OVERLAYFS_SUPER_MAGIC, ZFS_SUPER_MAGIC, BCACHEFS_SUPER_MAGIC,
                                    NFS_SUPER_MAGIC};
    for (size_t i = 0; i < ARRAY_LEN(types); i++)
        if (types[i] == fs_type)
            return true;
    return false;
}

/* Touches a file and reads the time that the server gave it. (Lustre uses the client's clock: there
 * the clocks of the nodes must agree.) */
static int touch_clock(const struct dir_talk *talk, struct dir_answer *answer)
{
    struct statfs fs;
    _cleanup_close_ int fd = openat(root_fd(talk), CLOCK_FILE,
                                    O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
    struct stat st;
    if (fd < 0 || futimens(fd, NULL) < 0 || fstat(fd, &st) < 0 || fstatfs(fd, &fs) < 0)
        return -errno;
    answer->modified_ns = time_of(&st);
    answer->is_shared = has_one_clock((int64_t)fs.f_type);
    return 0;
}

static int do_space(struct dir_talk *talk, struct dir_answer *answer)
{
    struct statvfs s;
    if (fstatvfs(root_fd(talk), &s) < 0)
        return -errno;
    answer->total = (uint64_t)s.f_blocks * s.f_frsize;
    answer->free = (uint64_t)s.f_bavail * s.f_frsize;
    return 0;
}

/* --- listing ---------------------------------------------------------------------------------- */

struct batch {
    struct dir_talk *talk;
    struct dir_answer head;
    size_t used;
    char bytes[ENTRIES_BYTES];
};

static int send_batch(struct batch *b)
{
    struct iovec parts[] = {{&b->head, sizeof b->head}, {b->bytes, b->used}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    if (b->head.count == 0)
        return 0;
    ssize_t n = sendmsg(b->talk->socket, &message, MSG_NOSIGNAL);
    b->head.count = 0;
    b->used = 0;
    return n < 0 ? -errno : 0;
}

static int add_entry(const struct tier_object *object, void *arg)
{
    struct batch *b = arg;
    size_t name_len = strlen(object->name) + 1;
    struct dir_entry entry = {
        .len = object->len, .modified_ns = object->modified_ns, .name_len = (uint32_t)name_len};
    if (name_len > DIR_NAME_MAX)
        return -ENAMETOOLONG;
    TRY(b->used + sizeof entry + name_len > sizeof b->bytes ? send_batch(b) : 0);
    memcpy(b->bytes + b->used, &entry, sizeof entry);
    memcpy(b->bytes + b->used + sizeof entry, object->name, name_len);
    b->used += sizeof entry + name_len;
    b->head.count++;
    return 0;
}

static int clock_for_list(void *arg, int64_t *ret_ns)
{
    struct batch *b = arg;
    struct dir_answer answer;
    if (atomic_load(&b->talk->root->read_only))
        return -EROFS;
    TRY(touch_clock(b->talk, &answer));
    *ret_ns = answer.modified_ns;
    return 0;
}

/* Sends also the names found before an error: the retry continues after them. */
static int do_list(struct dir_talk *talk, const char *directory, const char *after)
{
    struct batch *b = xcalloc(1, sizeof *b);
    b->talk = talk;
    b->head.kind = DIR_ENTRIES;
    struct dir_listing listing = {.root_fd = root_fd(talk),
                                  .after = *after ? after : NULL,
                                  .fn = add_entry,
                                  .now = clock_for_list,
                                  .arg = b};
    int r = dir_list_directory(&listing, directory);
    dir_listing_done(&listing);
    int sent = send_batch(b);
    free(b);
    return r < 0 ? r : sent;
}

/* The directory was removed: nothing can be created in it, and a missing name says nothing about an
 * object. */
static bool is_dir_removed(int root)
{
    struct stat st;
    return fstat(root, &st) == 0 && st.st_nlink == 0;
}

/* Names created in a directory that was moved away would not be found. */
static bool left_its_path(const struct dir_talk *talk)
{
    const char *path = atomic_load(&talk->root->path);
    struct stat ours, there;
    if (!path || fstat(root_fd(talk), &ours) < 0)
        return false;
    if (stat(path, &there) < 0)
        return errno == ENOENT || errno == ENOTDIR;
    return ours.st_ino != there.st_ino || ours.st_dev != there.st_dev;
}

static bool call_makes_names_count(enum dir_verb verb)
{
    return verb == DIR_PUT_NEW || verb == DIR_SYNC_DIRECTORY;
}

static bool is_of_an_object(enum dir_verb verb)
{
    return verb != DIR_RESOLVE && verb != DIR_OPEN && verb != DIR_LIST && verb != DIR_SPACE;
}

static int carry_out(struct dir_talk *talk, const struct dir_request *request, const char *name,
                     size_t content_len, struct dir_answer *answer, char *out)
{
    /* the client believes that it is open, as it was in the previous helper process */
    if (root_fd(talk) < 0 && request->verb != DIR_RESOLVE && request->verb != DIR_OPEN)
        return -ESTALE;
    if (request->verb != DIR_RESOLVE && request->verb != DIR_OPEN &&
        (is_dir_removed(root_fd(talk)) ||
         (call_makes_names_count(request->verb) && left_its_path(talk))))
        return -ESTALE;
    const char *content = name + request->name_len;
    _cleanup_close_ int own = -1;
    TRY(is_of_an_object(request->verb) ? enter_directory(talk, &name, &own) : 0);
    switch (request->verb) {
    case DIR_RESOLVE:
        return do_resolve(name, answer, out);
    case DIR_OPEN:
        return do_open(talk, request, name, answer, out);
    case DIR_PUT:
    case DIR_PUT_NEW:
        return do_put(talk, request, name, content, content_len);
    case DIR_GET:
        return do_get(talk, request, name, answer, out);
    case DIR_STAT:
        return do_stat(talk, name, answer);
    case DIR_LIST:
        return do_list(talk, name, name + strlen(name) + 1);
    case DIR_REMOVE:
        return unlinkat(talk->at, name, 0) < 0 ? -errno : 0;
    case DIR_MAKE_DIRECTORY:
        return do_make_directory(talk->at, name);
    case DIR_SYNC_DIRECTORY:
        return do_sync_directory(talk, name, answer);
    case DIR_STORE_AGAIN:
        return do_store_again(talk, name);
    case DIR_NOW:
        return touch_clock(talk, answer);
    case DIR_SPACE:
        return do_space(talk, answer);
    }
    return -EINVAL;
}

void dir_calls_do(struct dir_talk *talk, const struct dir_request *request, const char *name,
                  size_t content_len, struct dir_answer *answer, char *content_out)
{
    *answer = (struct dir_answer){.kind = DIR_ANSWER};
    answer->result = carry_out(talk, request, name, content_len, answer, content_out);
    if (answer->result < 0)
        answer->count = 0;
    if (answer->result < 0)
        dir_pump_done(&talk->pump); /* content may be left in it */
}
