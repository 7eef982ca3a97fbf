// SPDX-License-Identifier: Apache-2.0
/* Recounts content: extent pages and inline blobs, chunk references, pack accounts. */
#include "base/hex.h"
#include "view/bases.h"
#include "view/check.h"
#include "view/pack_list.h"

#define ID(x) ((unsigned long long)(x))

/* An inline piece lies within a blob that exists. */
static int check_blob(struct checker *c, uint64_t ino, const struct piece *e)
{
    struct key key;
    _cleanup_value_ struct value value = {0};
    const uint8_t *bytes;
    size_t len = 0;
    key_blob(&key, ino, e->blob_version, e->blob_offset);
    int r = db_get(c->view, &c->snap, &key, &value);
    if (r == 0)
        r = bytes_decode(value.data, value.len, &bytes, &len);
    if (r < 0 && r != -ENOENT && r != -EUCLEAN)
        return r;
    if (r < 0 || e->within > len || e->length > len - e->within)
        check_differs(c, "inode %llu: the content at %llu is missing", ID(ino), ID(e->offset));
    vector_add(&c->blobs, (struct blob_use){ino, e->blob_version, e->blob_offset});
    return 0;
}

static int check_page(struct checker *c, const struct scan *scan)
{
    if (scan->key_len != PAGE_KEY_LEN)
        return -EUCLEAN;
    uint64_t ino = key_get_u64(scan->key, 1), bytes = 0;
    struct piece_list list = {0};
    int r = page_decode(key_get_u64(scan->key, KEY_U64_LEN), scan->value, scan->value_len, &list);
    for (size_t i = 0; i < list.count && r == 0; i++) {
        bytes += list.at[i].length;
        if (list.at[i].kind == EXTENT_CHUNK)
            vector_add(&c->uses, list.at[i].chunk);
        else
            r = check_blob(c, ino, &list.at[i]);
    }
    vector_free(&list);
    tally_add(&c->pages, ino, 1);
    tally_add(&c->blocks, ino, bytes);
    return r;
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

static int check_blob_used(struct checker *c, const struct scan *scan)
{
    if (scan->key_len != PAGE_KEY_LEN)
        return -EUCLEAN;
    struct blob_use blob = {key_get_u64(scan->key, 1), key_get_u64(scan->key, KEY_U64_LEN),
                            key_get_u64(scan->key, KEY_U64_U64_LEN)};
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

/* Uses of `name`, taken from the front of the sorted uses; those before it are of chunks without an
 * entry. */
static uint64_t take_uses(struct checker *c, size_t *at, const struct chunk_name *name)
{
    uint64_t count = 0;
    while (*at < c->uses.count) {
        int order = name ? memcmp(c->uses.at[*at].bytes, name->bytes, sizeof name->bytes) : -1;
        if (order > 0)
            break;
        if (order < 0)
            check_chunk_differs(c, &c->uses.at[*at], "references of an unknown chunk", 0, 1);
        else
            count++;
        ++*at;
    }
    return count;
}

/* The list of its pack has the chunk, if it has a place. */
static int check_place(struct checker *c, const struct chunk_row *row)
{
    if (row->entry.pack == 0)
        return 0;
    tally_add(&c->placed, row->entry.pack, 1);
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

static int check_chunk(struct checker *c, const struct scan *scan, size_t *at)
{
    struct chunk_row row;
    struct chunk_name name;
    if (scan->key_len != CHUNK_KEY_LEN)
        return -EUCLEAN;
    memcpy(name.bytes, scan->key + 1, sizeof name.bytes);
    uint64_t uses = take_uses(c, at, &name);
    int r = chunk_row_decode(&name, scan->value, scan->value_len, &row);
    if (r == 0)
        r = check_place(c, &row);
    if (r < 0)
        return r;
    if (row.refs != uses)
        check_chunk_differs(c, &name, "number of references", row.refs, uses);
    note_bases_to_check(c, &row);
    c->counted.chunks += uses > 0;
    if (row.entry.pack == 0 || (uses == 0 && row.dependents == 0))
        return 0;
    c->counted.stored_bytes += row.entry.stored_len;
    c->counted.held_bytes += uses == 0 ? row.entry.stored_len : 0;
    tally_add(&c->live_bytes, row.entry.pack, row.entry.stored_len);
    tally_add(&c->live_count, row.entry.pack, 1);
    return 0;
}

/* A base on NVMe says how many entries refer to it, and has its place. Both lists
 * are in order of name. */
static void check_rests(struct checker *c)
{
    size_t at = 0;
    vector_sort(&c->rests, use_compare);
    for (size_t i = 0; i <= c->bases.count; i++) {
        const struct chunk_row *base = i < c->bases.count ? &c->bases.at[i] : NULL;
        uint64_t counted = 0;
        for (; at < c->rests.count; at++) {
            const struct chunk_name *name = &c->rests.at[at];
            int order = base ? use_compare(name, &base->entry.name) : -1;
            if (order > 0)
                break;
            if (order < 0)
                check_chunk_differs(c, name, "number of dependents on NVMe", 0, 1);
            counted += order == 0;
        }
        if (base && base->dependents != counted)
            check_chunk_differs(c, &base->entry.name, "number of dependents on NVMe",
                                base->dependents, counted);
        if (base && base->entry.pack == 0)
            check_chunk_differs(c, &base->entry.name, "being on NVMe, where others rest on it,", 0,
                                1);
    }
}

int check_list(const struct scan *scan, struct tally_list *lists)
{
    struct listed_chunks listed = {0};
    if (scan->key_len != KEY_U64_LEN)
        return -EUCLEAN;
    tally_add(lists, key_get_u64(scan->key, 1), 1);
    int r = list_decode(scan->value, scan->value_len, &listed);
    vector_free(&listed);
    return r;
}

static int check_local_list(struct checker *c, const struct scan *scan)
{
    return check_list(scan, &c->lists);
}

static void check_pack_count(struct checker *c, uint64_t pack, const char *what, uint64_t is,
                             uint64_t counted)
{
    if (is != counted)
        check_differs(c, "pack %llu: %s is %llu, counted %llu", ID(pack), what, ID(is),
                      ID(counted));
}

static int check_pack(struct checker *c, const struct scan *scan)
{
    struct pack_row row;
    if (scan->key_len != KEY_U64_LEN)
        return -EUCLEAN;
    uint64_t pack = key_get_u64(scan->key, 1);
    int r = pack_row_decode(pack, scan->value, scan->value_len, &row);
    if (r < 0)
        return r;
    check_pack_count(c, pack, "live bytes", row.pub.live_bytes,
                     tally_take(c, &c->live_bytes, pack));
    check_pack_count(c, pack, "live chunks", row.pub.live_count,
                     tally_take(c, &c->live_count, pack));
    check_pack_count(c, pack, "placed chunks", row.placed, tally_take(c, &c->placed, pack));
    (void)tally_take(c, &c->lists, pack);
    c->counted.packs++;
    c->counted.pack_bytes += row.pub.length;
    return 0;
}

static int check_all_chunks(struct checker *c)
{
    struct key prefix;
    size_t at = 0;
    key_type(&prefix, KEY_CHUNK);
    vector_sort(&c->uses, use_compare);
    _cleanup_scan_ struct scan scan;
    scan_open(&scan, &c->snap, &prefix);
    for (; scan_valid(&scan); scan_next(&scan)) {
        int r = check_chunk(c, &scan, &at);
        if (r == -EUCLEAN)
            check_differs(c, "an entry of type H does not decode");
        else if (r < 0)
            return r;
    }
    (void)take_uses(c, &at, NULL);
    return scan_error(&scan);
}

int check_chunks(struct checker *c)
{
    int r = check_all_chunks(c);
    check_rests(c);
    tally_sort(&c->live_bytes);
    tally_sort(&c->live_count);
    tally_sort(&c->placed);
    if (r == 0)
        r = check_walk(c, KEY_PLACED, check_local_list);
    return r < 0 ? r : check_walk(c, KEY_PACK, check_pack);
}
