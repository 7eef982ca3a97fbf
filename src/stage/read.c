// SPDX-License-Identifier: Apache-2.0
/* Reads the layers of a file: for a reader from the draft down, for writeback the pinned one
 * only. */
#include "stage/internal.h"

struct resolver {
    struct stage *stage;
    struct stage_part *parts;
    size_t count, max;
};

static bool emit_part(struct resolver *r, struct stage_part part)
{
    if (r->count == r->max)
        return false;
    if (part.kind == PART_MEMORY)
        r->stage->locked.slabs[part.slab].pins++;
    r->parts[r->count++] = part;
    return true;
}

/* The part of `range` within [offset, end). */
static struct stage_part part_within_range(const struct stage *stage, const struct range *range,
                                           uint64_t offset, uint64_t end)
{
    uint64_t skip = offset - range->offset;
    struct stage_part part = {.offset = offset,
                              .length = min_u64(end, range->offset + range->length) - offset,
                              .starts_write = range->starts_write && skip == 0};
    if (range->kind == RANGE_MEMORY) {
        part.kind = PART_MEMORY;
        part.slab = range->slab;
        part.memory = slab_at(stage, range->slab) + range->slab_offset + skip;
    } else if (range->kind == RANGE_CHUNK) {
        part.kind = PART_CHUNK;
        part.name = range->name;
        part.chunk_offset = range->chunk_offset + (uint32_t)skip;
    } else {
        part.kind = PART_HOLE;
    }
    return part;
}

/* Emits [offset, end) as seen through the layers from `layers` down; false if there is no room for
 * more parts. */
static bool resolve_locked(struct resolver *r, struct layer *const *layers, size_t depth,
                           uint64_t offset, uint64_t end)
{
    check_rank_held(LOCK_STAGE);
    while (depth < LAYER_STATES && !layers[depth])
        depth++;
    if (depth == LAYER_STATES)
        return emit_part(
            r, (struct stage_part){.kind = PART_BELOW, .offset = offset, .length = end - offset});
    const struct layer *layer = layers[depth];
    struct range *range = layer_first_locked(layer, offset);
    while (offset < end) {
        if (range && range->offset <= offset) {
            struct stage_part part = part_within_range(r->stage, range, offset, end);
            part.is_clean = layer->state == LAYER_CLEAN;
            if (!emit_part(r, part))
                return false;
            offset += part.length;
            range = layer_next_locked(range);
            continue;
        }
        uint64_t gap_end = range ? min_u64(range->offset, end) : end;
        uint64_t below_end = min_u64(gap_end, layer->keep);
        if (offset < below_end) {
            if (!resolve_locked(r, layers, depth + 1, offset, below_end))
                return false;
            offset = below_end;
        } else {
            if (!emit_part(r, (struct stage_part){
                                  .kind = PART_HOLE, .offset = offset, .length = gap_end - offset}))
                return false;
            offset = gap_end;
        }
    }
    return true;
}

size_t stage_resolve(struct stage *stage, const struct stage_range *range, struct stage_part *parts,
                     size_t max, struct stage_file_state *ret_state)
{
    static struct layer *const nothing[LAYER_STATES];
    LOCK_SCOPE(&stage->locked.lock);
    struct stage_file *file = file_get_locked(stage, range->ino, false);
    struct resolver r = {.stage = stage, .parts = parts, .max = max};
    (void)resolve_locked(&r, file ? file->layers : nothing, 0, range->offset,
                         range->offset + range->length);
    *ret_state = file_state_locked(file);
    return r.count;
}

size_t stage_read(struct stage *stage, uint64_t ino, uint64_t offset, uint64_t length,
                  struct stage_part *parts, size_t max)
{
    const struct stage_range range = {ino, offset, length};
    struct stage_file_state state;
    return stage_resolve(stage, &range, parts, max, &state);
}

void stage_unpin_parts(struct stage *stage, const struct stage_part *parts, size_t count)
{
    bool pinned = false;
    for (size_t i = 0; i < count && !pinned; i++)
        pinned = parts[i].kind == PART_MEMORY;
    if (!pinned)
        return;
    mutex_lock(&stage->locked.lock);
    for (size_t i = 0; i < count; i++) {
        if (parts[i].kind != PART_MEMORY)
            continue;
        check(stage->locked.slabs[parts[i].slab].pins > 0);
        stage->locked.slabs[parts[i].slab].pins--;
        slab_settle_locked(stage, parts[i].slab);
    }
    bool wanted = stage->locked.room_wanted;
    mutex_unlock(&stage->locked.lock);
    if (wanted)
        room_changed(stage);
}

size_t stage_layer_parts(struct stage *stage, const struct layer *layer, uint64_t offset,
                         struct stage_part *parts, size_t max)
{
    LOCK_SCOPE(&stage->locked.lock);
    size_t count = 0;
    for (struct range *range = layer_first_locked(layer, offset); range && count < max;
         range = layer_next_locked(range)) {
        uint64_t from = max_u64(range->offset, offset);
        parts[count++] = part_within_range(stage, range, from, UINT64_MAX);
    }
    return count;
}
