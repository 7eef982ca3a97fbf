// SPDX-License-Identifier: Apache-2.0
/* What is no directory is in the union exactly as long as its node has it. */
#include "../expect.h"
#include "../base/seeded.h"
#include "merge_fixture.h"

TestSuite(owned, .init = merge_setup, .fini = merge_teardown);

static void remove_open(struct node *node, uint64_t ino, uint64_t parent, const char *name)
{
    (void)merge_op(
        node,
        (struct record){
            .type = REC_UNLINK, .flags = RECORD_ORPHAN, .ino = ino, .parent = parent, NAMED(name)});
}

Test(owned, a_file_that_its_node_keeps_open)
{
    uint64_t file = make_file(&one, ROOT_INO, "a"), other = make_file(&one, ROOT_INO, "b");
    remove_open(&one, file, ROOT_INO, "a");
    assert_u64(at("a"), 0);
    write_file(&one, file, 2, 9);
    assert_u64(inode_of(&f, file).version, 2);
    (void)merge_op(&one, (struct record){.type = REC_RENAME,
                                         .flags = RECORD_ORPHAN,
                                         .ino = make_file(&one, ROOT_INO, "tmp"),
                                         .ino2 = other,
                                         .parent = ROOT_INO,
                                         .parent2 = ROOT_INO,
                                         NAMED("tmp"),
                                         .name2 = "b",
                                         .name2_len = 1});
    assert_u64(inode_of(&f, other).nlink, 0);
    reap(&one, file);
    reap(&one, other);
    expect_absent(file);
    expect_absent(other);
    EXPECT_COUNT(refused, 0);
}

/* It has no name here already when its node removes its own. */
Test(owned, a_replaced_file_that_its_node_keeps_open)
{
    uint64_t file = make_file(&one, ROOT_INO, "a");
    (void)make_file(&two, ROOT_INO, "a");
    remove_open(&one, file, ROOT_INO, "a");
    assert_u64(inode_of(&f, file).nlink, 0);
    reap(&one, file);
    expect_absent(file);
}

/* Its node has two names of it, and the union one, then none. */
Test(owned, a_replaced_file_with_another_name)
{
    uint64_t file = make_file(&one, ROOT_INO, "a");
    link_to(&one, file, ROOT_INO, "b");
    (void)make_file(&two, ROOT_INO, "a");
    assert_u64(inode_of(&f, file).nlink, 1);
    remove_name(&one, file, ROOT_INO, "b");
    assert_u64(inode_of(&f, file).nlink, 0);
    link_to(&one, file, ROOT_INO, "c");
    assert_u64(at("c"), 0);
    remove_name(&one, file, ROOT_INO, "a");
    assert_u64(inode_of(&f, file).nlink, 0);
    remove_name(&one, file, ROOT_INO, "c");
    expect_absent(file);
    EXPECT_COUNT(refused, 1);
}

Test(owned, a_file_beside_a_directory_goes_with_its_name)
{
    uint64_t file = make_file(&one, ROOT_INO, "x"), other = make_file(&one, ROOT_INO, "other");
    link_to(&one, file, ROOT_INO, "y");
    (void)make_dir(&two, ROOT_INO, "x");
    assert_u64(at("x.cairn-1"), file);
    remove_name(&one, file, ROOT_INO, "x");
    assert_u64(at("x.cairn-1"), 0);
    assert_u64(at("y"), file);
    remove_name(&one, file, ROOT_INO, "y");
    expect_absent(file);
    uint64_t below = make_dir(&two, ROOT_INO, "d");
    (void)make_file(&two, below, "other");
    move(&one, other, 0, ROOT_INO, "other", make_dir(&one, ROOT_INO, "d"), "other");
    assert_u64(at("other"), other);
    remove_name(&one, other, below, "other");
    expect_absent(other);
    EXPECT_COUNT(refused, 1);
}

/* A rename that is not done still ends what it replaced. */
Test(owned, what_a_refused_rename_replaced)
{
    uint64_t old = make_file(&one, ROOT_INO, "latest"), new = make_file(&one, ROOT_INO, "tmp");
    (void)make_file(&two, ROOT_INO, "tmp");
    move(&one, new, old, ROOT_INO, "tmp", ROOT_INO, "latest");
    assert_u64(at("latest"), 0);
    expect_absent(old);
    assert_u64(inode_of(&f, new).nlink, 0);
    remove_name(&one, new, ROOT_INO, "latest");
    expect_absent(new);
    EXPECT_COUNT(refused, 1);
}

/* Both names that it could have are those of directories. */
Test(owned, a_file_that_finds_no_place)
{
    (void)make_dir(&two, ROOT_INO, "x");
    (void)make_dir(&two, ROOT_INO, "x.cairn-1");
    uint64_t file = make_file(&one, ROOT_INO, "x");
    assert_u64(inode_of(&f, file).nlink, 0);
    write_file(&one, file, 2, 9);
    assert_u64(inode_of(&f, file).version, 2);
    remove_name(&one, file, ROOT_INO, "x");
    expect_absent(file);
    EXPECT_COUNT(refused, 1);
}

/* --- each node's own -------------------------------------------------------------------------- */

enum { NODES = 3, STEPS = 400, SEEDS = 12, INOS_MAX = STEPS + 2 };

/* A node with a view of its own names, as a mount has them. */
struct peer {
    struct fixture own;
    struct node node;
    uint64_t inos[INOS_MAX];
    size_t count;
};

/* An operation of the node, in its own view and in the union. */
static void peer_op(struct peer *peer, struct record rec)
{
    struct record own = rec;
    if (own.cookie == 0)
        own.cookie = (peer->node.epoch << SEQ_EPOCH_SHIFT) + peer->node.ops + 1;
    (void)add(&peer->own, own);
    apply_ok(&peer->own);
    (void)merge_op(&peer->node, own);
}

static bool peer_has(struct peer *peer, uint64_t ino, struct view_inode *ret)
{
    return view_inode(peer->own.view, ino, ret) == 0;
}

/* A directory of the node's, often the root. */
static uint64_t peer_dir(struct peer *peer, struct seeded *seeded)
{
    struct view_inode inode;
    for (unsigned i = 0; i < 8; i++) {
        uint64_t ino = peer->inos[seeded_below(seeded, peer->count)];
        if (peer_has(peer, ino, &inode) && S_ISDIR(inode.attrs.mode) && inode.nlink > 0)
            return ino;
    }
    return ROOT_INO;
}

static uint64_t peer_file(struct peer *peer, struct seeded *seeded, struct view_inode *ret)
{
    for (unsigned i = 0; i < 8; i++) {
        uint64_t ino = peer->inos[seeded_below(seeded, peer->count)];
        if (peer_has(peer, ino, ret) && !S_ISDIR(ret->attrs.mode))
            return ino;
    }
    return 0;
}

static void peer_make(struct peer *peer, uint64_t parent, const char *name, unsigned kind)
{
    static const uint32_t modes[] = {S_IFDIR, S_IFREG, S_IFREG, S_IFREG, S_IFLNK, S_IFIFO};
    struct record rec = {.type = REC_MAKE,
                         .ino = new_ino(&peer->node),
                         .parent = parent,
                         .attrs = {.mode = modes[kind] | 0700},
                         NAMED(name)};
    if (S_ISREG(rec.attrs.mode)) {
        rec.type = REC_VERSION;
        rec.flags = RECORD_BIRTH;
        rec.version = 1;
    }
    if (S_ISLNK(rec.attrs.mode)) {
        rec.value = "target";
        rec.value_len = 6;
    }
    peer_op(peer, rec);
    peer->inos[peer->count++] = rec.ino;
}

/* The last name of a file may go while the file is open. */
static uint32_t peer_keeps(struct peer *peer, struct seeded *seeded, uint64_t ino)
{
    struct view_inode inode;
    bool may = peer_has(peer, ino, &inode) && !S_ISDIR(inode.attrs.mode) && inode.nlink == 1;
    return may && seeded_below(seeded, 3) == 0 ? RECORD_ORPHAN : 0;
}

static bool peer_is_empty(struct peer *peer, uint64_t ino)
{
    struct view_inode inode;
    if (!peer_has(peer, ino, &inode) || !S_ISDIR(inode.attrs.mode))
        return true;
    for (const char *const *name = (const char *const[]){"a", "b", "c", NULL}; *name; name++)
        if (lookup(&peer->own, ino, *name))
            return false;
    return true;
}

static bool peer_is_below(struct peer *peer, uint64_t dir, uint64_t above)
{
    struct view_inode inode;
    for (; dir != above && dir != ROOT_INO; dir = inode.parent)
        cr_assert(peer_has(peer, dir, &inode));
    return dir == above;
}

static void peer_move(struct peer *peer, struct seeded *seeded, uint64_t parent, const char *name,
                      uint64_t parent2, const char *name2)
{
    struct view_entry from, to = {0};
    assert_i64(view_lookup(peer->own.view, parent, name, 1, &from), 0);
    if (view_lookup(peer->own.view, parent2, name2, 1, &to) < 0)
        to.ino = 0;
    bool exchanges = to.ino && seeded_below(seeded, 3) == 0;
    if (to.ino == from.ino || (S_ISDIR(from.type) && peer_is_below(peer, parent2, from.ino)) ||
        (exchanges && S_ISDIR(to.type) && peer_is_below(peer, parent, to.ino)))
        return;
    if (!exchanges && to.ino &&
        (S_ISDIR(to.type) != S_ISDIR(from.type) || !peer_is_empty(peer, to.ino)))
        return;
    peer_op(peer, (struct record){.type = REC_RENAME,
                                  .flags = exchanges ? RECORD_EXCHANGE
                                           : to.ino  ? peer_keeps(peer, seeded, to.ino)
                                                     : 0,
                                  .ino = from.ino,
                                  .ino2 = to.ino,
                                  .parent = parent,
                                  .parent2 = parent2,
                                  .cookie = to.cookie,
                                  .cookie2 = exchanges ? from.cookie : 0,
                                  .name = name,
                                  .name_len = 1,
                                  .name2 = name2,
                                  .name2_len = 1});
}

static void peer_change(struct peer *peer, struct seeded *seeded)
{
    struct view_inode inode;
    uint64_t ino = peer_file(peer, seeded, &inode);
    if (!ino)
        return;
    if (S_ISREG(inode.attrs.mode) && seeded_below(seeded, 2) == 0)
        peer_op(peer, (struct record){.type = REC_VERSION,
                                      .ino = ino,
                                      .version = inode.version + 1,
                                      .attrs = {.mode = S_IFREG | 0600, .size = peer->node.ops}});
    else if (inode.nlink == 0)
        peer_op(peer, (struct record){.type = REC_REAP, .ino = ino});
    else
        peer_op(peer, (struct record){.type = REC_SETXATTR,
                                      .ino = ino,
                                      NAMED("user.x"),
                                      .value = &peer->node.ops,
                                      .value_len = 8});
}

static void peer_step(struct peer *peer, struct seeded *seeded)
{
    static const char *const names[] = {"a", "b", "c"};
    struct view_inode inode;
    uint64_t dir = peer_dir(peer, seeded), dir2 = peer_dir(peer, seeded), ino;
    const char *name = names[seeded_below(seeded, 3)], *name2 = names[seeded_below(seeded, 3)];
    uint64_t there = lookup(&peer->own, dir, name);
    switch (seeded_below(seeded, 6)) {
    case 0:
    case 1:
        if (!there)
            peer_make(peer, dir, name, (unsigned)seeded_below(seeded, 6));
        break;
    case 2:
        if (there && peer_is_empty(peer, there))
            peer_op(peer, (struct record){.type = REC_UNLINK,
                                          .flags = peer_keeps(peer, seeded, there),
                                          .ino = there,
                                          .parent = dir,
                                          NAMED(name)});
        break;
    case 3:
        if (there)
            peer_move(peer, seeded, dir, name, dir2, name2);
        break;
    case 4:
        ino = peer_file(peer, seeded, &inode);
        if (!there && ino && inode.nlink > 0)
            peer_op(peer,
                    (struct record){.type = REC_LINK, .ino = ino, .parent = dir, NAMED(name)});
        break;
    default:
        peer_change(peer, seeded);
    }
}

/* What is no directory is in the union as its node has it; returns how many of those have fewer
 * names there. */
static unsigned expect_owned(struct peer *peers, const char *when, uint64_t number)
{
    unsigned lacking = 0;
    for (unsigned n = 0; n < NODES; n++)
        for (size_t i = 0; i < peers[n].count; i++) {
            struct view_inode own, there;
            uint64_t ino = peers[n].inos[i];
            bool has = peer_has(&peers[n], ino, &own);
            int r = view_inode(f.view, ino, &there);
            if (r == 0 ? S_ISDIR(there.attrs.mode) : has && S_ISDIR(own.attrs.mode))
                continue;
            assert_i64(r, has ? 0 : -ENOENT, "%s %llu: %llu", when, (unsigned long long)number,
                       (unsigned long long)ino);
            if (!has)
                continue;
            assert_u64(there.version, own.version);
            assert_u64(there.attrs.mode, own.attrs.mode);
            assert_u64(there.attrs.size, own.attrs.size);
            assert_u64(there.xattrs, own.xattrs);
            lacking += there.nlink < own.nlink;
        }
    return lacking;
}

/* Each node removes all that it has: nothing of it is left. */
static void peer_end(struct peer *peer)
{
    struct view_inode inode;
    for (size_t i = 0; i < peer->count; i++)
        for (const char *const *name = (const char *const[]){"a", "b", "c", NULL}; *name; name++) {
            uint64_t dir = peer->inos[i], ino = lookup(&peer->own, dir, *name);
            if (ino && peer_has(peer, ino, &inode) && !S_ISDIR(inode.attrs.mode))
                peer_op(peer, (struct record){
                                  .type = REC_UNLINK, .ino = ino, .parent = dir, NAMED(*name)});
        }
    for (size_t i = 0; i < peer->count; i++)
        if (peer_has(peer, peer->inos[i], &inode) && inode.nlink == 0)
            peer_op(peer, (struct record){.type = REC_REAP, .ino = inode.ino});
}

static int count_one(uint64_t ino, void *arg)
{
    (void)ino;
    (*(unsigned *)arg)++;
    return 0;
}

static unsigned random_history(uint64_t seed)
{
    struct seeded seeded = {seed};
    struct peer *peers = xcalloc(NODES, sizeof *peers);
    unsigned lacking = 0, orphans = 0;
    for (unsigned n = 0; n < NODES; n++) {
        fixture_open(&peers[n].own);
        peers[n].node.epoch = n + 1;
        peers[n].inos[peers[n].count++] = ROOT_INO;
    }
    for (unsigned step = 0; step < STEPS; step++) {
        peer_step(&peers[seeded_below(&seeded, NODES)], &seeded);
        if (step % 8 == 0)
            lacking += expect_owned(peers, "step", step);
    }
    expect_check_ok(f.view);
    for (unsigned n = 0; n < NODES; n++) {
        peer_end(&peers[n]);
        (void)expect_owned(peers, "without node", n + 1);
    }
    assert_u64(view_state(f.view).files, 0);
    assert_i64(view_orphans(f.view, count_one, &orphans), 0);
    assert_u64(orphans, 0);
    for (unsigned n = 0; n < NODES; n++) {
        for (size_t i = 0; i < peers[n].count; i++) {
            struct view_stand_in left;
            int r = view_stand_in(f.view, peers[n].inos[i], &left);
            assert_i64(r == 0 && !S_ISDIR(left.mode) && left.ino == 0, 0);
        }
        fixture_close(&peers[n].own);
    }
    free(peers);
    return lacking;
}

/* Three nodes, few names, and each does what it may: files, links, renames, open files. */
Test(owned, the_union_has_what_its_nodes_have)
{
    uint64_t seed = test_number("CAIRN_TESTS_SEED", 1) * 1000;
    unsigned lacking = 0;
    for (unsigned i = 0; i < test_number("CAIRN_TESTS_HISTORIES", SEEDS); i++) {
        if (i > 0) {
            merge_teardown();
            merge_setup();
        }
        lacking += random_history(seed + i);
    }
    cr_assert_gt(lacking, 100, "%u", lacking);
    cr_assert_gt(merge_counts(merge).refused, 10);
}
