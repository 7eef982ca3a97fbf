// SPDX-License-Identifier: Apache-2.0
#include "tier/folders.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "base/lock.h"
#include "base/vector.h"

/* A folder with names that are not durable yet. */
struct dirty {
    char *folder;
    VECTOR(char *) objects; /* that were touched; of the folder that they lie in */
    bool in_doubt;          /* an fsync of it failed: the next one says nothing of them */
    struct dirty *next;
};

struct folders {
    int root_fd;
    struct folders_ops ops; /* none: by root_fd */
    folders_renew_fn *renew;
    void *arg; /* of both */
    pthread_cond_t synced;
    struct {
        struct cairn_mutex lock;
        struct dirty *dirty;
        bool syncing;
    } locked;
};

struct folders *folders_new(int root_fd, folders_renew_fn *renew, void *arg)
{
    struct folders *f = xcalloc(1, sizeof *f);
    f->root_fd = root_fd;
    f->renew = renew;
    f->arg = arg;
    mutex_init(&f->locked.lock, LOCK_LEAF);
    cond_init(&f->synced);
    return f;
}

struct folders *folders_new_by(const struct folders_ops *ops, folders_renew_fn *renew, void *arg)
{
    struct folders *f = folders_new(-1, renew, arg);
    f->ops = *ops;
    return f;
}

static void free_one(struct dirty *d)
{
    for (size_t i = 0; i < d->objects.count; i++)
        free(d->objects.at[i]);
    vector_free(&d->objects);
    free(d->folder);
    free(d);
}

static void free_dirty(struct dirty *d)
{
    while (d) {
        struct dirty *next = d->next;
        free_one(d);
        d = next;
    }
}

void folders_free(struct folders *folders)
{
    if (!folders)
        return;
    free_dirty(folders->locked.dirty);
    mutex_done(&folders->locked.lock);
    (void)pthread_cond_destroy(&folders->synced);
    free(folders);
}

/* Takes over `fresh`. */
static void add_dirty(struct folders *folders, struct dirty *fresh)
{
    mutex_lock(&folders->locked.lock);
    struct dirty *d = folders->locked.dirty;
    while (d && strcmp(d->folder, fresh->folder) != 0)
        d = d->next;
    if (d) {
        vector_add_all(&d->objects, fresh->objects.at, fresh->objects.count);
        d->in_doubt = d->in_doubt || fresh->in_doubt;
        fresh->objects.count = 0;
    } else {
        fresh->next = folders->locked.dirty;
        folders->locked.dirty = fresh;
    }
    mutex_unlock(&folders->locked.lock);
    if (d)
        free_one(fresh);
}

/* `folder`: the first `len` bytes; 0: the tier's own folder. `object`: NULL, or what lies in it. */
static void mark_folder(struct folders *folders, const char *folder, size_t len, const char *object)
{
    struct dirty *fresh = xcalloc(1, sizeof *fresh);
    fresh->folder = xstrdup(len ? folder : ".");
    if (len)
        fresh->folder[len] = '\0';
    if (object)
        vector_add(&fresh->objects, xstrdup(object));
    add_dirty(folders, fresh);
}

/* All folders on the way: another thread may have made one just now and not have marked what is
 * above it yet. Those directly in the tier's folder were made durable when it was opened, or are
 * marked by folders_make(). */
void folders_touch(struct folders *folders, const char *object)
{
    const char *slash = strchr(object, '/');
    if (!slash)
        mark_folder(folders, object, 0, object);
    for (; slash; slash = strchr(slash + 1, '/'))
        mark_folder(folders, object, (size_t)(slash - object),
                    strchr(slash + 1, '/') ? NULL : object);
}

void folders_mark(struct folders *folders, const char *folder)
{
    mark_folder(folders, folder, strlen(folder), NULL);
}

int folders_make(struct folders *folders, const char *folder)
{
    int r = folders->ops.make                             ? folders->ops.make(folders->arg, folder)
            : mkdirat(folders->root_fd, folder, 0700) < 0 ? -errno
                                                          : 0;
    if (r < 0)
        return r == -EEXIST ? 0 : r;
    const char *slash = strrchr(folder, '/');
    mark_folder(folders, folder, slash ? (size_t)(slash - folder) : 0, NULL);
    return 0;
}

int folders_make_parents(struct folders *folders, const char *object)
{
    _cleanup_free_ char *path = xstrdup(object);
    for (char *slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        int r = folders_make(folders, path);
        if (r < 0)
            return r;
        *slash = '/';
    }
    return 0;
}

/* Only a failed fsync says that names may be lost; where the folder could not be opened (no
 * descriptor was left), nothing happened. */
static int sync_folder(struct folders *folders, struct dirty *d)
{
    if (folders->ops.sync)
        return folders->ops.sync(folders->arg, d->folder, &d->in_doubt);
    _cleanup_close_ int fd =
        openat(folders->root_fd, d->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return -errno;
    d->in_doubt = fsync(fd) < 0;
    return d->in_doubt ? -errno : 0;
}

/* After a failed fsync the names are made anew at once, and until that has worked. */
static int make_durable(struct folders *folders, struct dirty *d)
{
    int r = d->in_doubt ? 0 : sync_folder(folders, d);
    if (!d->in_doubt)
        return r;
    r = folders->renew(d->folder, d->objects.at, d->objects.count, folders->arg);
    if (r == 0)
        r = sync_folder(folders, d);
    d->in_doubt = r < 0;
    return r;
}

/* One at a time: a second caller must not return while the first one's fsync of its names is still
 * under way. */
static struct dirty *begin_sync(struct folders *folders)
{
    LOCK_SCOPE(&folders->locked.lock);
    while (folders->locked.syncing)
        (void)mutex_wait(&folders->locked.lock, &folders->synced, -1);
    folders->locked.syncing = true;
    struct dirty *dirty = folders->locked.dirty;
    folders->locked.dirty = NULL;
    return dirty;
}

static void end_sync(struct folders *folders)
{
    LOCK_SCOPE(&folders->locked.lock);
    folders->locked.syncing = false;
    (void)pthread_cond_broadcast(&folders->synced);
}

static void put_back(struct folders *folders, struct dirty *d)
{
    while (d) {
        struct dirty *next = d->next;
        d->next = NULL;
        add_dirty(folders, d);
        d = next;
    }
}

int folders_sync(struct folders *folders)
{
    struct dirty *dirty = begin_sync(folders);
    int r = 0;
    while (dirty && (r = make_durable(folders, dirty)) == 0) {
        struct dirty *next = dirty->next;
        free_one(dirty);
        dirty = next;
    }
    put_back(folders, dirty);
    end_sync(folders);
    return r;
}
