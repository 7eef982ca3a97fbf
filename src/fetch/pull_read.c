// SPDX-License-Identifier: Apache-2.0
/* Who reads chunks that come from the remote: he copies them, waiting where he must; or what lies in memory is lent to him, and if it is
 * on its way, he is called when it has come. */
#include "fetch/internal.h"

#include "base/clock.h"
#include "remote/care.h"

#define TRIES 3 /* a chunk may move in the remote between asking where it is and fetching it */

/* --- copies -------------------------------------------------------------------------------------------------------------- */

static void read_locked(struct pull *pull, struct pull_chunk *chunk, uint64_t length)
{
    check_held(&pull->locked.lock);
    chunk->read += length;
    chunk->used = clock_monotonic_ns();
    if (!chunk->forgotten) {
        TAILQ_REMOVE(&pull->locked.ready, chunk, link);
        TAILQ_INSERT_TAIL(&pull->locked.ready, chunk, link);
    }
}

static void copy_out(struct pull *pull, struct pull_chunk *chunk, uint64_t offset, void *buf, size_t length, int *ret)
{
    bool fits = offset + length <= chunk->len;
    if (fits)
        memcpy(buf, chunk->bytes + offset, length);
    *ret = fits ? 0 : -EUCLEAN;
    LOCK_SCOPE(&pull->locked.lock);
    read_locked(pull, chunk, length);
    pull_unpin_locked(pull, chunk);
}

bool pull_read_ready(struct pull *pull, const struct chunk_name *name, uint64_t offset, void *buf, size_t length, int *ret)
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

int pull_place(struct store *store, const struct chunk_name *name, struct chunk_entry *ret)
{
    int r = view_far_place(store->view, name, ret);
    if (r == 0 && (ret->raw_len == 0 || ret->raw_len > CHUNK_SIZE_MAX || ret->stored_len > CHUNK_SIZE_MAX))
        r = -EUCLEAN;
    return r;
}

bool pull_is_near(struct store *store, const struct chunk_name *name)
{
    struct chunk_entry entry;
    uint64_t refs;
    if (damage_is_known(store, name))
        return packs_has_fresh(store, name);
    return packs_has_fresh(store, name) || (view_chunk(store->view, name, &entry, &refs) == 0 && entry.pack != 0);
}

/* One reader needs one chunk of which nothing is known here. */
static int plan_alone(struct pull *pull, const struct chunk_name *name)
{
    struct pull_wanted wanted = {0};
    int r = pull_place(pull->store, name, &wanted.entry);
    if (r < 0)
        return r;
    LOCK_SCOPE(&pull->locked.lock);
    if (pull->locked.stopping)
        return -EHOSTDOWN;
    pull_plan_locked(pull, &pull->locked.solo, pull_group_new(&wanted, 1, true));
    return 0;
}

/* Fetches the group of a planned chunk, if there is room in the window; or waits. */
static void advance_locked(struct pull *pull, struct pull_chunk *chunk)
{
    check_held(&pull->locked.lock);
    struct pull_group *group = chunk->group;
    if (chunk->state == PULL_LOADING) {
        (void)mutex_wait(&pull->locked.lock, &chunk->arrived, -1);
        return;
    }
    if (!pull_take_locked(pull, group, true)) {
        (void)mutex_wait(&pull->locked.lock, &pull->changed, 1000);
        return;
    }
    mutex_unlock(&pull->locked.lock);
    pull_run_for_reader(pull, group);
    mutex_lock(&pull->locked.lock);
}

/* The chunk, ready or failed, pinned. NULL: it is not known here. */
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

static int read_once(struct pull *pull, const struct chunk_name *name, uint64_t offset, void *buf, size_t length)
{
    struct pull_chunk *chunk = await_chunk(pull, name);
    int r = 0;
    if (!chunk) {
        r = plan_alone(pull, name);
        return r < 0 ? r : -EAGAIN;
    }
    if (chunk->state == PULL_READY) {
        copy_out(pull, chunk, offset, buf, length, &r);
        return r;
    }
    LOCK_SCOPE(&pull->locked.lock);
    r = chunk->state == PULL_FAILED ? chunk->error : -EHOSTDOWN;
    pull_unpin_locked(pull, chunk);
    return r;
}

int pull_read(struct pull *pull, const struct chunk_name *name, uint64_t offset, void *buf, size_t length)
{
    int r = -EAGAIN;
    for (int try = 0; try < TRIES && r != 0 && r != -EHOSTDOWN;) {
        r = read_once(pull, name, offset, buf, length);
        if (r != -EAGAIN)
            try++;
    }
    struct chunk_entry entry;
    if (r != 0 && r != -EHOSTDOWN && pull_place(pull->store, name, &entry) == 0)
        far_note_bad(pull->remote, entry.pack, r == -ENOENT ? "missing" : "damaged");
    return r;
}

/* --- loans --------------------------------------------------------------------------------------------------------------- */

struct lending {
    struct pull *pull;
    struct store_loan *loan;
    struct pull_waiter *waiter; /* of the reader, until a chunk has it */
    uint64_t next;              /* in the file: all before it is lent */
};

/* -EAGAIN: it is not in memory; -EINPROGRESS: it will be, and the waiter is told. */
static int lend_locked(struct lending *l, const struct extent *e)
{
    check_held(&l->pull->locked.lock);
    struct store_loan *loan = l->loan;
    struct pull_chunk *chunk = pull_find_locked(l->pull, &e->chunk);
    if (!chunk || chunk->state == PULL_PLANNED || chunk->state == PULL_FAILED || loan->count == STORE_LOANS)
        return -EAGAIN;
    if (chunk->state == PULL_LOADING) {
        STAILQ_INSERT_TAIL(&chunk->waiters, l->waiter, link);
        l->pull->locked.waiting++;
        l->waiter = NULL;
        return -EINPROGRESS;
    }
    if (e->chunk_offset + e->length > chunk->len)
        return -EAGAIN;
    chunk->pins++;
    loan->chunk[loan->count] = chunk;
    loan->iov[loan->count++] = (struct iovec){(void *)(uintptr_t)(chunk->bytes + e->chunk_offset), e->length};
    return 0;
}

static int lend_part(const struct view_extent *part, void *arg)
{
    struct lending *l = arg;
    const struct extent *e = &part->extent;
    if (e->kind != EXTENT_CHUNK || e->offset != l->next)
        return -EAGAIN;
    l->next += e->length;
    LOCK_SCOPE(&l->pull->locked.lock);
    return lend_locked(l, e);
}

static void give_back(struct pull *pull, struct store_loan *loan, bool was_read)
{
    LOCK_SCOPE(&pull->locked.lock);
    for (size_t i = 0; i < loan->count; i++) {
        if (was_read)
            read_locked(pull, loan->chunk[i], loan->iov[i].iov_len);
        pull_unpin_locked(pull, loan->chunk[i]);
    }
    loan->count = 0;
}

/* Nothing is looked up while nothing is on its way. */
static bool has_chunks(struct pull *pull)
{
    LOCK_SCOPE(&pull->locked.lock);
    return pull->locked.chunks && !pull->locked.stopping;
}

int store_lend(struct store *store, uint64_t ino, uint64_t offset, size_t length, void (*job)(void *arg), void *arg,
               struct store_loan *ret)
{
    struct pull *pull = pull_of(store);
    ret->count = 0;
    if (!pull || !has_chunks(pull))
        return -EAGAIN;
    struct pull_waiter *waiter = xmalloc(sizeof *waiter);
    struct lending l = {.pull = pull, .loan = ret, .waiter = waiter, .next = offset};
    *waiter = (struct pull_waiter){.job = job, .arg = arg};
    prefetch_note_read(pull, ino, offset, length);
    int r = view_extents(store->view, ino, 0, offset, length, lend_part, &l);
    if (r == 0 && l.next != offset + length)
        r = -EAGAIN;
    free(l.waiter);
    if (r != 0)
        give_back(pull, ret, false);
    if (r == 0 || r == -EINPROGRESS)
        prefetch_note_miss(pull, ino);
    return r == 0 || r == -EINPROGRESS ? r : -EAGAIN;
}

void store_loan_done(struct store *store, struct store_loan *loan)
{
    if (loan->count)
        give_back(pull_of(store), loan, true);
}

void pull_run_waiters(struct pull *pull, struct pull_waiter_list *waiters)
{
    struct pull_waiter *waiter;
    while ((waiter = STAILQ_FIRST(waiters))) {
        STAILQ_REMOVE_HEAD(waiters, link);
        waiter->job(waiter->arg);
        free(waiter);
        LOCK_SCOPE(&pull->locked.lock);
        if (--pull->locked.waiting == 0)
            (void)pthread_cond_broadcast(&pull->changed);
    }
}

void pull_await_waiters(struct pull *pull)
{
    LOCK_SCOPE(&pull->locked.lock);
    while (pull->locked.waiting > 0)
        (void)mutex_wait(&pull->locked.lock, &pull->changed, 1000);
}
