// SPDX-License-Identifier: Apache-2.0
#include "client/moved.h"

#include <dirent.h>
#include <fcntl.h>

#include "base/io.h"

#define DEPTH_MAX 32
/* A removed file cannot be found: the search must not walk all of a large filesystem. */
#define ENTRIES_MAX 20000u
#define FLAGS (O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)

struct wanted {
    const struct stat *file;
    ino_t seen;    /* a directory already searched; 0: none */
    unsigned left; /* entries that may still be examined */
};

static int search(int fd, struct wanted *wanted, int depth);

bool moved_is_same(const struct stat *a, const struct stat *b)
{
    return a->st_ino == b->st_ino && a->st_size == b->st_size &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

/* Returns a descriptor of the file; -ENOENT: it is neither this entry nor below it. */
static int search_entry(int fd, const struct dirent *entry, struct wanted *wanted, int depth)
{
    struct stat st;
    bool may_lead = entry->d_type == DT_DIR || entry->d_type == DT_UNKNOWN;
    if (entry->d_name[0] == '.' && (!entry->d_name[1] || strcmp(entry->d_name, "..") == 0))
        return -ENOENT;
    if (entry->d_ino != wanted->file->st_ino && !may_lead)
        return -ENOENT;
    int found = openat(fd, entry->d_name, FLAGS);
    if (found < 0 || fstat(found, &st) < 0 || st.st_dev != wanted->file->st_dev) {
        if (found >= 0)
            (void)close(found);
        return -ENOENT;
    }
    if (moved_is_same(&st, wanted->file))
        return found;
    int r = S_ISDIR(st.st_mode) && st.st_ino != wanted->seen && depth > 0
                ? search(found, wanted, depth - 1)
                : -ENOENT;
    (void)close(found);
    return r;
}

static int search(int fd, struct wanted *wanted, int depth)
{
    DIR *directory;
    int r = io_open_dir(fd, ".", &directory);
    if (r < 0)
        return -ENOENT;
    r = -ENOENT;
    for (struct dirent *entry; r < 0 && wanted->left > 0 && (entry = readdir(directory));) {
        wanted->left--;
        r = search_entry(fd, entry, wanted, depth);
    }
    (void)closedir(directory);
    return r;
}

/* Removes the last name. False: it was the root, or a relative path of one name. */
static bool cut_path(char *path)
{
    char *slash = strrchr(path, '/');
    if (!slash || !slash[1])
        return false;
    slash[slash == path] = '\0';
    return true;
}

int moved_open(const char *path, const struct stat *file)
{
    struct wanted wanted = {.file = file, .left = ENTRIES_MAX};
    _cleanup_free_ char *above = strdup(path);
    int r = -ENOENT;
    if (!above)
        return -ENOMEM;
    while (r < 0 && cut_path(above)) {
        struct stat st;
        _cleanup_close_ int fd = open(above, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd < 0 || fstat(fd, &st) < 0)
            continue;
        if (st.st_dev != file->st_dev)
            break;
        r = search(fd, &wanted, DEPTH_MAX);
        wanted.seen = st.st_ino;
    }
    return r;
}
