// SPDX-License-Identifier: Apache-2.0
#include "view/db.h"

#include <uthash.h>

/* The change that an apply makes to a key. */
struct change {
    UT_hash_handle hh;
    RB_ENTRY(change) node; /* of a key that may be sought */
    bool deleted, touched;
    uint32_t key_len, value_len, value_room;
    uint8_t *value;
    uint8_t key[];
};

static int txn_compare_keys(const uint8_t *a, size_t a_len, const uint8_t *b, size_t b_len)
{
    int order = memcmp(a, b, min_u64(a_len, b_len));
    return order != 0 ? order : a_len < b_len ? -1 : a_len > b_len;
}

static int compare_txn_changes(const struct change *a, const struct change *b)
{
    return txn_compare_keys(a->key, a->key_len, b->key, b->key_len);
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
RB_GENERATE_INTERNAL(change_tree, change, node, compare_txn_changes, static)
#pragma GCC diagnostic pop

void txn_begin(struct txn *txn, struct view *view)
{
    *txn = (struct txn){.view = view, .look = {.txn = txn}};
    mutex_lock(&view->change);
    view_note_changing(true);
    LOCK_SCOPE(&view->lock);
    txn->state = view->state;
    txn->remote = view->remote;
    txn->remote.changes++;
    txn->cut = txn->state.applied_seq;
}

static void forget_txn_changes(struct txn *txn)
{
    struct change *c = txn->changes, *next;
    HASH_CLEAR(hh, txn->changes);
    for (; c; c = next) {
        next = c->hh.next;
        free(c->value);
        free(c);
    }
    RB_INIT(&txn->sought);
}

static void close_seek(struct txn *txn)
{
    if (txn->seek.iter)
        rocksdb_iter_destroy(txn->seek.iter);
    if (txn->seek.read)
        rocksdb_readoptions_destroy(txn->seek.read);
    txn->seek.iter = NULL;
    txn->seek.read = NULL;
}

void txn_end(struct txn *txn)
{
    forget_txn_changes(txn);
    vector_free(&txn->marks);
    vector_free(&txn->listed);
    close_seek(txn);
    view_note_changing(false);
    mutex_unlock(&txn->view->change);
}

static uint64_t seekable_bit(const uint8_t *key)
{
    return 1ull << (key[0] - 'A');
}

static struct change *find_change(const struct txn *txn, const uint8_t *key, size_t len)
{
    struct change *c;
    HASH_FIND(hh, txn->changes, key, len, c);
    return c;
}

/* Returns the change of the key; creates it if there is none. */
static struct change *txn_change_of(struct txn *txn, const struct key *key)
{
    struct change *c = find_change(txn, key->bytes, key->len);
    if (c)
        return c;
    c = xcalloc(1, sizeof *c + key->len);
    c->key_len = (uint32_t)key->len;
    memcpy(c->key, key->bytes, key->len);
    HASH_ADD_KEYPTR(hh, txn->changes, c->key, c->key_len, c);
    if (txn->seekable & seekable_bit(key->bytes))
        (void)RB_INSERT(change_tree, &txn->sought, c);
    return c;
}

size_t txn_change_count(const struct txn *txn)
{
    return HASH_COUNT(txn->changes);
}

/* Stores only the key of a mark: all marks of a transaction have the same value, and it reads none.
 * A row with a known change is marked already. */
static void txn_mark(struct txn *txn, const struct key *key, struct change *change)
{
    if (!txn->remote.pub.tracks || txn->is_following || (change && change->touched))
        return;
    if (change)
        change->touched = true;
    vector_add_all(&txn->marks, (const uint8_t *)&key->len, sizeof key->len);
    vector_add_all(&txn->marks, key->bytes, key->len);
}

static void add_txn_marks(const struct txn *txn, rocksdb_writebatch_t *batch)
{
    struct touched_row row = {.change = txn->remote.changes, .cut = txn->cut};
    uint8_t value[TOUCHED_VALUE_LEN];
    struct key touched;
    size_t len;
    (void)touched_encode(&row, value);
    for (size_t at = 0; at < txn->marks.count; at += sizeof len + len) {
        memcpy(&len, txn->marks.at + at, sizeof len);
        key_touched(&touched, txn->marks.at + at + sizeof len, len);
        rocksdb_writebatch_put(batch, (const char *)touched.bytes, touched.len, (const char *)value,
                               sizeof value);
    }
}

void txn_touch(struct txn *txn, const struct key *key)
{
    txn_mark(txn, key, find_change(txn, key->bytes, key->len));
}

void txn_put(struct txn *txn, const struct key *key, const void *value, size_t len)
{
    check(len > 0 && len <= UINT32_MAX);
    struct change *c = txn_change_of(txn, key);
    if (is_published_type(key->bytes[0]))
        txn_mark(txn, key, c);
    if (c->value_room < len) {
        free(c->value);
        c->value = xmalloc(len);
        c->value_room = (uint32_t)len;
    }
    memcpy(c->value, value, len);
    c->value_len = (uint32_t)len;
    c->deleted = false;
}

void txn_put_bytes(struct txn *txn, const struct key *key, const void *bytes, size_t len)
{
    _cleanup_free_ char *value = xmalloc(1 + len);
    value[0] = VIEW_VALUE_VERSION;
    if (len)
        memcpy(value + 1, bytes, len);
    txn_put(txn, key, value, 1 + len);
}

void txn_delete(struct txn *txn, const struct key *key)
{
    struct change *c = txn_change_of(txn, key);
    c->deleted = true;
    if (is_published_type(key->bytes[0]))
        txn_mark(txn, key, c);
}

void txn_clear(struct txn *txn, enum key_type type)
{
    txn->cleared |= seekable_bit(&(uint8_t){(uint8_t)type});
}

int txn_get(struct txn *txn, const struct key *key, struct value *ret_value)
{
    const struct change *c = find_change(txn, key->bytes, key->len);
    if (!c)
        return db_get(txn->view, NULL, key, ret_value);
    if (c->deleted)
        return -ENOENT;
    ret_value->data = xmalloc(c->value_len);
    ret_value->len = c->value_len;
    memcpy(ret_value->data, c->value, c->value_len);
    return 0;
}

int txn_has(struct txn *txn, const struct key *key)
{
    _cleanup_value_ struct value value = {0};
    return txn_get(txn, key, &value);
}

/* From now on keeps the changes of this type in order, those made so far and later ones. */
static void make_seekable(struct txn *txn, const struct key *key)
{
    uint64_t bit = seekable_bit(key->bytes);
    if (txn->seekable & bit)
        return;
    for (struct change *c = txn->changes; c; c = c->hh.next)
        if (seekable_bit(c->key) == bit)
            (void)RB_INSERT(change_tree, &txn->sought, c);
    txn->seekable |= bit;
}

/* Opens an iterator bounded by the prefix, so that it does not step over deleted keys behind, which
 * may be everything that existed of the type. The database does not change during an apply, so the
 * iterator is reused while the prefix stays the same. */
static void open_seek(struct txn *txn, const struct key *prefix)
{
    struct txn_seek *seek = &txn->seek;
    if (seek->iter &&
        txn_compare_keys(seek->prefix.bytes, seek->prefix.len, prefix->bytes, prefix->len) == 0)
        return;
    close_seek(txn);
    seek->prefix = seek->end = *prefix;
    key_end(&seek->end);
    seek->read = rocksdb_readoptions_create();
    rocksdb_readoptions_set_iterate_upper_bound(seek->read, (const char *)seek->end.bytes,
                                                seek->end.len);
    seek->iter = rocksdb_create_iterator(txn->view->db, seek->read);
}

/* Finds the first key of the database >= `key` that begins with the prefix and that the transaction
 * has not changed. */
static int seek_unchanged(struct txn *txn, const struct key *key, struct found *ret)
{
    rocksdb_iterator_t *iter = txn->seek.iter;
    for (rocksdb_iter_seek(iter, (const char *)key->bytes, key->len); rocksdb_iter_valid(iter);
         rocksdb_iter_next(iter)) {
        ret->key = (const uint8_t *)rocksdb_iter_key(iter, &ret->key_len);
        if (find_change(txn, ret->key, ret->key_len))
            continue;
        ret->value = (const uint8_t *)rocksdb_iter_value(iter, &ret->value_len);
        return 0;
    }
    int r = iter_error(txn->view, iter);
    return r < 0 ? r : -ENOENT;
}

/* As seek_unchanged(), among the keys that the transaction puts. */
static int seek_put(struct txn *txn, const struct key *key, const struct key *prefix,
                    struct found *ret)
{
    struct change *c = RB_ROOT(&txn->sought), *next = NULL;
    while (c) {
        bool is_before = txn_compare_keys(c->key, c->key_len, key->bytes, key->len) < 0;
        next = is_before ? next : c;
        c = is_before ? RB_RIGHT(c, node) : RB_LEFT(c, node);
    }
    for (c = next;
         c && c->key_len >= prefix->len && memcmp(c->key, prefix->bytes, prefix->len) == 0;
         c = RB_NEXT(change_tree, &txn->sought, c))
        if (!c->deleted) {
            *ret = (struct found){c->key, c->value, c->key_len, c->value_len};
            return 0;
        }
    return -ENOENT;
}

int txn_seek(struct txn *txn, const struct key *key, size_t prefix_len, struct found *ret_found)
{
    struct key prefix = {0};
    struct found put;
    key_add_bytes(&prefix, key->bytes, prefix_len);
    make_seekable(txn, key);
    if (!txn->view->db)
        return -EIO;
    open_seek(txn, &prefix);
    int r = seek_unchanged(txn, key, ret_found);
    if (r < 0 && r != -ENOENT)
        return r;
    if (seek_put(txn, key, &prefix, &put) == 0 &&
        (r < 0 || txn_compare_keys(put.key, put.key_len, ret_found->key, ret_found->key_len) < 0)) {
        *ret_found = put;
        return 0;
    }
    return r;
}

/* Removals of cleared types come first, as a batch is applied in order. */
static void add_cleared(const struct txn *txn, rocksdb_writebatch_t *batch)
{
    check(!txn->cleared || !txn->seekable);
    for (char type = 'A'; type <= 'Z'; type++) {
        const char end = (char)(type + 1);
        if (txn->cleared & seekable_bit((const uint8_t *)&type))
            rocksdb_writebatch_delete_range(batch, &type, 1, &end, 1);
    }
}

/* Returns all changes as one batch for the database. */
static rocksdb_writebatch_t *batch_of(struct txn *txn)
{
    rocksdb_writebatch_t *batch = rocksdb_writebatch_create();
    add_cleared(txn, batch);
    add_txn_marks(txn, batch);
    for (const struct change *c = txn->changes; c; c = c->hh.next) {
        if (c->deleted)
            rocksdb_writebatch_delete(batch, (const char *)c->key, c->key_len);
        else
            rocksdb_writebatch_put(batch, (const char *)c->key, c->key_len, (const char *)c->value,
                                   c->value_len);
    }
    return batch;
}

static int write_txn_changes(struct txn *txn)
{
    rocksdb_writebatch_t *batch = batch_of(txn);
    int r = db_write(txn->view, batch, NULL);
    rocksdb_writebatch_destroy(batch);
    return r;
}

int txn_write_ahead(struct txn *txn)
{
    check(!txn->seekable && !txn->remote_pack_dirty && !txn->pack_dirty && !txn->listed.count);
    int r = write_txn_changes(txn);
    forget_txn_changes(txn);
    txn->marks.count = 0;
    txn->cleared = 0;
    return r;
}

int txn_commit(struct txn *txn)
{
    uint8_t value[STATE_VALUE_LEN_MAX];
    check(!txn->listed.count);
    txn_put(txn, key_type(NEW_KEY, KEY_STATE), value, state_encode(&txn->state, value));
    if (txn->remote.pub.tracks) {
        uint8_t remote[REMOTE_STATE_VALUE_LEN_MAX];
        txn_put(txn, key_type(NEW_KEY, KEY_REMOTE_STATE), remote,
                remote_state_row_encode(&txn->remote, remote));
    }
    TRY(write_txn_changes(txn));
    mutex_lock(&txn->view->lock);
    txn->view->state = txn->state;
    txn->view->remote = txn->remote;
    mutex_unlock(&txn->view->lock);
    view_note_applied(txn->view, txn->state.applied_seq);
    return 0;
}

int txn_get_inode(struct txn *txn, uint64_t ino, struct inode_row *row)
{
    _cleanup_value_ struct value value = {0};
    int r = txn_get(txn, key_u64(NEW_KEY, KEY_INODE, ino), &value);
    return r < 0 ? r : inode_decode(ino, value.data, value.len, row);
}

void txn_put_inode(struct txn *txn, const struct inode_row *row)
{
    uint8_t value[INODE_VALUE_LEN];
    txn_put(txn, key_u64(NEW_KEY, KEY_INODE, row->pub.ino), value, inode_encode(row, value));
}
