// SPDX-License-Identifier: Apache-2.0
/* A cut of the view as rows of a run, and the changes of the view once the run is published. */
#include "base/log.h"
#include "view/bases.h"
#include "view/cut.h"

#define FORGET_BATCH 20000 /* marks looked at under one lock */

static int read_states_at_cut(struct view_cut *cut)
{
    _cleanup_value_ struct value state = {0}, remote = {0};
    int r = db_get(cut->view, &cut->snap, key_type(NEW_KEY, KEY_STATE), &state);
    if (r == 0)
        r = state_decode(state.data, state.len, &cut->state);
    if (r == 0)
        r = db_get(cut->view, &cut->snap, key_type(NEW_KEY, KEY_REMOTE_STATE), &remote);
    if (cut->is_alone && (r == 0 || r == -ENOENT)) {
        cut->remote.pub.is_whole = true;
        return 0;
    }
    if (r == -ENOENT)
        return -EINVAL; /* the view does not track */
    return r < 0 ? r : remote_state_row_decode(remote.data, remote.len, &cut->remote);
}

static int open_cut(struct view *view, bool is_alone, struct view_cut **ret_cut)
{
    struct view_cut *cut = xcalloc(1, sizeof *cut);
    cut->view = view;
    cut->is_alone = is_alone;
    snap_begin(&cut->snap, view);
    int r = read_states_at_cut(cut);
    snap_hold(&cut->snap);
    if (r < 0) {
        view_cut_close(cut);
        return r;
    }
    *ret_cut = cut;
    return 0;
}

int view_cut_open(struct view *view, struct view_cut **ret_cut)
{
    return open_cut(view, false, ret_cut);
}

int view_cut_open_alone(struct view *view, struct view_cut **ret_cut)
{
    return open_cut(view, true, ret_cut);
}

void view_cut_close(struct view_cut *cut)
{
    if (!cut)
        return;
    if (snap_resume(&cut->snap) < 0)
        log_debug("view: a cut ends after its database"); /* harmless by now */
    snap_end(&cut->snap);
    vector_free(&cut->named);
    vector_free(&cut->unreferenced);
    vector_free(&cut->spared);
    vector_free(&cut->removed);
    vector_free(&cut->revived);
    vector_free(&cut->revived_packs);
    vector_free(&cut->missing);
    free(cut);
}

struct view_state view_cut_state(const struct view_cut *cut)
{
    return cut->state;
}

static int content_at(struct view_cut *cut, uint64_t ino, struct inode_row *row)
{
    _cleanup_value_ struct value value = {0};
    TRY(db_get(cut->view, &cut->snap, key_u64(NEW_KEY, KEY_INODE, ino), &value));
    return inode_decode(ino, value.data, value.len, row);
}

int view_cut_counts(struct view_cut *cut, uint64_t ino, uint32_t *ret_pages, uint64_t *ret_bytes)
{
    struct inode_row row;
    int r = snap_resume(&cut->snap);
    if (r == 0)
        r = content_at(cut, ino, &row);
    snap_hold(&cut->snap);
    if (r < 0)
        return r;
    *ret_pages = (uint32_t)row.pages;
    *ret_bytes = row.pub.blocks_bytes;
    return 0;
}

bool view_cut_is_whole(const struct view_cut *cut)
{
    return cut->remote.pub.is_whole;
}

static int list_pending(struct view_cut *cut, const struct chunk_name *after,
                        int (*fn)(const struct chunk_entry *entry, void *arg), void *arg)
{
    struct key prefix, from;
    int r;
    _cleanup_scan_ struct scan scan;
    key_type(&prefix, KEY_PENDING_UPLOAD);
    from = prefix;
    if (after)
        key_of_name(&from, KEY_PENDING_UPLOAD, after);
    scan_open_at(&scan, &cut->snap, &prefix, &from);
    while ((r = scan_row(&scan)) > 0) {
        struct chunk_row row;
        if (after && chunk_name_equal(&scan.row.chunk, after))
            continue;
        r = cut_chunk(cut, &scan.row.chunk, &row);
        r = r < 0 ? r : fn(&row.entry, arg);
        if (r != 0)
            break;
    }
    return r > 0 ? 0 : r;
}

int view_cut_pending(struct view_cut *cut, const struct chunk_name *after,
                     int (*fn)(const struct chunk_entry *entry, void *arg), void *arg)
{
    _cleanup_hold_ struct snap *snap = &cut->snap;
    int r = snap_resume(snap);
    return r < 0 ? r : list_pending(cut, after, fn, arg);
}

/* --- rows ------------------------------------------------------------------------------------- */

struct rows {
    struct view_cut *cut;
    int (*fn)(const struct run_row *row, void *arg);
    void *arg;
    bool packs_given;
};

static int give_cut_row(struct rows *rows, const void *key, size_t key_len, const void *value,
                        size_t value_len)
{
    struct run_row row = {.key = key, .key_len = key_len, .value = value, .value_len = value_len};
    return rows->fn(&row, rows->arg);
}

/* Checks that the rows also contain all bases of a chunk that they place in the remote. This holds
 * for chunks sent for the cut by view_cut_base(), and for all others since they were published. */
static int check_cut_reports_bases(struct view_cut *cut, const struct chunk_entry *entry)
{
    int r = 1;
    for (size_t i = 0; i < entry->ref_count && r > 0; i++) {
        struct chunk_row row;
        r = cut_chunk(cut, &entry->refs[i].name, &row);
        if (r == 0)
            r = cut_reports(cut, &row.entry.name, row.refs);
    }
    if (r == 0)
        log_error("view: a chunk in the remote rests on one that the cut does not need");
    return r > 0 ? 0 : r == 0 ? -EUCLEAN : r;
}

static int give_cut_removal(struct rows *rows, const struct key *key)
{
    return rows->cut->remote.pub.is_whole ? 0 : give_cut_row(rows, key->bytes, key->len, NULL, 0);
}

/* Remembers a chunk that was not needed at the cut: its pack must not become unreferenced with this
 * head. */
static void note_revived(struct view_cut *cut, const struct chunk_entry *entry)
{
    vector_add(&cut->revived, entry->name);
    if (entry->pack)
        vector_add(&cut->revived_packs, entry->pack);
}

/* The row of a chunk states its references at the cut and its place in the remote. A chunk that is
 * missing there and has no references gets no row. */
static int give_cut_chunk(struct rows *rows, const struct chunk_row *at_cut)
{
    struct view_cut *cut = rows->cut;
    const struct chunk_name *name = &at_cut->entry.name;
    struct chunk_row row = {.refs = at_cut->refs};
    struct key key;
    key_chunk(&key, name);
    int needed = cut_needs(cut, name, at_cut->refs);
    int r = needed ? needed : cut_rests_on(cut, name);
    if (r <= 0)
        return r < 0 ? r : give_cut_removal(rows, &key);
    r = cut->is_alone ? -ENOENT : view_remote_place(cut->view, name, &row.entry);
    if (r == -ENOENT) {
        if (!cut->is_alone)
            vector_add(&cut->missing, *name);
        if (at_cut->refs == 0)
            return give_cut_removal(rows, &key);
        row.entry = at_cut->entry;
        chunk_row_forget_place(&row);
        r = 0;
    }
    if (r == 0)
        r = check_cut_reports_bases(cut, &row.entry);
    if (r < 0)
        return r;
    if (!needed)
        note_revived(cut, &row.entry);
    uint8_t value[CHUNK_RUN_VALUE_LEN_MAX];
    return give_cut_row(rows, key.bytes, key.len, value, chunk_run_encode(&row, value));
}

/* The pack's account at the cut; -ENOENT: it was stored later. */
static int pack_at_cut(struct view_cut *cut, uint64_t pack, struct view_remote_pack *ret_pack)
{
    struct remote_pack_row row;
    int r = look_remote_pack(&(struct look){.snap = &cut->snap}, pack, &row);
    if (r == 0)
        *ret_pack = row.pub;
    return r;
}

/* If a pack was lost after the cut, it stays in the rows: older runs may place chunks in it, and
 * the marks that correct them are later than the cut. The next run has both corrections. */
static bool may_be_removed(const struct view_cut *cut, const struct view_remote_pack *now,
                           const struct view_remote_pack *then)
{
    return cut->remote.pub.is_whole || now->unreferenced || then->gone;
}

static int give_cut_pack(const struct view_remote_pack *known, void *arg)
{
    struct rows *rows = arg;
    struct view_cut *cut = rows->cut;
    struct view_remote_pack pack = *known, then = {.live_count = UINT32_MAX};
    struct key key;
    key_u64(&key, KEY_REMOTE_PACK, pack.pack);
    int r = pack.unreferenced && !pack.gone ? 0 : pack_at_cut(cut, pack.pack, &then);
    if (r < 0 && r != -ENOENT)
        return r;
    if (pack.gone && !may_be_removed(cut, &pack, &then))
        return 0;
    if (pack.gone) {
        vector_add(&cut->removed, pack.pack);
        return cut->remote.pub.is_whole ? 0 : give_cut_row(rows, key.bytes, key.len, NULL, 0);
    }
    bool is_given = cut->remote.pub.is_whole || pack.head == 0;
    if (!pack.unreferenced && then.live_count == 0 &&
        !vector_search(&cut->revived_packs, &pack.pack, compare_u64)) {
        pack.unreferenced = cut->now;
        vector_add(&cut->unreferenced, pack.pack);
        is_given = true;
    }
    if (pack.head == 0)
        vector_add(&cut->named, pack.pack);
    uint8_t value[REMOTE_PACK_RUN_VALUE_LEN];
    return is_given
               ? give_cut_row(rows, key.bytes, key.len, value, remote_pack_run_encode(&pack, value))
               : 0;
}

/* Examines all packs: they are few (one per 24 MiB), and each may have been named, unreferenced or
 * deleted. */
static int give_cut_packs(struct rows *rows)
{
    rows->packs_given = true;
    if (rows->cut->is_alone)
        return 0;
    vector_sort(&rows->cut->revived_packs, compare_u64); /* complete: chunks come before packs */
    return view_remote_packs(rows->cut->view, give_cut_pack, rows);
}

static int give_touched(struct rows *rows, const uint8_t *bytes, size_t len)
{
    struct view_cut *cut = rows->cut;
    struct key key = {.len = len};
    if (len == 0 || len > sizeof key.bytes)
        return -EUCLEAN;
    memcpy(key.bytes, bytes, len);
    if (bytes[0] == KEY_CHUNK) {
        struct chunk_name name;
        struct chunk_row row;
        if (len != CHUNK_KEY_LEN)
            return -EUCLEAN;
        memcpy(&name, bytes + 1, sizeof name);
        int r = cut_chunk(cut, &name, &row);
        return r < 0 ? r : give_cut_chunk(rows, &row);
    }
    _cleanup_value_ struct value value = {0};
    int r = db_get(cut->view, &cut->snap, &key, &value);
    if (r < 0 && r != -ENOENT)
        return r;
    return give_cut_row(rows, key.bytes, key.len, r == 0 ? value.data : NULL, value.len);
}

static int give_cut_changes(struct rows *rows)
{
    int r;
    _cleanup_scan_ struct scan scan;
    scan_type(&scan, &rows->cut->snap, KEY_TOUCHED);
    while ((r = scan_step(&scan)) > 0) {
        bool is_behind = scan.key_len > 1 && scan.key[1] > KEY_REMOTE_PACK;
        r = is_behind && !rows->packs_given ? give_cut_packs(rows) : 0;
        if (r == 0)
            r = give_touched(rows, scan.key + 1, scan.key_len - 1);
        if (r != 0)
            break;
    }
    return r;
}

static int give_type(struct rows *rows, uint8_t type)
{
    _cleanup_scan_ struct scan scan;
    scan_type(&scan, &rows->cut->snap, type);
    return EACH_KEY(&scan, give_cut_row(rows, scan.key, scan.key_len, scan.value, scan.value_len));
}

/* Moves to the next base of a needed chunk: 1, and its name; 0: no more; -errno. */
static int next_base(struct scan *bases, struct chunk_name *ret)
{
    int r;
    while ((r = scan_row(bases)) > 0) {
        struct key last;
        *ret = bases->row.chunk;
        key_dependents(&last, ret, ABSENT); /* after all keys of the base */
        scan_seek(bases, &last);
        if (bases->row.need == NEEDED)
            break;
    }
    return r;
}

/* Passes on the chunks that have a row, and bases without one, by name. */
static int give_all_cut_chunks(struct rows *rows)
{
    struct chunk_row base = {0};
    _cleanup_scan_ struct scan chunks, bases;
    const struct chunk_row *chunk = &chunks.row.placed;
    scan_type(&chunks, &rows->cut->snap, KEY_CHUNK);
    scan_type(&bases, &rows->cut->snap, KEY_DEPENDENT);
    int a = scan_row(&chunks), b = next_base(&bases, &base.entry.name), r = 0;
    while (r == 0 && a >= 0 && b >= 0 && a + b > 0) {
        int order =
            a && b ? memcmp(&chunk->entry.name, &base.entry.name, sizeof base.entry.name) : b - a;
        r = give_cut_chunk(rows, order <= 0 ? chunk : &base);
        if (order <= 0)
            a = scan_row(&chunks);
        if (order >= 0)
            b = next_base(&bases, &base.entry.name);
    }
    return r < 0 ? r : a < 0 ? a : b < 0 ? b : 0;
}

static int give_whole(struct rows *rows)
{
    int r = 0;
    for (const char *type = "CDEHIJLNOQX"; *type && r == 0; type++)
        r = *type == KEY_REMOTE_PACK ? give_cut_packs(rows)
            : *type == KEY_CHUNK     ? give_all_cut_chunks(rows)
                                     : give_type(rows, (uint8_t)*type);
    return r;
}

int view_cut_rows(struct view_cut *cut, int64_t now,
                  int (*fn)(const struct run_row *row, void *arg), void *arg, uint64_t *ret_missing)
{
    struct rows rows = {.cut = cut, .fn = fn, .arg = arg};
    cut->now = now;
    cut->named.count = cut->unreferenced.count = cut->removed.count = cut->missing.count = 0;
    cut->spared.count = 0;
    cut->revived.count = cut->revived_packs.count = 0;
    int r = snap_resume(&cut->snap);
    if (r == 0)
        r = cut->remote.pub.is_whole ? give_whole(&rows) : give_cut_changes(&rows);
    if (r == 0 && !rows.packs_given)
        r = give_cut_packs(&rows);
    snap_hold(&cut->snap);
    *ret_missing = cut->missing.count;
    return r;
}

/* --- published -------------------------------------------------------------------------------- */

static int note_packs_named_by_cut(struct txn *txn, const struct ids *ids, uint64_t head)
{
    for (size_t i = 0; i < ids->count; i++) {
        TRY(remote_pack_load(txn, ids->at[i]));
        txn->remote_pack.pub.head = head;
        txn->remote_pack_dirty = true;
    }
    return 0;
}

void view_cut_spare(struct view_cut *cut, bool (*fn)(uint64_t pack, void *arg), void *arg)
{
    size_t kept = 0;
    cut->spares = true;
    for (size_t i = 0; i < cut->unreferenced.count; i++) {
        uint64_t pack = cut->unreferenced.at[i];
        if (fn(pack, arg))
            cut->unreferenced.at[kept++] = pack;
        else
            vector_add(&cut->spared, pack);
    }
    cut->unreferenced.count = kept;
}

/* The head calls the pack unreferenced; the next head must name it again. */
static void name_again(struct txn *txn)
{
    txn->remote_pack.pub.head = 0;
    txn->remote_pack_dirty = true;
}

static int note_spared(struct txn *txn, const struct ids *ids)
{
    for (size_t i = 0; i < ids->count; i++) {
        TRY(remote_pack_load(txn, ids->at[i]));
        name_again(txn);
    }
    return 0;
}

/* A chunk of such a pack may be needed again since the cut: then its pack stays, or the chunk is
 * pending upload again. */
static int note_unreferenced(struct txn *txn, const struct view_cut *cut, uint64_t head)
{
    const struct ids *ids = &cut->unreferenced;
    for (size_t i = 0; i < ids->count; i++) {
        TRY(remote_pack_load(txn, ids->at[i]));
        if (cut->spares && txn->remote_pack.pub.live_count > 0) {
            name_again(txn);
            continue;
        }
        TRY(remote_pack_forget_placed(txn, ids->at[i]));
        remote_pack_leave_count(txn);
        txn->remote_pack.pub.unreferenced = cut->now;
        txn->remote_pack.pub.until = head;
        txn->remote_pack_dirty = true;
    }
    return 0;
}

/* Marks chunks that the next run must contain again: missing ones, until they have a place; and
 * bases of chunks sent for the cut, which may no longer be needed although no change left a
 * mark. */
static void note_reported_again(struct txn *txn, const struct names *names)
{
    for (size_t i = 0; i < names->count; i++)
        txn_touch(txn, key_chunk(NEW_KEY, &names->at[i]));
}

static void note_packs_removed_by_cut(struct txn *txn, const struct ids *ids)
{
    for (size_t i = 0; i < ids->count; i++) {
        remote_pack_store(txn);
        txn->remote_pack_loaded = false;
        txn_delete(txn, key_u64(NEW_KEY, KEY_REMOTE_PACK, ids->at[i]));
    }
}

static int note_published(struct view_cut *cut, uint64_t head)
{
    struct txn txn;
    txn_begin(&txn, cut->view);
    int r = note_packs_named_by_cut(&txn, &cut->named, head);
    if (r == 0)
        r = note_unreferenced(&txn, cut, head);
    if (r == 0)
        r = note_spared(&txn, &cut->spared);
    if (r == 0) {
        note_packs_removed_by_cut(&txn, &cut->removed);
        note_reported_again(&txn, &cut->missing);
        note_reported_again(&txn, &cut->revived);
        remote_pack_store(&txn);
        txn.remote.pub.head = head;
        txn.remote.pub.cut = cut->state.applied_seq;
        txn.remote.pub.is_whole = false;
        r = txn_commit(&txn);
    }
    txn_end(&txn);
    return r;
}

/* Removes some marks up to `change`, from *at on. Holds the lock so that no other thread can touch
 * a row between the check of its mark and the removal. 1: there may be more, from *at on. */
static int forget_some_marks(struct view *view, uint64_t change, struct key *at)
{
    _cleanup_scan_ struct scan scan;
    LOCK_SCOPE(&view->change);
    scan_view(&scan, view, key_type(NEW_KEY, KEY_TOUCHED), at);
    rocksdb_writebatch_t *batch = rocksdb_writebatch_create();
    size_t n = 0;
    int r;
    while ((r = scan_row(&scan)) > 0 && (n++ < FORGET_BATCH || scan.key_len > sizeof at->bytes))
        if (scan.row.touched.change <= change)
            rocksdb_writebatch_delete(batch, (const char *)scan.key, scan.key_len);
    if (r > 0) {
        at->len = 0;
        key_add_bytes(at, scan.key, scan.key_len);
    }
    int w = r < 0 ? r : db_write(view, batch, NULL);
    rocksdb_writebatch_destroy(batch);
    return w < 0 ? w : r;
}

/* Removes the marks up to the cut's change. If a crash leaves some, the next run repeats their
 * rows, and until then their chunks cannot be evicted. In steps, so that no apply waits for
 * long. */
static int forget_cut_marks(struct view *view, uint64_t change)
{
    struct key at;
    int r;
    key_type(&at, KEY_TOUCHED);
    do
        r = forget_some_marks(view, change, &at);
    while (r > 0);
    return r;
}

int view_published(struct view *view, struct view_cut *cut, uint64_t head)
{
    int r = note_published(cut, head);
    return r < 0 ? r : forget_cut_marks(view, cut->remote.changes);
}
