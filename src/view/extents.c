// SPDX-License-Identifier: Apache-2.0
/* Content of files: extent pages and inline blobs.
 *
 * A page describes 16 MiB of a file. A new version rewrites only the changed pages and shares the
 * others with the previous version: the content of version v in a page is the first key with
 * ~version >= ~v. Superseded versions are not retained at present, so the old page is deleted in
 * the same write.
 *
 * An inline blob belongs to one page (blobs are split at page borders) and is deleted with its last
 * piece there. */
#include <search.h>

#include "view/apply.h"

struct pending {
    uint64_t ino, version;
    struct piece_list pieces;
};

static int pending_compare(const void *a, const void *b)
{
    const struct pending *x = a, *y = b;
    if (x->ino != y->ino)
        return x->ino < y->ino ? -1 : 1;
    return x->version == y->version ? 0 : x->version < y->version ? -1 : 1;
}

static struct pending *pending_of(struct txn *txn, const struct record *rec)
{
    struct pending wanted = {.ino = rec->ino, .version = rec->version};
    void *node = tfind(&wanted, &txn->pending, pending_compare);
    return node ? *(struct pending **)node : NULL;
}

int pending_add(struct txn *txn, const struct record *rec)
{
    struct pending *p = pending_of(txn, rec);
    if (!p) {
        p = xcalloc(1, sizeof *p);
        p->ino = rec->ino;
        p->version = rec->version;
        check(tsearch(p, &txn->pending, pending_compare) != NULL);
    }
    const uint8_t *bytes = rec->value;
    for (uint32_t i = 0; i < rec->extent_count; i++) {
        struct extent e = record_extent(rec, i);
        struct piece piece = {.offset = e.offset, .length = e.length, .kind = e.kind};
        if (e.kind == EXTENT_CHUNK) {
            piece.chunk = e.chunk;
            piece.within = e.chunk_offset;
        } else if (e.kind == EXTENT_INLINE) {
            piece.bytes = bytes;
            bytes += e.length;
        }
        vector_add(&p->pieces, piece);
    }
    return p->pieces.count > UINT32_MAX / 2 ? txn_damage(txn, "too many extents") : 0;
}

static struct piece_list pending_remove(struct txn *txn, struct pending *p)
{
    struct piece_list list = p->pieces;
    (void)tdelete(p, &txn->pending, pending_compare);
    free(p);
    return list;
}

struct piece_list pending_take(struct txn *txn, const struct record *rec)
{
    struct pending *p = pending_of(txn, rec);
    return p ? pending_remove(txn, p) : (struct piece_list){0};
}

bool pending_drop(struct txn *txn)
{
    bool any = txn->pending != NULL;
    while (txn->pending) {
        struct piece_list list = pending_remove(txn, *(struct pending **)txn->pending);
        vector_free(&list);
    }
    return any;
}

/* A page that is being changed. */
struct page {
    uint64_t number;
    bool found;
    uint64_t version; /* in its key, if found */
    struct piece_list old, new;
};

/* Finds the first page of the inode with a number >= `number`, as key and value. */
static int page_seek(struct txn *txn, uint64_t ino, uint64_t number, struct found *found)
{
    int r = txn_seek(txn, key_u64_u64(NEW_KEY, KEY_PAGE, ino, number), KEY_U64_LEN, found);
    return r == 0 && found->key_len != PAGE_KEY_LEN ? -EUCLEAN : r;
}

static int page_load(struct txn *txn, uint64_t ino, struct page *page)
{
    struct found found;
    int r = page_seek(txn, ino, page->number, &found);
    if (r < 0)
        return r == -ENOENT ? 0 : r;
    if (key_get_u64(found.key, KEY_U64_LEN) != page->number)
        return 0;
    page->found = true;
    page->version = ~key_get_u64(found.key, KEY_U64_U64_LEN);
    r = page_decode(page->number, found.value, found.value_len, &page->old);
    for (size_t i = 0; i < page->old.count; i++)
        page->old.at[i].origin = (uint32_t)i + 1;
    return r;
}

/* Holes are not stored: a range without a piece reads as zeros. */
static void drop_holes(struct piece_list *list)
{
    size_t kept = 0;
    for (size_t i = 0; i < list->count; i++)
        if (list->at[i].kind != EXTENT_HOLE)
            list->at[kept++] = list->at[i];
    list->count = kept;
}

/* New inline content becomes a blob under the piece's own offset. That key is free, or has the
 * content of the piece joined here: the version is new, and its pieces are disjoint. */
static void blob_store(struct txn *txn, uint64_t ino, uint64_t version, struct piece *e,
                       const uint8_t *bytes)
{
    txn_put_bytes(txn, key_blob(NEW_KEY, ino, version, e->offset), bytes, e->length);
    e->blob_version = version;
    e->blob_offset = e->offset;
    e->within = 0;
    e->bytes = NULL;
    e->origin = 0;
}

/* Joins `before` and the new inline piece that follows it into one. */
static int blob_join(struct txn *txn, uint64_t ino, uint64_t version, struct piece *before,
                     const struct piece *e)
{
    uint8_t joined[INLINE_MAX];
    _cleanup_value_ struct value value = {0};
    const uint8_t *bytes;
    size_t len;
    int r = txn_get(txn, key_blob(NEW_KEY, ino, before->blob_version, before->blob_offset), &value);
    if (r == 0)
        r = bytes_decode(value.data, value.len, &bytes, &len);
    if (r == 0 && (before->within > len || before->length > len - before->within))
        r = -EUCLEAN;
    if (r < 0)
        return r == -ENOENT ? txn_damage(txn, "inline content is missing") : r;
    memcpy(joined, bytes + before->within, before->length);
    memcpy(joined + before->length, e->bytes, e->length);
    before->length += e->length;
    blob_store(txn, ino, version, before, joined);
    return 0;
}

static bool can_join(const struct piece *before, const struct piece *e)
{
    return before->kind == EXTENT_INLINE && piece_end(before) == e->offset &&
           before->length + e->length <= INLINE_MAX;
}

/* Stores new inline content, joined with directly preceding inline content. Otherwise a log that
 * grows by a line per seal would get one piece per line, and each seal rewrites the list of its
 * page. */
static int store_blobs(struct txn *txn, uint64_t ino, uint64_t version, struct piece_list *list)
{
    size_t kept = 0;
    for (size_t i = 0; i < list->count; i++) {
        struct piece e = list->at[i];
        if (e.bytes && kept && can_join(&list->at[kept - 1], &e)) {
            TRY(blob_join(txn, ino, version, &list->at[kept - 1], &e));
            continue;
        }
        if (e.bytes)
            blob_store(txn, ino, version, &e, e.bytes);
        list->at[kept++] = e;
    }
    list->count = kept;
    return 0;
}

static int blob_compare(const void *a, const void *b)
{
    const struct piece *x = a, *y = b;
    if (x->blob_version != y->blob_version)
        return x->blob_version < y->blob_version ? -1 : 1;
    return x->blob_offset == y->blob_offset ? 0 : x->blob_offset < y->blob_offset ? -1 : 1;
}

/* Deletes the blobs of pieces that are `gone`, unless a remaining piece uses the same blob. */
static void delete_blobs(struct txn *txn, uint64_t ino, struct piece_list *gone,
                         const struct piece_list *remaining)
{
    if (gone->count == 0)
        return;
    struct piece_list used = {0};
    for (size_t i = 0; i < remaining->count; i++)
        if (remaining->at[i].kind == EXTENT_INLINE)
            vector_add(&used, remaining->at[i]);
    vector_sort(&used, blob_compare);
    for (size_t i = 0; i < gone->count; i++) {
        const struct piece *e = &gone->at[i];
        if (vector_search(&used, e, blob_compare))
            continue;
        txn_delete(txn, key_blob(NEW_KEY, ino, e->blob_version, e->blob_offset));
    }
    vector_free(&used);
}

/* Counts references only for the difference between the old and the new pieces, so that a small
 * change to a page with many chunks is cheap. */
static int count_difference(struct txn *txn, uint64_t ino, const struct page *page)
{
    int r = 0;
    struct piece_list gone = {0};
    _cleanup_free_ uint32_t *parts = xcalloc(page->old.count, sizeof *parts);
    for (size_t i = 0; i < page->new.count &&r == 0; i++) {
        const struct piece *e = &page->new.at[i];
        if (e->origin)
            parts[e->origin - 1]++;
        else if (e->kind == EXTENT_CHUNK)
            r = chunk_refs_change(txn, e, 1);
    }
    for (size_t i = 0; i < page->old.count && r == 0; i++) {
        const struct piece *e = &page->old.at[i];
        if (e->kind == EXTENT_CHUNK && parts[i] != 1)
            r = chunk_refs_change(txn, e, (int64_t)parts[i] - 1);
        else if (e->kind == EXTENT_INLINE && parts[i] == 0)
            vector_add(&gone, *e);
    }
    if (r == 0)
        delete_blobs(txn, ino, &gone, &page->new);
    vector_free(&gone);
    return r;
}

static uint64_t total_length(const struct piece_list *list)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < list->count; i++)
        sum += list->at[i].length;
    return sum;
}

static bool page_unchanged(const struct page *page)
{
    if (page->old.count != page->new.count)
        return false;
    for (size_t i = 0; i < page->new.count; i++)
        if (page->new.at[i].origin != i + 1 || page->new.at[i].length != page->old.at[i].length)
            return false;
    return true;
}

/* Writes the new pieces under the new version. With a retention policy for superseded versions, the
 * old key would stay, and an empty page would be written instead of a deletion. */
static void page_store(struct txn *txn, struct inode_row *row, uint64_t version,
                       const struct page *page)
{
    if (page->found && (page->version != version || page->new.count == 0))
        txn_delete(txn, key_page(NEW_KEY, row->pub.ino, page->number, page->version));
    row->pages -= page->found;
    if (page->new.count == 0)
        return;
    row->pages++;
    _cleanup_free_ uint8_t *value = NULL;
    size_t len;
    page_encode(page->number, &page->new, &value, &len);
    txn_put(txn, key_page(NEW_KEY, row->pub.ino, page->number, version), value, len);
}

static int page_change(struct txn *txn, struct inode_row *row, uint64_t version, struct page *page)
{
    drop_holes(&page->new);
    if (page_unchanged(page))
        return 0;
    TRY(store_blobs(txn, row->pub.ino, version, &page->new));
    TRY(count_difference(txn, row->pub.ino, page));
    row->pub.blocks_bytes += total_length(&page->new) - total_length(&page->old);
    page_store(txn, row, version, page);
    return 0;
}

/* Lays pieces, all within one page, over that page. */
static int page_overlay(struct txn *txn, struct inode_row *row, uint64_t version, bool had_pages,
                        const struct piece_list *parts)
{
    struct page page = {.number = parts->at[0].offset / VIEW_PAGE_LEN};
    int r = had_pages ? page_load(txn, row->pub.ino, &page) : 0;
    if (r == 0 && page.found && row->pages == 0)
        r = txn_damage(txn, "an inode has more pages than it counts");
    if (r == 0) {
        pieces_overlay(&page.old, parts, &page.new);
        r = page_change(txn, row, version, &page);
    }
    vector_free(&page.old);
    vector_free(&page.new);
    return r;
}

/* Moves the front of a hole to the first existing page within it, so that no loop visits missing
 * pages. -ENOENT if there is none. */
static int hole_advance(struct txn *txn, const struct inode_row *row, bool had_pages,
                        struct piece *hole)
{
    if (!had_pages || row->pages == 0)
        return -ENOENT;
    struct found found;
    TRY(page_seek(txn, row->pub.ino, hole->offset / VIEW_PAGE_LEN, &found));
    uint64_t number = key_get_u64(found.key, KEY_U64_LEN);
    if (number > VIEW_OFFSET_MAX / VIEW_PAGE_LEN)
        return -EUCLEAN;
    if (number * VIEW_PAGE_LEN >= piece_end(hole))
        return -ENOENT;
    if (number * VIEW_PAGE_LEN > hole->offset)
        piece_trim_front(hole, number * VIEW_PAGE_LEN);
    return 0;
}

/* Moves the pieces of list[*at...] that are in the page of the first one to `parts`. */
static void take_page(struct piece_list *list, size_t *at, struct piece_list *parts)
{
    uint64_t end = align_down(list->at[*at].offset, VIEW_PAGE_LEN) + VIEW_PAGE_LEN;
    parts->count = 0;
    while (*at < list->count && list->at[*at].offset < end) {
        struct piece *e = &list->at[*at];
        struct piece part = *e;
        part.length = min_u64(piece_end(e), end) - e->offset;
        vector_add(parts, part);
        if (piece_end(e) > end) {
            piece_trim_front(e, end);
            return;
        }
        ++*at;
    }
}

/* Lays a flat list, holes included, over the content, page after page. */
static int content_overlay(struct txn *txn, struct inode_row *row, uint64_t version,
                           struct piece_list *list)
{
    bool had_pages = row->pages > 0; /* in a new file no page can exist */
    struct piece_list parts = {0};
    int r = 0;
    for (size_t i = 0; i < list->count && r == 0;) {
        if (list->at[i].kind == EXTENT_HOLE) {
            r = hole_advance(txn, row, had_pages, &list->at[i]);
            if (r == -ENOENT) {
                r = 0;
                i++;
                continue;
            }
            if (r < 0)
                break;
        }
        take_page(list, &i, &parts);
        r = page_overlay(txn, row, version, had_pages, &parts);
    }
    vector_free(&parts);
    return r;
}

/* Removes content after `size` from a flat list. */
static void clip_pieces(struct piece_list *list, uint64_t size)
{
    while (list->count && list->at[list->count - 1].offset >= size)
        list->count--;
    if (list->count) {
        struct piece *last = &list->at[list->count - 1];
        last->length = min_u64(piece_end(last), size) - last->offset;
    }
}

int content_replace(struct txn *txn, struct inode_row *row, uint64_t version, uint64_t keep,
                    uint64_t size, struct piece_list *pieces)
{
    pieces_flatten(pieces);
    clip_pieces(pieces, size);
    /* The range that is not kept is a hole under the new pieces. It begins at `keep` even if the
     * old size is smaller: after an elided seal the size does not describe the stored content. */
    struct piece_list erased = {0}, all;
    keep = min_u64(keep, size);
    if (keep < VIEW_OFFSET_MAX)
        vector_add(
            &erased,
            (struct piece){.offset = keep, .length = VIEW_OFFSET_MAX - keep, .kind = EXTENT_HOLE});
    pieces_overlay(&erased, pieces, &all);
    int r = content_overlay(txn, row, version, &all);
    vector_free(&erased);
    vector_free(&all);
    return r;
}

int content_clear(struct txn *txn, struct inode_row *row)
{
    struct piece_list none = {0};
    return row->pages && !inode_row_is_elsewhere(row)
               ? content_replace(txn, row, row->pub.version, 0, 0, &none)
               : 0;
}
