// SPDX-License-Identifier: Apache-2.0
#include "dense/bases_cache.h"

#include "base/lock.h"
#include "dense/bases.h"

TAILQ_HEAD(base_list, base);

struct bases_cache {
    struct cairn_mutex lock; /* LOCK_LEAF */
    pthread_cond_t came;     /* signalled when a fetch has succeeded or failed */
    struct base *table;
    struct base_list by_use;
    uint64_t held; /* bytes of the bases in the list */
};

struct bases_cache *bases_cache_new(void)
{
    struct bases_cache *cache = xcalloc(1, sizeof *cache);
    mutex_init(&cache->lock, LOCK_LEAF);
    cond_init(&cache->came);
    TAILQ_INIT(&cache->by_use);
    return cache;
}

static void forget_locked(struct bases_cache *cache, struct base *base)
{
    check_held(&cache->lock);
    check(base->is_known && !base->is_coming);
    HASH_DEL(cache->table, base);
    TAILQ_REMOVE(&cache->by_use, base, link);
    cache->held -= base->len;
    free(base);
}

void bases_cache_free(struct bases_cache *cache)
{
    struct base *base, *next;
    if (!cache)
        return;
    mutex_lock(&cache->lock);
    HASH_ITER(hh, cache->table, base, next)
    {
        check(base->pins == 0);
        forget_locked(cache, base);
    }
    mutex_unlock(&cache->lock);
    mutex_done(&cache->lock);
    (void)pthread_cond_destroy(&cache->came);
    free(cache);
}

/* Pinned bases belong to gathering threads, and count as their memory, so they stay. */
static void shrink_locked(struct bases_cache *cache)
{
    check_held(&cache->lock);
    struct base *base = TAILQ_FIRST(&cache->by_use), *next;
    for (; base && cache->held > BASES_CACHE_BYTES; base = next) {
        next = TAILQ_NEXT(base, link);
        if (base->pins == 0)
            forget_locked(cache, base);
    }
}

struct base *bases_cache_find(struct bases_cache *cache, const struct chunk_name *name)
{
    struct base *base = NULL;
    LOCK_SCOPE(&cache->lock);
    HASH_FIND(hh, cache->table, name, sizeof *name, base);
    if (!base || base->is_coming)
        return NULL;
    base->pins++;
    return base;
}

struct base *base_new(const struct chunk_name *name, uint32_t len)
{
    struct base *base = xmalloc(sizeof *base + len);
    *base = (struct base){.name = *name, .len = len, .pins = 1};
    return base;
}

static void keep_locked(struct bases_cache *cache, struct base *base)
{
    check_held(&cache->lock);
    TAILQ_INSERT_TAIL(&cache->by_use, base, link);
    cache->held += base->len;
}

struct base *bases_cache_add(struct bases_cache *cache, struct base *base)
{
    struct base *other = NULL;
    LOCK_SCOPE(&cache->lock);
    HASH_FIND(hh, cache->table, &base->name, sizeof base->name, other);
    if (other && other->is_coming)
        return base;
    if (other) {
        other->pins++;
        free(base);
        return other;
    }
    HASH_ADD(hh, cache->table, name, sizeof base->name, base);
    base->is_known = true;
    keep_locked(cache, base);
    return base;
}

struct base *bases_cache_claim(struct bases_cache *cache, const struct chunk_name *name,
                               uint32_t len, bool *ret_is_own)
{
    struct base *base = NULL;
    LOCK_SCOPE(&cache->lock);
    HASH_FIND(hh, cache->table, name, sizeof *name, base);
    *ret_is_own = !base;
    if (base) {
        base->pins++;
        return base;
    }
    base = base_new(name, len);
    base->is_known = base->is_coming = true;
    HASH_ADD(hh, cache->table, name, sizeof base->name, base);
    return base;
}

void bases_cache_came(struct bases_cache *cache, struct base *base, int error)
{
    LOCK_SCOPE(&cache->lock);
    base->is_coming = false;
    base->error = error;
    if (error == 0)
        keep_locked(cache, base);
    else
        HASH_DEL(cache->table, base);
    base->is_known = error == 0;
    (void)pthread_cond_broadcast(&cache->came);
}

int bases_cache_await(struct bases_cache *cache, const struct base *base)
{
    LOCK_SCOPE(&cache->lock);
    while (base->is_coming)
        (void)mutex_wait(&cache->lock, &cache->came, -1);
    return base->error;
}

void bases_cache_unpin(struct bases_cache *cache, struct base *base)
{
    LOCK_SCOPE(&cache->lock);
    base->pins--;
    if (!base->is_known) {
        if (base->pins == 0)
            free(base);
        return;
    }
    TAILQ_REMOVE(&cache->by_use, base, link);
    TAILQ_INSERT_TAIL(&cache->by_use, base, link);
    shrink_locked(cache);
}
