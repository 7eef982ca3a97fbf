// SPDX-License-Identifier: Apache-2.0
/* Sends a list of chunks: divided into packs, each filled, sent, and recorded in the view by one of
 * a few threads. */
#include <stdio.h>

#include "dense/layout.h"
#include "remote/upload.h"

#define RESCUES_MAX 1000u /* chunks searched elsewhere, per round */
#define RETRY_MS 1000
#define RETRY_REFUSED_MS 10000

/* The first packs of a large round are small: of this size, then each twice as large as the one
 * before; but not so small that they are merged later. */
#define RAMP_FIRST (SMALL_PACK_LEN + CHUNK_SIZE_MAX)
#define RAMP_BYTES_MIN (4ull * PACK_DATA_MAX) /* least size of such a round */

/* Is it certain that a retry would fail, too? */
static bool is_final(int error)
{
    return error == -ENOENT || error == -EBADMSG || error == -EUCLEAN || error == -ENOLINK;
}

/* Errors of this machine, or of the network, are not damage: nothing may be published as damaged
 * because of them. */
static bool may_pass(int error)
{
    return error == -ENOMEM || error == -EMFILE || error == -ENFILE ||
           tier_error_is_transient(error);
}

/* The memory of one sender, as in send_job(); if chunks have bases, with the bases of a chunk read
 * in the remote: stored, and decoded. */
static uint64_t sender_memory(const struct remote *remote)
{
    uint64_t pack =
        PACK_BUFFER_LEN + 3 * CHUNK_SIZE_MAX + PACK_ENTRIES_MAX * sizeof(struct chunk_entry);
    bool has_bases = remote->store->local.sb.incompat & SUPERBLOCK_INCOMPAT_DENSE;
    return pack + (has_bases ? 2 * CHUNK_REFS_MAX * CHUNK_SIZE_MAX : 0);
}

uint64_t upload_memory(const struct remote *remote)
{
    if (remote->options.read_only)
        return 0;
    return remote->options.upload_threads * sender_memory(remote) +
           PASS_CHUNKS * sizeof(struct upload_chunk) + LAYOUT_BYTES;
}

struct sending {
    struct upload *up;
    uint64_t id;
    struct pack_buffer buffer;
    uint8_t *stored, *raw;
    struct remote_window window; /* is_relocating */
    struct dense_work *dense;    /* NULL: chunks are sent as read */
    struct chunk_entry *entries;
    uint32_t count;
};

static int put_until_done(struct remote *remote, const char *object, const void *buf, size_t len)
{
    for (;;) {
        int r = remote->prefix.tier->ops->put(remote->prefix.tier, object, buf, len);
        if (r == 0) {
            remote_works(remote);
            return 0;
        }
        if (r == -ECANCELED || remote_is_stopping(remote))
            return -ECANCELED;
        remote_error(remote, r, "storing %s failed (%s)", object, strerror(-r));
        if (!remote_pause(remote, tier_error_is_transient(r) ? RETRY_MS : RETRY_REFUSED_MS))
            return -ECANCELED;
    }
}

int upload_wait_for_view_room(struct remote *remote)
{
    int r;
    while ((r = room_for_view(remote->store->commit.room)) < 0) {
        remote_error(remote, 0, "the disk of %s is full: the upload waits",
                     remote->store->local.path);
        if (!remote_pause(remote, RETRY_MS))
            return -ECANCELED;
    }
    return 0;
}

static int send_pack(struct sending *s)
{
    struct remote *remote = s->up->remote;
    struct store *store = remote->store;
    char object[32];
    if (s->count == 0)
        return 0;
    uint64_t len = pack_finish(store->local.sb.history, s->id, &s->buffer, s->entries, s->count);
    pack_object_name(s->id, object);
    if (!remote_limit_wait(remote, len))
        return -ECANCELED;
    TRY(put_until_done(remote, object, s->buffer.bytes, len));
    TRY(upload_wait_for_view_room(remote));
    TRY(view_remote_placed(store->local.view, s->id, len, s->entries, s->count));
    atomic_fetch_add(&remote->prefix.uploaded_total, len);
    mutex_lock(&remote->shared.lock);
    remote->shared.target_bytes -= min_u64(remote->shared.target_bytes, s->buffer.data_len);
    mutex_unlock(&remote->shared.lock);
    s->count = 0;
    return 0;
}

static void begin_pack(struct sending *s)
{
    struct store *store = s->up->remote->store;
    s->id = packs_new_id(store->commit.packs);
    pack_begin(store->local.sb.history, s->id, &s->buffer);
}

/* Before a chunk is published as missing, searches for it elsewhere; not for whole packs of chunks,
 * as each search is slow. */
static bool rescue_pending(struct sending *s, const struct chunk_entry *pending,
                           struct chunk_entry *ret)
{
    *ret = *pending;
    return atomic_fetch_add(&s->up->rescues, 1) < RESCUES_MAX &&
           rescue_chunk(s->up->remote->store, ret, s->stored, s->raw);
}

static void count_chunk(struct remote *remote, const struct chunk_entry *entry)
{
    if (entry->encoding >= CHUNK_ENCODINGS)
        return; /* of a later version, moved unchanged */
    atomic_fetch_add(&remote->encoded.raw_bytes[entry->encoding], entry->raw_len);
    atomic_fetch_add(&remote->encoded.stored_bytes[entry->encoding], entry->stored_len);
}

/* Reads a chunk: *entry gets its stored form, s->stored and s->raw its bytes. *ret_skipped: it
 * cannot be read, and is skipped. */
static int read_chunk(struct sending *s, const struct chunk_entry *pending,
                      struct chunk_entry *entry, bool *ret_skipped)
{
    struct store *store = s->up->remote->store;
    bool is_relocating = s->up->is_relocating;
    *entry = *pending;
    *ret_skipped = false;
    int r = is_relocating ? upload_read_again(store, entry, s->stored, s->raw, &s->window)
                          : upload_read_chunk(store, entry, s->stored, s->raw);
    if (r < 0 && is_final(r) && rescue_pending(s, pending, entry)) {
        (void)heal_give(store->commit.heal, &entry->name, s->raw, entry->raw_len);
        r = 0;
    }
    if (r == 0 || r == -ECANCELED || (is_relocating ? !is_final(r) : may_pass(r)))
        return r;
    *ret_skipped = true;
    /* nothing can be sent; the head records how often the chunk is referred to, and reads of it
     * return EIO there as here */
    if (is_relocating)
        atomic_fetch_add(&s->up->unread, 1);
    else {
        damage_note_local(store->commit.damage, &pending->name);
        remote_error(
            remote_of(store), 0,
            "a chunk cannot be read from NVMe (%s): its bytes will be missing in the remote",
            strerror(-r));
    }
    return 0;
}

static int add_chunk(struct sending *s, struct chunk_entry *entry, const uint8_t *stored)
{
    struct store *store = s->up->remote->store;
    struct iovec iov = {(void *)(uintptr_t)stored, entry->stored_len};
    int r = 0;
    if (s->count &&
        (pack_end_with(s->buffer.data_len, entry) > PACK_DATA_MAX || s->count == PACK_ENTRIES_MAX))
        r = send_pack(s);
    if (r < 0)
        return r;
    if (s->count == 0)
        begin_pack(s);
    pack_place(&store->local, s->id, &s->buffer, entry, &iov, 1);
    s->entries[s->count++] = *entry;
    count_chunk(s->up->remote, entry);
    return 0;
}

static int send_chunk(struct sending *s, const struct chunk_entry *pending)
{
    struct chunk_entry entry;
    bool is_skipped;
    TRY(read_chunk(s, pending, &entry, &is_skipped));
    if (is_skipped)
        return 0;
    const struct dense_pack pack = {s->entries, s->count};
    const uint8_t *dense =
        s->dense ? dense_encode(s->dense, s->up->phase, pack, &entry, s->raw) : NULL;
    return add_chunk(s, &entry, dense ? dense : s->stored);
}

/* A chunk of another unit follows: sends the pack unless it is small. An open pack has bases for
 * chunks of several units, and continues. */
static int end_unit(struct sending *s)
{
    check(!s->up->open || s == s->up->open);
    bool ends = !s->up->is_relocating && s != s->up->open && s->buffer.data_len >= SMALL_PACK_LEN;
    return ends && s->count ? send_pack(s) : 0;
}

/* Only a few senders read at a time: if all did, no pack would be complete before the time of NVMe
 * and processors for all of them is used, and the remote would idle. Reading chunks from the remote
 * is different: it mostly waits for latency. Dense encoding takes so much CPU time that it runs
 * with writeback's low priority, unless a caller waits for the remote. */
static int fill_pack(struct sending *s, size_t pack)
{
    struct upload *up = s->up;
    int r = 0;
    if (!up->is_relocating)
        while (sem_wait(&up->fillers) < 0)
            ;
    for (size_t i = up->packs[pack]; i < up->packs[pack + 1] && r == 0; i++) {
        if (s->dense)
            priority_set_own(up->remote->store->commit.priority, !remote_is_urged(up->remote));
        if (i > up->packs[pack] && up->list[i].unit != up->list[i - 1].unit)
            r = end_unit(s);
        if (r == 0)
            r = send_chunk(s, &up->list[i].entry);
    }
    if (s->dense)
        priority_set_own(up->remote->store->commit.priority, false);
    if (!up->is_relocating)
        (void)sem_post(&up->fillers);
    return r;
}

static struct sending *sending_new(struct upload *up)
{
    struct sending *s = xcalloc(1, sizeof *s);
    s->up = up;
    s->buffer.bytes = xmalloc_large(PACK_BUFFER_LEN);
    s->stored = xmalloc(CHUNK_SIZE_MAX);
    s->raw = xmalloc(CHUNK_SIZE_MAX);
    s->window.bytes = up->is_relocating ? xmalloc(CHUNK_SIZE_MAX) : NULL;
    s->entries = xcalloc(PACK_ENTRIES_MAX, sizeof *s->entries);
    if (up->dense && !up->is_relocating)
        s->dense = dense_work_new(up->dense);
    return s;
}

static void sending_free(struct sending *s)
{
    free(s->buffer.bytes);
    free(s->stored);
    free(s->raw);
    free(s->window.bytes);
    free(s->entries);
    dense_work_free(s->dense);
    free(s);
}

static void send_job(void *arg)
{
    struct upload *up = arg;
    struct sending *s = sending_new(up);
    int r = 0;
    for (;;) {
        size_t pack = atomic_fetch_add(&up->next, 1);
        if (pack >= up->pack_count || r < 0 || atomic_load(&up->error) < 0)
            break;
        r = fill_pack(s, pack);
        if (r == 0)
            r = send_pack(s);
    }
    if (r < 0)
        atomic_store(&up->error, r);
    sending_free(s);
}

/* The only pack of the list continues the open one, and stays open. */
static void fill_open_job(void *arg)
{
    struct upload *up = arg;
    check(up->open && up->pack_count == 1 && !up->is_relocating);
    int r = fill_pack(up->open, 0);
    if (r < 0)
        atomic_store(&up->error, r);
}

/* Chunks without a unit are ordered by their places on NVMe. */
static int compare_places(const void *a, const void *b)
{
    const struct upload_chunk *x = a, *y = b;
    if (x->unit != y->unit)
        return x->unit < y->unit ? -1 : 1;
    if (x->place != y->place)
        return x->place < y->place ? -1 : 1;
    if (x->entry.pack != y->entry.pack)
        return x->entry.pack < y->entry.pack ? -1 : 1;
    return x->entry.offset < y->entry.offset ? -1 : x->entry.offset > y->entry.offset;
}

/* Does the list begin a large round? */
static bool begins_with_ramp(const struct upload *up)
{
    return !up->is_relocating && !up->has_sent && up->pending_bytes >= RAMP_BYTES_MIN;
}

/* Largest end of the data of the list's pack `number`. Nothing is sent before a pack is full, and
 * dense encoding fills a large one no faster than many networks send it. */
static uint64_t pack_data_max(size_t number, bool ramp)
{
    return ramp && number < 3 ? RAMP_FIRST << number : PACK_DATA_MAX;
}

/* The length from which a pack may end before a chunk of another unit: then it is not small in its
 * stored form. The list has lengths on NVMe, and differences are shorter. */
static uint64_t unit_end_min(const struct upload *up)
{
    return (uint64_t)(up->dense ? up->phase->shrinks : 1) * SMALL_PACK_LEN;
}

/* The state of the division. */
struct division {
    uint64_t bytes, max; /* end of the last pack's data, and its limit */
    size_t first;        /* index of its first chunk */
    bool ramp;
};

/* Where the data of a unit would end if its chunks from this one on were in one pack. */
static uint64_t unit_bytes(const struct upload *up, size_t first)
{
    uint64_t bytes = PACK_HEADER_LEN;
    for (size_t i = first; i < up->count && up->list[i].unit == up->list[first].unit; i++)
        bytes = pack_end_with(bytes, &up->list[i].entry);
    return bytes;
}

/* Does a pack end before the unit that begins at chunk `i`? A unit that fits into one pack is put
 * into one, unless it follows a small one. */
static bool ends_before_unit(const struct upload *up, const struct division *d, size_t i)
{
    if (!up->is_relocating && d->bytes >= unit_end_min(up))
        return true;
    return d->bytes >= SMALL_PACK_LEN && d->bytes + unit_bytes(up, i) > PACK_DATA_MAX;
}

static bool begins_pack(const struct upload *up, const struct division *d, size_t i)
{
    if (i == 0 || i - d->first == PACK_ENTRIES_MAX)
        return true;
    if (up->list[i].unit != up->list[i - 1].unit && ends_before_unit(up, d, i))
        return true;
    return pack_end_with(d->bytes, &up->list[i].entry) > d->max;
}

/* The last part of a unit must not become a small pack, which would be merged later: so the pack
 * before it is shorter. */
static void begin_in_division(struct upload *up, struct division *d, size_t i)
{
    uint64_t left = unit_bytes(up, i);
    check(i < up->count && left > PACK_HEADER_LEN);
    d->first = i;
    d->bytes = PACK_HEADER_LEN;
    d->max = PACK_DATA_MAX;
    if (left > PACK_DATA_MAX && left < PACK_DATA_MAX + SMALL_PACK_LEN)
        d->max = left / 2 + CHUNK_SIZE_MAX;
    if (left > PACK_DATA_MAX)
        d->max = min_u64(d->max, pack_data_max(up->pack_count, d->ramp));
    up->packs[up->pack_count++] = i;
}

/* Chunks of one unit go into as few packs as possible, so that a lost pack damages few units, a
 * reader needs few requests, and no sender is left with a small one. A chunk that is re-encoded
 * later may make a pack overflow into a second one. */
static void divide_into_packs(struct upload *up)
{
    struct division d = {.ramp = begins_with_ramp(up)};
    check(!up->packs);
    up->packs = xcalloc(up->count + 1, sizeof *up->packs);
    up->pack_count = 0;
    for (size_t i = 0; i < up->count; i++) {
        if (begins_pack(up, &d, i))
            begin_in_division(up, &d, i);
        d.bytes = pack_end_with(d.bytes, &up->list[i].entry);
    }
    check(up->pack_count <= up->count);
    up->packs[up->pack_count] = up->count;
}

int upload_send_open(struct upload *up)
{
    int r = up->open ? send_pack(up->open) : 0;
    upload_drop_open(up);
    return r;
}

void upload_drop_open(struct upload *up)
{
    if (up->open)
        sending_free(up->open);
    up->open = NULL;
}

/* Without bases no phase follows. */
static int send_divided(struct upload *up)
{
    struct remote *remote = up->remote;
    if (up->dense && !up->is_relocating && up->pack_count == 1) {
        if (!up->open)
            up->open = sending_new(up);
        pool_submit(remote->senders, fill_open_job, up);
    } else {
        TRY(upload_send_open(up));
        unsigned jobs = (unsigned)min_u64(up->pack_count, remote->options.upload_threads);
        for (unsigned i = 0; i < jobs; i++)
            pool_submit(remote->senders, send_job, up);
    }
    pool_drain(remote->senders);
    return atomic_load(&up->error);
}

int upload_send_list(struct upload *up)
{
    qsort(up->list, up->count, sizeof *up->list, compare_places);
    divide_into_packs(up);
    atomic_store(&up->next, 0);
    check(sem_init(&up->fillers, 0, FILLING_MAX) == 0);
    int r = send_divided(up);
    up->has_sent |= !up->is_relocating;
    (void)sem_destroy(&up->fillers);
    free(up->packs);
    up->packs = NULL;
    return r;
}
