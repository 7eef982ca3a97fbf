// SPDX-License-Identifier: Apache-2.0
#include "store/reader.h"

#include <stdio.h>

#include "remote/bases.h"
#include "remote/chunks.h"
#include "remote/life.h"
#include "store/internal.h"
#include "view/remote.h"

#define GROUP_BYTES (8u * 1024 * 1024) /* most that is read at once */
#define GROUP_GAP (128u * 1024)        /* that is read for nothing rather than by another read */
#define GROUP_PARTS 1024u

struct part {
    uint64_t offset, length; /* in the file */
    uint32_t within;         /* where in the chunk, or in `bytes` of the group */
    struct chunk_entry entry;
};

struct reader_group {
    bool is_remote;    /* from the remote */
    uint64_t pack;     /* 0: `bytes` */
    uint64_t from, to; /* of the pack */
    uint8_t *bytes;
    size_t count;
    struct part parts[];
};

/* --- opening ---------------------------------------------------------------------------------- */

int reader_open(const struct store_options *options, struct store **ret, char **ret_text)
{
    return options->remote.name ? store_open_remote(options, ret, ret_text)
                                : store_open_medium(options, false, ret, ret_text);
}

void reader_close(struct store *store)
{
    if (store)
        store_discard(store);
}

void reader_interrupt(struct store *store)
{
    struct tier *tier = store->remote ? remote_tier(store->remote) : NULL;
    if (tier && tier->ops->interrupt)
        tier->ops->interrupt(tier);
}

const char *reader_shown_instead(const struct store *store)
{
    return store->remote ? remote_shown_instead(store->remote) : NULL;
}

char *reader_left_stage(const struct store *store)
{
    struct session session;
    if (session_read(store->path, store->sb.store, &session) < 0 || !session.exists)
        return NULL;
    char *dir = session.dir;
    if (!session.is_of_other_boot && stage_is_left(dir, session.name))
        return dir;
    free(dir);
    return NULL;
}

/* --- groups ----------------------------------------------------------------------------------- */

struct plan {
    struct store *store;
    struct reader_group *group; /* being filled; NULL: none */
    int (*fn)(struct reader_group *group, void *arg);
    void *arg;
};

void reader_group_free(struct reader_group *group)
{
    if (group)
        free(group->bytes);
    free(group);
}

static int give_group(struct plan *plan)
{
    struct reader_group *group = plan->group;
    plan->group = NULL;
    return group ? plan->fn(group, plan->arg) : 0;
}

static struct reader_group *group_new(size_t parts)
{
    check(parts > 0);
    return xcalloc(1, sizeof(struct reader_group) + parts * sizeof(struct part));
}

static int plan_inline(struct plan *plan, const struct view_extent *extent)
{
    int r = give_group(plan);
    if (r < 0)
        return r;
    plan->group = group_new(1);
    plan->group->bytes = xmalloc(extent->extent.length);
    memcpy(plan->group->bytes, extent->bytes, extent->extent.length);
    plan->group->parts[plan->group->count++] =
        (struct part){.offset = extent->extent.offset, .length = extent->extent.length};
    return give_group(plan);
}

/* Its place on NVMe, else in the remote. */
static int reader_find_place(struct store *store, const struct chunk_name *name,
                             struct chunk_entry *ret, bool *ret_is_remote)
{
    uint64_t refs;
    bool published;
    int r = view_chunk(store->view, name, ret, &refs);
    *ret_is_remote = r == 0 && ret->pack == 0;
    if (*ret_is_remote)
        r = store->remote ? view_remote_chunk(store->view, name, ret, &published) : -ENOENT;
    if (r == 0 &&
        (ret->raw_len == 0 || ret->raw_len > CHUNK_SIZE_MAX || ret->stored_len > CHUNK_SIZE_MAX))
        r = -EUCLEAN;
    return r;
}

/* Does the chunk lie within the group's range, or go on from it? */
static bool group_takes(const struct reader_group *group, const struct chunk_entry *entry,
                        bool is_remote)
{
    uint64_t end = entry->offset + entry->stored_len;
    if (!group || group->pack != entry->pack || group->is_remote != is_remote ||
        group->count == GROUP_PARTS || entry->offset < group->from)
        return false;
    return end <= group->to ||
           (entry->offset <= group->to + GROUP_GAP && end - group->from <= GROUP_BYTES);
}

static int plan_chunk(struct plan *plan, const struct extent *extent)
{
    struct chunk_entry entry;
    bool is_remote;
    int r = reader_find_place(plan->store, &extent->chunk, &entry, &is_remote);
    if (r < 0)
        return r;
    if (!group_takes(plan->group, &entry, is_remote)) {
        r = give_group(plan);
        if (r < 0)
            return r;
        plan->group = group_new(GROUP_PARTS);
        plan->group->is_remote = is_remote;
        plan->group->pack = entry.pack;
        plan->group->from = plan->group->to = entry.offset;
    }
    struct reader_group *group = plan->group;
    group->to = max_u64(group->to, entry.offset + entry.stored_len);
    group->parts[group->count++] = (struct part){.offset = extent->offset,
                                                 .length = extent->length,
                                                 .within = extent->chunk_offset,
                                                 .entry = entry};
    return 0;
}

static int plan_extent(const struct view_extent *extent, void *arg)
{
    if (extent->extent.kind == EXTENT_INLINE)
        return plan_inline(arg, extent);
    return extent->extent.kind == EXTENT_CHUNK ? plan_chunk(arg, &extent->extent) : 0;
}

int reader_plan(struct store *store, uint64_t ino, int (*fn)(struct reader_group *group, void *arg),
                void *arg)
{
    struct plan plan = {.store = store, .fn = fn, .arg = arg};
    int r = view_extents(store->view, ino, 0, 0, INT64_MAX, plan_extent, &plan);
    if (r == 0)
        r = give_group(&plan);
    reader_group_free(plan.group);
    return r;
}

/* --- reading ---------------------------------------------------------------------------------- */

struct fetching {
    struct store *store;
    const struct reader_group *group;
    const uint8_t *stored;
    uint8_t *raw;
    int (*fn)(uint64_t offset, const void *bytes, size_t length, void *arg);
    void *arg;
};

static int give_read_part(const struct fetching *f, const struct bases *bases,
                          const struct part *part)
{
    const struct chunk_entry *e = &part->entry;
    struct base_loss loss;
    if (part->within > e->raw_len || part->length > e->raw_len - part->within)
        return -EUCLEAN;
    uint32_t len;
    int r = !f->group->is_remote && e->ref_count > 0
                ? local_read_chunk(f->store, &e->name, f->raw, &len)
                : bases_decode(bases, e, f->stored + (e->offset - f->group->from), f->raw, &loss);
    if (r == -ENOLINK && f->group->is_remote)
        bases_note_loss(&loss);
    return r < 0 ? r : f->fn(part->offset, f->raw + part->within, part->length, f->arg);
}

static int give_read_parts(const struct fetching *f)
{
    size_t count = f->group->count;
    struct chunk_entry *entries = xcalloc(count, sizeof *entries);
    int r = 0;
    for (size_t i = 0; i < count; i++)
        entries[i] = f->group->parts[i].entry;
    for (size_t i = 0, n; i < count && r == 0; i += n) {
        struct bases bases;
        n = bases_gather(&bases, f->store, entries + i, f->group->is_remote ? count - i : 0);
        n = f->group->is_remote ? n : count;
        for (size_t k = i; k < i + n && r == 0; k++)
            r = give_read_part(f, &bases, &f->group->parts[k]);
        bases_release(&bases);
    }
    free(entries);
    return r;
}

int reader_fetch(struct store *store, const struct reader_group *group,
                 int (*fn)(uint64_t offset, const void *bytes, size_t length, void *arg), void *arg)
{
    char object[32];
    struct tier *tier = group->is_remote ? remote_tier(store->remote) : store->tier;
    uint64_t length = group->to - group->from;
    int r = 0;
    if (group->pack == 0)
        return fn(group->parts[0].offset, group->bytes, group->parts[0].length, arg);
    if (length > GROUP_BYTES)
        return -EUCLEAN;
    uint8_t *stored = thread_buffer(THREAD_BUFFER_REPLY, GROUP_BYTES);
    pack_object_name(group->pack, object);
    r = tier->ops->get_range(tier, object, group->from, stored, length);
    struct fetching fetching = {.store = store,
                                .group = group,
                                .stored = stored,
                                .raw = thread_buffer(THREAD_BUFFER_FETCH, CHUNK_SIZE_MAX),
                                .fn = fn,
                                .arg = arg};
    return r < 0 ? r : give_read_parts(&fetching);
}
