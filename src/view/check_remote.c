// SPDX-License-Identifier: Apache-2.0
/* Recounts what the view knows of the remote: where chunks lie there, which are wanted, the
 * accounts of its packs. */
#include "view/check.h"

#define ID(x) ((unsigned long long)(x))

static int get_chunk(struct checker *c, enum key_type type, const struct chunk_name *name,
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

static int name_of_key(const struct scan *scan, size_t at, struct chunk_name *name)
{
    if (scan->key_len != at + sizeof name->bytes)
        return -EUCLEAN;
    memcpy(name->bytes, scan->key + at, sizeof name->bytes);
    return 0;
}

/* What is referred to lies in the remote or is wanted there. */
static int check_reached(struct checker *c, const struct scan *scan)
{
    struct chunk_name name;
    struct chunk_row row;
    int r = name_of_key(scan, 1, &name);
    if (r == 0)
        r = chunk_row_decode(&name, scan->value, scan->value_len, &row);
    if (r < 0 || row.refs == 0)
        return r == -EUCLEAN ? 0 : r; /* reported with the chunks */
    int far = has_key_of(c, KEY_FAR, &name);
    int wanted = far < 0 ? far : has_key_of(c, KEY_WANTED, &name);
    if (wanted < 0)
        return wanted;
    if (far + wanted != 1)
        check_chunk_differs(c, &name, "lying in the remote or being wanted there", ID(far + wanted),
                            1);
    return 0;
}

/* The list of its remote pack has the chunk. */
static int check_far_chunk(struct checker *c, const struct scan *scan)
{
    struct chunk_name name;
    struct chunk_row far, near = {0};
    struct key key;
    int r = name_of_key(scan, 1, &name);
    if (r == 0)
        r = chunk_row_decode(&name, scan->value, scan->value_len, &far);
    if (r == 0 && (far.refs != 0 || far.entry.pack == 0))
        r = -EUCLEAN;
    if (r < 0)
        return r;
    key_of_placed(&key, KEY_FAR_PLACED, far.entry.pack, &name);
    r = has_key(c, &key);
    if (r == 0)
        check_chunk_differs(c, &name, "being listed in its remote pack", 0, 1);
    if (r >= 0)
        r = get_chunk(c, KEY_CHUNK, &name, &near);
    if (r < 0)
        return r == -ENOENT ? 0 : r;
    if (near.refs) {
        tally_add(&c->far_live_bytes, far.entry.pack, far.entry.stored_len);
        tally_add(&c->far_live_count, far.entry.pack, 1);
    }
    return 0;
}

/* A chunk in a remote pack's list has its place there. */
static int check_far_placed(struct checker *c, const struct scan *scan)
{
    struct chunk_name name;
    struct chunk_row far;
    int r = name_of_key(scan, KEY_U64_LEN, &name);
    if (r < 0)
        return r;
    uint64_t pack = key_get_u64(scan->key, 1);
    tally_add(&c->far_placed, pack, 1);
    r = get_chunk(c, KEY_FAR, &name, &far);
    if (r == -ENOENT || (r == 0 && far.entry.pack != pack))
        check_chunk_differs(c, &name, "place, as its remote pack's list says,",
                            r == 0 ? far.entry.pack : 0, pack);
    return r == -ENOENT ? 0 : r;
}

static void compare_far(struct checker *c, uint64_t pack, const char *what, uint64_t is,
                        uint64_t counted)
{
    if (is != counted)
        check_differs(c, "remote pack %llu: %s is %llu, counted %llu", ID(pack), what, ID(is),
                      ID(counted));
}

static int check_far_pack(struct checker *c, const struct scan *scan)
{
    struct far_row row;
    if (scan->key_len != KEY_U64_LEN)
        return -EUCLEAN;
    uint64_t pack = key_get_u64(scan->key, 1);
    int r = far_row_decode(pack, scan->value, scan->value_len, &row);
    if (r < 0)
        return r;
    compare_far(c, pack, "live bytes", row.pub.live_bytes, tally_take(c, &c->far_live_bytes, pack));
    compare_far(c, pack, "live chunks", row.pub.live_count,
                tally_take(c, &c->far_live_count, pack));
    compare_far(c, pack, "listed chunks", row.placed, tally_take(c, &c->far_placed, pack));
    if (row.pub.doomed || row.pub.gone) {
        compare_far(c, pack, "listed chunks, of a pack that goes,", row.placed, 0);
        return 0;
    }
    c->counted_remote.packs++;
    c->counted_remote.pack_bytes += row.pub.length;
    return 0;
}

/* A chunk that is wanted is referred to, lies nowhere in the remote, and the next run will tell its
 * place. */
static int check_wanted(struct checker *c, const struct scan *scan)
{
    struct chunk_name name;
    struct chunk_row near = {0};
    struct key key, mark;
    uint64_t bytes;
    int r = name_of_key(scan, 1, &name);
    if (r == 0)
        r = wanted_decode(scan->value, scan->value_len, &bytes);
    if (r < 0)
        return r;
    c->counted_remote.wanted++;
    c->counted_remote.wanted_bytes += bytes;
    r = get_chunk(c, KEY_CHUNK, &name, &near);
    if (r < 0 && r != -ENOENT)
        return r;
    if (near.refs == 0)
        check_chunk_differs(c, &name, "being wanted", 1, 0);
    uint64_t stored = near.entry.pack ? near.entry.stored_len : 0;
    if (bytes != stored)
        check_chunk_differs(c, &name, "stored bytes that are wanted", bytes, stored);
    key_chunk(&key, &name);
    key_touched(&mark, key.bytes, key.len);
    r = c->remote.pub.is_whole ? 1 : has_key(c, &mark);
    if (r == 0)
        check_chunk_differs(c, &name, "being marked while it is wanted", 0, 1);
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

static void compare_counters(struct checker *c)
{
    const struct view_remote *is = &c->remote.pub, *counted = &c->counted_remote;
    compare_remote(c, "number of wanted chunks", is->wanted, counted->wanted);
    compare_remote(c, "bytes of wanted chunks", is->wanted_bytes, counted->wanted_bytes);
    compare_remote(c, "number of packs", is->packs, counted->packs);
    compare_remote(c, "bytes of packs", is->pack_bytes, counted->pack_bytes);
}

/* 1: the view tracks; 0: it does not. */
static int read_remote(struct checker *c)
{
    struct key key;
    _cleanup_value_ struct value value = {0};
    key_type(&key, KEY_REMOTE);
    int r = db_get(c->view, &c->snap, &key, &value);
    if (r == 0)
        r = remote_row_decode(value.data, value.len, &c->remote);
    if (r == -EUCLEAN)
        check_differs(c, "an entry of type %c does not decode", KEY_REMOTE);
    return r == -ENOENT || r == -EUCLEAN ? 0 : r < 0 ? r : 1;
}

static const struct {
    enum key_type type;
    int (*step)(struct checker *c, const struct scan *scan);
} walks[] = {
    {KEY_CHUNK, check_reached},     {KEY_FAR, check_far_chunk}, {KEY_FAR_PLACED, check_far_placed},
    {KEY_FAR_PACK, check_far_pack}, {KEY_WANTED, check_wanted}, {KEY_TOUCHED, check_mark},
};

int check_far(struct checker *c)
{
    int tracks = read_remote(c), r = tracks < 0 ? tracks : 0;
    for (size_t i = 0; i < ARRAY_LEN(walks) && r == 0; i++) {
        if (walks[i].type == KEY_FAR_PACK) {
            tally_sort(&c->far_live_bytes);
            tally_sort(&c->far_live_count);
        }
        if (tracks)
            r = check_walk(c, walks[i].type, walks[i].step);
        else if (walks[i].type != KEY_CHUNK &&
                 walks[i].type !=
                     KEY_WANTED) /* a beginning that was cut short leaves some of these */
            r = check_walk(c, walks[i].type, report_untracked);
    }
    if (r == 0 && tracks)
        compare_counters(c);
    return r;
}
