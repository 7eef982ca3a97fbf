// SPDX-License-Identifier: Apache-2.0
/* Packs being made: a chunk is named, found if it is stored already, else encoded into a buffer
 * that becomes a pack. This file has the data that the view does not have yet: `fresh` chunks, and
 * packs `written` until a batch that names them was applied. */

#include "base/clock.h"
#include "base/log.h"
#include "base/pool.h"
#include "base/process.h"
#include "commit/horizon_internal.h"
#include "commit/packs_internal.h"
#include "commit/read_internal.h"
#include "commit/room_internal.h"
#include "view/view.h"

struct packs *packs_new(struct local *local, struct room *room, struct horizon *horizon,
                        struct damage *damage)
{
    struct packs *packs = xcalloc(1, sizeof *packs);
    *packs = (struct packs){.local = local,
                            .room = room,
                            .horizon = horizon,
                            .damage = damage,
                            .started_at = clock_monotonic_ns()};
    mutex_init(&packs->lock, LOCK_PACKS);
    cond_init(&packs->changed);
    TAILQ_INIT(&packs->written);
    for (unsigned i = 0; i < PACK_BUFFERS; i++)
        packs->buffers[i] = xmalloc_large(PACK_BUFFER_LEN);
    packs->buffers_free = PACK_BUFFERS;
    atomic_store(&packs->next_id, 1);
    return packs;
}

int packs_start(struct packs *packs, struct priority *priority)
{
    return pool_new("cairn-pack", PACK_WRITERS, PACK_BUFFERS + 1, priority_join, priority,
                    &packs->writers);
}

void packs_stop(struct packs *packs)
{
    pool_free(packs->writers);
    packs->writers = NULL;
}

static void new_pack_free(struct new_pack *pack)
{
    if (!pack)
        return;
    free(pack->entries);
    free(pack);
}

void packs_free(struct packs *packs)
{
    struct new_pack *pack;
    while ((pack = TAILQ_FIRST(&packs->written))) {
        TAILQ_REMOVE(&packs->written, pack, link);
        new_pack_free(pack);
    }
    if (packs->filling)
        free(packs->filling->buffer.bytes);
    new_pack_free(packs->filling);
    HASH_FREE_ALL(packs->fresh);
    HASH_FREE_ALL(packs->pins);
    for (unsigned i = 0; i < packs->buffers_free; i++)
        free(packs->buffers[i]);
    mutex_done(&packs->lock);
    (void)pthread_cond_destroy(&packs->changed);
    free(packs);
}

uint64_t packs_new_bytes(struct packs *packs)
{
    LOCK_SCOPE(&packs->lock);
    return packs->new_bytes + packs->writing_bytes;
}

void packs_each_durable(struct packs *packs, void (*fn)(struct new_pack *pack, void *arg),
                        void *arg)
{
    LOCK_SCOPE(&packs->lock);
    struct new_pack *pack;
    TAILQ_FOREACH(pack, &packs->written, link)
    if (pack->state == PACK_DURABLE)
        fn(pack, arg);
}

/* --- filling ---------------------------------------------------------------------------------- */

static struct fresh *fresh_find_locked(struct packs *packs, const struct chunk_name *name)
{
    check_held(&packs->lock);
    struct fresh *fresh = NULL;
    HASH_FIND(hh, packs->fresh, name, sizeof *name, fresh);
    return fresh;
}

uint64_t packs_find_fresh(struct packs *packs, const struct chunk_name *name,
                          struct chunk_entry *ret)
{
    LOCK_SCOPE(&packs->lock);
    const struct fresh *fresh = fresh_find_locked(packs, name);
    if (!fresh || !fresh->durable)
        return 0;
    *ret = fresh->entry;
    return fresh->entry.pack;
}

bool packs_has_fresh(struct packs *packs, const struct chunk_name *name)
{
    LOCK_SCOPE(&packs->lock);
    return fresh_find_locked(packs, name) != NULL;
}

static uint64_t pack_id(const struct packs *packs, uint64_t number)
{
    return ((uint64_t)packs->local->sb.writer << 48) | (packs->local->epoch << 24) | number;
}

uint64_t packs_new_id(struct packs *packs)
{
    return pack_id(packs, atomic_fetch_add(&packs->next_id, 1));
}

void packs_look_back(struct packs *packs, struct past_views *past)
{
    packs->past = past;
}

uint64_t packs_newest_id(struct packs *packs)
{
    return pack_id(packs, atomic_load(&packs->next_id) - 1);
}

/* From now on its chunks can be read. */
static void note_durable_locked(struct packs *packs, const struct new_pack *pack)
{
    check_held(&packs->lock);
    for (uint32_t i = 0; i < pack->count; i++) {
        struct fresh *fresh = fresh_find_locked(packs, &pack->entries[i].name);
        if (fresh && fresh->entry.pack == pack->id)
            fresh->durable = true;
    }
}

static void write_pack(void *arg)
{
    struct new_pack *pack = arg;
    struct packs *packs = pack->packs;
    uint64_t id = pack->id;
    char object[32];
    pack_object_name(id, object);
    uint64_t len =
        pack_finish(packs->local->sb.store, id, &pack->buffer, pack->entries, pack->count);
    mutex_lock(&packs->lock);
    packs->writing_bytes += len;
    mutex_unlock(&packs->lock);
    room_spend(packs->room, len);
    int r = packs->local->tier->ops->put(packs->local->tier, object, pack->buffer.bytes, len);
    if (r < 0)
        horizon_error(packs->horizon,
                      "nvme: writing pack %s of %llu bytes failed: %s; retrying elsewhere", object,
                      (unsigned long long)len, strerror(-r));
    mutex_lock(&packs->lock);
    check(pack->state == PACK_WRITING && packs->buffers_free < PACK_BUFFERS);
    packs->buffers[packs->buffers_free++] = pack->buffer.bytes;
    pack->buffer.bytes = NULL;
    pack->length = len;
    pack->error = r;
    pack->state = r < 0 ? PACK_FAILED : PACK_DURABLE;
    packs->writing_bytes -= len;
    if (r == 0) {
        packs->new_bytes += len;
        note_durable_locked(packs, pack);
    }
    (void)pthread_cond_broadcast(&packs->changed);
    mutex_unlock(&packs->lock);
    packs_touch(packs, id);
    atomic_fetch_add(&packs->written_total, len);
}

static void hand_over_filling_locked(struct packs *packs)
{
    check_held(&packs->lock);
    struct new_pack *pack = packs->filling;
    packs->filling = NULL;
    pack->state = PACK_WRITING;
    TAILQ_INSERT_TAIL(&packs->written, pack, link);
    pool_submit(packs->writers, write_pack, pack);
}

/* While this waits for a buffer, another thread may begin a pack. */
static void begin_pack_locked(struct packs *packs)
{
    check_held(&packs->lock);
    while (packs->buffers_free == 0)
        (void)mutex_wait(&packs->lock, &packs->changed, -1);
    if (packs->filling)
        return;
    struct new_pack *pack = xcalloc(1, sizeof *pack);
    pack->packs = packs;
    pack->id = packs_new_id(packs);
    pack->buffer.bytes = packs->buffers[--packs->buffers_free];
    pack->entries = xcalloc(PACK_ENTRIES_MAX, sizeof *pack->entries);
    pack_begin(packs->local->sb.store, pack->id, &pack->buffer);
    packs->filling = pack;
}

/* The bases of a chunk have lower depths. A pack has chunks of one depth only, so it never contains
 * a chunk and its base, and cannot keep itself alive: dead packs are dropped, deepest first. */
static bool pack_has_place_for(const struct new_pack *pack, const struct chunk_entry *entry)
{
    /* a pack must not exceed the limit of file sizes: an eighth is for the index */
    uint64_t most = process_file_max(), index = most / 8;
    uint64_t data_max = min_u64(PACK_DATA_MAX, most - index),
             entries_max = min_u64(PACK_ENTRIES_MAX, index / PACK_ENTRY_LEN_MAX);
    return pack->count == 0 || (pack_end_with(pack->buffer.data_len, entry) <= data_max &&
                                pack->count < entries_max && pack->depth == entry->depth);
}

/* Copies a stored chunk into the pack being filled; *entry gets its place. */
static struct new_pack *place_in_pack_locked(struct packs *packs, struct chunk_entry *entry,
                                             const struct iovec *stored, size_t parts)
{
    check_held(&packs->lock);
    while (!packs->filling || !pack_has_place_for(packs->filling, entry)) {
        if (packs->filling)
            hand_over_filling_locked(packs);
        else
            begin_pack_locked(packs);
    }
    struct new_pack *pack = packs->filling;
    check(pack->count == 0 || pack->depth == entry->depth);
    pack->depth = entry->depth;
    pack_place(packs->local, pack->id, &pack->buffer, entry, stored, parts);
    pack->entries[pack->count++] = *entry;
    return pack;
}

bool packs_pin_stored(struct packs *packs, const struct chunk_name *name, uint64_t *ret_pinned)
{
    struct chunk_entry entry;
    uint64_t refs;
    if (damage_is_known(packs->damage, name) ||
        view_chunk(packs->local->view, name, &entry, &refs) < 0 || entry.pack == 0 ||
        entry.ref_count > 0)
        return false;
    mutex_lock(&packs->lock);
    bool pinned = packs_pin_locked(packs, entry.pack);
    mutex_unlock(&packs->lock);
    if (!pinned)
        return false;
    /* before the pin, the pack may have been dropped, or the chunk moved */
    *ret_pinned = entry.pack;
    if (view_chunk(packs->local->view, name, &entry, &refs) == 0 && entry.pack == *ret_pinned &&
        entry.ref_count == 0)
        return true;
    packs_unpin(packs, *ret_pinned);
    *ret_pinned = 0;
    return false;
}

/* False: the chunk is present already. */
static bool add_fresh_locked(struct packs *packs, const struct chunk_entry *entry, bool durable)
{
    check_held(&packs->lock);
    if (fresh_find_locked(packs, &entry->name))
        return false;
    struct fresh *fresh = xcalloc(1, sizeof *fresh);
    *fresh = (struct fresh){.entry = *entry, .durable = durable};
    HASH_ADD(hh, packs->fresh, entry.name, sizeof fresh->entry.name, fresh);
    return true;
}

/* Claims the name for the caller, which will place the chunk; false: another thread has. */
static bool claim_fresh(struct packs *packs, const struct chunk_name *name)
{
    LOCK_SCOPE(&packs->lock);
    return add_fresh_locked(packs, &(struct chunk_entry){.name = *name}, false);
}

/* `rests`: the chunk has bases that no other thread may know to be needed. */
static void place_fresh(struct packs *packs, struct chunk_entry *entry, const struct iovec *stored,
                        size_t parts, bool rests)
{
    LOCK_SCOPE(&packs->lock);
    struct new_pack *pack = place_in_pack_locked(packs, entry, stored, parts);
    pack->rests = pack->rests || rests;
    struct fresh *fresh = fresh_find_locked(packs, &entry->name);
    if (fresh)
        fresh->entry = *entry;
}

/* The stored bytes are in `iov` if the chunk stays raw, else at the start of `scratch`: a thread's
 * buffer begins with huge pages. */
static void encode(struct packs *packs, const struct iovec *iov, size_t iov_count, void *scratch,
                   struct chunk_entry *entry)
{
    void *work = (uint8_t *)scratch + CHUNK_SIZE_MAX;
    struct encode_totals *totals = &packs->encoded;
    int64_t began = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    struct chunk_encoded e =
        chunk_encode(packs->local->options.reduce, iov, iov_count, entry->raw_len, work, scratch);
    atomic_fetch_add(&totals->cpu_ns, (uint64_t)(clock_ns(CLOCK_THREAD_CPUTIME_ID) - began));
    atomic_fetch_add(&totals->raw_bytes[e.encoding], entry->raw_len);
    atomic_fetch_add(&totals->stored_bytes[e.encoding], e.len);
    if (e.was_wrong && atomic_fetch_add(&totals->wrong, 1) == 0)
        log_error("a chunk that was encoded did not decode to the same bytes, and is stored as it "
                  "is: nothing is lost, but this processor or this build of CairnFS has a fault; "
                  "-o reduce=off does without");
    entry->stored_len = (uint32_t)e.len;
    entry->encoding = e.encoding;
}

struct encode_totals *packs_encoded(struct packs *packs)
{
    return &packs->encoded;
}

const void *packs_encode(struct packs *packs, const struct chunk_name *name, const void *raw,
                         uint32_t raw_len, void *scratch, struct chunk_entry *ret_entry)
{
    struct iovec iov = {(void *)(uintptr_t)raw, raw_len};
    *ret_entry = (struct chunk_entry){.name = *name, .raw_len = raw_len};
    encode(packs, &iov, 1, scratch, ret_entry);
    return ret_entry->encoding == ENCODING_RAW ? raw : scratch;
}

void packs_add(struct packs *packs, struct packs_chunk *chunk, void *scratch)
{
    chunk->name = local_chunk_name(packs->local, chunk->iov, chunk->iov_count);
    chunk->pinned = 0;
    if (packs_pin_stored(packs, &chunk->name, &chunk->pinned) ||
        !claim_fresh(packs, &chunk->name)) {
        atomic_fetch_add(&packs->dedup_total, chunk->length);
        return;
    }
    struct chunk_entry entry = {.name = chunk->name, .raw_len = (uint32_t)chunk->length};
    encode(packs, chunk->iov, chunk->iov_count, scratch, &entry);
    rate_limit_wait(&packs->horizon->limit, entry.stored_len);
    if (entry.encoding == ENCODING_RAW)
        place_fresh(packs, &entry, chunk->iov, chunk->iov_count, false);
    else
        place_fresh(packs, &entry, &(struct iovec){scratch, entry.stored_len}, 1, false);
}

static void add_stored(struct packs *packs, const struct chunk_entry *entry, const void *stored,
                       bool rests)
{
    struct chunk_entry placed = *entry;
    if (claim_fresh(packs, &entry->name))
        place_fresh(packs, &placed, &(struct iovec){(void *)(uintptr_t)stored, entry->stored_len},
                    1, rests);
}

void packs_add_stored(struct packs *packs, const struct chunk_entry *entry, const void *stored)
{
    add_stored(packs, entry, stored, false);
}

void packs_add_dense(struct packs *packs, const struct chunk_entry *entry, const void *stored)
{
    check(entry->ref_count > 0);
    add_stored(packs, entry, stored, true);
    rate_limit_charge(&packs->horizon->limit, entry->stored_len);
}

bool packs_limit_is_paid(struct packs *packs)
{
    return rate_limit_is_paid(&packs->horizon->limit);
}

/* The chunk becomes known only once it is in a pack: a version that finds it then, and relies on
 * it, includes it in the next packs_finish(). */
int packs_promote(struct packs *packs, const struct chunk_entry *entry, const void *stored)
{
    check(entry->ref_count == 0);
    LOCK_SCOPE(&packs->lock);
    if (fresh_find_locked(packs, &entry->name))
        return -EEXIST;
    struct chunk_entry moved = *entry;
    struct new_pack *pack = place_in_pack_locked(
        packs, &moved, &(struct iovec){(void *)(uintptr_t)stored, entry->stored_len}, 1);
    pack->promoted += entry->stored_len;
    /* False: another thread added it while this one waited. It is then in two packs, which is
     * harmless. */
    (void)add_fresh_locked(packs, &moved, false);
    return 0;
}

/* --- finishing -------------------------------------------------------------------------------- */

/* Waits up to the pack that is the last one now: fetched data may add packs without end. */
static int wait_written_locked(struct packs *packs)
{
    check_held(&packs->lock);
    struct new_pack *pack, *last = TAILQ_LAST(&packs->written, new_pack_list);
    int r = 0;
    TAILQ_FOREACH(pack, &packs->written, link)
    {
        while (pack->state == PACK_WRITING)
            (void)mutex_wait(&packs->lock, &packs->changed, -1);
        if (pack->state == PACK_FAILED)
            r = pack->error;
        if (pack == last)
            break;
    }
    return r;
}

int packs_finish(struct packs *packs)
{
    mutex_lock(&packs->lock);
    if (packs->filling)
        hand_over_filling_locked(packs);
    int r = wait_written_locked(packs);
    mutex_unlock(&packs->lock);
    if (r < 0)
        return r;
    /* also if nothing is new: a batch may already name a promoted pack, and rely on it */
    r = packs->local->tier->ops->sync(packs->local->tier);
    if (r < 0)
        horizon_error(packs->horizon,
                      "nvme: the names of new packs cannot be made durable: %s; what is not on "
                      "NVMe stays in the stage; trying again in another directory",
                      strerror(-r));
    return r;
}

static void forget_pack_locked(struct packs *packs, struct new_pack *pack)
{
    check_held(&packs->lock);
    TAILQ_REMOVE(&packs->written, pack, link);
    room_promote_done(packs->room, pack->promoted);
    for (uint32_t i = 0; i < pack->count; i++) {
        struct fresh *fresh = fresh_find_locked(packs, &pack->entries[i].name);
        if (fresh && fresh->entry.pack == pack->id) {
            HASH_DEL(packs->fresh, fresh);
            free(fresh);
        }
    }
    new_pack_free(pack);
}

void packs_abandon(struct packs *packs)
{
    LOCK_SCOPE(&packs->lock);
    struct new_pack *pack, *next;
    for (pack = TAILQ_FIRST(&packs->written); pack; pack = next) {
        next = TAILQ_NEXT(pack, link);
        if (pack->state != PACK_FAILED)
            continue;
        forget_pack_locked(packs, pack);
    }
}

void packs_note_named(struct packs *packs, const uint64_t *ids, size_t count)
{
    LOCK_SCOPE(&packs->lock);
    struct new_pack *pack;
    TAILQ_FOREACH(pack, &packs->written, link)
    for (size_t i = 0; i < count; i++)
        pack->is_named = pack->is_named || ids[i] == pack->id;
}

void packs_retire_named(struct packs *packs)
{
    LOCK_SCOPE(&packs->lock);
    struct new_pack *pack, *next;
    for (pack = TAILQ_FIRST(&packs->written); pack; pack = next) {
        next = TAILQ_NEXT(pack, link);
        if (!pack->is_named)
            continue;
        check(pack->state == PACK_DURABLE && packs->new_bytes >= pack->length);
        packs->new_bytes -= pack->length;
        forget_pack_locked(packs, pack);
    }
}

/* Only the writeback thread retires packs, and recovery is single-threaded: so a pack found stays
 * valid while it is used. */
const struct new_pack *packs_find_written(struct packs *packs, uint64_t id)
{
    LOCK_SCOPE(&packs->lock);
    struct new_pack *pack;
    TAILQ_FOREACH(pack, &packs->written, link)
    if (pack->id == id && pack->state == PACK_DURABLE)
        return pack;
    return NULL;
}

bool packs_is_written(struct packs *packs, uint64_t id)
{
    return packs_find_written(packs, id) != NULL;
}

bool packs_have_leftovers(struct packs *packs)
{
    size_t count = 0, max = 0;
    struct new_pack *pack;
    mutex_lock(&packs->lock);
    TAILQ_FOREACH(pack, &packs->written, link)
    max++;
    uint64_t *ids = xcalloc(max, sizeof *ids);
    TAILQ_FOREACH(pack, &packs->written, link)
    if (pack->state == PACK_DURABLE && pack->promoted == 0)
        ids[count++] = pack->id;
    mutex_unlock(&packs->lock);
    bool found = false;
    for (size_t i = 0; i < count && !found; i++)
        found = !stage_uses_pack(packs->local->stage, ids[i]);
    free(ids);
    return found;
}

/* Adds a pack that a dead daemon finished and that no batch names. */
void packs_readd(struct packs *packs, uint64_t id, uint64_t length,
                 const struct chunk_entry *entries, uint32_t count)
{
    LOCK_SCOPE(&packs->lock);
    struct new_pack *pack;
    /* a log may name a pack twice: a compaction named it while its record was being appended */
    TAILQ_FOREACH(pack, &packs->written, link)
    if (pack->id == id)
        return;
    pack = xcalloc(1, sizeof *pack);
    *pack = (struct new_pack){
        .id = id, .length = length, .count = count, .state = PACK_DURABLE, .packs = packs};
    pack->entries = xcalloc(count, sizeof *pack->entries);
    for (uint32_t i = 0; i < count; i++) {
        pack->entries[i] = entries[i];
        pack->rests = pack->rests || entries[i].ref_count > 0;
        (void)add_fresh_locked(packs, &entries[i], true);
    }
    TAILQ_INSERT_TAIL(&packs->written, pack, link);
    packs->new_bytes += length;
}
