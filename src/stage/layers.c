// SPDX-License-Identifier: Apache-2.0
/* Layers: the changes of a version or draft, as an ordered set of ranges that do not overlap. */
#include "base/clock.h"
#include "stage/internal.h"

static int range_compare(const struct range *a, const struct range *b)
{
    return a->offset < b->offset ? -1 : a->offset > b->offset;
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
RB_GENERATE_INTERNAL(range_tree, range, node, range_compare, static)
#pragma GCC diagnostic pop

static bool is_dirty(const struct layer *layer)
{
    return layer->state != LAYER_CLEAN;
}

static void use_pack_locked(struct stage *stage, uint64_t pack, int change)
{
    check_held(&stage->locked.lock);
    struct pack_use *use = NULL;
    HASH_FIND(hh, stage->locked.packs, &pack, sizeof pack, use);
    if (!use) {
        check(change > 0);
        use = xcalloc(1, sizeof *use);
        use->pack = pack;
        HASH_ADD(hh, stage->locked.packs, pack, sizeof use->pack, use);
    }
    use->ranges += (uint64_t)(int64_t)change;
    if (use->ranges == 0) {
        HASH_DEL(stage->locked.packs, use);
        free(use);
    }
}

/* Packs on NVMe and in the remote have unique ids. 0: a recovery did not find the pack. */
static void use_packs_locked(struct stage *stage, const struct range *range, int change)
{
    check_held(&stage->locked.lock);
    if (range->pack || !range->remote)
        use_pack_locked(stage, range->pack, change);
    if (range->remote) {
        use_pack_locked(stage, range->remote, change);
        stage->locked.remote_ranges += (uint64_t)(int64_t)change;
    }
}

/* Adds a range to the counts of its slab, its layer and the stage (-1: subtracts it). */
static void account_locked(struct stage *stage, struct range *range, int sign)
{
    check_held(&stage->locked.lock);
    struct layer *layer = range->layer;
    uint64_t bytes = sign > 0 ? range->length : (uint64_t) - (int64_t)range->length;
    if (range->kind == RANGE_CHUNK) {
        use_packs_locked(stage, range, sign);
        layer->chunk_bytes += bytes;
    }
    if (range->kind != RANGE_MEMORY)
        return;
    struct slab *slab = &stage->locked.slabs[range->slab];
    layer->memory_bytes += bytes;
    if (is_dirty(layer)) {
        atomic_fetch_add_explicit(&stage->dirty_bytes, bytes, memory_order_relaxed);
        slab->dirty_ranges += (uint32_t)sign;
    } else {
        slab->clean_ranges += (uint32_t)sign;
    }
    if (layer->state == LAYER_DRAFT)
        stage->locked.draft_bytes += bytes;
}

static void range_attach_locked(struct stage *stage, struct layer *layer, struct range *range)
{
    check_held(&stage->locked.lock);
    range->layer = layer;
    check(RB_INSERT(range_tree, &layer->ranges, range) == NULL);
    layer->range_count++;
    stage->locked.range_count++;
    stage->locked.orphan_ranges += layer->file->orphan && is_dirty(layer);
    if (range->kind == RANGE_MEMORY)
        TAILQ_INSERT_TAIL(&stage->locked.slabs[range->slab].ranges, range, in_slab);
    account_locked(stage, range, 1);
}

/* The caller settles the slab after it has attached the rest of the range again. */
static void range_detach_locked(struct stage *stage, struct range *range)
{
    check_held(&stage->locked.lock);
    struct layer *layer = range->layer;
    account_locked(stage, range, -1);
    RB_REMOVE(range_tree, &layer->ranges, range);
    layer->range_count--;
    stage->locked.range_count--;
    stage->locked.orphan_ranges -= layer->file->orphan && is_dirty(layer);
    if (range->kind == RANGE_MEMORY)
        TAILQ_REMOVE(&stage->locked.slabs[range->slab].ranges, range, in_slab);
}

/* Removes `skip` bytes from the front. */
static void range_advance(struct range *range, uint64_t skip)
{
    range->offset += skip;
    range->length -= skip;
    range->slab_offset += (uint32_t)skip;
    range->chunk_offset += (uint32_t)skip;
    range->starts_write = range->starts_write && skip == 0;
}

/* First range that ends after `offset`. */
struct range *layer_first_locked(const struct layer *layer, uint64_t offset)
{
    check_rank_held(LOCK_STAGE);
    struct range *found = NULL;
    struct range *at = RB_ROOT((struct range_tree *)(uintptr_t)&layer->ranges);
    while (at) {
        if (at->offset + at->length > offset) {
            found = at;
            at = RB_LEFT(at, node);
        } else {
            at = RB_RIGHT(at, node);
        }
    }
    return found;
}

struct range *layer_next_locked(struct range *range)
{
    check_rank_held(LOCK_STAGE);
    return RB_NEXT(range_tree, NULL, range);
}

static void count_dropped_locked(struct stage *stage, const struct range *range, uint64_t bytes,
                                 bool dropped)
{
    check_held(&stage->locked.lock);
    if (dropped && range->kind == RANGE_MEMORY && is_dirty(range->layer))
        stage->locked.dropped_bytes += bytes;
}

void layer_erase_locked(struct stage *stage, struct layer *layer, uint64_t offset, uint64_t length,
                        bool dropped)
{
    check_held(&stage->locked.lock);
    uint64_t end = length > UINT64_MAX - offset ? UINT64_MAX : offset + length;
    struct range *range = layer_first_locked(layer, offset);
    while (range && range->offset < end) {
        struct range *next = layer_next_locked(range);
        uint64_t range_end = range->offset + range->length;
        uint64_t from = max_u64(range->offset, offset), to = min_u64(range_end, end);
        count_dropped_locked(stage, range, to - from, dropped);
        struct range old = *range;
        range_detach_locked(stage, range);
        struct range *spare = range;
        if (old.offset < from) {
            *spare = old;
            spare->length = from - old.offset;
            range_attach_locked(stage, layer, spare);
            spare = NULL;
        }
        if (to < range_end) {
            if (!spare)
                spare = xmalloc(sizeof *spare);
            *spare = old;
            range_advance(spare, to - old.offset);
            range_attach_locked(stage, layer, spare);
            spare = NULL;
        }
        free(spare);
        if (old.kind == RANGE_MEMORY)
            slab_settle_locked(stage, old.slab);
        range = next;
    }
}

/* Is `what` the continuation of the same chunk? Then both become one range, e.g. if the chunk has
 * replaced many small writes. */
static bool goes_on(const struct range *before, const struct range *what)
{
    return before && before->kind == RANGE_CHUNK && what->kind == RANGE_CHUNK &&
           before->pack == what->pack && before->remote == what->remote &&
           before->offset + before->length == what->offset &&
           before->chunk_offset + before->length == what->chunk_offset &&
           memcmp(&before->name, &what->name, sizeof what->name) == 0;
}

void layer_put_locked(struct stage *stage, struct layer *layer, const struct range *what)
{
    check_held(&stage->locked.lock);
    layer_erase_locked(stage, layer, what->offset, what->length, true);
    struct range *before = what->offset > 0 ? layer_first_locked(layer, what->offset - 1) : NULL;
    if (goes_on(before, what)) {
        before->length += what->length;
        layer->chunk_bytes += what->length;
        return;
    }
    struct range *range = xmalloc(sizeof *range);
    *range = *what;
    range_attach_locked(stage, layer, range);
}

static void layer_link_locked(struct stage *stage, struct layer *layer)
{
    check_held(&stage->locked.lock);
    layer->file->layers[layer->state] = layer;
    if (layer->state == LAYER_DRAFT) {
        TAILQ_INSERT_TAIL(&stage->locked.drafts, layer, link);
        stage->locked.draft_count += !layer->file->orphan;
    }
    if (layer->state == LAYER_SEALED)
        TAILQ_INSERT_TAIL(&stage->locked.sealed, layer, link);
}

static void layer_unlink_locked(struct stage *stage, struct layer *layer)
{
    check_held(&stage->locked.lock);
    if (layer->state == LAYER_DRAFT) {
        TAILQ_REMOVE(&stage->locked.drafts, layer, link);
        stage->locked.draft_count -= !layer->file->orphan;
    }
    if (layer->state == LAYER_SEALED)
        TAILQ_REMOVE(&stage->locked.sealed, layer, link);
    layer->file->layers[layer->state] = NULL;
}

struct layer *layer_new_locked(struct stage *stage, struct stage_file *file, enum layer_state state)
{
    check_held(&stage->locked.lock);
    check(file->layers[state] == NULL);
    struct layer *layer = xcalloc(1, sizeof *layer);
    layer->file = file;
    layer->state = state;
    layer->keep = UINT64_MAX;
    layer->opened = layer->changed = clock_monotonic_ns();
    RB_INIT(&layer->ranges);
    layer_link_locked(stage, layer);
    return layer;
}

void layer_free_locked(struct stage *stage, struct layer *layer, bool dropped)
{
    check_held(&stage->locked.lock);
    if (!layer)
        return;
    layer_erase_locked(stage, layer, 0, UINT64_MAX, dropped);
    layer_unlink_locked(stage, layer);
    free(layer);
}

/* Frees only the memory of a layer. */
void layer_abandon(struct layer *layer)
{
    if (!layer)
        return;
    struct range *range, *next;
    RB_FOREACH_SAFE(range, range_tree, &layer->ranges, next)
    {
        RB_REMOVE(range_tree, &layer->ranges, range);
        free(range);
    }
    free(layer);
}

/* Moves a layer with its ranges to another state, and updates the counts. */
void layer_set_state_locked(struct stage *stage, struct layer *layer, enum layer_state state)
{
    check_held(&stage->locked.lock);
    check(layer->file->layers[state] == NULL);
    struct range *range;
    RB_FOREACH(range, range_tree, &layer->ranges)
    account_locked(stage, range, -1);
    stage->locked.orphan_ranges -= layer->file->orphan && is_dirty(layer) ? layer->range_count : 0;
    layer_unlink_locked(stage, layer);
    layer->state = state;
    layer_link_locked(stage, layer);
    stage->locked.orphan_ranges += layer->file->orphan && is_dirty(layer) ? layer->range_count : 0;
    RB_FOREACH(range, range_tree, &layer->ranges)
    account_locked(stage, range, 1);
    RB_FOREACH(range, range_tree, &layer->ranges)
    if (range->kind == RANGE_MEMORY)
        slab_settle_locked(stage, range->slab);
}

/* Merges `above` into `below`, which takes over its ranges; frees `above`. A clean layer takes over
 * only memory: the view has everything else by then. The cost is proportional to `above`. */
void layer_merge_locked(struct stage *stage, struct layer *below, struct layer *above)
{
    check_held(&stage->locked.lock);
    bool to_clean = below->state == LAYER_CLEAN;
    if (above->keep < UINT64_MAX)
        layer_erase_locked(stage, below, above->keep, UINT64_MAX, true);
    if (!to_clean) {
        below->keep = min_u64(below->keep, above->keep);
        below->size = above->size;
        below->mtime = above->mtime;
        below->changed = above->changed;
        below->version = above->version;
    }
    struct range *range, *next;
    RB_FOREACH_SAFE(range, range_tree, &above->ranges, next)
    {
        layer_erase_locked(stage, below, range->offset, range->length, true);
        if (to_clean && range->kind != RANGE_MEMORY)
            continue;
        range_detach_locked(stage, range);
        range_attach_locked(stage, below, range);
        if (range->kind == RANGE_MEMORY)
            slab_settle_locked(stage, range->slab);
    }
    layer_free_locked(stage, above, false);
}

struct stage_file *file_get_locked(struct stage *stage, uint64_t ino, bool create)
{
    check_held(&stage->locked.lock);
    struct stage_file *file = NULL;
    HASH_FIND(hh, stage->locked.files, &ino, sizeof ino, file);
    if (!file && create) {
        file = xcalloc(1, sizeof *file);
        file->ino = ino;
        HASH_ADD(hh, stage->locked.files, ino, sizeof file->ino, file);
    }
    return file;
}

/* Frees a file without layers. */
void file_settle_locked(struct stage *stage, struct stage_file *file)
{
    check_held(&stage->locked.lock);
    struct layer *clean = file->layers[LAYER_CLEAN];
    if (clean && clean->range_count == 0)
        layer_free_locked(stage, clean, false);
    /* an open file must stay marked as orphan: its later drafts are not to be sealed */
    if (file->orphan && !file->dead)
        return;
    for (size_t i = 0; i < LAYER_STATES; i++)
        if (file->layers[i])
            return;
    HASH_DEL(stage->locked.files, file);
    free(file);
}
