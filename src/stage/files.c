// SPDX-License-Identifier: Apache-2.0
/* Operations on the layers of files: write, erase, seal, pin, drop. */
#include "base/cause.h"
#include "base/clock.h"
#include "stage/internal.h"

/* Returns the draft of a file, and opens it if there is none. The log gets no record of that: the
 * first write or erasing implies it. */
static struct layer *draft_locked(struct stage *stage, uint64_t ino, uint64_t below_size,
                                  uint64_t version)
{
    check_held(&stage->locked.lock);
    struct stage_file *file = file_get_locked(stage, ino, true);
    struct layer *draft = file->layers[LAYER_DRAFT];
    if (!draft) {
        draft = layer_new_locked(stage, file, LAYER_DRAFT);
        draft->version = version + 1;
        draft->keep = draft->size = below_size;
    }
    return draft;
}

static bool has_draft_locked(struct stage *stage, uint64_t ino)
{
    check_held(&stage->locked.lock);
    const struct stage_file *file = file_get_locked(stage, ino, false);
    return file && file->layers[LAYER_DRAFT];
}

void stage_open_draft(struct stage *stage, uint64_t ino)
{
    LOCK_SCOPE(&stage->locked.lock);
    (void)draft_locked(stage, ino, 0, 0);
}

/* Logs a change. If the log has no room, a draft that was opened for the change is removed
 * again. */
static int log_change_locked(struct stage *stage, struct layer *draft, bool had_draft,
                             const struct record *rec)
{
    check_held(&stage->locked.lock);
    int r = log_append_own_locked(stage, rec);
    if (r < 0 && !had_draft) {
        struct stage_file *file = draft->file;
        layer_free_locked(stage, draft, false);
        file_settle_locked(stage, file);
    }
    return r;
}

static void note_change_locked(struct stage *stage, struct layer *draft, uint64_t offset,
                               uint64_t length)
{
    check_held(&stage->locked.lock);
    struct stage_scattered *gathering = &stage->locked.gathering;
    bool is_before = length <= UINT64_MAX - offset && offset + length <= gathering->offset;
    if (draft->file->ino == gathering->ino && !is_before &&
        offset < gathering->offset + gathering->length)
        gathering->length = 0;
    draft->changed = clock_monotonic_ns();
}

/* Makes room for new ranges, whose number the memory formula bounds: evicts durable ranges before a
 * writer has to wait. */
static bool ranges_have_room_locked(struct stage *stage)
{
    check_held(&stage->locked.lock);
    while (stage->locked.range_count + RANGES_PER_CHANGE > stage->ranges_max)
        if (!slab_evict_locked(stage))
            return false;
    return true;
}

/* Files without a name, whose ranges no seal frees, must leave room in the tables for others. A
 * write to one waits until some of them were written in pieces or gathered, and fails if that frees
 * nothing. */
static int check_nameless_locked(struct stage *stage, uint64_t ino)
{
    check_held(&stage->locked.lock);
    if (stage->locked.orphan_ranges < stage->ranges_max / 2) {
        stage->locked.orphans_stuck_until = 0;
        return 0;
    }
    struct stage_file *file = file_get_locked(stage, ino, false);
    if (!file || !file->orphan)
        return 0;
    stage->locked.refused = true;
    if (clock_monotonic_ns() >= stage->locked.orphans_stuck_until)
        return -EAGAIN;
    cause_note("files without a name have filled the tables of the stage; close those that were "
               "deleted, link those that were made so, or mount with a larger stage=SIZE");
    return -ENOSPC;
}

static struct slab_record record_of(const struct stage_write *w, uint64_t version,
                                    uint32_t generation, uint64_t seq, const struct range *range)
{
    return (struct slab_record){.generation = generation,
                                .flags = range->starts_write ? SLAB_RECORD_STARTS_WRITE : 0,
                                .seq = seq,
                                .ino = w->ino,
                                .version = version,
                                .offset = w->offset,
                                .length = w->length,
                                .payload = range->slab_offset,
                                .time = w->time};
}

/* From now on a recovery reads the slab. */
static void publish_new_locked(struct stage *stage, uint32_t slab, uint32_t generation,
                               enum slab_shared_state state)
{
    check_held(&stage->locked.lock);
    atomic_store_explicit(&stage->slab_table[slab].generation, generation, memory_order_release);
    slab_publish_locked(stage, slab, state);
}

static uint32_t next_generation(struct stage *stage, uint32_t slab)
{
    return atomic_load_explicit(&stage->slab_table[slab].generation, memory_order_relaxed) + 1;
}

static uint32_t shared_need(uint32_t length)
{
    return (uint32_t)(sizeof(struct slab_record) + align_up(length, SLAB_RECORD_ALIGN));
}

static bool shared_fits_locked(const struct stage *stage, uint32_t need)
{
    check_held(&stage->locked.lock);
    uint32_t slab = stage->locked.shared;
    return slab != SLAB_NONE && stage->locked.slabs[slab].fill + need <= SLAB_STRIDE;
}

/* Ensures room for `need` bytes in the shared slab. May drop the lock while it takes a new one. */
static bool ensure_shared_locked(struct stage *stage, uint32_t need)
{
    check_held(&stage->locked.lock);
    while (!shared_fits_locked(stage, need)) {
        if (!slabs_bear_write_locked(stage, false))
            return false;
        uint32_t slab = slab_take_locked(stage);
        if (slab == SLAB_NONE)
            return false;
        uint32_t before = stage->locked.shared;
        stage->locked.shared = slab;
        stage->locked.slabs[slab].fill = 0;
        publish_new_locked(stage, slab, next_generation(stage, slab), SLAB_SHARED_USED);
        if (before != SLAB_NONE)
            slab_settle_locked(stage, before);
    }
    return true;
}

/* Copies a small payload into the shared slab, after its record. */
static void copy_payload_locked(struct stage *stage, const struct stage_write *w, uint64_t version,
                                struct range *range)
{
    check_held(&stage->locked.lock);
    uint32_t slab = stage->locked.shared;
    uint32_t at = stage->locked.slabs[slab].fill;
    range->slab = slab;
    range->slab_offset = at + (uint32_t)sizeof(struct slab_record);
    memcpy(slab_at(stage, slab) + range->slab_offset, w->data, w->length);
    struct slab_record rec =
        record_of(w, version, next_generation(stage, slab) - 1, ++stage->locked.seq, range);
    slab_record_write(stage, slab, at, &rec);
    slab_fill_locked(stage, slab, at + shared_need(w->length));
}

static uint64_t *find_write_end(struct stage_file *file, uint64_t end)
{
    for (size_t i = 0; i < WRITES_AT_ONCE; i++)
        if (file->write_ends[i] == end)
            return &file->write_ends[i];
    return NULL;
}

/* The kernel splits an application's write into requests of SLAB_PAYLOAD, up to a page less if its
 * buffer is not aligned: a request that directly follows a full one belongs to the same write.
 * Requests of several threads may interleave. */
static bool begins_write(struct stage_file *file, const struct stage_write *w)
{
    uint64_t full_end = w->length > SLAB_PAYLOAD - 4096 ? w->offset + w->length : 0;
    uint64_t *place = w->offset ? find_write_end(file, w->offset) : NULL;
    bool begins = !place;
    if (begins && full_end)
        place = find_write_end(file, 0);
    if (begins && full_end && !place)
        place = &file->write_ends[file->replaced++ % WRITES_AT_ONCE];
    if (place)
        *place = full_end;
    return begins;
}

/* Adds the payload to the draft; from now on a recovery reads it. */
void draft_put_locked(struct stage *stage, struct layer *draft, const struct stage_write *w,
                      bool starts_write)
{
    check_held(&stage->locked.lock);
    struct range range = {.offset = w->offset,
                          .length = w->length,
                          .kind = RANGE_MEMORY,
                          .starts_write = starts_write,
                          .slab = w->slab,
                          .slab_offset = SLAB_PAYLOAD_OFFSET};
    bool decides = request_begin_write(stage->locked.seq + 1, w->ino, w->length);
    if (w->slab != SLAB_NONE) {
        uint32_t generation = next_generation(stage, w->slab);
        struct slab_record rec =
            record_of(w, draft->version, generation, ++stage->locked.seq, &range);
        slab_record_write(stage, w->slab, 0, &rec);
        publish_new_locked(stage, w->slab, generation, SLAB_SHARED_RECEIVED);
    } else {
        copy_payload_locked(stage, w, draft->version, &range);
    }
    request_end(decides, 0);
    layer_put_locked(stage, draft, &range);
}

static int ensure_write_room_locked(struct stage *stage, const struct stage_write *w)
{
    check_held(&stage->locked.lock);
    TRY(check_nameless_locked(stage, w->ino));
    bool has_room = ranges_have_room_locked(stage) &&
                    slabs_bear_write_locked(stage, w->slab != SLAB_NONE) &&
                    (w->slab != SLAB_NONE || ensure_shared_locked(stage, shared_need(w->length)));
    if (!has_room)
        stage->locked.refused = true;
    return has_room ? 0 : -EAGAIN;
}

static void write_locked(struct stage *stage, struct layer *draft, const struct stage_write *w)
{
    check_held(&stage->locked.lock);
    draft_put_locked(stage, draft, w, begins_write(draft->file, w));
    draft->size = max_u64(draft->size, w->offset + w->length);
    draft->mtime = w->time;
    note_change_locked(stage, draft, w->offset, w->length);
    stage->locked.last_write = draft->changed;
}

int stage_write(struct stage *stage, const struct stage_write *w)
{
    check(w->length > 0 && w->length <= SLAB_PAYLOAD);
    LOCK_SCOPE(&stage->locked.lock);
    TRY(ensure_write_room_locked(stage, w));
    write_locked(stage, draft_locked(stage, w->ino, w->below_size, w->version), w);
    return 0;
}

int stage_write_draft(struct stage *stage, const struct stage_write *w, bool *ret_has_draft)
{
    check(w->length > 0 && w->length <= SLAB_PAYLOAD);
    *ret_has_draft = false;
    LOCK_SCOPE(&stage->locked.lock);
    TRY(ensure_write_room_locked(stage, w));
    *ret_has_draft = has_draft_locked(stage, w->ino);
    if (*ret_has_draft)
        write_locked(stage, file_get_locked(stage, w->ino, false)->layers[LAYER_DRAFT], w);
    return 0;
}

void draft_erase_locked(struct stage *stage, struct layer *draft, uint64_t offset, uint64_t length,
                        bool dropped)
{
    check_held(&stage->locked.lock);
    uint64_t end = length > UINT64_MAX - offset ? UINT64_MAX : offset + length;
    layer_erase_locked(stage, draft, offset, length, dropped);
    if (end >= draft->keep) {
        draft->keep = min_u64(draft->keep, offset);
    } else if (offset < draft->keep) {
        struct range hole = {.offset = offset, .length = length, .kind = RANGE_HOLE};
        layer_put_locked(stage, draft, &hole);
    }
}

int stage_erase(struct stage *stage, const struct stage_change *change, uint64_t offset,
                uint64_t length, uint64_t new_size)
{
    LOCK_SCOPE(&stage->locked.lock);
    if (!ranges_have_room_locked(stage))
        return -EAGAIN;
    bool had_draft = has_draft_locked(stage, change->ino);
    struct layer *draft = draft_locked(stage, change->ino, change->below_size, change->version);
    struct record rec = {.type = REC_ERASE,
                         .ino = change->ino,
                         .version = draft->version,
                         .offset = offset,
                         .length = length,
                         .seq = ++stage->locked.seq,
                         .attrs = {.size = new_size, .mtime = change->time}};
    TRY(log_change_locked(stage, draft, had_draft, &rec));
    draft_erase_locked(stage, draft, offset, length, true);
    draft->size = new_size;
    draft->mtime = change->time;
    note_change_locked(stage, draft, offset, length);
    return 0;
}

int stage_put_chunk(struct stage *stage, const struct stage_change *change,
                    const struct stage_chunk_range *chunk)
{
    LOCK_SCOPE(&stage->locked.lock);
    TRY(check_nameless_locked(stage, change->ino));
    if (!ranges_have_room_locked(stage))
        return -EAGAIN;
    bool had_draft = has_draft_locked(stage, change->ino);
    struct layer *draft = draft_locked(stage, change->ino, change->below_size, change->version);
    struct extent extent = {.offset = chunk->offset,
                            .length = chunk->length,
                            .kind = EXTENT_CHUNK,
                            .chunk = chunk->name,
                            .chunk_offset = chunk->chunk_offset};
    struct record rec = {.type = REC_PIECE,
                         .time = change->time,
                         .seq = ++stage->locked.seq,
                         .ino = change->ino,
                         .version = draft->version,
                         .extents = &extent,
                         .extent_count = 1};
    TRY(log_change_locked(stage, draft, had_draft, &rec));
    struct range range = {.offset = chunk->offset,
                          .length = chunk->length,
                          .kind = RANGE_CHUNK,
                          .starts_write = true,
                          .name = chunk->name,
                          .chunk_offset = chunk->chunk_offset,
                          .pack = chunk->pack,
                          .remote = chunk->remote};
    layer_put_locked(stage, draft, &range);
    draft->size = max_u64(draft->size, chunk->offset + chunk->length);
    draft->mtime = change->time;
    note_change_locked(stage, draft, chunk->offset, chunk->length);
    return 0;
}

struct stage_file_state file_state_locked(const struct stage_file *file)
{
    check_rank_held(LOCK_STAGE);
    struct stage_file_state state = {0};
    if (!file)
        return state;
    const struct layer *draft = file->layers[LAYER_DRAFT];
    if (draft) {
        state.has_draft = true;
        state.draft_size = draft->size;
        state.draft_mtime = draft->mtime;
    }
    const struct layer *sealed =
        file->layers[LAYER_SEALED] ? file->layers[LAYER_SEALED] : file->layers[LAYER_PINNED];
    if (sealed) {
        state.has_sealed = true;
        state.sealed_version = sealed->version;
        state.sealed_size = sealed->size;
        state.sealed_mtime = sealed->mtime;
    }
    for (size_t i = 0; i < LAYER_CLEAN; i++)
        if (file->layers[i]) {
            state.dirty_bytes += file->layers[i]->memory_bytes;
            state.chunk_bytes += file->layers[i]->chunk_bytes;
        }
    return state;
}

bool stage_file_state(struct stage *stage, uint64_t ino, struct stage_file_state *ret)
{
    LOCK_SCOPE(&stage->locked.lock);
    *ret = file_state_locked(file_get_locked(stage, ino, false));
    return ret->has_draft || ret->has_sealed;
}

int stage_set_mtime(struct stage *stage, uint64_t ino, int64_t mtime)
{
    LOCK_SCOPE(&stage->locked.lock);
    struct stage_file *file = file_get_locked(stage, ino, false);
    struct layer *draft = file ? file->layers[LAYER_DRAFT] : NULL;
    if (!draft)
        return 0;
    /* an empty ERASE behind the end carries the time */
    struct record rec = {.type = REC_ERASE,
                         .ino = ino,
                         .version = draft->version,
                         .offset = draft->size,
                         .length = UINT64_MAX,
                         .seq = ++stage->locked.seq,
                         .attrs = {.size = draft->size, .mtime = mtime}};
    int r = log_append_own_locked(stage, &rec);
    if (r == 0)
        draft->mtime = mtime;
    return r;
}

/* --- versions --------------------------------------------------------------------------------- */

static void raise_floor_locked(struct stage *stage, uint64_t seq)
{
    check_held(&stage->locked.lock);
    if (seq > atomic_load_explicit(&stage->header->floor_seq, memory_order_relaxed))
        atomic_store_explicit(&stage->header->floor_seq, seq, memory_order_release);
}

void stage_raise_floor(struct stage *stage, uint64_t seq)
{
    LOCK_SCOPE(&stage->locked.lock);
    raise_floor_locked(stage, seq);
}

uint64_t stage_floor(struct stage *stage)
{
    return atomic_load_explicit(&stage->header->floor_seq, memory_order_acquire);
}

static void seal_locked(struct stage *stage, struct stage_file *file, uint64_t seq)
{
    check_held(&stage->locked.lock);
    struct layer *draft = file->layers[LAYER_DRAFT], *sealed = file->layers[LAYER_SEALED];
    draft->seal_seq = seq;
    if (!sealed) {
        layer_set_state_locked(stage, draft, LAYER_SEALED);
        return;
    }
    raise_floor_locked(stage, seq);
    layer_merge_locked(stage, sealed, draft);
    sealed->seal_seq = seq;
    TAILQ_REMOVE(&stage->locked.sealed, sealed, link);
    TAILQ_INSERT_TAIL(&stage->locked.sealed, sealed, link);
}

bool stage_seal(struct stage *stage, uint64_t ino, uint64_t version, uint64_t seq, bool even_empty,
                struct stage_draft *ret)
{
    mutex_lock(&stage->locked.lock);
    struct stage_file *file = file_get_locked(stage, ino, even_empty);
    struct layer *draft = file ? file->layers[LAYER_DRAFT] : NULL;
    if (file && !draft && even_empty) {
        draft = layer_new_locked(stage, file, LAYER_DRAFT);
        draft->keep = draft->size = 0;
    }
    if (draft) {
        draft->version = version;
        *ret = (struct stage_draft){.keep = draft->keep,
                                    .size = draft->size,
                                    .mtime = draft->mtime,
                                    .bytes = draft->memory_bytes};
        seal_locked(stage, file, seq);
    }
    mutex_unlock(&stage->locked.lock);
    if (draft)
        room_changed(stage);
    return draft != NULL;
}

/* A file lost its last name: turns its sealed content into part of its last draft. That gets a new
 * version number, since the sealed version may come to the view without content, and is entered
 * into the log, for a successor. */
static int orphan_locked(struct stage *stage, struct stage_file *file)
{
    check_held(&stage->locked.lock);
    struct layer *sealed = file->layers[LAYER_SEALED], *draft = file->layers[LAYER_DRAFT];
    for (size_t l = 0; l < LAYER_CLEAN && !file->orphan; l++)
        stage->locked.orphan_ranges += file->layers[l] ? file->layers[l]->range_count : 0;
    stage->locked.draft_count -= draft && !file->orphan;
    file->orphan = true;
    if (sealed && draft)
        layer_merge_locked(stage, sealed, draft);
    else if (sealed)
        sealed->mtime = 0; /* the namespace has the time, and may have changed it since */
    if (!sealed)
        return 0;
    sealed->version += !draft;
    layer_set_state_locked(stage, sealed, LAYER_DRAFT);
    return log_enter_layer_locked(stage, sealed, STAGE_LOG_MARGIN / 2);
}

int stage_unlink(struct stage *stage, uint64_t ino, uint64_t seq, bool orphan)
{
    int r = 0;
    mutex_lock(&stage->locked.lock);
    struct stage_file *file = file_get_locked(stage, ino, orphan);
    if (file) {
        if (file->layers[LAYER_SEALED])
            raise_floor_locked(stage, seq);
        if (orphan) {
            r = orphan_locked(stage, file);
        } else {
            file->dead = true;
            layer_free_locked(stage, file->layers[LAYER_DRAFT], true);
            layer_free_locked(stage, file->layers[LAYER_SEALED], true);
            layer_free_locked(stage, file->layers[LAYER_CLEAN], false);
            file_settle_locked(stage, file);
        }
    }
    mutex_unlock(&stage->locked.lock);
    room_changed(stage);
    return r;
}

int stage_relink(struct stage *stage, uint64_t ino, size_t reserve)
{
    LOCK_SCOPE(&stage->locked.lock);
    struct stage_file *file = file_get_locked(stage, ino, false);
    check(file && file->orphan && file->layers[LAYER_DRAFT] && !file->layers[LAYER_SEALED] &&
          !file->layers[LAYER_PINNED]);
    TRY(log_enter_layer_locked(stage, file->layers[LAYER_DRAFT], reserve));
    stage->locked.orphan_ranges -= file->layers[LAYER_DRAFT]->range_count;
    stage->locked.draft_count++;
    file->orphan = false;
    return 0;
}

void stage_forget(struct stage *stage, uint64_t ino)
{
    int r = stage_unlink(stage, ino, 0, false);
    check(r == 0);
}

static struct stage_sealed describe_sealed(const struct layer *layer)
{
    return (struct stage_sealed){.layer = layer,
                                 .ino = layer->file->ino,
                                 .version = layer->version,
                                 .seal_seq = layer->seal_seq,
                                 .keep = layer->keep,
                                 .size = layer->size,
                                 .bytes = layer->memory_bytes,
                                 .ranges = layer->range_count};
}

size_t stage_sealed_list(struct stage *stage, struct stage_sealed *list, size_t max)
{
    LOCK_SCOPE(&stage->locked.lock);
    size_t count = 0;
    struct layer *layer;
    TAILQ_FOREACH(layer, &stage->locked.sealed, link)
    {
        if (count < max)
            list[count] = describe_sealed(layer);
        count++;
    }
    return count;
}

void stage_pin(struct stage *stage, struct stage_sealed *sealed)
{
    LOCK_SCOPE(&stage->locked.lock);
    struct stage_file *file = file_get_locked(stage, sealed->ino, false);
    check(file && file->layers[LAYER_SEALED]);
    struct layer *older = file->layers[LAYER_PINNED], *layer = file->layers[LAYER_SEALED];
    if (older) {
        older->seal_seq = layer->seal_seq;
        layer_merge_locked(stage, older, layer);
    } else {
        layer_set_state_locked(stage, layer, LAYER_PINNED);
    }
    *sealed = describe_sealed(file->layers[LAYER_PINNED]);
}

void stage_layer_done(struct stage *stage, uint64_t ino)
{
    mutex_lock(&stage->locked.lock);
    struct stage_file *file = file_get_locked(stage, ino, false);
    check(file && file->layers[LAYER_PINNED]);
    if (file->dead) {
        layer_free_locked(stage, file->layers[LAYER_PINNED], false);
    } else {
        struct layer *clean = file->layers[LAYER_CLEAN];
        if (!clean)
            clean = layer_new_locked(stage, file, LAYER_CLEAN);
        layer_merge_locked(stage, clean, file->layers[LAYER_PINNED]);
    }
    file_settle_locked(stage, file);
    mutex_unlock(&stage->locked.lock);
    room_changed(stage);
}
