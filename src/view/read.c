// SPDX-License-Identifier: Apache-2.0
/* Reads that walk over many keys. Each uses one snapshot. */
#include <sys/stat.h>

#include "base/log.h"
#include "view/db.h"

static int log_damaged_type(int r, enum key_type type)
{
    if (r == -EUCLEAN)
        log_error("view: an entry of type %c is damaged", type);
    return r > 0 ? 0 : r;
}

int view_readdir(struct view *view, uint64_t parent, uint64_t after,
                 int (*fn)(const struct view_entry *entry, const char *name, size_t name_len,
                           void *arg),
                 void *arg)
{
    _cleanup_snap_ struct snap snap;
    snap_begin(&snap, view);
    struct inode_row row;
    TRY(db_get_inode(view, &snap, parent, &row));
    if (!S_ISDIR(row.pub.attrs.mode))
        return -ENOTDIR;
    if (after == UINT64_MAX)
        return 0;
    struct key prefix, from;
    key_u64(&prefix, KEY_COOKIE, parent);
    from = prefix;
    key_add_u64(&from, after + 1);
    _cleanup_scan_ struct scan scan;
    scan_open_at(&scan, &snap, &prefix, &from);
    int r = EACH_ROW(&scan, fn(&scan.row.entry, scan.row.name, scan.row.name_len, arg));
    if (r == -EUCLEAN)
        log_error("view: directory %llu is damaged", (unsigned long long)parent);
    return r > 0 ? 0 : r;
}

int view_next_name(struct view *view, uint64_t parent, size_t prefix_len, char *name)
{
    _cleanup_scan_ struct scan scan;
    scan_view(&scan, view, key_named(NEW_KEY, KEY_NAME, parent, name, prefix_len),
              key_named(NEW_KEY, KEY_NAME, parent, name, strlen(name)));
    int r = scan_row(&scan);
    if (r <= 0)
        return r < 0 ? r : -ENOENT;
    (void)row_name(&scan.row, name);
    return 0;
}

int view_listxattr(struct view *view, uint64_t ino,
                   int (*fn)(const char *name, size_t name_len, void *arg), void *arg)
{
    _cleanup_scan_ struct scan scan;
    scan_view(&scan, view, key_u64(NEW_KEY, KEY_XATTR, ino), NULL);
    return log_damaged_type(EACH_ROW(&scan, fn(scan.row.name, scan.row.name_len, arg)), KEY_XATTR);
}

int view_xattr_holders(struct view *view, const char *name, int (*fn)(uint64_t ino, void *arg),
                       void *arg)
{
    size_t len = strlen(name);
    _cleanup_scan_ struct scan scan;
    const struct view_row *row = &scan.row;
    scan_view_type(&scan, view, KEY_XATTR);
    int r = EACH_ROW(
        &scan, row->name_len == len && memcmp(row->name, name, len) == 0 ? fn(row->id, arg) : 0);
    return log_damaged_type(r, KEY_XATTR);
}

int view_packs(struct view *view, int (*fn)(const struct view_pack *pack, void *arg), void *arg)
{
    _cleanup_scan_ struct scan scan;
    scan_view_type(&scan, view, KEY_PACK);
    return log_damaged_type(EACH_ROW(&scan, fn(&scan.row.pack.pub, arg)), KEY_PACK);
}

int view_orphans(struct view *view, int (*fn)(uint64_t ino, void *arg), void *arg)
{
    _cleanup_scan_ struct scan scan;
    scan_view_type(&scan, view, KEY_ORPHAN);
    return log_damaged_type(EACH_ROW(&scan, fn(scan.row.id, arg)), KEY_ORPHAN);
}

int view_next_file(struct view *view, uint64_t from, struct view_inode *ret_inode)
{
    int r;
    _cleanup_scan_ struct scan scan;
    scan_view(&scan, view, key_type(NEW_KEY, KEY_INODE), key_u64(NEW_KEY, KEY_INODE, from));
    while ((r = scan_row(&scan)) > 0) {
        *ret_inode = scan.row.inode.pub;
        if (S_ISREG(ret_inode->attrs.mode) && ret_inode->nlink > 0)
            return 0;
    }
    return r < 0 ? r : -ENOENT;
}

int view_has_inode(struct view *view, uint64_t from, uint64_t to, bool *ret)
{
    _cleanup_scan_ struct scan scan;
    scan_view(&scan, view, key_type(NEW_KEY, KEY_INODE), key_u64(NEW_KEY, KEY_INODE, from));
    int r = scan_row(&scan);
    *ret = r > 0 && scan.row.inode.pub.ino < to;
    return r < 0 ? r : 0;
}

int view_chunks(struct view *view, int (*fn)(const struct view_local_chunk *chunk, void *arg),
                void *arg)
{
    _cleanup_scan_ struct scan scan;
    const struct chunk_row *row = &scan.row.placed;
    scan_view_type(&scan, view, KEY_CHUNK);
    int r = EACH_ROW(
        &scan, chunk_row_is_live(row)
                   ? fn(&(struct view_local_chunk){row->entry, row->refs, row->dependents}, arg)
                   : 0);
    return log_damaged_type(r, KEY_CHUNK);
}

/* A walk over the content of a range. Adjacent pieces of one chunk (split at a page border) are
 * joined, and so are adjacent holes. */
struct extents_walk {
    struct view *view;
    const struct snap *snap;
    uint64_t ino;
    uint64_t at, end;   /* the range not yet passed on */
    struct extent held; /* length 0: none */
    int (*fn)(const struct view_extent *part, void *arg);
    void *arg;
};

static int walk_flush(struct extents_walk *w)
{
    if (w->held.length == 0)
        return 0;
    struct view_extent part = {.extent = w->held};
    w->held.length = 0;
    return w->fn(&part, w->arg);
}

static bool extent_continues(const struct extent *a, const struct extent *b)
{
    if (a->length == 0 || a->kind != b->kind)
        return false;
    return a->kind == EXTENT_HOLE || (chunk_name_equal(&a->chunk, &b->chunk) &&
                                      a->chunk_offset + a->length == b->chunk_offset);
}

static int walk_hold(struct extents_walk *w, const struct extent *e)
{
    w->at = e->offset + e->length;
    if (extent_continues(&w->held, e)) {
        w->held.length += e->length;
        return 0;
    }
    int r = walk_flush(w);
    w->held = *e;
    return r;
}

static int walk_hole(struct extents_walk *w, uint64_t to)
{
    if (w->at >= to)
        return 0;
    return walk_hold(w,
                     &(struct extent){.offset = w->at, .length = to - w->at, .kind = EXTENT_HOLE});
}

static int walk_inline(struct extents_walk *w, const struct piece *piece)
{
    _cleanup_value_ struct value value = {0};
    const uint8_t *bytes;
    size_t len;
    int r = walk_flush(w);
    if (r != 0)
        return r;
    r = db_get(w->view, w->snap, key_blob(NEW_KEY, w->ino, piece->blob_version, piece->blob_offset),
               &value);
    if (r < 0)
        return r == -ENOENT ? -EUCLEAN : r;
    r = bytes_decode(value.data, value.len, &bytes, &len);
    if (r < 0 || piece->within > len || piece->length > len - piece->within)
        return -EUCLEAN;
    w->at = piece->offset + piece->length;
    struct view_extent part = {
        .extent = {.offset = piece->offset, .length = piece->length, .kind = EXTENT_INLINE},
        .bytes = bytes + piece->within};
    return w->fn(&part, w->arg);
}

/* Handles one piece of a page, clipped to the range not yet passed on. */
static int walk_piece(const struct piece *piece, void *arg)
{
    struct extents_walk *w = arg;
    uint64_t from = max_u64(piece->offset, w->at),
             to = min_u64(piece->offset + piece->length, w->end);
    if (from >= to)
        return 0;
    int r = walk_hole(w, from);
    if (r != 0)
        return r;
    struct piece clipped = *piece;
    clipped.within += (uint32_t)(from - piece->offset);
    clipped.offset = from;
    clipped.length = to - from;
    if (clipped.kind == EXTENT_INLINE)
        return walk_inline(w, &clipped);
    return walk_hold(w, &(struct extent){.offset = from,
                                         .length = to - from,
                                         .kind = EXTENT_CHUNK,
                                         .chunk = clipped.chunk,
                                         .chunk_offset = clipped.within});
}

/* Walks the pages in the range: for each the newest version that is not newer than `version`. */
static int walk_pages(struct extents_walk *w, uint64_t version)
{
    int r;
    _cleanup_scan_ struct scan scan;
    scan_open_at(&scan, w->snap, key_u64(NEW_KEY, KEY_PAGE, w->ino),
                 key_page(NEW_KEY, w->ino, w->at / VIEW_PAGE_LEN, version));
    while ((r = scan_step(&scan)) > 0) {
        r = 0;
        if (scan.key_len != PAGE_KEY_LEN)
            return -EUCLEAN;
        const struct page_value page = {key_get_u64(scan.key, KEY_U64_LEN), scan.value,
                                        scan.value_len};
        if (page.number > VIEW_OFFSET_MAX / VIEW_PAGE_LEN || page.number * VIEW_PAGE_LEN >= w->end)
            break;
        bool is_newer = ~key_get_u64(scan.key, KEY_U64_U64_LEN) > version;
        if (!is_newer)
            r = page_walk(&page, w->at, w->end, walk_piece, w);
        if (r != 0)
            break;
        scan_seek(&scan, key_page(NEW_KEY, w->ino, page.number + (is_newer ? 0 : 1), version));
    }
    return r;
}

int snap_content(const struct snap *snap, const struct inode_row *row, uint64_t offset,
                 uint64_t length, int (*fn)(const struct view_extent *part, void *arg), void *arg)
{
    uint64_t ino = row->pub.ino, size = row->pub.attrs.size;
    if (!S_ISREG(row->pub.attrs.mode) || offset >= size || inode_row_is_elsewhere(row))
        return 0;
    struct extents_walk walk = {.view = snap->view,
                                .snap = snap,
                                .ino = ino,
                                .at = offset,
                                .end = offset + min_u64(length, size - offset),
                                .fn = fn,
                                .arg = arg};
    int r = row->pages ? walk_pages(&walk, row->pub.version) : 0;
    if (r == 0)
        r = walk_hole(&walk, walk.end);
    if (r == 0)
        r = walk_flush(&walk);
    if (r == -EUCLEAN)
        log_error("view: the content of inode %llu is damaged", (unsigned long long)ino);
    return r > 0 ? 0 : r;
}

int view_content(struct view *view, const struct view_range *range, uint64_t *ret_version,
                 int (*fn)(const struct view_extent *part, void *arg), void *arg)
{
    _cleanup_snap_ struct snap snap;
    snap_begin(&snap, view);
    struct inode_row row;
    TRY(db_get_inode(view, &snap, range->ino, &row));
    *ret_version = row.pub.version;
    if (inode_row_is_elsewhere(&row))
        return -EREMOTE;
    return snap_content(&snap, &row, range->offset, range->length, fn, arg);
}

int view_extents(struct view *view, uint64_t ino, uint64_t offset, uint64_t length,
                 int (*fn)(const struct view_extent *part, void *arg), void *arg)
{
    const struct view_range range = {ino, offset, length};
    uint64_t version;
    int r = view_content(view, &range, &version, fn, arg);
    return r == -EREMOTE ? 0 : r;
}

int view_chunk_users(struct view *view, const struct chunk_name *name,
                     int (*fn)(uint64_t ino, uint64_t offset, void *arg), void *arg)
{
    uint64_t last = 0; /* the last inode reported */
    int r;
    _cleanup_scan_ struct scan scan;
    const struct piece_list *list = &scan.row.pieces;
    scan_view_type(&scan, view, KEY_PAGE);
    while ((r = scan_row(&scan)) > 0) {
        r = 0;
        for (size_t i = 0; i < list->count && r == 0 && last != scan.row.id; i++) {
            if (list->at[i].kind != EXTENT_CHUNK || !chunk_name_equal(&list->at[i].chunk, name))
                continue;
            last = scan.row.id;
            r = fn(last, list->at[i].offset, arg);
        }
        if (r != 0)
            break;
    }
    return log_damaged_type(r, KEY_PAGE);
}

static int compare_prefixes(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(struct chunk_prefix));
}

static const struct chunk_prefix *find_prefix(const struct piece *piece,
                                              const struct chunk_prefix *chunks, size_t count)
{
    return piece->kind == EXTENT_CHUNK
               ? vector_search_bytes(&piece->chunk, chunks, count, sizeof *chunks, compare_prefixes)
               : NULL;
}

int view_find_users(struct view *view, const struct view_users *want, uint64_t *at, bool *ret_more)
{
    int r;
    _cleanup_scan_ struct scan scan;
    const struct piece_list *list = &scan.row.pieces;
    check(want->max > 0);
    *ret_more = false;
    scan_view(&scan, view, key_type(NEW_KEY, KEY_PAGE), key_u64(NEW_KEY, KEY_PAGE, *at));
    *at = 0;
    for (size_t left = want->max; (r = scan_row(&scan)) > 0; left -= left > 0) {
        bool is_next = scan.row.id != *at;
        *at = scan.row.id;
        *ret_more = is_next && left == 0;
        if (*ret_more)
            return 0;
        for (size_t i = 0; i < list->count; i++) {
            const struct chunk_prefix *found = find_prefix(&list->at[i], want->chunks, want->count);
            if (found)
                want->fn(*at, (size_t)(found - want->chunks), want->arg);
        }
    }
    return r;
}
