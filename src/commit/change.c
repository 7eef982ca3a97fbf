// SPDX-License-Identifier: Apache-2.0
/* Telling whoever caches what the store shows (the kernel) that it changed by itself. */
#include "commit/internal.h"

void change_init(struct store *store)
{
    mutex_init(&store->change.lock, LOCK_LEAF);
    cond_init(&store->change.changed);
}

void change_done(struct store *store)
{
    mutex_done(&store->change.lock);
    (void)pthread_cond_destroy(&store->change.changed);
}

void store_on_change(struct store *store, store_change_fn *fn, void *arg)
{
    LOCK_SCOPE(&store->change.lock);
    store->change.fn = NULL;
    while (store->change.calls > 0)
        (void)mutex_wait(&store->change.lock, &store->change.changed, -1);
    store->change.fn = fn;
    store->change.arg = arg;
}

void change_tell(struct store *store, const uint64_t *inos, size_t count, bool has_content)
{
    mutex_lock(&store->change.lock);
    store_change_fn *fn = store->change.fn;
    void *arg = store->change.arg;
    store->change.calls += fn != NULL;
    mutex_unlock(&store->change.lock);
    if (!fn)
        return;
    fn(inos, count, has_content, arg);
    LOCK_SCOPE(&store->change.lock);
    store->change.calls--;
    (void)pthread_cond_broadcast(&store->change.changed);
}

uint64_t store_turn(struct store *store)
{
    uint64_t now = atomic_load(&store->turn);
    if (!(now & 1))
        return now;
    LOCK_SCOPE(&store->change.lock);
    while ((now = atomic_load(&store->turn)) & 1)
        (void)mutex_wait(&store->change.lock, &store->change.changed, -1);
    return now;
}

void change_turn(struct store *store)
{
    LOCK_SCOPE(&store->change.lock);
    atomic_fetch_add(&store->turn, 1);
    (void)pthread_cond_broadcast(&store->change.changed);
}
