// SPDX-License-Identifier: Apache-2.0
/* Files that are read from front to back: the following content is fetched before the reader needs
 * it.
 *
 * A stream is a place in a file at which a reader continued. Once enough was read sequentially, and
 * part of it was not on NVMe, the chunks ahead are looked up, combined into groups that are
 * adjacent in the remote, and fetched by several threads at once. The window limits how far
 * ahead. */
#include "base/clock.h"
#include "dense/dense.h"
#include "fetch/pull.h"

/* bytes read sequentially before anything is fetched ahead */
#define SEQUENTIAL_MIN (512 * KIB)
#define SEQUENTIAL_SURE (8 * MIB) /* from then on all of the window is used */
#define AHEAD_FIRST (64 * MIB)
#define STRAY_AHEAD (4 * MIB) /* requests of one reader arrive out of order by less than this */
#define STRAY_BEHIND (16 * MIB)
/* The part of a file that is planned at once: long enough that neighbours in the remote are
 * recognized. */
#define SPAN (32 * MIB)
#define SPAN_CHUNKS 4096u
/* After an error nothing is fetched ahead for so long: readers fetch, and get the error. */
#define QUIET_NS (5ll * 1000000000)
#define IDLE_MS 1000
#define PROMOTE_WAIT_NS (200ll * 1000000)
#define WARM_PROMOTE_WAIT_NS (20ll * 1000000000)

/* --- where files are read --------------------------------------------------------------------- */

static bool stream_continues(const struct pull_stream *s, uint64_t ino, uint64_t offset)
{
    return s->ino == ino && offset <= s->next + STRAY_AHEAD && offset + STRAY_BEHIND >= s->next;
}

/* Returns the stream that the read continues, or a new one in place of the least recently used
 * one. */
static struct pull_stream *stream_locked(struct pull *pull, uint64_t ino, uint64_t offset)
{
    check_held(&pull->locked.lock);
    struct pull_stream *oldest = &pull->locked.streams[0];
    for (size_t i = 0; i < PULL_STREAMS; i++) {
        struct pull_stream *s = &pull->locked.streams[i];
        if (stream_continues(s, ino, offset))
            return s;
        if (!s->planning && (oldest->planning || s->used < oldest->used))
            oldest = s;
    }
    if (oldest->planning)
        return NULL;
    pull_unplan_locked(pull, &oldest->plan);
    struct pull_plan plan = oldest->plan;
    *oldest = (struct pull_stream){.ino = ino, .next = offset, .planned = offset};
    oldest->plan = plan;
    TAILQ_INIT(&oldest->plan.groups);
    return oldest;
}

static uint64_t stream_reach(const struct pull *pull, const struct pull_stream *s)
{
    return s->next +
           (s->sequential < SEQUENTIAL_SURE ? min_u64(AHEAD_FIRST, pull->window) : pull->window);
}

static bool wants_plan(const struct pull *pull, const struct pull_stream *s, int64_t now)
{
    return s->ino && s->missed && !s->planning && !s->ended && s->requests > 1 &&
           s->sequential >= SEQUENTIAL_MIN && now >= s->quiet_until &&
           s->planned + SPAN <= stream_reach(pull, s);
}

void prefetch_note_read(struct pull *pull, uint64_t ino, uint64_t offset, uint64_t length)
{
    LOCK_SCOPE(&pull->locked.lock);
    struct pull_stream *s = stream_locked(pull, ino, offset);
    if (!s)
        return;
    s->used = clock_monotonic_ns();
    if (offset + length <= s->next)
        return;
    s->sequential += offset + length - s->next;
    s->next = offset + length;
    s->requests++;
    if (s->next > s->planned) { /* the plan's end was the file's: it has grown */
        s->planned = s->next;
        s->ended = false;
    }
    if (wants_plan(pull, s, s->used))
        (void)pthread_cond_broadcast(&pull->changed);
}

void prefetch_note_miss(struct pull *pull, uint64_t ino)
{
    bool is_new = false;
    LOCK_SCOPE(&pull->locked.lock);
    for (size_t i = 0; i < PULL_STREAMS; i++) {
        struct pull_stream *s = &pull->locked.streams[i];
        is_new = is_new || (s->ino == ino && !s->missed);
        s->missed = s->missed || s->ino == ino;
    }
    if (is_new)
        (void)pthread_cond_broadcast(&pull->changed);
}

/* --- the next range --------------------------------------------------------------------------- */

struct listing {
    struct pull_wanted *list;
    size_t count;
    uint64_t end; /* of the last part seen */
};

static int list_chunk(const struct view_extent *part, void *arg)
{
    struct listing *l = arg;
    const struct extent *e = &part->extent;
    l->end = e->offset + e->length;
    if (e->kind != EXTENT_CHUNK)
        return 0;
    if (l->count && chunk_name_equal(&l->list[l->count - 1].entry.name, &e->chunk))
        return 0;
    l->list[l->count] = (struct pull_wanted){.entry.name = e->chunk, .first = e->offset};
    return ++l->count == SPAN_CHUNKS;
}

/* Keeps only chunks that are not on NVMe, with their places in the remote. */
static void drop_present(struct pull *pull, struct listing *l)
{
    size_t left = 0;
    for (size_t i = 0; i < l->count; i++) {
        struct pull_wanted wanted = l->list[i];
        if (pull_is_local(pull->store, &wanted.entry.name))
            continue;
        if (dense_find_place(pull->store, &l->list[i].entry.name, &wanted.entry) == 0)
            l->list[left++] = wanted;
    }
    l->count = left;
}

static void add_groups_locked(struct pull *pull, struct pull_plan *plan,
                              struct pull_group_list *groups)
{
    check_held(&pull->locked.lock);
    struct pull_group *group;
    while ((group = TAILQ_FIRST(groups))) {
        TAILQ_REMOVE(groups, group, link);
        pull_plan_locked(pull, plan, group);
    }
    (void)pthread_cond_broadcast(&pull->changed);
}

/* Plans one span. Releases the lock meanwhile. */
static void plan_span_locked(struct pull *pull, struct pull_stream *s)
{
    check_held(&pull->locked.lock);
    uint64_t ino = s->ino, from = max_u64(s->planned, s->next);
    struct listing l = {.end = from};
    struct pull_group_list groups;
    s->planning = true;
    mutex_unlock(&pull->locked.lock);
    l.list = xcalloc(SPAN_CHUNKS, sizeof *l.list);
    const struct fetch_view of = fetch_view_enter(pull->store, ino);
    int r = of.view ? view_extents(of.view, of.ino, from, SPAN, list_chunk, &l) : -ENOENT;
    fetch_view_leave(pull->store, ino, &of);
    bool at_end = r < 0 || (l.end < from + SPAN && l.count < SPAN_CHUNKS);
    if (r < 0)
        l.count = 0;
    drop_present(pull, &l);
    pull_make_groups(l.list, l.count, true, &groups);
    free(l.list);
    mutex_lock(&pull->locked.lock);
    s->planning = false;
    s->planned = max_u64(l.end, from + 1);
    s->ended = at_end;
    add_groups_locked(pull, &s->plan, &groups);
}

static struct pull_stream *stream_to_plan_locked(struct pull *pull)
{
    check_held(&pull->locked.lock);
    int64_t now = clock_monotonic_ns();
    for (unsigned i = 0; i < PULL_STREAMS; i++)
        if (wants_plan(pull, &pull->locked.streams[i], now))
            return &pull->locked.streams[i];
    return NULL;
}

/* --- threads ---------------------------------------------------------------------------------- */

/* The streams take turns. */
static struct pull_group *prefetch_take_locked(struct pull *pull, struct pull_stream **ret_stream)
{
    check_held(&pull->locked.lock);
    for (unsigned i = 0; i < PULL_STREAMS; i++) {
        struct pull_stream *s =
            &pull->locked.streams[(pull->locked.next_stream + i) % PULL_STREAMS];
        struct pull_group *group = TAILQ_FIRST(&s->plan.groups);
        if (!group || !pull_take_locked(pull, group, false))
            continue;
        pull->locked.next_stream = (pull->locked.next_stream + i + 1) % PULL_STREAMS;
        *ret_stream = s;
        return group;
    }
    return NULL;
}

static void calm_locked(struct pull *pull, struct pull_stream *s, uint64_t ino)
{
    check_held(&pull->locked.lock);
    if (s->ino != ino)
        return;
    s->quiet_until = clock_monotonic_ns() + QUIET_NS;
    pull_unplan_locked(pull, &s->plan);
    s->planned = s->next;
}

/* Does one piece of work. False: there is none. */
static bool work_locked(struct pull *pull)
{
    check_held(&pull->locked.lock);
    struct pull_stream *s = NULL;
    struct warm_job *job = NULL;
    uint64_t not_promoted = 0;
    if (pull_promote_one_locked(pull, PROMOTE_WAIT_NS))
        return true;
    struct pull_group *group = prefetch_take_locked(pull, &s);
    if (!group)
        group = warm_take_locked(pull, &job);
    if (group) {
        uint64_t ino = s ? s->ino : 0, bytes = 0;
        for (uint32_t i = 0; i < group->count; i++)
            bytes += group->entries[i].stored_len;
        mutex_unlock(&pull->locked.lock);
        int r = pull_fetch_group(pull, group, job ? WARM_PROMOTE_WAIT_NS : PROMOTE_WAIT_NS,
                                 &not_promoted);
        mutex_lock(&pull->locked.lock);
        if (job)
            warm_group_done_locked(pull, job, bytes, r, not_promoted);
        else if (r < 0)
            calm_locked(pull, s, ino);
        return true;
    }
    s = stream_to_plan_locked(pull);
    if (s)
        plan_span_locked(pull, s);
    return s != NULL;
}

void *prefetch_main(void *arg)
{
    struct pull *pull = arg;
    LOCK_SCOPE(&pull->locked.lock);
    while (!pull->locked.stopping) {
        if (work_locked(pull))
            continue;
        pull_trim_locked(pull);
        (void)mutex_wait(&pull->locked.lock, &pull->changed, IDLE_MS);
    }
    return NULL;
}
