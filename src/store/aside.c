// SPDX-License-Identifier: Apache-2.0
/* STORE/lost+found: files that recovery or a repair cannot interpret, or that nothing refers to
 * after damage. They are kept there, and nothing reads them again; the operator removes them. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/io.h"
#include "store/internal.h"

#define NAMES_MAX 10000u /* of one object that is set aside again and again */

char *aside_path(const struct store *store, const char *name)
{
    _cleanup_free_ char *flat = xstrdup(name);
    for (char *slash = strchr(flat, '/'); slash; slash = strchr(slash, '/'))
        *slash = '-';
    return xasprintf("%s/" ASIDE_DIRECTORY "/%s", store->local.path, flat);
}

int aside_begin(const struct store *store)
{
    _cleanup_free_ char *directory = xasprintf("%s/" ASIDE_DIRECTORY, store->local.path);
    if (mkdir(directory, 0700) == 0)
        return io_fsync_dir(store->local.path);
    return errno == EEXIST ? 0 : -errno;
}

int aside_sync(const struct store *store)
{
    _cleanup_free_ char *directory = xasprintf("%s/" ASIDE_DIRECTORY, store->local.path);
    return io_fsync_dir(directory);
}

/* A filesystem without RENAME_NOREPLACE must not replace either: the name is looked up first. */
static int move_to(const char *from, const char *to)
{
    struct stat st;
    if (renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) == 0)
        return 0;
    if (errno != EINVAL && errno != ENOSYS)
        return -errno;
    if (lstat(to, &st) == 0)
        return -EEXIST;
    return rename(from, to) < 0 ? -errno : 0;
}

int set_aside(const struct store *store, const char *name)
{
    _cleanup_free_ char *from = xasprintf("%s/%s", store->local.path, name);
    _cleanup_free_ char *to = aside_path(store, name);
    TRY(aside_begin(store));
    int r = move_to(from, to);
    for (unsigned i = 1; r == -EEXIST && i < NAMES_MAX; i++) {
        _cleanup_free_ char *numbered = xasprintf("%s.%u", to, i);
        r = move_to(from, numbered);
    }
    return r;
}
