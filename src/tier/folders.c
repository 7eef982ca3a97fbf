#include "tier/folders.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "base/lock.h"

/* A folder with names that are not durable yet. */
struct dirty {
    char *folder;
    struct dirty *next;
};

struct folders {
    int root_fd;
    bool one_failure_is_final;
    pthread_cond_t synced;
    struct {
        struct cairn_mutex lock;
        struct dirty *dirty;
        bool syncing;
        int sync_error;
    } locked;
};

struct folders *folders_new(int root_fd, bool one_failure_is_final)
{
    struct folders *f = xcalloc(1, sizeof *f);
    f->root_fd = root_fd;
    f->one_failure_is_final = one_failure_is_final;
    mutex_init(&f->locked.lock, LOCK_LEAF);
    cond_init(&f->synced);
    return f;
}

static void free_dirty(struct dirty *d)
{
    while (d) {
        struct dirty *next = d->next;
        free(d->folder);
        free(d);
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
    if (!d) {
        fresh->next = folders->locked.dirty;
        folders->locked.dirty = fresh;
    }
    mutex_unlock(&folders->locked.lock);
    if (d) {
        free(fresh->folder);
        free(fresh);
    }
}

/* `folder`: the first `len` bytes; 0: the tier's own folder. */
static void mark_folder(struct folders *folders, const char *folder, size_t len)
{
    struct dirty *fresh = xcalloc(1, sizeof *fresh);
    fresh->folder = xstrdup(len ? folder : ".");
    if (len)
        fresh->folder[len] = '\0';
    add_dirty(folders, fresh);
}

/* All folders on the way: another thread may have made one just now and not have marked what is above it yet.
 * Those directly in the tier's folder were made durable when it was opened, or are marked by folders_make(). */
void folders_touch(struct folders *folders, const char *object)
{
    const char *slash = strchr(object, '/');
    if (!slash)
        mark_folder(folders, object, 0);
    for (; slash; slash = strchr(slash + 1, '/'))
        mark_folder(folders, object, (size_t)(slash - object));
}

int folders_make(struct folders *folders, const char *folder)
{
    if (mkdirat(folders->root_fd, folder, 0700) < 0)
        return errno == EEXIST ? 0 : -errno;
    const char *slash = strrchr(folder, '/');
    mark_folder(folders, folder, slash ? (size_t)(slash - folder) : 0);
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

/* Only a failed fsync says that names may be lost; where the folder could not be opened (no descriptor was left), nothing happened. */
static int sync_folder(struct folders *folders, const char *folder, bool *ret_lost)
{
    _cleanup_close_ int fd = openat(folders->root_fd, folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return -errno;
    if (fsync(fd) == 0)
        return 0;
    *ret_lost = true;
    return -errno;
}

/* One at a time: a second caller must not return while the first one's fsync of its names is still under way. */
static int begin_sync(struct folders *folders, struct dirty **ret_dirty)
{
    LOCK_SCOPE(&folders->locked.lock);
    while (folders->locked.syncing)
        (void)mutex_wait(&folders->locked.lock, &folders->synced, -1);
    if (folders->locked.sync_error < 0)
        return folders->locked.sync_error;
    folders->locked.syncing = true;
    *ret_dirty = folders->locked.dirty;
    folders->locked.dirty = NULL;
    return 0;
}

static void end_sync(struct folders *folders, int r, bool lost)
{
    LOCK_SCOPE(&folders->locked.lock);
    folders->locked.syncing = false;
    if (folders->one_failure_is_final && lost)
        folders->locked.sync_error = r;
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
    struct dirty *dirty = NULL;
    bool lost = false;
    int r = begin_sync(folders, &dirty);
    if (r < 0)
        return r;
    while (dirty && (r = sync_folder(folders, dirty->folder, &lost)) == 0) {
        struct dirty *next = dirty->next;
        dirty->next = NULL;
        free_dirty(dirty);
        dirty = next;
    }
    put_back(folders, dirty);
    end_sync(folders, r, lost);
    return r;
}
