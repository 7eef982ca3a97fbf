// SPDX-License-Identifier: Apache-2.0
#include "store/reader.h"

#include "dense/bases.h"
#include "remote/chunks.h"
#include "remote/life.h"
#include "store/internal.h"
#include "view/remote.h"

#define GROUP_BYTES (8u * 1024 * 1024) /* most that is read at once */
/* of unneeded bytes that are read rather than using another read */
#define GROUP_GAP (128u * 1024)
#define GROUP_PARTS 1024u

struct part {
    uint64_t offset, length; /* in the file */
    uint32_t within;         /* where in the chunk, or in `bytes` of the group */
    struct chunk_entry entry;
};

struct reader_group {
    bool is_remote;    /* from the remote */
    uint64_t pack;     /* 0: the content is in `bytes` */
    uint64_t from, to; /* of the pack */
    uint8_t *bytes;
    size_t count;
    struct part parts[];
};

/* --- opening ---------------------------------------------------------------------------------- */

int reader_open(const struct store_options *options, struct store **ret, char **ret_text)
{
    if (options->remote.name)
        return store_open_remote(options, ret, ret_text);
    return head_choice_is_made(&options->remote.at)
               ? store_open_snapshot(options, ret, ret_text)
               : store_open_medium(options, false, ret, ret_text);
}

void reader_close(struct store *store)
{
    if (store)
        store_discard(store);
}

uint64_t reader_shown_head(const struct store *store)
{
    return store->own->shown ? store->own->shown : view_remote(store->local.view).head;
}

const char *reader_shown_instead(const struct store *store)
{
    return store->remote ? remote_shown_instead(store->remote) : NULL;
}

char *reader_left_stage(const struct store *store)
{
    struct session session;
    if (session_read(store->local.path, store->local.sb.store, &session) < 0 || !session.exists)
        return NULL;
    char *dir = session.dir;
    if (!session.is_of_other_boot && stage_is_left(dir, session.name))
        return dir;
    free(dir);
    return NULL;
}

/* --- losses ----------------------------------------------------------------------------------- */

static const char *describe_lost_object(int error)
{
    return error == -ENOENT || error == -ENODATA ? "missing"
           : error == -EPROTONOSUPPORT           ? "of a newer version of CairnFS"
                                                 : "damaged";
}

char *reader_describe_loss(const struct reader_loss *loss)
{
    const char *where = loss->is_remote ? "" : "NVMe: ";
    const char *how = describe_lost_object(loss->error);
    if (loss->pack == 0 && loss->has_no_remote)
        return xstrdup("its bytes are in the remote alone: copy it from there");
    if (loss->pack == 0)
        return xstrdup(
            loss->is_through_base
                ? "a chunk that it is stored by is nowhere any more"
                : "the remote does not have its bytes: they were damaged or lost before");
    return xasprintf("%spacks/%016llx is %s%s", where, (unsigned long long)loss->pack, how,
                     loss->is_through_base ? ", which has chunks that it is stored by" : "");
}

/* --- groups ----------------------------------------------------------------------------------- */

struct plan {
    struct store *store;
    struct reader_group *group; /* being filled; NULL: none */
    const struct reader_calls *calls;
    int (*fn)(struct reader_group *group, void *arg);
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
    return group ? plan->fn(group, plan->calls->arg) : 0;
}

static struct reader_group *group_new(size_t parts)
{
    check(parts > 0);
    return xcalloc(1, sizeof(struct reader_group) + parts * sizeof(struct part));
}

static void plan_done(struct plan *plan)
{
    reader_group_free(plan->group);
}

static int plan_inline(struct plan *plan, const struct view_extent *extent)
{
    TRY(give_group(plan));
    plan->group = group_new(1);
    plan->group->bytes = xmalloc(extent->extent.length);
    memcpy(plan->group->bytes, extent->bytes, extent->extent.length);
    plan->group->parts[plan->group->count++] =
        (struct part){.offset = extent->extent.offset, .length = extent->extent.length};
    return give_group(plan);
}

/* Returns its place on NVMe, else in the remote. */
static int find_place(struct store *store, const struct chunk_name *name, struct chunk_entry *ret,
                      bool *ret_is_remote)
{
    uint64_t refs;
    bool published;
    TRY(view_chunk(store->local.view, name, ret, &refs));
    *ret_is_remote = ret->pack == 0;
    if (*ret_is_remote && !store->remote)
        return -ENOENT;
    if (*ret_is_remote)
        TRY(view_remote_chunk(store->local.view, name, ret, &published));
    return reader_check_lengths(ret);
}

/* Returns whether the chunk lies within the group's range, or directly continues it. */
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

static int plan_place(struct plan *plan, const struct chunk_entry *entry, bool is_remote,
                      struct part part)
{
    if (!group_takes(plan->group, entry, is_remote)) {
        TRY(give_group(plan));
        plan->group = group_new(GROUP_PARTS);
        plan->group->is_remote = is_remote;
        plan->group->pack = entry->pack;
        plan->group->from = plan->group->to = entry->offset;
    }
    struct reader_group *group = plan->group;
    group->to = max_u64(group->to, entry->offset + entry->stored_len);
    group->parts[group->count++] = part;
    return 0;
}

/* The chunk has no place. */
static int plan_lost_chunk(struct plan *plan, const struct extent *extent, int error)
{
    struct reader_loss loss = {.offset = extent->offset,
                               .length = extent->length,
                               .chunk = extent->chunk,
                               .error = error,
                               .is_remote = true,
                               .has_no_remote = !plan->store->remote};
    return plan->calls->lost(&loss, plan->calls->arg);
}

static int plan_chunk(struct plan *plan, const struct extent *extent)
{
    struct chunk_entry entry;
    bool is_remote;
    int r = find_place(plan->store, &extent->chunk, &entry, &is_remote);
    if (reader_is_damage(r))
        return plan_lost_chunk(plan, extent, r);
    TRY(r);
    return plan_place(plan, &entry, is_remote,
                      (struct part){.offset = extent->offset,
                                    .length = extent->length,
                                    .within = extent->chunk_offset,
                                    .entry = entry});
}

static int plan_extent(const struct view_extent *extent, void *arg)
{
    if (extent->extent.kind == EXTENT_INLINE)
        return plan_inline(arg, extent);
    return extent->extent.kind == EXTENT_CHUNK ? plan_chunk(arg, &extent->extent) : 0;
}

int reader_plan(struct store *store, uint64_t ino, int (*fn)(struct reader_group *group, void *arg),
                const struct reader_calls *calls)
{
    _cleanup_(plan_done) struct plan plan = {.store = store, .fn = fn, .calls = calls};
    struct view_inode inode;
    TRY(view_inode(store->local.view, ino, &inode));
    if (inode.is_elsewhere)
        return -EREMOTE;
    TRY(view_extents(store->local.view, ino, 0, INT64_MAX, plan_extent, &plan));
    return give_group(&plan);
}

/* --- a pack ----------------------------------------------------------------------------------- */

int reader_plan_pack(struct store *store, const struct reader_entries *entries,
                     int (*fn)(struct reader_group *group, void *arg),
                     const struct reader_calls *calls)
{
    _cleanup_(plan_done) struct plan plan = {.store = store, .fn = fn, .calls = calls};
    for (size_t i = 0; i < entries->count; i++)
        TRY(plan_place(&plan, &entries->at[i], true,
                       (struct part){.offset = entries->at[i].offset,
                                     .length = entries->at[i].raw_len,
                                     .entry = entries->at[i]}));
    return give_group(&plan);
}

/* --- reading ---------------------------------------------------------------------------------- */

struct fetching {
    struct store *store;
    const struct reader_group *group;
    uint8_t *stored, *raw;
    bool is_whole; /* `stored` is all of the group; else each chunk is read into it by itself */
    const struct reader_calls *calls;
};

static bool part_is_lost(const struct reader_group *group, int error)
{
    return reader_is_damage(error) || (error == -EIO && !group->is_remote);
}

static int read_group_part(const struct fetching *f, uint64_t offset, void *buf, size_t length)
{
    struct store *store = f->store;
    uint64_t pack = f->group->pack;
    if (f->group->is_remote)
        return remote_read_twice(store->remote, pack, offset, buf, length);
    return pack_read_part(store->local.tier, pack, offset, buf, length);
}

/* If a base cannot be decoded because another one is missing, the other one is reported. */
static struct base_loss find_deepest_loss(struct store *store, const struct base_loss *base)
{
    struct base_loss loss = *base;
    for (unsigned i = 0; i < CHUNK_DEPTH_MAX && loss.error == -ENOLINK; i++) {
        struct chunk_entry place;
        struct bases bases;
        int r = view_remote_place(store->local.view, &loss.name, &place);
        if (r < 0)
            break;
        (void)bases_gather(&bases, store, &place, 1);
        bool is_lost = bases_find_loss(&bases, &place, &loss);
        bases_release(&bases);
        if (!is_lost)
            break;
    }
    return loss;
}

static int lose_part(const struct fetching *f, const struct part *part, int error,
                     const struct base_loss *base)
{
    struct reader_loss loss = {.offset = part->offset,
                               .length = part->length,
                               .chunk = part->entry.name,
                               .pack = part->entry.pack,
                               .error = error,
                               .is_remote = f->group->is_remote,
                               .is_through_base = error == -ENOLINK};
    if (error == -ENOLINK && f->group->is_remote) {
        struct chunk_entry place;
        const struct base_loss deepest = find_deepest_loss(f->store, base);
        int r = view_remote_place(f->store->local.view, &deepest.name, &place);
        loss.base = deepest.name;
        loss.error = deepest.error;
        loss.pack = r == 0 ? place.pack : 0;
    }
    return f->calls->lost(&loss, f->calls->arg);
}

/* A range that cannot be read as a whole is read chunk by chunk, so that one bad place costs one
 * chunk. */
static int read_part(const struct fetching *f, const struct bases *bases, const struct part *part,
                     struct base_loss *loss)
{
    const struct chunk_entry *e = &part->entry;
    const uint8_t *stored = f->stored + (f->is_whole ? e->offset - f->group->from : 0);
    uint32_t len;
    if (part->within > e->raw_len || part->length > e->raw_len - part->within)
        return -EUCLEAN;
    if (!f->group->is_remote && e->ref_count > 0)
        return packs_read_chunk(f->store->commit.packs, &e->name, f->raw, &len);
    if (!f->is_whole)
        TRY(read_group_part(f, e->offset, f->stored, e->stored_len));
    return bases_decode(bases, e, stored, f->raw, loss);
}

static int give_read_part(const struct fetching *f, const struct bases *bases,
                          const struct part *part)
{
    struct base_loss loss = {0};
    int r = read_part(f, bases, part, &loss);
    if (part_is_lost(f->group, r))
        return lose_part(f, part, r, &loss);
    TRY(r);
    return f->calls->give(part->offset, f->raw + part->within, part->length, f->calls->arg);
}

static int give_read_parts(const struct fetching *f)
{
    size_t count = f->group->count;
    _cleanup_free_ struct chunk_entry *entries = xcalloc(count, sizeof *entries);
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
    return r;
}

int reader_fetch(struct store *store, const struct reader_group *group,
                 const struct reader_calls *calls)
{
    uint64_t length = group->to - group->from;
    if (group->pack == 0)
        return calls->give(group->parts[0].offset, group->bytes, group->parts[0].length,
                           calls->arg);
    if (length > GROUP_BYTES)
        return -EUCLEAN;
    struct fetching f = {.store = store,
                         .group = group,
                         .stored = thread_buffer(THREAD_BUFFER_REPLY, GROUP_BYTES),
                         .raw = thread_buffer(THREAD_BUFFER_FETCH, CHUNK_SIZE_MAX),
                         .calls = calls};
    int r = read_group_part(&f, group->from, f.stored, length);
    f.is_whole = r == 0;
    if (r < 0 && !part_is_lost(group, r))
        return r;
    if (r != -ENOENT)
        return give_read_parts(&f);
    /* Nothing more is requested from a pack that is missing. */
    for (size_t i = 0; i < group->count; i++)
        TRY(lose_part(&f, &group->parts[i], r, NULL));
    return 0;
}
