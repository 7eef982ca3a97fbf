// SPDX-License-Identifier: Apache-2.0
/* Notifies a cache of the visible state (the kernel) of changes made by the store itself. */
#include "commit/history_internal.h"

struct change *change_new(void)
{
    struct change *change = xcalloc(1, sizeof *change);
    mutex_init(&change->lock, LOCK_LEAF);
    cond_init(&change->changed);
    return change;
}

void change_free(struct change *change)
{
    mutex_done(&change->lock);
    (void)pthread_cond_destroy(&change->changed);
    free(change);
}

void change_subscribe(struct change *change, change_fn *fn, void *arg)
{
    LOCK_SCOPE(&change->lock);
    change->fn = NULL;
    while (change->calls > 0)
        (void)mutex_wait(&change->lock, &change->changed, -1);
    change->fn = fn;
    change->arg = arg;
}

void change_notify(struct change *change, const uint64_t *inos, size_t count, bool has_content)
{
    mutex_lock(&change->lock);
    change_fn *fn = change->fn;
    void *arg = change->arg;
    change->calls += fn != NULL;
    mutex_unlock(&change->lock);
    if (!fn)
        return;
    fn(inos, count, has_content, arg);
    LOCK_SCOPE(&change->lock);
    change->calls--;
    (void)pthread_cond_broadcast(&change->changed);
}

uint64_t change_generation(struct change *change)
{
    uint64_t now = atomic_load(&change->generation);
    if (!(now & 1))
        return now;
    LOCK_SCOPE(&change->lock);
    while ((now = atomic_load(&change->generation)) & 1)
        (void)mutex_wait(&change->lock, &change->changed, -1);
    return now;
}

uint64_t change_generation_now(const struct change *change)
{
    return atomic_load(&change->generation);
}

void change_next_generation(struct change *change)
{
    LOCK_SCOPE(&change->lock);
    atomic_fetch_add(&change->generation, 1);
    (void)pthread_cond_broadcast(&change->changed);
}
