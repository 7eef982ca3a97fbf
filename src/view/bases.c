// SPDX-License-Identifier: Apache-2.0
#include "view/bases.h"

int base_has(const struct look *look, const struct chunk_name *base, enum need need)
{
    struct view *view = look_view(look);
    struct key prefix;
    if (!atomic_load(&view->has_dependents))
        return 0;
    key_dependents(&prefix, base, need);
    if (look->txn) {
        struct found found;
        int r = txn_seek(look->txn, &prefix, prefix.len, &found);
        return r == -ENOENT ? 0 : r < 0 ? r : 1;
    }
    _cleanup_scan_ struct scan scan;
    if (look->snap)
        scan_open(&scan, look->snap, &prefix);
    else
        scan_view(&scan, view, &prefix, NULL);
    return scan_step(&scan);
}

int chunk_is_needed(const struct look *look, const struct chunk_name *name, uint64_t refs)
{
    return refs > 0 ? 1 : base_has(look, name, NEEDED);
}

int look_needed(const struct look *look, const struct chunk_name *name, struct chunk_row *ret)
{
    int r = look_known_chunk(look, KEY_CHUNK, name, ret);
    return r < 0 ? r : chunk_is_needed(look, name, ret->refs);
}

int base_has_any(const struct look *look, const struct chunk_name *base, bool *ret)
{
    int r = base_has(look, base, NEEDED);
    if (r == 0)
        r = base_has(look, base, UNNEEDED);
    *ret = r > 0;
    return r < 0 ? r : 0;
}

/* 1: the remote pack is suspect. */
static int is_suspect_pack(const struct look *look, uint64_t pack)
{
    struct remote_pack_row row;
    if (!atomic_load(&look_view(look)->has_suspects))
        return 0;
    if (look->txn && look->txn->remote_pack_loaded && look->txn->remote_pack.pub.pack == pack)
        return look->txn->remote_pack.pub.suspect != 0;
    int r = look_remote_pack(look, pack, &row);
    return r == -ENOENT ? 0 : r < 0 ? r : row.pub.suspect != 0;
}

static int lacks_base(const struct look *look, const struct chunk_entry *entry, unsigned levels,
                      struct chunk_name *ret_base)
{
    int r = 0;
    check(levels <= CHUNK_DEPTH_MAX);
    for (size_t i = 0; i < entry->ref_count && r == 0; i++) {
        struct chunk_row base;
        r = look_chunk(look, KEY_REMOTE_CHUNK, &entry->refs[i].name, &base);
        if (r == -ENOENT || (r == 0 && levels == 0)) {
            *ret_base = entry->refs[i].name;
            return 1;
        }
        if (r == 0)
            r = is_suspect_pack(look, base.entry.pack);
        if (r > 0)
            *ret_base = entry->refs[i].name;
        if (r == 0)
            r = lacks_base(look, &base.entry, levels - 1, ret_base);
    }
    return r;
}

int entry_is_incomplete(const struct look *look, const struct chunk_entry *entry)
{
    int r = is_suspect_pack(look, entry->pack);
    return r ? r : entry_lacks_base(look, entry, NULL);
}

int entry_lacks_base(const struct look *look, const struct chunk_entry *entry,
                     struct chunk_name *ret_base)
{
    struct chunk_name base;
    return lacks_base(look, entry, CHUNK_DEPTH_MAX, ret_base ? ret_base : &base);
}

int next_dependent(struct txn *txn, const struct chunk_name *base, enum need need, bool from_start,
                   struct chunk_name *after, unsigned *ret_depth)
{
    struct key key;
    struct found found;
    key_dependents(&key, base, need);
    size_t prefix_len = key.len;
    if (!from_start) {
        key_dependent(&key, base, need, after);
        key.bytes[key.len++] = 0; /* the smallest key after it */
    }
    TRY(txn_seek(txn, &key, prefix_len, &found));
    if (found.key_len != DEPENDENT_KEY_LEN)
        return txn_damage(txn, "the list of a chunk's dependents is damaged");
    memcpy(after, found.key + prefix_len, sizeof *after);
    return dependent_decode(found.value, found.value_len, ret_depth);
}

static int check_dependents(struct txn *txn, const struct chunk_entry *entry, enum need need)
{
    struct chunk_name name;
    unsigned depth;
    int r;
    for (bool first = true;
         (r = next_dependent(txn, &entry->name, need, first, &name, &depth)) == 0; first = false)
        if (depth <= entry->depth)
            return txn_damage(txn, "a chunk is as deep as one that rests on it");
    return r == -ENOENT ? 0 : r;
}

int entry_check_depths(struct txn *txn, const struct chunk_entry *entry)
{
    int r = 0;
    if (entry->ref_count == 0)
        return 0;
    for (size_t i = 0; i < entry->ref_count && r == 0; i++) {
        struct chunk_row base;
        r = look_chunk(&txn->look, KEY_REMOTE_CHUNK, &entry->refs[i].name, &base);
        if (r == 0 && base.entry.depth >= entry->depth)
            return txn_damage(txn, "a chunk's base is as deep as the chunk");
        r = r == -ENOENT ? 0 : r;
    }
    if (r == 0)
        r = check_dependents(txn, entry, NEEDED);
    return r < 0 ? r : check_dependents(txn, entry, UNNEEDED);
}

/* Checks a new base. A chunk that depends on a lost chunk counts as lost, too. */
static int check_new_base(struct txn *txn, const struct chunk_name *name)
{
    struct chunk_row base;
    int r = look_chunk(&txn->look, KEY_REMOTE_CHUNK, name, &base);
    if (r < 0)
        return r == -ENOENT ? txn_damage(txn, "a chunk's base has no place in the remote") : r;
    r = entry_is_incomplete(&txn->look, &base.entry);
    return r > 0 ? txn_damage(txn, "a chunk's base lacks a base, or lies in a suspect pack") : r;
}

int entry_check(struct txn *txn, const struct chunk_entry *entry)
{
    struct chunk_row old = {0};
    if (!entry_is_sane(entry))
        return txn_damage(txn, "a chunk's references make no sense");
    int r = entry->ref_count ? look_chunk(&txn->look, KEY_REMOTE_CHUNK, &entry->name, &old) : 0;
    if (r < 0 && r != -ENOENT)
        return r;
    r = 0;
    for (size_t i = 0; i < entry->ref_count && r == 0; i++)
        if (!entry_refers_to(&old.entry, &entry->refs[i].name))
            r = check_new_base(txn, &entry->refs[i].name);
    return r < 0 ? r : entry_check_depths(txn, entry);
}
