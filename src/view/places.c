// SPDX-License-Identifier: Apache-2.0
/* Places of chunks in the remote, pending uploads, and the changes when a chunk becomes needed or
 * stops being needed (bases.h). */
#include "view/bases.h"
#include "view/pack_list.h"

#define CHUNK_MARK 1u /* number of the change in marks of chunks set here, as in an adoption */

/* --- accounts of remote packs, the last one cached as in chunks.c ----------------------------- */

void remote_pack_store(struct txn *txn)
{
    if (!txn->remote_pack_dirty)
        return;
    uint8_t value[REMOTE_PACK_VALUE_LEN];
    txn_put(txn, key_u64(NEW_KEY, KEY_REMOTE_PACK, txn->remote_pack.pub.pack), value,
            remote_pack_row_encode(&txn->remote_pack, value));
    txn->remote_pack_dirty = false;
}

int remote_pack_load(struct txn *txn, uint64_t pack)
{
    if (txn->remote_pack_loaded && txn->remote_pack.pub.pack == pack)
        return 0;
    remote_pack_store(txn);
    txn->remote_pack_loaded = false;
    int r = look_remote_pack(&txn->look, pack, &txn->remote_pack);
    txn->remote_pack_loaded = r == 0;
    return r;
}

/* For a chunk whose place proves that the pack exists. */
static int load_pack_of_place(struct txn *txn, uint64_t pack)
{
    int r = remote_pack_load(txn, pack);
    return r == -ENOENT ? txn_damage(txn, "a chunk lies in a remote pack that is unknown") : r;
}

/* --- pending uploads -------------------------------------------------------------------------- */

/* While a head is followed: marks the chunk if the next run must contain its row, else removes the
 * mark. */
static void set_place_mark(struct txn *txn, const struct chunk_name *name, bool is_marked)
{
    struct touched_row touched = {.change = CHUNK_MARK};
    struct key mark;
    uint8_t value[TOUCHED_VALUE_LEN];
    check(txn->is_following);
    key_chunk_mark(&mark, name);
    if (is_marked)
        txn_put(txn, &mark, value, touched_encode(&touched, value));
    else
        txn_delete(txn, &mark);
}

static uint64_t pending_bytes(const struct chunk_entry *entry)
{
    return entry->pack ? entry->stored_len : 0;
}

void add_pending_upload(struct txn *txn, const struct chunk_entry *entry)
{
    uint8_t value[PENDING_UPLOAD_VALUE_LEN];
    uint64_t bytes = pending_bytes(entry);
    check_held(&txn->view->change);
    txn_put(txn, key_of_name(NEW_KEY, KEY_PENDING_UPLOAD, &entry->name), value,
            pending_upload_encode(bytes, value));
    txn->remote.pub.pending_chunks++;
    txn->remote.pub.pending_bytes += bytes;
    if (txn->is_following)
        set_place_mark(txn, &entry->name, true);
}

static int remove_pending_upload(struct txn *txn, const struct chunk_name *name)
{
    uint64_t bytes = 0;
    int r = look_pending(&txn->look, name, &bytes);
    if (r < 0)
        return r == -ENOENT ? 0 : r;
    if (txn->remote.pub.pending_chunks == 0 || txn->remote.pub.pending_bytes < bytes)
        return txn_damage(txn, "what the remote lacks falls below zero");
    txn_delete(txn, key_of_name(NEW_KEY, KEY_PENDING_UPLOAD, name));
    txn->remote.pub.pending_chunks--;
    txn->remote.pub.pending_bytes -= bytes;
    if (txn->is_following)
        set_place_mark(txn, name, false);
    return 0;
}

/* A chunk with a place in the remote becomes (+1) or stops being (-1) one that no file refers to
 * but a needed chunk depends on. */
static void count_held_place(struct txn *txn, const struct chunk_entry *remote, int sign)
{
    txn->remote.pub.held_bytes += sign < 0 ? -(uint64_t)remote->stored_len : remote->stored_len;
}

/* A chunk in the loaded pack becomes (+1) or stops being (-1) needed; `refs`: references from
 * files. */
static int count_live(struct txn *txn, const struct chunk_entry *remote, uint64_t refs, int sign)
{
    struct view_remote_pack *pack = &txn->remote_pack.pub;
    if (sign < 0 && (pack->live_count == 0 || pack->live_bytes < remote->stored_len))
        return txn_damage(txn, "a remote pack's live bytes fall below zero");
    pack->live_count += (uint32_t)sign;
    pack->live_bytes += sign < 0 ? -(uint64_t)remote->stored_len : remote->stored_len;
    txn->remote.pub.suspect_chunks += pack->suspect ? (uint64_t)(int64_t)sign : 0;
    txn->remote_pack_dirty = true;
    if (refs == 0)
        count_held_place(txn, remote, sign);
    return 0;
}

/* --- need ------------------------------------------------------------------------------------- */

static int is_needed(struct txn *txn, const struct chunk_row *row)
{
    return chunk_is_needed(&txn->look, &row->entry.name, row->refs);
}

static void touch_chunk(struct txn *txn, const struct chunk_name *name)
{
    txn_touch(txn, key_chunk(NEW_KEY, name));
}

static int need_changed(struct txn *txn, const struct chunk_row *row, uint64_t refs, int sign);

/* Changes the need in the base's key for the dependent; ABSENT: no key. */
static int change_dependent(struct txn *txn, const struct chunk_name *base,
                            const struct chunk_entry *dependent, enum need from, enum need to)
{
    struct chunk_row row;
    uint8_t value[DEPENDENT_VALUE_LEN];
    check(from != ABSENT || to != ABSENT);
    check(!chunk_name_equal(base, &dependent->name));
    int before = look_needed(&txn->look, base, &row);
    if (before < 0)
        return before;
    if (from != ABSENT)
        txn_delete(txn, key_dependent(NEW_KEY, base, from, &dependent->name));
    if (to != ABSENT) {
        atomic_store(&txn->view->has_dependents, true);
        txn_put(txn, key_dependent(NEW_KEY, base, to, &dependent->name), value,
                dependent_encode(dependent->depth, value));
    }
    int after = is_needed(txn, &row);
    if (after < 0 || after == before)
        return after < 0 ? after : 0;
    touch_chunk(txn, base);
    return need_changed(txn, &row, 0, after ? 1 : -1);
}

static int change_dependents(struct txn *txn, const struct chunk_entry *entry, enum need from,
                             enum need to)
{
    int r = 0;
    for (size_t i = 0; i < entry->ref_count && r == 0; i++)
        if (entry_ref_is_first(entry, i))
            r = change_dependent(txn, &entry->refs[i].name, entry, from, to);
    return r;
}

/* Replaces the chunk's old entry by this one. New bases are added first, so that a base of both
 * does not stop being needed in between. */
static int exchange_bases(struct txn *txn, const struct chunk_entry *old,
                          const struct chunk_entry *entry, enum need need)
{
    int r = 0;
    for (size_t i = 0; i < entry->ref_count && r == 0; i++) {
        const struct chunk_name *base = &entry->refs[i].name;
        if (entry_ref_is_first(entry, i))
            r = change_dependent(txn, base, entry, entry_refers_to(old, base) ? need : ABSENT,
                                 need);
    }
    for (size_t i = 0; i < old->ref_count && r == 0; i++) {
        const struct chunk_name *base = &old->refs[i].name;
        if (entry_ref_is_first(old, i) && !entry_refers_to(entry, base))
            r = change_dependent(txn, base, old, need, ABSENT);
    }
    return r;
}

/* --- places ----------------------------------------------------------------------------------- */

/* The chunk loses its place in its remote pack. */
static int leave_pack(struct txn *txn, const struct chunk_entry *entry, enum need need)
{
    struct chunk_row row;
    TRY(look_known_chunk(&txn->look, KEY_CHUNK, &entry->name, &row));
    TRY(load_pack_of_place(txn, entry->pack));
    if (txn->remote_pack.placed == 0)
        return txn_damage(txn, "a remote pack has more chunks than it counts");
    txn->remote_pack.placed--;
    txn->remote_pack_dirty = true;
    return need == NEEDED ? count_live(txn, entry, row.refs, -1) : 0;
}

/* The chunk loses its place in the remote. */
static int unplace_chunk(struct txn *txn, const struct chunk_entry *entry, enum need need)
{
    TRY(leave_pack(txn, entry, need));
    txn_delete(txn, key_of_name(NEW_KEY, KEY_REMOTE_CHUNK, &entry->name));
    return change_dependents(txn, entry, need, ABSENT);
}

/* The place of a needed chunk is lost, or useless: the chunk is uploaded again. */
static int send_anew(struct txn *txn, const struct chunk_row *row, const struct chunk_entry *entry)
{
    TRY(unplace_chunk(txn, entry, NEEDED));
    touch_chunk(txn, &row->entry.name);
    add_pending_upload(txn, &row->entry);
    return 0;
}

static int leave_lost_base(struct txn *txn, const struct chunk_name *base, unsigned levels);

/* Handles a dependent of a lost chunk. Its own dependents come first: without them, nothing may
 * need it. */
static int leave_if_local(struct txn *txn, const struct chunk_name *name, unsigned levels)
{
    struct chunk_row row, remote;
    int r = leave_lost_base(txn, name, levels - 1);
    if (r == 0)
        r = look_known_chunk(&txn->look, KEY_CHUNK, name, &row);
    if (r == 0)
        r = row.entry.pack ? is_needed(txn, &row) : 0;
    if (r <= 0)
        return r;
    r = look_chunk(&txn->look, KEY_REMOTE_CHUNK, name, &remote);
    return r < 0 ? r : send_anew(txn, &row, &remote.entry);
}

/* The chunk has lost its place, so all entries that depend on it, directly or not, are incomplete.
 * Needed chunks among them that are also on NVMe are uploaded again. Unneeded ones are checked by
 * need_changed() when they become needed. */
static int leave_lost_base(struct txn *txn, const struct chunk_name *base, unsigned levels)
{
    struct chunk_name name;
    unsigned depth;
    int r;
    if (levels == 0 || !atomic_load(&txn->view->has_dependents))
        return 0;
    for (bool first = true; (r = next_dependent(txn, base, NEEDED, first, &name, &depth)) == 0;
         first = false) {
        r = leave_if_local(txn, &name, levels);
        if (r < 0)
            return r == -ENOENT ? txn_damage(txn, "what rests on a chunk has no place") : r;
    }
    return r == -ENOENT ? 0 : r;
}

/* The chunk was not needed until now, so its entry may be incomplete. 1: it was, and is removed. */
static int drop_incomplete(struct txn *txn, const struct chunk_entry *entry)
{
    int r = entry_is_incomplete(&txn->look, entry);
    if (r > 0) {
        r = unplace_chunk(txn, entry, UNNEEDED);
        r = r < 0 ? r : 1;
    }
    return r;
}

/* The chunk becomes (+1) or stops being (-1) needed; `refs`: references from files, while
 * needed. */
static int need_changed(struct txn *txn, const struct chunk_row *row, uint64_t refs, int sign)
{
    struct chunk_row remote;
    int r = look_chunk(&txn->look, KEY_REMOTE_CHUNK, &row->entry.name, &remote);
    if (r < 0 && r != -ENOENT)
        return r;
    bool has_place = r == 0;
    if (has_place && sign > 0 && row->entry.pack) {
        r = drop_incomplete(txn, &remote.entry);
        if (r < 0)
            return r;
        has_place = r == 0;
    }
    if (!has_place && sign < 0)
        return remove_pending_upload(txn, &row->entry.name);
    if (!has_place) {
        add_pending_upload(txn, &row->entry);
        return 0;
    }
    TRY(load_pack_of_place(txn, remote.entry.pack));
    TRY(count_live(txn, &remote.entry, refs, sign));
    return sign > 0 ? change_dependents(txn, &remote.entry, UNNEEDED, NEEDED)
                    : change_dependents(txn, &remote.entry, NEEDED, UNNEEDED);
}

int remote_chunk_refs_changed(struct txn *txn, const struct chunk_row *row, int sign)
{
    struct chunk_row remote;
    if (!txn->remote.pub.tracks)
        return 0;
    int r = base_has(&txn->look, &row->entry.name, NEEDED);
    if (r == 0)
        return need_changed(txn, row, 1, sign);
    if (r > 0)
        r = look_chunk(&txn->look, KEY_REMOTE_CHUNK, &row->entry.name, &remote);
    if (r == 0)
        count_held_place(txn, &remote.entry, -sign);
    return r == -ENOENT ? 0 : r;
}

/* The chunk has a local place now: if its entry is incomplete, it is uploaded again. */
static int leave_incomplete(struct txn *txn, const struct chunk_row *row)
{
    struct chunk_row remote;
    if (!atomic_load(&txn->view->has_dependents) && !atomic_load(&txn->view->has_suspects))
        return 0;
    int r = look_chunk(&txn->look, KEY_REMOTE_CHUNK, &row->entry.name, &remote);
    if (r == 0)
        r = is_needed(txn, row);
    if (r > 0)
        r = entry_is_incomplete(&txn->look, &remote.entry);
    return r > 0 ? send_anew(txn, row, &remote.entry) : r == -ENOENT ? 0 : r;
}

int remote_chunk_moved_locally(struct txn *txn, const struct chunk_row *row)
{
    uint64_t bytes = 0;
    if (!txn->remote.pub.tracks || (row->refs == 0 && !atomic_load(&txn->view->has_dependents)))
        return 0;
    int r = look_pending(&txn->look, &row->entry.name, &bytes);
    if (r == -ENOENT)
        return row->entry.pack ? leave_incomplete(txn, row) : 0;
    if (r < 0 || bytes == pending_bytes(&row->entry))
        return r;
    r = remove_pending_upload(txn, &row->entry.name);
    if (r == 0)
        add_pending_upload(txn, &row->entry);
    return r;
}

/* A first place needs no mark: a chunk that was pending upload has one, or the next run is whole;
 * and no run contains a chunk that is not needed. */
int remote_chunk_place(struct txn *txn, const struct chunk_entry *entry)
{
    struct chunk_row row, old = {0}, remote = {.entry = *entry};
    check(txn->remote.pub.tracks && entry->pack != 0 && entry_is_sane(entry));
    int needed = look_needed(&txn->look, &entry->name, &row);
    TRY(needed < 0 ? needed : remove_pending_upload(txn, &entry->name));
    enum need need = needed ? NEEDED : UNNEEDED;
    int r = look_chunk(&txn->look, KEY_REMOTE_CHUNK, &entry->name, &old);
    if (r < 0 && r != -ENOENT)
        return r;
    bool had_place = r == 0;
    if (had_place && needed)
        touch_chunk(txn, &entry->name);
    if (had_place)
        TRY(leave_pack(txn, &old.entry, need));
    TRY(exchange_bases(txn, &old.entry, entry, need));
    TRY(load_pack_of_place(txn, entry->pack));
    txn_put_chunk(txn, KEY_REMOTE_CHUNK, &remote);
    list_add(txn, KEY_REMOTE_PLACED, entry->pack, &entry->name);
    txn->remote_pack.placed++;
    txn->remote_pack_dirty = true;
    return needed ? count_live(txn, entry, row.refs, 1) : 0;
}

static int forget_place_of_entry(struct txn *txn, const struct chunk_entry *entry)
{
    struct chunk_row row;
    int r = look_needed(&txn->look, &entry->name, &row);
    if (r <= 0) /* not needed: if a head names it, it is marked already */
        return r < 0 ? r : unplace_chunk(txn, entry, UNNEEDED);
    r = send_anew(txn, &row, entry);
    return r < 0 ? r : leave_lost_base(txn, &entry->name, CHUNK_DEPTH_MAX);
}

int remote_chunk_forget(struct txn *txn, const struct chunk_name *name)
{
    struct chunk_row remote;
    int r = look_chunk(&txn->look, KEY_REMOTE_CHUNK, name, &remote);
    return r == -ENOENT ? 0 : r < 0 ? r : forget_place_of_entry(txn, &remote.entry);
}

/* A head may contain a chunk but not its bases, or a chunk that nothing needs here: then it is
 * marked, for the next run. */
int remote_chunk_settle(struct txn *txn, const struct chunk_name *name)
{
    struct chunk_row row, remote;
    if (!atomic_load(&txn->view->has_dependents))
        return 0;
    int needed = look_needed(&txn->look, name, &row);
    if (needed < 0)
        return needed;
    int r = look_chunk(&txn->look, KEY_REMOTE_CHUNK, name, &remote);
    set_place_mark(txn, name, r == -ENOENT ? needed : !needed);
    if (r < 0 || !needed)
        return r == -ENOENT ? 0 : r;
    r = entry_lacks_base(&txn->look, &remote.entry, NULL);
    if (r <= 0)
        return r;
    r = leave_lost_base(txn, name, CHUNK_DEPTH_MAX);
    return r < 0 || row.entry.pack == 0 ? r : leave_incomplete(txn, &row);
}

/* Handles a chunk of a pack that became suspect. Its dependents come first: without them, nothing
 * may need it. */
static int leave_suspect(struct txn *txn, const struct chunk_row *remote, void *arg)
{
    struct chunk_row row;
    (void)arg;
    int r = leave_lost_base(txn, &remote->entry.name, CHUNK_DEPTH_MAX);
    if (r == 0)
        r = look_known_chunk(&txn->look, KEY_CHUNK, &remote->entry.name, &row);
    if (r == 0)
        r = row.entry.pack ? is_needed(txn, &row) : 0;
    return r > 0 ? send_anew(txn, &row, &remote->entry) : r;
}

int remote_pack_leave_suspect(struct txn *txn, uint64_t pack)
{
    return list_each(txn, KEY_REMOTE_PLACED, pack, leave_suspect, NULL);
}

int remote_chunk_is_lost(struct txn *txn, const struct chunk_name *name)
{
    struct chunk_row row;
    uint64_t bytes;
    int r = look_pending(&txn->look, name, &bytes);
    if (r == 0)
        r = look_known_chunk(&txn->look, KEY_CHUNK, name, &row);
    return r == -ENOENT ? 0 : r < 0 ? r : row.entry.pack == 0;
}

/* Handles a chunk of a pack that is removed. */
static int forget_place(struct txn *txn, const struct chunk_row *remote, void *arg)
{
    (void)arg;
    return forget_place_of_entry(txn, &remote->entry);
}

int remote_pack_forget_placed(struct txn *txn, uint64_t pack)
{
    int r = list_each(txn, KEY_REMOTE_PLACED, pack, forget_place, NULL);
    if (r == 0)
        r = load_pack_of_place(txn, pack);
    if (r == 0 && txn->remote_pack.placed)
        return txn_damage(txn, "a remote pack has fewer chunks than it counts");
    list_remove(txn, KEY_REMOTE_PLACED, pack);
    return r;
}
