// SPDX-License-Identifier: Apache-2.0
/* Writeback of drafts in pieces, and selection of drafts for the background threads. */
#include "base/cause.h"
#include "base/clock.h"
#include "stage/internal.h"

#define STUCK_NS 1000000000ll /* then it is retried */

/* Separate pieces of files each take a place in the tables, and a draft written in pieces keeps
 * them. So if drafts take more than half of the table, those with at least the average number of
 * ranges are sealed. Returns that number; 0: no draft is to be sealed. */
static uint32_t crowd_share_locked(const struct stage *stage)
{
    check_held(&stage->locked.lock);
    uint32_t drafts = 0, ranges = 0;
    const struct layer *draft;
    TAILQ_FOREACH(draft, &stage->locked.drafts, link)
    {
        drafts += !draft->file->orphan;
        ranges += draft->file->orphan ? 0 : draft->range_count;
    }
    return ranges > stage->ranges_max / 2 ? ranges / drafts : 0;
}

bool stage_is_crowded(struct stage *stage, uint64_t *ret_ino)
{
    LOCK_SCOPE(&stage->locked.lock);
    const struct layer *most = NULL;
    struct layer *draft;
    *ret_ino = 0;
    if (stage->locked.range_count + RANGES_PER_CHANGE <= stage->ranges_max)
        return crowd_share_locked(stage) > 0 ||
               stage->locked.orphan_ranges >= stage->ranges_max / 2;
    TAILQ_FOREACH(draft, &stage->locked.drafts, link)
    if (!draft->file->orphan && (!most || draft->range_count > most->range_count))
        most = draft;
    *ret_ino = most ? most->file->ino : 0;
    return true;
}

void stage_set_stuck(struct stage *stage, bool stuck)
{
    LOCK_SCOPE(&stage->locked.lock);
    bool by_orphans = stage->locked.orphan_ranges >= stage->ranges_max / 2;
    stage->locked.orphans_stuck_until = stuck && by_orphans ? clock_monotonic_ns() + STUCK_NS : 0;
}

bool stage_largest_draft(struct stage *stage, uint64_t min_bytes, uint64_t *ret_ino)
{
    LOCK_SCOPE(&stage->locked.lock);
    const struct layer *largest = NULL;
    struct layer *draft;
    TAILQ_FOREACH(draft, &stage->locked.drafts, link)
    if (draft->memory_bytes >= min_bytes &&
        (!largest || draft->memory_bytes > largest->memory_bytes))
        largest = draft;
    if (largest)
        *ret_ino = largest->file->ino;
    return largest != NULL;
}

/* The beginning of the first `min_bytes` of consecutive memory from `range` on; NULL: none. */
static struct range *first_long_stretch_locked(struct range *range, uint64_t min_bytes)
{
    check_rank_held(LOCK_STAGE);
    struct range *begin = NULL;
    uint64_t bytes = 0, end = 0;
    for (; range; range = layer_next_locked(range)) {
        if (range->kind != RANGE_MEMORY)
            continue;
        if (!begin || range->offset != end) {
            begin = range;
            bytes = 0;
        }
        bytes += range->length;
        end = range->offset + range->length;
        if (bytes >= min_bytes)
            return begin;
    }
    return NULL;
}

size_t stage_draft_stretch(struct stage *stage, const struct stage_stretch *stretch,
                           struct stage_part *parts, size_t max, bool *ret_more)
{
    LOCK_SCOPE(&stage->locked.lock);
    struct stage_file *file = file_get_locked(stage, stretch->ino, false);
    struct layer *draft = file ? file->layers[LAYER_DRAFT] : NULL;
    struct range *range =
        draft ? first_long_stretch_locked(layer_first_locked(draft, 0), stretch->min_bytes) : NULL;
    size_t count = 0;
    uint64_t bytes = 0, end = range ? range->offset : 0;
    for (; range && count < max && bytes < stretch->max_bytes; range = layer_next_locked(range)) {
        if (range->kind != RANGE_MEMORY || range->offset != end)
            break;
        parts[count++] =
            (struct stage_part){.kind = PART_MEMORY,
                                .offset = range->offset,
                                .length = range->length,
                                .slab = range->slab,
                                .memory = slab_at(stage, range->slab) + range->slab_offset,
                                .starts_write = range->starts_write};
        stage->locked.slabs[range->slab].pins++;
        end += range->length;
        bytes += range->length;
    }
    bool goes_on = range && range->kind == RANGE_MEMORY && range->offset == end;
    *ret_more = goes_on || (draft && end == draft->size);
    return count;
}

/* Replaces the part of `range` within the chunk by a reference, if its memory is still that of
 * `part`. False: the log is full. */
static bool exchange_locked(struct stage *stage, struct range *range, const struct stage_part *part,
                            const struct stage_chunk_range *chunk)
{
    check_held(&stage->locked.lock);
    uint64_t from = max_u64(max_u64(range->offset, part->offset), chunk->offset);
    uint64_t to = min_u64(min_u64(range->offset + range->length, part->offset + part->length),
                          chunk->offset + chunk->length);
    const uint8_t *memory =
        slab_at(stage, range->slab) + range->slab_offset + (from - range->offset);
    if (from >= to || range->slab != part->slab ||
        memory != (const uint8_t *)part->memory + (from - part->offset))
        return true;
    struct extent extent = {.offset = from,
                            .length = to - from,
                            .kind = EXTENT_CHUNK,
                            .chunk = chunk->name,
                            .chunk_offset = chunk->chunk_offset + (uint32_t)(from - chunk->offset)};
    struct layer *layer = range->layer;
    struct record rec = {.type = REC_PIECE,
                         .seq = ++stage->locked.seq,
                         .ino = layer->file->ino,
                         .version = layer->version,
                         .extents = &extent,
                         .extent_count = 1};
    if (log_append_own_locked(stage, &rec) < 0)
        return false;
    struct range piece = {.offset = from,
                          .length = to - from,
                          .kind = RANGE_CHUNK,
                          .starts_write = range->starts_write && from == range->offset,
                          .name = chunk->name,
                          .chunk_offset = extent.chunk_offset,
                          .pack = chunk->pack};
    layer_erase_locked(stage, layer, from, to - from, false);
    layer_put_locked(stage, layer, &piece);
    return true;
}

static bool exchange_in_layer_locked(struct stage *stage, struct layer *layer,
                                     const struct stage_part *part,
                                     const struct stage_chunk_range *chunk)
{
    check_held(&stage->locked.lock);
    uint64_t at = max_u64(part->offset, chunk->offset);
    uint64_t end = min_u64(part->offset + part->length, chunk->offset + chunk->length);
    struct range *range;
    while (at < end && (range = layer_first_locked(layer, at)) && range->offset < end) {
        uint64_t next = range->offset + range->length;
        if (range->kind == RANGE_MEMORY && !exchange_locked(stage, range, part, chunk))
            return false;
        at = next;
    }
    return true;
}

void stage_piece_done(struct stage *stage, uint64_t ino, const struct stage_part *parts,
                      size_t count, const struct stage_chunk_range *chunk)
{
    mutex_lock(&stage->locked.lock);
    struct stage_file *file = file_get_locked(stage, ino, false);
    for (size_t i = 0; file && i < count; i++) {
        if (parts[i].offset >= chunk->offset + chunk->length ||
            parts[i].offset + parts[i].length <= chunk->offset)
            continue;
        /* the draft may have been sealed meanwhile; a pinned layer stays as it is */
        for (size_t l = 0; l <= LAYER_SEALED; l++)
            if (file->layers[l] &&
                !exchange_in_layer_locked(stage, file->layers[l], &parts[i], chunk))
                break;
    }
    mutex_unlock(&stage->locked.lock);
    room_changed(stage);
}

bool stage_refers_to_remote(struct stage *stage)
{
    LOCK_SCOPE(&stage->locked.lock);
    return stage->locked.remote_ranges > 0;
}

bool stage_uses_pack(struct stage *stage, uint64_t pack)
{
    LOCK_SCOPE(&stage->locked.lock);
    struct pack_use *use = NULL;
    HASH_FIND(hh, stage->locked.packs, &pack, sizeof pack, use);
    return use != NULL;
}

size_t stage_ripe_drafts(struct stage *stage, const struct stage_ripeness *ripe, uint64_t *inos,
                         size_t max)
{
    LOCK_SCOPE(&stage->locked.lock);
    size_t count = 0;
    uint32_t share = crowd_share_locked(stage);
    struct layer *draft;
    TAILQ_FOREACH(draft, &stage->locked.drafts, link)
    {
        bool idle = ripe->now - draft->changed >= ripe->idle_ns;
        bool old =
            ripe->now - draft->opened >= ripe->age_ns && draft->memory_bytes <= ripe->small_bytes;
        if ((idle || old || (share && draft->range_count >= share)) && !draft->file->orphan &&
            count < max)
            inos[count++] = draft->file->ino;
    }
    return count;
}

size_t stage_drafts(struct stage *stage, uint64_t *inos, size_t max)
{
    LOCK_SCOPE(&stage->locked.lock);
    size_t count = 0;
    struct layer *draft;
    TAILQ_FOREACH(draft, &stage->locked.drafts, link)
    {
        if (draft->file->orphan)
            continue;
        if (count < max)
            inos[count] = draft->file->ino;
        count++;
    }
    return count;
}

uint64_t stage_next_seq(struct stage *stage)
{
    LOCK_SCOPE(&stage->locked.lock);
    return ++stage->locked.seq;
}

uint64_t stage_last_seq(struct stage *stage)
{
    LOCK_SCOPE(&stage->locked.lock);
    return stage->locked.seq;
}

void stage_on_room(struct stage *stage, void (*room)(void *arg), void *arg)
{
    stage->on_room_arg = arg;
    stage->on_room = room;
}

uint64_t stage_dirty_bytes(struct stage *stage)
{
    return atomic_load_explicit(&stage->dirty_bytes, memory_order_relaxed);
}

struct stage_usage stage_usage(struct stage *stage)
{
    LOCK_SCOPE(&stage->locked.lock);
    uint64_t drafts = 0;
    struct layer *draft;
    TAILQ_FOREACH(draft, &stage->locked.drafts, link)
    drafts++;
    uint64_t free_slabs = stage->locked.free_count;
    if (!stage->locked.grow_failed)
        free_slabs += stage->locked.unready_count + stage->locked.readying_count;
    return (struct stage_usage){
        .total_bytes = (uint64_t)stage->slab_count * SLAB_STRIDE,
        .dirty_bytes = stage_dirty_bytes(stage),
        .clean_bytes = (uint64_t)stage->locked.clean_count * SLAB_STRIDE,
        .free_bytes = free_slabs * SLAB_STRIDE,
        .draft_bytes = stage->locked.draft_bytes,
        .drafts = drafts,
        .ready_bytes = (uint64_t)stage->locked.free_count * SLAB_STRIDE,
        .control_bytes = stage->ctl_len,
        .heap_bytes_max = (uint64_t)stage->ranges_max * (sizeof(struct range) + 16) +
                          (uint64_t)stage->slab_count * sizeof(struct slab),
        .handles = stage->locked.handle_count,
        .dropped_bytes_total = stage->locked.dropped_bytes,
    };
}

/* --- handles ---------------------------------------------------------------------------------- */

int stage_handle_open(struct stage *stage, uint64_t ino, uint32_t flags, uint64_t *ret_handle)
{
    LOCK_SCOPE(&stage->locked.lock);
    uint32_t i = stage->locked.handle_free;
    if (i >= HANDLES_MAX) {
        cause_note("%u handles are open, which is the most that this mount takes; close some",
                   HANDLES_MAX);
        return -ENFILE;
    }
    struct handle_entry *entry = &stage->handles[i];
    stage->locked.handle_free = entry->next_free;
    stage->locked.handle_count++;
    entry->flags = flags;
    request_note_opening(i);
    atomic_thread_fence(memory_order_release);
    entry->ino = ino;
    *ret_handle = handle_number(stage->header, i);
    return 0;
}

bool stage_has_handle(const struct stage *stage, uint64_t handle)
{
    return handle_is_own(stage->header, handle);
}

/* NULL: a handle of another stage. */
static struct handle_entry *find_handle_locked(struct stage *stage, uint64_t handle)
{
    check_held(&stage->locked.lock);
    return handle_is_own(stage->header, handle) ? &stage->handles[(uint32_t)handle] : NULL;
}

static struct handle_entry *open_handle_locked(struct stage *stage, uint64_t handle)
{
    check_held(&stage->locked.lock);
    struct handle_entry *entry = find_handle_locked(stage, handle);
    check(entry && entry->ino != 0);
    return entry;
}

static uint32_t handle_flags(const struct handle_entry *entry)
{
    return entry->flags & HANDLE_LISTS ? 0 : entry->flags;
}

uint64_t stage_handle_close(struct stage *stage, uint64_t handle, uint32_t *ret_flags)
{
    LOCK_SCOPE(&stage->locked.lock);
    struct handle_entry *entry = open_handle_locked(stage, handle);
    uint64_t ino = entry->ino;
    *ret_flags = handle_flags(entry);
    request_note_closing((uint32_t)handle);
    *entry = (struct handle_entry){.next_free = stage->locked.handle_free};
    request_note_closed();
    check(stage->locked.handle_count > 0);
    stage->locked.handle_free = (uint32_t)handle;
    stage->locked.handle_count--;
    return ino;
}

uint64_t stage_handle_inode(struct stage *stage, uint64_t handle)
{
    LOCK_SCOPE(&stage->locked.lock);
    const struct handle_entry *entry = find_handle_locked(stage, handle);
    return entry ? entry->ino : 0;
}

bool stage_handle_flushed(struct stage *stage, uint64_t handle)
{
    LOCK_SCOPE(&stage->locked.lock);
    struct handle_entry *entry = open_handle_locked(stage, handle);
    bool is_first = !(entry->flags & HANDLE_FLUSHED);
    entry->flags |= HANDLE_FLUSHED;
    return is_first;
}

uint32_t stage_handle_flags(struct stage *stage, uint64_t handle)
{
    LOCK_SCOPE(&stage->locked.lock);
    const struct handle_entry *entry = find_handle_locked(stage, handle);
    return entry ? handle_flags(entry) : 0;
}

/* Writes both words with one store, so that a successor never finds only one of them. */
void stage_handle_set_listing_end(struct stage *stage, uint64_t handle, uint64_t seq)
{
    LOCK_SCOPE(&stage->locked.lock);
    struct handle_entry *entry = find_handle_locked(stage, handle);
    if (seq >> 62 || !entry || entry->ino == 0)
        return;
    uint64_t words = (seq >> 30) << 32 | HANDLE_LISTS | (seq & (HANDLE_LISTS - 1));
    _Static_assert(offsetof(struct handle_entry, flags) == 8 &&
                       offsetof(struct handle_entry, next_free) == 12,
                   "words of a handle");
    __atomic_store_n((uint64_t *)(void *)&entry->flags, words, __ATOMIC_RELAXED);
}

uint64_t stage_handle_listing_end(struct stage *stage, uint64_t handle)
{
    LOCK_SCOPE(&stage->locked.lock);
    const struct handle_entry *entry = find_handle_locked(stage, handle);
    return entry && entry->flags & HANDLE_LISTS
               ? (uint64_t)entry->next_free << 30 | (entry->flags & (HANDLE_LISTS - 1))
               : 0;
}

void stage_handle_lose(struct stage *stage, uint64_t handle)
{
    LOCK_SCOPE(&stage->locked.lock);
    open_handle_locked(stage, handle)->ino = STAGE_INODE_LOST;
}

bool stage_handle_next(struct stage *stage, uint64_t *cursor, uint64_t *ret_handle,
                       uint64_t *ret_ino, uint32_t *ret_flags)
{
    LOCK_SCOPE(&stage->locked.lock);
    for (; *cursor < HANDLES_MAX; ++*cursor) {
        const struct handle_entry *entry = &stage->handles[*cursor];
        if (entry->ino == 0)
            continue;
        *ret_handle = handle_number(stage->header, (uint32_t)(*cursor)++);
        *ret_ino = entry->ino;
        *ret_flags = handle_flags(entry);
        return true;
    }
    return false;
}
