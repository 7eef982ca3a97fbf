// SPDX-License-Identifier: Apache-2.0
/* The chunks in the remote, and those pending upload. */
#include <sys/stat.h>

#include "base/log.h"
#include "view/bases.h"
#include "view/pack_list.h"

#define PENDING_STEP 8192u /* rows per write while everything becomes pending */

/* --- changes from outside --------------------------------------------------------------------- */

static int commit_remote(struct txn *txn, int r)
{
    if (r == 0) {
        remote_pack_store(txn);
        r = lists_store(txn);
    }
    if (r == 0)
        r = txn_commit(txn);
    else if (txn->why)
        log_error("view: cannot note a change of the remote: %s", txn->why);
    txn_end(txn);
    return r;
}

static int remote_pack_new(struct txn *txn, uint64_t pack, uint64_t length, uint32_t count)
{
    int r = remote_pack_load(txn, pack);
    if (r != -ENOENT)
        return r < 0 ? r : txn_damage(txn, "the remote pack is known already");
    txn->remote_pack =
        (struct remote_pack_row){.pub = {.pack = pack, .length = length, .count = count}};
    txn->remote_pack_loaded = txn->remote_pack_dirty = true;
    txn->remote.pub.packs++;
    txn->remote.pub.pack_bytes += length;
    return 0;
}

int view_remote_placed(struct view *view, uint64_t pack, uint64_t length,
                       const struct chunk_entry *entries, uint32_t count)
{
    struct txn txn;
    check(pack != 0);
    txn_begin(&txn, view);
    int r = remote_pack_new(&txn, pack, length, count);
    for (uint32_t i = 0; i < count && r == 0; i++) {
        struct chunk_entry entry = entries[i];
        entry.pack = pack;
        r = entry_check(&txn, &entry);
        if (r == 0)
            r = remote_chunk_place(&txn, &entry);
    }
    return commit_remote(&txn, r);
}

void remote_pack_trust(struct txn *txn)
{
    struct view_remote_pack *pack = &txn->remote_pack.pub;
    check(txn->remote_pack_loaded);
    if (!pack->suspect)
        return;
    txn->remote.pub.suspect_packs--;
    txn->remote.pub.suspect_chunks -= pack->live_count;
    pack->suspect = 0;
    txn->remote_pack_dirty = true;
}

void remote_pack_leave_count(struct txn *txn)
{
    if (txn->remote_pack.pub.unreferenced || txn->remote_pack.pub.gone)
        return;
    remote_pack_trust(txn);
    txn->remote.pub.packs--;
    txn->remote.pub.pack_bytes -= txn->remote_pack.pub.length;
}

/* Marks the loaded pack as suspect. */
static void remote_pack_distrust(struct txn *txn, int64_t now)
{
    struct view_remote_pack *pack = &txn->remote_pack.pub;
    check(txn->remote_pack_loaded && !pack->suspect && now != 0);
    atomic_store(&txn->view->has_suspects, true);
    txn->remote.pub.suspect_packs++;
    txn->remote.pub.suspect_chunks += pack->live_count;
    pack->suspect = now;
    txn->remote_pack_dirty = true;
}

int view_remote_pack_suspect(struct view *view, uint64_t pack, int64_t now)
{
    struct txn txn;
    check(now != 0);
    txn_begin(&txn, view);
    int r = remote_pack_load(&txn, pack);
    if (r == 0 && (txn.remote_pack.pub.unreferenced || txn.remote_pack.pub.gone))
        r = -ENOENT;
    if (r == 0 && !txn.remote_pack.pub.suspect)
        remote_pack_distrust(&txn, now);
    if (r == 0)
        r = remote_pack_leave_suspect(&txn, pack);
    return commit_remote(&txn, r);
}

int view_remote_pack_trusted(struct view *view, uint64_t pack)
{
    struct txn txn;
    txn_begin(&txn, view);
    int r = remote_pack_load(&txn, pack);
    if (r == 0)
        remote_pack_trust(&txn);
    return commit_remote(&txn, r);
}

/* An unreferenced pack is needed again; the next head names it. */
static int remote_pack_take_back(struct txn *txn, uint64_t pack, uint64_t length, uint32_t count)
{
    int r = remote_pack_load(txn, pack);
    if (r == -ENOENT)
        return remote_pack_new(txn, pack, length, count);
    struct view_remote_pack *known = &txn->remote_pack.pub;
    if (r < 0 || (!known->unreferenced && !known->gone))
        return r;
    if (known->length != length || known->count != count)
        return -EUCLEAN;
    known->unreferenced = 0;
    known->until = 0;
    known->gone = false;
    known->head = 0;
    txn->remote_pack_dirty = true;
    txn->remote.pub.packs++;
    txn->remote.pub.pack_bytes += length;
    return 0;
}

/* 1: the lost chunk has its place again. An entry whose base is lost, too, must wait for the
 * base. */
static int return_chunk(struct txn *txn, uint64_t pack, const struct chunk_entry *found)
{
    struct chunk_entry entry = *found;
    entry.pack = pack;
    int r = remote_chunk_is_lost(txn, &entry.name);
    if (r <= 0)
        return r;
    r = entry_check(txn, &entry);
    if (r == -EUCLEAN) {
        txn->why = NULL;
        return 0;
    }
    if (r == 0)
        r = remote_chunk_place(txn, &entry);
    return r < 0 ? r : 1;
}

int view_remote_pack_returned(struct view *view, uint64_t pack, uint64_t length,
                              const struct chunk_entry *entries, uint32_t count,
                              uint32_t *ret_placed)
{
    struct txn txn;
    txn_begin(&txn, view);
    *ret_placed = 0;
    int r = txn.remote.pub.tracks ? remote_pack_take_back(&txn, pack, length, count) : -EINVAL;
    for (uint32_t i = 0; i < count && r >= 0; i++) {
        r = return_chunk(&txn, pack, &entries[i]);
        *ret_placed += r > 0;
    }
    if (r >= 0 && *ret_placed > 0)
        return commit_remote(&txn, 0);
    txn_end(&txn);
    return r < 0 ? r : 0;
}

/* A chunk that already has a place keeps it. */
static int claim_chunk(struct txn *txn, uint64_t pack, const struct chunk_entry *found)
{
    struct chunk_row placed;
    struct chunk_entry entry = *found;
    entry.pack = pack;
    int r = look_chunk(&txn->look, KEY_REMOTE_CHUNK, &entry.name, &placed);
    if (r != -ENOENT)
        return r;
    r = entry_check(txn, &entry);
    if (r == -EUCLEAN) { /* a base has no place, or is deeper than it was */
        txn->why = NULL;
        return 0;
    }
    return r < 0 ? r : remote_chunk_place(txn, &entry);
}

int view_remote_pack_claimed(struct view *view, uint64_t pack, const struct chunk_entry *entries,
                             uint32_t count)
{
    struct txn txn;
    txn_begin(&txn, view);
    int r = txn.remote.pub.tracks ? remote_pack_load(&txn, pack) : -ENOENT;
    if (r == 0 && (txn.remote_pack.pub.gone || txn.remote_pack.pub.suspect))
        r = -ENOENT;
    if (r == 0)
        r = remote_pack_take_back(&txn, pack, txn.remote_pack.pub.length,
                                  txn.remote_pack.pub.count);
    for (uint32_t i = 0; i < count && r == 0; i++)
        r = claim_chunk(&txn, pack, &entries[i]);
    return commit_remote(&txn, r);
}

int view_remote_pack_gone(struct view *view, uint64_t pack)
{
    struct txn txn;
    txn_begin(&txn, view);
    int r = remote_pack_load(&txn, pack);
    if (r == 0 && !txn.remote_pack.pub.unreferenced)
        r = -EINVAL;
    if (r == 0) {
        txn.remote_pack.pub.gone = true;
        txn.remote_pack_dirty = true;
    }
    return commit_remote(&txn, r);
}

int view_note_head(struct view *view, uint64_t head)
{
    struct txn txn;
    txn_begin(&txn, view);
    txn.remote.pub.head = head;
    return commit_remote(&txn, 0);
}

/* --- beginning to track ----------------------------------------------------------------------- */

static int want_chunk(struct txn *txn, const struct chunk_row *row)
{
    if (row->refs)
        add_pending_upload(txn, &row->entry);
    return txn_change_count(txn) >= PENDING_STEP ? txn_write_ahead(txn) : 0;
}

/* In steps: all chunks in one write would be held in memory. The snapshot is older than the first
 * step. */
static int want_all(struct txn *txn)
{
    _cleanup_scan_ struct scan scan;
    scan_view_type(&scan, txn->view, KEY_CHUNK);
    return EACH_ROW(&scan, want_chunk(txn, &scan.row.placed));
}

/* A view that does not track ignores pending uploads: rows left by a crash between steps are
 * cleared by the next attempt. */
static int begin_tracking(struct view *view)
{
    struct txn txn;
    txn_begin(&txn, view);
    txn.remote = (struct remote_state_row){.changes = txn.remote.changes};
    txn_clear(&txn, KEY_PENDING_UPLOAD);
    int r = want_all(&txn);
    txn.remote.pub.tracks = txn.remote.pub.is_whole = true;
    return commit_remote(&txn, r);
}

int view_track(struct view *view)
{
    return view_remote(view).tracks ? 0 : begin_tracking(view);
}

int view_report_all(struct view *view)
{
    struct txn txn;
    txn_begin(&txn, view);
    txn.remote.pub.is_whole = true;
    return commit_remote(&txn, 0);
}

/* First stops tracking, in one write: so no crash leaves a view that tracks but has neither a place
 * nor a pending upload for a chunk. */
int view_forget_remote(struct view *view)
{
    static const enum key_type types[] = {KEY_REMOTE_CHUNK, KEY_REMOTE_PLACED,  KEY_REMOTE_PACK,
                                          KEY_DEPENDENT,    KEY_PENDING_UPLOAD, KEY_TOUCHED,
                                          KEY_REMOTE_STATE};
    struct txn txn;
    txn_begin(&txn, view);
    for (size_t i = 0; i < ARRAY_LEN(types); i++)
        txn_clear(&txn, types[i]);
    txn.remote = (struct remote_state_row){.changes = txn.remote.changes};
    int r = commit_remote(&txn, 0);
    return r < 0 ? r : begin_tracking(view);
}

/* --- reading ---------------------------------------------------------------------------------- */

struct view_remote view_remote(struct view *view)
{
    LOCK_SCOPE(&view->lock);
    return view->remote.pub;
}

int view_remote_pack(struct view *view, uint64_t pack, struct view_remote_pack *ret_pack)
{
    struct remote_pack_row row;
    int r = look_remote_pack(&view->now, pack, &row);
    if (r == 0)
        *ret_pack = row.pub;
    return r;
}

int view_remote_place(struct view *view, const struct chunk_name *name,
                      struct chunk_entry *ret_entry)
{
    struct chunk_row row;
    int r = look_chunk(&view->now, KEY_REMOTE_CHUNK, name, &row);
    if (r == 0)
        *ret_entry = row.entry;
    return r;
}

/* An unmarked chunk has the same row, references and place, in the newest head. If it is marked,
 * its pack may be unneeded at a cut that is being published, although it is needed now. */
static int remote_chunk_is_published(struct view *view, const struct chunk_entry *entry,
                                     bool *ret_published)
{
    struct touched_row mark;
    struct remote_pack_row pack;
    TRY(look_remote_pack(&view->now, entry->pack, &pack));
    int r = look_chunk_mark(&view->now, &entry->name, &mark);
    *ret_published = r == -ENOENT && pack.pub.head != 0;
    return r == -ENOENT ? 0 : r;
}

int view_remote_chunk(struct view *view, const struct chunk_name *name,
                      struct chunk_entry *ret_entry, bool *ret_published)
{
    int r = view_remote_place(view, name, ret_entry);
    return r < 0 ? r : remote_chunk_is_published(view, ret_entry, ret_published);
}

int view_remote_needed(struct view *view, const struct chunk_name *name,
                       struct chunk_entry *ret_entry)
{
    struct chunk_row local;
    TRY(view_remote_place(view, name, ret_entry));
    int r = look_needed(&view->now, name, &local);
    return r < 0 ? r : r > 0 ? 0 : -ENOENT;
}

int view_remote_packs(struct view *view, int (*fn)(const struct view_remote_pack *pack, void *arg),
                      void *arg)
{
    _cleanup_scan_ struct scan scan;
    scan_view_type(&scan, view, KEY_REMOTE_PACK);
    int r = EACH_ROW(&scan, fn(&scan.row.remote_pack.pub, arg));
    return r > 0 ? 0 : r;
}

struct pack_walk {
    struct view *view;
    uint64_t pack;
    int (*fn)(const struct chunk_entry *entry, bool is_needed, void *arg);
    void *arg;
};

/* Uses the current place: the chunk may have moved since the snapshot. */
static int walk_remote_pack_chunk(const struct chunk_row *then, void *arg)
{
    const struct pack_walk *walk = arg;
    const struct chunk_name *name = &then->entry.name;
    struct chunk_entry entry;
    struct chunk_row local;
    int r = view_remote_place(walk->view, name, &entry);
    if (r == -ENOENT || (r == 0 && entry.pack != walk->pack))
        return 0;
    if (r == 0)
        r = look_needed(&walk->view->now, name, &local);
    return r < 0 ? r : walk->fn(&entry, r > 0, walk->arg);
}

int view_remote_pack_chunks(struct view *view, uint64_t pack,
                            int (*fn)(const struct chunk_entry *entry, bool is_needed, void *arg),
                            void *arg)
{
    _cleanup_snap_ struct snap snap;
    snap_begin(&snap, view);
    int r = snap_list_each(&snap, KEY_REMOTE_PLACED, pack, walk_remote_pack_chunk,
                           &(struct pack_walk){view, pack, fn, arg});
    return r > 0 ? 0 : r;
}

int view_has_dependents(struct view *view, const struct chunk_name *name, bool *ret)
{
    return base_has_any(&view->now, name, ret);
}

struct serving {
    struct view *view;
    bool *ret;
};

/* 1: it may. */
static int may_serve(const struct chunk_row *row, void *arg)
{
    struct serving *serving = arg;
    const struct chunk_name *name = &row->entry.name;
    struct chunk_entry entry;
    struct touched_row mark;
    int r = view_remote_place(serving->view, name, &entry);
    if (r == 0)
        r = view_has_dependents(serving->view, name, serving->ret);
    if (r == 0 && !*serving->ret) {
        r = look_chunk_mark(&serving->view->now, name, &mark);
        *serving->ret = r == 0;
    }
    return r == -ENOENT ? 0 : r < 0 ? r : *serving->ret;
}

int view_pack_may_serve(struct view *view, uint64_t pack, bool *ret)
{
    _cleanup_snap_ struct snap snap;
    *ret = false;
    snap_begin(&snap, view);
    int r = snap_list_each(&snap, KEY_PLACED, pack, may_serve, &(struct serving){view, ret});
    return r < 0 ? r : 0;
}

int view_dependents(struct view *view, const struct chunk_name *name, enum chunk_encoding encoding,
                    uint64_t max, uint64_t *ret_count)
{
    struct chunk_row row;
    int r = 0;
    *ret_count = 0;
    if (!atomic_load(&view->has_dependents))
        return 0;
    _cleanup_scan_ struct scan scan;
    scan_view(&scan, view, key_of_name(NEW_KEY, KEY_DEPENDENT, name), NULL);
    const struct look then = {.snap = &scan.own};
    while (*ret_count < max && (r = scan_row(&scan)) > 0) {
        r = look_chunk(&then, KEY_REMOTE_CHUNK, &scan.row.dependent, &row);
        if (r < 0)
            break;
        *ret_count += row.entry.encoding == encoding;
    }
    return r;
}

int view_pending_chunks(struct view *view,
                        int (*fn)(const struct chunk_name *name, bool is_local, void *arg),
                        void *arg)
{
    _cleanup_scan_ struct scan scan;
    scan_view_type(&scan, view, KEY_PENDING_UPLOAD);
    /* with bytes: it is on NVMe */
    int r = EACH_ROW(&scan, fn(&scan.row.chunk, scan.row.pending_bytes > 0, arg));
    return r > 0 ? 0 : r;
}

int view_remote_lacks(struct view *view, const struct chunk_name *name, struct chunk_name *ret_base)
{
    struct chunk_entry entry;
    int r = view_remote_place(view, name, &entry);
    if (r == 0)
        r = entry_lacks_base(&view->now, &entry, ret_base);
    return r > 0 ? 0 : r == 0 ? -ENOENT : r;
}

/* Before the first head is published marks mean nothing: everything is unpublished. */
static int unpublished_at_all(struct view *view, uint64_t ino, uint64_t *ret_cut)
{
    struct inode_row row;
    struct view_remote remote = view_remote(view);
    if (remote.tracks && !remote.is_whole)
        return 0;
    int r = db_get_inode(view, NULL, ino, &row);
    if (r == 0)
        *ret_cut = view_state(view).applied_seq;
    return r == -ENOENT ? 0 : r;
}

int view_unpublished(struct view *view, uint64_t ino, uint64_t *ret_cut)
{
    struct key key;
    _cleanup_value_ struct value value = {0};
    struct touched_row row;
    *ret_cut = 0;
    key_u64(&key, KEY_INODE, ino);
    int r = db_get(view, NULL, key_touched(NEW_KEY, key.bytes, key.len), &value);
    if (r == -ENOENT)
        return unpublished_at_all(view, ino, ret_cut);
    TRY(r);
    TRY(touched_decode(value.data, value.len, &row));
    *ret_cut = row.cut;
    return 0;
}

/* Handles the mark of an inode, which may have been removed. */
static int add_unpublished(struct view *view, const struct scan *scan,
                           struct view_unpublished_total *total)
{
    struct inode_row row;
    if (scan->key_len != 1 + KEY_U64_LEN)
        return -EUCLEAN;
    total->inodes++;
    int r = db_get_inode(view, NULL, key_get_u64(scan->key, 2), &row);
    if (r == 0 && S_ISREG(row.pub.attrs.mode)) {
        total->files++;
        total->bytes += row.pub.attrs.size;
    }
    return r == -ENOENT ? 0 : r;
}

static int count_unpublished_marks(struct view *view, uint64_t max,
                                   struct view_unpublished_total *ret)
{
    static const uint8_t inodes = KEY_INODE;
    _cleanup_scan_ struct scan scan;
    scan_view(&scan, view, key_touched(NEW_KEY, &inodes, sizeof inodes), NULL);
    int r = EACH_KEY(&scan, ret->inodes == max ? 1 : add_unpublished(view, &scan, ret));
    ret->has_more = r > 0;
    return r < 0 ? r : 0;
}

int view_unpublished_total(struct view *view, uint64_t max, struct view_unpublished_total *ret)
{
    struct view_remote remote = view_remote(view);
    *ret = (struct view_unpublished_total){0};
    if (remote.tracks && !remote.is_whole)
        return count_unpublished_marks(view, max, ret);
    struct view_state state = view_state(view); /* nothing was ever published */
    *ret = (struct view_unpublished_total){.inodes = max_u64(state.files, state.applied_seq > 0),
                                           .files = state.files,
                                           .bytes = state.logical_bytes};
    return 0;
}

int view_has_marks(struct view *view, bool *ret)
{
    _cleanup_scan_ struct scan scan;
    scan_view_type(&scan, view, KEY_TOUCHED);
    int r = scan_step(&scan);
    *ret = r > 0;
    return r < 0 ? r : 0;
}
