// SPDX-License-Identifier: Apache-2.0
#include "view/values.h"

#include <sys/stat.h>

#define PIECE_LEN 37u
#define PAGE_HEADER_LEN 5u
#define VIEW_CHUNK_VERSION 2u

/* Writes fields one after the other. */
struct writer {
    uint8_t *at;
};

static void write_u8(struct writer *w, uint8_t v)
{
    *w->at++ = v;
}

static void write_u32(struct writer *w, uint32_t v)
{
    put_le32(w->at, v);
    w->at += 4;
}

static void write_u64(struct writer *w, uint64_t v)
{
    put_le64(w->at, v);
    w->at += 8;
}

static void write_value_bytes(struct writer *w, const void *p, size_t len)
{
    if (len)
        memcpy(w->at, p, len);
    w->at += len;
}

#define read_u8 cursor_u8
#define read_u32 cursor_le32
#define read_u64 cursor_le64

static void read_value_bytes(struct cursor *c, void *p, size_t len)
{
    const void *bytes = cursor_bytes(c, len);
    if (bytes)
        memcpy(p, bytes, len);
}

static struct writer value_write(uint8_t *p)
{
    struct writer w = {p};
    write_u8(&w, VIEW_VALUE_VERSION);
    return w;
}

static size_t value_written(const struct writer *w, const uint8_t *p, size_t len)
{
    check((size_t)(w->at - p) == len);
    return len;
}

static struct cursor value_begin(const void *p, size_t len)
{
    struct cursor c = {.at = p, .end = (const uint8_t *)p + len};
    if (cursor_u8(&c) != VIEW_VALUE_VERSION)
        c.failed = true;
    return c;
}

static int value_end(const struct cursor *c)
{
    return c->failed || c->at != c->end ? -EUCLEAN : 0;
}

/* Values are described as lists of fields, in order: the width in bits, and the member of `row`.
 * PUT appends one to `w`; GET reads one from `c`. */
#define PUT(bits, member) write_u##bits(&w, (uint##bits##_t)row->member)
#define GET(bits, member) row->member = (__typeof__(row->member))read_u##bits(&c)
/* Encodes or decodes a value that consists of such a list only, at `p`. */
#define ENCODE(fields, len)                                                                        \
    __extension__({                                                                                \
        struct writer w = value_write(p);                                                          \
        fields(PUT);                                                                               \
        value_written(&w, p, len);                                                                 \
    })
#define DECODE(fields)                                                                             \
    __extension__({                                                                                \
        struct cursor c = value_begin(p, len);                                                     \
        fields(GET);                                                                               \
        value_end(&c);                                                                             \
    })

#define INODE_ATTRS(field)                                                                         \
    field(32, pub.attrs.mode), field(32, pub.attrs.uid), field(32, pub.attrs.gid),                 \
        field(32, pub.attrs.rdev), field(64, pub.attrs.size), field(64, pub.attrs.atime),          \
        field(64, pub.attrs.mtime), field(64, pub.attrs.ctime), field(64, pub.attrs.btime)
#define INODE_COUNTS(field)                                                                        \
    field(64, pub.version), field(64, pub.parent), field(64, pub.blocks_bytes), field(64, pages),  \
        field(64, pub.xattrs), field(64, entries)

size_t inode_encode(const struct inode_row *row, uint8_t *p)
{
    struct writer w = value_write(p);
    INODE_ATTRS(PUT);
    write_u64(&w, row->pub.nlink);
    INODE_COUNTS(PUT);
    return value_written(&w, p, INODE_VALUE_LEN);
}

int inode_decode(uint64_t ino, const void *p, size_t len, struct inode_row *row)
{
    struct cursor c = value_begin(p, len);
    row->pub.ino = ino;
    INODE_ATTRS(GET);
    uint64_t nlink = read_u64(&c);
    row->pub.nlink = (uint32_t)nlink;
    INODE_COUNTS(GET);
    row->pub.is_elsewhere = inode_row_is_elsewhere(row);
    if (nlink > UINT32_MAX || row->pub.attrs.size > VIEW_OFFSET_MAX)
        return -EUCLEAN;
    return value_end(&c);
}

#define NAME_FIELDS(field) field(64, ino), field(64, cookie), field(32, type)

size_t name_encode(const struct view_entry *row, uint8_t *p)
{
    return ENCODE(NAME_FIELDS, NAME_VALUE_LEN);
}

int name_decode(const void *p, size_t len, struct view_entry *row)
{
    return DECODE(NAME_FIELDS);
}

#define STAND_IN_FIELDS(field)                                                                     \
    field(64, ino), field(64, parent), field(32, mode), field(32, uid), field(32, gid)

size_t stand_in_encode(const struct view_stand_in *row, uint8_t *p)
{
    struct writer w = value_write(p);
    STAND_IN_FIELDS(PUT);
    write_value_bytes(&w, row->name, row->name_len);
    return (size_t)(w.at - p);
}

int stand_in_decode(const void *p, size_t len, struct view_stand_in *row)
{
    struct cursor c = value_begin(p, len);
    STAND_IN_FIELDS(GET);
    size_t name_len = (size_t)(c.end - c.at);
    if (c.failed || name_len == 0 || name_len > NAME_LEN_MAX)
        return -EUCLEAN;
    row->name_len = (uint16_t)name_len;
    memcpy(row->name, c.at, name_len);
    row->name[name_len] = '\0';
    return 0;
}

size_t cookie_encode(const struct view_entry *entry, const char *name, size_t name_len, uint8_t *p)
{
    struct writer w = value_write(p);
    write_u64(&w, entry->ino);
    write_u32(&w, entry->type);
    write_value_bytes(&w, name, name_len);
    return (size_t)(w.at - p);
}

int cookie_decode(uint64_t cookie, const void *p, size_t len, struct view_entry *entry,
                  const char **ret_name, size_t *ret_name_len)
{
    struct cursor c = value_begin(p, len);
    entry->ino = read_u64(&c);
    entry->type = read_u32(&c);
    entry->cookie = cookie;
    *ret_name_len = (size_t)(c.end - c.at);
    *ret_name = (const char *)c.at;
    return c.failed || *ret_name_len == 0 || *ret_name_len > NAME_LEN_MAX ? -EUCLEAN : 0;
}

/* Numbers of 7 bits per byte, lowest first; each byte but the last has its highest bit set. */
static void write_number(struct writer *w, uint64_t v)
{
    for (; v >= 0x80; v >>= 7)
        write_u8(w, (uint8_t)(v | 0x80));
    write_u8(w, (uint8_t)v);
}

/* Accepts only the shortest form. */
static uint64_t read_number(struct cursor *c)
{
    uint64_t v = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
        uint8_t byte = read_u8(c);
        if ((shift == 63 && byte > 1) || (shift > 0 && byte == 0))
            break;
        v |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80)
            return v;
    }
    c->failed = true;
    return 0;
}

static uint32_t read_number32(struct cursor *c)
{
    uint64_t v = read_number(c);
    c->failed = c->failed || v > UINT32_MAX;
    return (uint32_t)v;
}

/* Lengths as the difference to a full chunk: mostly 0. */
static void write_missing_length(struct writer *w, uint32_t length)
{
    write_number(w, (uint32_t)(CHUNK_SIZE_MAX - length));
}

static uint32_t read_length(struct cursor *c)
{
    return CHUNK_SIZE_MAX - read_number32(c);
}

static void write_refs(struct writer *w, const struct chunk_entry *e)
{
    for (size_t i = 0; i < e->ref_count; i++) {
        write_value_bytes(w, e->refs[i].name.bytes, sizeof e->refs[i].name.bytes);
        write_number(w, e->refs[i].offset);
        write_missing_length(w, e->refs[i].length);
    }
}

static void read_refs(struct cursor *c, struct chunk_entry *e)
{
    for (size_t i = 0; i < e->ref_count; i++) {
        read_value_bytes(c, e->refs[i].name.bytes, sizeof e->refs[i].name.bytes);
        e->refs[i].offset = read_number32(c);
        e->refs[i].length = read_length(c);
    }
}

/* The bytes that most rows have in common come first, then the number of the pack from its highest
 * byte on: so RocksDB compresses them as one match with the preceding row. */
size_t chunk_row_encode(const struct chunk_row *row, uint8_t *p)
{
    const struct chunk_entry *e = &row->entry;
    uint64_t pack = htobe64(e->pack);
    struct writer w = {p};
    check(e->ref_count <= CHUNK_REFS_MAX);
    write_u8(&w, VIEW_CHUNK_VERSION);
    write_u8(&w, e->encoding);
    write_u8(&w, e->depth);
    write_u8(&w, e->ref_count);
    write_number(&w, row->refs);
    write_number(&w, row->dependents);
    write_missing_length(&w, e->raw_len);
    write_value_bytes(&w, &pack, sizeof pack);
    write_number(&w, e->offset);
    write_number(&w, e->stored_len);
    write_refs(&w, e);
    check((size_t)(w.at - p) <= CHUNK_VALUE_LEN_MAX);
    return (size_t)(w.at - p);
}

int chunk_row_decode(const struct chunk_name *name, const void *p, size_t len,
                     struct chunk_row *row)
{
    struct cursor c = {.at = p, .end = (const uint8_t *)p + len};
    uint64_t pack = 0;
    struct chunk_entry *e = &row->entry;
    memset(row, 0, sizeof *row);
    e->name = *name;
    if (read_u8(&c) != VIEW_CHUNK_VERSION)
        return -EUCLEAN;
    e->encoding = read_u8(&c);
    e->depth = read_u8(&c);
    uint8_t ref_count = read_u8(&c);
    if (ref_count > CHUNK_REFS_MAX)
        return -EUCLEAN;
    e->ref_count = ref_count;
    row->refs = read_number(&c);
    row->dependents = read_number32(&c);
    e->raw_len = read_length(&c);
    read_value_bytes(&c, &pack, sizeof pack);
    e->pack = be64toh(pack);
    e->offset = read_number(&c);
    e->stored_len = read_number32(&c);
    read_refs(&c, e);
    return value_end(&c);
}

#define CHUNK_RUN_FIELDS(field)                                                                    \
    field(64, refs), field(64, entry.pack), field(64, entry.offset), field(32, entry.stored_len),  \
        field(32, entry.raw_len), field(8, entry.encoding), field(8, entry.depth),                 \
        field(8, entry.ref_count)

size_t chunk_run_encode(const struct chunk_row *row, uint8_t *p)
{
    const struct chunk_entry *e = &row->entry;
    struct writer w = value_write(p);
    check(e->ref_count <= CHUNK_REFS_MAX);
    CHUNK_RUN_FIELDS(PUT);
    for (size_t i = 0; i < e->ref_count; i++) {
        write_value_bytes(&w, e->refs[i].name.bytes, sizeof e->refs[i].name.bytes);
        write_u32(&w, e->refs[i].offset);
        write_u32(&w, e->refs[i].length);
    }
    return (size_t)(w.at - p);
}

int chunk_run_decode(const struct chunk_name *name, const void *p, size_t len,
                     struct chunk_row *row)
{
    struct cursor c = value_begin(p, len);
    memset(row, 0, sizeof *row);
    struct chunk_entry *e = &row->entry;
    e->name = *name;
    CHUNK_RUN_FIELDS(GET);
    if (e->ref_count > CHUNK_REFS_MAX) {
        e->ref_count = 0;
        return -EUCLEAN;
    }
    for (size_t i = 0; i < e->ref_count; i++) {
        read_value_bytes(&c, e->refs[i].name.bytes, sizeof e->refs[i].name.bytes);
        e->refs[i].offset = read_u32(&c);
        e->refs[i].length = read_u32(&c);
    }
    return value_end(&c);
}

/* The fields of packs on NVMe, and in the remote. */
#define PACK_FIELDS(field)                                                                         \
    field(64, pub.length), field(32, pub.count), field(64, pub.live_bytes),                        \
        field(32, pub.live_count), field(64, placed)

size_t pack_row_encode(const struct pack_row *row, uint8_t *p)
{
    return ENCODE(PACK_FIELDS, PACK_VALUE_LEN);
}

int pack_row_decode(uint64_t pack, const void *p, size_t len, struct pack_row *row)
{
    row->pub.pack = pack;
    return DECODE(PACK_FIELDS);
}

/* An optional last number, omitted if it is 0: earlier versions did not have it. */
static size_t write_last_value(struct writer *w, uint8_t *p, uint64_t number, size_t len_max)
{
    if (number)
        write_u64(w, number);
    return value_written(w, p, number ? len_max : len_max - sizeof number);
}

static int read_last_value(struct cursor *c, uint64_t *ret_number)
{
    *ret_number = 0;
    if (c->at == c->end)
        return value_end(c);
    *ret_number = read_u64(c);
    return *ret_number == 0 ? -EUCLEAN : value_end(c);
}

/* After the hash chain of the journal, STATE_COUNTS. */
#define STATE_COUNTS(field)                                                                        \
    field(64, max_ino), field(64, files), field(64, logical_bytes), field(64, chunks),             \
        field(64, stored_bytes), field(64, packs), field(64, pack_bytes)

size_t state_encode(const struct view_state *row, uint8_t *p)
{
    struct writer w = {p};
    write_u8(&w, VIEW_VERSION);
    write_u64(&w, row->applied_seq);
    write_value_bytes(&w, row->chain, sizeof row->chain);
    STATE_COUNTS(PUT);
    return write_last_value(&w, p, row->held_bytes, STATE_VALUE_LEN_MAX);
}

int state_decode(const void *p, size_t len, struct view_state *row)
{
    struct cursor c = {.at = p, .end = (const uint8_t *)p + len};
    uint8_t version = read_u8(&c);
    if (version != VIEW_VERSION)
        return version > 0 && version < VIEW_VERSION ? -ESTALE : -EUCLEAN;
    row->applied_seq = read_u64(&c);
    read_value_bytes(&c, row->chain, sizeof row->chain);
    STATE_COUNTS(GET);
    return read_last_value(&c, &row->held_bytes);
}

#define REMOTE_PACK_FIELDS(field)                                                                  \
    PACK_FIELDS(field), field(64, pub.head), field(64, pub.unreferenced), field(8, pub.gone),      \
        field(64, pub.suspect)

size_t remote_pack_row_encode(const struct remote_pack_row *row, uint8_t *p)
{
    struct writer w = value_write(p);
    REMOTE_PACK_FIELDS(PUT);
    return write_last_value(&w, p, row->pub.until, REMOTE_PACK_VALUE_LEN);
}

int remote_pack_row_decode(uint64_t pack, const void *p, size_t len, struct remote_pack_row *row)
{
    struct cursor c = value_begin(p, len);
    *row = (struct remote_pack_row){.pub = {.pack = pack}};
    REMOTE_PACK_FIELDS(GET);
    return read_last_value(&c, &row->pub.until);
}

#define REMOTE_PACK_RUN_FIELDS(field) field(64, length), field(32, count), field(64, unreferenced)

size_t remote_pack_run_encode(const struct view_remote_pack *row, uint8_t *p)
{
    return ENCODE(REMOTE_PACK_RUN_FIELDS, REMOTE_PACK_RUN_VALUE_LEN);
}

int remote_pack_run_decode(uint64_t pack, const void *p, size_t len, struct remote_pack_row *ret)
{
    struct view_remote_pack *row = &ret->pub;
    *ret = (struct remote_pack_row){.pub = {.pack = pack}};
    return DECODE(REMOTE_PACK_RUN_FIELDS);
}

#define REMOTE_STATE_FIELDS(field)                                                                 \
    field(8, pub.tracks), field(8, pub.is_whole), field(64, pub.head), field(64, pub.cut),         \
        field(64, pub.packs), field(64, pub.pack_bytes), field(64, pub.pending_chunks),            \
        field(64, pub.pending_bytes), field(64, changes)

size_t remote_state_row_encode(const struct remote_state_row *row, uint8_t *p)
{
    struct writer w = value_write(p);
    REMOTE_STATE_FIELDS(PUT);
    return write_last_value(&w, p, row->pub.held_bytes, REMOTE_STATE_VALUE_LEN_MAX);
}

int remote_state_row_decode(const void *p, size_t len, struct remote_state_row *row)
{
    struct cursor c = value_begin(p, len);
    *row = (struct remote_state_row){0};
    REMOTE_STATE_FIELDS(GET);
    return read_last_value(&c, &row->pub.held_bytes);
}

#define TOUCHED_FIELDS(field) field(64, change), field(64, cut)

size_t touched_encode(const struct touched_row *row, uint8_t *p)
{
    return ENCODE(TOUCHED_FIELDS, TOUCHED_VALUE_LEN);
}

int touched_decode(const void *p, size_t len, struct touched_row *row)
{
    return DECODE(TOUCHED_FIELDS);
}

size_t pending_upload_encode(uint64_t stored_bytes, uint8_t *p)
{
    struct writer w = value_write(p);
    write_u64(&w, stored_bytes);
    return value_written(&w, p, PENDING_UPLOAD_VALUE_LEN);
}

int pending_upload_decode(const void *p, size_t len, uint64_t *ret_stored_bytes)
{
    struct cursor c = value_begin(p, len);
    *ret_stored_bytes = read_u64(&c);
    return value_end(&c);
}

size_t dependent_encode(unsigned depth, uint8_t *p)
{
    check(depth > 0 && depth <= CHUNK_DEPTH_MAX);
    struct writer w = value_write(p);
    write_u8(&w, (uint8_t)depth);
    return value_written(&w, p, DEPENDENT_VALUE_LEN);
}

int dependent_decode(const void *p, size_t len, unsigned *ret_depth)
{
    struct cursor c = value_begin(p, len);
    *ret_depth = read_u8(&c);
    return value_end(&c);
}

/*   OFFSET SIZE: 0 4 offset in the page; 4 4 length; 8 4 offset in the chunk or blob; 12 1 kind;
 *   13 24 chunk name, or 13 8 blob version, 21 8 blob offset in the file, 29 8 zero */
static void piece_encode(uint64_t base, const struct piece *e, struct writer *w)
{
    write_u32(w, (uint32_t)(e->offset - base));
    write_u32(w, (uint32_t)e->length);
    write_u32(w, e->within);
    write_u8(w, (uint8_t)e->kind);
    if (e->kind == EXTENT_CHUNK) {
        write_value_bytes(w, e->chunk.bytes, sizeof e->chunk.bytes);
        return;
    }
    write_u64(w, e->blob_version);
    write_u64(w, e->blob_offset);
    write_u64(w, 0);
}

static int piece_decode(uint64_t base, struct cursor *c, struct piece *e)
{
    *e = (struct piece){0};
    e->offset = base + read_u32(c);
    e->length = read_u32(c);
    e->within = read_u32(c);
    e->kind = (enum extent_kind)read_u8(c);
    if (e->kind == EXTENT_CHUNK) {
        read_value_bytes(c, e->chunk.bytes, sizeof e->chunk.bytes);
        return c->failed ? -EUCLEAN : 0;
    }
    e->blob_version = read_u64(c);
    e->blob_offset = read_u64(c);
    return c->failed || e->kind != EXTENT_INLINE || read_u64(c) != 0 ? -EUCLEAN : 0;
}

void page_encode(uint64_t page, const struct piece_list *list, uint8_t **ret_value, size_t *ret_len)
{
    check(list->count <= UINT32_MAX);
    *ret_len = PAGE_HEADER_LEN + list->count * PIECE_LEN;
    *ret_value = xmalloc(*ret_len);
    struct writer w = value_write(*ret_value);
    write_u32(&w, (uint32_t)list->count);
    for (size_t i = 0; i < list->count; i++)
        piece_encode(page * VIEW_PAGE_LEN, &list->at[i], &w);
}

/* Index of the first of `count` pieces at `pieces` that ends after `from`, an offset in the
 * page. */
static uint32_t find_piece(const uint8_t *pieces, uint32_t count, uint64_t from)
{
    uint32_t low = 0, high = count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        const uint8_t *piece = pieces + (size_t)middle * PIECE_LEN;
        if ((uint64_t)get_le32(piece) + get_le32(piece + 4) <= from)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

int page_walk(const struct page_value *page, uint64_t from, uint64_t to,
              int (*fn)(const struct piece *piece, void *arg), void *arg)
{
    struct cursor c = value_begin(page->bytes, page->len);
    uint32_t count = read_u32(&c);
    if (c.failed || page->number > VIEW_OFFSET_MAX / VIEW_PAGE_LEN ||
        (size_t)(c.end - c.at) != (size_t)count * PIECE_LEN)
        return -EUCLEAN;
    uint64_t base = page->number * VIEW_PAGE_LEN, end = base;
    if (from > base)
        c.at += (size_t)find_piece(c.at, count, from - base) * PIECE_LEN;
    while (c.at < c.end) {
        struct piece e;
        TRY(piece_decode(base, &c, &e));
        if (e.offset < end || e.length == 0 || e.offset + e.length > base + VIEW_PAGE_LEN)
            return -EUCLEAN;
        if (e.offset >= to)
            break;
        end = e.offset + e.length;
        int r = fn(&e, arg);
        if (r != 0)
            return r;
    }
    return 0;
}

static int add_piece(const struct piece *piece, void *arg)
{
    struct piece_list *list = arg;
    vector_add(list, *piece);
    return 0;
}

int page_decode(uint64_t page, const void *p, size_t len, struct piece_list *list)
{
    const struct page_value value = {page, p, len};
    return page_walk(&value, 0, UINT64_MAX, add_piece, list);
}

int bytes_decode(const void *p, size_t len, const uint8_t **ret_bytes, size_t *ret_len)
{
    struct cursor c = value_begin(p, len);
    *ret_bytes = c.at;
    *ret_len = (size_t)(c.end - c.at);
    return c.failed ? -EUCLEAN : 0;
}
