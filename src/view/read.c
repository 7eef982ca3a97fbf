// SPDX-License-Identifier: Apache-2.0
/* Reads that walk over many keys. Each sees one snapshot. */
#include <sys/stat.h>

#include "base/log.h"
#include "view/db.h"

/* Calls `step` for each key of a scan until it returns other than 0; 1 counts as a good end. */
static int scan_each(struct scan *scan, int (*step)(const struct scan *scan, void *arg), void *arg)
{
    int r = 0;
    for (; r == 0 && scan_valid(scan); scan_next(scan))
        r = step(scan, arg);
    if (r == 0)
        r = scan_error(scan);
    return r > 0 ? 0 : r;
}

static int scan_prefix(struct view *view, const struct key *prefix,
                       int (*step)(const struct scan *scan, void *arg), void *arg)
{
    _cleanup_snap_ struct snap snap;
    snap_begin(&snap, view);
    _cleanup_scan_ struct scan scan;
    scan_open(&scan, &snap, prefix);
    int r = scan_each(&scan, step, arg);
    if (r == -EUCLEAN)
        log_error("view: an entry of type %c is damaged", prefix->bytes[0]);
    return r;
}

struct readdir_walk {
    int (*fn)(const struct view_entry *entry, const char *name, size_t name_len, void *arg);
    void *arg;
};

static int readdir_step(const struct scan *scan, void *arg)
{
    const struct readdir_walk *walk = arg;
    struct view_entry entry;
    const char *name;
    size_t name_len;
    if (scan->key_len != KEY_U64_U64_LEN)
        return -EUCLEAN;
    int r = cookie_decode(key_get_u64(scan->key, KEY_U64_LEN), scan->value, scan->value_len, &entry,
                          &name, &name_len);
    return r < 0 ? r : walk->fn(&entry, name, name_len, walk->arg);
}

int view_readdir(struct view *view, uint64_t parent, uint64_t after,
                 int (*fn)(const struct view_entry *entry, const char *name, size_t name_len,
                           void *arg),
                 void *arg)
{
    _cleanup_snap_ struct snap snap;
    snap_begin(&snap, view);
    struct inode_row row;
    int r = db_get_inode(view, &snap, parent, &row);
    if (r < 0)
        return r;
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
    r = scan_each(&scan, readdir_step, &(struct readdir_walk){fn, arg});
    if (r == -EUCLEAN)
        log_error("view: directory %llu is damaged", (unsigned long long)parent);
    return r;
}

int view_next_name(struct view *view, uint64_t parent, size_t prefix_len, char *name)
{
    struct key prefix, from;
    _cleanup_snap_ struct snap snap;
    _cleanup_scan_ struct scan scan;
    snap_begin(&snap, view);
    key_named(&prefix, KEY_NAME, parent, name, prefix_len);
    key_named(&from, KEY_NAME, parent, name, strlen(name));
    scan_open_at(&scan, &snap, &prefix, &from);
    if (!scan_valid(&scan)) {
        int r = scan_error(&scan);
        return r < 0 ? r : -ENOENT;
    }
    size_t len = scan.key_len - KEY_U64_LEN;
    if (len > NAME_LEN_MAX)
        return -EUCLEAN;
    memcpy(name, scan.key + KEY_U64_LEN, len);
    name[len] = '\0';
    return 0;
}

struct listxattr_walk {
    int (*fn)(const char *name, size_t name_len, void *arg);
    void *arg;
};

static int listxattr_step(const struct scan *scan, void *arg)
{
    const struct listxattr_walk *walk = arg;
    return walk->fn((const char *)scan->key + KEY_U64_LEN, scan->key_len - KEY_U64_LEN, walk->arg);
}

int view_listxattr(struct view *view, uint64_t ino,
                   int (*fn)(const char *name, size_t name_len, void *arg), void *arg)
{
    struct key key;
    key_u64(&key, KEY_XATTR, ino);
    return scan_prefix(view, &key, listxattr_step, &(struct listxattr_walk){fn, arg});
}

struct holders_walk {
    const char *name;
    size_t name_len;
    int (*fn)(uint64_t ino, void *arg);
    void *arg;
};

static int holders_step(const struct scan *scan, void *arg)
{
    const struct holders_walk *walk = arg;
    if (scan->key_len != KEY_U64_LEN + walk->name_len ||
        memcmp((const char *)scan->key + KEY_U64_LEN, walk->name, walk->name_len) != 0)
        return 0;
    return walk->fn(key_get_u64(scan->key, 1), walk->arg);
}

int view_xattr_holders(struct view *view, const char *name, int (*fn)(uint64_t ino, void *arg),
                       void *arg)
{
    struct key key;
    key_type(&key, KEY_XATTR);
    return scan_prefix(view, &key, holders_step,
                       &(struct holders_walk){name, strlen(name), fn, arg});
}

struct packs_walk {
    int (*fn)(const struct view_pack *pack, void *arg);
    void *arg;
};

static int packs_step(const struct scan *scan, void *arg)
{
    const struct packs_walk *walk = arg;
    struct pack_row row;
    if (scan->key_len != KEY_U64_LEN)
        return -EUCLEAN;
    int r = pack_row_decode(key_get_u64(scan->key, 1), scan->value, scan->value_len, &row);
    return r < 0 ? r : walk->fn(&row.pub, walk->arg);
}

int view_packs(struct view *view, int (*fn)(const struct view_pack *pack, void *arg), void *arg)
{
    struct key key;
    key_type(&key, KEY_PACK);
    return scan_prefix(view, &key, packs_step, &(struct packs_walk){fn, arg});
}

struct orphans_walk {
    int (*fn)(uint64_t ino, void *arg);
    void *arg;
};

static int orphans_step(const struct scan *scan, void *arg)
{
    const struct orphans_walk *walk = arg;
    return scan->key_len == KEY_U64_LEN ? walk->fn(key_get_u64(scan->key, 1), walk->arg) : -EUCLEAN;
}

int view_orphans(struct view *view, int (*fn)(uint64_t ino, void *arg), void *arg)
{
    struct key key;
    key_type(&key, KEY_ORPHAN);
    return scan_prefix(view, &key, orphans_step, &(struct orphans_walk){fn, arg});
}

struct next_file {
    struct view_inode *ret;
    bool is_found;
};

static int read_next_file(const struct scan *scan, struct next_file *next)
{
    struct inode_row row;
    if (scan->key_len != KEY_U64_LEN)
        return -EUCLEAN;
    int r = inode_decode(key_get_u64(scan->key, 1), scan->value, scan->value_len, &row);
    next->is_found = r == 0 && S_ISREG(row.pub.attrs.mode) && row.pub.nlink > 0;
    if (next->is_found)
        *next->ret = row.pub;
    return r;
}

int view_next_file(struct view *view, uint64_t from, struct view_inode *ret_inode)
{
    struct next_file next = {.ret = ret_inode};
    struct key prefix, key;
    _cleanup_snap_ struct snap snap;
    _cleanup_scan_ struct scan scan;
    snap_begin(&snap, view);
    key_type(&prefix, KEY_INODE);
    key_u64(&key, KEY_INODE, from);
    scan_open_at(&scan, &snap, &prefix, &key);
    int r = 0;
    for (; r == 0 && !next.is_found && scan_valid(&scan); scan_next(&scan))
        r = read_next_file(&scan, &next);
    if (r == 0)
        r = scan_error(&scan);
    return r < 0 ? r : next.is_found ? 0 : -ENOENT;
}

struct chunks_walk {
    int (*fn)(const struct view_local_chunk *chunk, void *arg);
    void *arg;
};

static int chunks_step(const struct scan *scan, void *arg)
{
    const struct chunks_walk *walk = arg;
    struct chunk_row row;
    struct chunk_name name;
    if (scan->key_len != CHUNK_KEY_LEN)
        return -EUCLEAN;
    memcpy(name.bytes, scan->key + 1, sizeof name.bytes);
    int r = chunk_row_decode(&name, scan->value, scan->value_len, &row);
    if (r < 0 || !chunk_row_is_live(&row))
        return r;
    return walk->fn(&(struct view_local_chunk){row.entry, row.refs, row.dependents}, walk->arg);
}

int view_chunks(struct view *view, int (*fn)(const struct view_local_chunk *chunk, void *arg),
                void *arg)
{
    struct key key;
    key_type(&key, KEY_CHUNK);
    return scan_prefix(view, &key, chunks_step, &(struct chunks_walk){fn, arg});
}

/* A walk over the content of a range. Pieces of one chunk that follow each other (they were split
 * at a page border) and holes that do are given as one. */
struct extents_walk {
    struct view *view;
    const struct snap *snap;
    uint64_t ino;
    uint64_t at, end;   /* what is not yet given */
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
    struct key key;
    _cleanup_value_ struct value value = {0};
    const uint8_t *bytes;
    size_t len;
    key_blob(&key, w->ino, piece->blob_version, piece->blob_offset);
    int r = walk_flush(w);
    if (r != 0)
        return r;
    r = db_get(w->view, w->snap, &key, &value);
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

/* One piece of a page, clipped to what is not yet given. */
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

/* The pages in the range: of each the newest version that is not newer than `version`. */
static int walk_pages(struct extents_walk *w, uint64_t version)
{
    struct key key;
    key_u64(&key, KEY_PAGE, w->ino);
    _cleanup_scan_ struct scan scan;
    scan_open(&scan, w->snap, &key);
    int r = 0;
    key_page(&key, w->ino, w->at / VIEW_PAGE_LEN, version);
    scan_seek(&scan, &key);
    while (r == 0 && scan_valid(&scan)) {
        if (scan.key_len != PAGE_KEY_LEN)
            return -EUCLEAN;
        uint64_t page = key_get_u64(scan.key, KEY_U64_LEN);
        if (page > VIEW_OFFSET_MAX / VIEW_PAGE_LEN || page * VIEW_PAGE_LEN >= w->end)
            break;
        if (~key_get_u64(scan.key, KEY_U64_U64_LEN) > version) {
            key_page(&key, w->ino, page, version);
        } else {
            r = page_walk(page, scan.value, scan.value_len, w->at, w->end, walk_piece, w);
            key_page(&key, w->ino, page + 1, version);
        }
        scan_seek(&scan, &key);
    }
    return r ? r : scan_error(&scan);
}

int snap_content(const struct snap *snap, const struct inode_row *row, uint64_t offset,
                 uint64_t length, int (*fn)(const struct view_extent *part, void *arg), void *arg)
{
    uint64_t ino = row->pub.ino, size = row->pub.attrs.size;
    if (!S_ISREG(row->pub.attrs.mode) || offset >= size)
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

int view_content(struct view *view, uint64_t ino, uint64_t offset, uint64_t length,
                 uint64_t *ret_version, int (*fn)(const struct view_extent *part, void *arg),
                 void *arg)
{
    _cleanup_snap_ struct snap snap;
    snap_begin(&snap, view);
    struct inode_row row;
    int r = db_get_inode(view, &snap, ino, &row);
    if (r < 0)
        return r;
    *ret_version = row.pub.version;
    return snap_content(&snap, &row, offset, length, fn, arg);
}

int view_extents(struct view *view, uint64_t ino, uint64_t version, uint64_t offset,
                 uint64_t length, int (*fn)(const struct view_extent *part, void *arg), void *arg)
{
    _cleanup_snap_ struct snap snap;
    snap_begin(&snap, view);
    struct inode_row row;
    int r = db_get_inode(view, &snap, ino, &row);
    if (r < 0)
        return r;
    if (version != 0 && version != row.pub.version)
        return -ENOENT; /* superseded versions are not retained */
    return snap_content(&snap, &row, offset, length, fn, arg);
}

struct users_walk {
    const struct chunk_name *chunk;
    uint64_t last; /* inode that was reported last */
    int (*fn)(uint64_t ino, uint64_t offset, void *arg);
    void *arg;
};

static int users_step(const struct scan *scan, void *arg)
{
    struct users_walk *walk = arg;
    if (scan->key_len != PAGE_KEY_LEN)
        return -EUCLEAN;
    uint64_t ino = key_get_u64(scan->key, 1);
    if (ino == walk->last)
        return 0;
    struct piece_list list = {0};
    int r = page_decode(key_get_u64(scan->key, KEY_U64_LEN), scan->value, scan->value_len, &list);
    for (size_t i = 0; i < list.count && r == 0 && walk->last != ino; i++) {
        if (list.at[i].kind != EXTENT_CHUNK || !chunk_name_equal(&list.at[i].chunk, walk->chunk))
            continue;
        walk->last = ino;
        r = walk->fn(ino, list.at[i].offset, walk->arg);
    }
    vector_free(&list);
    return r;
}

int view_chunk_users(struct view *view, const struct chunk_name *name,
                     int (*fn)(uint64_t ino, uint64_t offset, void *arg), void *arg)
{
    struct key key;
    key_type(&key, KEY_PAGE);
    return scan_prefix(view, &key, users_step,
                       &(struct users_walk){.chunk = name, .fn = fn, .arg = arg});
}

struct find_walk {
    const struct chunk_prefix *chunks;
    size_t count, left; /* pages */
    uint64_t ino;       /* of the page before */
    void (*fn)(uint64_t ino, size_t chunk, void *arg);
    void *arg;
};

static int compare_prefixes(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(struct chunk_prefix));
}

static void find_piece(const struct find_walk *walk, const struct piece *piece)
{
    if (piece->kind != EXTENT_CHUNK)
        return;
    const struct chunk_prefix *found = vector_search_bytes(&piece->chunk, walk->chunks, walk->count,
                                                           sizeof *walk->chunks, compare_prefixes);
    if (found)
        walk->fn(walk->ino, (size_t)(found - walk->chunks), walk->arg);
}

static int find_step(const struct scan *scan, void *arg)
{
    struct find_walk *walk = arg;
    struct piece_list list = {0};
    if (scan->key_len != PAGE_KEY_LEN)
        return -EUCLEAN;
    uint64_t ino = key_get_u64(scan->key, 1);
    bool is_next = ino != walk->ino;
    walk->ino = ino;
    if (is_next && walk->left == 0)
        return 1;
    walk->left -= walk->left > 0;
    int r = page_decode(key_get_u64(scan->key, KEY_U64_LEN), scan->value, scan->value_len, &list);
    for (size_t i = 0; i < list.count && r == 0; i++)
        find_piece(walk, &list.at[i]);
    vector_free(&list);
    return r;
}

int view_find_users(struct view *view, const struct chunk_prefix *chunks, size_t count,
                    uint64_t *at, size_t max, void (*fn)(uint64_t ino, size_t chunk, void *arg),
                    void *arg)
{
    struct find_walk walk = {.chunks = chunks, .count = count, .left = max, .fn = fn, .arg = arg};
    struct key prefix, from;
    _cleanup_snap_ struct snap snap;
    _cleanup_scan_ struct scan scan;
    check(max > 0);
    snap_begin(&snap, view);
    key_type(&prefix, KEY_PAGE);
    key_u64(&from, KEY_PAGE, *at);
    scan_open_at(&scan, &snap, &prefix, &from);
    int r = 0;
    for (; r == 0 && scan_valid(&scan); scan_next(&scan))
        r = find_step(&scan, &walk);
    *at = walk.ino;
    return r != 0 ? r : scan_error(&scan);
}
