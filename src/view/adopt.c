// SPDX-License-Identifier: Apache-2.0
/* Fills a new view from the rows of a remote's runs. */
#include <sys/stat.h>

#include <uthash.h>

#include "base/log.h"
#include "view/bases.h"
#include "view/pack_list.h"
#include "view/rows.h"

#define ADOPT_BATCH_BYTES MIB
#define ADOPT_CHANGE 1u /* the number of the single change that an adoption is */

/* Sums of a pack's chunk rows, until the pack's own row comes. */
struct tally {
    UT_hash_handle hh;
    uint64_t pack, live_bytes;
    uint64_t end; /* end of the chunk with the highest offset */
    uint32_t live_count, placed;
};

/* A chunk that no file refers to. */
struct base {
    struct chunk_name name;
    uint8_t depth;
};

/* Rows are written in batches of one kind each: the database is much faster with rows in ascending
 * order. */
enum kind { ROWS, PLACES, LISTS, DEPENDENTS, KINDS };

struct view_adoption {
    struct view *view;
    rocksdb_writebatch_t *batches[KINDS];
    rocksdb_writeoptions_t *write; /* without a log: after a crash the view is discarded */
    struct tally *tallies;
    struct tally *tally;       /* the one used last */
    VECTOR(struct base) bases; /* until all rows of chunks, and so all dependents, have arrived */
    bool bases_done;
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

static int put_bytes_into(struct view_adoption *a, enum kind kind, const void *key, size_t key_len,
                          const void *value, size_t len)
{
    size_t used;
    rocksdb_writebatch_t *batch = a->batches[kind];
    rocksdb_writebatch_put(batch, key, key_len, value, len);
    (void)rocksdb_writebatch_data(batch, &used);
    return used >= ADOPT_BATCH_BYTES ? write_batch(a, batch, a->write) : 0;
}

static int put_into(struct view_adoption *a, enum kind kind, const struct key *key,
                    const void *value, size_t len)
{
    return put_bytes_into(a, kind, key->bytes, key->len, value, len);
}

/* Writes the received row, with this value. */
static int put_run_row(struct view_adoption *a, const struct run_row *row, const void *value,
                       size_t len)
{
    return put_bytes_into(a, ROWS, row->key, row->key_len, value, len);
}

static int put_adopted_remote(struct view_adoption *a)
{
    uint8_t value[REMOTE_STATE_VALUE_LEN_MAX];
    return put_into(a, ROWS, key_type(NEW_KEY, KEY_REMOTE_STATE), value,
                    remote_state_row_encode(&a->remote, value));
}

void view_state_of_head(const struct head *head, struct view_state *ret_state,
                        struct view_head *ret_head)
{
    *ret_state = (struct view_state){.applied_seq = head->cut,
                                     .max_ino = head->max_ino,
                                     .files = head->files,
                                     .logical_bytes = head->logical_bytes};
    memcpy(ret_state->chain, head->chain, sizeof ret_state->chain);
    *ret_head = (struct view_head){
        .number = head->number, .max_id = head->max_id, .has_nodes = head_has_nodes(head)};
}

/* A database without a state, but not empty, cannot be opened: that is its condition while it is
 * being filled.
 *
 * Rows come in key order, so the tables being filled hardly overlap: compacting them now would
 * write everything twice and delay the mount. They are compacted afterwards, in the background. */
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
    db_set_compactions(view, false);
    key_type(&key, KEY_STATE);
    rocksdb_writebatch_delete(a->batches[ROWS], (const char *)key.bytes, key.len);
    key_u64(&key, KEY_INODE, ROOT_INO);
    rocksdb_writebatch_delete(a->batches[ROWS], (const char *)key.bytes, key.len);
    int r = put_adopted_remote(a);
    if (r == 0)
        r = write_synced(a);
    if (r < 0)
        view_adopt_done(a);
    else
        *ret = a;
    return r;
}

/* --- chunks ----------------------------------------------------------------------------------- */

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

static void tally_placed_chunk(struct view_adoption *a, const struct chunk_entry *entry,
                               bool is_live)
{
    struct tally *t = tally_of(a, entry->pack);
    t->placed++;
    t->end = max_u64(t->end, entry->offset + entry->stored_len);
    if (!is_live)
        return;
    t->live_bytes += entry->stored_len;
    t->live_count++;
}

/* Writes the keys of the chunk under each of its bases. */
static int put_dependent(struct view_adoption *a, const struct chunk_entry *entry, enum need need)
{
    uint8_t value[DEPENDENT_VALUE_LEN];
    int r = 0;
    for (size_t i = 0; i < entry->ref_count && r == 0; i++) {
        atomic_store(&a->view->has_dependents, true);
        r = put_into(a, DEPENDENTS,
                     key_dependent(NEW_KEY, &entry->refs[i].name, need, &entry->name), value,
                     dependent_encode(entry->depth, value));
    }
    return r;
}

/* The lists are collected in the database, one row for each chunk, which sorts them by pack: chunks
 * come in order of name, and their lists might not fit into memory. */
static int collect_listed(struct view_adoption *a, const struct chunk_entry *entry)
{
    static const uint8_t value = VIEW_VALUE_VERSION;
    const struct listed listed = listed_of(&entry->name);
    struct key key;
    key_u64(&key, KEY_ADOPTED, entry->pack);
    key_add_bytes(&key, listed.bytes, sizeof listed.bytes);
    return put_into(a, LISTS, &key, &value, sizeof value);
}

static int adopt_place(struct view_adoption *a, const struct chunk_row *row)
{
    struct chunk_row remote = {.entry = row->entry};
    uint8_t value[CHUNK_VALUE_LEN_MAX];
    TRY(put_into(a, PLACES, key_of_name(NEW_KEY, KEY_REMOTE_CHUNK, &row->entry.name), value,
                 chunk_row_encode(&remote, value)));
    TRY(collect_listed(a, &row->entry));
    if (row->refs == 0) {
        vector_add(&a->bases, (struct base){row->entry.name, row->entry.depth});
        return 0;
    }
    tally_placed_chunk(a, &row->entry, true);
    return put_dependent(a, &row->entry, NEEDED);
}

/* Marks the chunk, so that the next run contains its row. */
static int put_adoption_mark(struct view_adoption *a, const struct chunk_name *name)
{
    struct touched_row touched = {.change = ADOPT_CHANGE};
    uint8_t value[TOUCHED_VALUE_LEN];
    return put_into(a, ROWS, key_chunk_mark(NEW_KEY, name), value, touched_encode(&touched, value));
}

/* The chunk is needed and not in the remote. */
static int adopt_missing(struct view_adoption *a, const struct chunk_name *name)
{
    uint8_t value[PENDING_UPLOAD_VALUE_LEN];
    int r = put_into(a, ROWS, key_of_name(NEW_KEY, KEY_PENDING_UPLOAD, name), value,
                     pending_upload_encode(0, value));
    a->remote.pub.pending_chunks++;
    return r < 0 ? r : put_adoption_mark(a, name);
}

static int adopt_chunk(struct view_adoption *a, const struct run_row *row)
{
    struct chunk_row chunk;
    uint8_t value[CHUNK_VALUE_LEN_MAX];
    int r = row_read_chunk(row, &chunk);
    if (r == 0)
        r = chunk.entry.pack ? adopt_place(a, &chunk) : adopt_missing(a, &chunk.entry.name);
    if (r < 0 || chunk.refs == 0)
        return r;
    chunk_row_forget_place(&chunk);
    a->chunks++;
    return put_run_row(a, row, value, chunk_row_encode(&chunk, value));
}

/* --- dependents ------------------------------------------------------------------------------- */

static int compare_depths(const void *a, const void *b)
{
    const struct base *x = a, *y = b;
    if (x->depth != y->depth)
        return x->depth < y->depth ? 1 : -1;
    return memcmp(&x->name, &y->name, sizeof x->name);
}

/* Settles a chunk that no file refers to, once all its dependents are written. If none of them is
 * needed, the next run says that the chunk is no longer needed. */
static int adopt_base(struct view_adoption *a, const struct chunk_name *name)
{
    struct chunk_row row;
    int needed = base_has(&a->view->now, name, NEEDED);
    TRY(needed < 0 ? needed : look_chunk(&a->view->now, KEY_REMOTE_CHUNK, name, &row));
    tally_placed_chunk(a, &row.entry, needed);
    a->remote.pub.held_bytes += needed ? row.entry.stored_len : 0;
    int r = put_dependent(a, &row.entry, needed ? NEEDED : UNNEEDED);
    return r < 0 || needed ? r : put_adoption_mark(a, name);
}

/* The deepest first: the dependents of a chunk are deeper than it. */
static int adopt_bases(struct view_adoption *a)
{
    int r = 0;
    vector_sort(&a->bases, compare_depths);
    for (size_t i = 0; i < a->bases.count && r == 0; i++) {
        if (i > 0 && a->bases.at[i].depth != a->bases.at[i - 1].depth)
            r = write_now(a, a->write);
        if (r == 0)
            r = adopt_base(a, &a->bases.at[i].name);
    }
    return r < 0 ? r : write_now(a, a->write);
}

/* A base that the head lacks, or calls missing: it is needed if a dependent is. */
static int missing_base(struct view_adoption *a, const struct chunk_name *name)
{
    uint64_t bytes;
    int r = look_pending(&a->view->now, name, &bytes);
    return r == -ENOENT ? adopt_missing(a, name) : r;
}

/* Looks up a base of dependents with this need: 1 if it is in the remote, with *ret_depth. */
static int find_base(struct view_adoption *a, const struct chunk_name *name, bool needed,
                     unsigned *ret_depth)
{
    struct chunk_row row;
    int r = look_chunk(&a->view->now, KEY_REMOTE_CHUNK, name, &row);
    if (r == -ENOENT)
        return needed ? missing_base(a, name) : 0;
    *ret_depth = row.entry.depth;
    return r < 0 ? r : 1;
}

static int check_dependents(struct view_adoption *a)
{
    struct chunk_name base = {0};
    unsigned base_depth = 0;
    int r, there = -1; /* not looked up yet */
    _cleanup_scan_ struct scan scan;
    scan_view_type(&scan, a->view, KEY_DEPENDENT);
    while ((r = scan_row(&scan)) > 0) {
        if (there < 0 || !chunk_name_equal(&base, &scan.row.chunk)) {
            base = scan.row.chunk;
            there = find_base(a, &base, scan.row.need == NEEDED, &base_depth);
        }
        if (there < 0)
            return there;
        if (there && base_depth >= scan.row.depth)
            return -EUCLEAN;
    }
    return r;
}

/* Call after all rows of chunks and before those of packs. */
static int settle_adopted_bases(struct view_adoption *a)
{
    a->bases_done = true;
    int r = write_now(a, a->write);
    if (r < 0 || (a->bases.count == 0 && !atomic_load(&a->view->has_dependents)))
        return r;
    r = adopt_bases(a);
    if (r == 0)
        r = check_dependents(a);
    if (r == -EUCLEAN)
        log_error("view: chunks in the remote rest on others that are as deep as they are");
    return r;
}

/* --- packs ------------------------------------------------------------------------------------ */

/* Makes the list of the pack from the rows of KEY_ADOPTED. */
static int adopt_list(struct view_adoption *a, uint64_t pack)
{
    _cleanup_vector_ struct listed_chunks listed = {0};
    _cleanup_vector_ struct bytes value = {0};
    int r;
    _cleanup_scan_ struct scan scan;
    scan_view(&scan, a->view, key_u64(NEW_KEY, KEY_ADOPTED, pack), NULL);
    while ((r = scan_step(&scan)) > 0 && scan.key_len == KEY_U64_LEN + LISTED_LEN)
        memcpy(vector_next(&listed), scan.key + KEY_U64_LEN, LISTED_LEN);
    if (r != 0 || listed.count == 0)
        return r < 0 ? r : -EUCLEAN;
    list_encode(&listed, &value);
    return put_into(a, LISTS, key_u64(NEW_KEY, KEY_REMOTE_PLACED, pack), value.at, value.count);
}

static int adopt_pack(struct view_adoption *a, const struct run_row *row)
{
    struct remote_pack_row remote_pack;
    uint8_t value[REMOTE_PACK_VALUE_LEN];
    TRY(row_read_pack(row, &remote_pack));
    struct tally *t = tally_of(a, remote_pack.pub.pack);
    remote_pack.pub.live_bytes = t->live_bytes;
    remote_pack.pub.live_count = t->live_count;
    remote_pack.placed = t->placed;
    remote_pack.pub.head = 1; /* published by some head */
    if (t->placed > remote_pack.pub.count || t->end > remote_pack.pub.length ||
        (remote_pack.pub.unreferenced && t->placed))
        return -EUCLEAN;
    if (!remote_pack.pub.unreferenced) {
        a->remote.pub.packs++;
        a->remote.pub.pack_bytes += remote_pack.pub.length;
    }
    HASH_DEL(a->tallies, t);
    free(t);
    a->tally = NULL;
    TRY(remote_pack.placed ? adopt_list(a, remote_pack.pub.pack) : 0);
    return put_run_row(a, row, value, remote_pack_row_encode(&remote_pack, value));
}

/* --- the namespace, stored unchanged ---------------------------------------------------------- */

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
    TRY(row_check_plain(row, &a->pieces, &inode));
    if (*(const uint8_t *)row->key == KEY_INODE)
        note_inode(a, &inode);
    return put_run_row(a, row, row->value, row->value_len);
}

/* --- rows and the end ------------------------------------------------------------------------- */

int view_adopt_row(struct view_adoption *a, const struct run_row *row)
{
    /* Each key must come once: the counts of chunks and files depend on it. */
    if (!row->value || !row_comes_next(&a->last, row)) {
        log_error("view: rows from the remote are out of order or have no value");
        return -EUCLEAN;
    }
    uint8_t type = *(const uint8_t *)row->key;
    TRY(type > KEY_CHUNK && !a->bases_done ? settle_adopted_bases(a) : 0);
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

/* The state is written last and separately: its presence proves that everything before is
 * durable. */
static int write_adopted_state(struct view_adoption *a, const struct view_state *state)
{
    uint8_t value[STATE_VALUE_LEN_MAX];
    const char collected = KEY_ADOPTED, end = KEY_ADOPTED + 1;
    rocksdb_writebatch_delete_range(a->batches[ROWS], &collected, 1, &end, 1);
    TRY(write_now(a, a->write));
    TRY(view_flush(a->view));
    TRY(put_adopted_remote(a));
    TRY(put_into(a, ROWS, key_type(NEW_KEY, KEY_STATE), value, state_encode(state, value)));
    TRY(write_synced(a));
    return view_flush(a->view);
}

int view_adopt_end(struct view_adoption *a, const struct view_state *state,
                   const struct view_head *head)
{
    struct view *view = a->view;
    struct view_state now = *state;
    TRY(a->bases_done ? 0 : settle_adopted_bases(a));
    TRY(check_whole(a, state));
    TRY(row_numbers_check(&a->numbers, state, head));
    now.chunks = a->chunks;
    now.stored_bytes = now.held_bytes = now.packs = now.pack_bytes = 0;
    a->remote.changes = ADOPT_CHANGE;
    a->remote.pub.tracks = true;
    a->remote.pub.head = head->number;
    a->remote.pub.cut = now.applied_seq;
    TRY(write_adopted_state(a, &now));
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
    vector_free(&a->bases);
    db_set_compactions(a->view, true);
    for (size_t i = 0; i < KINDS; i++)
        rocksdb_writebatch_destroy(a->batches[i]);
    rocksdb_writeoptions_destroy(a->write);
    free(a);
}
