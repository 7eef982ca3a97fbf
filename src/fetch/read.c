// SPDX-License-Identifier: Apache-2.0
/* Reading what is durable: chunks are read whole, decoded, and verified against their names before a byte of them is
 * given to anybody. A small cache of decoded chunks serves requests that are smaller than a chunk. NVMe is asked first, then the
 * remote, which also gives what is damaged on NVMe. */
#include <stdio.h>

#include "base/cause.h"
#include "base/hex.h"
#include "base/log.h"
#include "codec/encode.h"
#include "fetch/internal.h"

#define READ_TRIES 3 /* a pack may be compacted away between looking up a chunk and reading it */

void fetch_init(struct store *store)
{
    mutex_init(&store->cache.lock, LOCK_LEAF);
}

void fetch_done(struct store *store)
{
    for (size_t i = 0; i < CHUNK_CACHE_ENTRIES; i++)
        free(store->cache.entries[i].bytes);
    for (unsigned i = 0; i < store->cache.damage_count; i++) {
        free(store->cache.damage[i].path);
        free(store->cache.damage[i].what);
    }
    mutex_done(&store->cache.lock);
}

/* --- damage ----------------------------------------------------------------------------------------------------------- */

static const char *describe_damage(int error)
{
    switch (error) {
    case -EBADMSG:
    case -EUCLEAN:
        return "damaged";
    case -ENODATA:
        return "its pack is missing";
    case -ENOTCONN:
        return "it lies in the remote only, and this mount has none: mount with --remote";
    default:
        return strerror(-error);
    }
}

void note_damage(struct store *store, uint64_t ino, const struct chunk_name *name, int error)
{
    _cleanup_free_ char *path = ns_path(store->ns, ino);
    char hex[17];
    hex_print(hex, name->bytes, 8);
    _cleanup_free_ char *what = xasprintf("chunk %s: %s", hex, describe_damage(error));
    bool known = false;
    mutex_lock(&store->cache.lock);
    for (unsigned i = 0; i < store->cache.damage_count; i++)
        known = known || (strcmp(store->cache.damage[i].path, path) == 0 &&
                          strcmp(store->cache.damage[i].what, what) == 0);
    if (!known && store->cache.damage_count < DAMAGE_MAX)
        store->cache.damage[store->cache.damage_count++] = (struct damage){xstrdup(path), xstrdup(what), *name};
    mutex_unlock(&store->cache.lock);
    cause_note("%s; 'cairn scrub' heals what another tier has, else restore the file", what);
    if (!known)
        log_error("%s: %s; these bytes read as EIO", path, what);
}

/* What is known to be damaged is stored anew by whoever has it; it is not relied on until then. */
static void note_sick(struct store *store, const struct chunk_name *name)
{
    LOCK_SCOPE(&store->cache.lock);
    for (unsigned i = 0; i < store->cache.sick_count; i++)
        if (chunk_name_equal(&store->cache.sick[i], name))
            return;
    if (store->cache.sick_count < SICK_MAX)
        store->cache.sick[store->cache.sick_count++] = *name;
}

void cure(struct store *store, const struct chunk_name *name)
{
    LOCK_SCOPE(&store->cache.lock);
    for (unsigned i = 0; i < store->cache.sick_count; i++) {
        if (!chunk_name_equal(&store->cache.sick[i], name))
            continue;
        store->cache.sick[i] = store->cache.sick[--store->cache.sick_count];
        atomic_fetch_add(&store->healed_total, 1);
        return;
    }
}

bool is_damaged(struct store *store, const struct chunk_name *name)
{
    LOCK_SCOPE(&store->cache.lock);
    for (unsigned i = 0; i < store->cache.sick_count; i++)
        if (chunk_name_equal(&store->cache.sick[i], name))
            return true;
    for (unsigned i = 0; i < store->cache.damage_count; i++)
        if (chunk_name_equal(&store->cache.damage[i].chunk, name))
            return true;
    return false;
}

void store_damage(struct store *store, void (*fn)(const char *path, const char *what, void *arg), void *arg)
{
    LOCK_SCOPE(&store->cache.lock);
    for (unsigned i = 0; i < store->cache.damage_count; i++)
        fn(store->cache.damage[i].path, store->cache.damage[i].what, arg);
}

/* --- chunks ----------------------------------------------------------------------------------------------------------- */

static bool cache_read(struct store *store, const struct chunk_name *name, uint64_t offset, void *buf, size_t length,
                       int *ret)
{
    LOCK_SCOPE(&store->cache.lock);
    for (size_t i = 0; i < CHUNK_CACHE_ENTRIES; i++) {
        struct cached_chunk *cached = &store->cache.entries[i];
        if (cached->len == 0 || !chunk_name_equal(&cached->name, name))
            continue;
        cached->used = ++store->cache.clock;
        *ret = offset + length <= cached->len ? 0 : -EUCLEAN;
        if (*ret == 0)
            memcpy(buf, cached->bytes + offset, length);
        return true;
    }
    return false;
}

static void cache_put(struct store *store, const struct chunk_name *name, const void *bytes, uint32_t len)
{
    LOCK_SCOPE(&store->cache.lock);
    struct cached_chunk *oldest = &store->cache.entries[0];
    for (size_t i = 1; i < CHUNK_CACHE_ENTRIES; i++)
        if (store->cache.entries[i].used < oldest->used)
            oldest = &store->cache.entries[i];
    if (!oldest->bytes)
        oldest->bytes = xmalloc(CHUNK_SIZE_MAX);
    oldest->name = *name;
    oldest->len = len;
    oldest->used = ++store->cache.clock;
    memcpy(oldest->bytes, bytes, len);
}

static int find_chunk(struct store *store, const struct chunk_name *name, struct chunk_entry *ret)
{
    uint64_t refs;
    if (packs_find_fresh(store, name, ret) != 0)
        return 0;
    int r = view_chunk(store->view, name, ret, &refs);
    return r == 0 && ret->pack == 0 ? -ENOENT : r;
}

static int read_near(struct store *store, const struct chunk_entry *entry, void *buf)
{
    char object[32];
    if (entry->raw_len == 0 || entry->raw_len > CHUNK_SIZE_MAX || entry->stored_len > CHUNK_SIZE_MAX)
        return -EUCLEAN;
    pack_object_name(entry->pack, object);
    uint8_t *stored = xmalloc(entry->stored_len);
    int r = store->tier->ops->get_range(store->tier, object, entry->offset, stored, entry->stored_len);
    if (r == 0)
        r = chunk_decode(entry->encoding, stored, entry->stored_len, buf, entry->raw_len);
    free(stored);
    if (r < 0)
        return r;
    evict_touch(store, entry->pack);
    struct iovec iov = {buf, entry->raw_len};
    struct chunk_name actual = hash_chunk(&store->sb.key, &iov, 1);
    return chunk_name_equal(&actual, &entry->name) ? 0 : -EBADMSG;
}

int fetch_chunk(struct store *store, const struct chunk_name *name, void *buf, uint32_t *ret_len)
{
    for (int try = 0; try < READ_TRIES; try++) {
        struct chunk_entry entry;
        int r = find_chunk(store, name, &entry);
        if (r < 0)
            return r;
        *ret_len = entry.raw_len;
        r = read_near(store, &entry, buf);
        if (r != -ENOENT) /* it may have left the pack since we asked */
            return r;
    }
    return -ENODATA;
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
        note_sick(store, name);
    int r = pull_read(pull, name, offset, buf, length);
    if (r == 0 && near != -ENOENT)
        log_warn("a chunk is damaged on NVMe (%s): read from %s instead, and stored anew", describe_damage(near),
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
    r = fetch_chunk(store, name, raw, &len);
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
        note_damage(store, ino, name, error);
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
    struct store *store;
    enum store_reach reach;
    uint64_t ino, offset;
    uint8_t *buf;
    size_t good;
    struct chunk_name bad_chunk;
};

static int read_part(const struct view_extent *part, void *arg)
{
    struct reading *rd = arg;
    const struct extent *e = &part->extent;
    uint8_t *to = rd->buf + (e->offset - rd->offset);
    int r = 0;
    if (e->kind == EXTENT_HOLE) {
        memset(to, 0, e->length);
    } else if (e->kind == EXTENT_INLINE) {
        memcpy(to, part->bytes, e->length);
    } else if (e->kind == EXTENT_CHUNK) {
        rd->bad_chunk = e->chunk;
        r = read_chunk_part(rd->store, &e->chunk, e->chunk_offset, to, e->length, rd->reach);
        if (r == -ENOENT)
            r = -EAGAIN; /* moved or superseded meanwhile: look again */
    }
    if (r == 0)
        rd->good = e->offset + e->length - rd->offset;
    return r;
}

int store_read_below(struct store *store, uint64_t ino, uint64_t offset, void *buf, size_t length,
                     enum store_reach reach, size_t *ret_good)
{
    struct reading rd = {.store = store, .reach = reach, .ino = ino, .offset = offset, .buf = buf};
    struct pull *pull = pull_of(store);
    uint64_t turn = atomic_load(&store->turn);
    int r = -EAGAIN;
    if (pull)
        prefetch_note_read(pull, ino, offset, length);
    for (int try = 0; try < READ_TRIES && r == -EAGAIN; try++) {
        rd.good = 0;
        r = view_extents(store->view, ino, 0, offset, length, read_part, &rd);
    }
    *ret_good = rd.good;
    if (r == 0) /* past the end of the file */
        memset((uint8_t *)buf + rd.good, 0, length - rd.good);
    if (r == -ENOENT) {
        /* The file was made after the view: all of it is in the stage, and this is a hole. */
        memset(buf, 0, length);
        *ret_good = length;
        return 0;
    }
    if (r == -EREMOTE && pull)
        prefetch_note_miss(pull, ino);
    if (r < 0)
        return report(store, ino, &rd.bad_chunk, r == -EAGAIN ? -ENOENT : r, turn, reach);
    *ret_good = length;
    return 0;
}

static int read_stage_part(struct store *store, uint64_t ino, const struct stage_part *part, uint8_t *buf, enum store_reach reach,
                           size_t *ret_good)
{
    *ret_good = 0;
    switch (part->kind) {
    case PART_MEMORY:
        memcpy(buf, part->memory, part->length);
        return 0;
    case PART_HOLE:
        memset(buf, 0, part->length);
        return 0;
    case PART_CHUNK:
        return store_read_chunk(store, ino, &part->name, part->chunk_offset, buf, part->length, reach);
    case PART_BELOW:
        return store_read_below(store, ino, part->offset, buf, part->length, reach, ret_good);
    }
    return -EIO;
}

int store_read(struct store *store, uint64_t ino, uint64_t offset, void *buf, size_t length, enum store_reach reach, size_t *ret_good)
{
    struct stage_part parts[64];
    size_t done = 0;
    int r = 0;
    while (r == 0 && done < length) {
        size_t count = stage_read(store->stage, ino, offset + done, length - done, parts, ARRAY_LEN(parts));
        for (size_t i = 0; i < count && r == 0; i++) {
            size_t good;
            r = read_stage_part(store, ino, &parts[i], (uint8_t *)buf + done, reach, &good);
            done += r == 0 ? parts[i].length : good;
        }
        stage_unpin_parts(store->stage, parts, count);
    }
    *ret_good = done;
    return r;
}

void store_submit_read(struct store *store, enum store_reach reach, void (*job)(void *arg), void *arg)
{
    struct pull *pull = pull_of(store);
    pool_submit(reach == STORE_REACH_FAR && pull ? pull->readers : store->readers, job, arg);
}

void store_end_reads(struct store *store)
{
    struct pull *pull = pull_of(store);
    /* A read moves on from one to the next, and not back. */
    if (pull)
        pull_await_waiters(pull);
    if (store->readers)
        pool_drain(store->readers);
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
    if (part->extent.kind == EXTENT_CHUNK && (find_chunk(sum->store, &part->extent.chunk, &entry) == 0 ||
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
