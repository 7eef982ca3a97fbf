// SPDX-License-Identifier: Apache-2.0
#include "cli/mounts.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/wait.h>

#include "base/cause.h"
#include "base/mountinfo.h"
#include "base/program.h"
#include "base/text.h"
#include "daemon/lifecycle.h"

#define STALE_MOUNTS_MAX 16
#define FUSERMOUNT_SAID_MAX 512

static void add_mount(struct mount_list *list, const struct mountinfo *mount)
{
    vector_add(list, (struct mount_entry){.mountpoint = xstrdup(mount->mountpoint),
                                          .store = xstrdup(mount->source),
                                          .device = mount->device,
                                          .id = mount->id,
                                          .parent = mount->parent});
}

static void note_cover(struct mount_list *list, const struct mountinfo *mount)
{
    for (size_t i = 0; i < list->count; i++) {
        struct mount_entry *entry = &list->at[i];
        if (entry->id == mount->parent && !entry->cover &&
            strcmp(entry->mountpoint, mount->mountpoint) == 0)
            entry->cover = xstrdup(mount->type);
    }
}

static bool see_mount(const struct mountinfo *mount, void *arg)
{
    struct mount_list *list = arg;
    note_cover(list, mount);
    if (strcmp(mount->type, CAIRN_FSTYPE) == 0)
        add_mount(list, mount);
    return true;
}

int mounts_read(const char *path, struct mount_list *ret)
{
    *ret = (struct mount_list){0};
    return mountinfo_read(path, see_mount, ret);
}

void mounts_done(struct mount_list *list)
{
    for (size_t i = 0; i < list->count; i++) {
        free(list->at[i].mountpoint);
        free(list->at[i].store);
        free(list->at[i].cover);
    }
    vector_free(list);
}

static const struct mount_entry *find_exact(const struct mount_list *list, const char *path)
{
    for (size_t i = list->count; i-- > 0;)
        if (path && strcmp(list->at[i].mountpoint, path) == 0)
            return &list->at[i];
    return NULL;
}

char *path_absolute(const char *path)
{
    _cleanup_free_ char *cwd = path[0] == '/' ? xstrdup("") : getcwd(NULL, 0);
    if (!cwd)
        return NULL;
    _cleanup_free_ char *whole = xasprintf("%s/%s", cwd, path);
    char *out = xmalloc(strlen(whole) + 2);
    size_t len = 0;
    char *rest = whole;
    for (char *name = strsep(&rest, "/"); name; name = strsep(&rest, "/")) {
        if (*name == '\0' || strcmp(name, ".") == 0)
            continue;
        if (strcmp(name, "..") == 0) {
            while (len > 0 && out[--len] != '/')
                ;
            continue;
        }
        out[len++] = '/';
        memcpy(out + len, name, strlen(name));
        len += strlen(name);
    }
    if (len == 0)
        out[len++] = '/';
    out[len] = '\0';
    return out;
}

char *path_below(const char *directory, const char *name)
{
    size_t len = strlen(directory);
    return xasprintf("%s%s%s", directory, len && directory[len - 1] == '/' ? "" : "/", name);
}

bool path_is_inside(const char *path, const char *directory)
{
    size_t len = strcmp(directory, "/") == 0 ? 0 : strlen(directory);
    return strncmp(path, directory, len) == 0 && (path[len] == '/' || path[len] == '\0');
}

static bool goes_up(const char *path)
{
    for (const char *at = path; (at = strstr(at, "..")); at += 2)
        if ((at == path || at[-1] == '/') && (at[2] == '/' || at[2] == '\0'))
            return true;
    return false;
}

/* First searches without calling into a filesystem: one whose daemon hangs must not block the
 * caller. But only the kernel knows the parent of a symbolic link's target. */
const struct mount_entry *mounts_find(const struct mount_list *list, const char *path)
{
    _cleanup_free_ char *above = goes_up(path) ? realpath(path, NULL) : NULL;
    if (above)
        return find_exact(list, above);
    _cleanup_free_ char *absolute = path_absolute(path);
    const struct mount_entry *found = find_exact(list, absolute);
    if (found)
        return found;
    _cleanup_free_ char *real = realpath(path, NULL);
    return find_exact(list, real);
}

const struct mount_entry *mounts_find_device(const struct mount_list *list, dev_t device)
{
    for (size_t i = list->count; i-- > 0;)
        if (list->at[i].device == device)
            return &list->at[i];
    return NULL;
}

const struct mount_entry *mounts_find_store(const struct mount_list *list, const char *store)
{
    _cleanup_free_ char *real = realpath(store, NULL);
    for (size_t i = list->count; real && i-- > 0;)
        if (strcmp(list->at[i].store, real) == 0)
            return &list->at[i];
    return NULL;
}

/* Returns its exit status, or -errno if it cannot be run. *ret_said is the first line of its
 * errors; caller frees. */
static int execute_fusermount(bool lazy, const char *mountpoint, char **ret_said)
{
    const char *const argv[] = {"fusermount3", lazy ? "-uz" : "-u", "--", mountpoint, NULL};
    pid_t child;
    int said[2];
    if (pipe2(said, O_CLOEXEC) < 0)
        return -errno;
    const int fds[][2] = {{said[1], STDERR_FILENO}};
    int r = program_start(argv[0], argv, fds, ARRAY_LEN(fds), false, &child);
    (void)close(said[1]);
    if (r == 0) {
        char *text = *ret_said = xcalloc(1, FUSERMOUNT_SAID_MAX);
        (void)program_hear(said[0], text, FUSERMOUNT_SAID_MAX, INT64_MAX);
        text[strcspn(text, "\n")] = '\0';
    }
    (void)close(said[0]);
    if (r < 0)
        return r;
    int status = program_await(child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -EINTR;
}

int mount_remove(const char *mountpoint, bool lazy)
{
    if (geteuid() == 0)
        return umount2(mountpoint, UMOUNT_NOFOLLOW | (lazy ? MNT_DETACH : 0)) < 0 ? -errno : 0;
    _cleanup_free_ char *said = NULL;
    int r = execute_fusermount(lazy, mountpoint, &said);
    if (r <= 0)
        return r;
    /* The reason is only in its message. */
    if (strstr(said, strerror(EBUSY)))
        return -EBUSY;
    cause_note("%s", *said ? said : "fusermount3 gave no reason");
    return -EPERM;
}

static bool is_dead_mount(int error)
{
    return error == ENOTCONN || error == ECONNABORTED;
}

/* Returns 0 or the errno of accessing the mountpoint. Calls into its filesystem (statfs: attributes
 * may still be in the kernel's cache when its daemon is dead). */
static int mountpoint_probe(const char *mountpoint, struct stat *ret_st)
{
    struct statfs fs;
    if (stat(mountpoint, ret_st) < 0 || statfs(mountpoint, &fs) < 0)
        return errno;
    return 0;
}

bool mount_is_dead(const char *mountpoint)
{
    struct stat st;
    return is_dead_mount(mountpoint_probe(mountpoint, &st));
}

static bool is_mount_root(const char *path)
{
    struct statx stx;
    if (statx(AT_FDCWD, path, AT_STATX_DONT_SYNC, STATX_INO, &stx) < 0)
        return false;
    return stx.stx_attributes & STATX_ATTR_MOUNT_ROOT;
}

static int check_fuse(struct service_error *error)
{
    _cleanup_close_ int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    if (fd >= 0)
        return 0;
    int e = errno;
    if (e == ENOENT || e == ENODEV || e == ENXIO)
        return service_fail(error, MOUNT_SYSTEM, -e,
                            "this machine has no /dev/fuse; run: modprobe fuse (for a container: "
                            "start it with --device /dev/fuse --cap-add SYS_ADMIN)");
    return service_fail(error, e == EACCES || e == EPERM ? MOUNT_USAGE : MOUNT_SYSTEM, -e,
                        "cannot open /dev/fuse: %s; run as root, or let this user in: chmod 666 "
                        "/dev/fuse as root (in a container: the device cgroup too)",
                        strerror(e));
}

static bool is_program_in_path(const char *program)
{
    const char *path = getenv("PATH");
    _cleanup_free_ char *directories = xstrdup(path ? path : "/usr/bin:/bin");
    char *rest = directories;
    for (char *directory = strsep(&rest, ":"); directory; directory = strsep(&rest, ":")) {
        _cleanup_free_ char *file = xasprintf("%s/%s", directory, program);
        if (access(file, X_OK) == 0)
            return true;
    }
    return false;
}

/* Users other than root mount through fusermount3, which has conditions of its own. */
static int check_ordinary_user(const char *mountpoint, const struct stat *st,
                               struct service_error *error)
{
    if (geteuid() == 0)
        return 0;
    if (!is_program_in_path("fusermount3"))
        return service_fail(error, MOUNT_SYSTEM, -ENOENT,
                            "fusermount3 is not installed, and only root can mount without it; "
                            "install the package fuse3, or run as root");
    bool may_write = access(mountpoint, W_OK) == 0;
    if (may_write && (!(st->st_mode & S_ISVTX) || st->st_uid == geteuid()))
        return 0;
    return service_fail(error, MOUNT_USAGE, -EACCES,
                        "the mountpoint %s is not writable, so only root may mount there; give a "
                        "directory of your own",
                        mountpoint);
}

static int check_mountpoint(int e, const char *mountpoint, const struct stat *st,
                            struct service_error *error)
{
    if (e == ENOENT)
        return service_fail(error, MOUNT_FAILED, -e,
                            "the mountpoint %s does not exist; run: mkdir -p %s", mountpoint,
                            mountpoint);
    if (is_dead_mount(e))
        return service_fail(error, MOUNT_FAILED, -e,
                            "a dead mount at %s cannot be cleared; as root run: umount -l %s",
                            mountpoint, mountpoint);
    if (e != 0)
        return service_fail(error, e == EACCES ? MOUNT_USAGE : MOUNT_FAILED, -e,
                            "cannot access the mountpoint %s: %s; give another", mountpoint,
                            strerror(e));
    if (!S_ISDIR(st->st_mode))
        return service_fail(error, MOUNT_FAILED, -ENOTDIR,
                            "the mountpoint %s is not a directory; give one", mountpoint);
    if (is_mount_root(mountpoint))
        return service_fail(
            error, MOUNT_FAILED, -EBUSY,
            "something is mounted at %s already; unmount it or give another mountpoint",
            mountpoint);
    return 0;
}

int mountpoint_take(const char *mountpoint, const char *store, char **ret_path, bool *ret_cleared,
                    struct service_error *ret_error)
{
    struct stat st;
    int e = mountpoint_probe(mountpoint, &st);
    *ret_cleared = false;
    for (int i = 0; is_dead_mount(e) && i < STALE_MOUNTS_MAX; i++) {
        _cleanup_free_ char *absolute = path_absolute(mountpoint);
        if (!absolute || mount_remove(absolute, true) < 0)
            break;
        *ret_cleared = true;
        e = mountpoint_probe(mountpoint, &st);
    }
    TRY(check_mountpoint(e, mountpoint, &st, ret_error));
    _cleanup_free_ char *path = realpath(mountpoint, NULL);
    if (!path)
        return service_fail(ret_error, MOUNT_FAILED, -errno,
                            "cannot access the mountpoint %s: %s; give another", mountpoint,
                            strerror(errno));
    if (path_is_inside(path, store) || path_is_inside(store, path))
        return service_fail(ret_error, MOUNT_USAGE, -EINVAL,
                            "store %s and mountpoint %s must not be the same, nor one inside the "
                            "other; give another",
                            store, path);
    int r = check_fuse(ret_error);
    if (r == 0)
        r = check_ordinary_user(path, &st, ret_error);
    if (r < 0)
        return r;
    *ret_path = path;
    path = NULL;
    return 0;
}

/* Returns true if the link /proc/PID/NAME points to `mountpoint` or below. Does not touch the
 * filesystem there. */
static bool link_is_inside(const char *link, const char *mountpoint)
{
    char target[PATH_MAX];
    ssize_t n = readlink(link, target, sizeof target - 1);
    if (n < 0)
        return false;
    target[n] = '\0';
    return path_is_inside(target, mountpoint);
}

static bool holds_descriptor(const char *pid, const char *mountpoint)
{
    _cleanup_free_ char *directory = xasprintf("/proc/%s/fd", pid);
    DIR *dir = opendir(directory);
    bool found = false;
    for (struct dirent *e; dir && !found && (e = readdir(dir));) {
        _cleanup_free_ char *link = xasprintf("%s/%s", directory, e->d_name);
        found = link_is_inside(link, mountpoint);
    }
    if (dir)
        (void)closedir(dir);
    return found;
}

static bool holds_mapping(const char *pid, const char *mountpoint)
{
    _cleanup_free_ char *path = xasprintf("/proc/%s/maps", pid);
    FILE *f = fopen(path, "re");
    _cleanup_free_ char *line = NULL;
    size_t capacity = 0;
    bool found = false;
    while (f && !found && getline(&line, &capacity, f) > 0) {
        char *name = strchr(line, '/');
        if (name)
            name[strcspn(name, "\n")] = '\0';
        found = name && path_is_inside(name, mountpoint);
    }
    if (f)
        (void)fclose(f);
    return found;
}

static const char *how_held(const char *pid, const char *mountpoint)
{
    static const char *const links[][2] = {{"cwd", "has its working directory there"},
                                           {"root", "has its root there"},
                                           {"exe", "runs a program from there"}};
    for (size_t i = 0; i < ARRAY_LEN(links); i++) {
        _cleanup_free_ char *link = xasprintf("/proc/%s/%s", pid, links[i][0]);
        if (link_is_inside(link, mountpoint))
            return links[i][1];
    }
    if (holds_descriptor(pid, mountpoint))
        return "has files open there";
    return holds_mapping(pid, mountpoint) ? "has files mapped there" : NULL;
}

struct process_name process_name(const char *pid)
{
    _cleanup_free_ char *path = xasprintf("/proc/%s/comm", pid);
    FILE *f = fopen(path, "re");
    struct process_name name = {"?"};
    if (f) {
        if (!fgets(name.text, sizeof name.text, f))
            name.text[0] = '\0';
        (void)fclose(f);
    }
    name.text[strcspn(name.text, "\n")] = '\0';
    return name;
}

unsigned print_holders(const char *mountpoint, FILE *out)
{
    DIR *proc = opendir("/proc");
    unsigned count = 0;
    for (struct dirent *e; proc && (e = readdir(proc));) {
        if (!isdigit((unsigned char)e->d_name[0]))
            continue;
        const char *how = how_held(e->d_name, mountpoint);
        if (!how)
            continue;
        text_print(out, "  process %s (%s) %s", e->d_name, process_name(e->d_name).text, how);
        count++;
    }
    if (proc)
        (void)closedir(proc);
    return count;
}
