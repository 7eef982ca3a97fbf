// SPDX-License-Identifier: Apache-2.0
/* A new view filled from the rows of a remote's runs. */
#include <sys/stat.h>

#include <uthash.h>

#include "base/log.h"
#include "view/apply.h"
#include "view/rows.h"

#define ADOPT_BATCH_BYTES MIB
#define ADOPT_CHANGE 1u /* number of the change that an adoption is */

/* What the rows of chunks say of a pack, until the pack's own row comes. */
struct tally {
    UT_hash_handle hh;
    uint64_t pack, live_bytes;
    uint64_t end; /* of the chunk that lies furthest back */
    uint32_t live_count;
};

/* Rows go to the database in batches of one kind each: the database is much faster with rows that
 * follow each other. */
enum kind { ROWS, PLACES, LISTS, KINDS };

struct view_adoption {
    struct view *view;
    rocksdb_writebatch_t *batches[KINDS];
    rocksdb_writeoptions_t *write; /* without a log: what a crash leaves is thrown away */
    struct tally *tallies;
    struct tally *tally; /* the last one used */
    struct piece_list pieces;
    struct key last; /* key of the last row */
    struct remote_state_row remote;
    struct row_numbers numbers;
    uint64_t chunks, files, logical_bytes;
    bool has_root;
};

/* --- writing ---------------------------------------------------------------------------------- */

static int write_batch(struct view_adoption *a, rocksdb_writebatch_t *batch,
                       const rocksdb_writeoptions_t *options)
{
    int r = db_write(a->view, batch, options);
    rocksdb_writebatch_clear(batch);
    return r;
}

static int write_now(struct view_adoption *a, const rocksdb_writeoptions_t *options)
{
    int r = 0;
    for (size_t i = 0; i < KINDS && r == 0; i++)
        if (rocksdb_writebatch_count(a->batches[i]))
            r = write_batch(a, a->batches[i], options);
    return r;
}

static int write_synced(struct view_adoption *a)
{
    rocksdb_writeoptions_t *options = rocksdb_writeoptions_create();
    rocksdb_writeoptions_set_sync(options, 1);
    rocksdb_writeoptions_set_no_slowdown(options, 1);
    int r = write_now(a, options);
    rocksdb_writeoptions_destroy(options);
    return r;
}

static int put_into(struct view_adoption *a, enum kind kind, const void *key, size_t key_len,
                    const void *value, size_t len)
{
    size_t used;
    rocksdb_writebatch_t *batch = a->batches[kind];
    rocksdb_writebatch_put(batch, key, key_len, value, len);
    (void)rocksdb_writebatch_data(batch, &used);
    return used >= ADOPT_BATCH_BYTES ? write_batch(a, batch, a->write) : 0;
}

static int put(struct view_adoption *a, const void *key, size_t key_len, const void *value,
               size_t len)
{
    return put_into(a, ROWS, key, key_len, value, len);
}

static int put_key(struct view_adoption *a, const struct key *key, const void *value, size_t len)
{
    return put(a, key->bytes, key->len, value, len);
}

static int put_remote(struct view_adoption *a)
{
    struct key key;
    uint8_t value[REMOTE_STATE_VALUE_LEN];
    key_type(&key, KEY_REMOTE_STATE);
    return put_key(a, &key, value, remote_state_row_encode(&a->remote, value));
}

/* Rows come in key order, so tables that are being filled hardly overlap: compacting them meanwhile
 * would write everything a second time and make the mount wait for it. It happens afterwards, in
 * the background. */
static void set_compaction(struct view *view, bool enabled)
{
    const char *key = "disable_auto_compactions", *value = enabled ? "false" : "true";
    char *message = NULL;
    rocksdb_set_options(view->db, 1, &key, &value, &message);
    if (message) {
        log_warn("view: cannot set when to compact: %s", message);
        rocksdb_free(message);
    }
}

/* Without a state, and not empty, the database cannot be opened: so it is while it is filled. */
int view_adopt_begin(struct view *view, struct view_adoption **ret)
{
    struct key key;
    struct view_adoption *a = xcalloc(1, sizeof *a);
    a->view = view;
    for (size_t i = 0; i < KINDS; i++)
        a->batches[i] = rocksdb_writebatch_create();
    a->write = rocksdb_writeoptions_create();
    rocksdb_writeoptions_disable_WAL(a->write, 1);
    rocksdb_writeoptions_set_no_slowdown(a->write, 1);
    set_compaction(view, false);
    key_type(&key, KEY_STATE);
    rocksdb_writebatch_delete(a->batches[ROWS], (const char *)key.bytes, key.len);
    key_u64(&key, KEY_INODE, ROOT_INO);
    rocksdb_writebatch_delete(a->batches[ROWS], (const char *)key.bytes, key.len);
    int r = put_remote(a);
    if (r == 0)
        r = write_synced(a);
    if (r < 0)
        view_adopt_done(a);
    else
        *ret = a;
    return r;
}

/* --- chunks and packs ------------------------------------------------------------------------- */

static struct tally *tally_of(struct view_adoption *a, uint64_t pack)
{
    struct tally *t = a->tally;
    if (t && t->pack == pack)
        return t;
    HASH_FIND(hh, a->tallies, &pack, sizeof pack, t);
    if (!t) {
        t = xcalloc(1, sizeof *t);
        t->pack = pack;
        HASH_ADD(hh, a->tallies, pack, sizeof t->pack, t);
    }
    a->tally = t;
    return t;
}

static int adopt_remote_chunk(struct view_adoption *a, const struct chunk_row *row)
{
    struct chunk_row remote = {.entry = row->entry};
    struct key key;
    uint8_t value[CHUNK_VALUE_LEN_MAX];
    struct tally *t = tally_of(a, row->entry.pack);
    t->live_bytes += row->entry.stored_len;
    t->live_count++;
    t->end = max_u64(t->end, row->entry.offset + row->entry.stored_len);
    key_of_name(&key, KEY_REMOTE_CHUNK, &row->entry.name);
    int r = put_into(a, PLACES, key.bytes, key.len, value, chunk_row_encode(&remote, value));
    value[0] = VIEW_VALUE_VERSION;
    key_of_placed(&key, KEY_REMOTE_PLACED, row->entry.pack, &row->entry.name);
    return r < 0 ? r : put_into(a, LISTS, key.bytes, key.len, value, 1);
}

/* Referred to and not in the remote. With the mark the next run says where it lies then. */
static int adopt_missing(struct view_adoption *a, const struct chunk_row *row)
{
    struct touched_row touched = {.change = ADOPT_CHANGE};
    struct key key, mark;
    uint8_t value[TOUCHED_VALUE_LEN];
    _Static_assert(PENDING_UPLOAD_VALUE_LEN <= TOUCHED_VALUE_LEN, "one buffer serves both");
    key_of_name(&key, KEY_PENDING_UPLOAD, &row->entry.name);
    int r = put_key(a, &key, value, pending_upload_encode(0, value));
    key_chunk(&key, &row->entry.name);
    key_touched(&mark, key.bytes, key.len);
    a->remote.pub.pending_chunks++;
    return r < 0 ? r : put_key(a, &mark, value, touched_encode(&touched, value));
}

static int adopt_chunk(struct view_adoption *a, const struct run_row *row)
{
    struct chunk_row chunk;
    uint8_t value[CHUNK_VALUE_LEN_MAX];
    int r = row_read_chunk(row, &chunk);
    if (r == 0)
        r = chunk.entry.pack ? adopt_remote_chunk(a, &chunk) : adopt_missing(a, &chunk);
    if (r < 0)
        return r;
    chunk.entry.pack = 0;
    chunk.entry.offset = 0;
    a->chunks++;
    return put(a, row->key, row->key_len, value, chunk_row_encode(&chunk, value));
}

static int adopt_pack(struct view_adoption *a, const struct run_row *row)
{
    struct remote_pack_row remote_pack;
    uint8_t value[REMOTE_PACK_VALUE_LEN];
    int r = row_read_pack(row, &remote_pack);
    if (r < 0)
        return r;
    struct tally *t = tally_of(a, remote_pack.pub.pack);
    remote_pack.pub.live_bytes = t->live_bytes;
    remote_pack.pub.live_count = t->live_count;
    remote_pack.placed = t->live_count;
    remote_pack.pub.head = 1; /* published by some head */
    if (t->live_count > remote_pack.pub.count || t->end > remote_pack.pub.length ||
        (remote_pack.pub.unreferenced && t->live_count))
        return -EUCLEAN;
    if (!remote_pack.pub.unreferenced) {
        a->remote.pub.packs++;
        a->remote.pub.pack_bytes += remote_pack.pub.length;
    }
    HASH_DEL(a->tallies, t);
    free(t);
    a->tally = NULL;
    return put(a, row->key, row->key_len, value, remote_pack_row_encode(&remote_pack, value));
}

/* --- the namespace, as it is ------------------------------------------------------------------ */

static void note_inode(struct view_adoption *a, const struct inode_row *inode)
{
    if (S_ISREG(inode->pub.attrs.mode) && inode->pub.nlink > 0) {
        a->files++;
        a->logical_bytes += inode->pub.attrs.size;
    }
    a->has_root = a->has_root || (inode->pub.ino == ROOT_INO && S_ISDIR(inode->pub.attrs.mode));
}

static int adopt_plain(struct view_adoption *a, const struct run_row *row)
{
    struct inode_row inode;
    int r = row_check_plain(row, &a->pieces, &inode);
    if (r < 0)
        return r;
    if (*(const uint8_t *)row->key == KEY_INODE)
        note_inode(a, &inode);
    return put(a, row->key, row->key_len, row->value, row->value_len);
}

/* --- rows and the end ------------------------------------------------------------------------- */

int view_adopt_row(struct view_adoption *a, const struct run_row *row)
{
    /* Each key once: the counts of chunks and files depend on it. */
    if (!row->value || !row_comes_next(&a->last, row)) {
        log_error("view: rows from the remote are out of order or have no value");
        return -EUCLEAN;
    }
    uint8_t type = *(const uint8_t *)row->key;
    int r = type == KEY_CHUNK         ? adopt_chunk(a, row)
            : type == KEY_REMOTE_PACK ? adopt_pack(a, row)
                                      : adopt_plain(a, row);
    if (r == -EUCLEAN)
        log_error("view: a row of type 0x%02x from the remote makes no sense", type);
    if (r == 0)
        row_numbers_note(&a->numbers, row);
    return r;
}

static int check_whole(const struct view_adoption *a, const struct view_state *state)
{
    if (a->tallies)
        log_error("view: chunks in the remote lie in packs that it does not name");
    else if (!a->has_root || a->files != state->files || a->logical_bytes != state->logical_bytes)
        log_error("view: the rows from the remote are not those of the state that it names");
    else
        return 0;
    return -EUCLEAN;
}

/* The state comes last and alone: it says that all before it is durable. */
static int write_state(struct view_adoption *a, const struct view_state *state)
{
    struct key key;
    uint8_t value[STATE_VALUE_LEN];
    int r = write_now(a, a->write);
    if (r == 0)
        r = view_flush(a->view);
    if (r == 0)
        r = put_remote(a);
    key_type(&key, KEY_STATE);
    if (r == 0)
        r = put_key(a, &key, value, state_encode(state, value));
    if (r == 0)
        r = write_synced(a);
    return r < 0 ? r : view_flush(a->view);
}

int view_adopt_end(struct view_adoption *a, const struct view_state *state, uint64_t head,
                   uint64_t max_id)
{
    struct view *view = a->view;
    struct view_state now = *state;
    int r = check_whole(a, state);
    if (r == 0)
        r = row_numbers_check(&a->numbers, state, max_id);
    if (r < 0)
        return r;
    now.chunks = a->chunks;
    now.stored_bytes = now.packs = now.pack_bytes = 0;
    a->remote.changes = ADOPT_CHANGE;
    a->remote.pub.tracks = true;
    a->remote.pub.head = head;
    a->remote.pub.cut = now.applied_seq;
    r = write_state(a, &now);
    if (r < 0)
        return r;
    LOCK_SCOPE(&view->lock);
    view->state = now;
    view->remote = a->remote;
    return 0;
}

void view_adopt_done(struct view_adoption *a)
{
    struct tally *t, *next;
    if (!a)
        return;
    HASH_ITER(hh, a->tallies, t, next)
    {
        HASH_DEL(a->tallies, t);
        free(t);
    }
    vector_free(&a->pieces);
    set_compaction(a->view, true);
    for (size_t i = 0; i < KINDS; i++)
        rocksdb_writebatch_destroy(a->batches[i]);
    rocksdb_writeoptions_destroy(a->write);
    free(a);
}
