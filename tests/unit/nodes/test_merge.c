// SPDX-License-Identifier: Apache-2.0
#include "../expect.h"
#include "../base/seeded.h"
#include "merge_fixture.h"

TestSuite(merge, .init = merge_setup, .fini = merge_teardown);

/* --- rules ------------------------------------------------------------------------------------ */

CheckedTest(merge, one_node_alone, merge_expect_whole)
{
    uint64_t dir = make_dir(&one, ROOT_INO, "step1"), file = make_file(&one, dir, "shard");
    write_file(&one, file, 2, 9);
    move(&one, dir, 0, ROOT_INO, "step1", ROOT_INO, "step2");
    assert_u64(at("step2/shard"), file);
    assert_u64(inode_of(&f, file).version, 2);
    assert_u64(inode_of(&f, file).attrs.size, 9);
    remove_file(&one, file, dir, "shard");
    expect_absent(file);
    remove_last(&one, dir, ROOT_INO, "step2");
    reap(&one, dir);
    assert_u64(at("step2"), 0);
    EXPECT_COUNT(refused, 0);
    EXPECT_COUNT(done, 8);
}

CheckedTest(merge, two_make_one_directory, merge_expect_whole)
{
    uint64_t first = make_dir(&one, ROOT_INO, "step1"), second = make_dir(&two, ROOT_INO, "step1");
    uint64_t a = make_file(&one, first, "shard0"), b = make_file(&two, second, "shard1");
    uint64_t deeper = make_dir(&two, make_dir(&two, second, "a"), "b");
    uint64_t c = make_file(&two, deeper, "c");
    assert_u64(at("step1"), first);
    assert_u64(at("step1/shard0"), a);
    assert_u64(at("step1/shard1"), b);
    assert_u64(at("step1/a/b/c"), c);
    assert_u64(inode_of(&f, first).attrs.uid, 7);
    EXPECT_COUNT(joined, 1);
    EXPECT_COUNT(refused, 0);
}

/* Each node ends with its own, and the last one takes the directory with it. */
CheckedTest(merge, rmdir_of_a_directory_of_both, merge_expect_whole)
{
    uint64_t first = make_dir(&one, ROOT_INO, "step1"), second = make_dir(&two, ROOT_INO, "step1");
    uint64_t a = make_file(&one, first, "shard0"), b = make_file(&two, second, "shard1");
    remove_file(&one, a, first, "shard0");
    remove_name(&one, first, ROOT_INO, "step1");
    assert_u64(at("step1/shard1"), b);
    EXPECT_COUNT(refused, 1);
    remove_file(&two, b, second, "shard1");
    remove_name(&two, second, ROOT_INO, "step1");
    assert_u64(at("step1"), 0);
    EXPECT_COUNT(refused, 1);
}

CheckedTest(merge, a_directory_comes_back_for_what_is_made_in_it, merge_expect_whole)
{
    uint64_t first = make_dir(&one, ROOT_INO, "run"), second = make_dir(&two, ROOT_INO, "run");
    uint64_t below = make_dir(&two, second, "step1");
    remove_name(&two, below, second, "step1");
    remove_name(&one, first, ROOT_INO, "run");
    assert_u64(at("run"), 0);
    uint64_t file = make_file(&two, make_dir(&two, second, "step2"), "shard");
    assert_u64(at("run/step2/shard"), file);
    assert_u64(inode_of(&f, at("run")).attrs.mode, S_IFDIR | 0750);
    assert_u64(inode_of(&f, at("run")).attrs.uid, 7);
    EXPECT_COUNT(revived, 1);
    remove_name(&one, first, ROOT_INO, "run");
    assert_u64(at("run/step2/shard"), file);
}

CheckedTest(merge, directories_come_back_with_all_above_them, merge_expect_whole)
{
    uint64_t a = make_dir(&one, ROOT_INO, "a"), b = make_dir(&one, a, "b"),
             c = make_dir(&one, b, "c");
    uint64_t a2 = make_dir(&two, ROOT_INO, "a"), b2 = make_dir(&two, a2, "b");
    uint64_t c2 = make_dir(&two, b2, "c");
    remove_name(&one, c, b, "c");
    remove_name(&one, b, a, "b");
    remove_name(&one, a, ROOT_INO, "a");
    uint64_t file = make_file(&two, c2, "file");
    assert_u64(at("a/b/c/file"), file);
    EXPECT_COUNT(revived, 3);
}

/* What has the name by now is the directory. */
CheckedTest(merge, a_directory_that_would_come_back_joins_its_successor, merge_expect_whole)
{
    uint64_t first = make_dir(&one, ROOT_INO, "run"), second = make_dir(&two, ROOT_INO, "run");
    remove_name(&one, first, ROOT_INO, "run");
    uint64_t again = make_dir(&one, ROOT_INO, "run"), file = make_file(&two, second, "shard");
    assert_u64(at("run"), again);
    assert_u64(at("run/shard"), file);
    EXPECT_COUNT(joined, 2);
    EXPECT_COUNT(revived, 0);
}

/* The first one's node goes on with what has no name here, until it has it no more. */
CheckedTest(merge, two_make_one_file, merge_expect_whole)
{
    uint64_t first = make_file(&one, ROOT_INO, "latest"),
             second = make_file(&two, ROOT_INO, "latest");
    assert_u64(at("latest"), second);
    write_file(&one, first, 2, 77);
    assert_u64(at("latest"), second);
    assert_u64(inode_of(&f, first).version, 2);
    assert_u64(inode_of(&f, first).nlink, 0);
    assert_u64(view_state(f.view).logical_bytes, 5);
    remove_file(&one, first, ROOT_INO, "latest");
    expect_absent(first);
    assert_u64(at("latest"), second);
    EXPECT_COUNT(replaced, 1);
    EXPECT_COUNT(refused, 1);
}

CheckedTest(merge, the_newest_version_stays, merge_expect_whole)
{
    uint64_t file = make_file(&one, ROOT_INO, "a");
    write_file(&one, file, 3, 30);
    write_file(&one, file, 3, 31);
    write_file(&one, file, 2, 20);
    assert_u64(inode_of(&f, file).attrs.size, 30);
    EXPECT_COUNT(refused, 2);
}

CheckedTest(merge, a_directory_wins_over_a_file, merge_expect_whole)
{
    uint64_t file = make_file(&one, ROOT_INO, "x"), dir = make_dir(&two, ROOT_INO, "x");
    assert_u64(at("x"), dir);
    assert_u64(at("x.cairn-1"), file);
    uint64_t later = make_file(&one, ROOT_INO, "y");
    (void)make_dir(&two, ROOT_INO, "z");
    uint64_t beside = make_file(&one, ROOT_INO, "z");
    assert_u64(at("y"), later);
    assert_u64(at("z.cairn-1"), beside);
    EXPECT_COUNT(renamed, 2);
}

CheckedTest(merge, a_long_name_beside_a_directory, merge_expect_whole)
{
    char name[NAME_LEN_MAX + 1];
    memset(name, 'n', NAME_LEN_MAX);
    name[NAME_LEN_MAX] = '\0';
    uint64_t dir = make_dir(&two, ROOT_INO, name), file = make_file(&one, ROOT_INO, name);
    assert_u64(at(name), dir);
    strcpy(name + NAME_LEN_MAX - 15, ".cairn-1");
    assert_u64(at(name), file);
}

CheckedTest(merge, rename_onto_what_the_node_did_not_know, merge_expect_whole)
{
    uint64_t theirs = make_file(&two, ROOT_INO, "latest"), mine = make_file(&one, ROOT_INO, "tmp");
    move(&one, mine, 0, ROOT_INO, "tmp", ROOT_INO, "latest");
    assert_u64(at("latest"), theirs);
    assert_u64(at("tmp"), mine);
    EXPECT_COUNT(refused, 1);
}

CheckedTest(merge, rename_over_its_own, merge_expect_whole)
{
    uint64_t old = make_file(&one, ROOT_INO, "latest"), new = make_file(&one, ROOT_INO, "tmp");
    move_over(&one, new, old, ROOT_INO, "tmp", ROOT_INO, "latest");
    assert_u64(at("latest"), new);
    assert_u64(at("tmp"), 0);
    expect_absent(old);
    EXPECT_COUNT(refused, 0);
}

/* Its place in the directory is the node's to give, unless another name still has it: that of x,
 * which its node moved to y, and there exchanged with t. */
CheckedTest(merge, places_in_a_directory_stay_unique, merge_expect_whole)
{
    uint64_t x = make_file(&one, ROOT_INO, "x"), theirs = make_file(&two, ROOT_INO, "y");
    uint64_t dir = make_dir(&one, ROOT_INO, "d"), t = make_file(&one, dir, "t");
    struct view_entry entry;
    assert_i64(view_lookup(f.view, ROOT_INO, "x", 1, &entry), 0);
    struct record rec = {.type = REC_RENAME,
                         .ino = x,
                         .parent = ROOT_INO,
                         .parent2 = ROOT_INO,
                         .cookie = entry.cookie,
                         NAMED("x"),
                         .name2 = "y",
                         .name2_len = 1};
    (void)merge_op(&one, rec);
    rec.flags = RECORD_EXCHANGE;
    rec.ino2 = t;
    rec.parent2 = dir;
    rec.name = "y";
    rec.name2 = "t";
    (void)merge_op(&one, rec);
    EXPECT_COUNT(refused, 2);
    remove_name(&two, theirs, ROOT_INO, "y");
    rec = (struct record){.type = REC_RENAME,
                          .flags = RECORD_ORPHAN,
                          .ino = make_file(&one, ROOT_INO, "u"),
                          .ino2 = t,
                          .parent = ROOT_INO,
                          .parent2 = ROOT_INO,
                          .cookie = entry.cookie,
                          NAMED("u"),
                          .name2 = "y",
                          .name2_len = 1};
    (void)merge_op(&one, rec);
    assert_u64(at("x"), x);
    assert_u64(at("y"), rec.ino);
    assert_u64(inode_of(&f, t).nlink, 0);
    EXPECT_COUNT(refused, 2);
}

CheckedTest(merge, rename_of_a_directory_of_both, merge_expect_whole)
{
    uint64_t first = make_dir(&one, ROOT_INO, "step.tmp");
    uint64_t second = make_dir(&two, ROOT_INO, "step.tmp");
    move(&one, first, 0, ROOT_INO, "step.tmp", ROOT_INO, "step");
    uint64_t file = make_file(&two, second, "shard1");
    assert_u64(at("step/shard1"), file);
    move(&two, second, 0, ROOT_INO, "step.tmp", ROOT_INO, "other");
    assert_u64(at("step/shard1"), file);
    EXPECT_COUNT(refused, 1);
}

/* Each moves its directory into the other's. */
CheckedTest(merge, no_directory_comes_to_lie_below_itself, merge_expect_whole)
{
    uint64_t a = make_dir(&one, ROOT_INO, "a"), b = make_dir(&one, ROOT_INO, "b");
    uint64_t a2 = make_dir(&two, ROOT_INO, "a"), b2 = make_dir(&two, ROOT_INO, "b");
    move(&one, a, 0, ROOT_INO, "a", b, "a");
    move(&two, b2, 0, ROOT_INO, "b", a2, "b");
    assert_u64(at("b/a"), a);
    EXPECT_COUNT(refused, 1);
}

CheckedTest(merge, exchange, merge_expect_whole)
{
    uint64_t x = make_file(&one, ROOT_INO, "x"), y = make_dir(&one, ROOT_INO, "y");
    struct record rec = {.type = REC_RENAME,
                         .flags = RECORD_EXCHANGE,
                         .ino = x,
                         .ino2 = y,
                         .parent = ROOT_INO,
                         .parent2 = ROOT_INO,
                         NAMED("x"),
                         .name2 = "y",
                         .name2_len = 1};
    (void)merge_op(&one, rec);
    assert_u64(at("x"), y);
    assert_u64(at("y"), x);
    (void)merge_op(&one, rec);
    assert_u64(at("x"), y);
    EXPECT_COUNT(refused, 1);
}

CheckedTest(merge, attributes, merge_expect_whole)
{
    uint64_t first = make_dir(&one, ROOT_INO, "d"), second = make_dir(&two, ROOT_INO, "d");
    (void)merge_op(&two, (struct record){.type = REC_SETATTR,
                                         .ino = second,
                                         .mask = ATTR_MODE,
                                         .attrs = {.mode = S_IFDIR | 0700}});
    assert_u64(inode_of(&f, first).attrs.mode, S_IFDIR | 0700);
    (void)merge_op(
        &two,
        (struct record){
            .type = REC_SETXATTR, .ino = second, NAMED("user.a"), .value = "v", .value_len = 1});
    assert_i64(view_getxattr(f.view, first, "user.a", 6, NULL, 0), 1);
    (void)merge_op(&one, (struct record){.type = REC_REMOVEXATTR, .ino = first, NAMED("user.a")});
    (void)merge_op(&two, (struct record){.type = REC_REMOVEXATTR, .ino = second, NAMED("user.a")});
    assert_i64(view_getxattr(f.view, first, "user.a", 6, NULL, 0), -ENODATA);
    EXPECT_COUNT(refused, 1);
}

CheckedTest(merge, links, merge_expect_whole)
{
    uint64_t file = make_file(&one, ROOT_INO, "a");
    link_to(&one, file, ROOT_INO, "b");
    uint64_t theirs = make_file(&two, ROOT_INO, "a");
    assert_u64(at("a"), theirs);
    assert_u64(at("b"), file);
    assert_u64(inode_of(&f, file).nlink, 1);
}

/* A node with a bug, or a feed that somebody made. */
CheckedTest(merge, records_of_no_node, merge_expect_whole)
{
    uint64_t dir = make_dir(&one, ROOT_INO, "d"), file = make_file(&one, dir, "f");
    char *before = dump(f.view);
    (void)merge_op(&one, (struct record){.type = REC_MAKE,
                                         .ino = file,
                                         .parent = dir,
                                         .attrs = {.mode = S_IFDIR | 0755},
                                         NAMED("again")});
    (void)merge_op(&two, (struct record){.type = REC_VERSION,
                                         .flags = RECORD_BIRTH,
                                         .ino = new_ino(&two),
                                         .version = 1,
                                         .parent = dir,
                                         .attrs = {.mode = S_IFDIR | 0755},
                                         NAMED("no-file")});
    impossible = 2;
    EXPECT_COUNT(impossible, impossible);
    reap(&one, dir);
    reap(&two, dir);
    write_file(&one, dir, 2, 5);
    write_file(&one, ROOT_INO, 2, 5);
    remove_name(&two, ROOT_INO, dir, "f");
    link_to(&two, dir, ROOT_INO, "d2");
    char *after = dump(f.view);
    assert_str(before, after);
    free(before);
    free(after);
    /* They have content there, so they have inodes here. */
    assert_u64(inode_of(&f, make_file(&two, file, "below-a-file")).nlink, 0);
    assert_u64(inode_of(&f, make_file(&two, 4711, "below-nothing")).nlink, 0);
}

/* What it is about to make would have its name there, and another's content. */
CheckedTest(merge, an_inode_that_is_anothers_to_make, merge_expect_whole)
{
    struct record rec = {.type = REC_MAKE,
                         .ino = new_ino(&one),
                         .parent = ROOT_INO,
                         .attrs = {.mode = S_IFIFO | 0644},
                         NAMED("a")};
    (void)merge_op(&two, rec);
    rec.type = REC_VERSION;
    rec.flags = RECORD_BIRTH;
    rec.version = 1;
    rec.attrs.mode = S_IFREG | 0644;
    (void)merge_op(&two, rec);
    rec.ino = ROOT_INO;
    (void)merge_op(&two, rec);
    assert_u64(at("a"), 0);
    expect_absent(one.epoch << 24 | one.inos);
    impossible = 3;
    EXPECT_COUNT(impossible, impossible);
}

CheckedTest(merge, records_that_no_feed_has, merge_expect_whole)
{
    struct record rec = {.type = REC_SEAL, .ino = 5, .seq = 1};
    assert_i64(merge_record(merge, &(struct merge_op){.rec = &rec, .owns = true}), -EUCLEAN);
}

/* --- random ----------------------------------------------------------------------------------- */

enum { NODES = 3, DIRS = 6, FILES = 6 };

/* What a node knows: its own names alone. Names of directories are those of all, names of files its
 * own. */
struct known {
    struct node node;
    uint64_t dirs[DIRS];
    struct {
        uint64_t ino, version;
        unsigned dir;
    } files[FILES];
};

static char *file_name(const struct known *known, unsigned i, char name[32])
{
    (void)snprintf(name, 32, "file%llu-%u", (unsigned long long)known->node.epoch, i);
    return name;
}

static char *dir_name(unsigned i, char name[32])
{
    (void)snprintf(name, 32, "dir%u", i);
    return name;
}

static bool has_files(const struct known *known, unsigned dir)
{
    for (unsigned i = 0; i < FILES; i++)
        if (known->files[i].ino && known->files[i].dir == dir)
            return true;
    return false;
}

static void step_dir(struct known *known, unsigned dir)
{
    char name[32];
    if (!known->dirs[dir])
        known->dirs[dir] = make_dir(&known->node, ROOT_INO, dir_name(dir, name));
    else if (!has_files(known, dir)) {
        remove_name(&known->node, known->dirs[dir], ROOT_INO, dir_name(dir, name));
        known->dirs[dir] = 0;
    }
}

static void step_file(struct known *known, struct seeded *seeded, unsigned i)
{
    char name[32];
    unsigned dir = (unsigned)seeded_below(seeded, DIRS);
    (void)file_name(known, i, name);
    if (!known->files[i].ino) {
        if (!known->dirs[dir])
            return;
        known->files[i].dir = dir;
        known->files[i].version = 1;
        known->files[i].ino = make_file(&known->node, known->dirs[dir], name);
        return;
    }
    uint64_t in = known->dirs[known->files[i].dir];
    switch (seeded_below(seeded, 3)) {
    case 0:
        remove_file(&known->node, known->files[i].ino, in, name);
        known->files[i].ino = 0;
        break;
    case 1:
        write_file(&known->node, known->files[i].ino, ++known->files[i].version, i);
        break;
    default:
        if (!known->dirs[dir] || dir == known->files[i].dir)
            return;
        move(&known->node, known->files[i].ino, 0, in, name, known->dirs[dir], name);
        known->files[i].dir = dir;
    }
}

static uint64_t file_at(const struct known *known, unsigned i)
{
    char dir[32], name[32];
    uint64_t parent = lookup(&f, ROOT_INO, dir_name(known->files[i].dir, dir));
    return parent ? lookup(&f, parent, file_name(known, i, name)) : 0;
}

/* Nodes that share directories, and no file: each file is where its node has it, and no other is
 * there, whatever became of the directories. */
CheckedTest(merge, files_of_all_nodes_in_common_directories, merge_expect_whole)
{
    struct seeded seeded = {test_number("CAIRN_TESTS_SEED", 1)};
    struct known known[NODES] = {0};
    uint64_t files = 0;
    for (unsigned n = 0; n < NODES; n++)
        known[n].node.epoch = n + 1;
    for (unsigned step = 0; step < 6000; step++) {
        struct known *k = &known[seeded_below(&seeded, NODES)];
        if (seeded_below(&seeded, 4) == 0)
            step_dir(k, (unsigned)seeded_below(&seeded, DIRS));
        else
            step_file(k, &seeded, (unsigned)seeded_below(&seeded, FILES));
    }
    for (unsigned n = 0; n < NODES; n++)
        for (unsigned i = 0; i < FILES; i++) {
            if (!known[n].files[i].ino)
                continue;
            files++;
            assert_u64(file_at(&known[n], i), known[n].files[i].ino, "node %u file %u", n + 1, i);
            assert_u64(inode_of(&f, known[n].files[i].ino).version, known[n].files[i].version);
        }
    assert_u64(view_state(f.view).files, files);
    cr_assert_gt(files, 2);
    cr_assert_gt(merge_counts(merge).joined, 20, "%llu",
                 (unsigned long long)merge_counts(merge).joined);
    cr_assert_gt(merge_counts(merge).revived, 5, "%llu",
                 (unsigned long long)merge_counts(merge).revived);
}

/* --- anything --------------------------------------------------------------------------------- */

enum { INOS = 64 };

/* Which files have to be there: those that their own node made, and did not end. */
struct ledger {
    uint64_t inos[INOS];
    bool is_file[INOS], is_there[INOS];
    size_t count;
};

static void note_made(struct ledger *ledger, struct seeded *seeded, uint64_t ino, bool is_file)
{
    size_t i = ledger->count < INOS ? ledger->count++ : 1 + seeded_below(seeded, INOS - 1);
    ledger->inos[i] = ino;
    ledger->is_file[i] = ledger->is_there[i] = is_file;
}

static void note_reaped(struct ledger *ledger, const struct node *node, uint64_t ino)
{
    for (size_t i = 0; i < ledger->count; i++)
        if (ledger->inos[i] == ino && ino >> 24 == node->epoch)
            ledger->is_there[i] = false;
}

static void expect_ledger(const struct ledger *ledger, unsigned step)
{
    for (size_t i = 0; i < ledger->count; i++) {
        struct view_inode inode;
        if (ledger->is_file[i])
            assert_i64(view_inode(f.view, ledger->inos[i], &inode),
                       ledger->is_there[i] ? 0 : -ENOENT, "step %u", step);
    }
}

static void any_record(struct node *node, struct seeded *seeded, struct ledger *ledger)
{
    static const char *const names[] = {"a", "b", "c", "d"};
    static const uint32_t flags[] = {0, RECORD_ORPHAN, RECORD_EXCHANGE, RECORD_TAKEN};
    static const uint16_t types[] = {REC_UNLINK, REC_RENAME, REC_LINK, REC_VERSION, REC_REAP};
    uint64_t *inos = ledger->inos;
    uint64_t some = inos[seeded_below(seeded, ledger->count)],
             other = inos[seeded_below(seeded, ledger->count)],
             third = inos[seeded_below(seeded, ledger->count)];
    const char *name = names[seeded_below(seeded, 4)], *name2 = names[seeded_below(seeded, 4)];
    struct record rec = {.type = types[seeded_below(seeded, 5)],
                         .flags = flags[seeded_below(seeded, 4)],
                         .ino = lookup(&f, some, name),
                         .ino2 = lookup(&f, third, name2),
                         .version = node->ops + 2,
                         .parent = some,
                         .parent2 = third,
                         .attrs = {.mode = S_IFREG | 0600, .size = node->ops},
                         NAMED(name),
                         .name2 = name2,
                         .name2_len = 1};
    if (!rec.ino || seeded_below(seeded, 4) == 0)
        rec.ino = other;
    if (rec.type != REC_RENAME)
        rec.ino2 = 0;
    (void)merge_op(node, rec);
    if (rec.type == REC_REAP)
        note_reaped(ledger, node, rec.ino);
}

/* Few names, of all, and any record of any node with any flags: nothing is as a node has it, but
 * each operation is done or refused, the union is whole, and files are there as long as
 * their owner says. */
CheckedTest(merge, all_names_clash, merge_expect_whole)
{
    struct seeded seeded = {test_number("CAIRN_TESTS_SEED", 1) + 1};
    struct node nodes[NODES] = {{.epoch = 1}, {.epoch = 2}, {.epoch = 3}};
    struct ledger ledger = {.inos = {ROOT_INO}, .count = 1};
    for (unsigned step = 0; step < 6000; step++) {
        struct node *node = &nodes[seeded_below(&seeded, NODES)];
        uint64_t some = ledger.inos[seeded_below(&seeded, ledger.count)];
        const char *name = (const char *const[]){"a", "b", "c", "d"}[seeded_below(&seeded, 4)];
        switch (seeded_below(&seeded, 4)) {
        case 0:
            note_made(&ledger, &seeded, make_dir(node, some, name), false);
            break;
        case 1:
            note_made(&ledger, &seeded, make_file(node, some, name), true);
            break;
        default:
            any_record(node, &seeded, &ledger);
        }
        if (step % 16 == 0)
            expect_ledger(&ledger, step);
    }
    expect_ledger(&ledger, 0);
    cr_assert_gt(merge_counts(merge).refused, 100);
    cr_assert_gt(merge_counts(merge).renamed, 0);
}
