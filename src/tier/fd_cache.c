// SPDX-License-Identifier: Apache-2.0
#include "tier/fd_cache.h"

#include <fcntl.h>

#include "base/lock.h"

struct fd_cache {
    int root_fd, flags;
    unsigned max;
    struct {
        struct cairn_mutex lock;
        struct fd_entry *entries; /* at most `max`, so a list will do */
        unsigned count;
        uint64_t clock;
        uint64_t forgotten; /* number of calls of fd_cache_forget() */
    } locked;
};

struct fd_cache *fd_cache_new(int root_fd, int flags, unsigned max)
{
    struct fd_cache *cache = xcalloc(1, sizeof *cache);
    cache->root_fd = root_fd;
    cache->flags = flags;
    cache->max = max;
    mutex_init(&cache->locked.lock, LOCK_LEAF);
    return cache;
}

static void fd_entry_free(struct fd_entry *entry)
{
    if (!entry)
        return;
    check(entry->users == 0);
    (void)close(entry->fd);
    free(entry->object);
    free(entry);
}

void fd_cache_free(struct fd_cache *cache)
{
    if (!cache)
        return;
    while (cache->locked.entries) {
        struct fd_entry *entry = cache->locked.entries;
        cache->locked.entries = entry->next;
        fd_entry_free(entry);
    }
    mutex_done(&cache->locked.lock);
    free(cache);
}

static struct fd_entry *fd_cache_find_locked(struct fd_cache *cache, const char *object)
{
    check_held(&cache->locked.lock);
    for (struct fd_entry *e = cache->locked.entries; e; e = e->next)
        if (strcmp(e->object, object) == 0)
            return e;
    return NULL;
}

static void unlink_locked(struct fd_cache *cache, struct fd_entry *entry)
{
    check_held(&cache->locked.lock);
    struct fd_entry **at = &cache->locked.entries;
    while (*at != entry)
        at = &(*at)->next;
    *at = entry->next;
    cache->locked.count--;
}

/* Removes the least recently used entry, for the caller to free. A failed entry stays, as it
 * carries the mark. */
static struct fd_entry *take_oldest_locked(struct fd_cache *cache)
{
    check_held(&cache->locked.lock);
    struct fd_entry *oldest = NULL;
    for (struct fd_entry *e = cache->locked.entries; e; e = e->next)
        if (e->users == 0 && !e->failed && (!oldest || e->used < oldest->used))
            oldest = e;
    if (oldest)
        unlink_locked(cache, oldest);
    return oldest;
}

static int use_locked(struct fd_cache *cache, struct fd_entry *entry, struct fd_entry **ret_entry)
{
    check_held(&cache->locked.lock);
    if (entry->failed)
        return -EIO;
    entry->users++;
    entry->used = ++cache->locked.clock;
    *ret_entry = entry;
    return 0;
}

/* Puts `fresh` into the cache, or uses the entry that another thread added meanwhile. If any object
 * was forgotten since `fresh` was opened, it may be that one: then only this user gets it. */
static int insert_entry(struct fd_cache *cache, struct fd_entry *fresh, uint64_t forgotten,
                        struct fd_entry **ret_entry)
{
    struct fd_entry *evicted = NULL;
    mutex_lock(&cache->locked.lock);
    struct fd_entry *entry = fd_cache_find_locked(cache, fresh->object);
    if (entry) {
        evicted = fresh;
    } else if (forgotten != cache->locked.forgotten) {
        entry = fresh;
        entry->forgotten = true;
    } else {
        if (cache->locked.count >= cache->max)
            evicted = take_oldest_locked(cache);
        entry = fresh;
        entry->next = cache->locked.entries;
        cache->locked.entries = entry;
        cache->locked.count++;
    }
    int r = use_locked(cache, entry, ret_entry);
    mutex_unlock(&cache->locked.lock);
    fd_entry_free(evicted);
    return r;
}

int fd_cache_get(struct fd_cache *cache, const char *object, struct fd_entry **ret_entry)
{
    mutex_lock(&cache->locked.lock);
    struct fd_entry *entry = fd_cache_find_locked(cache, object);
    int r = entry ? use_locked(cache, entry, ret_entry) : 0;
    uint64_t forgotten = cache->locked.forgotten;
    mutex_unlock(&cache->locked.lock);
    if (entry)
        return r;
    int fd = openat(cache->root_fd, object, cache->flags | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return -errno;
    struct fd_entry *fresh = xcalloc(1, sizeof *fresh);
    fresh->fd = fd;
    fresh->object = xstrdup(object);
    return insert_entry(cache, fresh, forgotten, ret_entry);
}

void fd_cache_put(struct fd_cache *cache, struct fd_entry *entry)
{
    mutex_lock(&cache->locked.lock);
    bool last = --entry->users == 0 && entry->forgotten;
    mutex_unlock(&cache->locked.lock);
    if (last)
        fd_entry_free(entry);
}

void fd_cache_fail(struct fd_cache *cache, struct fd_entry *entry)
{
    LOCK_SCOPE(&cache->locked.lock);
    entry->failed = true;
}

void fd_cache_forget(struct fd_cache *cache, const char *object)
{
    mutex_lock(&cache->locked.lock);
    cache->locked.forgotten++;
    struct fd_entry *entry = fd_cache_find_locked(cache, object);
    if (entry) {
        unlink_locked(cache, entry);
        entry->forgotten = true;
        if (entry->users > 0)
            entry = NULL;
    }
    mutex_unlock(&cache->locked.lock);
    fd_entry_free(entry);
}
