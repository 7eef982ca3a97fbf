// SPDX-License-Identifier: Apache-2.0
/* Recounts the rows about the remote: places of chunks, dependents, pending uploads, the accounts
 * of packs. Need propagates along chains of chunks: each link is compared with the next, which
 * proves the whole chain. */
#include "view/bases.h"
#include "view/check.h"
#include "view/pack_list.h"

#define ID(x) ((unsigned long long)(x))

int check_is_reachable(struct checker *c, const struct chunk_name *name)
{
    static const enum key_type types[] = {KEY_REMOTE_CHUNK, KEY_PENDING_UPLOAD};
    int found = 0;
    for (size_t i = 0; i < ARRAY_LEN(types); i++) {
        int r = look_has(&c->look, key_of_name(NEW_KEY, types[i], name));
        if (r < 0)
            return r;
        found += r;
    }
    if (found != 1)
        check_chunk_differs(c, name, "lying in the remote or pending upload", ID(found), 1);
    return 0;
}

/* Checks that each base has a key for this dependent, with the right need. */
static int check_bases(struct checker *c, const struct chunk_entry *entry, bool needed)
{
    for (size_t i = 0; i < entry->ref_count; i++) {
        int r = look_has(&c->look, key_dependent(NEW_KEY, &entry->refs[i].name,
                                                 needed ? NEEDED : UNNEEDED, &entry->name));
        if (r < 0)
            return r;
        if (r == 0)
            check_chunk_differs(c, &entry->refs[i].name,
                                needed ? "being needed by one that rests on it"
                                       : "being known to one that rests on it",
                                0, 1);
    }
    return 0;
}

/* Checks that a needed chunk that is also on NVMe has no lost base, and is not in a suspect
 * pack. */
static int check_complete(struct checker *c, const struct chunk_entry *entry)
{
    int r = entry_is_incomplete(&c->look, entry);
    if (r > 0)
        check_chunk_differs(c, &entry->name, "having all that it needs in the remote", 0, 1);
    return r < 0 ? r : 0;
}

static int check_need(struct checker *c, const struct chunk_entry *remote)
{
    struct chunk_row local;
    int needed = look_needed(&c->look, &remote->name, &local);
    if (needed < 0)
        return needed;
    if (needed) {
        tally_add(c, REMOTE_LIVE_BYTES, remote->pack, remote->stored_len);
        tally_add(c, REMOTE_LIVE_COUNT, remote->pack, 1);
        c->counted_remote.held_bytes += local.refs == 0 ? remote->stored_len : 0;
    }
    int r = check_bases(c, remote, needed);
    return r == 0 && needed && local.entry.pack ? check_complete(c, remote) : r;
}

/* Checks that the list of its remote pack contains the chunk. */
static int check_remote_chunk(struct checker *c, const struct view_row *row)
{
    const struct chunk_entry *entry = &row->placed.entry;
    if (row->placed.refs != 0 || entry->pack == 0 || !entry_is_sane(entry))
        return -EUCLEAN;
    tally_add(c, REMOTE_PLACED, entry->pack, 1);
    int r = snap_list_has(&c->snap, KEY_REMOTE_PLACED, entry->pack, &entry->name);
    if (r == 0)
        check_chunk_differs(c, &entry->name, "being listed in its remote pack", 0, 1);
    /* a list that does not decode is reported with the lists */
    return r < 0 && r != -EUCLEAN ? r : check_need(c, entry);
}

/* Checks that the dependent has an entry that refers to the base, and the need that the key
 * says. */
static int check_dependent(struct checker *c, const struct view_row *row)
{
    const struct chunk_name *base = &row->chunk, *name = &row->dependent;
    struct chunk_row remote, local, below;
    bool needed = row->need == NEEDED;
    int r = look_chunk(&c->look, KEY_REMOTE_CHUNK, name, &remote);
    if (r < 0 && r != -ENOENT)
        return r;
    if (r == -ENOENT || !entry_refers_to(&remote.entry, base) || remote.entry.depth != row->depth)
        check_chunk_differs(c, name, "resting on another as that one says", 0, 1);
    r = look_needed(&c->look, name, &local);
    if (r < 0)
        return r;
    if ((r > 0) != needed)
        check_chunk_differs(c, name, "being needed, as its base says,", needed, ID(r));
    r = needed ? check_is_reachable(c, base) : 0;
    if (r == 0)
        r = look_chunk(&c->look, KEY_REMOTE_CHUNK, base, &below);
    if (r == 0 && below.entry.depth >= row->depth)
        check_chunk_differs(c, name, "depth, above that of its base,", row->depth,
                            below.entry.depth + 1u);
    return r == -ENOENT ? 0 : r;
}

static int tally_remote_list(struct checker *c, const struct view_row *row)
{
    tally_add(c, REMOTE_LISTS, row->id, 1);
    return 0;
}

static int check_remote_pack(struct checker *c, const struct view_row *row)
{
    const struct view_remote_pack *pub = &row->remote_pack.pub;
    const struct pack_row account = {
        {pub->pack, pub->length, pub->count, pub->live_bytes, pub->live_count},
        row->remote_pack.placed};
    uint64_t lists = check_account(c, "remote pack", &account, REMOTE_LIVE_BYTES);
    if (pub->unreferenced || pub->gone) {
        check_counted(c, "remote pack", pub->pack, "lists, of a pack that goes,", lists, 0);
        check_counted(c, "remote pack", pub->pack, "placed chunks, of a pack that goes,",
                      account.placed, 0);
        return 0;
    }
    c->counted_remote.packs++;
    c->counted_remote.pack_bytes += pub->length;
    return 0;
}

/* Checks that a chunk pending upload is needed, is not in the remote, and will be in the next
 * run. */
static int check_pending(struct checker *c, const struct view_row *row)
{
    struct chunk_row local;
    struct touched_row mark;
    c->counted_remote.pending_chunks++;
    c->counted_remote.pending_bytes += row->pending_bytes;
    int r = look_needed(&c->look, &row->chunk, &local);
    if (r < 0)
        return r;
    if (r == 0)
        check_chunk_differs(c, &row->chunk, "pending upload", 1, 0);
    uint64_t stored = local.entry.pack ? local.entry.stored_len : 0;
    if (row->pending_bytes != stored)
        check_chunk_differs(c, &row->chunk, "stored bytes pending upload", row->pending_bytes,
                            stored);
    r = c->remote.pub.is_whole ? 0 : look_chunk_mark(&c->look, &row->chunk, &mark);
    if (r == -ENOENT)
        check_chunk_differs(c, &row->chunk, "being marked while pending upload", 0, 1);
    return r == -ENOENT ? 0 : r;
}

static int check_mark(struct checker *c, const struct view_row *row)
{
    uint8_t type = (uint8_t)*row->name;
    if (type != KEY_CHUNK && !is_published_type(type))
        return -EUCLEAN;
    if (row->touched.change > c->remote.changes)
        check_differs(c, "a row of type %c changed with change %llu, the last one was %llu", type,
                      ID(row->touched.change), ID(c->remote.changes));
    return 0;
}

static void compare_remote_counters(struct checker *c)
{
#define COUNTER(name, member)                                                                      \
    {                                                                                              \
        name, offsetof(struct view_remote, member)                                                 \
    }
    static const struct counter counters[] = {
        COUNTER("number of pending chunks", pending_chunks),
        COUNTER("bytes of pending chunks", pending_bytes), COUNTER("held bytes", held_bytes),
        COUNTER("number of packs", packs), COUNTER("bytes of packs", pack_bytes)};
#undef COUNTER
    check_counters(c, "remote", counters, ARRAY_LEN(counters), &c->remote.pub, &c->counted_remote);
}

/* Does the view track? */
static int read_remote(struct checker *c)
{
    _cleanup_value_ struct value value = {0};
    int r = look_get(&c->look, key_type(NEW_KEY, KEY_REMOTE_STATE), &value);
    if (r < 0)
        return r == -ENOENT ? 0 : r;
    c->tracks = remote_state_row_decode(value.data, value.len, &c->remote) == 0;
    if (!c->tracks)
        check_differs(c, "an entry of type %c does not decode", KEY_REMOTE_STATE);
    return 0;
}

/* Without a known remote these rows must not exist. An interrupted start leaves some pending
 * uploads. */
static int report_untracked(struct checker *c, enum key_type type)
{
    int r;
    _cleanup_scan_ struct scan scan;
    scan_type(&scan, &c->snap, type);
    while (type != KEY_PENDING_UPLOAD && (r = scan_step(&scan)) > 0)
        check_differs(c, "an entry of type %c, but no remote is known", type);
    return type == KEY_PENDING_UPLOAD ? 0 : r;
}

int check_remote(struct checker *c)
{
    static const struct {
        enum key_type type;
        int (*step)(struct checker *c, const struct view_row *row);
    } walks[] = {{KEY_REMOTE_CHUNK, check_remote_chunk}, {KEY_REMOTE_PLACED, tally_remote_list},
                 {KEY_DEPENDENT, check_dependent},       {KEY_REMOTE_PACK, check_remote_pack},
                 {KEY_PENDING_UPLOAD, check_pending},    {KEY_TOUCHED, check_mark}};
    int r = read_remote(c);
    for (size_t i = 0; i < ARRAY_LEN(walks) && r == 0; i++)
        r = c->tracks ? check_walk(c, walks[i].type, walks[i].step)
                      : report_untracked(c, walks[i].type);
    if (r == 0 && c->tracks)
        compare_remote_counters(c);
    return r;
}
