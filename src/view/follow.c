// SPDX-License-Identifier: Apache-2.0
/* A view that goes from the state of one head to that of a newer one, in one write.
 *
 * Rows of the namespace are taken as they are. Those of chunks and remote packs carry what the view
 * keeps under several keys: the references, the place in the remote, what is pending upload, and
 * the accounts of packs, local ones too. */
#include <sys/stat.h>

#include <uthash.h>

#include "base/log.h"
#include "view/apply.h"
#include "view/rows.h"

#define FOLLOW_BYTES_MAX (256 * MIB) /* rows that differ */
#define CHUNK_MARK 1u /* the change that a mark of a chunk is of, as in an adoption */

static const char published_types[] = "CDEHILNOQX"; /* ascending, as in a run */

/* What becomes of a remote pack: rows of chunks come before its own. */
struct pack_change {
    UT_hash_handle hh;
    uint64_t pack;
    int64_t placed, live_count, live_bytes; /* what changes of them */
    uint64_t end;                           /* of the chunk that came to lie furthest back in it */
    bool has_row, removed;                  /* it had a row; which removes it */
    struct remote_pack_row row;             /* of what was told */
};

struct view_follow {
    struct txn txn;
    bool is_whole;
    struct snap snap;
    struct scan scan; /* is_whole: what the view has, up to the row that comes */
    const char *type; /* of `scan`; at the end of the types: no scan is open */
    struct pack_change *packs;
    struct pack_change *last_pack; /* the last one used */
    struct key last;
    struct piece_list pieces;
    size_t bytes;
    struct row_numbers numbers;
    void (*changed)(uint64_t ino, void *arg);
    void *arg;
};

/* --- what the view has, for a comparison with everything -------------------------------------- */

static void scan_type(struct view_follow *f)
{
    struct key prefix;
    if (*f->type == '\0')
        return;
    key_type(&prefix, (enum key_type) * f->type);
    scan_open(&f->scan, &f->snap, &prefix);
}

/* Is there a row left? 1, 0 or an error. */
static int known_valid(struct view_follow *f)
{
    while (*f->type && !scan_valid(&f->scan)) {
        int r = scan_error(&f->scan);
        if (r < 0)
            return r;
        scan_close(&f->scan);
        f->type++;
        scan_type(f);
    }
    return *f->type != '\0';
}

static int compare_known(const struct view_follow *f, const struct run_row *row)
{
    const struct scan *s = &f->scan;
    int order = memcmp(s->key, row->key, s->key_len < row->key_len ? s->key_len : row->key_len);
    return order ? order : (s->key_len > row->key_len) - (s->key_len < row->key_len);
}

/* --- rows of the namespace -------------------------------------------------------------------- */

static void count_inode(struct view_follow *f, const struct inode_row *row, int sign)
{
    if (row->pub.nlink > 0)
        count_file(&f->txn, row, sign);
}

/* The counters, and who is told of it. `old` and `row` without a value: it did not or does not
 * exist. */
static int note_inode(struct view_follow *f, const struct run_row *row, const struct value *old,
                      const struct inode_row *now)
{
    struct inode_row before;
    uint64_t ino = key_get_u64(row->key, 1);
    if (ino == ROOT_INO && !(row->value && S_ISDIR(now->pub.attrs.mode)))
        return -EUCLEAN;
    if (old->data) {
        int r = inode_decode(ino, old->data, old->len, &before);
        if (r < 0)
            return r;
        count_inode(f, &before, -1);
    }
    if (row->value)
        count_inode(f, now, 1);
    if (f->changed)
        f->changed(ino, f->arg);
    return 0;
}

static bool same_value(const struct value *old, const struct run_row *row)
{
    if (!old->data || !row->value)
        return !old->data && !row->value;
    return old->len == row->value_len && memcmp(old->data, row->value, old->len) == 0;
}

static int follow_plain(struct view_follow *f, const struct run_row *row)
{
    struct key key = {0};
    struct inode_row inode;
    _cleanup_value_ struct value old = {0};
    if (row->value) {
        int r = row_check_plain(row, &f->pieces, &inode);
        if (r < 0)
            return r;
    }
    key_add_bytes(&key, row->key, row->key_len);
    int r = txn_get(&f->txn, &key, &old);
    if (r < 0 && r != -ENOENT)
        return r;
    if (same_value(&old, row))
        return 0;
    r = 0;
    if (key.bytes[0] == KEY_INODE)
        r = key.len == KEY_U64_LEN ? note_inode(f, row, &old, &inode) : -EUCLEAN;
    f->bytes += row->key_len + row->value_len;
    if (r == 0 && row->value)
        txn_put(&f->txn, &key, row->value, row->value_len);
    else if (r == 0)
        txn_delete(&f->txn, &key);
    return r;
}

/* --- chunks ----------------------------------------------------------------------------------- */

static struct pack_change *change_of_pack(struct view_follow *f, uint64_t pack)
{
    struct pack_change *c = f->last_pack;
    if (c && c->pack == pack)
        return c;
    HASH_FIND(hh, f->packs, &pack, sizeof pack, c);
    if (!c) {
        c = xcalloc(1, sizeof *c);
        c->pack = pack;
        HASH_ADD(hh, f->packs, pack, sizeof c->pack, c);
    }
    f->last_pack = c;
    return c;
}

/* A chunk is (+1) or is no more (-1) at a place in the remote, live or not. */
static void account_remote_chunk(struct view_follow *f, const struct chunk_entry *remote,
                                 bool is_live, int sign)
{
    struct pack_change *c = change_of_pack(f, remote->pack);
    c->placed += sign;
    if (is_live) {
        c->live_count += sign;
        c->live_bytes += sign * (int64_t)remote->stored_len;
    }
    if (sign > 0)
        c->end = max_u64(c->end, remote->offset + remote->stored_len);
}

static void remove_remote_chunk(struct view_follow *f, const struct chunk_entry *remote)
{
    struct key key;
    key_of_placed(&key, KEY_REMOTE_PLACED, remote->pack, &remote->name);
    txn_delete(&f->txn, &key);
    key_of_name(&key, KEY_REMOTE_CHUNK, &remote->name);
    txn_delete(&f->txn, &key);
}

static void put_remote_chunk(struct view_follow *f, const struct chunk_entry *entry)
{
    struct chunk_row remote = {.entry = *entry};
    struct key key;
    uint8_t value[CHUNK_VALUE_LEN_MAX];
    key_of_name(&key, KEY_REMOTE_CHUNK, &entry->name);
    txn_put(&f->txn, &key, value, chunk_row_encode(&remote, value));
    key_of_placed(&key, KEY_REMOTE_PLACED, entry->pack, &entry->name);
    txn_put_bytes(&f->txn, &key, NULL, 0);
    f->bytes += sizeof value;
}

/* A chunk that is referred to and lies nowhere in the remote is pending upload, with a mark; any
 * other is not. */
static int settle_pending(struct view_follow *f, const struct chunk_row *row, bool is_pending)
{
    struct touched_row touched = {.change = CHUNK_MARK};
    struct view_remote *remote = &f->txn.remote.pub;
    struct key key, chunk, mark;
    uint8_t value[TOUCHED_VALUE_LEN];
    uint64_t bytes = row->entry.pack ? row->entry.stored_len : 0;
    _cleanup_value_ struct value old = {0};
    key_of_name(&key, KEY_PENDING_UPLOAD, &row->entry.name);
    key_chunk(&chunk, &row->entry.name);
    key_touched(&mark, chunk.bytes, chunk.len);
    int r = txn_get(&f->txn, &key, &old);
    bool was_pending = r == 0;
    if (r < 0 && r != -ENOENT)
        return r;
    if (was_pending && !is_pending) {
        r = pending_upload_decode(old.data, old.len, &bytes);
        remote->pending_chunks--;
        remote->pending_bytes -= bytes;
        txn_delete(&f->txn, &key);
        txn_delete(&f->txn, &mark);
        return r;
    }
    if (is_pending && !was_pending) {
        remote->pending_chunks++;
        remote->pending_bytes += bytes;
        txn_put(&f->txn, &key, value, pending_upload_encode(bytes, value));
        txn_put(&f->txn, &mark, value, touched_encode(&touched, value));
    }
    return 0;
}

/* Its references, in the row that also tells the local place; without one it is described as the
 * remote has it. */
static int set_refs(struct view_follow *f, const struct chunk_row *now, struct chunk_row *row)
{
    struct piece piece = {.chunk = now->entry.name};
    struct key key;
    uint8_t value[CHUNK_VALUE_LEN_MAX];
    int r = chunk_refs_change(&f->txn, &piece, (int64_t)(now->refs - row->refs));
    row->refs = now->refs;
    if (r < 0 || row->refs == 0 || row->entry.pack)
        return r;
    row->entry = now->entry;
    row->entry.pack = row->entry.offset = 0;
    key_chunk(&key, &row->entry.name);
    txn_put(&f->txn, &key, value, chunk_row_encode(row, value));
    f->bytes += sizeof value;
    return 0;
}

static bool same_place(const struct chunk_entry *a, const struct chunk_entry *b)
{
    if (a->pack == 0 || b->pack == 0)
        return a->pack == b->pack;
    return a->pack == b->pack && a->offset == b->offset && a->stored_len == b->stored_len &&
           a->encoding == b->encoding;
}

/* `now` with refs 0: nothing refers to it any more. */
static int follow_chunk(struct view_follow *f, const struct chunk_row *now)
{
    struct chunk_row row = {.entry = {.name = now->entry.name}}, remote = row;
    int r = chunk_row_get(&f->txn, KEY_CHUNK, &now->entry.name, &row);
    if (r == 0 || r == -ENOENT)
        r = chunk_row_get(&f->txn, KEY_REMOTE_CHUNK, &now->entry.name, &remote);
    if (r < 0 && r != -ENOENT)
        return r;
    bool was_in_remote = r == 0, moves = !same_place(&remote.entry, &now->entry);
    if (row.refs == now->refs && !moves)
        return 0;
    if (was_in_remote)
        account_remote_chunk(f, &remote.entry, row.refs > 0, -1);
    if (now->entry.pack)
        account_remote_chunk(f, &now->entry, true, 1);
    if (was_in_remote && moves)
        remove_remote_chunk(f, &remote.entry);
    if (now->entry.pack && moves)
        put_remote_chunk(f, &now->entry);
    r = set_refs(f, now, &row);
    return r < 0 ? r : settle_pending(f, &row, now->refs > 0 && now->entry.pack == 0);
}

static int follow_chunk_row(struct view_follow *f, const struct run_row *row)
{
    struct chunk_row now = {0};
    int r = row->value ? row_read_chunk(row, &now) : row_chunk_name(row, &now.entry.name);
    return r < 0 ? r : follow_chunk(f, &now);
}

/* --- remote packs ----------------------------------------------------------------------------- */

static int follow_pack_row(struct view_follow *f, const struct run_row *row)
{
    struct remote_pack_row remote = {0};
    int r = row->value ? row_read_pack(row, &remote) : row->key_len == KEY_U64_LEN ? 0 : -EUCLEAN;
    if (r < 0)
        return r;
    struct pack_change *c = change_of_pack(f, key_get_u64(row->key, 1));
    c->has_row = true;
    c->removed = !row->value;
    c->row = remote;
    return 0;
}

/* Places of chunks that no head refers to: a store that wrote here itself knows some. They go with
 * the pack. */
static int forget_leftovers(struct view_follow *f, uint64_t pack, int64_t *placed)
{
    struct key prefix, key;
    _cleanup_scan_ struct scan scan;
    key_u64(&prefix, KEY_REMOTE_PLACED, pack);
    scan_open(&scan, &f->snap, &prefix);
    int r = 0;
    for (; r == 0 && *placed > 0 && scan_valid(&scan); scan_next(&scan)) {
        struct chunk_entry entry = {.pack = pack};
        if (scan.key_len != PLACED_KEY_LEN)
            return -EUCLEAN;
        memcpy(&entry.name, scan.key + KEY_U64_LEN, sizeof entry.name);
        key_of_placed(&key, KEY_REMOTE_PLACED, pack, &entry.name);
        r = txn_has(&f->txn, &key);
        if (r == 0) {
            remove_remote_chunk(f, &entry);
            --*placed;
        }
        r = r == -ENOENT ? 0 : r;
    }
    return r < 0 ? r : scan_error(&scan);
}

static bool counts(const struct view_remote_pack *pack)
{
    return !pack->unreferenced && !pack->gone;
}

static void count_pack(struct view_follow *f, const struct view_remote_pack *pack, int sign)
{
    f->txn.remote.pub.packs += (uint64_t)(int64_t)sign;
    f->txn.remote.pub.pack_bytes += sign < 0 ? -pack->length : pack->length;
}

/* The accounts as they become; -EUCLEAN if what the rows say of chunks and packs does not fit. */
static int make_account(const struct pack_change *c, const struct remote_pack_row *old,
                        struct remote_pack_row *ret)
{
    int64_t count = (int64_t)old->pub.live_count + c->live_count,
            bytes = (int64_t)old->pub.live_bytes + c->live_bytes;
    int64_t placed = (int64_t)old->placed + c->placed;
    *ret = c->has_row ? c->row : *old;
    if (c->has_row)
        ret->pub.head = 1; /* published by some head */
    if (ret->pub.pack == 0 || count < 0 || bytes < 0 || placed < count || count > ret->pub.count ||
        c->end > ret->pub.length)
        return -EUCLEAN;
    if (count > 0 && (c->removed || ret->pub.unreferenced))
        return -EUCLEAN;
    ret->pub.live_count = (uint32_t)count;
    ret->pub.live_bytes = (uint64_t)bytes;
    ret->placed = (uint64_t)placed;
    return 0;
}

static int settle_pack(struct view_follow *f, struct pack_change *c)
{
    struct remote_pack_row old = {0}, now;
    struct key key;
    _cleanup_value_ struct value value = {0};
    uint8_t bytes[REMOTE_PACK_VALUE_LEN];
    key_u64(&key, KEY_REMOTE_PACK, c->pack);
    int r = txn_get(&f->txn, &key, &value);
    bool existed = r == 0;
    if (r == 0)
        r = remote_pack_row_decode(c->pack, value.data, value.len, &old);
    if (r < 0 && r != -ENOENT)
        return r;
    if (!existed && c->removed)
        return c->live_count || c->placed ? -EUCLEAN : 0;
    if (c->removed)
        c->row = old;
    r = make_account(c, &old, &now);
    int64_t placed = (int64_t)now.placed;
    if (r == 0 && (c->removed || now.pub.unreferenced))
        r = forget_leftovers(f, c->pack, &placed);
    if (r < 0)
        return r;
    now.placed = (uint64_t)placed;
    if (existed && counts(&old.pub))
        count_pack(f, &old.pub, -1);
    if (!c->removed && counts(&now.pub))
        count_pack(f, &now.pub, 1);
    if (c->removed)
        txn_delete(&f->txn, &key);
    else
        txn_put(&f->txn, &key, bytes, remote_pack_row_encode(&now, bytes));
    return 0;
}

static int settle_packs(struct view_follow *f)
{
    struct pack_change *c, *next;
    HASH_ITER(hh, f->packs, c, next)
    {
        int r = settle_pack(f, c);
        if (r == -EUCLEAN)
            log_error("view: what the remote says of pack %016llx does not fit its chunks",
                      (unsigned long long)c->pack);
        if (r < 0)
            return r;
    }
    return 0;
}

/* --- rows and the end ------------------------------------------------------------------------- */

static int take_row(struct view_follow *f, const struct run_row *row)
{
    switch (*(const uint8_t *)row->key) {
    case KEY_CHUNK:
        return follow_chunk_row(f, row);
    case KEY_REMOTE_PACK:
        return follow_pack_row(f, row);
    default:
        return is_published_type(*(const uint8_t *)row->key) ? follow_plain(f, row) : -EUCLEAN;
    }
}

/* The view has a row that the head has not. */
static int take_absent(struct view_follow *f)
{
    uint8_t bytes[RUN_KEY_MAX];
    struct run_row row = {.key = bytes, .key_len = f->scan.key_len};
    check(row.key_len <= sizeof bytes);
    memcpy(bytes, f->scan.key, row.key_len);
    return take_row(f, &row);
}

/* Everything that the view has before the row (NULL: to the end) is absent. 1: the row is there as
 * it is. */
static int compare_up_to(struct view_follow *f, const struct run_row *row)
{
    int r;
    while ((r = known_valid(f)) > 0) {
        int order = row ? compare_known(f, row) : -1;
        if (order > 0)
            return 0;
        if (order == 0) {
            bool same = f->scan.value_len == row->value_len &&
                        memcmp(f->scan.value, row->value, row->value_len) == 0;
            bool plain = is_published_type(*(const uint8_t *)row->key);
            scan_next(&f->scan);
            return same && plain;
        }
        r = take_absent(f);
        if (r < 0)
            return r;
        scan_next(&f->scan);
    }
    return r;
}

int view_follow_row(struct view_follow *f, const struct run_row *row)
{
    int r = 0;
    if (!row_comes_next(&f->last, row) || (f->is_whole && !row->value) ||
        (row->value && row->value_len == 0))
        r = -EUCLEAN;
    else if (f->is_whole)
        r = compare_up_to(f, row);
    if (r == 0)
        r = take_row(f, row);
    if (r == 0 && row->value)
        row_numbers_note(&f->numbers, row);
    if (r == -EUCLEAN)
        log_error("view: a row of type 0x%02x from the remote makes no sense",
                  row->key_len ? *(const uint8_t *)row->key : 0);
    if (r >= 0 && f->bytes > FOLLOW_BYTES_MAX)
        r = -EFBIG;
    return r < 0 ? r : 0;
}

int view_follow_end(struct view_follow *f, const struct view_state *state, uint64_t head,
                    uint64_t max_id)
{
    struct txn *txn = &f->txn;
    int r = f->is_whole ? compare_up_to(f, NULL) : 0;
    if (r == 0)
        r = row_numbers_check(&f->numbers, state, max_id);
    if (r == 0)
        r = settle_packs(f);
    if (r < 0)
        return r;
    if (txn->state.files != state->files || txn->state.logical_bytes != state->logical_bytes) {
        log_error("view: the rows from the remote do not lead to the state that it names");
        return -EUCLEAN;
    }
    pack_account_store(txn);
    txn->state.applied_seq = state->applied_seq;
    memcpy(txn->state.chain, state->chain, sizeof txn->state.chain);
    txn->state.max_ino = max_u64(txn->state.max_ino, state->max_ino);
    txn->remote.pub.tracks = true;
    txn->remote.pub.is_whole = false;
    txn->remote.pub.head = head;
    txn->remote.pub.cut = state->applied_seq;
    return txn_commit(txn);
}

int view_follow_begin(struct view *view, bool is_whole, void (*changed)(uint64_t ino, void *arg),
                      void *arg, struct view_follow **ret)
{
    struct view_follow *f = xcalloc(1, sizeof *f);
    f->is_whole = is_whole;
    f->changed = changed;
    f->arg = arg;
    f->type = is_whole ? published_types : published_types + sizeof published_types - 1;
    txn_begin(&f->txn, view);
    f->txn.remote.pub.tracks = false; /* nothing here is a change of ours: it leaves no marks */
    snap_begin(&f->snap, view);
    scan_type(f);
    *ret = f;
    return 0;
}

void view_follow_done(struct view_follow *f)
{
    struct pack_change *c, *next;
    if (!f)
        return;
    HASH_ITER(hh, f->packs, c, next)
    {
        HASH_DEL(f->packs, c);
        free(c);
    }
    if (*f->type)
        scan_close(&f->scan);
    snap_end(&f->snap);
    txn_end(&f->txn);
    vector_free(&f->pieces);
    free(f);
}

int view_has_own_changes(struct view *view, bool *ret)
{
    struct key prefix;
    _cleanup_snap_ struct snap snap;
    _cleanup_scan_ struct scan scan;
    snap_begin(&snap, view);
    key_type(&prefix, KEY_TOUCHED);
    scan_open(&scan, &snap, &prefix);
    /* Marks of chunks may be those of an adoption: what a head said to be missing. */
    for (*ret = false; !*ret && scan_valid(&scan); scan_next(&scan))
        *ret = scan.key_len > 1 && scan.key[1] != KEY_CHUNK;
    return scan_error(&scan);
}
