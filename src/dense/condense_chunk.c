// SPDX-License-Identifier: Apache-2.0
#include "dense/condense_chunk.h"

#include "base/clock.h"
#include "base/log.h"
#include "codec/dx.h"
#include "codec/encode.h"
#include "codec/twin.h"
#include "codec/twin_find.h"
#include "dense/internal.h"

/* --- which may be condensed ------------------------------------------------------------------- */

/* Is it smaller by enough to justify reading other chunks as well? */
static bool is_smaller(const struct chunk_entry *remote, const struct chunk_entry *local)
{
    return remote->stored_len < local->stored_len - local->stored_len / 64;
}

/* Finds its form in the published remote, if that has references. */
static int find_form(struct store *store, const struct chunk_name *name, struct chunk_entry *ret)
{
    bool is_published;
    int r = view_remote_chunk(store->local.view, name, ret, &is_published);
    if (r < 0)
        return r == -ENOENT ? 0 : r;
    return is_published && ret->ref_count > 0 && ret->ref_count <= CHUNK_REFS_MAX &&
           (ret->encoding == ENCODING_DX || ret->encoding == ENCODING_TWIN);
}

/* May the chunk, which is not dense, become so later? Not if a base already has the greatest
 * allowed depth. 1, 0 or -errno. */
static int may_become_dense(struct store *store, const struct chunk_name *name)
{
    struct chunk_entry form;
    int r = find_form(store, name, &form);
    for (size_t i = 0; r > 0 && i < form.ref_count; i++) {
        struct view_local_chunk base;
        r = view_local_chunk(store->local.view, &form.refs[i].name, &base);
        if (r == 0)
            r = base.entry.pack != 0 && base.entry.depth < CONDENSE_DEPTH_MAX;
    }
    return r == -ENOENT ? 0 : r;
}

/* Can the chunk be a base now? One that may itself become dense must do so first, as a base may
 * not. 1: yes, and *depth is at least one more than its depth. */
static int judge_base(struct store *store, const struct chunk_name *name, uint8_t *depth)
{
    struct view_local_chunk base;
    int r = view_local_chunk(store->local.view, name, &base);
    if (r < 0)
        return r == -ENOENT ? 0 : r;
    if (base.entry.pack == 0 || base.entry.depth >= CONDENSE_DEPTH_MAX ||
        damage_is_known(store->commit.damage, name))
        return 0;
    if (*depth <= base.entry.depth)
        *depth = base.entry.depth + 1;
    if (base.entry.ref_count > 0 || base.dependents > 0)
        return 1;
    r = may_become_dense(store, name);
    return r < 0 ? r : r == 0;
}

int condense_choose(struct store *store, const struct chunk_name *name, uint64_t uses,
                    struct condense_chunk *ret)
{
    struct view_local_chunk now;
    int r = view_local_chunk(store->local.view, name, &now);
    if (r < 0)
        return r == -ENOENT ? 0 : r;
    *ret = (struct condense_chunk){.store = store, .entry = now.entry};
    /* other references may be from newer files; and a chunk that is a base must not get deeper */
    if (now.entry.pack == 0 || now.entry.encoding != ENCODING_FX || now.refs > uses ||
        now.dependents > 0 || now.entry.raw_len < FX_RAW_MIN ||
        now.entry.raw_len > CHUNK_SIZE_MAX || damage_is_known(store->commit.damage, name))
        return 0;
    r = find_form(store, name, &ret->remote);
    if (r <= 0 || !is_smaller(&ret->remote, &now.entry))
        return r < 0 ? r : 0;
    ret->entry.depth = 0;
    r = 1;
    for (size_t i = 0; i < ret->remote.ref_count && r > 0; i++)
        r = judge_base(store, &ret->remote.refs[i].name, &ret->entry.depth);
    return r;
}

/* --- encoding --------------------------------------------------------------------------------- */

struct work {
    struct condense_chunk *chunk;
    struct fx_guess guess;
    uint8_t *raw, *encoded, *decoded, *scratch;
    /* bases, each once */
    struct chunk_name names[CHUNK_REFS_MAX];
    uint8_t *bases[CHUNK_REFS_MAX];
    uint32_t lens[CHUNK_REFS_MAX];
    size_t count;
    size_t limit; /* bytes that the encoded chunk may take */
};

static bool work_has_base(const struct work *w, const struct chunk_name *name)
{
    for (size_t i = 0; i < w->count; i++)
        if (chunk_name_equal(&w->names[i], name))
            return true;
    return false;
}

static bool read_chunk_and_bases(struct work *w)
{
    struct condense_chunk *chunk = w->chunk;
    uint32_t len = 0;
    w->raw = xmalloc(CHUNK_SIZE_MAX);
    bool ok = packs_read_chunk(chunk->store->commit.packs, &chunk->entry.name, w->raw, &len) == 0 &&
              len == chunk->entry.raw_len;
    for (size_t i = 0; i < chunk->remote.ref_count && ok; i++) {
        const struct chunk_name *name = &chunk->remote.refs[i].name;
        if (work_has_base(w, name))
            continue;
        check(w->count < CHUNK_REFS_MAX);
        w->names[w->count] = *name;
        w->bases[w->count] = xmalloc(CHUNK_SIZE_MAX);
        ok = packs_read_chunk(chunk->store->commit.packs, name, w->bases[w->count],
                              &w->lens[w->count]) == 0;
        w->count++;
    }
    return ok;
}

static void refer_to(struct chunk_entry *entry, const struct chunk_name *base, uint32_t offset,
                     uint32_t length)
{
    check(entry->ref_count < CHUNK_REFS_MAX);
    entry->refs[entry->ref_count++] =
        (struct chunk_ref){.name = *base, .offset = offset, .length = length};
}

static size_t encode_dx(struct work *w)
{
    struct condense_chunk *chunk = w->chunk;
    if (w->count != 1 || w->lens[0] != chunk->entry.raw_len)
        return 0;
    refer_to(&chunk->entry, &w->names[0], 0, w->lens[0]);
    const struct dx_pair pair = {w->raw, w->bases[0], chunk->entry.raw_len};
    return dx_encode(dx_kernels_of(cpu_level()), &w->guess, &pair, w->encoded, w->limit);
}

static const uint8_t *get_image(void *arg, uint64_t tag, size_t *ret_len)
{
    const struct work *w = arg;
    check(tag < w->count);
    *ret_len = w->lens[tag];
    return w->bases[tag];
}

/* The remote's entry says which chunks contain the images, but not at which offsets: searches for
 * them again. */
static size_t find_images(struct work *w, struct twin_match matches[CHUNK_REFS_MAX])
{
    struct twin_images images = {get_image, w};
    struct twin_index *index = twin_index_new(TWIN_INDEX_MIN);
    for (size_t i = 0; i < w->count; i++) {
        struct fx_guess guess;
        if (w->lens[i] < FX_RAW_MIN)
            continue;
        fx_look(w->bases[i], w->lens[i], &guess);
        twin_index_add(index, cpu_level(), &guess, w->bases[i], w->lens[i], i);
    }
    size_t n =
        twin_find(index, cpu_level(), &w->guess, w->raw, w->chunk->entry.raw_len, &images, matches);
    twin_index_free(index);
    return n;
}

static size_t encode_twin(struct work *w)
{
    struct condense_chunk *chunk = w->chunk;
    struct twin_match matches[CHUNK_REFS_MAX];
    struct twin_part parts[CHUNK_REFS_MAX];
    size_t n = find_images(w, matches);
    for (size_t i = 0; i < n; i++) {
        const struct twin_match *match = &matches[i];
        check(match->offset + 2 * (uint64_t)match->count <= w->lens[match->tag]);
        parts[i] =
            (struct twin_part){w->bases[match->tag] + match->offset, match->at, match->count};
        refer_to(&chunk->entry, &w->names[match->tag], match->offset, 2 * match->count);
    }
    if (n == 0)
        return 0;
    w->scratch = xmalloc(TWIN_SCRATCH_LEN);
    const struct twin_chunk twin = {parts, n, w->raw, chunk->entry.raw_len};
    return twin_encode(cpu_level(), &twin, w->scratch, w->encoded, w->limit);
}

/* Decodes as a reader will. */
static bool is_same(struct work *w)
{
    const struct chunk_entry *entry = &w->chunk->entry;
    struct iovec refs[CHUNK_REFS_MAX];
    check(entry->ref_count > 0 && entry->depth > 0 && entry->depth <= CONDENSE_DEPTH_MAX);
    for (size_t i = 0; i < entry->ref_count; i++)
        for (size_t k = 0; k < w->count; k++)
            if (chunk_name_equal(&w->names[k], &entry->refs[i].name))
                refs[i] =
                    (struct iovec){w->bases[k] + entry->refs[i].offset, entry->refs[i].length};
    w->decoded = xmalloc(CHUNK_SIZE_MAX);
    return chunk_decode_entry(entry, w->encoded, refs, w->decoded) == 0 &&
           memcmp(w->decoded, w->raw, entry->raw_len) == 0;
}

static bool encode_chunk(struct work *w)
{
    struct chunk_entry *entry = &w->chunk->entry;
    if (!read_chunk_and_bases(w))
        return false;
    fx_look(w->raw, entry->raw_len, &w->guess);
    w->limit = entry->stored_len - entry->stored_len / 64;
    w->encoded = xmalloc(CHUNK_SIZE_MAX);
    entry->encoding = w->chunk->remote.encoding;
    size_t stored = entry->encoding == ENCODING_DX ? encode_dx(w) : encode_twin(w);
    entry->stored_len = (uint32_t)stored;
    if (stored == 0)
        return false;
    struct encode_totals *totals = packs_encoded(w->chunk->store->commit.packs);
    if (is_same(w)) {
        atomic_fetch_add(&totals->raw_bytes[entry->encoding], entry->raw_len);
        atomic_fetch_add(&totals->stored_bytes[entry->encoding], stored);
        return true;
    }
    if (atomic_fetch_add(&totals->wrong, 1) == 0)
        log_error("a chunk that was condensed did not decode to the same bytes, and stays as it "
                  "is: nothing is lost, but this processor or this build of CairnFS has a fault; "
                  "-o reduce=fast does without");
    return false;
}

void condense_encode(struct condense_chunk *chunk)
{
    struct work w = {.chunk = chunk};
    int64_t began = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    if (encode_chunk(&w)) {
        w.chunk->encoded = xmalloc(w.chunk->entry.stored_len);
        memcpy(w.chunk->encoded, w.encoded, w.chunk->entry.stored_len);
    }
    for (size_t i = 0; i < w.count; i++)
        free(w.bases[i]);
    free(w.raw);
    free(w.encoded);
    free(w.decoded);
    free(w.scratch);
    atomic_fetch_add(&packs_encoded(w.chunk->store->commit.packs)->cpu_ns,
                     (uint64_t)(clock_ns(CLOCK_THREAD_CPUTIME_ID) - began));
}
