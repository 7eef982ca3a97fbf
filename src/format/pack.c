// SPDX-License-Identifier: Apache-2.0
/* Header, the first bytes of a pack:
 *
 *   OFFSET SIZE
 *        0    8  "CAIRNPAK"
 *        8    4  version
 *       12    4  zero
 *       16    8  pack id
 *       24   16  store id
 *       40   20  zero
 *       60    4  crc32 of everything before it
 *
 * Frame, in front of each stored chunk since version 2 of the header; it begins at a multiple of 8,
 * zeros before it:
 *
 *   OFFSET SIZE
 *        0    4  "CHNK"
 *        4    4  length of the frame
 *        8   24  tag: keyed BLAKE3 of the pack id and what follows
 *       32       the chunk's index entry, as below
 *
 * Trailer, the last bytes:
 *
 *   OFFSET SIZE
 *        0    4  "PEND"
 *        4    4  version
 *        8    8  pack id
 *       16    8  offset of the index
 *       24    8  length of the file, a multiple of PACK_ALIGN
 *       32   16  store id
 *       48    4  length of the index
 *       52    4  chunks
 *       56    4  crc32 of the index
 *       60    4  crc32 of everything before it
 *
 * Index entry:
 *
 *   OFFSET SIZE
 *        0   24  name
 *       24    8  offset of the stored bytes, from the start of the pack
 *       32    4  stored length
 *       36    4  raw length
 *       40    1  encoding
 *       41    1  depth
 *       42    1  number of references
 *       43    5  zero
 *       48       references, 32 bytes each: name (24), offset (4), length (4)
 *
 * Magic, version and checksum stay where they are in every
 * later version. */
#include "format/pack.h"

#include "base/crc.h"
#include "format/le.h"

static const uint8_t header_magic[8] = {'C', 'A', 'I', 'R', 'N', 'P', 'A', 'K'};
static const uint8_t frame_magic[4] = {'C', 'H', 'N', 'K'};
static const uint8_t trailer_magic[4] = {'P', 'E', 'N', 'D'};

#define ENTRY_LEN_MIN 48u
#define REF_LEN 32u
#define CRC_AT 60u

void pack_encode_header(const struct pack_header *h, void *buf)
{
    check(h->pack != 0 && h->version <= PACK_VERSION);
    uint8_t *p = buf;
    memset(p, 0, PACK_HEADER_LEN);
    memcpy(p, header_magic, sizeof header_magic);
    put_le32(p + 8, h->version ? h->version : PACK_VERSION);
    put_le64(p + 16, h->pack);
    memcpy(p + 24, h->store, 16);
    put_le32(p + CRC_AT, crc32_of(0, p, CRC_AT));
}

int pack_decode_header(const void *buf, size_t len, struct pack_header *ret_h)
{
    const uint8_t *p = buf;
    if (len < PACK_HEADER_LEN || memcmp(p, header_magic, sizeof header_magic) != 0)
        return -EUCLEAN;
    if (get_le32(p + CRC_AT) != crc32_of(0, p, CRC_AT))
        return -EBADMSG;
    if (get_le32(p + 8) > PACK_VERSION)
        return -EPROTONOSUPPORT;
    if (get_le32(p + 8) == 0 || get_le64(p + 16) == 0)
        return -EUCLEAN;
    if (!bytes_are_zero(p + 12, 4) || !bytes_are_zero(p + 40, 20))
        return -EUCLEAN;
    *ret_h = (struct pack_header){.pack = get_le64(p + 16), .version = get_le32(p + 8)};
    memcpy(ret_h->store, p + 24, 16);
    return 0;
}

static bool trailer_sane(const struct pack_trailer *t)
{
    if (t->pack == 0 || t->count > PACK_CHUNKS_MAX)
        return false;
    if (t->file_len % PACK_ALIGN != 0 || t->file_len == 0 || t->file_len > INT64_MAX)
        return false;
    if (t->index_offset < PACK_HEADER_LEN || t->index_offset > t->file_len - PACK_TRAILER_LEN ||
        t->index_len > t->file_len - PACK_TRAILER_LEN - t->index_offset)
        return false;
    return t->index_len >= (uint64_t)t->count * ENTRY_LEN_MIN &&
           t->index_len <= (uint64_t)t->count * PACK_ENTRY_LEN_MAX;
}

void pack_encode_trailer(const struct pack_trailer *t, void *buf)
{
    check(trailer_sane(t));
    uint8_t *p = buf;
    memcpy(p, trailer_magic, sizeof trailer_magic);
    put_le32(p + 4, PACK_TRAILER_VERSION);
    put_le64(p + 8, t->pack);
    put_le64(p + 16, t->index_offset);
    put_le64(p + 24, t->file_len);
    memcpy(p + 32, t->store, sizeof t->store);
    put_le32(p + 48, t->index_len);
    put_le32(p + 52, t->count);
    put_le32(p + 56, t->index_crc);
    put_le32(p + CRC_AT, crc32_of(0, p, CRC_AT));
}

int pack_decode_trailer(const void *buf, size_t len, struct pack_trailer *ret_t)
{
    const uint8_t *p = buf;
    if (len < PACK_TRAILER_LEN || memcmp(p, trailer_magic, sizeof trailer_magic) != 0)
        return -EUCLEAN;
    if (get_le32(p + CRC_AT) != crc32_of(0, p, CRC_AT))
        return -EBADMSG;
    if (get_le32(p + 4) > PACK_TRAILER_VERSION)
        return -EPROTONOSUPPORT;
    struct pack_trailer t = {.pack = get_le64(p + 8),
                             .index_offset = get_le64(p + 16),
                             .file_len = get_le64(p + 24),
                             .index_len = get_le32(p + 48),
                             .count = get_le32(p + 52),
                             .index_crc = get_le32(p + 56)};
    memcpy(t.store, p + 32, sizeof t.store);
    if (get_le32(p + 4) == 0 || !trailer_sane(&t))
        return -EUCLEAN;
    *ret_t = t;
    return 0;
}

size_t pack_encode_entry(const struct chunk_entry *entry, void *buf)
{
    check(entry->ref_count <= CHUNK_REFS_MAX);
    uint8_t *p = buf;
    memset(p, 0, ENTRY_LEN_MIN);
    memcpy(p, entry->name.bytes, sizeof entry->name.bytes);
    put_le64(p + 24, entry->offset);
    put_le32(p + 32, entry->stored_len);
    put_le32(p + 36, entry->raw_len);
    p[40] = entry->encoding;
    p[41] = entry->depth;
    p[42] = entry->ref_count;
    p += ENTRY_LEN_MIN;
    for (uint8_t i = 0; i < entry->ref_count; i++, p += REF_LEN) {
        memcpy(p, entry->refs[i].name.bytes, sizeof entry->refs[i].name.bytes);
        put_le32(p + 24, entry->refs[i].offset);
        put_le32(p + 28, entry->refs[i].length);
    }
    return ENTRY_LEN_MIN + (size_t)entry->ref_count * REF_LEN;
}

static bool entry_sane(const struct chunk_entry *e, uint64_t index_offset)
{
    if (e->raw_len == 0 || e->raw_len > CHUNK_SIZE_MAX || e->stored_len == 0 ||
        e->stored_len > CHUNK_SIZE_MAX)
        return false;
    if (e->offset < PACK_HEADER_LEN || e->offset > index_offset ||
        e->stored_len > index_offset - e->offset)
        return false;
    if (e->encoding == ENCODING_RAW && e->stored_len != e->raw_len)
        return false;
    return (e->depth > 0) == (e->ref_count > 0);
}

static bool decode_ref(struct cursor *c, struct chunk_ref *ret_ref)
{
    const void *name = cursor_bytes(c, sizeof ret_ref->name.bytes);
    ret_ref->offset = cursor_le32(c);
    ret_ref->length = cursor_le32(c);
    if (c->failed)
        return false;
    memcpy(ret_ref->name.bytes, name, sizeof ret_ref->name.bytes);
    return ret_ref->length > 0 && ret_ref->length <= CHUNK_SIZE_MAX &&
           ret_ref->offset <= CHUNK_SIZE_MAX - ret_ref->length;
}

static bool decode_entry(struct cursor *c, uint64_t index_offset, struct chunk_entry *e)
{
    const uint8_t *p = cursor_bytes(c, ENTRY_LEN_MIN);
    if (!p || !bytes_are_zero(p + 43, 5))
        return false;
    memcpy(e->name.bytes, p, sizeof e->name.bytes);
    e->offset = get_le64(p + 24);
    e->stored_len = get_le32(p + 32);
    e->raw_len = get_le32(p + 36);
    e->encoding = p[40];
    e->depth = p[41];
    e->ref_count = p[42];
    if (e->ref_count > CHUNK_REFS_MAX || !entry_sane(e, index_offset))
        return false;
    for (uint8_t i = 0; i < e->ref_count; i++)
        if (!decode_ref(c, &e->refs[i]))
            return false;
    return true;
}

int pack_decode_index(const struct pack_trailer *t, const void *buf, size_t len,
                      int (*fn)(const struct chunk_entry *entry, void *arg), void *arg)
{
    if (len != t->index_len)
        return -EUCLEAN;
    struct cursor c = {.at = buf, .end = (const uint8_t *)buf + len};
    for (uint32_t i = 0; i < t->count; i++) {
        struct chunk_entry e = {.pack = t->pack};
        if (!decode_entry(&c, t->index_offset, &e))
            return -EUCLEAN;
        TRY(fn(&e, arg));
    }
    return c.at == c.end ? 0 : -EUCLEAN;
}

/* --- frames ----------------------------------------------------------------------------------- */

#define FRAME_ENTRY_AT 32u

size_t pack_encode_frame(const struct chunk_entry *entry, const uint8_t tag[PACK_TAG_LEN],
                         void *buf)
{
    uint8_t *p = buf;
    size_t len = FRAME_ENTRY_AT + pack_encode_entry(entry, p + FRAME_ENTRY_AT);
    check(len == pack_frame_len(entry));
    memcpy(p, frame_magic, sizeof frame_magic);
    put_le32(p + 4, (uint32_t)len);
    memcpy(p + 8, tag, PACK_TAG_LEN);
    return len;
}

int pack_decode_frame(const struct pack_frame_place *place, const void *buf, size_t len,
                      struct chunk_entry *ret_entry, uint8_t ret_tag[PACK_TAG_LEN])
{
    const uint8_t *p = buf;
    if (len < FRAME_ENTRY_AT || memcmp(p, frame_magic, sizeof frame_magic) != 0 ||
        place->offset % PACK_FRAME_ALIGN != 0)
        return -EUCLEAN;
    uint32_t frame_len = get_le32(p + 4);
    if (frame_len > len || frame_len < FRAME_ENTRY_AT)
        return -EUCLEAN;
    struct cursor c = {.at = p + FRAME_ENTRY_AT, .end = p + frame_len};
    struct chunk_entry e = {.pack = place->pack};
    if (!decode_entry(&c, place->file_len, &e) || c.at != c.end ||
        e.offset != place->offset + frame_len)
        return -EUCLEAN;
    memcpy(ret_tag, p + 8, PACK_TAG_LEN);
    *ret_entry = e;
    return 0;
}
