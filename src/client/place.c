#include "client/place.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>

#include "base/cause.h"

#define LINKS_MAX 40 /* as the kernel */

/* FOLDER/NAME, of which the latter may be absolute. NULL: no memory. */
static char *joined(const char *folder, const char *name)
{
    char *path = NULL;
    if (name[0] == '/')
        return strdup(name);
    return asprintf(&path, "%s%s%s", folder, folder[strlen(folder) - 1] == '/' ? "" : "/", name) < 0 ? NULL : path;
}

static char *absolute(const char *path)
{
    if (path[0] == '/')
        return strdup(path);
    _cleanup_free_ char *here = getcwd(NULL, 0);
    return here ? joined(here, path) : NULL;
}

/* Where the link at *path leads: *path is exchanged. */
static int follow(char **path)
{
    char target[PATH_MAX];
    ssize_t n = readlink(*path, target, sizeof target);
    if (n < 0)
        return -errno;
    if ((size_t)n == sizeof target)
        return -ENAMETOOLONG;
    target[n] = '\0';
    char *slash = strrchr(*path, '/');
    slash[slash == *path] = '\0'; /* the folder */
    char *next = joined(*path, target);
    if (!next)
        return -ENOMEM;
    free(*path);
    *path = next;
    return 0;
}

/* Follows links until there is none, or nothing. A link that is no path (of /proc/PID/fd) leads to what is no regular file, or to one
 * that has lost its name: the caller opens that as it is. */
static int follow_all(char **path, struct place *place)
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
        int r = links == LINKS_MAX ? -ELOOP : follow(path);
        if (r < 0)
            return r;
    }
}

static int split(struct place *place)
{
    char *slash = strrchr(place->path, '/');
    place->name = slash + 1;
    place->folder = slash == place->path ? strdup("/") : strndup(place->path, (size_t)(slash - place->path));
    if (!place->folder)
        return -ENOMEM;
    if (strlen(place->name) > NAME_MAX)
        return -ENAMETOOLONG;
    return place->name[0] == '\0' || strcmp(place->name, ".") == 0 || strcmp(place->name, "..") == 0 ? -EISDIR : 0;
}

static int find(const char *path, struct place *place)
{
    struct stat st;
    if (path[0] == '\0')
        return -ENOENT;
    place->path = absolute(path);
    if (!place->path)
        return errno == ENOENT ? -ENOENT : -ENOMEM;
    bool exists = stat(place->path, &st) == 0;
    if (exists && S_ISDIR(st.st_mode))
        return -EISDIR;
    int r = 0;
    if (!exists || S_ISREG(st.st_mode))
        r = follow_all(&place->path, place);
    if (r == 0 && exists && (!place->exists || place->st.st_ino != st.st_ino || place->st.st_dev != st.st_dev)) {
        place->exists = true; /* reached by something that is no path */
        place->st = st;
        place->st.st_mode = (st.st_mode & ~(mode_t)S_IFMT) | S_IFCHR;
        free(place->path);
        place->path = absolute(path);
        r = place->path ? 0 : -ENOMEM;
    }
    return r < 0 ? r : split(place);
}

int place_find(const char *path, struct place *ret)
{
    struct place place = {0};
    int r = find(path, &place);
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
    free(place->folder);
    *place = (struct place){0};
}
