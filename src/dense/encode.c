// SPDX-License-Identifier: Apache-2.0
#include "dense/round.h"

#include "base/clock.h"
#include "base/log.h"
#include "codec/dx.h"
#include "codec/twin.h"
#include "dense/images.h"
#include "dense/internal.h"
#include "dense/lineage.h"

#define DEPTH_MAX_WIDE 2u /* for differences of fp32 chunks */

/* Optimizer moments change completely at every training step: after this many consecutive bytes of
 * fp32 for which an earlier version did not help, SKIPPED_MAX bytes are skipped before the next
 * attempt. */
#define MISSED_MAX (4 * MIB)
#define SKIPPED_MAX (7 * MIB)

/* A base, decoded. */
struct base {
    struct chunk_entry entry; /* in the remote; raw_len 0: unused */
    uint8_t *raw;
    uint64_t used;
};

struct dense_work {
    struct dense_round *round;
    struct dense_pack pack; /* of the chunk being encoded */
    struct base bases[CHUNK_REFS_MAX];
    uint64_t uses;
    uint64_t missed, skipped;        /* bytes of the phase's fp32 chunks with an earlier version */
    const struct dense_phase *phase; /* of the last chunk */
    uint8_t *encoded, *decoded, *matrix, *scratch;
};

struct dense_work *dense_work_new(struct dense_round *round)
{
    struct dense_work *w = xcalloc(1, sizeof *w);
    w->round = round;
    for (size_t i = 0; i < ARRAY_LEN(w->bases); i++)
        w->bases[i].raw = xmalloc(CHUNK_SIZE_MAX);
    w->encoded = xmalloc(CHUNK_SIZE_MAX);
    w->decoded = xmalloc(CHUNK_SIZE_MAX);
    w->matrix = xmalloc(CHUNK_SIZE_MAX);
    w->scratch = xmalloc(max_u64(TWIN_SCRATCH_LEN, FX_MATRIX_SCRATCH_LEN));
    return w;
}

void dense_work_free(struct dense_work *w)
{
    if (!w)
        return;
    for (size_t i = 0; i < ARRAY_LEN(w->bases); i++)
        free(w->bases[i].raw);
    free(w->encoded);
    free(w->decoded);
    free(w->matrix);
    free(w->scratch);
    free(w);
}

/* --- bases ------------------------------------------------------------------------------------ */

static struct base *find_base(struct dense_work *w, const struct chunk_name *name)
{
    for (size_t i = 0; i < ARRAY_LEN(w->bases); i++)
        if (w->bases[i].entry.raw_len && chunk_name_equal(&w->bases[i].entry.name, name))
            return &w->bases[i];
    return NULL;
}

static struct base *oldest_base(struct dense_work *w)
{
    struct base *oldest = &w->bases[0];
    for (size_t i = 1; i < ARRAY_LEN(w->bases); i++)
        if (w->bases[i].used < oldest->used)
            oldest = &w->bases[i];
    return oldest;
}

/* Reads only from NVMe: fetching a base would cost more than it saves. */
static struct base *read_base(struct dense_work *w, const struct chunk_entry *entry)
{
    struct base *base = find_base(w, &entry->name);
    uint32_t len = entry->raw_len;
    if (!base) {
        base = oldest_base(w);
        base->entry.raw_len = 0;
        if (packs_read_chunk(w->round->dense->store->commit.packs, &entry->name, base->raw, &len) <
                0 ||
            len != entry->raw_len)
            return NULL;
    }
    base->entry = *entry;
    base->used = ++w->uses;
    return base;
}

/* Finds the place of a base: in the remote, or in the pack being filled, whose chunks the cut
 * needs, as they are pending at it. */
static bool find_entry(const struct dense_work *w, const struct chunk_name *name,
                       struct chunk_entry *ret)
{
    if (view_cut_base(w->round->cut, name, ret) == 0)
        return !dense_is_bad_pack(w->round->dense, ret->pack);
    for (uint32_t i = w->pack.count; i > 0; i--)
        if (chunk_name_equal(&w->pack.entries[i - 1].name, name)) {
            *ret = w->pack.entries[i - 1];
            return true;
        }
    return false;
}

/* Returns a base for a chunk of at most depth `depth_max`; its bytes stay valid for the next
 * CHUNK_REFS_MAX - 1 calls. NULL: it is not in the remote, or will not stay there, or cannot be
 * read from NVMe. */
static struct base *get_base(struct dense_work *w, const struct chunk_name *name,
                             unsigned depth_max)
{
    struct chunk_entry entry;
    if (!find_entry(w, name, &entry) || entry.depth >= depth_max)
        return NULL;
    return read_base(w, &entry);
}

/* --- is the encoding useful? ------------------------------------------------------------------ */

/* Does the encoding decode to the chunk? `r`: result of the decoding. */
static bool is_same(struct dense_work *w, int r, const uint8_t *raw, size_t raw_len)
{
    if (r == 0 && memcmp(w->decoded, raw, raw_len) == 0)
        return true;
    if (atomic_fetch_add(&w->round->dense->remote.encoded->wrong, 1) == 0)
        log_error("a chunk that was encoded for the remote did not decode to the same bytes, and "
                  "is stored as it is on NVMe: nothing is lost, but this processor or this build "
                  "of CairnFS has a fault; -o reduce=fast does without");
    return false;
}

static void refer_to(struct chunk_entry *entry, const struct chunk_entry *base, uint32_t offset,
                     uint32_t length)
{
    check(entry->ref_count < CHUNK_REFS_MAX && base->depth < CHUNK_DEPTH_MAX);
    entry->refs[entry->ref_count++] =
        (struct chunk_ref){.name = base->name, .offset = offset, .length = length};
    if (entry->depth <= base->depth)
        entry->depth = base->depth + 1;
}

/* Largest stored length that justifies reading other chunks as well. */
static size_t worth_bytes(const struct chunk_entry *entry)
{
    return entry->stored_len - entry->stored_len / 64;
}

/* As worth_bytes(), lower if the base is kept in the remote only by differences. */
static size_t worth_by(struct dense_work *w, const struct chunk_entry *entry,
                       const struct base *base)
{
    struct chunk_entry local;
    uint64_t refs = 0;
    int r = view_chunk(w->round->dense->store->local.view, &base->entry.name, &local, &refs);
    return r == 0 && refs > 0 ? worth_bytes(entry)
                              : entry->stored_len - entry->stored_len / DEAD_WORTH_SHARE;
}

/* --- dx --------------------------------------------------------------------------------------- */

static bool encode_dx(struct dense_work *w, struct chunk_entry *entry, const struct fx_guess *guess,
                      const uint8_t *raw, const struct base *base)
{
    const struct dx_kernels *kernels = dx_kernels_of(cpu_level());
    size_t len = entry->raw_len, most = worth_by(w, entry, base);
    const struct dx_pair pair = {raw, base->raw, len};
    const struct iovec whole_base = {base->raw, len};
    if (dx_gate(kernels, guess, &pair) > most * 1000 / len)
        return false;
    size_t stored = dx_encode(kernels, guess, &pair, w->encoded, most);
    if (stored == 0 ||
        !is_same(w, dx_decode(kernels, w->encoded, stored, &whole_base, w->decoded, len), raw, len))
        return false;
    entry->encoding = ENCODING_DX;
    entry->stored_len = (uint32_t)stored;
    refer_to(entry, &base->entry, 0, entry->raw_len);
    return true;
}

/* False: it has no earlier version, or that does not help. */
static bool try_dx(struct dense_work *w, struct chunk_entry *entry, const struct fx_guess *guess,
                   const uint8_t *raw)
{
    struct chunk_name name;
    if (!lineage_base(w->round->lineage, &entry->name, &name))
        return false;
    struct base *base = get_base(w, &name, guess->width == 2 ? CHAIN_DEPTH_MAX : DEPTH_MAX_WIDE);
    return base && base->entry.raw_len == entry->raw_len && encode_dx(w, entry, guess, raw, base);
}

/* As try_dx(), for fp32: after many failures it is skipped for a while. */
static bool try_wide_dx(struct dense_work *w, struct chunk_entry *entry,
                        const struct fx_guess *guess, const uint8_t *raw)
{
    if (w->missed >= MISSED_MAX && w->skipped < SKIPPED_MAX) {
        w->skipped += entry->raw_len;
        return false;
    }
    bool helps = try_dx(w, entry, guess, raw);
    w->missed = helps ? 0 : w->missed + entry->raw_len;
    w->skipped = 0;
    return helps;
}

/* --- twin ------------------------------------------------------------------------------------- */

static struct base *get_image(struct dense_work *w, uint64_t tag)
{
    struct chunk_name name;
    return images_name(w->round->dense->images, tag, &name) ? get_base(w, &name, CHUNK_DEPTH_MAX)
                                                            : NULL;
}

static const uint8_t *get_image_bytes(void *arg, uint64_t tag, size_t *ret_len)
{
    struct base *image = get_image(arg, tag);
    if (!image)
        return NULL;
    *ret_len = image->entry.raw_len;
    return image->raw;
}

/* A twin that was found: parts of the encoding, their images, and references of the entry. */
struct twin {
    struct twin_part parts[CHUNK_REFS_MAX];
    struct iovec images[CHUNK_REFS_MAX];
    size_t count;
};

static void find_twin(struct dense_work *w, struct chunk_entry *entry, const struct fx_guess *guess,
                      const uint8_t *raw, struct twin *ret)
{
    struct twin_match matches[CHUNK_REFS_MAX];
    struct twin_images images = {get_image_bytes, w};
    size_t n = images_find(w->round->dense->images, guess, raw, entry->raw_len, &images, matches);
    ret->count = 0;
    for (size_t i = 0; i < n; i++) {
        const struct twin_match *match = &matches[i];
        struct base *image = get_image(w, match->tag);
        if (!image)
            continue;
        check(match->offset + 2 * (uint64_t)match->count <= image->entry.raw_len);
        ret->parts[ret->count] =
            (struct twin_part){image->raw + match->offset, match->at, match->count};
        ret->images[ret->count++] =
            (struct iovec){image->raw + match->offset, 2 * (size_t)match->count};
        refer_to(entry, &image->entry, match->offset, 2 * match->count);
    }
}

static bool try_twin(struct dense_work *w, struct chunk_entry *entry, const struct fx_guess *guess,
                     const uint8_t *raw)
{
    struct chunk_entry twin_entry = *entry;
    struct twin twin;
    size_t len = entry->raw_len;
    find_twin(w, &twin_entry, guess, raw, &twin);
    if (twin.count == 0)
        return false;
    const struct twin_chunk chunk = {twin.parts, twin.count, raw, len};
    size_t stored = twin_encode(cpu_level(), &chunk, w->scratch, w->encoded, worth_bytes(entry));
    if (stored == 0 || !is_same(w,
                                twin_decode(cpu_level(), w->encoded, stored, twin.images,
                                            twin.count, w->decoded, len),
                                raw, len))
        return false;
    twin_entry.encoding = ENCODING_TWIN;
    twin_entry.stored_len = (uint32_t)stored;
    *entry = twin_entry;
    return true;
}

/* --- matrix ----------------------------------------------------------------------------------- */

/* Every saved byte counts, as it needs no base and is read as fast. */
static bool try_matrix(struct dense_work *w, struct chunk_entry *entry,
                       const struct fx_guess *guess, const uint8_t *raw)
{
    const struct fx_kernels *kernels = fx_kernels_of(cpu_level());
    size_t len = entry->raw_len, stored = fx_encode_matrix(kernels, guess, raw, len, w->scratch,
                                                           w->matrix, entry->stored_len - 1);
    if (stored == 0 ||
        !is_same(w, fx_decode(kernels, w->matrix, stored, w->decoded, len), raw, len))
        return false;
    entry->stored_len = (uint32_t)stored;
    return true;
}

/* --- any -------------------------------------------------------------------------------------- */

/* False: other chunks depend on this one, so it must not get deeper. */
static bool may_refer(const struct dense_work *w, const struct chunk_entry *entry)
{
    bool has_dependents;
    int r = view_has_dependents(w->round->dense->store->local.view, &entry->name, &has_dependents);
    return r == 0 && !has_dependents;
}

/* Returns NULL if the chunk stays as it is. */
static const uint8_t *encode_chunk(struct dense_work *w, struct chunk_entry *entry,
                                   const uint8_t *raw)
{
    struct fx_guess guess;
    bool is_fp32 = w->phase->kind == PHASE_FP32;
    if (entry->encoding != ENCODING_FX || entry->raw_len < FX_RAW_MIN)
        return NULL;
    fx_look(raw, entry->raw_len, &guess);
    if (!is_fp32 && guess.width == 2)
        images_add(w->round->dense->images, entry, &guess, raw);
    if (is_fp32)
        images_allow(w->round->dense->images, entry->raw_len);
    bool may = w->phase->kind != PHASE_FIRST && may_refer(w, entry);
    if (may && is_fp32 && try_twin(w, entry, &guess, raw))
        return w->encoded;
    const uint8_t *ret = try_matrix(w, entry, &guess, raw) ? w->matrix : NULL;
    if (may && (is_fp32 ? try_wide_dx : try_dx)(w, entry, &guess, raw))
        ret = w->encoded;
    return ret;
}

const uint8_t *dense_encode(struct dense_work *w, const struct dense_phase *phase,
                            struct dense_pack pack, struct chunk_entry *entry, const uint8_t *raw)
{
    w->pack = pack;
    if (w->phase != phase)
        w->missed = w->skipped = 0;
    w->phase = phase;
    int64_t began = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    const uint8_t *ret = encode_chunk(w, entry, raw);
    atomic_fetch_add(&w->round->dense->remote.encoded->cpu_ns,
                     (uint64_t)(clock_ns(CLOCK_THREAD_CPUTIME_ID) - began));
    return ret;
}
