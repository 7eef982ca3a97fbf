// SPDX-License-Identifier: Apache-2.0
#include "tier/dir_list.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "base/io.h"
#include "base/vector.h"

#define DEPTH_MAX 16u
#define LEFTOVER_AGE_NS (24ll * 3600 * 1000000000)

/* Names in one directory. Those of directories end in '/', so that they sort where their contents
 * belong. */
DEFINE_VECTOR(names, char *);

static void names_done(struct names *names)
{
    for (size_t i = 0; i < names->count; i++)
        free(names->at[i]);
    vector_free(names);
}

static int name_order(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int64_t time_of(const struct stat *st)
{
    return (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec;
}

/* Removes the leftover of a put that did not end, if it is old by the server's clock, since another
 * node may still be writing it. Errors are ignored: the next list tries again. */
static void remove_leftover(struct dir_listing *l, int fd, const char *name)
{
    struct stat st;
    int64_t now;
    if (fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && l->now(l->arg, &now) == 0 &&
        now - time_of(&st) > LEFTOVER_AGE_NS)
        (void)unlinkat(fd, name, 0);
}

static int add_name(struct names *names, int fd, const struct dirent *d)
{
    struct stat st;
    bool is_directory = d->d_type == DT_DIR;
    if (d->d_type == DT_UNKNOWN) {
        if (fstatat(fd, d->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            return errno == ENOENT ? 0 : -errno;
        is_directory = S_ISDIR(st.st_mode);
    }
    vector_add(names, xasprintf("%s%s", d->d_name, is_directory ? "/" : ""));
    return 0;
}

static int read_dir_names(struct dir_listing *l, DIR *dir, struct names *names)
{
    for (;;) {
        errno = 0;
        const struct dirent *d = readdir(dir);
        if (!d)
            return -errno;
        if (strncmp(d->d_name, DIR_TEMPORARY, sizeof DIR_TEMPORARY - 1) == 0)
            remove_leftover(l, dirfd(dir), d->d_name);
        TRY(d->d_name[0] == '.' ? 0 : add_name(names, dirfd(dir), d));
    }
}

static const char *begin_after(const struct dir_listing *l)
{
    return l->last ? l->last : l->after;
}

static int give_file(struct dir_listing *l, int fd, const char *name, const char *object)
{
    struct stat st;
    if (fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : -errno; /* removed meanwhile */
    if (!S_ISREG(st.st_mode))
        return 0;
    struct tier_object found = {
        .name = object, .len = (uint64_t)st.st_size, .modified_ns = time_of(&st)};
    int r = l->fn(&found, l->arg);
    free(l->last);
    l->last = xstrdup(object);
    return r;
}

static int walk_directory(struct dir_listing *l, const char *directory, unsigned depth);

static int walk_name(struct dir_listing *l, int fd, const char *directory, const char *name,
                     unsigned depth)
{
    _cleanup_free_ char *object = xasprintf("%s/%s", directory, name);
    const char *after = begin_after(l);
    size_t len = strlen(object);
    if (object[len - 1] != '/')
        return after && strcmp(object, after) <= 0 ? 0 : give_file(l, fd, name, object);
    if (after && strncmp(object, after, len) < 0)
        return 0; /* all names in it sort before `after` */
    object[len - 1] = '\0';
    return walk_directory(l, object, depth + 1);
}

static int walk_directory(struct dir_listing *l, const char *directory, unsigned depth)
{
    DIR *dir;
    struct names names = {0};
    if (depth == DEPTH_MAX)
        return -ELOOP;
    int r = io_open_dir(l->root_fd, directory, &dir);
    if (r < 0)
        return r == -ENOENT ? 0 : r;
    r = read_dir_names(l, dir, &names);
    vector_sort(&names, name_order);
    for (size_t i = 0; i < names.count && r == 0; i++)
        r = walk_name(l, dirfd(dir), directory, names.at[i], depth);
    names_done(&names);
    (void)closedir(dir);
    return r;
}

int dir_list_directory(struct dir_listing *listing, const char *directory)
{
    return walk_directory(listing, directory, 0);
}

void dir_listing_done(struct dir_listing *listing)
{
    free(listing->last);
    listing->last = NULL;
}
