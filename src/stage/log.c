// SPDX-License-Identifier: Apache-2.0
/* The stage's log: records of everything but written bytes, in two halves of the control file. One
 * half is active; compaction fills the other from live state and then activates it with one atomic
 * store. */
#include "stage/internal.h"

#define COMPACT_AT_PERCENT 60u
#define SEAL_LEN_MAX 512u /* of an encoded SEAL with the name of its file */

static uint64_t tail_of(const struct stage *stage, uint32_t half)
{
    return atomic_load_explicit(&stage->header->log_tail[half], memory_order_acquire);
}

static uint32_t active_half(const struct stage *stage)
{
    return atomic_load_explicit(&stage->header->log_active, memory_order_acquire);
}

/* The record takes effect when the tail moves past it. */
static int append_to(struct stage *stage, uint32_t half, const struct record *rec)
{
    uint64_t tail = tail_of(stage, half);
    size_t len = record_encoded_len(rec);
    if (len > stage->header->log_half_len - tail)
        return -EAGAIN;
    record_encode(rec, stage->log[half] + tail);
    bool decides = request_begin_record(rec);
    atomic_store_explicit(&stage->header->log_tail[half], tail + len, memory_order_release);
    request_end(decides, 0);
    return 0;
}

uint64_t stage_log_room(struct stage *stage)
{
    return stage->header->log_half_len - tail_of(stage, active_half(stage));
}

int log_append_own_locked(struct stage *stage, const struct record *rec)
{
    check_held(&stage->locked.lock);
    if (stage_log_room(stage) < record_encoded_len(rec) + STAGE_LOG_MARGIN)
        return -EAGAIN;
    return append_to(stage, active_half(stage), rec);
}

int stage_log_append(struct stage *stage, const struct record *rec)
{
    LOCK_SCOPE(&stage->locked.lock);
    return append_to(stage, active_half(stage), rec);
}

int stage_log_append_group(struct stage *stage, const struct record *first,
                           const struct iovec *encoded, size_t count)
{
    LOCK_SCOPE(&stage->locked.lock);
    uint32_t half = active_half(stage);
    uint64_t tail = tail_of(stage, half), end = tail;
    for (size_t i = 0; i < count; i++) {
        if (encoded[i].iov_len > stage->header->log_half_len - end)
            return -EAGAIN;
        memcpy(stage->log[half] + end, encoded[i].iov_base, encoded[i].iov_len);
        end += encoded[i].iov_len;
    }
    /* the first record of a group determines its type */
    bool decides = request_begin_record(first);
    atomic_store_explicit(&stage->header->log_tail[half], end, memory_order_release);
    request_end(decides, 0);
    return 0;
}

/* Also requires that half of the space gained by the last compaction is used up: if most of the log
 * is live, more frequent compactions would gain little. */
bool stage_log_wants_compaction(struct stage *stage)
{
    uint64_t half_len = stage->header->log_half_len, tail = tail_of(stage, active_half(stage));
    uint64_t compacted = atomic_load_explicit(&stage->log_compacted, memory_order_relaxed);
    return tail > half_len / 100 * COMPACT_AT_PERCENT &&
           tail > compacted + (half_len - compacted) / 2;
}

/* Is there `room` besides the SEALs of all drafts and one more? */
static bool has_room_besides_seals_locked(struct stage *stage, uint64_t room)
{
    check_held(&stage->locked.lock);
    return stage_log_room(stage) > room + (stage->locked.draft_count + 1) * SEAL_LEN_MAX;
}

bool stage_log_is_crowded(struct stage *stage)
{
    LOCK_SCOPE(&stage->locked.lock);
    uint64_t half_len = stage->header->log_half_len;
    return atomic_load_explicit(&stage->log_compacted, memory_order_relaxed) > half_len / 2 ||
           !has_room_besides_seals_locked(stage, half_len / 8 * 3);
}

/* Leaves a quarter of the log for xattrs, which seals enter together with the SEAL. */
bool stage_log_takes_draft(struct stage *stage)
{
    LOCK_SCOPE(&stage->locked.lock);
    return has_room_besides_seals_locked(stage, stage->header->log_half_len / 4);
}

static struct record range_record(const struct layer *layer, const struct range *range,
                                  uint64_t seq, struct extent *extent)
{
    struct record rec = {.ino = layer->file->ino, .version = layer->version, .seq = seq};
    if (range->kind == RANGE_CHUNK) {
        *extent = (struct extent){.offset = range->offset,
                                  .length = range->length,
                                  .kind = EXTENT_CHUNK,
                                  .chunk = range->name,
                                  .chunk_offset = range->chunk_offset};
        rec.type = REC_PIECE;
        rec.extents = extent;
        rec.extent_count = 1;
        return rec;
    }
    rec.type = REC_RANGE;
    rec.offset = range->offset;
    rec.length = range->length;
    rec.slab = range->kind == RANGE_HOLE ? SLAB_NONE : range->slab;
    rec.slab_offset = range->slab_offset;
    rec.flags = range->starts_write ? RECORD_STARTS_WRITE : 0;
    return rec;
}

static int dump_layer_locked(struct stage *stage, uint32_t half, struct layer *layer)
{
    check_held(&stage->locked.lock);
    struct record head = {.type = REC_LAYER,
                          .flags = layer->state == LAYER_DRAFT ? 0 : RECORD_SEALED,
                          .seq = ++stage->locked.seq,
                          .ino = layer->file->ino,
                          .version = layer->version,
                          .keep = layer->keep,
                          .attrs = {.size = layer->size, .mtime = layer->mtime}};
    TRY(append_to(stage, half, &head));
    for (struct range *range = layer_first_locked(layer, 0); range;
         range = layer_next_locked(range)) {
        struct extent extent;
        struct record rec = range_record(layer, range, head.seq, &extent);
        TRY(append_to(stage, half, &rec));
    }
    return 0;
}

int log_enter_layer_locked(struct stage *stage, struct layer *layer, size_t reserve)
{
    check_held(&stage->locked.lock);
    uint32_t half = active_half(stage);
    uint64_t tail = tail_of(stage, half);
    int r = dump_layer_locked(stage, half, layer);
    if (r == 0 && stage_log_room(stage) < reserve)
        r = -EAGAIN;
    if (r < 0)
        atomic_store_explicit(&stage->header->log_tail[half], tail, memory_order_release);
    return r;
}

/* Enters every layer that a recovery must find. The marker in front (a layer of no inode) means
 * that earlier records in slabs count only if a range names them. */
static int dump_layers_locked(struct stage *stage, uint32_t half, bool with_orphans)
{
    check_held(&stage->locked.lock);
    struct record marker = {.type = REC_LAYER, .seq = ++stage->locked.seq};
    TRY(append_to(stage, half, &marker));
    struct stage_file *file, *next;
    HASH_ITER(hh, stage->locked.files, file, next)
    {
        if (file->orphan && !with_orphans)
            continue;
        for (size_t i = 0; i < LAYER_CLEAN; i++)
            if (file->layers[i])
                TRY(dump_layer_locked(stage, half, file->layers[i]));
    }
    return 0;
}

int stage_log_compact(struct stage *stage, const void *records, size_t len, bool with_orphans)
{
    LOCK_SCOPE(&stage->locked.lock);
    uint32_t half = 1 - active_half(stage);
    if (len > stage->header->log_half_len)
        return -EAGAIN;
    if (len)
        memcpy(stage->log[half], records, len);
    atomic_store_explicit(&stage->header->log_tail[half], len, memory_order_release);
    TRY(dump_layers_locked(stage, half, with_orphans));
    atomic_store_explicit(&stage->log_compacted, tail_of(stage, half), memory_order_relaxed);
    atomic_store_explicit(&stage->header->log_active, half, memory_order_release);
    return 0;
}

int stage_replay_log(struct stage *stage, int (*fn)(const struct record *rec, void *arg), void *arg)
{
    uint32_t half = active_half(stage);
    const uint8_t *at = stage->log[half];
    uint64_t tail = tail_of(stage, half);
    if (tail > stage->header->log_half_len)
        return -EUCLEAN;
    while (tail > 0) {
        struct record rec;
        size_t len;
        TRY(record_decode(at, tail, &rec, &len));
        if (!stage_may_have_seq(stage, rec.seq))
            return -EUCLEAN;
        TRY(fn(&rec, arg));
        at += len;
        tail -= len;
    }
    return 0;
}
