// SPDX-License-Identifier: Apache-2.0
/* Nodes take the union's names, and change files of each other. */
#include "../expect.h"
#include "taking.h"

TestSuite(taken, .init = merge_setup, .fini = merge_teardown);

enum { STEPS = 400, SEEDS = 12 };

/* --- rules ------------------------------------------------------------------------------------ */

static uint32_t links(uint64_t ino)
{
    return inode_of(&f, ino).nlink;
}

/* It stays until its owner tells its end, which that does when it takes this. */
CheckedTest(taken, another_node_removes_a_file, merge_expect_whole)
{
    uint64_t file = make_file(&one, ROOT_INO, "a");
    remove_file(&two, file, ROOT_INO, "a");
    assert_u64(at("a"), 0);
    assert_u64(links(file), 0);
    EXPECT_COUNT(refused, 0);
    reap(&one, file);
    expect_absent(file);
}

CheckedTest(taken, another_node_removes_one_of_two_names, merge_expect_whole)
{
    uint64_t file = make_file(&one, ROOT_INO, "a");
    link_to(&one, file, ROOT_INO, "b");
    remove_file(&two, file, ROOT_INO, "a"); /* it had not seen b */
    assert_u64(at("a"), 0);
    assert_u64(at("b"), file);
    remove_file(&one, file, ROOT_INO, "b");
    expect_absent(file);
    EXPECT_COUNT(refused, 0);
}

CheckedTest(taken, another_node_removes_what_is_not_there_any_more, merge_expect_whole)
{
    uint64_t file = make_file(&one, ROOT_INO, "a"), other = make_file(&one, ROOT_INO, "b");
    remove_file(&two, file, ROOT_INO, "b");
    remove_file(&two, file, ROOT_INO, "c");
    assert_u64(at("a"), file);
    assert_u64(at("b"), other);
    EXPECT_COUNT(refused, 2);
}

CheckedTest(taken, another_node_removes_by_the_directory_that_it_made, merge_expect_whole)
{
    uint64_t first = make_dir(&one, ROOT_INO, "d"), second = make_dir(&two, ROOT_INO, "d");
    uint64_t file = make_file(&one, first, "a");
    remove_file(&two, file, second, "a");
    assert_u64(at("d/a"), 0);
    assert_u64(links(file), 0);
    EXPECT_COUNT(refused, 0);
}

CheckedTest(taken, another_node_removes_a_file_that_went_aside, merge_expect_whole)
{
    uint64_t file = make_file(&one, ROOT_INO, "x");
    (void)make_dir(&three, ROOT_INO, "x");
    assert_u64(at("x.cairn-1"), file);
    remove_file(&two, file, ROOT_INO, "x");
    assert_u64(at("x.cairn-1"), 0);
    assert_u64(links(file), 0);
}

/* Two remove it at once, also where a third one made another file of the name in between. */
CheckedTest(taken, two_other_nodes_remove_one_name, merge_expect_whole)
{
    uint64_t file = make_file(&one, ROOT_INO, "a"), other = make_file(&one, ROOT_INO, "b");
    remove_file(&two, file, ROOT_INO, "a");
    remove_file(&three, file, ROOT_INO, "a");
    remove_file(&two, other, ROOT_INO, "b");
    uint64_t newer = make_file(&two, ROOT_INO, "b");
    remove_file(&three, other, ROOT_INO, "b");
    assert_u64(at("b"), newer);
    assert_u64(links(file), 0);
    assert_u64(links(other), 0);
    EXPECT_COUNT(refused, 2);
}

CheckedTest(taken, only_the_owner_ends_it_and_writes_to_it, merge_expect_whole)
{
    uint64_t file = make_file(&one, ROOT_INO, "a");
    reap(&two, file);
    write_file(&two, file, 2, 77);
    assert_u64(at("a"), file);
    assert_u64(inode_of(&f, file).version, 1);
    EXPECT_COUNT(refused, 1);
    (void)merge_op(&two, (struct record){.type = REC_REAP, .ino = file});
    assert_u64(at("a"), file);
}

CheckedTest(taken, another_node_sets_attributes, merge_expect_whole)
{
    uint64_t file = make_file(&one, ROOT_INO, "a");
    (void)merge_op(
        &two, (struct record){
                  .type = REC_SETATTR, .ino = file, .mask = ATTR_MODE, .attrs = {.mode = 0400}});
    (void)merge_op(
        &two,
        (struct record){
            .type = REC_SETXATTR, .ino = file, NAMED("user.a"), .value = "v", .value_len = 1});
    assert_u64(inode_of(&f, file).attrs.mode, S_IFREG | 0400);
    assert_u64(inode_of(&f, file).xattrs, 1);
    EXPECT_COUNT(refused, 0);
}

CheckedTest(taken, a_rename_over_another_nodes_file, merge_expect_whole)
{
    uint64_t old = make_file(&one, ROOT_INO, "latest"), new = make_file(&two, ROOT_INO, "tmp");
    move_over(&two, new, old, ROOT_INO, "tmp", ROOT_INO, "latest");
    assert_u64(at("latest"), new);
    assert_u64(links(old), 0);
    EXPECT_COUNT(refused, 0);
    reap(&one, old);
    expect_absent(old);
}

/* Its source had lost its name, which it did not know: it has the new name all the same. */
CheckedTest(taken, a_rename_of_what_another_node_removed, merge_expect_whole)
{
    uint64_t old = make_file(&one, ROOT_INO, "latest"), new = make_file(&two, ROOT_INO, "tmp");
    link_to(&one, old, ROOT_INO, "too");
    remove_file(&three, new, ROOT_INO, "tmp");
    move_over(&two, new, old, ROOT_INO, "tmp", ROOT_INO, "latest");
    assert_u64(at("latest"), new);
    assert_u64(at("too"), old);
    EXPECT_COUNT(refused, 0);
}

CheckedTest(taken, a_rename_of_another_nodes_file, merge_expect_whole)
{
    uint64_t file = make_file(&one, ROOT_INO, "a"), dir = make_dir(&two, ROOT_INO, "d");
    move(&two, file, 0, ROOT_INO, "a", dir, "b");
    assert_u64(at("d/b"), file);
    move(&two, file, 0, ROOT_INO, "a", dir, "c"); /* gone */
    uint64_t newer = make_file(&three, ROOT_INO, "a");
    move(&two, file, 0, ROOT_INO, "a", dir, "c"); /* another file */
    assert_u64(at("d/b"), file);
    assert_u64(at("a"), newer);
    EXPECT_COUNT(refused, 2);
}

CheckedTest(taken, an_exchange_of_files_of_two_nodes, merge_expect_whole)
{
    uint64_t a = make_file(&one, ROOT_INO, "a"), b = make_file(&two, ROOT_INO, "b");
    struct record rec = {.type = REC_RENAME,
                         .flags = RECORD_EXCHANGE,
                         .ino = a,
                         .ino2 = b,
                         .parent = ROOT_INO,
                         .parent2 = ROOT_INO,
                         NAMED("a"),
                         .name2 = "b",
                         .name2_len = 1};
    (void)merge_op(&three, rec);
    assert_u64(at("a"), b);
    assert_u64(at("b"), a);
    remove_file(&one, a, ROOT_INO, "a"); /* as it was */
    assert_u64(at("a"), b);
    expect_absent(a);
}

/* The owner took the link: each name goes by itself, and the file with the last. */
CheckedTest(taken, a_link_to_another_nodes_file, merge_expect_whole)
{
    uint64_t file = make_file(&one, ROOT_INO, "a"), over = make_file(&three, ROOT_INO, "b");
    link_to(&two, file, ROOT_INO, "b");
    assert_u64(at("b"), file);
    assert_u64(links(file), 2);
    assert_u64(links(over), 0);
    remove_name(&one, file, ROOT_INO, "a");
    assert_u64(at("b"), file);
    remove_file(&one, file, ROOT_INO, "b");
    expect_absent(file);
    EXPECT_COUNT(refused, 0);
}

CheckedTest(taken, a_link_that_its_maker_removes_again, merge_expect_whole)
{
    uint64_t file = make_file(&one, ROOT_INO, "a");
    link_to(&two, file, ROOT_INO, "b");
    remove_name(&two, file, ROOT_INO, "b");
    assert_u64(at("a"), file);
    remove_file(&one, file, ROOT_INO, "a");
    expect_absent(file);
}

/* Its content is about to go, so all names do, wherever they are. */
CheckedTest(taken, links_that_the_owner_did_not_take, merge_expect_whole)
{
    uint64_t file = make_file(&one, ROOT_INO, "a"), dir = make_dir(&two, ROOT_INO, "d");
    link_to(&two, file, dir, "b");
    link_to(&three, file, make_dir(&three, dir, "e"), "c");
    remove_last(&one, file, ROOT_INO, "a");
    assert_u64(at("d/b"), 0);
    assert_u64(at("d/e/c"), 0);
    link_to(&two, file, dir, "late");
    assert_u64(links(file), 0);
    EXPECT_COUNT(refused, 1);
    reap(&one, file);
    expect_absent(file);
}

/* --- at the same time ------------------------------------------------------------------------- */

struct script {
    uint64_t file, other; /* a, b: of node one */
    bool is_open;         /* node one keeps what it removes */
};

static void two_removes(struct script *s)
{
    remove_file(&two, s->file, ROOT_INO, "a");
}

static void two_moves(struct script *s)
{
    move(&two, s->file, 0, ROOT_INO, "a", ROOT_INO, "moved");
}

static void two_links(struct script *s)
{
    link_to(&two, s->file, ROOT_INO, "linked");
}

static void two_replaces(struct script *s)
{
    uint64_t new = make_file(&two, ROOT_INO, "tmp");
    move_over(&two, new, s->file, ROOT_INO, "tmp", ROOT_INO, "a");
}

static void one_removes(struct script *s)
{
    remove_last(&one, s->file, ROOT_INO, "a");
    if (!s->is_open)
        reap(&one, s->file);
}

static void one_moves(struct script *s)
{
    move(&one, s->file, 0, ROOT_INO, "a", ROOT_INO, "own");
}

static void one_moves_over(struct script *s)
{
    move_over(&one, s->file, s->other, ROOT_INO, "a", ROOT_INO, "b");
}

static void one_replaces(struct script *s)
{
    move_over(&one, s->other, s->file, ROOT_INO, "b", ROOT_INO, "a");
}

static void one_links(struct script *s)
{
    link_to(&one, s->file, ROOT_INO, "own");
}

static void one_writes(struct script *s)
{
    write_file(&one, s->file, 2, 77);
}

/* Where the file and the other one are, in which order the two nodes did it. NULL: nowhere; "":
 * the inode is gone. */
struct both {
    void (*mine)(struct script *s), (*theirs)(struct script *s);
    struct outcome {
        const char *file, *also, *other;
    } mine_first, theirs_first;
};

static const struct both all_both[] = {
    {one_removes, two_removes, {"", NULL, "b"}, {"", NULL, "b"}},
    {one_removes, two_moves, {"", NULL, "b"}, {"", NULL, "b"}},
    {one_removes, two_links, {"", NULL, "b"}, {"", NULL, "b"}},
    {one_removes, two_replaces, {"", NULL, "b"}, {"", NULL, "b"}},
    {one_moves, two_removes, {"own", NULL, "b"}, {"own", NULL, "b"}},
    {one_moves, two_moves, {"own", NULL, "b"}, {"moved", NULL, "b"}},
    {one_moves, two_links, {"own", "linked", "b"}, {"own", "linked", "b"}},
    {one_moves, two_replaces, {"own", NULL, "b"}, {"own", NULL, "b"}},
    {one_moves_over, two_removes, {"b", NULL, ""}, {"b", NULL, ""}},
    {one_moves_over, two_moves, {"b", NULL, ""}, {"moved", NULL, ""}},
    {one_moves_over, two_links, {"b", "linked", ""}, {"b", "linked", ""}},
    {one_replaces, two_removes, {"", NULL, "a"}, {"", NULL, "a"}},
    {one_replaces, two_moves, {"", NULL, "a"}, {"", NULL, "a"}},
    {one_replaces, two_links, {"", NULL, "a"}, {"", NULL, "a"}},
    {one_replaces, two_replaces, {"", NULL, "a"}, {"", NULL, "b"}},
    {one_links, two_removes, {"own", NULL, "b"}, {"own", NULL, "b"}},
    {one_links, two_moves, {"moved", "own", "b"}, {"moved", "own", "b"}},
    {one_links, two_links, {"a", "own", "b"}, {"a", "own", "b"}},
    {one_links, two_replaces, {"own", NULL, "b"}, {"own", NULL, "b"}},
    {one_writes, two_removes, {NULL, NULL, "b"}, {NULL, NULL, "b"}},
    {one_writes, two_moves, {"moved", NULL, "b"}, {"moved", NULL, "b"}},
    {one_writes, two_links, {"a", "linked", "b"}, {"a", "linked", "b"}},
    {one_writes, two_replaces, {NULL, NULL, "b"}, {NULL, NULL, "b"}},
};

static void expect_at(const char *path, uint64_t ino, unsigned i)
{
    if (!path)
        assert_u64(links(ino), 0, "%u", i);
    else if (*path)
        assert_u64(at(path), ino, "%u: %s", i, path);
    else
        expect_absent(ino);
}

static void try_both(unsigned i, bool mine_first, bool is_open)
{
    const struct both *both = &all_both[i];
    struct script s = {make_file(&one, ROOT_INO, "a"), make_file(&one, ROOT_INO, "b"), is_open};
    struct outcome wanted = mine_first ? both->mine_first : both->theirs_first;
    (mine_first ? both->mine : both->theirs)(&s);
    (mine_first ? both->theirs : both->mine)(&s);
    if (is_open && both->mine == one_removes)
        wanted.file = NULL;
    expect_at(wanted.file, s.file, i);
    expect_at(wanted.other, s.other, i);
    if (wanted.also)
        expect_at(wanted.also, s.file, i);
    if (both->mine == one_writes)
        assert_u64(inode_of(&f, s.file).version, 2, "%u", i);
}

CheckedTest(taken, both_at_once, merge_expect_whole)
{
    for (unsigned i = 0; i < 4 * sizeof all_both / sizeof *all_both; i++) {
        if (i > 0) {
            merge_expect_whole();
            merge_teardown();
            merge_setup();
        }
        try_both(i / 4, i % 2, i / 2 % 2);
    }
}

/* --- histories -------------------------------------------------------------------------------- */

/* What is no directory is in the union exactly if its owner has it. */
static void expect_owned(struct takers *t, unsigned step)
{
    for (unsigned n = 0; n < TAKERS; n++)
        for (size_t i = 0; i < t->peers[n].count; i++) {
            struct view_inode own, there;
            uint64_t ino = t->peers[n].inos[i];
            if (!peer_owns(&t->peers[n], ino))
                continue;
            bool has = peer_has(&t->peers[n], ino, &own);
            int r = view_inode(f.view, ino, &there);
            if (r == 0 ? S_ISDIR(there.attrs.mode) : has && S_ISDIR(own.attrs.mode))
                continue;
            assert_i64(r, has ? 0 : -ENOENT, "step %u: %llx", step, (unsigned long long)ino);
            if (!has)
                continue;
            assert_u64(there.version, own.version);
            assert_u64(there.attrs.size, own.attrs.size);
        }
}

static void remove_all(struct takers *t)
{
    unsigned orphans = 0;
    for (unsigned n = 0; n < TAKERS; n++)
        peer_end(&t->peers[n]);
    takers_expect_equal(t);
    assert_u64(view_state(f.view).files, 0);
    assert_i64(view_orphans(f.view, count_one, &orphans), 0);
    assert_u64(orphans, 0);
}

static unsigned random_history(uint64_t seed)
{
    struct takers *t = xcalloc(1, sizeof *t);
    takers_begin(t, seed);
    for (unsigned step = 0; step < STEPS; step++) {
        struct peer *peer = &t->peers[seeded_below(&t->seeded, TAKERS)];
        switch (seeded_below(&t->seeded, 12)) {
        case 0:
            takers_merge(t);
            expect_owned(t, step);
            break;
        case 1:
            taker_take(t, peer);
            break;
        default:
            peer_step(peer, &t->seeded);
        }
    }
    takers_expect_equal(t);
    expect_owned(t, STEPS);
    expect_check_ok(f.view);
    for (unsigned n = 0; n < TAKERS; n++)
        expect_check_ok(t->peers[n].own.view);
    unsigned early = t->taken_early;
    remove_all(t);
    takers_end(t);
    free(t);
    return early;
}

CheckedTest(taken, all_have_the_same_in_the_end, merge_expect_whole)
{
    uint64_t seed = test_number("CAIRN_TESTS_SEED", 1) * 1000;
    unsigned early = 0;
    for (unsigned i = 0; i < test_number("CAIRN_TESTS_HISTORIES", SEEDS); i++) {
        if (i > 0) {
            merge_expect_whole();
            merge_teardown();
            merge_setup();
        }
        early += random_history(seed + i);
    }
    cr_assert_gt(early, 20, "%u", early);
    cr_assert_gt(merge_counts(merge).refused, 10);
}
