// SPDX-License-Identifier: Apache-2.0
#include "client/place.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdio.h>
#include <sys/vfs.h>

#include "base/cause.h"

#define LINKS_MAX 40 /* as in the kernel */

/* DIRECTORY/NAME; or NAME if that is absolute. NULL: no memory. */
static char *join_place_path(const char *directory, const char *name)
{
    char *path = NULL;
    if (name[0] == '/')
        return strdup(name);
    return asprintf(&path, "%s%s%s", directory, directory[strlen(directory) - 1] == '/' ? "" : "/",
                    name) < 0
               ? NULL
               : path;
}

/* Returns the path with at least one slash, so that it has a directory. A relative path stays
 * relative: a process that may not search the directories above can still write. */
static char *with_directory(const char *path)
{
    return strchr(path, '/') ? strdup(path) : join_place_path(".", path);
}

/* Replaces *path by the target of the symbolic link. */
static int resolve_link(char **path)
{
    char target[PATH_MAX];
    ssize_t n = readlink(*path, target, sizeof target);
    if (n < 0)
        return -errno;
    if ((size_t)n == sizeof target)
        return -ENAMETOOLONG;
    target[n] = '\0';
    char *slash = strrchr(*path, '/');
    slash[slash == *path] = '\0'; /* the path of its directory */
    char *next = join_place_path(*path, target);
    if (!next)
        return -ENOMEM;
    free(*path);
    *path = next;
    return 0;
}

/* Is the link in procfs? Such a link may lead to another file than its text. */
static bool is_of_proc(const char *path)
{
    struct statfs fs;
    _cleanup_close_ int fd = open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    return fd >= 0 && fstatfs(fd, &fs) == 0 && fs.f_type == PROC_SUPER_MAGIC;
}

/* Follows links until the path is none, or does not exist. A link of procfs that is not a path
 * (/proc/PID/fd) leads to a special file, or to one that has lost its name: the caller opens that
 * directly. */
static int resolve_links(char **path, struct place *place, bool *ret_by_proc)
{
    for (unsigned links = 0;; links++) {
        struct stat st;
        if (lstat(*path, &st) < 0)
            return errno == ENOENT ? 0 : -errno;
        if (!S_ISLNK(st.st_mode)) {
            place->exists = true;
            place->st = st;
            return 0;
        }
        *ret_by_proc = *ret_by_proc || is_of_proc(*path);
        TRY(links == LINKS_MAX ? -ELOOP : resolve_link(path));
    }
}

static int split_path(struct place *place)
{
    char *slash = strrchr(place->path, '/');
    place->name = slash + 1;
    place->directory =
        slash == place->path ? strdup("/") : strndup(place->path, (size_t)(slash - place->path));
    if (!place->directory)
        return -ENOMEM;
    if (strlen(place->name) > NAME_MAX)
        return -ENAMETOOLONG;
    return place->name[0] == '\0' || strcmp(place->name, ".") == 0 || strcmp(place->name, "..") == 0
               ? -EISDIR
               : 0;
}

/* `st` is the file to which the path leads, if it exists: by names, or by a link of procfs
 * (/proc/PID/fd). In the latter case another file may have taken the name since, e.g. because a
 * save of the same name was published. */
static int resolve_names(const char *path, const struct stat *st, struct place *place)
{
    bool by_proc = false;
    int r = resolve_links(&place->path, place, &by_proc);
    if (r < 0 || !st || !by_proc ||
        (place->exists && place->st.st_ino == st->st_ino && place->st.st_dev == st->st_dev))
        return r;
    place->exists = true;
    place->st = *st;
    place->st.st_mode = (st->st_mode & ~(mode_t)S_IFMT) | S_IFCHR;
    free(place->path);
    place->path = with_directory(path);
    return place->path ? 0 : -ENOMEM;
}

static int find_place_of_path(const char *path, struct place *place)
{
    struct stat st;
    place->path = with_directory(path);
    if (!place->path)
        return -ENOMEM;
    bool found = lstat(place->path, &st) == 0; /* nearly always the only call needed */
    if (!found && errno == ENOENT)
        return split_path(place);
    bool is_link = found && S_ISLNK(st.st_mode),
         exists = found && (!is_link || stat(place->path, &st) == 0);
    if (exists && S_ISDIR(st.st_mode))
        return -EISDIR;
    if (!exists || (is_link && S_ISREG(st.st_mode))) {
        TRY(resolve_names(path, exists ? &st : NULL, place));
        return split_path(place);
    }
    place->exists = true;
    place->st = st;
    return split_path(place);
}

/* A path that ends in a slash is a directory, which cannot be written. */
static int find_any(const char *path, struct place *place)
{
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/')
        length--;
    if (length == 0)
        return -ENOENT;
    _cleanup_free_ char *bare = strndup(path, length);
    int r = bare ? find_place_of_path(bare, place) : -ENOMEM;
    return r == 0 && path[length] == '/' ? -EISDIR : r;
}

int place_find(const char *path, struct place *ret)
{
    struct place place = {0};
    int r = find_any(path, &place);
    if (r < 0) {
        cause_note("%s: %s", path, strerror(-r));
        place_done(&place);
        return r;
    }
    *ret = place;
    return 0;
}

void place_done(struct place *place)
{
    free(place->path);
    free(place->directory);
    *place = (struct place){0};
}
