// SPDX-License-Identifier: Apache-2.0
#include "view/values.h"

#include <sys/stat.h>

#define PIECE_LEN 37u
#define PAGE_HEADER_LEN 5u

/* Writing fields one after the other. */
struct writer {
    uint8_t *at;
};

static void w8(struct writer *w, uint8_t v)
{
    *w->at++ = v;
}

static void w32(struct writer *w, uint32_t v)
{
    put_le32(w->at, v);
    w->at += 4;
}

static void w64(struct writer *w, uint64_t v)
{
    put_le64(w->at, v);
    w->at += 8;
}

static void wbytes(struct writer *w, const void *p, size_t len)
{
    if (len)
        memcpy(w->at, p, len);
    w->at += len;
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

size_t inode_encode(const struct inode_row *row, uint8_t *p)
{
    const struct view_inode *i = &row->pub;
    struct writer w = {p};
    w8(&w, VIEW_VALUE_VERSION);
    w32(&w, i->attrs.mode);
    w32(&w, i->attrs.uid);
    w32(&w, i->attrs.gid);
    w32(&w, i->attrs.rdev);
    w64(&w, i->attrs.size);
    w64(&w, (uint64_t)i->attrs.atime);
    w64(&w, (uint64_t)i->attrs.mtime);
    w64(&w, (uint64_t)i->attrs.ctime);
    w64(&w, (uint64_t)i->attrs.btime);
    w64(&w, i->nlink);
    w64(&w, i->version);
    w64(&w, i->parent);
    w64(&w, i->blocks_bytes);
    w64(&w, row->pages);
    w64(&w, row->pub.xattrs);
    w64(&w, row->entries);
    check((size_t)(w.at - p) == INODE_VALUE_LEN);
    return INODE_VALUE_LEN;
}

int inode_decode(uint64_t ino, const void *p, size_t len, struct inode_row *row)
{
    struct cursor c = value_begin(p, len);
    struct view_inode *i = &row->pub;
    i->ino = ino;
    i->attrs.mode = cursor_le32(&c);
    i->attrs.uid = cursor_le32(&c);
    i->attrs.gid = cursor_le32(&c);
    i->attrs.rdev = cursor_le32(&c);
    i->attrs.size = cursor_le64(&c);
    i->attrs.atime = (int64_t)cursor_le64(&c);
    i->attrs.mtime = (int64_t)cursor_le64(&c);
    i->attrs.ctime = (int64_t)cursor_le64(&c);
    i->attrs.btime = (int64_t)cursor_le64(&c);
    uint64_t nlink = cursor_le64(&c);
    i->nlink = (uint32_t)nlink;
    i->version = cursor_le64(&c);
    i->parent = cursor_le64(&c);
    i->blocks_bytes = cursor_le64(&c);
    row->pages = cursor_le64(&c);
    row->pub.xattrs = cursor_le64(&c);
    row->entries = cursor_le64(&c);
    if (nlink > UINT32_MAX || i->attrs.size > VIEW_OFFSET_MAX)
        return -EUCLEAN;
    return value_end(&c);
}

size_t name_encode(const struct view_entry *entry, uint8_t *p)
{
    struct writer w = {p};
    w8(&w, VIEW_VALUE_VERSION);
    w64(&w, entry->ino);
    w64(&w, entry->cookie);
    w32(&w, entry->type);
    return (size_t)(w.at - p);
}

int name_decode(const void *p, size_t len, struct view_entry *entry)
{
    struct cursor c = value_begin(p, len);
    entry->ino = cursor_le64(&c);
    entry->cookie = cursor_le64(&c);
    entry->type = cursor_le32(&c);
    return value_end(&c);
}

size_t cookie_encode(const struct view_entry *entry, const char *name, size_t name_len, uint8_t *p)
{
    struct writer w = {p};
    w8(&w, VIEW_VALUE_VERSION);
    w64(&w, entry->ino);
    w32(&w, entry->type);
    wbytes(&w, name, name_len);
    return (size_t)(w.at - p);
}

int cookie_decode(uint64_t cookie, const void *p, size_t len, struct view_entry *entry,
                  const char **ret_name, size_t *ret_name_len)
{
    struct cursor c = value_begin(p, len);
    entry->ino = cursor_le64(&c);
    entry->type = cursor_le32(&c);
    entry->cookie = cookie;
    *ret_name_len = (size_t)(c.end - c.at);
    *ret_name = (const char *)c.at;
    return c.failed || *ret_name_len == 0 || *ret_name_len > NAME_LEN_MAX ? -EUCLEAN : 0;
}

size_t chunk_row_encode(const struct chunk_row *row, uint8_t *p)
{
    const struct chunk_entry *e = &row->entry;
    struct writer w = {p};
    check(e->ref_count <= CHUNK_REFS_MAX);
    w8(&w, VIEW_VALUE_VERSION);
    w64(&w, row->refs);
    w64(&w, e->pack);
    w64(&w, e->offset);
    w32(&w, e->stored_len);
    w32(&w, e->raw_len);
    w8(&w, e->encoding);
    w8(&w, e->depth);
    w8(&w, e->ref_count);
    for (size_t i = 0; i < e->ref_count; i++) {
        wbytes(&w, e->refs[i].name.bytes, sizeof e->refs[i].name.bytes);
        w32(&w, e->refs[i].offset);
        w32(&w, e->refs[i].length);
    }
    if (row->dependents)
        w32(&w, row->dependents);
    return (size_t)(w.at - p);
}

int chunk_row_decode(const struct chunk_name *name, const void *p, size_t len,
                     struct chunk_row *row)
{
    struct cursor c = value_begin(p, len);
    memset(row, 0, sizeof *row);
    struct chunk_entry *e = &row->entry;
    e->name = *name;
    row->refs = cursor_le64(&c);
    e->pack = cursor_le64(&c);
    e->offset = cursor_le64(&c);
    e->stored_len = cursor_le32(&c);
    e->raw_len = cursor_le32(&c);
    e->encoding = cursor_u8(&c);
    e->depth = cursor_u8(&c);
    e->ref_count = cursor_u8(&c);
    if (e->ref_count > CHUNK_REFS_MAX) {
        e->ref_count = 0;
        return -EUCLEAN;
    }
    for (size_t i = 0; i < e->ref_count; i++) {
        const void *bytes = cursor_bytes(&c, sizeof e->refs[i].name.bytes);
        if (bytes)
            memcpy(e->refs[i].name.bytes, bytes, sizeof e->refs[i].name.bytes);
        e->refs[i].offset = cursor_le32(&c);
        e->refs[i].length = cursor_le32(&c);
    }
    if (c.at == c.end)
        return value_end(&c);
    row->dependents = cursor_le32(&c);
    return row->dependents == 0 ? -EUCLEAN : value_end(&c);
}

size_t pack_row_encode(const struct pack_row *row, uint8_t *p)
{
    struct writer w = {p};
    w8(&w, VIEW_VALUE_VERSION);
    w64(&w, row->pub.length);
    w32(&w, row->pub.count);
    w64(&w, row->pub.live_bytes);
    w32(&w, row->pub.live_count);
    w64(&w, row->placed);
    check((size_t)(w.at - p) == PACK_VALUE_LEN);
    return PACK_VALUE_LEN;
}

int pack_row_decode(uint64_t pack, const void *p, size_t len, struct pack_row *row)
{
    struct cursor c = value_begin(p, len);
    row->pub.pack = pack;
    row->pub.length = cursor_le64(&c);
    row->pub.count = cursor_le32(&c);
    row->pub.live_bytes = cursor_le64(&c);
    row->pub.live_count = cursor_le32(&c);
    row->placed = cursor_le64(&c);
    return value_end(&c);
}

size_t state_encode(const struct view_state *state, uint8_t *p)
{
    struct writer w = {p};
    w8(&w, VIEW_VALUE_VERSION);
    w64(&w, state->applied_seq);
    wbytes(&w, state->chain, sizeof state->chain);
    w64(&w, state->max_ino);
    w64(&w, state->files);
    w64(&w, state->logical_bytes);
    w64(&w, state->chunks);
    w64(&w, state->stored_bytes);
    w64(&w, state->packs);
    w64(&w, state->pack_bytes);
    check((size_t)(w.at - p) == STATE_VALUE_LEN);
    return STATE_VALUE_LEN;
}

int state_decode(const void *p, size_t len, struct view_state *state)
{
    struct cursor c = value_begin(p, len);
    state->applied_seq = cursor_le64(&c);
    const void *chain = cursor_bytes(&c, sizeof state->chain);
    if (chain)
        memcpy(state->chain, chain, sizeof state->chain);
    state->max_ino = cursor_le64(&c);
    state->files = cursor_le64(&c);
    state->logical_bytes = cursor_le64(&c);
    state->chunks = cursor_le64(&c);
    state->stored_bytes = cursor_le64(&c);
    state->packs = cursor_le64(&c);
    state->pack_bytes = cursor_le64(&c);
    return value_end(&c);
}

size_t remote_pack_row_encode(const struct remote_pack_row *row, uint8_t *p)
{
    struct writer w = {p};
    w8(&w, VIEW_VALUE_VERSION);
    w64(&w, row->pub.length);
    w32(&w, row->pub.count);
    w64(&w, row->pub.live_bytes);
    w32(&w, row->pub.live_count);
    w64(&w, row->placed);
    w64(&w, row->pub.head);
    w64(&w, (uint64_t)row->pub.unreferenced);
    w8(&w, row->pub.gone);
    w64(&w, 0);
    check((size_t)(w.at - p) == REMOTE_PACK_VALUE_LEN);
    return REMOTE_PACK_VALUE_LEN;
}

int remote_pack_row_decode(uint64_t pack, const void *p, size_t len, struct remote_pack_row *row)
{
    struct cursor c = value_begin(p, len);
    *row = (struct remote_pack_row){.pub = {.pack = pack}};
    row->pub.length = cursor_le64(&c);
    row->pub.count = cursor_le32(&c);
    row->pub.live_bytes = cursor_le64(&c);
    row->pub.live_count = cursor_le32(&c);
    row->placed = cursor_le64(&c);
    row->pub.head = cursor_le64(&c);
    row->pub.unreferenced = (int64_t)cursor_le64(&c);
    row->pub.gone = cursor_u8(&c) != 0;
    (void)cursor_le64(&c);
    return value_end(&c);
}

size_t remote_pack_run_encode(const struct view_remote_pack *pack, uint8_t *p)
{
    struct writer w = {p};
    w8(&w, VIEW_VALUE_VERSION);
    w64(&w, pack->length);
    w32(&w, pack->count);
    w64(&w, (uint64_t)pack->unreferenced);
    check((size_t)(w.at - p) == REMOTE_PACK_RUN_VALUE_LEN);
    return REMOTE_PACK_RUN_VALUE_LEN;
}

int remote_pack_run_decode(uint64_t pack, const void *p, size_t len, struct remote_pack_row *row)
{
    struct cursor c = value_begin(p, len);
    *row = (struct remote_pack_row){.pub = {.pack = pack}};
    row->pub.length = cursor_le64(&c);
    row->pub.count = cursor_le32(&c);
    row->pub.unreferenced = (int64_t)cursor_le64(&c);
    return value_end(&c);
}

size_t remote_state_row_encode(const struct remote_state_row *row, uint8_t *p)
{
    struct writer w = {p};
    w8(&w, VIEW_VALUE_VERSION);
    w8(&w, row->pub.tracks);
    w8(&w, row->pub.is_whole);
    w64(&w, row->pub.head);
    w64(&w, row->pub.cut);
    w64(&w, row->pub.packs);
    w64(&w, row->pub.pack_bytes);
    w64(&w, row->pub.pending_chunks);
    w64(&w, row->pub.pending_bytes);
    w64(&w, row->changes);
    check((size_t)(w.at - p) == REMOTE_STATE_VALUE_LEN);
    return REMOTE_STATE_VALUE_LEN;
}

int remote_state_row_decode(const void *p, size_t len, struct remote_state_row *row)
{
    struct cursor c = value_begin(p, len);
    *row = (struct remote_state_row){0};
    row->pub.tracks = cursor_u8(&c) != 0;
    row->pub.is_whole = cursor_u8(&c) != 0;
    row->pub.head = cursor_le64(&c);
    row->pub.cut = cursor_le64(&c);
    row->pub.packs = cursor_le64(&c);
    row->pub.pack_bytes = cursor_le64(&c);
    row->pub.pending_chunks = cursor_le64(&c);
    row->pub.pending_bytes = cursor_le64(&c);
    row->changes = cursor_le64(&c);
    return value_end(&c);
}

size_t touched_encode(const struct touched_row *row, uint8_t *p)
{
    struct writer w = {p};
    w8(&w, VIEW_VALUE_VERSION);
    w64(&w, row->change);
    w64(&w, row->cut);
    return TOUCHED_VALUE_LEN;
}

int touched_decode(const void *p, size_t len, struct touched_row *row)
{
    struct cursor c = value_begin(p, len);
    row->change = cursor_le64(&c);
    row->cut = cursor_le64(&c);
    return value_end(&c);
}

size_t pending_upload_encode(uint64_t stored_bytes, uint8_t *p)
{
    struct writer w = {p};
    w8(&w, VIEW_VALUE_VERSION);
    w64(&w, stored_bytes);
    return PENDING_UPLOAD_VALUE_LEN;
}

int pending_upload_decode(const void *p, size_t len, uint64_t *ret_stored_bytes)
{
    struct cursor c = value_begin(p, len);
    *ret_stored_bytes = cursor_le64(&c);
    return value_end(&c);
}

size_t dependent_encode(unsigned depth, uint8_t *p)
{
    check(depth > 0 && depth <= CHUNK_DEPTH_MAX);
    struct writer w = {p};
    w8(&w, VIEW_VALUE_VERSION);
    w8(&w, (uint8_t)depth);
    return DEPENDENT_VALUE_LEN;
}

int dependent_decode(const void *p, size_t len, unsigned *ret_depth)
{
    struct cursor c = value_begin(p, len);
    *ret_depth = cursor_u8(&c);
    return value_end(&c);
}

/*   OFFSET SIZE: 0 4 offset in the page; 4 4 length; 8 4 offset in the chunk or blob; 12 1 kind;
 *   13 24 chunk name, or 13 8 blob version, 21 8 blob offset in the file, 29 8 zero */
static void piece_encode(uint64_t base, const struct piece *e, struct writer *w)
{
    w32(w, (uint32_t)(e->offset - base));
    w32(w, (uint32_t)e->length);
    w32(w, e->within);
    w8(w, (uint8_t)e->kind);
    if (e->kind == EXTENT_CHUNK) {
        wbytes(w, e->chunk.bytes, sizeof e->chunk.bytes);
        return;
    }
    w64(w, e->blob_version);
    w64(w, e->blob_offset);
    w64(w, 0);
}

static int piece_decode(uint64_t base, struct cursor *c, struct piece *e)
{
    *e = (struct piece){0};
    e->offset = base + cursor_le32(c);
    e->length = cursor_le32(c);
    e->within = cursor_le32(c);
    e->kind = (enum extent_kind)cursor_u8(c);
    if (e->kind == EXTENT_CHUNK) {
        const void *name = cursor_bytes(c, sizeof e->chunk.bytes);
        if (name)
            memcpy(e->chunk.bytes, name, sizeof e->chunk.bytes);
        return c->failed ? -EUCLEAN : 0;
    }
    e->blob_version = cursor_le64(c);
    e->blob_offset = cursor_le64(c);
    return c->failed || e->kind != EXTENT_INLINE || cursor_le64(c) != 0 ? -EUCLEAN : 0;
}

void page_encode(uint64_t page, const struct piece_list *list, uint8_t **ret_value, size_t *ret_len)
{
    *ret_len = PAGE_HEADER_LEN + list->count * PIECE_LEN;
    *ret_value = xmalloc(*ret_len);
    struct writer w = {*ret_value};
    w8(&w, VIEW_VALUE_VERSION);
    w32(&w, (uint32_t)list->count);
    for (size_t i = 0; i < list->count; i++)
        piece_encode(page * VIEW_PAGE_LEN, &list->at[i], &w);
}

int page_decode(uint64_t page, const void *p, size_t len, struct piece_list *list)
{
    struct cursor c = value_begin(p, len);
    uint32_t count = cursor_le32(&c);
    if (c.failed || page > VIEW_OFFSET_MAX / VIEW_PAGE_LEN ||
        (size_t)(c.end - c.at) != (size_t)count * PIECE_LEN)
        return -EUCLEAN;
    uint64_t base = page * VIEW_PAGE_LEN, end = base;
    for (uint32_t i = 0; i < count; i++) {
        struct piece e;
        int r = piece_decode(base, &c, &e);
        if (r < 0)
            return r;
        if (e.offset < end || e.length == 0 || e.offset + e.length > base + VIEW_PAGE_LEN)
            return -EUCLEAN;
        end = e.offset + e.length;
        vector_add(list, e);
    }
    return value_end(&c);
}

int bytes_decode(const void *p, size_t len, const uint8_t **ret_bytes, size_t *ret_len)
{
    struct cursor c = value_begin(p, len);
    *ret_bytes = c.at;
    *ret_len = (size_t)(c.end - c.at);
    return c.failed ? -EUCLEAN : 0;
}
