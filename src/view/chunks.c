// SPDX-License-Identifier: Apache-2.0
/* Chunks and packs: reference counts, places, and the accounts of packs. */
#include "view/bases.h"
#include "view/pack_list.h"

void pack_account_store(struct txn *txn)
{
    if (!txn->pack_dirty)
        return;
    uint8_t value[PACK_VALUE_LEN];
    txn_put(txn, key_u64(NEW_KEY, KEY_PACK, txn->pack.pub.pack), value,
            pack_row_encode(&txn->pack, value));
    txn->pack_dirty = false;
}

/* Loads the account of `pack` into txn->pack. Chunks of one file are mostly in one pack, so caching
 * the last account saves a read and a write for each. */
static int pack_account_load(struct txn *txn, uint64_t pack)
{
    if (txn->pack_loaded && txn->pack.pub.pack == pack)
        return 0;
    pack_account_store(txn);
    txn->pack_loaded = false;
    _cleanup_value_ struct value value = {0};
    TRY(txn_get(txn, key_u64(NEW_KEY, KEY_PACK, pack), &value));
    int r = pack_row_decode(pack, value.data, value.len, &txn->pack);
    txn->pack_loaded = r == 0;
    return r;
}

/* For a chunk whose place proves that the pack exists. */
static int pack_account_need(struct txn *txn, uint64_t pack)
{
    int r = pack_account_load(txn, pack);
    return r == -ENOENT ? txn_damage(txn, "a chunk lies in a pack that is unknown") : r;
}

/* A chunk becomes (+1) or stops being (-1) live at its place. */
static int count_live(struct txn *txn, const struct chunk_entry *e, int sign)
{
    if (e->pack == 0)
        return 0;
    TRY(pack_account_need(txn, e->pack));
    struct view_pack *p = &txn->pack.pub;
    if (sign < 0 && (p->live_count == 0 || p->live_bytes < e->stored_len))
        return txn_damage(txn, "a pack's live bytes fall below zero");
    uint64_t bytes = sign < 0 ? -(uint64_t)e->stored_len : e->stored_len;
    p->live_count += (uint32_t)sign;
    p->live_bytes += bytes;
    txn->state.stored_bytes += bytes;
    txn->pack_dirty = true;
    return 0;
}

/* Stored bytes of the chunk on NVMe if no file refers to it but other chunks depend on it. */
static uint64_t held_chunk_bytes(const struct chunk_row *row)
{
    return row->refs == 0 && row->dependents > 0 && row->entry.pack ? row->entry.stored_len : 0;
}

/* Stores the row, or removes it if the chunk is neither live nor has a place. `held`: its held
 * bytes before the change. */
static void chunk_put(struct txn *txn, const struct chunk_row *row, uint64_t held)
{
    txn->state.held_bytes += held_chunk_bytes(row) - held;
    if (chunk_row_is_live(row) || row->entry.pack)
        txn_put_chunk(txn, KEY_CHUNK, row);
    else
        txn_delete(txn, key_chunk(NEW_KEY, &row->entry.name));
}

/* Files start (+1) or stop (-1) to refer to the chunk. */
static int chunk_referenced(struct txn *txn, const struct chunk_row *row, int sign)
{
    int r = row->dependents ? 0 : count_live(txn, &row->entry, sign);
    txn->state.chunks += (uint64_t)(int64_t)sign;
    return r < 0 ? r : remote_chunk_refs_changed(txn, row, sign);
}

int chunk_refs_change(struct txn *txn, const struct piece *piece, int64_t delta)
{
    struct chunk_row row;
    TRY(look_known_chunk(&txn->look, KEY_CHUNK, &piece->chunk, &row));
    if (delta < 0 && row.refs < (uint64_t)-delta)
        return txn_damage(txn, "a chunk's references fall below zero");
    if (delta > 0 && row.entry.pack != 0 && piece->within + piece->length > row.entry.raw_len)
        return txn_damage(txn, "an extent goes beyond its chunk");
    bool was_referenced = row.refs > 0;
    uint64_t held = held_chunk_bytes(&row);
    row.refs += (uint64_t)delta;
    if (was_referenced != (row.refs > 0))
        TRY(chunk_referenced(txn, &row, was_referenced ? -1 : 1));
    chunk_put(txn, &row, held);
    txn_touch(txn, key_chunk(NEW_KEY, &row.entry.name));
    return 0;
}

/* Counts a chunk into the pack's account, or out of it. */
static int note_placed_chunk(struct txn *txn, const struct chunk_name *name, uint64_t pack,
                             bool placed)
{
    TRY(pack_account_need(txn, pack));
    if (!placed && txn->pack.placed == 0)
        return txn_damage(txn, "a pack has more chunks than it counts");
    if (placed)
        list_add(txn, KEY_PLACED, pack, name);
    txn->pack.placed += placed ? 1 : (uint64_t)-1;
    txn->pack_dirty = true;
    return 0;
}

/* Adds (+1) or subtracts (-1) one dependent. */
static int dependents_change(struct txn *txn, const struct chunk_name *base, int sign)
{
    struct chunk_row row;
    TRY(look_known_chunk(&txn->look, KEY_CHUNK, base, &row));
    int r = 0;
    if (sign < 0 ? row.dependents == 0 : row.dependents == UINT32_MAX)
        return txn_damage(txn, "the number of a chunk's dependents is out of range");
    bool was_live = chunk_row_is_live(&row);
    uint64_t held = held_chunk_bytes(&row);
    row.dependents += (uint32_t)sign;
    if (was_live != chunk_row_is_live(&row))
        r = count_live(txn, &row.entry, sign);
    if (r == 0)
        chunk_put(txn, &row, held);
    return r;
}

/* The bases of an entry gain (+1) or lose (-1) it as a dependent. */
static int hold_chunk_bases(struct txn *txn, const struct chunk_entry *entry, int sign)
{
    int r = 0;
    for (size_t i = 0; i < entry->ref_count && r == 0; i++)
        if (entry_ref_is_first(entry, i))
            r = dependents_change(txn, &entry->refs[i].name, sign);
    return r;
}

/* Moves a known or new chunk to the place in `entry`. */
static int chunk_place(struct txn *txn, const struct chunk_entry *entry)
{
    struct chunk_row row;
    TRY(look_known_chunk(&txn->look, KEY_CHUNK, &entry->name, &row));
    const struct chunk_entry old = row.entry;
    uint64_t held = held_chunk_bytes(&row);
    bool is_live = chunk_row_is_live(&row),
         is_new = old.pack == 0 || old.stored_len != entry->stored_len;
    TRY(is_live ? count_live(txn, &old, -1) : 0);
    if (old.pack != 0)
        TRY(note_placed_chunk(txn, &entry->name, old.pack, false));
    row.entry = *entry;
    TRY(is_live ? count_live(txn, &row.entry, 1) : 0);
    TRY(note_placed_chunk(txn, &entry->name, entry->pack, true));
    if (is_new)
        TRY(remote_chunk_moved_locally(txn, &row));
    chunk_put(txn, &row, held);
    TRY(hold_chunk_bases(txn, entry, 1));
    return hold_chunk_bases(txn, &old, -1);
}

struct index_walk {
    struct txn *txn;
    uint64_t pack;
    uint32_t count;
};

static int index_entry(const struct chunk_entry *entry, void *arg)
{
    struct index_walk *walk = arg;
    struct chunk_entry placed = *entry;
    if (!entry_is_sane(entry) || (entry->pack != walk->pack && entry->pack != 0))
        return txn_damage(walk->txn, "the pack's index does not belong to it");
    placed.pack = walk->pack;
    walk->count++;
    return chunk_place(walk->txn, &placed);
}

int apply_pack(struct txn *txn, const struct record *rec, const struct view_batch *batch)
{
    int r = pack_account_load(txn, rec->pack);
    if (r != -ENOENT)
        return r < 0 ? r : txn_damage(txn, "the pack is known already");
    if (rec->pack == 0)
        return txn_damage(txn, "the pack has no id");
    txn->pack =
        (struct pack_row){.pub = {.pack = rec->pack, .length = rec->length, .count = rec->count}};
    txn->pack_loaded = txn->pack_dirty = true;
    txn->state.packs++;
    txn->state.pack_bytes += rec->length;
    struct index_walk walk = {.txn = txn, .pack = rec->pack};
    check(batch->pack_index != NULL);
    bool was_made = false;
    r = batch->pack_index(rec->pack, index_entry, &walk, &was_made, batch->arg);
    bool is_gone = r == -ENOENT && walk.count == 0;
    if (r == 0 && !was_made && walk.count != rec->count)
        return txn_damage(txn, "the pack's index has another number of chunks");
    if (r < 0 && !is_gone)
        return r;
    r = pack_account_need(txn, rec->pack); /* `fn` may have loaded other accounts */
    /* Some of its chunks may be without a row. */
    if (r == 0 && walk.count != rec->count)
        txn->pack.pub.count = 0;
    return r;
}

/* Removes the place of a chunk in a dropped pack. Without references the chunk is forgotten; with
 * references (eviction) its only place is in the remote.
 *
 * Other chunks may still depend on it: during replay of the journal, an entry may exist that was
 * later replaced by one in a pack that is already dropped. */
static int chunk_unplace(struct txn *txn, const struct record *drop, struct chunk_row row)
{
    if (row.refs && !(drop->flags & RECORD_EVICTED))
        return txn_damage(txn, "the pack holds chunks that files refer to");
    int r = note_placed_chunk(txn, &row.entry.name, drop->pack, false);
    if (r == 0 && chunk_row_is_live(&row))
        r = count_live(txn, &row.entry, -1);
    if (r < 0)
        return r;
    const struct chunk_entry old = row.entry;
    uint64_t held = held_chunk_bytes(&row);
    chunk_row_forget_place(&row);
    chunk_put(txn, &row, held);
    r = remote_chunk_moved_locally(txn, &row);
    return r < 0 ? r : hold_chunk_bases(txn, &old, -1);
}

struct dropping {
    const struct record *drop;
    uint64_t left; /* chunks */
};

static int drop_chunk(struct txn *txn, const struct chunk_row *row, void *arg)
{
    struct dropping *dropping = arg;
    int r = chunk_unplace(txn, dropping->drop, *row);
    dropping->left--;
    return r < 0 ? r : dropping->left == 0;
}

static int forget_chunks_of_pack(struct txn *txn, const struct record *drop)
{
    struct dropping dropping = {.drop = drop, .left = txn->pack.placed};
    int r = dropping.left ? list_each(txn, KEY_PLACED, drop->pack, drop_chunk, &dropping) : 0;
    if (r >= 0 && dropping.left)
        return txn_damage(txn, "the pack's chunks are not all listed");
    list_remove(txn, KEY_PLACED, drop->pack);
    return r < 0 ? r : 0;
}

int apply_drop(struct txn *txn, const struct record *rec)
{
    int r = pack_account_load(txn, rec->pack);
    if (r < 0)
        return r == -ENOENT ? txn_damage(txn, "the pack is unknown") : r;
    uint64_t length = txn->pack.pub.length;
    r = forget_chunks_of_pack(txn, rec);
    if (r == 0)
        r = pack_account_need(txn, rec->pack); /* other accounts may have been loaded since */
    if (r < 0)
        return r;
    txn_delete(txn, key_u64(NEW_KEY, KEY_PACK, rec->pack));
    txn->pack_loaded = txn->pack_dirty = false;
    txn->state.packs--;
    txn->state.pack_bytes -= length;
    return 0;
}
