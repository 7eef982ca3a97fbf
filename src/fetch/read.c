// SPDX-License-Identifier: Apache-2.0
/* Reading what is durable, from where it is nearest: a small cache of decoded chunks, which serves requests that are smaller than a chunk, memory
 * that was fetched into, NVMe, then the remote, which also gives what is damaged on NVMe. */
#include "base/cause.h"
#include "base/log.h"
#include "fetch/internal.h"

/* --- life ------------------------------------------------------------------------------------------------------------- */

struct fetch *fetch_new(void)
{
    struct fetch *fetch = xcalloc(1, sizeof *fetch);
    mutex_init(&fetch->cache.lock, LOCK_LEAF);
    mutex_init(&fetch->evict.lock, LOCK_LEAF);
    cond_init(&fetch->evict.changed);
    fetch->evict.pinned_bytes = UINT64_MAX;
    fetch->evict.pins_asked = true;
    return fetch;
}

void fetch_free(struct fetch *fetch)
{
    if (fetch->readers)
        pool_free(fetch->readers);
    pull_free(fetch->pull);
    for (size_t i = 0; i < CHUNK_CACHE_ENTRIES; i++)
        free(fetch->cache.entries[i].bytes);
    mutex_done(&fetch->cache.lock);
    mutex_done(&fetch->evict.lock);
    (void)pthread_cond_destroy(&fetch->evict.changed);
    free(fetch);
}

int fetch_start(struct store *store)
{
    int r = pool_new("cairn-read", READ_THREADS, 1024, NULL, NULL, &store->fetch->readers);
    return r == 0 && store->remote ? pull_start(store) : r;
}

/* --- chunks ----------------------------------------------------------------------------------------------------------- */

static bool cache_read(struct store *store, const struct chunk_name *name, uint64_t offset, void *buf, size_t length,
                       int *ret)
{
    LOCK_SCOPE(&store->fetch->cache.lock);
    for (size_t i = 0; i < CHUNK_CACHE_ENTRIES; i++) {
        struct cached_chunk *cached = &store->fetch->cache.entries[i];
        if (cached->len == 0 || !chunk_name_equal(&cached->name, name))
            continue;
        cached->used = ++store->fetch->cache.clock;
        *ret = offset + length <= cached->len ? 0 : -EUCLEAN;
        if (*ret == 0)
            memcpy(buf, cached->bytes + offset, length);
        return true;
    }
    return false;
}

static void cache_put(struct store *store, const struct chunk_name *name, const void *bytes, uint32_t len)
{
    LOCK_SCOPE(&store->fetch->cache.lock);
    struct cached_chunk *oldest = &store->fetch->cache.entries[0];
    for (size_t i = 1; i < CHUNK_CACHE_ENTRIES; i++)
        if (store->fetch->cache.entries[i].used < oldest->used)
            oldest = &store->fetch->cache.entries[i];
    if (!oldest->bytes)
        oldest->bytes = xmalloc(CHUNK_SIZE_MAX);
    oldest->name = *name;
    oldest->len = len;
    oldest->used = ++store->fetch->cache.clock;
    memcpy(oldest->bytes, bytes, len);
}

/* Not on NVMe, or damaged there. */
static int read_far_part(struct store *store, const struct chunk_name *name, uint64_t offset, void *buf, size_t length,
                         enum store_reach reach, int near)
{
    struct pull *pull = pull_of(store);
    struct chunk_entry entry;
    if (pull_place(store, name, &entry) < 0)
        return near;
    if (!pull)
        return near == -ENOENT ? -ENOTCONN : near;
    if (reach == STORE_REACH_NEAR)
        return -EREMOTE;
    if (near != -ENOENT)
        damage_note_local(store, name);
    int r = pull_read(pull, name, offset, buf, length);
    if (r == 0 && near != -ENOENT)
        log_warn("a chunk is damaged on NVMe (%s): read from %s instead, and stored anew", damage_describe(near),
                 store->remote->name);
    return r < 0 && r != -EHOSTDOWN && near != -ENOENT ? near : r;
}

static int read_chunk_part(struct store *store, const struct chunk_name *name, uint64_t offset, void *buf,
                           size_t length, enum store_reach reach)
{
    int r;
    struct pull *pull = pull_of(store);
    if (cache_read(store, name, offset, buf, length, &r))
        return r;
    if (pull && pull_read_ready(pull, name, offset, buf, length, &r))
        return r;
    uint8_t *raw = thread_buffer(THREAD_BUFFER_FETCH, CHUNK_SIZE_MAX);
    uint32_t len = 0;
    r = local_read_chunk(store, name, raw, &len);
    if (r < 0)
        return read_far_part(store, name, offset, buf, length, reach, r);
    if (offset + length > len)
        return -EUCLEAN;
    memcpy(buf, raw + offset, length);
    /* Whole chunks are read by streams: these come once. */
    if (length < len)
        cache_put(store, name, raw, len);
    return 0;
}

/* What an old head names may be deleted: who follows, and lags, has to look before he calls it damage. */
static bool is_of_old_state(struct store *store, uint64_t turn, enum store_reach reach)
{
    if (turn == atomic_load(&store->turn) && reach == STORE_REACH_FAR)
        follow_look_now(store);
    return turn != atomic_load(&store->turn);
}

/* What went wrong with the remote may pass: it is told in the status, and is no damage. */
static int report(struct store *store, uint64_t ino, const struct chunk_name *name, int error, uint64_t turn,
                  enum store_reach reach)
{
    if (error == -EREMOTE)
        return error;
    if (error != -EHOSTDOWN && is_of_old_state(store, turn, reach))
        return -ESTALE;
    if (error != -EHOSTDOWN) {
        damage_note(store, ino, name, error);
        return -EIO;
    }
    struct remote_status remote;
    store_remote_status(store, &remote);
    cause_note("it is not on NVMe, and the remote did not give it: %s", remote.error);
    return -EIO;
}

int store_read_chunk(struct store *store, uint64_t ino, const struct chunk_name *name, uint64_t offset, void *buf,
                     size_t length, enum store_reach reach)
{
    uint64_t turn = atomic_load(&store->turn);
    int r = read_chunk_part(store, name, offset, buf, length, reach);
    return r < 0 ? report(store, ino, name, r, turn, reach) : 0;
}

/* --- files ------------------------------------------------------------------------------------------------------------ */

struct reading {
    enum store_reach reach;
    struct chunk_name bad_chunk; /* that was read last */
};

static int read_chunk_below(struct store *store, uint64_t ino, const struct chunk_name *name, uint64_t offset, void *buf, size_t length, void *arg)
{
    (void)ino;
    struct reading *rd = arg;
    rd->bad_chunk = *name;
    return read_chunk_part(store, name, offset, buf, length, rd->reach);
}

int store_read_below(struct store *store, uint64_t ino, uint64_t offset, void *buf, size_t length, enum store_reach reach, size_t *ret_good)
{
    struct reading rd = {.reach = reach};
    struct pull *pull = pull_of(store);
    uint64_t turn = atomic_load(&store->turn);
    if (pull)
        prefetch_note_read(pull, ino, offset, length);
    int r = content_read_below(store, ino, offset, buf, length, read_chunk_below, &rd, ret_good);
    if (r == -EREMOTE && pull)
        prefetch_note_miss(pull, ino);
    return r < 0 ? report(store, ino, &rd.bad_chunk, r, turn, reach) : 0;
}

static int read_staged_chunk(struct store *store, uint64_t ino, const struct chunk_name *name, uint64_t offset, void *buf, size_t length, void *arg)
{
    return store_read_chunk(store, ino, name, offset, buf, length, *(enum store_reach *)arg);
}

static int read_below(struct store *store, uint64_t ino, uint64_t offset, void *buf, size_t length, void *arg, size_t *ret_good)
{
    return store_read_below(store, ino, offset, buf, length, *(enum store_reach *)arg, ret_good);
}

int store_read(struct store *store, uint64_t ino, uint64_t offset, void *buf, size_t length, enum store_reach reach, size_t *ret_good)
{
    const struct content_reader reader = {.chunk = read_staged_chunk, .below = read_below, .arg = &reach};
    return content_read(store, ino, offset, buf, length, &reader, ret_good);
}

void store_submit_read(struct store *store, enum store_reach reach, void (*job)(void *arg), void *arg)
{
    struct pull *pull = pull_of(store);
    pool_submit(reach == STORE_REACH_FAR && pull ? pull->readers : store->fetch->readers, job, arg);
}

void store_end_reads(struct store *store)
{
    struct pull *pull = pull_of(store);
    /* A read moves on from one to the next, and not back. */
    if (pull)
        pull_await_waiters(pull);
    if (store->fetch->readers)
        pool_drain(store->fetch->readers);
    if (pull && pull->readers)
        pool_drain(pull->readers);
}

/* --- what a file's content is, by name ---------------------------------------------------------------------------------- */

struct summary {
    struct store *store;
    struct iovec *iov;
    struct extent *extents;
    size_t count, max;
    uint64_t stored;
};

static int add_summary(const struct view_extent *part, void *arg)
{
    struct summary *sum = arg;
    struct chunk_entry entry;
    if (part->extent.kind == EXTENT_CHUNK && (local_find_chunk(sum->store, &part->extent.chunk, &entry) == 0 ||
                                              pull_place(sum->store, &part->extent.chunk, &entry) == 0))
        sum->stored += entry.stored_len;
    if (part->extent.kind == EXTENT_INLINE)
        sum->stored += part->extent.length;
    if (sum->count == sum->max) {
        sum->max = sum->max ? 2 * sum->max : 64;
        sum->extents = xrealloc(sum->extents, sum->max * sizeof *sum->extents);
    }
    struct extent *e = &sum->extents[sum->count++];
    memset(e, 0, sizeof *e);
    e->offset = part->extent.offset;
    e->length = part->extent.length;
    e->kind = part->extent.kind;
    e->chunk_offset = part->extent.chunk_offset;
    if (e->kind == EXTENT_CHUNK)
        e->chunk = part->extent.chunk;
    if (e->kind == EXTENT_INLINE) {
        /* Inline bytes are named like a chunk, so that the root stands for the content. */
        struct iovec iov = {(void *)(uintptr_t)part->bytes, part->extent.length};
        e->chunk = hash_chunk(&sum->store->sb.key, &iov, 1);
    }
    return 0;
}

int store_content_root(struct store *store, uint64_t ino, uint8_t ret_hash[32])
{
    struct summary sum = {.store = store};
    int r = view_extents(store->view, ino, 0, 0, INT64_MAX, add_summary, &sum);
    struct iovec iov = {sum.extents, sum.count * sizeof *sum.extents};
    if (r == 0)
        hash_parts(&iov, 1, ret_hash);
    free(sum.extents);
    return r;
}

int store_stored_bytes(struct store *store, uint64_t ino, uint64_t *ret_bytes)
{
    struct summary sum = {.store = store};
    int r = view_extents(store->view, ino, 0, 0, INT64_MAX, add_summary, &sum);
    free(sum.extents);
    *ret_bytes = sum.stored;
    return r;
}
