// SPDX-License-Identifier: Apache-2.0
#include "dense_fixture.h"

#include <stdio.h>

#include "../codec/numbers.h"
#include "../numbered.h"
#include "../spoil.h"
#include "codec/dx.h"
#include "codec/twin.h"
#include "dense/dense.h"
#include "format/le.h"
#include "remote/chunks.h"
#include "view/remote.h"

/* --- numbers ---------------------------------------------------------------------------------- */

/* The master numbers lie in blocks, each with a seed of its own, so that any part of a file can be
 * made alone. */
#define BLOCK (64u * 1024)

static void make_block(unsigned seed, unsigned step, uint64_t number, uint8_t *block)
{
    struct seeded seeded = {number << 32 | seed};
    numbers_fill(NUMBERS_F32, &seeded, block, BLOCK, 0);
    for (unsigned i = 0; i < step; i++) { /* each moves them by less than 1 in 1,000 */
        struct seeded of_step = {number << 32 | (1000ull * seed + i + 1)};
        for (size_t at = 0; at < BLOCK; at += 4)
            put_le32(block + at, get_le32(block + at) ^ (uint32_t)seeded_below(&of_step, 1 << 13));
    }
}

static uint8_t *make_master(unsigned seed, unsigned step, uint64_t from, size_t length)
{
    uint8_t *bytes = xmalloc(length), *block = xmalloc(BLOCK);
    for (size_t done = 0; done < length;) {
        size_t skipped = (from + done) % BLOCK, n = min_u64(BLOCK - skipped, length - done);
        make_block(seed, step, (from + done) / BLOCK, block);
        memcpy(bytes + done, block + skipped, n);
        done += n;
    }
    free(block);
    return bytes;
}

static uint8_t *make_weights(unsigned seed, unsigned step, uint64_t from, size_t length)
{
    uint8_t *master = make_master(seed, step, 2 * from, 2 * length);
    for (size_t i = 0; i < length / 2; i++) {
        uint32_t x = get_le32(master + 4 * i);
        put_le16(master + 2 * i, (uint16_t)((x + 0x7fff + (x >> 16 & 1)) >> 16));
    }
    return master;
}

static void put(const char *name, uint8_t *bytes, size_t length)
{
    fixture_put_bytes(&fixture, name, bytes, length);
    free(bytes);
}

void dense_put_weights(const char *name, unsigned seed, unsigned step, size_t length)
{
    put(name, make_weights(seed, step, 0, length), length);
}

void dense_put_master(const char *name, unsigned seed, unsigned step, size_t length)
{
    put(name, make_master(seed, step, 0, length), length);
}

/* In pieces, as a program reads. */
static void expect(const char *name, uint8_t *bytes, size_t length)
{
    uint64_t ino = fixture_lookup(&fixture, name);
    _cleanup_free_ uint8_t *is = xmalloc(MIB);
    assert_u64(fixture_size(&fixture, ino), length);
    for (size_t at = 0; at < length; at += MIB) {
        size_t n = min_u64(MIB, length - at);
        fixture_read(&fixture, ino, at, is, n);
        cr_assert(memcmp(is, bytes + at, n) == 0, "%s from %zu on", name, at);
    }
    free(bytes);
}

void dense_expect_weights(const char *name, unsigned seed, unsigned step, size_t length)
{
    expect(name, make_weights(seed, step, 0, length), length);
}

void dense_expect_master(const char *name, unsigned seed, unsigned step, size_t length)
{
    expect(name, make_master(seed, step, 0, length), length);
}

int dense_read_weights(const char *name, unsigned seed, unsigned step, uint64_t offset,
                       size_t length)
{
    _cleanup_free_ uint8_t *is = xmalloc(length), *bytes = make_weights(seed, step, offset, length);
    int r = fixture_try_read(&fixture, fixture_lookup(&fixture, name), offset, is, length);
    if (r == 0)
        cr_assert(memcmp(is, bytes, length) == 0, "%s from %llu on", name,
                  (unsigned long long)offset);
    return r;
}

/* --- dense chunks ----------------------------------------------------------------------------- */

#define CHUNKS_MAX 64u

struct chunk_list {
    struct extent at[CHUNKS_MAX];
    size_t count;
};

static int add_extent(const struct view_extent *part, void *arg)
{
    struct chunk_list *list = arg;
    cr_assert_lt(list->count, CHUNKS_MAX);
    assert_u64(part->extent.kind, EXTENT_CHUNK);
    list->at[list->count++] = part->extent;
    return 0;
}

static struct chunk_list chunks_of(const char *name)
{
    struct chunk_list list = {.count = 0};
    assert_i64(view_extents(fixture.store->local.view, fixture_lookup(&fixture, name), 0, INT64_MAX,
                            add_extent, &list),
               0);
    return list;
}

static uint8_t *bytes_of(const char *name, uint64_t *ret_length)
{
    uint64_t ino = fixture_lookup(&fixture, name);
    *ret_length = fixture_size(&fixture, ino);
    uint8_t *bytes = xmalloc(*ret_length);
    fixture_read(&fixture, ino, 0, bytes, *ret_length);
    return bytes;
}

struct placing {
    const char *name, *base;
    unsigned depth;
    struct chunk_list chunks, bases;
    uint8_t *bytes, *base_bytes, *stored;
    struct pack_buffer buffer;
    uint64_t length, base_length, id;
    struct chunk_entry entries[CHUNKS_MAX];
    uint32_t count;
};

static void begin(struct placing *p, const char *name, const char *base, unsigned depth)
{
    *p = (struct placing){.name = name, .base = base, .depth = depth};
    p->chunks = chunks_of(name);
    p->bases = chunks_of(base);
    p->bytes = bytes_of(name, &p->length);
    p->base_bytes = bytes_of(base, &p->base_length);
    p->buffer.bytes = xmalloc_large(PACK_BUFFER_LEN);
    p->stored = xmalloc(CHUNK_SIZE_MAX);
    p->id = packs_new_id(store_commit(fixture.store)->packs);
    pack_begin(fixture.store->local.sb.history, p->id, &p->buffer);
}

static void add(struct placing *p, struct chunk_entry entry, size_t stored_len)
{
    cr_assert_gt(stored_len, 0);
    entry.stored_len = (uint32_t)stored_len;
    entry.depth = (uint8_t)p->depth;
    pack_place(store_commit(fixture.store)->local, p->id, &p->buffer, &entry,
               &(struct iovec){p->stored, stored_len}, 1);
    p->entries[p->count++] = entry;
}

static uint64_t end(struct placing *p)
{
    struct store *store = fixture.store;
    struct tier *tier = remote_tier(store->remote);
    char object[32];
    pack_object_name(p->id, object);
    uint64_t len = pack_finish(store->local.sb.history, p->id, &p->buffer, p->entries, p->count);
    assert_i64(tier->ops->put(tier, object, p->buffer.bytes, len), 0);
    assert_i64(view_remote_placed(store->local.view, p->id, len, p->entries, p->count), 0);
    free(p->bytes);
    free(p->base_bytes);
    free(p->buffer.bytes);
    free(p->stored);
    return p->id;
}

uint64_t dense_place_dx(const char *name, const char *base, unsigned depth)
{
    struct placing p;
    const struct dx_kernels *kernels = dx_kernels_of(cpu_level());
    begin(&p, name, base, depth);
    assert_u64(p.chunks.count, p.bases.count);
    for (size_t i = 0; i < p.chunks.count; i++) {
        const struct extent *e = &p.chunks.at[i];
        struct chunk_entry entry = {.name = e->chunk,
                                    .raw_len = e->length,
                                    .encoding = ENCODING_DX,
                                    .ref_count = 1,
                                    .refs = {{p.bases.at[i].chunk, 0, e->length}}};
        struct fx_guess guess;
        assert_u64(p.bases.at[i].length, e->length);
        fx_look(p.bytes + e->offset, e->length, &guess);
        const struct dx_pair pair = {p.bytes + e->offset, p.base_bytes + e->offset, e->length};
        add(&p, entry, dx_encode(kernels, &guess, &pair, p.stored, CHUNK_SIZE_MAX));
    }
    return end(&p);
}

void dense_put_pair(size_t length)
{
    dense_put_weights("base", 1, 0, length);
    dense_put_weights("next", 1, 1, length);
    wait_remote();
    (void)dense_place_dx("next", "base", 1);
}

/* The parts of [from, from + length) of the image, chunk by chunk. */
static unsigned add_refs(const struct placing *p, uint64_t from, uint64_t length,
                         struct chunk_entry *entry, struct twin_part *parts)
{
    unsigned count = 0;
    for (size_t i = 0; i < p->bases.count; i++) {
        const struct extent *e = &p->bases.at[i];
        uint64_t begin = max_u64(e->offset, from),
                 end = min_u64(e->offset + e->length, from + length);
        if (begin >= end)
            continue;
        cr_assert_lt(count, CHUNK_REFS_MAX);
        entry->refs[count] =
            (struct chunk_ref){e->chunk, (uint32_t)(begin - e->offset), (uint32_t)(end - begin)};
        parts[count++] = (struct twin_part){p->base_bytes + begin, (uint32_t)(2 * (begin - from)),
                                            (uint32_t)((end - begin) / 2)};
    }
    return count;
}

uint64_t dense_place_twin(const char *name, const char *image, unsigned depth)
{
    struct placing p;
    begin(&p, name, image, depth);
    _cleanup_free_ uint8_t *scratch = xmalloc(TWIN_SCRATCH_LEN);
    for (size_t i = 0; i < p.chunks.count; i++) {
        const struct extent *e = &p.chunks.at[i];
        struct chunk_entry entry = {
            .name = e->chunk, .raw_len = e->length, .encoding = ENCODING_TWIN};
        struct twin_part parts[CHUNK_REFS_MAX];
        entry.ref_count = (uint8_t)add_refs(&p, e->offset / 2, e->length / 2, &entry, parts);
        const struct twin_chunk chunk = {parts, entry.ref_count, p.bytes + e->offset, e->length};
        add(&p, entry, twin_encode(cpu_level(), &chunk, scratch, p.stored, CHUNK_SIZE_MAX));
    }
    return end(&p);
}

struct chunk_entry dense_entry(const char *name, uint64_t offset)
{
    struct chunk_list list = chunks_of(name);
    struct chunk_entry entry;
    size_t i = 0;
    while (list.at[i].offset + list.at[i].length <= offset)
        cr_assert_lt(++i, list.count);
    assert_i64(dense_find_place(fixture.store, &list.at[i].chunk, &entry), 0);
    return entry;
}

void dense_publish(void)
{
    static unsigned number;
    number++;
    fixture_put(&fixture, numbered("head%u", number), 1000 + number, 20000);
    wait_remote();
}

void dense_spoil(uint64_t pack, uint64_t from, uint64_t length)
{
    char object[32];
    pack_object_name(pack, object);
    _cleanup_free_ char *path = xasprintf("%s/%s", remote_path, object);
    spoil_file(path, from, length, 0x55);
}

static int expect_plain(const struct chunk_entry *entry, void *arg)
{
    assert_u64(entry->ref_count, 0);
    assert_u64(entry->depth, 0);
    cr_assert_lt(entry->encoding, ENCODING_TWIN);
    ++*(size_t *)arg;
    return 0;
}

static int look_at_pack(const struct view_pack *pack, void *arg)
{
    assert_i64(packs_read_index(store_commit(fixture.store)->packs, pack->pack, expect_plain, arg),
               0);
    return 0;
}

size_t dense_expect_none_local(void)
{
    size_t count = 0;
    assert_i64(view_packs(fixture.store->local.view, look_at_pack, &count), 0);
    return count;
}

void dense_reopen(void)
{
    open_store(true);
    atomic_store(&gets, 0);
}

void dense_leave_only_the_remote(void)
{
    dense_publish();
    struct warm_status s = run_job(NULL, true);
    assert_u64(s.unpublished_bytes + s.busy_bytes, 0);
    assert_u64(fixture_status(&fixture).view.packs, 0);
    dense_reopen();
}
