// SPDX-License-Identifier: Apache-2.0
#include "view/pack_list.h"

static enum key_type rows_of(enum key_type list)
{
    return list == KEY_PLACED ? KEY_CHUNK : KEY_REMOTE_CHUNK;
}

/* --- rows with a given prefix ----------------------------------------------------------------- */

static const struct key *key_of_listed(struct key *key, enum key_type list,
                                       const struct listed *listed)
{
    key_type(key, rows_of(list));
    key_add_bytes(key, listed->bytes, sizeof listed->bytes);
    return key;
}

static int each_that_begins(struct txn *txn, enum key_type list, uint64_t pack,
                            const struct listed *listed,
                            int (*fn)(struct txn *txn, const struct chunk_row *row, void *arg),
                            void *arg)
{
    struct key key;
    struct found found;
    int r;
    key_of_listed(&key, list, listed);
    size_t prefix_len = key.len;
    while ((r = txn_seek(txn, &key, prefix_len, &found)) == 0) {
        struct view_row row = {0};
        if (row_decode(&(struct run_row){found.key, found.key_len, found.value, found.value_len},
                       &row) < 0)
            return txn_damage(txn, "a pack has a chunk whose row is damaged");
        r = row.placed.entry.pack == pack ? fn(txn, &row.placed, arg) : 0;
        if (r != 0)
            return r;
        key_of_name(&key, rows_of(list), &row.chunk);
        key.bytes[key.len++] = 0; /* the smallest key after it */
    }
    return r == -ENOENT ? 0 : r;
}

static int snap_each_that_begins(const struct snap *snap, enum key_type list, uint64_t pack,
                                 const struct listed *listed,
                                 int (*fn)(const struct chunk_row *row, void *arg), void *arg)
{
    _cleanup_scan_ struct scan scan;
    scan_open(&scan, snap, key_of_listed(NEW_KEY, list, listed));
    return EACH_ROW(&scan, scan.row.placed.entry.pack == pack ? fn(&scan.row.placed, arg) : 0);
}

/* --- lists ------------------------------------------------------------------------------------ */

void list_add(struct txn *txn, enum key_type list, uint64_t pack, const struct chunk_name *name)
{
    check(list == KEY_PLACED || list == KEY_REMOTE_PLACED);
    vector_add(&txn->listed, (struct listed_chunk){pack, (uint8_t)list, listed_of(name)});
}

/* Also drops pending additions for the pack: they are older than the removal. */
void list_remove(struct txn *txn, enum key_type list, uint64_t pack)
{
    size_t kept = 0;
    for (size_t i = 0; i < txn->listed.count; i++)
        if (txn->listed.at[i].list != list || txn->listed.at[i].pack != pack)
            txn->listed.at[kept++] = txn->listed.at[i];
    txn->listed.count = kept;
    txn_delete(txn, key_u64(NEW_KEY, list, pack));
}

/* An empty list has no row. */
static int get_list(const struct look *look, enum key_type list, uint64_t pack,
                    struct listed_chunks *ret)
{
    _cleanup_value_ struct value value = {0};
    int r = look_get(look, key_u64(NEW_KEY, list, pack), &value);
    if (r < 0)
        return r == -ENOENT ? 0 : r;
    r = list_decode(value.data, value.len, ret);
    return r < 0 && look->txn ? txn_damage(look->txn, "the list of a pack's chunks is damaged") : r;
}

static int compare_additions(const void *a, const void *b)
{
    const struct listed_chunk *x = a, *y = b;
    if (x->list != y->list)
        return x->list < y->list ? -1 : 1;
    return (x->pack > y->pack) - (x->pack < y->pack);
}

/* Stores the first `count` additions, all for one pack. */
static int store_list(struct txn *txn, const struct listed_chunk *additions, size_t count)
{
    _cleanup_vector_ struct bytes value = {0};
    _cleanup_vector_ struct listed_chunks listed = {0};
    TRY(get_list(&txn->look, additions->list, additions->pack, &listed));
    for (size_t i = 0; i < count; i++)
        vector_add(&listed, additions[i].listed);
    list_encode(&listed, &value);
    txn_put(txn, key_u64(NEW_KEY, additions->list, additions->pack), value.at, value.count);
    return 0;
}

int lists_store(struct txn *txn)
{
    int r = 0;
    vector_sort(&txn->listed, compare_additions);
    for (size_t at = 0, n; at < txn->listed.count && r == 0; at += n) {
        const struct listed_chunk *first = &txn->listed.at[at];
        for (n = 1; at + n < txn->listed.count && compare_additions(first, first + n) == 0;)
            n++;
        r = store_list(txn, first, n);
    }
    txn->listed.count = 0;
    return r;
}

int list_each(struct txn *txn, enum key_type list, uint64_t pack,
              int (*fn)(struct txn *txn, const struct chunk_row *row, void *arg), void *arg)
{
    _cleanup_vector_ struct listed_chunks listed = {0};
    int r = lists_store(txn);
    if (r == 0)
        r = get_list(&txn->look, list, pack, &listed);
    for (size_t i = 0; i < listed.count && r == 0; i++)
        r = each_that_begins(txn, list, pack, &listed.at[i], fn, arg);
    return r;
}

int snap_list_each(const struct snap *snap, enum key_type list, uint64_t pack,
                   int (*fn)(const struct chunk_row *row, void *arg), void *arg)
{
    _cleanup_vector_ struct listed_chunks listed = {0};
    int r = get_list(&(struct look){.snap = snap}, list, pack, &listed);
    for (size_t i = 0; i < listed.count && r == 0; i++)
        r = snap_each_that_begins(snap, list, pack, &listed.at[i], fn, arg);
    return r;
}

int snap_list_has(const struct snap *snap, enum key_type list, uint64_t pack,
                  const struct chunk_name *name)
{
    _cleanup_vector_ struct listed_chunks listed = {0};
    const struct listed beginning = listed_of(name);
    int r = get_list(&(struct look){.snap = snap}, list, pack, &listed);
    return r < 0 ? r : vector_search(&listed, &beginning, compare_listed) != NULL;
}
