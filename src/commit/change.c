// SPDX-License-Identifier: Apache-2.0
/* Tells a cache of what the store shows (the kernel) that it changed by itself. */
#include "commit/internal.h"

void change_init(struct store *store)
{
    mutex_init(&store->commit->change.lock, LOCK_LEAF);
    cond_init(&store->commit->change.changed);
}

void change_done(struct store *store)
{
    mutex_done(&store->commit->change.lock);
    (void)pthread_cond_destroy(&store->commit->change.changed);
}

void change_subscribe(struct store *store, change_fn *fn, void *arg)
{
    LOCK_SCOPE(&store->commit->change.lock);
    store->commit->change.fn = NULL;
    while (store->commit->change.calls > 0)
        (void)mutex_wait(&store->commit->change.lock, &store->commit->change.changed, -1);
    store->commit->change.fn = fn;
    store->commit->change.arg = arg;
}

void change_notify(struct store *store, const uint64_t *inos, size_t count, bool has_content)
{
    mutex_lock(&store->commit->change.lock);
    change_fn *fn = store->commit->change.fn;
    void *arg = store->commit->change.arg;
    store->commit->change.calls += fn != NULL;
    mutex_unlock(&store->commit->change.lock);
    if (!fn)
        return;
    fn(inos, count, has_content, arg);
    LOCK_SCOPE(&store->commit->change.lock);
    store->commit->change.calls--;
    (void)pthread_cond_broadcast(&store->commit->change.changed);
}

uint64_t change_generation(struct store *store)
{
    uint64_t now = atomic_load(&store->generation);
    if (!(now & 1))
        return now;
    LOCK_SCOPE(&store->commit->change.lock);
    while ((now = atomic_load(&store->generation)) & 1)
        (void)mutex_wait(&store->commit->change.lock, &store->commit->change.changed, -1);
    return now;
}

void change_next_generation(struct store *store)
{
    LOCK_SCOPE(&store->commit->change.lock);
    atomic_fetch_add(&store->generation, 1);
    (void)pthread_cond_broadcast(&store->commit->change.changed);
}
