// SPDX-License-Identifier: Apache-2.0
/* Recounts content: extent pages and inline blobs, chunk references, pack accounts. */
#include "base/hex.h"
#include "view/check.h"
#include "view/pack_list.h"

#define ID(x) ((unsigned long long)(x))

/* Checks that an inline piece is within an existing blob. */
static int check_blob(struct checker *c, uint64_t ino, const struct piece *e)
{
    _cleanup_value_ struct value value = {0};
    const uint8_t *bytes;
    size_t len = 0;
    int r = look_get(&c->look, key_blob(NEW_KEY, ino, e->blob_version, e->blob_offset), &value);
    if (r == 0)
        r = bytes_decode(value.data, value.len, &bytes, &len);
    if (r < 0 && r != -ENOENT && r != -EUCLEAN)
        return r;
    if (r < 0 || e->within > len || e->length > len - e->within)
        check_differs(c, "inode %llu: the content at %llu is missing", ID(ino), ID(e->offset));
    vector_add(&c->blobs, (struct blob_use){ino, e->blob_version, e->blob_offset});
    return 0;
}

static int check_page(struct checker *c, const struct view_row *page)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < page->pieces.count; i++) {
        const struct piece *piece = &page->pieces.at[i];
        bytes += piece->length;
        if (piece->kind == EXTENT_CHUNK) {
            vector_add(&c->uses, piece->chunk);
            continue;
        }
        TRY(check_blob(c, page->id, piece));
    }
    tally_add(c, PAGES, page->id, 1);
    tally_add(c, BLOCKS, page->id, bytes);
    return 0;
}

static int blob_use_compare(const void *a, const void *b)
{
    const struct blob_use *x = a, *y = b;
    if (x->ino != y->ino)
        return x->ino < y->ino ? -1 : 1;
    if (x->version != y->version)
        return x->version < y->version ? -1 : 1;
    return x->offset == y->offset ? 0 : x->offset < y->offset ? -1 : 1;
}

static int check_blob_used(struct checker *c, const struct view_row *row)
{
    struct blob_use blob = {row->id, row->id2, row->id3};
    if (!vector_search(&c->blobs, &blob, blob_use_compare))
        check_differs(c, "inode %llu: inline content of version %llu at %llu is not used",
                      ID(blob.ino), ID(blob.version), ID(blob.offset));
    return 0;
}

int check_pages(struct checker *c)
{
    int r = check_walk(c, KEY_PAGE, check_page);
    vector_sort(&c->blobs, blob_use_compare);
    return r < 0 ? r : check_walk(c, KEY_BLOB, check_blob_used);
}

static int use_compare(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(struct chunk_name));
}

void check_chunk_differs(struct checker *c, const struct chunk_name *name, const char *what,
                         uint64_t is, uint64_t counted)
{
    char hex[2 * sizeof name->bytes + 1];
    hex_print(hex, name->bytes, sizeof name->bytes);
    check_differs(c, "chunk %s: %s is %llu, counted %llu", hex, what, ID(is), ID(counted));
}

/* Counts how often `name` (NULL: none) occurs at *at in the sorted list. Smaller names there belong
 * to chunks without a row. */
static uint64_t take_names(struct checker *c, const struct names *names, size_t *at,
                           const struct chunk_name *name, const char *unknown)
{
    uint64_t count = 0;
    for (; *at < names->count; ++*at) {
        int order = name ? use_compare(&names->at[*at], name) : -1;
        if (order > 0)
            break;
        if (order < 0)
            check_chunk_differs(c, &names->at[*at], unknown, 0, 1);
        count += order == 0;
    }
    return count;
}

static uint64_t take_uses(struct checker *c, const struct chunk_name *name)
{
    return take_names(c, &c->uses, &c->next_use, name, "references of an unknown chunk");
}

/* Checks that the list of the chunk's pack contains it, if it has a place. */
static int check_place(struct checker *c, const struct chunk_row *row)
{
    if (row->entry.pack == 0)
        return 0;
    tally_add(c, PLACED, row->entry.pack, 1);
    int r = snap_list_has(&c->snap, KEY_PLACED, row->entry.pack, &row->entry.name);
    if (r == -EUCLEAN)
        return 0; /* reported with the lists */
    if (r == 0)
        check_chunk_differs(c, &row->entry.name, "being listed in its pack", 0, 1);
    return r < 0 ? r : 0;
}

static void note_bases_to_check(struct checker *c, const struct chunk_row *row)
{
    for (size_t i = 0; i < row->entry.ref_count && row->entry.pack; i++)
        if (entry_ref_is_first(&row->entry, i))
            vector_add(&c->rests, row->entry.refs[i].name);
    if (row->dependents)
        vector_add(&c->bases, *row);
}

static int check_chunk(struct checker *c, const struct view_row *chunk)
{
    const struct chunk_row *row = &chunk->placed;
    uint64_t uses = take_uses(c, &chunk->chunk), bytes = row->entry.stored_len;
    int r = check_place(c, row);
    if (r == 0 && c->tracks && row->refs)
        r = check_is_reachable(c, &chunk->chunk);
    if (r < 0)
        return r;
    if (row->refs != uses)
        check_chunk_differs(c, &chunk->chunk, "number of references", row->refs, uses);
    note_bases_to_check(c, row);
    c->counted.chunks += uses > 0;
    if (row->entry.pack == 0 || (uses == 0 && row->dependents == 0))
        return 0;
    c->counted.stored_bytes += bytes;
    c->counted.held_bytes += uses == 0 ? bytes : 0;
    tally_add(c, LIVE_BYTES, row->entry.pack, bytes);
    tally_add(c, LIVE_COUNT, row->entry.pack, 1);
    return 0;
}

/* Checks that a base on NVMe counts its dependents correctly, and has its place. Both lists are in
 * order of name. */
static void check_rests(struct checker *c)
{
    static const char what[] = "number of dependents on NVMe";
    size_t at = 0;
    vector_sort(&c->rests, use_compare);
    for (size_t i = 0; i < c->bases.count; i++) {
        const struct chunk_row *base = &c->bases.at[i];
        uint64_t counted = take_names(c, &c->rests, &at, &base->entry.name, what);
        if (base->dependents != counted)
            check_chunk_differs(c, &base->entry.name, what, base->dependents, counted);
        if (base->entry.pack == 0)
            check_chunk_differs(c, &base->entry.name, "being on NVMe, where others rest on it,", 0,
                                1);
    }
    (void)take_names(c, &c->rests, &at, NULL, what);
}

static int tally_list(struct checker *c, const struct view_row *row)
{
    tally_add(c, LISTS, row->id, 1);
    return 0;
}

uint64_t check_account(struct checker *c, const char *owner, const struct pack_row *row,
                       enum tally_of first)
{
    uint64_t pack = row->pub.pack;
    check_counted(c, owner, pack, "live bytes", row->pub.live_bytes, tally_take(c, first, pack));
    check_counted(c, owner, pack, "live chunks", row->pub.live_count,
                  tally_take(c, first + 1, pack));
    check_counted(c, owner, pack, "placed chunks", row->placed, tally_take(c, first + 2, pack));
    return tally_take(c, first + 3, pack);
}

static int check_pack(struct checker *c, const struct view_row *row)
{
    (void)check_account(c, "pack", &row->pack, LIVE_BYTES);
    c->counted.packs++;
    c->counted.pack_bytes += row->pack.pub.length;
    return 0;
}

int check_chunks(struct checker *c)
{
    vector_sort(&c->uses, use_compare);
    int r = check_walk(c, KEY_CHUNK, check_chunk);
    (void)take_uses(c, NULL);
    check_rests(c);
    if (r == 0)
        r = check_walk(c, KEY_PLACED, tally_list);
    return r < 0 ? r : check_walk(c, KEY_PACK, check_pack);
}
