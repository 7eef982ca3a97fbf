// SPDX-License-Identifier: Apache-2.0
/* Chunks that come from the remote.
 *
 * A chunk is planned, then loading, then ready (or failed). Whoever needs one that is planned takes
 * its group and fetches it himself, so no reader depends on a thread that is busy with something
 * else; whoever needs one that is loading waits. A group is taken only against room in the window
 * and never given back unfetched, so those that wait for room wait for work that ends by itself. */
#include "fetch/internal.h"

#include "base/clock.h"
#include "base/log.h"
#include "codec/encode.h"
#include "remote/maintenance.h"

#define STALE_NS                                                                                   \
    (3ll * 1000000000) /* a chunk that nobody read for so long gives way to one that is needed */
#define IDLE_NS (10ll * 1000000000) /* and after this to nobody */

/* --- memory ----------------------------------------------------------------------------------- */

static bool is_large(uint64_t length)
{
    return length > CHUNK_SIZE_MAX + PULL_GROUP_GAP;
}

static uint64_t buffer_cost(uint64_t length)
{
    return is_large(length) ? PULL_GROUP_BYTES : length;
}

static void drop_spares_locked(struct pull *pull, uint64_t max_bytes)
{
    check_held(&pull->locked.lock);
    while (pull->locked.spares > 0 && (uint64_t)pull->locked.spares * PULL_GROUP_BYTES > max_bytes)
        free(pull->locked.spare[--pull->locked.spares]);
}

/* Its cost was taken with the group. */
static struct pull_buffer *buffer_new(struct pull *pull, uint64_t length)
{
    struct pull_buffer *buffer = xcalloc(1, sizeof *buffer);
    *buffer = (struct pull_buffer){.cost = buffer_cost(length), .refs = 1};
    mutex_lock(&pull->locked.lock);
    if (is_large(length) && pull->locked.spares > 0)
        buffer->bytes = pull->locked.spare[--pull->locked.spares];
    mutex_unlock(&pull->locked.lock);
    if (!buffer->bytes)
        buffer->bytes = is_large(length) ? xmalloc_large(buffer->cost) : xmalloc(buffer->cost);
    return buffer;
}

static void buffer_put_locked(struct pull *pull, struct pull_buffer *buffer)
{
    check_held(&pull->locked.lock);
    if (--buffer->refs > 0)
        return;
    pull->locked.held -= buffer->cost;
    bool keep = buffer->cost == PULL_GROUP_BYTES && pull->locked.spares < PULL_SPARE_MAX &&
                pull->locked.held + (pull->locked.spares + 1ull) * PULL_GROUP_BYTES <= pull->window;
    if (keep)
        pull->locked.spare[pull->locked.spares++] = buffer->bytes;
    else
        free(buffer->bytes);
    free(buffer);
    (void)pthread_cond_broadcast(&pull->changed);
}

/* --- the table -------------------------------------------------------------------------------- */

struct pull_chunk *pull_find_locked(struct pull *pull, const struct chunk_name *name)
{
    check_held(&pull->locked.lock);
    struct pull_chunk *chunk = NULL;
    HASH_FIND(hh, pull->locked.chunks, name, sizeof *name, chunk);
    return chunk;
}

static void chunk_free_locked(struct pull *pull, struct pull_chunk *chunk)
{
    check_held(&pull->locked.lock);
    check(chunk->pins == 0);
    check(STAILQ_EMPTY(&chunk->waiters));
    if (chunk->buffer)
        buffer_put_locked(pull, chunk->buffer);
    (void)pthread_cond_destroy(&chunk->arrived);
    free(chunk);
}

/* Nobody finds it any more; who holds it lets go of it. */
static void forget_locked(struct pull *pull, struct pull_chunk *chunk)
{
    check_held(&pull->locked.lock);
    if (chunk->state == PULL_READY)
        TAILQ_REMOVE(&pull->locked.ready, chunk, link);
    HASH_DEL(pull->locked.chunks, chunk);
    (void)pthread_cond_broadcast(&chunk->arrived);
    if (chunk->pins == 0) {
        chunk_free_locked(pull, chunk);
        return;
    }
    if (chunk->state != PULL_READY)
        chunk->state = PULL_FAILED;
    chunk->forgotten = true;
}

/* Until it is on NVMe it stays: whoever needs it once more would fetch it once more. */
static bool is_used_up(const struct pull_chunk *chunk)
{
    return chunk->state == PULL_READY && !chunk->keeping &&
           (!chunk->for_reader || chunk->read >= chunk->len);
}

void pull_unpin_locked(struct pull *pull, struct pull_chunk *chunk)
{
    check_held(&pull->locked.lock);
    if (--chunk->pins > 0)
        return;
    if (chunk->forgotten)
        chunk_free_locked(pull, chunk);
    else if (is_used_up(chunk))
        forget_locked(pull, chunk);
}

/* Frees what was not used since; false: nothing. */
static bool reclaim_one_locked(struct pull *pull, int64_t unused_ns)
{
    check_held(&pull->locked.lock);
    int64_t now = clock_monotonic_ns();
    struct pull_chunk *chunk;
    TAILQ_FOREACH(chunk, &pull->locked.ready, link)
    {
        if (now - chunk->used < unused_ns)
            return false;
        if (chunk->pins == 0 && (!chunk->keeping || unused_ns == 0)) {
            forget_locked(pull, chunk);
            return true;
        }
    }
    return false;
}

void pull_trim_locked(struct pull *pull)
{
    check_held(&pull->locked.lock);
    while (reclaim_one_locked(pull, IDLE_NS))
        ;
    if (pull->locked.held == 0)
        drop_spares_locked(pull, 0);
}

/* --- groups ----------------------------------------------------------------------------------- */

void pull_group_free(struct pull_group *group)
{
    if (group)
        free(group->entries);
    free(group);
}

/* Place and cost follow from the entries. */
static void measure(struct pull_group *group)
{
    const struct chunk_entry *last = &group->entries[group->count - 1];
    uint64_t decoded = 0;
    for (uint32_t i = 0; i < group->count; i++)
        if (group->entries[i].encoding != ENCODING_RAW)
            decoded += group->entries[i].raw_len;
    group->pack = last->pack;
    group->offset = group->entries[0].offset;
    group->length = (uint32_t)(last->offset + last->stored_len - group->offset);
    group->cost = buffer_cost(group->length) + decoded;
}

struct pull_group *pull_group_new(const struct pull_wanted *wanted, uint32_t count, bool for_reader)
{
    struct pull_group *group = xcalloc(1, sizeof *group);
    *group =
        (struct pull_group){.count = count, .for_reader = for_reader, .first = wanted[0].first};
    group->entries = xcalloc(count, sizeof *group->entries);
    for (uint32_t i = 0; i < count; i++) {
        group->entries[i] = wanted[i].entry;
        group->first = min_u64(group->first, wanted[i].first);
    }
    measure(group);
    return group;
}

static int compare_places(const void *a, const void *b)
{
    const struct pull_wanted *x = a, *y = b;
    if (x->entry.pack != y->entry.pack)
        return x->entry.pack < y->entry.pack ? -1 : 1;
    return x->entry.offset < y->entry.offset ? -1 : x->entry.offset > y->entry.offset;
}

static void insert_by_need(struct pull_group_list *list, struct pull_group *group)
{
    struct pull_group *at;
    TAILQ_FOREACH_REVERSE(at, list, pull_group_list, link)
    {
        if (at->first <= group->first) {
            TAILQ_INSERT_AFTER(list, at, group, link);
            return;
        }
    }
    TAILQ_INSERT_HEAD(list, group, link);
}

/* How many from the first on go into one GET. */
static uint32_t adjacent(const struct pull_wanted *wanted, size_t count)
{
    const struct chunk_entry *first = &wanted[0].entry;
    uint64_t raw = first->raw_len;
    uint32_t n = 1;
    for (; n < count && n < PULL_GROUP_CHUNKS; n++) {
        const struct chunk_entry *before = &wanted[n - 1].entry, *next = &wanted[n].entry;
        uint64_t end = before->offset + before->stored_len;
        raw += next->raw_len;
        if (next->pack != first->pack || next->offset < end ||
            next->offset - end > PULL_GROUP_GAP ||
            next->offset + next->stored_len - first->offset > PULL_GROUP_BYTES ||
            raw > PULL_GROUP_BYTES)
            break;
    }
    return n;
}

void pull_make_groups(struct pull_wanted *wanted, size_t count, bool for_reader,
                      struct pull_group_list *ret)
{
    TAILQ_INIT(ret);
    if (count > 1)
        qsort(wanted, count, sizeof *wanted, compare_places);
    for (size_t i = 0; i < count;) {
        uint32_t n = adjacent(wanted + i, count - i);
        insert_by_need(ret, pull_group_new(wanted + i, n, for_reader));
        i += n;
    }
}

/* Takes out what is on its way or in memory already. */
static void add_chunks_locked(struct pull *pull, struct pull_group *group)
{
    check_held(&pull->locked.lock);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < group->count; i++) {
        if (pull_find_locked(pull, &group->entries[i].name))
            continue;
        struct pull_chunk *chunk = xcalloc(1, sizeof *chunk);
        *chunk = (struct pull_chunk){.name = group->entries[i].name,
                                     .state = PULL_PLANNED,
                                     .group = group,
                                     .for_reader = group->for_reader};
        cond_init(&chunk->arrived);
        STAILQ_INIT(&chunk->waiters);
        HASH_ADD(hh, pull->locked.chunks, name, sizeof chunk->name, chunk);
        group->entries[kept++] = group->entries[i];
    }
    group->count = kept;
}

void pull_plan_locked(struct pull *pull, struct pull_plan *plan, struct pull_group *group)
{
    check_held(&pull->locked.lock);
    add_chunks_locked(pull, group);
    if (group->count == 0) {
        pull_group_free(group);
        return;
    }
    measure(group);
    group->plan = plan;
    TAILQ_INSERT_TAIL(&plan->groups, group, link);
    plan->count++;
}

void pull_unplan_locked(struct pull *pull, struct pull_plan *plan)
{
    check_held(&pull->locked.lock);
    struct pull_group *group;
    while ((group = TAILQ_FIRST(&plan->groups))) {
        TAILQ_REMOVE(&plan->groups, group, link);
        for (uint32_t i = 0; i < group->count; i++) {
            struct pull_chunk *chunk = pull_find_locked(pull, &group->entries[i].name);
            check(chunk && chunk->group == group);
            chunk->error = -EAGAIN;
            forget_locked(pull, chunk);
        }
        pull_group_free(group);
    }
    plan->count = 0;
    (void)pthread_cond_broadcast(&pull->changed);
}

bool pull_take_locked(struct pull *pull, struct pull_group *group, bool force)
{
    check_held(&pull->locked.lock);
    while (pull->locked.held + group->cost > pull->window &&
           reclaim_one_locked(pull, force ? 0 : STALE_NS))
        ;
    if (pull->locked.held > 0 && pull->locked.held + group->cost > pull->window)
        return false;
    pull->locked.held += group->cost;
    drop_spares_locked(pull,
                       pull->window > pull->locked.held ? pull->window - pull->locked.held : 0);
    TAILQ_REMOVE(&group->plan->groups, group, link);
    group->plan->count--;
    group->plan = NULL;
    for (uint32_t i = 0; i < group->count; i++) {
        struct pull_chunk *chunk = pull_find_locked(pull, &group->entries[i].name);
        check(chunk && chunk->group == group);
        chunk->group = NULL;
        chunk->state = PULL_LOADING;
    }
    return true;
}

/* --- one GET ---------------------------------------------------------------------------------- */

static int get_group(struct pull *pull, const struct pull_group *group, void *buf)
{
    struct tier *tier = pull->remote->tier;
    char object[32];
    pack_object_name(group->pack, object);
    int r = tier->ops->get_range(tier, object, group->offset, buf, group->length);
    if (r == 0) {
        atomic_fetch_add(&pull->remote->fetched_total, group->length);
        remote_works(pull->remote);
        return 0;
    }
    if (r == -ENOENT || r == -EUCLEAN)
        return r;
    if (r != -ECANCELED)
        remote_error(pull->remote, r, "reading %s failed (%s)", object, strerror(-r));
    return -EHOSTDOWN;
}

/* Decodes a chunk beside what was stored, or where that is. */
static int open_chunk(struct pull *pull, const struct chunk_entry *entry, const uint8_t *stored,
                      struct pull_buffer *from, struct pull_buffer **ret_buffer,
                      const uint8_t **ret_bytes)
{
    struct pull_buffer *buffer = from;
    int r = 0;
    if (entry->encoding == ENCODING_RAW) {
        *ret_bytes = stored;
        r = entry->stored_len == entry->raw_len ? 0 : -EUCLEAN;
    } else {
        buffer = buffer_new(pull, entry->raw_len);
        r = chunk_decode(entry->encoding, stored, entry->stored_len, buffer->bytes, entry->raw_len);
        *ret_bytes = buffer->bytes;
    }
    *ret_buffer = buffer;
    if (r < 0)
        return r;
    struct iovec iov = {(void *)(uintptr_t)*ret_bytes, entry->raw_len};
    struct chunk_name actual = hash_chunk(&pull->store->sb.key, &iov, 1);
    return chunk_name_equal(&actual, &entry->name) ? 0 : -EBADMSG;
}

/* Adds to `waiters` who is to be told when the whole group is there. */
static void publish(struct pull *pull, const struct chunk_entry *entry, int error,
                    struct pull_buffer *buffer, const uint8_t *bytes,
                    struct pull_waiter_list *waiters)
{
    LOCK_SCOPE(&pull->locked.lock);
    struct pull_chunk *chunk = pull_find_locked(pull, &entry->name);
    check(chunk && chunk->state == PULL_LOADING);
    bool is_wanted = chunk->pins > 0 || !STAILQ_EMPTY(&chunk->waiters) || chunk->for_reader;
    STAILQ_CONCAT(waiters, &chunk->waiters);
    chunk->error = error;
    if (error < 0 || !is_wanted) {
        forget_locked(pull, chunk);
        return;
    }
    chunk->state = PULL_READY;
    chunk->keeping = true;
    chunk->len = entry->raw_len;
    chunk->used = clock_monotonic_ns();
    chunk->bytes = bytes;
    chunk->buffer = buffer;
    buffer->refs++;
    TAILQ_INSERT_TAIL(&pull->locked.ready, chunk, link);
    (void)pthread_cond_broadcast(&chunk->arrived);
}

static int bring(struct pull *pull, const struct pull_group *group, struct pull_buffer *stored,
                 uint32_t i, struct pull_waiter_list *waiters)
{
    const struct chunk_entry *entry = &group->entries[i];
    const uint8_t *bytes = NULL;
    struct pull_buffer *buffer = NULL;
    int r = open_chunk(pull, entry, stored->bytes + (entry->offset - group->offset), stored,
                       &buffer, &bytes);
    if (r < 0)
        remote_error(pull->remote, 0, "a chunk in packs/%016llx is damaged in the remote (%s)",
                     (unsigned long long)group->pack, strerror(-r));
    publish(pull, entry, r, buffer, bytes, waiters);
    LOCK_SCOPE(&pull->locked.lock);
    if (buffer != stored)
        buffer_put_locked(pull, buffer);
    return r;
}

/* Takes the group; its readers are called. Returns the first error. */
static int fetch_group(struct pull *pull, struct pull_group *group, struct pull_fetched *ret)
{
    struct pull_buffer *stored = buffer_new(pull, group->length);
    uint64_t spent = stored->cost;
    bool *good = xcalloc(group->count, sizeof *good);
    struct pull_waiter_list waiters = STAILQ_HEAD_INITIALIZER(waiters);
    int r = get_group(pull, group, stored->bytes), first = r;
    for (uint32_t i = 0; i < group->count; i++) {
        if (r < 0) {
            publish(pull, &group->entries[i], r, NULL, NULL, &waiters);
            continue;
        }
        if (group->entries[i].encoding != ENCODING_RAW)
            spent += group->entries[i].raw_len;
        int error = bring(pull, group, stored, i, &waiters);
        good[i] = error == 0;
        first = first < 0 ? first : error;
    }
    /* They may wait themselves, for other groups: of this one nothing is on its way any more. */
    pull_run_waiters(pull, &waiters);
    LOCK_SCOPE(&pull->locked.lock);
    pull->locked.held -= group->cost - spent;
    (void)pthread_cond_broadcast(&pull->changed);
    *ret = (struct pull_fetched){.group = group, .stored = stored, .good = good};
    return first;
}

/* Returns what found no room, in stored bytes. */
static uint64_t keep_fetched(struct pull *pull, const struct pull_fetched *fetched, int64_t wait_ns)
{
    const struct pull_group *group = fetched->group;
    int64_t until = clock_monotonic_ns() + wait_ns;
    uint64_t not_kept = 0;
    for (uint32_t i = 0; i < group->count; i++) {
        const struct chunk_entry *entry = &group->entries[i];
        const uint8_t *bytes = fetched->stored->bytes + (entry->offset - group->offset);
        if (fetched->good[i] && !keep_chunk(pull->store, entry, bytes, until))
            not_kept += entry->stored_len;
    }
    return not_kept;
}

static void fetched_done_locked(struct pull *pull, struct pull_fetched *fetched)
{
    check_held(&pull->locked.lock);
    for (uint32_t i = 0; i < fetched->group->count; i++) {
        struct pull_chunk *chunk = pull_find_locked(pull, &fetched->group->entries[i].name);
        if (!chunk || !chunk->keeping)
            continue;
        chunk->keeping = false;
        if (chunk->pins == 0 && is_used_up(chunk))
            forget_locked(pull, chunk);
    }
    buffer_put_locked(pull, fetched->stored);
    (void)pthread_cond_broadcast(&pull->changed);
    free(fetched->good);
    pull_group_free(fetched->group);
}

int pull_run_group(struct pull *pull, struct pull_group *group, int64_t wait_ns,
                   uint64_t *ret_not_kept)
{
    struct pull_fetched fetched;
    int r = fetch_group(pull, group, &fetched);
    *ret_not_kept = keep_fetched(pull, &fetched, wait_ns);
    LOCK_SCOPE(&pull->locked.lock);
    fetched_done_locked(pull, &fetched);
    return r;
}

void pull_run_for_reader(struct pull *pull, struct pull_group *group)
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

bool pull_keep_one_locked(struct pull *pull, int64_t wait_ns)
{
    check_held(&pull->locked.lock);
    if (pull->locked.unkept_count == 0)
        return false;
    struct pull_fetched fetched = pull->locked.unkept[--pull->locked.unkept_count];
    mutex_unlock(&pull->locked.lock);
    (void)keep_fetched(pull, &fetched, wait_ns);
    mutex_lock(&pull->locked.lock);
    fetched_done_locked(pull, &fetched);
    return true;
}

/* --- life ------------------------------------------------------------------------------------- */

int pull_start(struct store *store)
{
    struct remote *remote = store->remote;
    struct pull *pull = xcalloc(1, sizeof *pull);
    unsigned threads =
        remote->options.fetch_threads ? remote->options.fetch_threads : PULL_THREADS_USUAL;
    pull->remote = remote;
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
        r = thread_start(&pull->threads[pull->thread_count], "cairn-fetch", prefetch_run, pull);
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
    forget_locked(pull, chunk);
    drop_spares_locked(pull, 0);
    mutex_unlock(&pull->locked.lock);
    mutex_done(&pull->locked.lock);
    (void)pthread_cond_destroy(&pull->changed);
    free(pull->threads);
    free(pull);
}
