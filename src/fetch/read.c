// SPDX-License-Identifier: Apache-2.0
/* Start and end of reading, and the content of files by name. plan.c reads files. */
#include "base/vector.h"
#include "dense/dense.h"
#include "fetch/pull.h"

/* --- life ------------------------------------------------------------------------------------- */

struct fetch *fetch_new(void)
{
    struct fetch *fetch = xcalloc(1, sizeof *fetch);
    fetch->read_threads = read_threads_by_cores(sysconf(_SC_NPROCESSORS_ONLN));
    decoded_init(&fetch->decoded);
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
    decoded_done(&fetch->decoded);
    mutex_done(&fetch->evict.lock);
    (void)pthread_cond_destroy(&fetch->evict.changed);
    free(fetch);
}

int fetch_start(struct store *store)
{
    int r = pool_new("cairn-read", store->fetch->read_threads, 1024, NULL, NULL,
                     &store->fetch->readers);
    return r == 0 && store->remote ? pull_start(store) : r;
}

void fetch_stop(struct store *store)
{
    pull_stop_work(pull_of(store));
}

void fetch_end(struct store *store)
{
    evict_stop(store);
    pull_end(pull_of(store));
    promote_flush(store);
}

uint64_t fetch_memory(const struct store *store)
{
    unsigned remote_readers = store->remote ? PULL_READERS : 0;
    uint64_t readers = store->fetch->read_threads + remote_readers;
    uint64_t window = store->remote ? pull_window(store->local.options.remote.fetch_threads) : 0;
    uint64_t buffers = DECODED_MAX + 2 * readers; /* an answer, and a chunk that has no place */
    bool has_bases = store->local.sb.incompat & SUPERBLOCK_INCOMPAT_DENSE;
    return window + buffers * CHUNK_SIZE_MAX + (has_bases ? readers * LOCAL_BASES_BYTES : 0);
}

/* --- the content of a file, by name --- */

struct summary {
    struct store *store;
    struct iovec *iov;
    VECTOR(struct extent) extents;
    uint64_t stored;
};

static int add_summary(const struct view_extent *part, void *arg)
{
    struct summary *sum = arg;
    struct chunk_entry entry;
    if (part->extent.kind == EXTENT_CHUNK &&
        (packs_find(sum->store->commit.packs, &part->extent.chunk, &entry) == 0 ||
         dense_find_place(sum->store, &part->extent.chunk, &entry) == 0))
        sum->stored += entry.stored_len;
    if (part->extent.kind == EXTENT_INLINE)
        sum->stored += part->extent.length;
    struct extent *e = vector_next(&sum->extents);
    memset(e, 0, sizeof *e);
    e->offset = part->extent.offset;
    e->length = part->extent.length;
    e->kind = part->extent.kind;
    e->chunk_offset = part->extent.chunk_offset;
    if (e->kind == EXTENT_CHUNK)
        e->chunk = part->extent.chunk;
    if (e->kind == EXTENT_INLINE) {
        /* Inline bytes are named like a chunk, so that the root covers the content. */
        struct iovec iov = {(void *)(uintptr_t)part->bytes, part->extent.length};
        e->chunk = hash_chunk(&sum->store->local.sb.key, &iov, 1);
    }
    return 0;
}

int fetch_content_root(struct store *store, uint64_t ino, uint8_t ret_hash[32])
{
    struct summary sum = {.store = store};
    int r = view_extents(store->local.view, ino, 0, INT64_MAX, add_summary, &sum);
    struct iovec iov = {sum.extents.at, sum.extents.count * sizeof *sum.extents.at};
    if (r == 0)
        hash_parts(&iov, 1, ret_hash);
    vector_free(&sum.extents);
    return r;
}

int fetch_stored_bytes(struct store *store, uint64_t ino, uint64_t *ret_bytes)
{
    struct summary sum = {.store = store};
    int r = view_extents(store->local.view, ino, 0, INT64_MAX, add_summary, &sum);
    vector_free(&sum.extents);
    *ret_bytes = sum.stored;
    return r;
}
