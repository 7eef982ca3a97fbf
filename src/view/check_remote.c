// SPDX-License-Identifier: Apache-2.0
/* Recounts what the view knows of the remote: where chunks lie there, what rests on what, which are
 * pending upload, the accounts of its packs. Need goes along chains of chunks: each step of each is
 * compared with the next, so that together they are right from end to end. */
#include "view/bases.h"
#include "view/check.h"
#include "view/pack_list.h"

#define ID(x) ((unsigned long long)(x))

static int get_checked_chunk(struct checker *c, enum key_type type, const struct chunk_name *name,
                             struct chunk_row *row)
{
    struct key key;
    _cleanup_value_ struct value value = {0};
    key_of_name(&key, type, name);
    int r = db_get(c->view, &c->snap, &key, &value);
    return r < 0 ? r : chunk_row_decode(name, value.data, value.len, row);
}

/* 1: the key exists; 0: it does not. */
static int has_key(struct checker *c, const struct key *key)
{
    _cleanup_value_ struct value value = {0};
    int r = db_get(c->view, &c->snap, key, &value);
    return r == -ENOENT ? 0 : r < 0 ? r : 1;
}

static int has_key_of(struct checker *c, enum key_type type, const struct chunk_name *name)
{
    struct key key;
    key_of_name(&key, type, name);
    return has_key(c, &key);
}

static int name_of_checked_key(const struct scan *scan, size_t at, struct chunk_name *name)
{
    if (scan->key_len != at + sizeof name->bytes)
        return -EUCLEAN;
    memcpy(name->bytes, scan->key + at, sizeof name->bytes);
    return 0;
}

static int is_needed(struct checker *c, const struct chunk_row *local)
{
    const struct look look = {.view = c->view, .snap = &c->snap};
    return chunk_is_needed(&look, &local->entry.name, local->refs);
}

/* As it is here; a chunk may be known in the remote alone. */
static int get_local(struct checker *c, const struct chunk_name *name, struct chunk_row *row)
{
    *row = (struct chunk_row){.entry = {.name = *name}};
    int r = get_checked_chunk(c, KEY_CHUNK, name, row);
    return r == -ENOENT ? 0 : r;
}

/* A needed chunk lies in the remote or is pending upload. */
static int check_one_of_both(struct checker *c, const struct chunk_name *name)
{
    int remote = has_key_of(c, KEY_REMOTE_CHUNK, name);
    int pending = remote < 0 ? remote : has_key_of(c, KEY_PENDING_UPLOAD, name);
    if (pending < 0)
        return pending;
    if (remote + pending != 1)
        check_chunk_differs(c, name, "lying in the remote or pending upload", ID(remote + pending),
                            1);
    return 0;
}

/* --- chunks ----------------------------------------------------------------------------------- */

static int check_reached(struct checker *c, const struct scan *scan)
{
    struct chunk_name name;
    struct chunk_row row;
    int r = name_of_checked_key(scan, 1, &name);
    if (r == 0)
        r = chunk_row_decode(&name, scan->value, scan->value_len, &row);
    if (r < 0 || row.refs == 0)
        return r == -EUCLEAN ? 0 : r; /* reported with the chunks */
    return check_one_of_both(c, &name);
}

/* Each base knows that the chunk rests on it, and whether that is needed. */
static int check_bases(struct checker *c, const struct chunk_entry *entry, bool needed)
{
    int r = 1;
    for (size_t i = 0; i < entry->ref_count && r >= 0; i++) {
        struct key key;
        key_dependent(&key, &entry->refs[i].name, needed ? NEEDED : UNNEEDED, &entry->name);
        r = has_key(c, &key);
        if (r == 0)
            check_chunk_differs(c, &entry->refs[i].name,
                                needed ? "being needed by one that rests on it"
                                       : "being known to one that rests on it",
                                0, 1);
    }
    return r < 0 ? r : 0;
}

/* A needed chunk that lies here, too, does not rest on what is lost, nor lie in a suspect pack. */
static int check_complete(struct checker *c, const struct chunk_entry *entry)
{
    const struct look look = {.view = c->view, .snap = &c->snap};
    int r = entry_is_incomplete(&look, entry);
    if (r > 0)
        check_chunk_differs(c, &entry->name, "having all that it needs in the remote", 0, 1);
    return r < 0 ? r : 0;
}

static int check_need(struct checker *c, const struct chunk_entry *remote)
{
    struct chunk_row local;
    int r = get_local(c, &remote->name, &local);
    int needed = r < 0 ? r : is_needed(c, &local);
    if (needed < 0)
        return needed;
    if (needed) {
        tally_add(&c->remote_live_bytes, remote->pack, remote->stored_len);
        tally_add(&c->remote_live_count, remote->pack, 1);
        c->counted_remote.held_bytes += local.refs == 0 ? remote->stored_len : 0;
    }
    r = check_bases(c, remote, needed);
    return r == 0 && needed && local.entry.pack ? check_complete(c, remote) : r;
}

/* The list of its remote pack has the chunk. */
static int check_remote_chunk(struct checker *c, const struct scan *scan)
{
    struct chunk_name name;
    struct chunk_row remote;
    int r = name_of_checked_key(scan, 1, &name);
    if (r == 0)
        r = chunk_row_decode(&name, scan->value, scan->value_len, &remote);
    if (r == 0 && (remote.refs != 0 || remote.entry.pack == 0 || !entry_is_sane(&remote.entry)))
        r = -EUCLEAN;
    if (r < 0)
        return r;
    tally_add(&c->remote_placed, remote.entry.pack, 1);
    r = snap_list_has(&c->snap, KEY_REMOTE_PLACED, remote.entry.pack, &name);
    if (r == 0)
        check_chunk_differs(c, &name, "being listed in its remote pack", 0, 1);
    if (r == -EUCLEAN)
        r = 0; /* reported with the lists */
    return r < 0 ? r : check_need(c, &remote.entry);
}

/* Its dependent has an entry that refers to it, and is needed or not as the key says. */
static int check_dependent(struct checker *c, const struct scan *scan)
{
    struct chunk_name base, name;
    struct chunk_row remote, local, below;
    unsigned depth;
    int r = scan->key_len == DEPENDENT_KEY_LEN && scan->key[CHUNK_KEY_LEN] < ABSENT ? 0 : -EUCLEAN;
    if (r == 0)
        r = dependent_decode(scan->value, scan->value_len, &depth);
    if (r < 0)
        return r;
    memcpy(&base, scan->key + 1, sizeof base);
    memcpy(&name, scan->key + CHUNK_KEY_LEN + 1, sizeof name);
    bool needed = scan->key[CHUNK_KEY_LEN] == NEEDED;
    r = get_checked_chunk(c, KEY_REMOTE_CHUNK, &name, &remote);
    if (r < 0 && r != -ENOENT)
        return r;
    if (r == -ENOENT || !entry_refers_to(&remote.entry, &base) || remote.entry.depth != depth)
        check_chunk_differs(c, &name, "resting on another as that one says", 0, 1);
    r = get_local(c, &name, &local);
    if (r == 0)
        r = is_needed(c, &local);
    if (r >= 0 && (r > 0) != needed)
        check_chunk_differs(c, &name, "being needed, as its base says,", needed, ID(r));
    if (r >= 0 && needed)
        r = check_one_of_both(c, &base);
    if (r >= 0)
        r = get_checked_chunk(c, KEY_REMOTE_CHUNK, &base, &below);
    if (r == 0 && below.entry.depth >= depth)
        check_chunk_differs(c, &name, "depth, above that of its base,", depth,
                            below.entry.depth + 1u);
    return r == -ENOENT ? 0 : r;
}

static int check_remote_list(struct checker *c, const struct scan *scan)
{
    return check_list(scan, &c->remote_lists);
}

static void compare_remote_pack(struct checker *c, uint64_t pack, const char *what, uint64_t is,
                                uint64_t counted)
{
    if (is != counted)
        check_differs(c, "remote pack %llu: %s is %llu, counted %llu", ID(pack), what, ID(is),
                      ID(counted));
}

static int check_remote_pack(struct checker *c, const struct scan *scan)
{
    struct remote_pack_row row;
    if (scan->key_len != KEY_U64_LEN)
        return -EUCLEAN;
    uint64_t pack = key_get_u64(scan->key, 1);
    int r = remote_pack_row_decode(pack, scan->value, scan->value_len, &row);
    if (r < 0)
        return r;
    compare_remote_pack(c, pack, "live bytes", row.pub.live_bytes,
                        tally_take(c, &c->remote_live_bytes, pack));
    compare_remote_pack(c, pack, "live chunks", row.pub.live_count,
                        tally_take(c, &c->remote_live_count, pack));
    compare_remote_pack(c, pack, "placed chunks", row.placed,
                        tally_take(c, &c->remote_placed, pack));
    uint64_t lists = tally_take(c, &c->remote_lists, pack);
    if (row.pub.unreferenced || row.pub.gone) {
        compare_remote_pack(c, pack, "lists, of a pack that goes,", lists, 0);
        compare_remote_pack(c, pack, "placed chunks, of a pack that goes,", row.placed, 0);
        return 0;
    }
    c->counted_remote.packs++;
    c->counted_remote.pack_bytes += row.pub.length;
    return 0;
}

/* A chunk pending upload is referred to, lies nowhere in the remote, and the next run will tell its
 * place. */
static int check_pending(struct checker *c, const struct scan *scan)
{
    struct chunk_name name;
    struct chunk_row local;
    struct key key, mark;
    uint64_t bytes;
    int r = name_of_checked_key(scan, 1, &name);
    if (r == 0)
        r = pending_upload_decode(scan->value, scan->value_len, &bytes);
    if (r < 0)
        return r;
    c->counted_remote.pending_chunks++;
    c->counted_remote.pending_bytes += bytes;
    r = get_local(c, &name, &local);
    if (r == 0)
        r = is_needed(c, &local);
    if (r < 0)
        return r;
    if (r == 0)
        check_chunk_differs(c, &name, "pending upload", 1, 0);
    uint64_t stored = local.entry.pack ? local.entry.stored_len : 0;
    if (bytes != stored)
        check_chunk_differs(c, &name, "stored bytes pending upload", bytes, stored);
    key_chunk(&key, &name);
    key_touched(&mark, key.bytes, key.len);
    r = c->remote.pub.is_whole ? 1 : has_key(c, &mark);
    if (r == 0)
        check_chunk_differs(c, &name, "being marked while pending upload", 0, 1);
    return r < 0 ? r : 0;
}

static int check_mark(struct checker *c, const struct scan *scan)
{
    struct touched_row row;
    int r = touched_decode(scan->value, scan->value_len, &row);
    uint8_t type = scan->key[1];
    if (r < 0 || (type != KEY_CHUNK && !is_published_type(type)))
        return -EUCLEAN;
    if (row.change > c->remote.changes)
        check_differs(c, "a row of type %c changed with change %llu, the last one was %llu", type,
                      ID(row.change), ID(c->remote.changes));
    return 0;
}

static int report_untracked(struct checker *c, const struct scan *scan)
{
    check_differs(c, "an entry of type %c, but no remote is known", scan->key[0]);
    return 0;
}

static void compare_remote(struct checker *c, const char *what, uint64_t is, uint64_t counted)
{
    if (is != counted)
        check_differs(c, "remote: %s is %llu, counted %llu", what, ID(is), ID(counted));
}

static void compare_remote_counters(struct checker *c)
{
    const struct view_remote *is = &c->remote.pub, *counted = &c->counted_remote;
    compare_remote(c, "number of pending chunks", is->pending_chunks, counted->pending_chunks);
    compare_remote(c, "bytes of pending chunks", is->pending_bytes, counted->pending_bytes);
    compare_remote(c, "held bytes", is->held_bytes, counted->held_bytes);
    compare_remote(c, "number of packs", is->packs, counted->packs);
    compare_remote(c, "bytes of packs", is->pack_bytes, counted->pack_bytes);
}

/* 1: the view tracks; 0: it does not. */
static int read_remote(struct checker *c)
{
    struct key key;
    _cleanup_value_ struct value value = {0};
    key_type(&key, KEY_REMOTE_STATE);
    int r = db_get(c->view, &c->snap, &key, &value);
    if (r == 0)
        r = remote_state_row_decode(value.data, value.len, &c->remote);
    if (r == -EUCLEAN)
        check_differs(c, "an entry of type %c does not decode", KEY_REMOTE_STATE);
    return r == -ENOENT || r == -EUCLEAN ? 0 : r < 0 ? r : 1;
}

static const struct {
    enum key_type type;
    int (*step)(struct checker *c, const struct scan *scan);
} walks[] = {
    {KEY_CHUNK, check_reached},
    {KEY_REMOTE_CHUNK, check_remote_chunk},
    {KEY_REMOTE_PLACED, check_remote_list},
    {KEY_DEPENDENT, check_dependent},
    {KEY_REMOTE_PACK, check_remote_pack},
    {KEY_PENDING_UPLOAD, check_pending},
    {KEY_TOUCHED, check_mark},
};

int check_remote(struct checker *c)
{
    int tracks = read_remote(c), r = tracks < 0 ? tracks : 0;
    for (size_t i = 0; i < ARRAY_LEN(walks) && r == 0; i++) {
        if (walks[i].type == KEY_REMOTE_PACK) {
            tally_sort(&c->remote_live_bytes);
            tally_sort(&c->remote_live_count);
            tally_sort(&c->remote_placed);
        }
        if (tracks)
            r = check_walk(c, walks[i].type, walks[i].step);
        /* a beginning that was broken off leaves some of these */
        else if (walks[i].type != KEY_CHUNK && walks[i].type != KEY_PENDING_UPLOAD)
            r = check_walk(c, walks[i].type, report_untracked);
    }
    if (r == 0 && tracks)
        compare_remote_counters(c);
    return r;
}
