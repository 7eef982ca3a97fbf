// SPDX-License-Identifier: Apache-2.0
/* Chunks on NVMe: each is read whole, decoded, and verified against its name before any byte of it
 * is returned. The bases of a chunk are read first, in the same way. Also the reads of files by
 * writeback, from the stage and NVMe; fetch/plan.c handles all other reads. */
#include "base/cause.h"
#include "base/hex.h"
#include "base/pool.h"
#include "codec/encode.h"
#include "commit/packs_internal.h"
#include "commit/past_views.h"
#include "commit/read_internal.h"
#include "view/view.h"

int packs_find(struct packs *packs, const struct chunk_name *name, struct chunk_entry *ret)
{
    uint64_t refs;
    if (packs_find_fresh(packs, name, ret) != 0)
        return 0;
    int r = view_chunk(packs->local->view, name, ret, &refs);
    if (r == 0 && ret->pack == 0)
        r = -ENOENT;
    /* a chunk that has moved since, or that was dropped with the last file that referred to it */
    return r == -ENOENT && packs->past ? past_views_find_local(packs->past, name, ret) : r;
}

/* The bases of a chunk, decoded. */
struct read_bases {
    uint8_t *raw[CHUNK_REFS_MAX];
    uint32_t len[CHUNK_REFS_MAX];
    struct iovec refs[CHUNK_REFS_MAX]; /* the bytes that the references name */
};

/* Reads a chunk of a depth less than `below`, so that each chain ends, whatever an index says. */
static int read_chunk(struct packs *packs, const struct chunk_name *name, unsigned below, void *buf,
                      uint32_t *ret_len)
{
    for (int try = 0; try < CHUNK_TRIES; try++) {
        struct chunk_entry entry;
        TRY(packs_find(packs, name, &entry));
        if (entry.depth >= below)
            return -EUCLEAN;
        *ret_len = entry.raw_len;
        int r = packs_read_at(packs, &entry, buf);
        if (r != -ENOENT) /* it may have left the pack since the look-up */
            return r;
    }
    return -ENODATA;
}

/* A base keeps its place as long as an entry refers to it: if it has none, that entry has moved,
 * too. */
static int note_lost_base(struct packs *packs, const struct chunk_name *base, int error)
{
    char hex[17];
    check(error < 0);
    if (error == -ENOENT)
        return -ENOENT;
    if (error == -ENOLINK) /* the base of the base */
        return error;
    damage_note_local(packs->damage, base);
    hex_print(hex, base->bytes, 8);
    cause_note("it refers to chunk %s, which is damaged on NVMe (%s)", hex, damage_describe(error));
    return -ENOLINK;
}

/* The first reference to the same base: several may refer to one. */
static size_t first_to(const struct chunk_entry *entry, size_t i)
{
    size_t first = 0;
    while (!chunk_name_equal(&entry->refs[first].name, &entry->refs[i].name))
        first++;
    return first;
}

static int read_base(struct packs *packs, const struct chunk_entry *entry, size_t i,
                     struct read_bases *bases)
{
    const struct chunk_ref *ref = &entry->refs[i];
    size_t at = first_to(entry, i);
    if (at == i) {
        bases->raw[i] = xmalloc(CHUNK_SIZE_MAX);
        int r = read_chunk(packs, &ref->name, entry->depth, bases->raw[i], &bases->len[i]);
        if (r < 0)
            return note_lost_base(packs, &ref->name, r);
    }
    if (ref->offset > bases->len[at] || ref->length > bases->len[at] - ref->offset)
        return -EUCLEAN;
    bases->refs[i] = (struct iovec){bases->raw[at] + ref->offset, ref->length};
    return 0;
}

static void free_bases(struct read_bases *bases)
{
    for (size_t i = 0; i < CHUNK_REFS_MAX; i++)
        free(bases->raw[i]);
}

static int decode_chunk(struct packs *packs, const struct chunk_entry *entry, const uint8_t *stored,
                        void *buf)
{
    _cleanup_(free_bases) struct read_bases bases = {0};
    if (entry->ref_count > CHUNK_REFS_MAX)
        return -EUCLEAN;
    for (size_t i = 0; i < entry->ref_count; i++)
        TRY(read_base(packs, entry, i, &bases));
    return chunk_decode_entry(entry, stored, entry->ref_count ? bases.refs : NULL, buf);
}

int packs_read_at(struct packs *packs, const struct chunk_entry *entry, void *buf)
{
    struct tier *tier = packs->local->tier;
    if (entry->raw_len == 0 || entry->raw_len > CHUNK_SIZE_MAX ||
        entry->stored_len > CHUNK_SIZE_MAX)
        return -EUCLEAN;
    _cleanup_free_ uint8_t *stored = xmalloc(entry->stored_len);
    TRY(pack_read_part(tier, entry->pack, entry->offset, stored, entry->stored_len));
    TRY(decode_chunk(packs, entry, stored, buf));
    packs_touch(packs, entry->pack);
    return local_is_chunk(packs->local, &entry->name, buf, entry->raw_len) ? 0 : -EBADMSG;
}

int packs_read_chunk(struct packs *packs, const struct chunk_name *name, void *buf,
                     uint32_t *ret_len)
{
    return read_chunk(packs, name, CHUNK_DEPTH_MAX + 1, buf, ret_len);
}

/* --- files ------------------------------------------------------------------------------------ */

static int read_chunk_part(struct packs *packs, const struct chunk_name *name, uint64_t offset,
                           void *buf, size_t length)
{
    uint8_t *raw = thread_buffer(THREAD_BUFFER_FETCH, CHUNK_SIZE_MAX);
    uint32_t len = 0;
    TRY(packs_read_chunk(packs, name, raw, &len));
    if (offset + length > len)
        return -EUCLEAN;
    memcpy(buf, raw + offset, length);
    return 0;
}

struct reading {
    struct packs *packs;
    uint64_t offset;
    uint8_t *buf;
    size_t done;
    bool has_moved; /* a chunk is not where the view said: it has moved, or was superseded */
};

static int read_extent(const struct view_extent *part, void *arg)
{
    struct reading *rd = arg;
    const struct extent *e = &part->extent;
    uint8_t *to = rd->buf + (e->offset - rd->offset);
    int r = 0;
    if (e->kind == EXTENT_HOLE)
        memset(to, 0, e->length);
    else if (e->kind == EXTENT_INLINE)
        memcpy(to, part->bytes, e->length);
    else
        r = read_chunk_part(rd->packs, &e->chunk, e->chunk_offset, to, e->length);
    rd->done = e->offset + e->length - rd->offset;
    rd->has_moved = r == -ENOENT;
    return r;
}

static int read_below(struct packs *packs, uint64_t ino, uint64_t offset, void *buf, size_t length)
{
    struct reading rd = {.packs = packs, .offset = offset, .buf = buf, .has_moved = true};
    int r = 0;
    for (int try = 0; try < CHUNK_TRIES && rd.has_moved; try++) {
        rd.done = 0;
        rd.has_moved = false;
        r = view_extents(packs->local->view, ino, offset, length, read_extent, &rd);
    }
    /* a file created after the view's snapshot is completely in the stage: this is a hole */
    if (r < 0 && (r != -ENOENT || rd.has_moved))
        return r;
    /* past the end of the file */
    memset((uint8_t *)buf + rd.done, 0, length - rd.done);
    return 0;
}

static int read_part(struct packs *packs, uint64_t ino, const struct stage_part *part, uint8_t *buf)
{
    switch (part->kind) {
    case PART_MEMORY:
        memcpy(buf, part->memory, part->length);
        return 0;
    case PART_HOLE:
        memset(buf, 0, part->length);
        return 0;
    case PART_CHUNK:
        return read_chunk_part(packs, &part->name, part->chunk_offset, buf, part->length);
    case PART_BELOW:
        return read_below(packs, ino, part->offset, buf, part->length);
    }
    return -EIO;
}

int packs_read_file(struct packs *packs, uint64_t ino, uint64_t offset, void *buf, size_t length)
{
    struct stage_part parts[64];
    size_t done = 0;
    int r = 0;
    while (r == 0 && done < length) {
        size_t count = stage_read(packs->local->stage, ino, offset + done, length - done, parts,
                                  ARRAY_LEN(parts));
        for (size_t i = 0; i < count && r == 0; i++) {
            r = read_part(packs, ino, &parts[i], (uint8_t *)buf + done);
            done += parts[i].length;
        }
        stage_unpin_parts(packs->local->stage, parts, count);
    }
    return r;
}
