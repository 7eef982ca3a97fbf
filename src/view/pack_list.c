// SPDX-License-Identifier: Apache-2.0
#include "view/pack_list.h"

static enum key_type rows_of(enum key_type list)
{
    return list == KEY_PLACED ? KEY_CHUNK : KEY_REMOTE_CHUNK;
}

/* --- values ---------------------------------------------------------------------------------- */

int compare_listed(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(struct listed));
}

void list_encode(struct listed_chunks *list, struct bytes *value)
{
    size_t kept = 0;
    check(list->count > 0);
    vector_sort(list, compare_listed);
    for (size_t i = 0; i < list->count; i++)
        if (i == 0 || compare_listed(&list->at[kept - 1], &list->at[i]) != 0)
            list->at[kept++] = list->at[i];
    list->count = kept;
    uint8_t *p = bytes_extend(value, 1 + kept * LISTED_LEN);
    *p = VIEW_VALUE_VERSION;
    memcpy(p + 1, list->at, kept * LISTED_LEN);
}

int list_decode(const void *p, size_t len, struct listed_chunks *list)
{
    const uint8_t *bytes = p;
    if (len <= 1 || (len - 1) % LISTED_LEN != 0 || *bytes != VIEW_VALUE_VERSION)
        return -EUCLEAN;
    vector_add_all(list, (const struct listed *)(bytes + 1), (len - 1) / LISTED_LEN);
    for (size_t i = 1; i < list->count; i++)
        if (compare_listed(&list->at[i - 1], &list->at[i]) >= 0)
            return -EUCLEAN;
    return 0;
}

/* --- rows that begin so ----------------------------------------------------------------------- */

static void key_of_listed(struct key *key, enum key_type list, const struct listed *listed)
{
    key_type(key, rows_of(list));
    key_add_bytes(key, listed->bytes, sizeof listed->bytes);
}

static int decode_row(const void *key, size_t key_len, const void *value, size_t value_len,
                      struct chunk_row *row)
{
    struct chunk_name name;
    if (key_len != CHUNK_KEY_LEN)
        return -EUCLEAN;
    memcpy(&name, (const uint8_t *)key + 1, sizeof name);
    return chunk_row_decode(&name, value, value_len, row);
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
        struct chunk_row row;
        r = decode_row(found.key, found.key_len, found.value, found.value_len, &row);
        if (r < 0)
            return txn_damage(txn, "a pack has a chunk whose row is damaged");
        r = row.entry.pack == pack ? fn(txn, &row, arg) : 0;
        if (r != 0)
            return r;
        key_of_name(&key, rows_of(list), &row.entry.name);
        key.bytes[key.len++] = 0; /* comes right after it */
    }
    return r == -ENOENT ? 0 : r;
}

static int snap_each_that_begins(const struct snap *snap, enum key_type list, uint64_t pack,
                                 const struct listed *listed,
                                 int (*fn)(const struct chunk_row *row, void *arg), void *arg)
{
    struct key prefix;
    _cleanup_scan_ struct scan scan;
    key_of_listed(&prefix, list, listed);
    scan_open(&scan, snap, &prefix);
    int r = 0;
    for (; r == 0 && scan_valid(&scan); scan_next(&scan)) {
        struct chunk_row row;
        r = decode_row(scan.key, scan.key_len, scan.value, scan.value_len, &row);
        if (r == 0 && row.entry.pack == pack)
            r = fn(&row, arg);
    }
    return r != 0 ? r : scan_error(&scan);
}

/* --- lists ------------------------------------------------------------------------------------ */

void list_add(struct txn *txn, enum key_type list, uint64_t pack, const struct chunk_name *name)
{
    check(list == KEY_PLACED || list == KEY_REMOTE_PLACED);
    vector_add(&txn->listed, (struct listed_chunk){pack, (uint8_t)list, listed_of(name)});
}

/* None of the pack's additions is left: they came before, or never. */
void list_remove(struct txn *txn, enum key_type list, uint64_t pack)
{
    struct key key;
    size_t kept = 0;
    for (size_t i = 0; i < txn->listed.count; i++)
        if (txn->listed.at[i].list != list || txn->listed.at[i].pack != pack)
            txn->listed.at[kept++] = txn->listed.at[i];
    txn->listed.count = kept;
    key_u64(&key, list, pack);
    txn_delete(txn, &key);
}

/* An empty list has no row. */
static int get_list(struct txn *txn, enum key_type list, uint64_t pack, struct listed_chunks *ret)
{
    struct key key;
    _cleanup_value_ struct value value = {0};
    key_u64(&key, list, pack);
    int r = txn_get(txn, &key, &value);
    if (r == 0)
        r = list_decode(value.data, value.len, ret);
    if (r == -EUCLEAN)
        return txn_damage(txn, "the list of a pack's chunks is damaged");
    return r == -ENOENT ? 0 : r;
}

static int compare_additions(const void *a, const void *b)
{
    const struct listed_chunk *x = a, *y = b;
    if (x->list != y->list)
        return x->list < y->list ? -1 : 1;
    return (x->pack > y->pack) - (x->pack < y->pack);
}

/* Adds the first `count` of what is to be added, all of one pack. */
static int store_list(struct txn *txn, const struct listed_chunk *additions, size_t count)
{
    struct key key;
    struct bytes value = {0};
    struct listed_chunks listed = {0};
    int r = get_list(txn, additions->list, additions->pack, &listed);
    for (size_t i = 0; i < count; i++)
        vector_add(&listed, additions[i].listed);
    if (r == 0) {
        list_encode(&listed, &value);
        key_u64(&key, additions->list, additions->pack);
        txn_put(txn, &key, value.at, value.count);
    }
    vector_free(&listed);
    vector_free(&value);
    return r;
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
    struct listed_chunks listed = {0};
    int r = lists_store(txn);
    if (r == 0)
        r = get_list(txn, list, pack, &listed);
    for (size_t i = 0; i < listed.count && r == 0; i++)
        r = each_that_begins(txn, list, pack, &listed.at[i], fn, arg);
    vector_free(&listed);
    return r;
}

static int snap_get_list(const struct snap *snap, enum key_type list, uint64_t pack,
                         struct listed_chunks *ret)
{
    struct key key;
    _cleanup_value_ struct value value = {0};
    key_u64(&key, list, pack);
    int r = db_get(snap->view, snap, &key, &value);
    if (r == 0)
        r = list_decode(value.data, value.len, ret);
    return r == -ENOENT ? 0 : r;
}

int snap_list_each(const struct snap *snap, enum key_type list, uint64_t pack,
                   int (*fn)(const struct chunk_row *row, void *arg), void *arg)
{
    struct listed_chunks listed = {0};
    int r = snap_get_list(snap, list, pack, &listed);
    for (size_t i = 0; i < listed.count && r == 0; i++)
        r = snap_each_that_begins(snap, list, pack, &listed.at[i], fn, arg);
    vector_free(&listed);
    return r;
}

int snap_list_has(const struct snap *snap, enum key_type list, uint64_t pack,
                  const struct chunk_name *name)
{
    struct listed_chunks listed = {0};
    const struct listed beginning = listed_of(name);
    int r = snap_get_list(snap, list, pack, &listed);
    if (r == 0)
        r = vector_search(&listed, &beginning, compare_listed) != NULL;
    vector_free(&listed);
    return r;
}
