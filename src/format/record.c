// SPDX-License-Identifier: Apache-2.0
/* A record is a header and the fields of its type, in the order of the enum below:
 *
 *   OFFSET SIZE
 *        0    4  crc32 of everything after it
 *        4    4  length of the whole record, a multiple of 8
 *        8    2  type
 *       10    2  writer
 *       12    4  flags
 *       16    8  sequence number
 *       24    8  hybrid time, ns
 *       32       fields, then zeros up to
 * the length */
#include "format/record.h"

#include "base/crc.h"
#include "format/le.h"

enum field {
    F_INO = 1 << 0,
    F_INO2 = 1 << 1,
    F_VERSION = 1 << 2,
    F_PARENT = 1 << 3,
    F_PARENT2 = 1 << 4,
    F_COOKIE = 1 << 5,
    F_COOKIE2 = 1 << 6,
    F_KEEP = 1 << 7,
    F_OFFSET = 1 << 8,
    F_LENGTH = 1 << 9,
    F_PACK = 1 << 10,
    F_COUNT = 1 << 11,
    F_MASK = 1 << 12,
    F_SLAB = 1 << 13,
    F_ATTRS = 1 << 14,
    F_NAME = 1 << 15,
    F_NAME2 = 1 << 16,
    F_VALUE = 1 << 17,
    F_EXTENTS = 1 << 18,
};

#define ATTRS_LEN 56u
#define EXTENT_LEN 48u
#define VALUE_LEN_MAX (64u * 1024)

static const struct {
    const char *name;
    uint32_t fields;
} types[] = {
    [REC_SEAL] = {"SEAL", F_INO | F_VERSION | F_PARENT | F_COOKIE | F_KEEP | F_ATTRS | F_NAME |
                              F_VALUE | F_EXTENTS},
    [REC_MAKE] = {"MAKE", F_INO | F_PARENT | F_COOKIE | F_ATTRS | F_NAME | F_VALUE},
    [REC_LINK] = {"LINK", F_INO | F_PARENT | F_COOKIE | F_NAME},
    [REC_UNLINK] = {"UNLINK", F_INO | F_PARENT | F_NAME},
    [REC_RENAME] = {"RENAME", F_INO | F_INO2 | F_PARENT | F_PARENT2 | F_COOKIE | F_COOKIE2 |
                                  F_NAME | F_NAME2},
    [REC_SETATTR] = {"SETATTR", F_INO | F_MASK | F_ATTRS},
    [REC_SETXATTR] = {"SETXATTR", F_INO | F_NAME | F_VALUE},
    [REC_REMOVEXATTR] = {"REMOVEXATTR", F_INO | F_NAME},
    [REC_REAP] = {"REAP", F_INO},
    [REC_EXTENTS] = {"EXTENTS", F_INO | F_VERSION | F_EXTENTS},
    [REC_PACK] = {"PACK", F_LENGTH | F_PACK | F_COUNT},
    [REC_DROP] = {"DROP", F_PACK},
    [REC_VERSION] = {"VERSION", F_INO | F_VERSION | F_PARENT | F_COOKIE | F_LENGTH | F_COUNT |
                                    F_ATTRS | F_NAME},
    [REC_STAND_IN] = {"STAND_IN", F_INO | F_INO2 | F_PARENT | F_ATTRS | F_NAME},
    [REC_NASCENT] = {"NASCENT", F_INO | F_PARENT | F_COOKIE | F_ATTRS | F_NAME},
    [REC_ERASE] = {"ERASE", F_INO | F_VERSION | F_OFFSET | F_LENGTH | F_ATTRS},
    [REC_LAYER] = {"LAYER", F_INO | F_VERSION | F_KEEP | F_ATTRS},
    [REC_RANGE] = {"RANGE", F_INO | F_VERSION | F_OFFSET | F_LENGTH | F_SLAB},
    [REC_PIECE] = {"PIECE", F_INO | F_VERSION | F_EXTENTS},
};

static uint32_t fields_of(uint16_t type)
{
    return type < ARRAY_LEN(types) ? types[type].fields : 0;
}

const char *record_type_name(uint16_t type)
{
    return fields_of(type) ? types[type].name : "unknown";
}

/* The 8-byte fields, in order. */
static const struct {
    enum field field;
    size_t offset;
} words[] = {
    {F_INO, offsetof(struct record, ino)},         {F_INO2, offsetof(struct record, ino2)},
    {F_VERSION, offsetof(struct record, version)}, {F_PARENT, offsetof(struct record, parent)},
    {F_PARENT2, offsetof(struct record, parent2)}, {F_COOKIE, offsetof(struct record, cookie)},
    {F_COOKIE2, offsetof(struct record, cookie2)}, {F_KEEP, offsetof(struct record, keep)},
    {F_OFFSET, offsetof(struct record, offset)},   {F_LENGTH, offsetof(struct record, length)},
    {F_PACK, offsetof(struct record, pack)},
};

static uint64_t *word_at(struct record *rec, size_t i)
{
    return (uint64_t *)(void *)((char *)rec + words[i].offset);
}

size_t record_encoded_len(const struct record *rec)
{
    uint32_t fields = fields_of(rec->type);
    size_t len = RECORD_HEADER_LEN;
    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        len += fields & words[i].field ? 8 : 0;
    len += fields & F_COUNT ? 4 : 0;
    len += fields & F_MASK ? 4 : 0;
    len += fields & F_SLAB ? 8 : 0;
    len += fields & F_ATTRS ? ATTRS_LEN : 0;
    len += fields & F_NAME ? 2u + rec->name_len : 0;
    len += fields & F_NAME2 ? 2u + rec->name2_len : 0;
    len += fields & F_VALUE ? 4 + (size_t)rec->value_len : 0;
    len += fields & F_EXTENTS ? 4 + (size_t)rec->extent_count * EXTENT_LEN : 0;
    return align_up(len, 8);
}

static uint8_t *encode_attrs(const struct attrs *a, uint8_t *p)
{
    put_le32(p, a->mode);
    put_le32(p + 4, a->uid);
    put_le32(p + 8, a->gid);
    put_le32(p + 12, a->rdev);
    put_le64(p + 16, a->size);
    put_le64(p + 24, (uint64_t)a->atime);
    put_le64(p + 32, (uint64_t)a->mtime);
    put_le64(p + 40, (uint64_t)a->ctime);
    put_le64(p + 48, (uint64_t)a->btime);
    return p + ATTRS_LEN;
}

static struct attrs decode_attrs(struct cursor *c)
{
    struct attrs a;
    a.mode = cursor_le32(c);
    a.uid = cursor_le32(c);
    a.gid = cursor_le32(c);
    a.rdev = cursor_le32(c);
    a.size = cursor_le64(c);
    a.atime = (int64_t)cursor_le64(c);
    a.mtime = (int64_t)cursor_le64(c);
    a.ctime = (int64_t)cursor_le64(c);
    a.btime = (int64_t)cursor_le64(c);
    return a;
}

/*   OFFSET SIZE: 0 8 offset in the file; 8 8 length; 16 4 offset in the chunk; 20 1 kind; 21 3
 * zero; 24 24 name */
static void encode_extent(const struct extent *e, uint8_t *p)
{
    memset(p, 0, EXTENT_LEN);
    put_le64(p, e->offset);
    put_le64(p + 8, e->length);
    put_le32(p + 16, e->chunk_offset);
    p[20] = (uint8_t)e->kind;
    if (e->kind == EXTENT_CHUNK)
        memcpy(p + 24, e->chunk.bytes, sizeof e->chunk.bytes);
}

struct extent record_extent(const struct record *rec, uint32_t i)
{
    check(i < rec->extent_count);
    const uint8_t *p = rec->extents_encoded + (size_t)i * EXTENT_LEN;
    struct extent e = {.offset = get_le64(p),
                       .length = get_le64(p + 8),
                       .chunk_offset = get_le32(p + 16),
                       .kind = (enum extent_kind)p[20]};
    memcpy(e.chunk.bytes, p + 24, sizeof e.chunk.bytes);
    return e;
}

static uint8_t *encode_bytes16(const char *s, uint16_t len, uint8_t *p)
{
    put_le16(p, len);
    if (len)
        memcpy(p + 2, s, len);
    return p + 2 + len;
}

static uint8_t *encode_fields(const struct record *rec, uint32_t fields, uint8_t *p)
{
    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        if (fields & words[i].field) {
            put_le64(p, *word_at((struct record *)(uintptr_t)rec, i));
            p += 8;
        }
    if (fields & F_COUNT) {
        put_le32(p, rec->count);
        p += 4;
    }
    if (fields & F_MASK) {
        put_le32(p, rec->mask);
        p += 4;
    }
    if (fields & F_SLAB) {
        put_le32(p, rec->slab);
        put_le32(p + 4, rec->slab_offset);
        p += 8;
    }
    if (fields & F_ATTRS)
        p = encode_attrs(&rec->attrs, p);
    if (fields & F_NAME)
        p = encode_bytes16(rec->name, rec->name_len, p);
    if (fields & F_NAME2)
        p = encode_bytes16(rec->name2, rec->name2_len, p);
    if (fields & F_VALUE) {
        put_le32(p, rec->value_len);
        if (rec->value_len)
            memcpy(p + 4, rec->value, rec->value_len);
        p += 4 + rec->value_len;
    }
    if (fields & F_EXTENTS) {
        put_le32(p, rec->extent_count);
        p += 4;
        for (uint32_t i = 0; i < rec->extent_count; i++, p += EXTENT_LEN) {
            /* a decoded record is encoded again unchanged */
            if (rec->extents_encoded)
                memcpy(p, rec->extents_encoded + (size_t)i * EXTENT_LEN, EXTENT_LEN);
            else
                encode_extent(&rec->extents[i], p);
        }
    }
    return p;
}

void record_encode(const struct record *rec, void *buf)
{
    uint32_t fields = fields_of(rec->type);
    size_t len = record_encoded_len(rec);
    check(fields != 0 && len <= RECORD_LEN_MAX && rec->value_len <= VALUE_LEN_MAX);
    check(rec->name_len <= NAME_LEN_MAX && rec->name2_len <= NAME_LEN_MAX);
    check(rec->extent_count <= RECORD_EXTENTS_MAX);
    uint8_t *p = buf;
    put_le32(p + 4, (uint32_t)len);
    put_le16(p + 8, rec->type);
    put_le16(p + 10, rec->writer);
    put_le32(p + 12, rec->flags);
    put_le64(p + 16, rec->seq);
    put_le64(p + 24, (uint64_t)rec->time);
    uint8_t *end = encode_fields(rec, fields, p + RECORD_HEADER_LEN);
    memset(end, 0, len - (size_t)(end - p));
    put_le32(p, crc32_of(0, p + 4, len - 4));
}

static const char *decode_name(struct cursor *c, uint16_t *ret_len)
{
    uint16_t len = cursor_le16(c);
    const char *name = cursor_bytes(c, len);
    if (!name)
        len = 0;
    if (len > NAME_LEN_MAX || (len && memchr(name, 0, len)))
        c->failed = true;
    *ret_len = len;
    return name;
}

/* Are the bytes zero that an encoder leaves zero? */
static bool extent_is_plain(const uint8_t *p)
{
    return bytes_are_zero(p + 21, 3) && (p[20] == EXTENT_CHUNK || bytes_are_zero(p + 24, 24));
}

static void decode_extents(struct cursor *c, struct record *rec)
{
    rec->extent_count = cursor_le32(c);
    if (rec->extent_count > RECORD_EXTENTS_MAX) {
        c->failed = true;
        rec->extent_count = 0;
        return;
    }
    rec->extents_encoded = cursor_bytes(c, (size_t)rec->extent_count * EXTENT_LEN);
    if (!rec->extents_encoded) {
        rec->extent_count = 0;
        return;
    }
    uint64_t inline_bytes = 0;
    for (uint32_t i = 0; i < rec->extent_count; i++) {
        struct extent e = record_extent(rec, i);
        bool bad = !extent_is_plain(rec->extents_encoded + (size_t)i * EXTENT_LEN);
        bad = bad || e.length == 0 || e.length > INT64_MAX ||
              e.offset > (uint64_t)INT64_MAX - e.length;
        bad = bad || e.kind > EXTENT_INLINE;
        bad = bad ||
              (e.kind == EXTENT_CHUNK &&
               (e.length > CHUNK_SIZE_MAX || e.chunk_offset > CHUNK_SIZE_MAX - (uint32_t)e.length));
        if (bad)
            c->failed = true;
        else if (e.kind == EXTENT_INLINE)
            inline_bytes += e.length;
    }
    if (inline_bytes > rec->value_len)
        c->failed = true;
}

static void decode_fields(struct cursor *c, uint32_t fields, struct record *rec)
{
    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        if (fields & words[i].field)
            *word_at(rec, i) = cursor_le64(c);
    if (fields & F_COUNT)
        rec->count = cursor_le32(c);
    if (fields & F_MASK)
        rec->mask = cursor_le32(c);
    if (fields & F_SLAB) {
        rec->slab = cursor_le32(c);
        rec->slab_offset = cursor_le32(c);
    }
    if (fields & F_ATTRS)
        rec->attrs = decode_attrs(c);
    if (fields & F_NAME)
        rec->name = decode_name(c, &rec->name_len);
    if (fields & F_NAME2)
        rec->name2 = decode_name(c, &rec->name2_len);
    if (fields & F_VALUE) {
        rec->value_len = cursor_le32(c);
        if (rec->value_len > VALUE_LEN_MAX)
            c->failed = true;
        rec->value = cursor_bytes(c, rec->value_len);
        if (!rec->value)
            rec->value_len = 0;
    }
    if (fields & F_EXTENTS)
        decode_extents(c, rec);
}

/* Is it a valid name of a directory entry? Other than xattr names, it must not contain a slash, nor
 * be "." or "..". */
static bool entry_name_ok(const char *name, uint16_t len)
{
    return len > 0 && !memchr(name, '/', len) && !(len == 1 && name[0] == '.') &&
           !(len == 2 && name[0] == '.' && name[1] == '.');
}

static bool names_ok(const struct record *rec)
{
    switch (rec->type) {
    case REC_SEAL:
    case REC_VERSION:
        return !(rec->flags & RECORD_BIRTH) || entry_name_ok(rec->name, rec->name_len);
    case REC_NASCENT: /* an O_TMPFILE file has no name at first */
        return rec->flags & RECORD_ORPHAN
                   ? rec->name_len == 0 || entry_name_ok(rec->name, rec->name_len)
                   : entry_name_ok(rec->name, rec->name_len);
    case REC_MAKE:
    case REC_LINK:
    case REC_UNLINK:
        return entry_name_ok(rec->name, rec->name_len);
    case REC_RENAME:
        return entry_name_ok(rec->name, rec->name_len) && entry_name_ok(rec->name2, rec->name2_len);
    case REC_SETXATTR:
    case REC_REMOVEXATTR:
        return rec->name_len > 0;
    default:
        return true;
    }
}

/* A record has exactly one encoding: after its fields come only zeros, up to the alignment. */
static bool is_padding(const struct cursor *c)
{
    size_t len = (size_t)(c->end - c->at);
    return len < 8 && bytes_are_zero(c->at, len);
}

int record_decode(const void *buf, size_t len, struct record *ret_rec, size_t *ret_len)
{
    const uint8_t *p = buf;
    if (len < RECORD_HEADER_LEN)
        return -EUCLEAN;
    uint32_t record_len = get_le32(p + 4);
    if (record_len < RECORD_HEADER_LEN || record_len % 8 != 0 || record_len > len ||
        record_len > RECORD_LEN_MAX)
        return -EUCLEAN;
    if (get_le32(p) != crc32_of(0, p + 4, record_len - 4))
        return -EBADMSG;
    struct record rec = {.type = get_le16(p + 8),
                         .writer = get_le16(p + 10),
                         .flags = get_le32(p + 12),
                         .seq = get_le64(p + 16),
                         .time = (int64_t)get_le64(p + 24)};
    uint32_t fields = fields_of(rec.type);
    if (fields == 0)
        return -EPROTONOSUPPORT;
    struct cursor c = {.at = p + RECORD_HEADER_LEN, .end = p + record_len};
    decode_fields(&c, fields, &rec);
    if (c.failed || !names_ok(&rec) || !is_padding(&c))
        return -EUCLEAN;
    *ret_rec = rec;
    *ret_len = record_len;
    return 0;
}

void record_set_attrs(const struct record *rec, struct attrs *attrs)
{
    const uint32_t permissions = 07777; /* the type of a file never changes */
    if (rec->mask & ATTR_MODE)
        attrs->mode = (attrs->mode & ~permissions) | (rec->attrs.mode & permissions);
    if (rec->mask & ATTR_UID)
        attrs->uid = rec->attrs.uid;
    if (rec->mask & ATTR_GID)
        attrs->gid = rec->attrs.gid;
    if (rec->mask & ATTR_ATIME)
        attrs->atime = rec->attrs.atime;
    if (rec->mask & ATTR_MTIME)
        attrs->mtime = rec->attrs.mtime;
    if (rec->mask & ATTR_CTIME)
        attrs->ctime = rec->attrs.ctime;
}
