// SPDX-License-Identifier: Apache-2.0
/* What is no directory is in the union exactly as long as its node has it. */
#include "../expect.h"
#include "peers.h"

TestSuite(owned, .init = merge_setup, .fini = merge_teardown);

/* --- what its own node does ------------------------------------------------------------------- */

CheckedTest(owned, a_file_that_its_node_keeps_open, merge_expect_whole)
{
    uint64_t file = make_file(&one, ROOT_INO, "a"), other = make_file(&one, ROOT_INO, "b");
    remove_last(&one, file, ROOT_INO, "a");
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
CheckedTest(owned, a_replaced_file_that_its_node_keeps_open, merge_expect_whole)
{
    uint64_t file = make_file(&one, ROOT_INO, "a"), other = make_file(&two, ROOT_INO, "a");
    remove_last(&one, file, ROOT_INO, "a");
    assert_u64(inode_of(&f, file).nlink, 0);
    assert_u64(at("a"), other);
    reap(&one, file);
    expect_absent(file);
}

/* Its node has two names of it, and the union one, then none, then a new one. */
CheckedTest(owned, a_replaced_file_with_another_name, merge_expect_whole)
{
    uint64_t file = make_file(&one, ROOT_INO, "a");
    link_to(&one, file, ROOT_INO, "b");
    (void)make_file(&two, ROOT_INO, "a");
    assert_u64(inode_of(&f, file).nlink, 1);
    remove_name(&one, file, ROOT_INO, "b");
    assert_u64(inode_of(&f, file).nlink, 0);
    link_to(&one, file, ROOT_INO, "c");
    assert_u64(at("c"), file);
    remove_name(&one, file, ROOT_INO, "a");
    assert_u64(inode_of(&f, file).nlink, 1);
    remove_file(&one, file, ROOT_INO, "c");
    expect_absent(file);
    EXPECT_COUNT(refused, 1);
}

CheckedTest(owned, a_file_beside_a_directory_goes_with_its_name, merge_expect_whole)
{
    uint64_t file = make_file(&one, ROOT_INO, "x");
    link_to(&one, file, ROOT_INO, "y");
    (void)make_dir(&two, ROOT_INO, "x");
    assert_u64(at("x.cairn-1"), file);
    remove_name(&one, file, ROOT_INO, "x");
    assert_u64(at("x.cairn-1"), 0);
    assert_u64(at("y"), file);
    remove_file(&one, file, ROOT_INO, "y");
    expect_absent(file);
    EXPECT_COUNT(refused, 0);
}

/* It is where its node moved it from: that was not done. */
CheckedTest(owned, a_last_name_that_is_elsewhere, merge_expect_whole)
{
    uint64_t file = make_file(&one, ROOT_INO, "f"), theirs = make_dir(&two, ROOT_INO, "d");
    (void)make_file(&two, theirs, "f");
    uint64_t dir = make_dir(&one, ROOT_INO, "d");
    move(&one, file, 0, ROOT_INO, "f", dir, "f");
    assert_u64(at("f"), file);
    EXPECT_COUNT(refused, 1);
    remove_last(&one, file, dir, "f");
    assert_u64(at("f"), 0);
    assert_u64(inode_of(&f, file).nlink, 0);
    reap(&one, file);
    expect_absent(file);
}

/* Two nodes use one temporary name: each file that was moved from there has its new name. */
CheckedTest(owned, a_rename_from_a_name_that_another_node_took, merge_expect_whole)
{
    uint64_t old = make_file(&one, ROOT_INO, "latest"), new = make_file(&one, ROOT_INO, "tmp");
    (void)make_file(&two, ROOT_INO, "tmp");
    (void)merge_op(&one, (struct record){.type = REC_RENAME,
                                         .flags = RECORD_ORPHAN,
                                         .ino = new,
                                         .ino2 = old,
                                         .parent = ROOT_INO,
                                         .parent2 = ROOT_INO,
                                         NAMED("tmp"),
                                         .name2 = "latest",
                                         .name2_len = 6});
    EXPECT_COUNT(refused, 0);
    assert_u64(at("latest"), new);
    assert_u64(inode_of(&f, old).nlink, 0);
    reap(&one, old);
    expect_absent(old);
    remove_file(&one, new, ROOT_INO, "latest");
    expect_absent(new);
}

/* Both names that it could have are those of directories. */
CheckedTest(owned, a_file_that_finds_no_place, merge_expect_whole)
{
    (void)make_dir(&two, ROOT_INO, "x");
    (void)make_dir(&two, ROOT_INO, "x.cairn-1");
    uint64_t file = make_file(&one, ROOT_INO, "x");
    assert_u64(inode_of(&f, file).nlink, 0);
    write_file(&one, file, 2, 9);
    assert_u64(inode_of(&f, file).version, 2);
    EXPECT_COUNT(refused, 1);
    remove_file(&one, file, ROOT_INO, "x");
    expect_absent(file);
}

/* --- each node's own -------------------------------------------------------------------------- */

enum { NODES = 3, STEPS = 400, SEEDS = 12 };

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

static void merge_at_once(struct peer *peer, const struct record *rec)
{
    (void)merge_op(&peer->node, *rec);
}

static unsigned random_history(uint64_t seed)
{
    struct seeded seeded = {seed};
    struct peer *peers = xcalloc(NODES, sizeof *peers);
    unsigned lacking = 0, orphans = 0;
    for (unsigned n = 0; n < NODES; n++) {
        peer_open(&peers[n], n + 1);
        peers[n].tell = merge_at_once;
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
CheckedTest(owned, the_union_has_what_its_nodes_have, merge_expect_whole)
{
    uint64_t seed = test_number("CAIRN_TESTS_SEED", 1) * 1000;
    unsigned lacking = 0;
    for (unsigned i = 0; i < test_number("CAIRN_TESTS_HISTORIES", SEEDS); i++) {
        if (i > 0) {
            merge_expect_whole();
            merge_teardown();
            merge_setup();
        }
        lacking += random_history(seed + i);
    }
    cr_assert_gt(lacking, 100, "%u", lacking);
    cr_assert_gt(merge_counts(merge).refused, 10);
}
