// SPDX-License-Identifier: Apache-2.0
#include "view/follow_remote.h"

#include "base/log.h"
#include "view/pack_list.h"
#include "view/rows.h"

/* --- rows ------------------------------------------------------------------------------------- */

static bool same_refs(const struct chunk_entry *a, const struct chunk_entry *b)
{
    for (size_t i = 0; i < a->ref_count; i++)
        if (!chunk_name_equal(&a->refs[i].name, &b->refs[i].name) ||
            a->refs[i].offset != b->refs[i].offset || a->refs[i].length != b->refs[i].length)
            return false;
    return true;
}

static bool same_remote_place(const struct chunk_entry *a, const struct chunk_entry *b)
{
    if (a->pack == 0 || b->pack == 0)
        return a->pack == b->pack;
    return a->pack == b->pack && a->offset == b->offset && a->stored_len == b->stored_len &&
           a->encoding == b->encoding && a->depth == b->depth && a->ref_count == b->ref_count &&
           same_refs(a, b);
}

int report_chunk(struct remote_report *report, struct txn *txn, const struct run_row *row,
                 bool *ret_differs)
{
    struct chunk_row now = {0}, local, remote;
    *ret_differs = false;
    TRY(row->value ? row_read_chunk(row, &now) : row_chunk_name(row, &now.entry.name));
    TRY(look_known_chunk(&txn->look, KEY_CHUNK, &now.entry.name, &local));
    if (row->value && local.refs == 0)
        vector_add(&report->unused, now.entry.name);
    TRY(look_known_chunk(&txn->look, KEY_REMOTE_CHUNK, &now.entry.name, &remote));
    *ret_differs = local.refs != now.refs || !same_remote_place(&remote.entry, &now.entry);
    if (*ret_differs)
        vector_add(&report->chunks, now);
    return 0;
}

int report_pack(struct remote_report *report, const struct run_row *row)
{
    struct pack_report pack = {.removed = !row->value};
    if (row->key_len != KEY_U64_LEN)
        return -EUCLEAN;
    pack.row.pub.pack = key_get_u64(row->key, 1);
    int r = row->value ? row_read_pack(row, &pack.row) : 0;
    if (r == 0)
        vector_add(&report->packs, pack);
    return r;
}

static int compare_names(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(struct chunk_name));
}

/* A chunk without references that the head does not name loses its place, and is no base. The view
 * has no other row that could be missing in the head. */
static int add_unnamed_chunk(struct remote_report *report, struct txn *txn,
                             const struct chunk_name *name)
{
    struct chunk_row local;
    int r = look_known_chunk(&txn->look, KEY_CHUNK, name, &local);
    if (r == 0 && local.refs == 0 && !vector_search(&report->unused, name, compare_names))
        vector_add(&report->chunks, (struct chunk_row){.entry = {.name = *name}});
    return r;
}

/* Adds the chunks whose names directly follow the type in keys of this type. */
static int add_unnamed_chunks(struct remote_report *report, struct txn *txn,
                              const struct snap *snap, enum key_type type)
{
    struct chunk_name last;
    bool first = true;
    int r;
    _cleanup_scan_ struct scan scan;
    scan_type(&scan, snap, type);
    while ((r = scan_row(&scan)) > 0) {
        if (!first && chunk_name_equal(&scan.row.chunk, &last))
            continue;
        last = scan.row.chunk;
        first = false;
        r = add_unnamed_chunk(report, txn, &last);
        if (r < 0)
            break;
    }
    return r;
}

/* Bases may have lost their places, and chunks with a place their dependents. */
static int add_unnamed(struct remote_report *report, struct txn *txn, const struct snap *snap)
{
    int r = add_unnamed_chunks(report, txn, snap, KEY_DEPENDENT);
    return r < 0 ? r : add_unnamed_chunks(report, txn, snap, KEY_REMOTE_CHUNK);
}

/* --- packs ------------------------------------------------------------------------------------ */

static bool followed_pack_counts(const struct view_remote_pack *pack)
{
    return !pack->unreferenced && !pack->gone;
}

static void count_followed_pack(struct txn *txn, const struct view_remote_pack *pack, int sign)
{
    txn->remote.pub.packs += (uint64_t)(int64_t)sign;
    txn->remote.pub.pack_bytes += sign < 0 ? -pack->length : pack->length;
}

/* Prepares the account of the pack, before its chunks are added. */
static int begin_pack(struct txn *txn, const struct pack_report *pack)
{
    int r = pack->removed ? 0 : remote_pack_load(txn, pack->row.pub.pack);
    if (pack->removed || (r < 0 && r != -ENOENT))
        return r;
    if (r == 0 && followed_pack_counts(&txn->remote_pack.pub))
        count_followed_pack(txn, &txn->remote_pack.pub, -1);
    if (r == 0)
        remote_pack_trust(txn); /* the head relies on it */
    if (r == -ENOENT)
        txn->remote_pack = (struct remote_pack_row){.pub = {.pack = pack->row.pub.pack}};
    struct view_remote_pack *pub = &txn->remote_pack.pub;
    pub->length = pack->row.pub.length;
    pub->count = pack->row.pub.count;
    pub->unreferenced = pack->row.pub.unreferenced;
    pub->until = 0;
    pub->gone = false;
    pub->head = 1; /* published by some head */
    txn->remote_pack_loaded = txn->remote_pack_dirty = true;
    if (followed_pack_counts(pub))
        count_followed_pack(txn, pub, 1);
    return 0;
}

/* Chunks that no head needs lose their places together with their pack. */
static int end_followed_pack(struct txn *txn, const struct pack_report *pack)
{
    int r = remote_pack_load(txn, pack->row.pub.pack);
    if (r < 0)
        return r == -ENOENT && pack->removed ? 0 : r;
    const struct view_remote_pack *pub = &txn->remote_pack.pub;
    if (!pack->removed && !pub->unreferenced)
        return 0;
    if (pub->live_count > 0)
        return txn_damage(txn, "a remote pack that is not needed has chunks that are");
    r = remote_pack_forget_placed(txn, pack->row.pub.pack);
    if (r < 0 || !pack->removed)
        return r;
    if (followed_pack_counts(pub))
        count_followed_pack(txn, pub, -1);
    remote_pack_trust(txn);
    txn->remote_pack_loaded = txn->remote_pack_dirty = false;
    txn_delete(txn, key_u64(NEW_KEY, KEY_REMOTE_PACK, pack->row.pub.pack));
    return 0;
}

/* --- chunks ----------------------------------------------------------------------------------- */

static int place_followed_chunk(struct txn *txn, const struct chunk_row *now)
{
    const struct chunk_entry *entry = &now->entry;
    const struct view_remote_pack *pub = &txn->remote_pack.pub;
    struct chunk_row old;
    int r = look_known_chunk(&txn->look, KEY_REMOTE_CHUNK, &entry->name, &old);
    if (r < 0 || entry->pack == 0 || same_remote_place(&old.entry, entry))
        return r;
    TRY(remote_chunk_place(txn, entry));
    if (!followed_pack_counts(pub) || entry->offset + entry->stored_len > pub->length ||
        txn->remote_pack.placed > pub->count)
        return txn_damage(txn, "a chunk does not fit the remote pack that it lies in");
    return 0;
}

/* Sets its references, in the row that also has the local place. */
static int set_refs(struct txn *txn, const struct chunk_row *now)
{
    struct piece piece = {.chunk = now->entry.name};
    struct chunk_row row;
    int r = look_known_chunk(&txn->look, KEY_CHUNK, &now->entry.name, &row);
    if (r == 0 && row.refs != now->refs)
        r = chunk_refs_change(txn, &piece, (int64_t)(now->refs - row.refs));
    if (r < 0 || now->refs == 0 || row.entry.pack)
        return r;
    row.entry = now->entry;
    row.refs = now->refs;
    chunk_row_forget_place(&row);
    txn_put_chunk(txn, KEY_CHUNK, &row);
    return 0;
}

static int unplace_chunk(struct txn *txn, const struct chunk_row *now)
{
    return now->entry.pack ? 0 : remote_chunk_forget(txn, &now->entry.name);
}

static int settle_followed_chunk(struct txn *txn, const struct chunk_row *now)
{
    int r = now->entry.pack ? entry_check_depths(txn, &now->entry) : 0;
    return r < 0 ? r : remote_chunk_settle(txn, &now->entry.name);
}

static int compare_depths(const void *a, const void *b)
{
    const struct chunk_row *x = a, *y = b;
    return (x->entry.depth > y->entry.depth) - (x->entry.depth < y->entry.depth);
}

/* Bases get their places before their dependents, and lose them after. */
static int apply_chunks(struct remote_report *report, struct txn *txn)
{
    static int (*const steps[])(struct txn *, const struct chunk_row *) = {
        place_followed_chunk, set_refs, unplace_chunk, settle_followed_chunk};
    int r = 0;
    vector_sort(&report->chunks, compare_depths);
    for (size_t step = 0; step < ARRAY_LEN(steps); step++)
        for (size_t i = 0; i < report->chunks.count && r == 0; i++)
            r = steps[step](txn, &report->chunks.at[i]);
    return r;
}

int report_apply(struct remote_report *report, struct txn *txn, const struct snap *snap,
                 bool is_whole)
{
    int r = is_whole ? add_unnamed(report, txn, snap) : 0;
    for (size_t i = 0; i < report->packs.count && r == 0; i++)
        r = begin_pack(txn, &report->packs.at[i]);
    if (r == 0)
        r = apply_chunks(report, txn);
    for (size_t i = 0; i < report->packs.count && r == 0; i++)
        r = end_followed_pack(txn, &report->packs.at[i]);
    if (r == 0) {
        remote_pack_store(txn);
        r = lists_store(txn);
    }
    if (r < 0 && txn->why)
        log_error("view: the rows of a head contradict each other: %s", txn->why);
    return r;
}

void report_done(struct remote_report *report)
{
    vector_free(&report->chunks);
    vector_free(&report->unused);
    vector_free(&report->packs);
}
