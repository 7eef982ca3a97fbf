// SPDX-License-Identifier: Apache-2.0
/* Reading chunks that are fetched from the remote: a copy, for a thread that may wait; or a call
 * when the chunk has arrived. */
#include "fetch/pull.h"

#include "base/clock.h"
#include "dense/dense.h"
#include "remote/maintenance.h"

#define TRIES 3 /* a chunk may move in the remote between the lookup and the fetch */

/* --- copies ----------------------------------------------------------------------------------- */

void pull_note_read_locked(struct pull *pull, struct pull_chunk *chunk, uint64_t length)
{
    check_held(&pull->locked.lock);
    chunk->read += length;
    chunk->used = clock_monotonic_ns();
    if (!chunk->forgotten) {
        TAILQ_REMOVE(&pull->locked.ready, chunk, link);
        TAILQ_INSERT_TAIL(&pull->locked.ready, chunk, link);
    }
}

static void copy_out(struct pull *pull, struct pull_chunk *chunk, uint64_t offset, void *buf,
                     size_t length, int *ret)
{
    bool fits = offset + length <= chunk->len;
    if (fits)
        memcpy(buf, chunk->bytes + offset, length);
    *ret = fits ? 0 : -EUCLEAN;
    LOCK_SCOPE(&pull->locked.lock);
    pull_note_read_locked(pull, chunk, length);
    pull_unpin_locked(pull, chunk);
}

bool pull_read_ready(struct pull *pull, const struct chunk_name *name, uint64_t offset, void *buf,
                     size_t length, int *ret)
{
    mutex_lock(&pull->locked.lock);
    struct pull_chunk *chunk = pull_find_locked(pull, name);
    bool ready = chunk && chunk->state == PULL_READY;
    if (ready)
        chunk->pins++;
    mutex_unlock(&pull->locked.lock);
    if (ready)
        copy_out(pull, chunk, offset, buf, length, ret);
    return ready;
}

bool pull_is_local(struct store *store, const struct chunk_name *name)
{
    struct chunk_entry entry;
    uint64_t refs;
    if (damage_is_known(store->commit.damage, name))
        return packs_has_fresh(store->commit.packs, name);
    return packs_has_fresh(store->commit.packs, name) ||
           (view_chunk(store->local.view, name, &entry, &refs) == 0 && entry.pack != 0);
}

/* Plans a chunk that is not known here, for one reader. */
static int plan_alone(struct pull *pull, const struct chunk_entry *place)
{
    struct pull_wanted wanted = {.entry = *place};
    LOCK_SCOPE(&pull->locked.lock);
    if (pull->locked.stopping)
        return -EHOSTDOWN;
    pull_plan_locked(pull, &pull->locked.solo, pull_group_new(&wanted, 1, true));
    return -EAGAIN;
}

/* Fetches the group of a planned chunk, if there is room in the window; else waits. */
static void advance_locked(struct pull *pull, struct pull_chunk *chunk)
{
    check_held(&pull->locked.lock);
    struct pull_group *group = chunk->group;
    if (chunk->state == PULL_LOADING) {
        (void)mutex_wait(&pull->locked.lock, &chunk->arrived, -1);
        return;
    }
    if (!pull_take_locked(pull, group, true)) {
        (void)mutex_wait(&pull->locked.lock, &pull->changed, -1);
        return;
    }
    mutex_unlock(&pull->locked.lock);
    pull_fetch_for_reader(pull, group);
    mutex_lock(&pull->locked.lock);
}

/* Returns the chunk, ready or failed, pinned. NULL: it is not known here. */
static struct pull_chunk *await_chunk(struct pull *pull, const struct chunk_name *name)
{
    LOCK_SCOPE(&pull->locked.lock);
    struct pull_chunk *chunk = pull_find_locked(pull, name);
    if (!chunk)
        return NULL;
    chunk->pins++;
    while (chunk->state == PULL_LOADING || (chunk->state == PULL_PLANNED && !pull->locked.stopping))
        advance_locked(pull, chunk);
    return chunk;
}

/* -EAGAIN: the chunk was not known here, and is planned now. */
static int read_once(struct pull *pull, const struct chunk_entry *place, uint64_t offset, void *buf,
                     size_t length)
{
    struct pull_chunk *chunk = await_chunk(pull, &place->name);
    int r = 0;
    if (!chunk)
        return plan_alone(pull, place);
    if (chunk->state == PULL_READY) {
        copy_out(pull, chunk, offset, buf, length, &r);
        return r;
    }
    LOCK_SCOPE(&pull->locked.lock);
    r = chunk->state == PULL_FAILED ? chunk->error : -EHOSTDOWN;
    if (r == -ENOLINK)
        bases_note_loss(&chunk->loss);
    pull_unpin_locked(pull, chunk);
    return r;
}

int pull_read(struct pull *pull, const struct chunk_entry *known, uint64_t offset, void *buf,
              size_t length)
{
    struct chunk_entry place = *known;
    int r = -EAGAIN;
    for (int tries = 0; tries < TRIES && r != 0 && r != -EHOSTDOWN;) {
        r = read_once(pull, &place, offset, buf, length);
        if (r == 0 || r == -EAGAIN || r == -EHOSTDOWN)
            continue;
        tries++;
        if (dense_find_place(pull->store, &known->name, &place) < 0)
            return -ENOENT;
    }
    if (r == 0 || r == -EHOSTDOWN || r == -ENOLINK) /* a missing base was noted */
        return r;
    remote_note_bad_pack(pull->remote, place.pack, r);
    return r == -ENOENT ? -ENODATA : r;
}

/* --- readers that wait ------------------------------------------------------------------------ */

void pull_wait_locked(struct pull *pull, struct pull_chunk *chunk, struct pull_waiter *waiter)
{
    check_held(&pull->locked.lock);
    check(chunk->state == PULL_LOADING);
    STAILQ_INSERT_TAIL(&chunk->waiters, waiter, link);
    pull->locked.waiting++;
}

void pull_call_waiters(struct pull *pull, struct pull_waiter_list *waiters)
{
    struct pull_waiter *waiter;
    while ((waiter = STAILQ_FIRST(waiters))) {
        STAILQ_REMOVE_HEAD(waiters, link);
        waiter->job(waiter->arg); /* the waiter is part of the memory that the job frees */
        LOCK_SCOPE(&pull->locked.lock);
        if (--pull->locked.waiting == 0)
            (void)pthread_cond_broadcast(&pull->changed);
    }
}

void pull_await_waiters(struct pull *pull)
{
    LOCK_SCOPE(&pull->locked.lock);
    while (pull->locked.waiting > 0)
        (void)mutex_wait(&pull->locked.lock, &pull->changed, -1);
}
