// SPDX-License-Identifier: Apache-2.0
#include "taking.h"

#include "../expect.h"

/* --- telling ---------------------------------------------------------------------------------- */

static void tell_later(struct peer *peer, const struct record *told)
{
    struct takers *t = peer->arg;
    struct record rec = *told;
    rec.seq = (peer->node.epoch << SEQ_EPOCH_SHIFT) + ++peer->node.ops;
    rec.time = t->time += 1000;
    struct untold op = {peer, rec.ino, rec.ino2, xmalloc(record_encoded_len(&rec))};
    record_encode(&rec, op.bytes);
    vector_add(&t->untold, op);
}

void takers_begin(struct takers *t, uint64_t seed)
{
    *t = (struct takers){.seeded = {seed}, .time = T0 * 10};
    for (unsigned n = 0; n < TAKERS; n++) {
        struct peer *peer = &t->peers[n];
        peer_open(peer, n + 1);
        peer->takes = true;
        peer->tell = tell_later;
        peer->arg = t;
    }
}

void takers_end(struct takers *t)
{
    assert_u64(t->untold.count, 0);
    vector_free(&t->untold);
    for (unsigned n = 0; n < TAKERS; n++)
        fixture_close(&t->peers[n].own);
}

void takers_merge(struct takers *t)
{
    for (size_t i = 0; i < t->untold.count; i++) {
        const struct untold *op = &t->untold.at[i];
        struct record rec;
        size_t len;
        assert_i64(record_decode(op->bytes, RECORD_LEN_MAX, &rec, &len), 0);
        const struct merge_op told = {.rec = &rec,
                                      .owns = peer_owns(op->peer, rec.ino),
                                      .owns2 = peer_owns(op->peer, rec.ino2)};
        assert_i64(merge_record(merge, &told), 0);
        free(op->bytes);
    }
    t->untold.count = 0;
}

static bool has_untold(const struct takers *t, const struct peer *peer)
{
    for (size_t i = 0; i < t->untold.count; i++)
        if (t->untold.at[i].peer == peer)
            return true;
    return false;
}

static bool is_untold(const struct takers *t, const struct peer *peer, uint64_t ino)
{
    for (size_t i = 0; i < t->untold.count; i++) {
        const struct untold *op = &t->untold.at[i];
        if (op->peer == peer && (op->ino == ino || op->ino2 == ino))
            return true;
    }
    return false;
}

/* --- names ------------------------------------------------------------------------------------ */

struct name {
    uint64_t parent;
    struct view_entry entry;
    char text[NAME_LEN_MAX + 1];
};
DEFINE_VECTOR(name_list, struct name);

struct listing {
    struct name_list *list;
    uint64_t parent;
};

static int add_name(const struct view_entry *entry, const char *name, size_t name_len, void *arg)
{
    struct listing *listing = arg;
    struct name added = {.parent = listing->parent, .entry = *entry};
    memcpy(added.text, name, name_len);
    vector_add(listing->list, added);
    return 0;
}

/* Directories before what is in them. */
static struct name_list names_of(struct view *view)
{
    struct name_list list = {0};
    assert_i64(view_readdir(view, ROOT_INO, 0, add_name, &(struct listing){&list, ROOT_INO}), 0);
    for (size_t i = 0; i < list.count; i++) {
        struct listing listing = {&list, list.at[i].entry.ino};
        if (S_ISDIR(list.at[i].entry.type))
            assert_i64(view_readdir(view, listing.parent, 0, add_name, &listing), 0);
    }
    return list;
}

static bool is_in(const struct name_list *list, const struct name *name)
{
    for (size_t i = 0; i < list->count; i++)
        if (list->at[i].parent == name->parent && list->at[i].entry.ino == name->entry.ino &&
            strcmp(list->at[i].text, name->text) == 0)
            return true;
    return false;
}

static bool are_dirs_in(const struct name_list *list, const struct name_list *those)
{
    for (size_t i = 0; i < those->count; i++)
        if (S_ISDIR(those->at[i].entry.type) && !is_in(list, &those->at[i]))
            return false;
    return true;
}

/* --- taking ----------------------------------------------------------------------------------- */

struct taking {
    struct takers *t;
    struct peer *peer;
    struct name_list own, there;
    bool same_dirs;
};

/* Each file that may change has one more name meanwhile: what only moves does not end. */
static void hold_name(uint64_t ino, char ret[32])
{
    (void)snprintf(ret, 32, "held %llx", (unsigned long long)ino);
}

static bool may_change(struct taking *taking, uint64_t ino)
{
    return !is_untold(taking->t, taking->peer, ino);
}

static bool has_name(struct peer *peer, uint64_t ino)
{
    struct view_inode inode;
    return peer_has(peer, ino, &inode) && inode.nlink > 0;
}

static uint64_t free_cookie(struct peer *peer, const struct name *name)
{
    struct name_list list = {0};
    uint64_t cookie = name->entry.cookie;
    struct listing listing = {&list, name->parent};
    assert_i64(view_readdir(peer->own.view, name->parent, cookie - 1, add_name, &listing), 0);
    if (list.count > 0 && list.at[0].entry.cookie == cookie)
        cookie = 1ull << 62 | ++peer->cookies;
    vector_free(&list);
    return cookie;
}

static void link_own(struct peer *peer, uint64_t ino, const struct name *name)
{
    peer_adopt(peer, (struct record){.type = REC_LINK,
                                     .ino = ino,
                                     .parent = name->parent,
                                     .cookie = free_cookie(peer, name),
                                     NAMED(name->text)});
}

/* Its own file lives on without a name: its end is told when it is forgotten. */
static void unlink_own(struct peer *peer, uint64_t ino, uint64_t parent, const char *text)
{
    struct view_inode inode;
    assert_u64(peer_has(peer, ino, &inode), true);
    bool lives = peer_owns(peer, ino) && !S_ISDIR(inode.attrs.mode) && inode.nlink == 1;
    peer_adopt(peer, (struct record){.type = REC_UNLINK,
                                     .flags = lives ? RECORD_ORPHAN : 0,
                                     .ino = ino,
                                     .parent = parent,
                                     NAMED(text)});
}

static void hold_files(struct taking *taking)
{
    struct peer *peer = taking->peer;
    for (size_t i = 0; i < taking->own.count; i++) {
        const struct name *name = &taking->own.at[i];
        struct name held = {.parent = ROOT_INO, .entry = name->entry};
        hold_name(name->entry.ino, held.text);
        if (!S_ISDIR(name->entry.type) && may_change(taking, name->entry.ino) &&
            !lookup(&peer->own, ROOT_INO, held.text))
            link_own(peer, name->entry.ino, &held);
    }
}

static void remove_old(struct taking *taking)
{
    for (size_t i = 0; i < taking->own.count; i++) {
        const struct name *name = &taking->own.at[i];
        bool stays = taking->same_dirs && is_in(&taking->there, name);
        if (!S_ISDIR(name->entry.type) && may_change(taking, name->entry.ino) && !stays)
            unlink_own(taking->peer, name->entry.ino, name->parent, name->text);
    }
    for (size_t i = taking->own.count; i-- > 0 && !taking->same_dirs;)
        if (S_ISDIR(taking->own.at[i].entry.type))
            unlink_own(taking->peer, taking->own.at[i].entry.ino, taking->own.at[i].parent,
                       taking->own.at[i].text);
}

/* An inode that the node does not have, with this name. */
static void make_taken(struct peer *peer, const struct name *name)
{
    struct view_inode inode = inode_of(&f, name->entry.ino);
    struct record rec = {.type = REC_MAKE,
                         .ino = inode.ino,
                         .parent = name->parent,
                         .cookie = free_cookie(peer, name),
                         .attrs = inode.attrs,
                         NAMED(name->text)};
    if (S_ISREG(inode.attrs.mode)) {
        rec.type = REC_VERSION;
        rec.flags = RECORD_BIRTH;
        rec.version = inode.version;
    }
    if (S_ISLNK(inode.attrs.mode)) {
        rec.value = "target";
        rec.value_len = 6;
    }
    peer_adopt(peer, rec);
    for (size_t i = 0; i < peer->count; i++)
        if (peer->inos[i] == inode.ino)
            return;
    cr_assert_lt(peer->count, PEER_INOS_MAX);
    peer->inos[peer->count++] = inode.ino;
}

static void add_new(struct taking *taking)
{
    struct peer *peer = taking->peer;
    for (size_t i = 0; i < taking->there.count; i++) {
        const struct name *name = &taking->there.at[i];
        struct view_inode own;
        uint64_t ino = name->entry.ino;
        if ((taking->same_dirs && is_in(&taking->own, name)) || !may_change(taking, ino))
            continue;
        assert_u64(lookup(&peer->own, name->parent, name->text), 0, "%s", name->text);
        if (!peer_has(peer, ino, &own)) {
            assert_u64(!S_ISDIR(name->entry.type) && peer_owns(peer, ino), false);
            make_taken(peer, name);
        } else if (own.nlink > 0)
            link_own(peer, ino, name);
        else /* of another node, open here, removed here, and moved elsewhere: it comes later */
            assert_u64(peer_owns(peer, ino), false);
    }
}

static void take_inode(struct peer *peer, uint64_t ino)
{
    struct view_inode own, there = inode_of(&f, ino);
    assert_u64(peer_has(peer, ino, &own), true);
    if (there.version != own.version) {
        assert_u64(peer_owns(peer, ino), false);
        peer_adopt(peer, (struct record){.type = REC_VERSION,
                                         .ino = ino,
                                         .version = there.version,
                                         .attrs = there.attrs});
    }
    if (there.attrs.mode != own.attrs.mode)
        peer_adopt(peer,
                   (struct record){
                       .type = REC_SETATTR, .ino = ino, .mask = ATTR_MODE, .attrs = there.attrs});
    if (there.xattrs != own.xattrs)
        peer_adopt(peer, (struct record){.type = REC_SETXATTR,
                                         .ino = ino,
                                         NAMED("user.x"),
                                         .value = "taken",
                                         .value_len = 5});
}

static void let_go(struct taking *taking)
{
    struct peer *peer = taking->peer;
    for (size_t i = 0; i < taking->own.count; i++) {
        char held[32];
        uint64_t ino = taking->own.at[i].entry.ino;
        hold_name(ino, held);
        if (lookup(&peer->own, ROOT_INO, held))
            unlink_own(peer, ino, ROOT_INO, held);
    }
}

/* Files that are not open end at once. */
static void forget_some(struct taking *taking)
{
    struct peer *peer = taking->peer;
    struct view_inode inode;
    for (size_t i = 0; i < peer->count; i++)
        if (peer_has(peer, peer->inos[i], &inode) && inode.nlink == 0 &&
            seeded_below(&taking->t->seeded, 3) > 0)
            peer_op(peer, (struct record){.type = REC_REAP, .ino = inode.ino});
}

/* Has a name by its own newest operations what it is to give to another file? That one would lose
 * its last name. */
static bool is_in_the_way(struct taking *taking)
{
    for (size_t i = 0; i < taking->there.count; i++) {
        const struct name *name = &taking->there.at[i];
        uint64_t ino = lookup(&taking->peer->own, name->parent, name->text);
        if (ino && ino != name->entry.ino && !may_change(taking, ino) &&
            may_change(taking, name->entry.ino))
            return true;
    }
    return false;
}

void taker_take(struct takers *t, struct peer *peer)
{
    struct taking taking = {t, peer, names_of(peer->own.view), names_of(f.view), false};
    taking.same_dirs =
        are_dirs_in(&taking.own, &taking.there) && are_dirs_in(&taking.there, &taking.own);
    bool is_early = has_untold(t, peer);
    bool can = !is_early || (taking.same_dirs && !is_in_the_way(&taking));
    t->taken += can;
    t->taken_early += can && is_early;
    t->skipped += !can;
    if (can) {
        hold_files(&taking);
        remove_old(&taking);
        add_new(&taking);
        let_go(&taking);
        for (size_t i = 0; i < taking.there.count; i++)
            if (may_change(&taking, taking.there.at[i].entry.ino) &&
                has_name(peer, taking.there.at[i].entry.ino))
                take_inode(peer, taking.there.at[i].entry.ino);
        forget_some(&taking);
    }
    vector_free(&taking.own);
    vector_free(&taking.there);
}

/* --- at the end ------------------------------------------------------------------------------- */

static void expect_equal(struct takers *t, struct peer *peer)
{
    struct name_list own = names_of(peer->own.view), there = names_of(f.view);
    assert_u64(own.count, there.count, "node %llu", (unsigned long long)peer->node.epoch);
    for (size_t i = 0; i < there.count; i++) {
        struct view_inode mine, its = inode_of(&f, there.at[i].entry.ino);
        assert_u64(is_in(&own, &there.at[i]), true, "node %llu lacks %s",
                   (unsigned long long)peer->node.epoch, there.at[i].text);
        assert_u64(peer_has(peer, its.ino, &mine), true);
        assert_u64(mine.nlink, its.nlink);
        assert_u64(mine.version, its.version);
        assert_u64(mine.attrs.mode, its.attrs.mode);
        assert_u64(mine.attrs.size, its.attrs.size);
        assert_u64(mine.xattrs, its.xattrs);
    }
    assert_u64(view_state(peer->own.view).files, view_state(f.view).files);
    vector_free(&own);
    vector_free(&there);
    (void)t;
}

static void forget_all(struct peer *peer)
{
    struct view_inode inode;
    for (size_t i = 0; i < peer->count; i++)
        if (peer_has(peer, peer->inos[i], &inode) && inode.nlink == 0)
            peer_op(peer, (struct record){.type = REC_REAP, .ino = inode.ino});
}

/* What ends with a first taking is told, and gone with a second. */
void takers_expect_equal(struct takers *t)
{
    for (unsigned round = 0; round < 2; round++) {
        takers_merge(t);
        for (unsigned n = 0; n < TAKERS; n++)
            forget_all(&t->peers[n]);
        takers_merge(t);
        for (unsigned n = 0; n < TAKERS; n++)
            taker_take(t, &t->peers[n]);
    }
    takers_merge(t);
    for (unsigned n = 0; n < TAKERS; n++)
        expect_equal(t, &t->peers[n]);
}
