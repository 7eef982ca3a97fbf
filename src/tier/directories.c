// SPDX-License-Identifier: Apache-2.0
#include "tier/directories.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "base/lock.h"
#include "base/vector.h"

/* A directory with names that may not be durable yet. */
struct dirty {
    char *directory;
    VECTOR(char *) objects; /* touched objects directly in this directory */
    /* an fsync of the directory failed: a later one proves nothing about these names */
    bool in_doubt;
    struct dirty *next;
};

struct directories {
    int root_fd;
    struct directories_ops ops; /* empty: calls go through root_fd */
    directories_renew_fn *renew;
    void *arg; /* of both callbacks */
    pthread_cond_t synced;
    struct {
        struct cairn_mutex lock;
        struct dirty *dirty;
        bool syncing;
    } locked;
};

struct directories *directories_new(int root_fd, directories_renew_fn *renew, void *arg)
{
    struct directories *f = xcalloc(1, sizeof *f);
    f->root_fd = root_fd;
    f->renew = renew;
    f->arg = arg;
    mutex_init(&f->locked.lock, LOCK_LEAF);
    cond_init(&f->synced);
    return f;
}

struct directories *directories_new_by(const struct directories_ops *ops,
                                       directories_renew_fn *renew, void *arg)
{
    struct directories *f = directories_new(-1, renew, arg);
    f->ops = *ops;
    return f;
}

static void free_dirty_directory(struct dirty *d)
{
    for (size_t i = 0; i < d->objects.count; i++)
        free(d->objects.at[i]);
    vector_free(&d->objects);
    free(d->directory);
    free(d);
}

static void free_dirty(struct dirty *d)
{
    while (d) {
        struct dirty *next = d->next;
        free_dirty_directory(d);
        d = next;
    }
}

void directories_free(struct directories *directories)
{
    if (!directories)
        return;
    free_dirty(directories->locked.dirty);
    mutex_done(&directories->locked.lock);
    (void)pthread_cond_destroy(&directories->synced);
    free(directories);
}

/* Takes ownership of `fresh`. */
static void add_dirty(struct directories *directories, struct dirty *fresh)
{
    mutex_lock(&directories->locked.lock);
    struct dirty *d = directories->locked.dirty;
    while (d && strcmp(d->directory, fresh->directory) != 0)
        d = d->next;
    if (d) {
        vector_add_all(&d->objects, fresh->objects.at, fresh->objects.count);
        d->in_doubt = d->in_doubt || fresh->in_doubt;
        fresh->objects.count = 0;
    } else {
        fresh->next = directories->locked.dirty;
        directories->locked.dirty = fresh;
    }
    mutex_unlock(&directories->locked.lock);
    if (d)
        free_dirty_directory(fresh);
}

/* `directory`: the first `len` bytes; 0: the tier's own directory. `object`: the touched object in
 * it, or NULL. */
static void mark_directory(struct directories *directories, const char *directory, size_t len,
                           const char *object)
{
    struct dirty *fresh = xcalloc(1, sizeof *fresh);
    fresh->directory = xstrdup(len ? directory : ".");
    if (len)
        fresh->directory[len] = '\0';
    if (object)
        vector_add(&fresh->objects, xstrdup(object));
    add_dirty(directories, fresh);
}

/* Marks all directories on the path: another thread may have just created one and not yet have
 * marked its parent. Directories at the top level were made durable when the tier was opened, or
 * are marked by directories_make(). */
void directories_touch(struct directories *directories, const char *object)
{
    const char *slash = strchr(object, '/');
    if (!slash)
        mark_directory(directories, object, 0, object);
    for (; slash; slash = strchr(slash + 1, '/'))
        mark_directory(directories, object, (size_t)(slash - object),
                       strchr(slash + 1, '/') ? NULL : object);
}

void directories_mark(struct directories *directories, const char *directory)
{
    mark_directory(directories, directory, strlen(directory), NULL);
}

int directories_make(struct directories *directories, const char *directory)
{
    int r = directories->ops.make ? directories->ops.make(directories->arg, directory)
            : mkdirat(directories->root_fd, directory, 0700) < 0 ? -errno
                                                                 : 0;
    if (r < 0)
        return r == -EEXIST ? 0 : r;
    const char *slash = strrchr(directory, '/');
    mark_directory(directories, directory, slash ? (size_t)(slash - directory) : 0, NULL);
    return 0;
}

int directories_make_parents(struct directories *directories, const char *object)
{
    _cleanup_free_ char *path = xstrdup(object);
    for (char *slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        TRY(directories_make(directories, path));
        *slash = '/';
    }
    return 0;
}

/* Names may be lost only if fsync itself fails; if the directory could not be opened (out of
 * descriptors), nothing happened. */
static int directories_sync_directory(struct directories *directories, struct dirty *d)
{
    if (directories->ops.sync)
        return directories->ops.sync(directories->arg, d->directory, &d->in_doubt);
    _cleanup_close_ int fd =
        openat(directories->root_fd, d->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return -errno;
    d->in_doubt = fsync(fd) < 0;
    return d->in_doubt ? -errno : 0;
}

/* After a failed fsync, makes new names at once; if that fails, the next sync tries again. */
static int make_durable(struct directories *directories, struct dirty *d)
{
    int r = d->in_doubt ? 0 : directories_sync_directory(directories, d);
    if (!d->in_doubt)
        return r;
    r = directories->renew(d->directory, d->objects.at, d->objects.count, directories->arg);
    if (r == 0)
        r = directories_sync_directory(directories, d);
    d->in_doubt = r < 0;
    return r;
}

/* One sync at a time: a second caller must not return while the first one's fsync of its names is
 * still in progress. */
static struct dirty *begin_sync(struct directories *directories)
{
    LOCK_SCOPE(&directories->locked.lock);
    while (directories->locked.syncing)
        (void)mutex_wait(&directories->locked.lock, &directories->synced, -1);
    directories->locked.syncing = true;
    struct dirty *dirty = directories->locked.dirty;
    directories->locked.dirty = NULL;
    return dirty;
}

static void end_sync(struct directories *directories)
{
    LOCK_SCOPE(&directories->locked.lock);
    directories->locked.syncing = false;
    (void)pthread_cond_broadcast(&directories->synced);
}

static void put_back(struct directories *directories, struct dirty *d)
{
    while (d) {
        struct dirty *next = d->next;
        d->next = NULL;
        add_dirty(directories, d);
        d = next;
    }
}

int directories_sync(struct directories *directories)
{
    struct dirty *dirty = begin_sync(directories);
    int r = 0;
    while (dirty && (r = make_durable(directories, dirty)) == 0) {
        struct dirty *next = dirty->next;
        free_dirty_directory(dirty);
        dirty = next;
    }
    put_back(directories, dirty);
    end_sync(directories);
    return r;
}
