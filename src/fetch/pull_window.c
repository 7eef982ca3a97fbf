// SPDX-License-Identifier: Apache-2.0
/* Chunks that are to be fetched, are on their way, or wait in memory for a reader; and the window,
 * the memory that all of this uses.
 *
 * A chunk is planned, then loading, then ready (or failed). A reader that needs a planned chunk
 * takes its group and fetches it itself, so no reader depends on a thread that is busy with other
 * work; a reader that needs a loading chunk waits. A group is taken only against room in the window
 * and never returned unfetched, so threads that wait for room wait for work that ends by itself. */
#include "base/clock.h"
#include "fetch/pull.h"

/* A chunk that was not read for so long is dropped for one that is needed. */
#define STALE_NS (3ll * 1000000000)
#define IDLE_NS (10ll * 1000000000) /* after this time it is dropped in any case */

/* --- memory ----------------------------------------------------------------------------------- */

static bool is_large(uint64_t length)
{
    return length > CHUNK_SIZE_MAX + PULL_GROUP_GAP;
}

static uint64_t buffer_cost(uint64_t length)
{
    return is_large(length) ? PULL_GROUP_BYTES : length;
}

void pull_drop_spares_locked(struct pull *pull, uint64_t max_bytes)
{
    check_held(&pull->locked.lock);
    while (pull->locked.spares > 0 && (uint64_t)pull->locked.spares * PULL_GROUP_BYTES > max_bytes)
        free(pull->locked.spare[--pull->locked.spares]);
}

/* The cost of the buffer was counted with the group. */
struct pull_buffer *pull_buffer_new(struct pull *pull, uint64_t length)
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

void pull_buffer_put_locked(struct pull *pull, struct pull_buffer *buffer)
{
    check_held(&pull->locked.lock);
    if (--buffer->refs > 0)
        return;
    pull->locked.held -= buffer->cost;
    bool is_spare =
        buffer->cost == PULL_GROUP_BYTES && pull->locked.spares < PULL_SPARE_MAX &&
        pull->locked.held + (pull->locked.spares + 1ull) * PULL_GROUP_BYTES <= pull->window;
    if (is_spare)
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

bool pull_is_coming_locked(struct pull *pull, const struct chunk_name *name)
{
    check_held(&pull->locked.lock);
    const struct pull_chunk *chunk = pull_find_locked(pull, name);
    return chunk && (chunk->state != PULL_READY || chunk->promoting);
}

static void pull_chunk_free_locked(struct pull *pull, struct pull_chunk *chunk)
{
    check_held(&pull->locked.lock);
    check(chunk->pins == 0);
    check(STAILQ_EMPTY(&chunk->waiters));
    if (chunk->buffer)
        pull_buffer_put_locked(pull, chunk->buffer);
    (void)pthread_cond_destroy(&chunk->arrived);
    free(chunk);
}

void pull_forget_locked(struct pull *pull, struct pull_chunk *chunk)
{
    check_held(&pull->locked.lock);
    if (chunk->state == PULL_READY)
        TAILQ_REMOVE(&pull->locked.ready, chunk, link);
    HASH_DEL(pull->locked.chunks, chunk);
    (void)pthread_cond_broadcast(&chunk->arrived);
    if (chunk->pins == 0) {
        pull_chunk_free_locked(pull, chunk);
        return;
    }
    if (chunk->state != PULL_READY)
        chunk->state = PULL_FAILED;
    chunk->forgotten = true;
}

bool pull_is_used_up(const struct pull_chunk *chunk)
{
    return chunk->state == PULL_READY && !chunk->promoting &&
           (!chunk->for_reader || chunk->read >= chunk->len);
}

void pull_unpin_locked(struct pull *pull, struct pull_chunk *chunk)
{
    check_held(&pull->locked.lock);
    if (--chunk->pins > 0)
        return;
    if (chunk->forgotten)
        pull_chunk_free_locked(pull, chunk);
    else if (pull_is_used_up(chunk))
        pull_forget_locked(pull, chunk);
}

/* Frees memory that was not used for `unused_ns`; false: there is none. Chunks that are being
 * promoted stay: the group's memory is not free before they are on NVMe, and then they need not be
 * fetched again. */
static bool reclaim_one_locked(struct pull *pull, int64_t unused_ns)
{
    check_held(&pull->locked.lock);
    int64_t now = clock_monotonic_ns();
    struct pull_chunk *chunk;
    TAILQ_FOREACH(chunk, &pull->locked.ready, link)
    {
        if (now - chunk->used < unused_ns)
            return false;
        if (chunk->pins == 0 && !chunk->promoting) {
            pull_forget_locked(pull, chunk);
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
        pull_drop_spares_locked(pull, 0);
}

/* --- groups ----------------------------------------------------------------------------------- */

void pull_group_free(struct pull_group *group)
{
    if (group)
        free(group->entries);
    free(group);
}

/* Computes place and cost from the entries. */
static void measure_group(struct pull_group *group)
{
    const struct chunk_entry *last = &group->entries[group->count - 1];
    uint64_t decoded = 0;
    for (uint32_t i = 0; i < group->count; i++)
        if (group->entries[i].encoding != ENCODING_RAW)
            decoded += group->entries[i].raw_len;
    uint64_t bases = bases_room(group->entries, group->count);
    group->pack = last->pack;
    group->offset = group->entries[0].offset;
    group->length = (uint32_t)(last->offset + last->stored_len - group->offset);
    group->cost = buffer_cost(group->length) + decoded + (bases ? bases + PACKS_SCRATCH_LEN : 0);
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
    measure_group(group);
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

/* Returns the number of chunks, from the first on, that one GET fetches. */
static uint32_t count_adjacent(const struct pull_wanted *wanted, size_t count)
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
        uint32_t n = count_adjacent(wanted + i, count - i);
        insert_by_need(ret, pull_group_new(wanted + i, n, for_reader));
        i += n;
    }
}

/* Removes chunks that are on their way or in memory already. */
static void add_pull_chunks_locked(struct pull *pull, struct pull_group *group)
{
    check_held(&pull->locked.lock);
    uint32_t left = 0;
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
        group->entries[left++] = group->entries[i];
    }
    group->count = left;
}

void pull_plan_locked(struct pull *pull, struct pull_plan *plan, struct pull_group *group)
{
    check_held(&pull->locked.lock);
    add_pull_chunks_locked(pull, group);
    if (group->count == 0) {
        pull_group_free(group);
        return;
    }
    measure_group(group);
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
            pull_forget_locked(pull, chunk);
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
    pull_drop_spares_locked(
        pull, pull->window > pull->locked.held ? pull->window - pull->locked.held : 0);
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
