// SPDX-License-Identifier: Apache-2.0
/* Rebuilds the layers of a stage left by a dead daemon.
 *
 * Items describe the content of a layer: dumps (LAYER and its RANGEs and PIECEs), ERASEs and PIECEs
 * of the log, and write records in slabs. Items of one version are applied in order of their
 * sequence numbers; its SEAL comes last. After a compaction the log begins with a marker: write
 * records older than it count only if a dump names them. */
#include "base/log.h"
#include "base/vector.h"
#include "stage/internal.h"

enum item_kind { ITEM_LAYER, ITEM_RANGE, ITEM_PIECE, ITEM_ERASE, ITEM_WRITE, ITEM_SEAL };

struct item {
    uint64_t ino, version, seq;
    uint32_t order; /* position in log and slabs: decides between equal sequence numbers */
    enum item_kind kind;
    bool starts_write;
    uint64_t offset, length, keep, size;
    int64_t mtime;
    uint32_t slab, slab_offset;
    struct chunk_name name;
};

struct rebuild {
    struct stage *stage;
    const struct stage_rebuild *how;
    VECTOR(struct item) items;
    uint64_t marker_seq;
    uint64_t last_seq;
    uint64_t begun[REQUESTS_MAX]; /* numbers that decide whether a request was applied */
    size_t begun_count;
};

/* Notes the sequence number of an operation or write, to find the highest. */
static void note_seq(struct rebuild *rb, uint64_t seq)
{
    rb->last_seq = max_u64(rb->last_seq, seq);
    for (size_t i = 0; i < rb->begun_count; i++)
        if (rb->begun[i] == seq)
            requests_found(rb->stage, seq);
}

static struct item *add_item(struct rebuild *rb, enum item_kind kind, uint64_t ino,
                             uint64_t version, uint64_t seq)
{
    struct item *item = vector_next(&rb->items);
    *item = (struct item){.kind = kind,
                          .ino = ino,
                          .version = version,
                          .seq = seq,
                          .order = (uint32_t)(rb->items.count - 1)};
    return item;
}

static int range_ok(const struct rebuild *rb, const struct record *rec)
{
    if (rec->length == 0 || rec->length > INT64_MAX ||
        rec->offset > (uint64_t)INT64_MAX - rec->length)
        return -EUCLEAN;
    if (rec->slab == SLAB_NONE)
        return 0;
    bool inside = rec->slab < rb->stage->slab_count && rec->length <= SLAB_STRIDE &&
                  rec->slab_offset <= SLAB_STRIDE - rec->length;
    return inside ? 0 : -EUCLEAN;
}

static int add_layer(struct rebuild *rb, const struct record *rec)
{
    if (rec->ino == 0) {
        rb->marker_seq = rec->seq;
        return 0;
    }
    if (rec->keep > INT64_MAX || rec->attrs.size > INT64_MAX)
        return -EUCLEAN;
    struct item *item = add_item(rb, ITEM_LAYER, rec->ino, rec->version, rec->seq);
    item->keep = rec->keep;
    item->size = rec->attrs.size;
    item->mtime = rec->attrs.mtime;
    return 0;
}

static int add_range(struct rebuild *rb, const struct record *rec)
{
    TRY(range_ok(rb, rec));
    struct item *item = add_item(rb, ITEM_RANGE, rec->ino, rec->version, rec->seq);
    item->offset = rec->offset;
    item->length = rec->length;
    item->slab = rec->slab;
    item->slab_offset = rec->slab_offset;
    item->starts_write = rec->flags & RECORD_STARTS_WRITE;
    return 0;
}

static int add_piece(struct rebuild *rb, const struct record *rec)
{
    if (rec->extent_count != 1)
        return -EUCLEAN;
    struct extent extent = record_extent(rec, 0);
    if (extent.length == 0 || extent.length > CHUNK_SIZE_MAX ||
        extent.offset > (uint64_t)INT64_MAX - extent.length)
        return -EUCLEAN;
    struct item *item = add_item(rb, ITEM_PIECE, rec->ino, rec->version, rec->seq);
    item->offset = extent.offset;
    item->length = extent.length;
    item->name = extent.chunk;
    item->slab_offset = extent.chunk_offset;
    item->mtime = rec->time;
    return 0;
}

static int add_erase(struct rebuild *rb, const struct record *rec)
{
    if (rec->length == 0 || rec->offset > INT64_MAX || rec->attrs.size > INT64_MAX)
        return -EUCLEAN;
    struct item *item = add_item(rb, ITEM_ERASE, rec->ino, rec->version, rec->seq);
    item->offset = rec->offset;
    item->length = rec->length;
    item->size = rec->attrs.size;
    item->mtime = rec->attrs.mtime;
    return 0;
}

static int add_from_log(const struct record *rec, void *arg)
{
    struct rebuild *rb = arg;
    struct item *item;
    note_seq(rb, rec->seq);
    switch (rec->type) {
    case REC_LAYER:
        return add_layer(rb, rec);
    case REC_RANGE:
        return add_range(rb, rec);
    case REC_PIECE:
        return add_piece(rb, rec);
    case REC_ERASE:
        return add_erase(rb, rec);
    case REC_SEAL:
        if (rec->attrs.size > INT64_MAX)
            return -EUCLEAN;
        /* sorts after all items that it seals */
        item = add_item(rb, ITEM_SEAL, rec->ino, rec->version, UINT64_MAX);
        item->offset = rec->seq;
        item->size = rec->attrs.size;
        item->mtime = rec->attrs.mtime;
        return 0;
    default:
        return 0;
    }
}

static void add_write(const struct slab_record *rec, uint32_t slab, void *arg)
{
    struct rebuild *rb = arg;
    struct item *item = add_item(rb, ITEM_WRITE, rec->ino, rec->version, rec->seq);
    note_seq(rb, rec->seq);
    item->offset = rec->offset;
    item->length = rec->length;
    item->slab = slab;
    item->slab_offset = rec->payload;
    item->mtime = rec->time;
    item->starts_write = rec->flags & SLAB_RECORD_STARTS_WRITE;
}

static int compare_items(const void *pa, const void *pb)
{
    const struct item *a = pa, *b = pb;
    if (a->ino != b->ino)
        return a->ino < b->ino ? -1 : 1;
    if (a->version != b->version)
        return a->version < b->version ? -1 : 1;
    if (a->seq != b->seq)
        return a->seq < b->seq ? -1 : 1;
    return a->order < b->order ? -1 : a->order > b->order;
}

/* Pins the slab until all items are applied: one item may supersede everything in the slab before a
 * later one names it again. */
static void claim_slab_locked(struct rebuild *rb, uint32_t slab)
{
    check_held(&rb->stage->locked.lock);
    if (rb->stage->locked.slabs[slab].state != SLAB_UNREADY)
        return;
    slab_claim_recovered_locked(rb->stage, slab);
    rb->stage->locked.slabs[slab].pins++;
}

static void put_item_locked(struct rebuild *rb, struct layer *draft, const struct item *item)
{
    check_held(&rb->stage->locked.lock);
    struct range range = {.offset = item->offset,
                          .length = item->length,
                          .kind = RANGE_MEMORY,
                          .starts_write = item->starts_write,
                          .slab = item->slab,
                          .slab_offset = item->slab_offset};
    if (item->kind == ITEM_PIECE) {
        range.kind = RANGE_CHUNK;
        range.name = item->name;
        range.chunk_offset = item->slab_offset;
        /* 0: in no known pack, which is damage only if no later item supersedes it (its pack may
         * have been dropped since) */
        range.pack = rb->how->pack_of(&item->name, &range.remote, rb->how->arg);
    } else if (item->slab == SLAB_NONE) {
        range.kind = RANGE_HOLE;
    } else {
        claim_slab_locked(rb, item->slab);
    }
    layer_put_locked(rb->stage, draft, &range);
}

static void apply_item_locked(struct rebuild *rb, struct layer *draft, const struct item *item)
{
    check_held(&rb->stage->locked.lock);
    switch (item->kind) {
    case ITEM_LAYER:
        layer_erase_locked(rb->stage, draft, 0, UINT64_MAX, false);
        draft->keep = item->keep;
        draft->size = item->size;
        draft->mtime = item->mtime;
        return;
    case ITEM_WRITE:
        draft->mtime = item->mtime;
        draft->size = max_u64(draft->size, item->offset + item->length);
        put_item_locked(rb, draft, item);
        return;
    case ITEM_PIECE:
        if (item->mtime)
            draft->mtime = item->mtime;
        draft->size = max_u64(draft->size, item->offset + item->length);
        put_item_locked(rb, draft, item);
        return;
    case ITEM_RANGE:
        put_item_locked(rb, draft, item);
        return;
    case ITEM_ERASE:
        draft_erase_locked(rb->stage, draft, item->offset, item->length, false);
        draft->size = item->size;
        draft->mtime = item->mtime;
        return;
    case ITEM_SEAL:
        return;
    }
}

static void seal_item_locked(struct rebuild *rb, struct layer *draft, const struct item *item)
{
    check_held(&rb->stage->locked.lock);
    struct stage *stage = rb->stage;
    uint64_t ino = draft->file->ino;
    struct stage_draft sealed;
    draft->size = item->size;
    draft->mtime = item->mtime;
    mutex_unlock(&stage->locked.lock);
    check(stage_seal(stage, ino, item->version, item->offset, false, &sealed));
    mutex_lock(&stage->locked.lock);
}

/* Applies all items of one version: [first, end). *size: of the version below, then of this one. */
static void rebuild_version_locked(struct rebuild *rb, size_t first, size_t end, uint64_t *size)
{
    check_held(&rb->stage->locked.lock);
    struct stage_file *file = file_get_locked(rb->stage, rb->items.at[first].ino, true);
    struct layer *draft = file->layers[LAYER_DRAFT];
    if (!draft) {
        draft = layer_new_locked(rb->stage, file, LAYER_DRAFT);
        draft->keep = draft->size = *size;
    }
    /* if there is a draft, the daemon died between a seal and its record: the unsealed version and
     * later changes form one draft */
    draft->version = rb->items.at[first].version;
    for (size_t i = first; i < end; i++) {
        const struct item *item = &rb->items.at[i];
        apply_item_locked(rb, draft, item);
        if (item->kind == ITEM_SEAL) {
            *size = item->size;
            seal_item_locked(rb, draft, item);
            return;
        }
    }
}

static bool item_counts(const struct rebuild *rb, const struct item *item)
{
    return item->kind != ITEM_WRITE || item->seq > rb->marker_seq;
}

static void rebuild_file(struct rebuild *rb, size_t first, size_t end)
{
    uint64_t size = 0;
    uint64_t durable = rb->how->durable(rb->items.at[first].ino, &size, rb->how->arg);
    LOCK_SCOPE(&rb->stage->locked.lock);
    for (size_t i = first; i < end;) {
        size_t next = i;
        while (next < end && rb->items.at[next].version == rb->items.at[i].version)
            next++;
        if (durable != UINT64_MAX && rb->items.at[i].version > durable)
            rebuild_version_locked(rb, i, next, &size);
        i = next;
    }
}

static void drop_uncounted(struct rebuild *rb)
{
    size_t left = 0;
    for (size_t i = 0; i < rb->items.count; i++)
        if (item_counts(rb, &rb->items.at[i]))
            rb->items.at[left++] = rb->items.at[i];
    rb->items.count = left;
}

static int compare_seals(const void *pa, const void *pb)
{
    const struct layer *a = *(struct layer *const *)pa, *b = *(struct layer *const *)pb;
    return a->seal_seq < b->seal_seq ? -1 : a->seal_seq > b->seal_seq;
}

/* Files were rebuilt by inode, but versions are written back in the order of their seals. */
static void order_sealed_locked(struct stage *stage)
{
    check_held(&stage->locked.lock);
    size_t count = 0;
    struct layer *layer;
    TAILQ_FOREACH(layer, &stage->locked.sealed, link)
    count++;
    if (count == 0)
        return;
    struct layer **layers = xcalloc(count, sizeof(struct layer *));
    for (size_t i = 0; i < count; i++) {
        layers[i] = TAILQ_FIRST(&stage->locked.sealed);
        TAILQ_REMOVE(&stage->locked.sealed, layers[i], link);
    }
    qsort(layers, count, sizeof(struct layer *), compare_seals);
    for (size_t i = 0; i < count; i++)
        TAILQ_INSERT_TAIL(&stage->locked.sealed, layers[i], link);
    free(layers);
}

static void release_slabs_locked(struct stage *stage)
{
    check_held(&stage->locked.lock);
    for (uint32_t i = 0; i < stage->slab_count; i++) {
        if (stage->locked.slabs[i].state != SLAB_USED)
            continue;
        stage->locked.slabs[i].pins--;
        slab_settle_locked(stage, i);
    }
}

/* Is there content whose chunk is in no pack? */
static int check_packs_locked(struct stage *stage)
{
    check_held(&stage->locked.lock);
    const uint64_t none = 0;
    struct pack_use *use = NULL;
    HASH_FIND(hh, stage->locked.packs, &none, sizeof none, use);
    if (!use)
        return 0;
    log_error("stage: %llu ranges of staged files are in no known pack; keep the stage and this "
              "log for a report",
              (unsigned long long)use->ranges);
    return -EUCLEAN;
}

static int rebuild_files(struct rebuild *rb)
{
    drop_uncounted(rb);
    vector_sort(&rb->items, compare_items);
    rb->stage->locked.seq = rb->last_seq;
    for (size_t i = 0; i < rb->items.count;) {
        size_t next = i;
        while (next < rb->items.count && rb->items.at[next].ino == rb->items.at[i].ino)
            next++;
        rebuild_file(rb, i, next);
        i = next;
    }
    LOCK_SCOPE(&rb->stage->locked.lock);
    release_slabs_locked(rb->stage);
    order_sealed_locked(rb->stage);
    return check_packs_locked(rb->stage);
}

int stage_rebuild_layers(struct stage *stage, const struct stage_rebuild *how)
{
    struct rebuild rb = {.stage = stage, .how = how};
    rb.begun_count = requests_begun(stage, rb.begun, REQUESTS_MAX);
    int r = stage_replay_log(stage, add_from_log, &rb);
    for (uint32_t i = 0; i < stage->slab_count && r == 0; i++)
        r = slab_records_read(stage, i, add_write, &rb);
    if (r == 0)
        r = rebuild_files(&rb);
    vector_free(&rb.items);
    return r;
}

/* Frees slabs that no item claimed, and starts the filler. */
int stage_adopt(struct stage *stage, uint64_t epoch, bool adopting)
{
    if (adopting) {
        requests_adopt(stage);
        handles_adopt(stage);
    } else {
        requests_reset(stage);
        handles_reset(stage);
    }
    for (uint32_t i = 0; i < stage->slab_count; i++)
        if (stage->locked.slabs[i].state == SLAB_UNREADY)
            atomic_store(&stage->slab_table[i].use, slab_use(SLAB_SHARED_FREE, 0));
    stage->locked.seq = max_u64(stage->locked.seq, epoch << SEQ_EPOCH_SHIFT);
    return slabs_start(stage);
}

/* For a stage without tags: marks its slabs as having no records, since the new log names all
 * recovered content. */
static int key_records(struct stage *stage)
{
    struct stage_header *h = stage->header;
    for (uint32_t i = 0; i < stage->slab_count; i++)
        if (atomic_load(&stage->slab_table[i].use) != slab_use(SLAB_SHARED_FREE, 0))
            atomic_store(&stage->slab_table[i].use, slab_use(SLAB_SHARED_USED, 0));
    TRY(header_key(h, stage->name));
    atomic_store(&h->version, STAGE_VERSION);
    return 0;
}

int stage_commit_epoch(struct stage *stage, uint64_t epoch)
{
    if (atomic_load(&stage->header->version) != STAGE_VERSION)
        TRY(key_records(stage));
    atomic_store(&stage->header->epoch, epoch);
    return 0;
}
