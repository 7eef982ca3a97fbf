// SPDX-License-Identifier: Apache-2.0
/* One GET, and the use of its content: chunks are verified, decoded beside the chunks that they
 * refer to, passed to waiting readers, and promoted. */
#include "fetch/pull.h"

#include "base/cause.h"
#include "base/clock.h"
#include "remote/chunks.h"
#include "remote/maintenance.h"
#include "remote/state.h"

/* --- one GET ---------------------------------------------------------------------------------- */

/* The result for a chunk of a group. */
struct opened {
    int error;
    struct base_loss loss;
    struct pull_buffer *buffer; /* the buffer that holds its bytes */
    const uint8_t *bytes;
};

static int verify_raw(struct pull *pull, const struct chunk_entry *entry, const uint8_t *stored)
{
    if (entry->stored_len != entry->raw_len)
        return -EUCLEAN;
    return local_is_chunk(&pull->store->local, &entry->name, stored, entry->raw_len) ? 0 : -EBADMSG;
}

/* Verifies a raw chunk in place, or decodes another one into a buffer of its own. */
static struct opened open_pulled_chunk(struct pull *pull, const struct bases *bases,
                                       const struct chunk_entry *entry, const uint8_t *stored,
                                       struct pull_buffer *from)
{
    struct opened ret = {.buffer = from, .bytes = stored};
    if (entry->encoding == ENCODING_RAW) {
        ret.error = verify_raw(pull, entry, stored);
        return ret;
    }
    ret.buffer = pull_buffer_new(pull, entry->raw_len);
    ret.bytes = ret.buffer->bytes;
    ret.error = bases_decode(bases, entry, stored, ret.buffer->bytes, &ret.loss);
    return ret;
}

/* Adds to `waiters` the readers that are called when the whole group is there. */
static void publish_chunk(struct pull *pull, const struct chunk_entry *entry,
                          const struct opened *opened, struct pull_waiter_list *waiters)
{
    LOCK_SCOPE(&pull->locked.lock);
    struct pull_chunk *chunk = pull_find_locked(pull, &entry->name);
    check(chunk && chunk->state == PULL_LOADING);
    bool is_wanted = chunk->pins > 0 || !STAILQ_EMPTY(&chunk->waiters) || chunk->for_reader;
    STAILQ_CONCAT(waiters, &chunk->waiters);
    chunk->error = opened->error;
    chunk->loss = opened->loss;
    if (opened->error < 0 || !is_wanted) {
        pull_forget_locked(pull, chunk);
        return;
    }
    chunk->state = PULL_READY;
    chunk->promoting = true;
    chunk->len = entry->raw_len;
    chunk->used = clock_monotonic_ns();
    chunk->bytes = opened->bytes;
    chunk->buffer = opened->buffer;
    chunk->buffer->refs++;
    TAILQ_INSERT_TAIL(&pull->locked.ready, chunk, link);
    (void)pthread_cond_broadcast(&chunk->arrived);
}

/* Reports why the chunk cannot be read; an error that may pass is reported as one of the remote,
 * and is not damage. */
static void note_unopened(struct pull *pull, const struct pull_group *group, struct opened *opened)
{
    int r = opened->error;
    if (r == -EBADMSG || r == -EUCLEAN || r == -EPROTONOSUPPORT) {
        remote_error(pull->remote, 0, "a chunk in packs/%016llx is damaged in the remote (%s)",
                     (unsigned long long)group->pack, strerror(-r));
        return;
    }
    if (r == -ENOLINK) {
        bases_note_loss(&opened->loss);
        remote_error(pull->remote, 0, "a chunk in packs/%016llx cannot be read from the remote: %s",
                     (unsigned long long)group->pack, cause_text());
        return;
    }
    if (r != -ECANCELED)
        remote_error(pull->remote, r, "reading the bases of a chunk in packs/%016llx failed (%s)",
                     (unsigned long long)group->pack, strerror(-r));
    opened->error = -EHOSTDOWN;
}

static int bring_chunk(struct pull *pull, const struct pull_fetched *fetched,
                       const struct bases *bases, uint32_t i, struct pull_waiter_list *waiters)
{
    const struct pull_group *group = fetched->group;
    const struct chunk_entry *entry = &group->entries[i];
    const uint8_t *stored = fetched->stored->bytes + (entry->offset - group->offset);
    struct opened opened = open_pulled_chunk(pull, bases, entry, stored, fetched->stored);
    if (opened.error < 0)
        note_unopened(pull, group, &opened);
    else
        damage_forget(pull->store->commit.damage, &entry->name);
    publish_chunk(pull, entry, &opened, waiters);
    fetched->good[i] = opened.error == 0;
    if (opened.buffer == fetched->stored)
        return opened.error;
    if (entry->ref_count > 0 && opened.error == 0) {
        fetched->opened[i] = opened.buffer;
        return 0;
    }
    LOCK_SCOPE(&pull->locked.lock);
    pull_buffer_put_locked(pull, opened.buffer);
    return opened.error;
}

/* Gathers the chunks that chunks of the group refer to, for as many of them at a time as memory
 * allows. Returns the first error. */
static int bring_all(struct pull *pull, const struct pull_fetched *fetched,
                     struct pull_waiter_list *waiters)
{
    const struct pull_group *group = fetched->group;
    int first = 0;
    for (uint32_t i = 0; i < group->count;) {
        struct bases bases;
        size_t n = bases_gather(&bases, pull->store, group->entries + i, group->count - i);
        for (; n > 0; n--, i++) {
            int r = bring_chunk(pull, fetched, &bases, i, waiters);
            first = first < 0 ? first : r;
        }
        bases_release(&bases);
    }
    return first;
}

/* Returns the part of a group's cost that its buffers use, until they are freed. */
static uint64_t spent_on(const struct pull_fetched *fetched)
{
    uint64_t spent = fetched->stored->cost + fetched->scratch;
    for (uint32_t i = 0; i < fetched->group->count; i++)
        if (fetched->group->entries[i].encoding != ENCODING_RAW)
            spent += fetched->group->entries[i].raw_len;
    return spent;
}

/* Fetches the group, whose waiting readers are called. Returns the first error. */
static int fetch_group(struct pull *pull, struct pull_group *group, struct pull_fetched *ret)
{
    struct pull_waiter_list waiters = STAILQ_HEAD_INITIALIZER(waiters);
    *ret = (struct pull_fetched){.group = group, .stored = pull_buffer_new(pull, group->length)};
    ret->good = xcalloc(group->count, sizeof *ret->good);
    ret->opened = xcalloc(group->count, sizeof *ret->opened);
    int r = remote_get(pull->remote, group->pack, group->offset, ret->stored->bytes, group->length);
    uint64_t spent = ret->stored->cost;
    if (r == 0 && remote_is_bad_pack(pull->remote, group->pack))
        remote_ask_again(pull->remote);
    if (r == 0) {
        ret->scratch = bases_room(group->entries, group->count) ? PACKS_SCRATCH_LEN : 0;
        spent = spent_on(ret);
        r = bring_all(pull, ret, &waiters);
    } else {
        for (uint32_t i = 0; i < group->count; i++)
            publish_chunk(pull, &group->entries[i], &(struct opened){.error = r}, &waiters);
    }
    /* Waiters may themselves wait for other groups: no chunk of this group is on its way any
     * more. */
    pull_call_waiters(pull, &waiters);
    LOCK_SCOPE(&pull->locked.lock);
    pull->locked.held -= group->cost - spent;
    (void)pthread_cond_broadcast(&pull->changed);
    return r;
}

/* Returns the stored bytes for which there was no room. */
static uint64_t promote_fetched(struct pull *pull, const struct pull_fetched *fetched,
                                int64_t wait_ns)
{
    const struct pull_group *group = fetched->group;
    int64_t until = clock_monotonic_ns() + wait_ns;
    uint64_t not_promoted = 0;
    _cleanup_free_ void *scratch = fetched->scratch ? xmalloc(fetched->scratch) : NULL;
    for (uint32_t i = 0; i < group->count; i++) {
        const struct chunk_entry *entry = &group->entries[i];
        const uint8_t *bytes = fetched->stored->bytes + (entry->offset - group->offset);
        if (!fetched->good[i])
            continue;
        bool ok = fetched->opened[i] ? promote_decoded(pull->store, entry,
                                                       fetched->opened[i]->bytes, scratch, until)
                                     : promote_chunk(pull->store, entry, bytes, until);
        not_promoted += ok ? 0 : entry->stored_len;
    }
    return not_promoted;
}

static void fetched_done_locked(struct pull *pull, struct pull_fetched *fetched)
{
    check_held(&pull->locked.lock);
    for (uint32_t i = 0; i < fetched->group->count; i++) {
        struct pull_chunk *chunk = pull_find_locked(pull, &fetched->group->entries[i].name);
        if (!chunk || !chunk->promoting)
            continue;
        chunk->promoting = false;
        if (chunk->pins == 0 && pull_is_used_up(chunk))
            pull_forget_locked(pull, chunk);
    }
    for (uint32_t i = 0; i < fetched->group->count; i++)
        if (fetched->opened[i])
            pull_buffer_put_locked(pull, fetched->opened[i]);
    pull_buffer_put_locked(pull, fetched->stored);
    pull->locked.held -= fetched->scratch;
    (void)pthread_cond_broadcast(&pull->changed);
    free(fetched->good);
    free(fetched->opened);
    pull_group_free(fetched->group);
}

int pull_fetch_group(struct pull *pull, struct pull_group *group, int64_t wait_ns,
                     uint64_t *ret_not_promoted)
{
    struct pull_fetched fetched;
    int r = fetch_group(pull, group, &fetched);
    *ret_not_promoted = promote_fetched(pull, &fetched, wait_ns);
    LOCK_SCOPE(&pull->locked.lock);
    fetched_done_locked(pull, &fetched);
    return r;
}

void pull_fetch_for_reader(struct pull *pull, struct pull_group *group)
{
    struct pull_fetched fetched;
    (void)fetch_group(pull, group, &fetched);
    LOCK_SCOPE(&pull->locked.lock);
    if (pull->locked.stopping || pull->locked.unkept_count == PULL_UNKEPT_MAX) {
        fetched_done_locked(pull, &fetched);
        return;
    }
    pull->locked.unkept[pull->locked.unkept_count++] = fetched;
    (void)pthread_cond_broadcast(&pull->changed);
}

bool pull_promote_one_locked(struct pull *pull, int64_t wait_ns)
{
    check_held(&pull->locked.lock);
    if (pull->locked.unkept_count == 0)
        return false;
    struct pull_fetched fetched = pull->locked.unkept[--pull->locked.unkept_count];
    mutex_unlock(&pull->locked.lock);
    (void)promote_fetched(pull, &fetched, wait_ns);
    mutex_lock(&pull->locked.lock);
    fetched_done_locked(pull, &fetched);
    return true;
}

/* --- life ------------------------------------------------------------------------------------- */

int pull_start(struct store *store)
{
    struct pull *pull = xcalloc(1, sizeof *pull);
    unsigned threads = store->local.options.remote.fetch_threads
                           ? store->local.options.remote.fetch_threads
                           : PULL_THREADS_USUAL;
    pull->remote = store->remote;
    pull->store = store;
    pull->window = pull_window(threads);
    pull->threads = xcalloc(threads, sizeof *pull->threads);
    mutex_init(&pull->locked.lock, LOCK_LEAF);
    cond_init(&pull->changed);
    TAILQ_INIT(&pull->locked.ready);
    TAILQ_INIT(&pull->locked.solo.groups);
    for (size_t i = 0; i < PULL_STREAMS; i++)
        TAILQ_INIT(&pull->locked.streams[i].plan.groups);
    store->fetch->pull = pull;
    int r = pool_new("cairn-fetch", PULL_READERS, 1024, NULL, NULL, &pull->readers);
    for (; r == 0 && pull->thread_count < threads; pull->thread_count += r == 0)
        r = thread_start(&pull->threads[pull->thread_count], "cairn-fetch", prefetch_main, pull);
    return r;
}

void pull_stop_work(struct pull *pull)
{
    if (!pull)
        return;
    mutex_lock(&pull->locked.lock);
    pull->locked.stopping = true;
    (void)pthread_cond_broadcast(&pull->changed);
    mutex_unlock(&pull->locked.lock);
    warm_stop(pull);
}

void pull_end(struct pull *pull)
{
    if (!pull)
        return;
    for (unsigned i = 0; i < pull->thread_count; i++)
        (void)pthread_join(pull->threads[i], NULL);
    pull->thread_count = 0;
    pool_free(pull->readers);
    pull->readers = NULL;
    warm_end(pull);
}

void pull_free(struct pull *pull)
{
    if (!pull)
        return;
    mutex_lock(&pull->locked.lock);
    pull_unplan_locked(pull, &pull->locked.solo);
    for (size_t i = 0; i < PULL_STREAMS; i++)
        pull_unplan_locked(pull, &pull->locked.streams[i].plan);
    while (pull->locked.unkept_count > 0)
        fetched_done_locked(pull, &pull->locked.unkept[--pull->locked.unkept_count]);
    struct pull_chunk *chunk, *next;
    HASH_ITER(hh, pull->locked.chunks, chunk, next)
    pull_forget_locked(pull, chunk);
    pull_drop_spares_locked(pull, 0);
    mutex_unlock(&pull->locked.lock);
    mutex_done(&pull->locked.lock);
    (void)pthread_cond_destroy(&pull->changed);
    free(pull->threads);
    free(pull);
}
