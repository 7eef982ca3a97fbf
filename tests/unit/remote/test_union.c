// SPDX-License-Identifier: Apache-2.0
/* Readers of a prefix that several nodes write. */
#include <stdio.h>
#include <sys/stat.h>

#include "../shell.h"
#include "commit/run_lists.h"
#include "store/check_remote.h"
#include "union_fixture.h"

static struct store_fixture reader;

static void begin(void)
{
    several_begin();
    fixture_make(&reader);
}

static void end(void)
{
    fixture_remove(&reader);
    several_end();
}

TestSuite(union, .init = begin, .fini = end, .timeout = 300);

/* --- readers ---------------------------------------------------------------------------------- */

static void choose_reader(struct store_fixture *shown, const char *path)
{
    fixture_use_remote(shown, path);
    shown->options.remote.read_only = true;
    shown->options.remote.follow_ns = 3600 * 1000000000ll;
}

static void print_difference(const char *line, void *arg)
{
    (void)arg;
    cr_log_error("%s", line);
}

static void expect_read(struct store_fixture *shown, const char *name, unsigned number)
{
    fixture_expect(shown, name, number, 300 * KIB);
}

/* It shows the newest head, or that with this number. */
static void expect_shown(struct store_fixture *shown, uint64_t number)
{
    struct view *view = shown->store->local.view;
    assert_i64(view_check(view, print_difference, NULL), 0);
    assert_u64(view_remote(view).head, number);
    if (number == union_prefix.head.number) {
        expect_u64(view_state(view).files, union_prefix.head.files);
        expect_u64(view_state(view).logical_bytes, union_prefix.head.logical_bytes);
    }
}

static void look(void)
{
    follow_look_now(reader.store);
}

/* A reader that begins with what is there. */
static void expect_fresh(void (*expect)(struct store_fixture *shown), uint64_t number)
{
    struct store_fixture fresh;
    fixture_make(&fresh);
    choose_reader(&fresh, union_prefix.path);
    fixture_open(&fresh);
    expect_shown(&fresh, number);
    expect(&fresh);
    fixture_remove(&fresh);
}

static void open_reader(void)
{
    choose_reader(&reader, union_prefix.path);
    fixture_open(&reader);
}

static unsigned count_files(const char *directory)
{
    char text[32] = "";
    _cleanup_free_ char *command = xasprintf("ls %s | wc -l", directory);
    FILE *pipe = popen(command, "r");
    cr_assert(pipe && fgets(text, sizeof text, pipe));
    (void)pclose(pipe);
    return (unsigned)strtoul(text, NULL, 10);
}

/* --- what they show --------------------------------------------------------------------------- */

static void expect_first(struct store_fixture *shown)
{
    expect_read(shown, "a", 1);
    expect_read(shown, "b", 2);
    expect_read(shown, "dying", 3);
}

static void publish_first(void)
{
    several_put_file(0, "a", 1);
    several_put_file(1, "b", 2);
    several_put_file(0, "dying", 3);
    several_publish();
}

static void expect_second(struct store_fixture *shown)
{
    expect_read(shown, "a", 4);
    expect_read(shown, "b", 2);
    expect_read(shown, "b2", 5);
    expect_u64(fixture_lookup(shown, "dying"), 0);
}

static uint64_t dying;

/* A file is written anew, and one that is open loses its name. */
static void publish_second(void)
{
    struct ns_inode inode;
    struct store_fixture *a = &union_nodes[0].fixture;
    uint64_t ino = fixture_lookup(a, "a");
    assert_i64(ns_hold(store_ns(a->store), ino, &inode), 0);
    fixture_fill(a, ino, 0, 4, 300 * KIB);
    fixture_seal(a, ino);
    ns_drop(store_ns(a->store), ino);
    dying = fixture_lookup(a, "dying");
    assert_i64(ns_hold(store_ns(a->store), dying, &inode), 0);
    fixture_unlink(a, "dying", RECORD_ORPHAN);
    several_put_file(1, "b2", 5);
    several_publish();
}

static void expect_third(struct store_fixture *shown)
{
    expect_second(shown);
    expect_read(shown, "many-0", 10);
    expect_read(shown, "many-5", 15);
    expect_u64(fixture_lookup(shown, "gone"), 0);
}

/* Runs of the node become one, which leaves out what it had and has no more. */
static void publish_third(void)
{
    struct store_fixture *a = &union_nodes[0].fixture;
    fixture_commit(a, (struct record){.type = REC_REAP, .ino = dying});
    ns_drop(store_ns(a->store), dying);
    for (unsigned i = 0; i < 6; i++) {
        _cleanup_free_ char *name = xasprintf("many-%u", i);
        several_put_file(0, name, 10 + i);
        fixture_wait_published(a);
    }
    several_split_runs(&union_nodes[0], 1);
    several_publish();
}

static int expect_listed(const struct view_entry *entry, const char *name, size_t len, void *arg)
{
    unsigned *count = arg;
    expect_i64(entry->cookie <= ns_applied(store_ns(reader.store)), true, "%.*s", (int)len, name);
    ++*count;
    return 0;
}

/* A listing has no names that came after it began, by their places. */
static void expect_all_listed(unsigned names)
{
    unsigned count = 0;
    assert_i64(ns_readdir(store_ns(reader.store), ROOT_INO, 0, names, expect_listed, &count), 0);
    expect_u64(count, names);
}

Test(union, is_adopted_and_followed)
{
    publish_first();
    open_reader();
    expect_shown(&reader, 1);
    expect_first(&reader);
    expect_all_listed(3);
    publish_second();
    look();
    expect_shown(&reader, 2);
    expect_second(&reader);
    struct view_inode orphan;
    expect_i64(view_inode(reader.store->local.view, dying, &orphan), 0, "it is open on its node");
    expect_u64(orphan.nlink, 0);
    expect_fresh(expect_second, 2);
    publish_third();
    look();
    expect_shown(&reader, 3);
    expect_third(&reader);
    expect_i64(view_inode(reader.store->local.view, dying, &orphan), -ENOENT);
    expect_fresh(expect_third, 3);
    _cleanup_free_ char *feeds = xasprintf("%s/feeds", reader.path);
    expect_u64(count_files(feeds), NODES, "those of earlier heads are removed");
    fixture_close(&reader);
    assert_i64(fixture_fsck(&reader), 0);
}

/* The names that the union has do not change. */
Test(union, whose_content_alone_changes_is_followed)
{
    publish_first();
    open_reader();
    several_publish();
    look();
    expect_shown(&reader, 2);
    expect_first(&reader);
}

static struct run_lists lists_of(const struct head *head)
{
    struct run_lists lists;
    assert_i64(run_lists_of(&reader.store->local, head, &lists), 0);
    return lists;
}

/* What a follower reads of a head is little, where lists of runs go on. */
Test(union, is_followed_by_the_runs_that_are_new)
{
    for (unsigned i = 0; i < 20; i++) {
        _cleanup_free_ char *name = xasprintf("early-%u", i);
        several_put_file(1, name, 100 + i);
    }
    publish_first();
    open_reader();
    struct head first = union_prefix.head;
    struct run_lists known = lists_of(&first);
    expect_u64(known.lists.count, 1 + NODES);
    several_put_file(1, "b2", 5);
    several_publish();
    look();
    struct run_lists lists = lists_of(&union_prefix.head);
    expect_u64(lists.lists.count, 1 + NODES);
    run_lists_go_on(&lists, &known);
    expect_i64(run_lists_are_new(&lists), false);
    expect_u64(lists.lists.at[1].first, lists.lists.at[1].count, "the first node has no new run");
    run_lists_forget(&lists);
    known.lists.count--; /* a node that is new */
    run_lists_go_on(&lists, &known);
    expect_i64(run_lists_are_new(&lists), false);
    expect_u64(lists.lists.at[NODES].first, 0);
    run_lists_forget(&lists);
    known.lists.count++;
    lists.lists.count--; /* a node that is there no more */
    run_lists_go_on(&lists, &known);
    expect_i64(run_lists_are_new(&lists), true);
    lists.lists.count++;
    run_lists_done(&lists);
    run_lists_done(&known);
}

/* Nodes put their packs there before there is a head. */
Test(union, without_a_head_is_empty)
{
    several_put_file(0, "early", 1);
    fixture_wait_published(&union_nodes[0].fixture);
    shell("cp -r %s/packs %s/", union_nodes[0].prefix, union_prefix.path);
    open_reader();
    expect_u64(fixture_lookup(&reader, "early"), 0);
    publish_first();
    look();
    expect_shown(&reader, 1);
    expect_first(&reader);
}

/* --- a view that is made anew ----------------------------------------------------------------- */

Test(union, is_made_anew_from_the_disk)
{
    publish_first();
    open_reader();
    publish_second();
    look();
    fixture_close(&reader);
    shell("rm -r %s/view && mv %2$s %2$s.away", reader.path, union_prefix.path);
    shell("mkdir %s", union_prefix.path);
    open_reader();
    expect_shown(&reader, 2);
    expect_u64(fixture_lookup(&reader, "dying"), 0);
    cr_expect_neq(fixture_lookup(&reader, "b2"), 0);
    fixture_close(&reader);
    shell("rmdir %1$s && mv %1$s.away %1$s", union_prefix.path);
    shell("rm -r %s/view %1$s/feeds", reader.path);
    open_reader();
    expect_shown(&reader, 2);
    expect_second(&reader);
}

Test(union, is_gone_on_from_after_a_restart)
{
    publish_first();
    open_reader();
    expect_first(&reader);
    fixture_close(&reader);
    publish_second();
    open_reader();
    expect_shown(&reader, 2);
    expect_second(&reader);
    fixture_close(&reader);
    open_reader();
    expect_shown(&reader, 2);
    expect_second(&reader);
}

/* --- what is lost ----------------------------------------------------------------------------- */

static char *feed_path(const struct node *node)
{
    char object[FEED_NAME_LEN];
    feed_name(node->round, node->number, object);
    return xasprintf("%s/%s", union_prefix.path, object);
}

static void expect_first_instead(const char *named)
{
    struct store_fixture fresh;
    fixture_make(&fresh);
    choose_reader(&fresh, union_prefix.path);
    fixture_open(&fresh);
    expect_shown(&fresh, 1);
    expect_first(&fresh);
    const char *why = remote_shown_instead(fresh.store->remote);
    cr_expect(why && strstr(why, named), "%s", why);
    fixture_remove(&fresh);
    look();
    expect_shown(&reader, 1);
    expect_first(&reader);
    struct remote_status status;
    remote_get_status(reader.store, &status);
    cr_expect_not_null(strstr(status.error, named), "%s", status.error);
}

static void begin_loss(void)
{
    publish_first();
    open_reader();
    publish_second();
}

static void expect_next_to_heal(void)
{
    publish_third();
    look();
    expect_shown(&reader, 3);
    expect_third(&reader);
    expect_fresh(expect_third, 3);
}

Test(union, whose_feed_is_missing)
{
    begin_loss();
    _cleanup_free_ char *path = feed_path(&union_nodes[1]);
    shell("rm %s", path);
    expect_first_instead(path + strlen(union_prefix.path) + 1);
    expect_next_to_heal();
}

Test(union, whose_feed_is_damaged)
{
    begin_loss();
    _cleanup_free_ char *path = feed_path(&union_nodes[0]);
    shell("printf x | dd of=%s bs=1 seek=100 conv=notrunc status=none", path);
    expect_first_instead(path + strlen(union_prefix.path) + 1);
    expect_next_to_heal();
}

/* It is whole, and an earlier one of its node. */
Test(union, whose_feed_is_another)
{
    publish_first();
    open_reader();
    _cleanup_free_ char *earlier = feed_path(&union_nodes[0]);
    publish_second();
    _cleanup_free_ char *path = feed_path(&union_nodes[0]);
    shell("cp %s %s", earlier, path);
    expect_first_instead(path + strlen(union_prefix.path) + 1);
}

Test(union, whose_feed_is_of_another_node)
{
    publish_first();
    open_reader();
    union_nodes[1].told_number = union_nodes[0].number;
    publish_second();
    _cleanup_free_ char *path = feed_path(&union_nodes[1]);
    expect_first_instead(path + strlen(union_prefix.path) + 1);
}

static uint64_t newest_run(struct node *node)
{
    _cleanup_free_ struct head *head = several_head_of(node);
    return head->runs[head->run_count - 1].id;
}

Test(union, whose_content_is_missing)
{
    begin_loss();
    char object[RUN_OBJECT_LEN];
    struct run_info info = {.id = newest_run(&union_nodes[0]), .node = union_nodes[0].number};
    run_object_name(&info, RUN_FIRST, object);
    shell("rm %s/%s", union_prefix.path, object);
    expect_fresh(expect_second, 2);
    run_object_name(&info, RUN_COPY, object);
    shell("rm %s/%s", union_prefix.path, object);
    expect_first_instead(object);
}

/* --- the check of the prefix ------------------------------------------------------------------ */

static struct {
    unsigned problems;
    char last[200];
} checked;

static void count_problem(const struct remote_finding *finding, void *arg)
{
    (void)arg;
    checked.problems++;
    (void)snprintf(checked.last, sizeof checked.last, "%s %s",
                   finding->object ? finding->object : finding->path, finding->what);
}

static void no_note(const char *line, void *arg)
{
    (void)line;
    (void)arg;
}

static bool never(void)
{
    return false;
}

static struct remote_check_counts check_prefix(void)
{
    const struct remote_check_options options = {.sample = 100,
                                                 .threads = 2,
                                                 .found = count_problem,
                                                 .note = no_note,
                                                 .is_interrupted = never};
    struct store_fixture fresh;
    memset(&checked, 0, sizeof checked);
    fixture_make(&fresh);
    choose_reader(&fresh, union_prefix.path);
    fixture_open(&fresh);
    struct remote_check *check = remote_check_new(&options);
    assert_i64(remote_check_newest(check, fresh.store), 0);
    struct remote_check_counts counts = *remote_check_counts(check);
    remote_check_free(check);
    fixture_remove(&fresh);
    return counts;
}

Test(union, is_checked)
{
    publish_first();
    publish_second();
    struct remote_check_counts counts = check_prefix();
    expect_u64(counts.problems, 0, "%s", checked.last);
    expect_u64(counts.files, 3);
    expect_u64(counts.heads, 2);
    cr_expect_gt(counts.runs, 3u);
    cr_expect_gt(counts.chunks, 2u);
    char first[RUN_OBJECT_LEN], copy[RUN_OBJECT_LEN];
    struct run_info info = {.id = newest_run(&union_nodes[0]), .node = union_nodes[0].number};
    run_object_name(&info, RUN_FIRST, first);
    run_object_name(&info, RUN_COPY, copy);
    shell("printf x | dd of=%s/%s bs=1 seek=200 conv=notrunc status=none", union_prefix.path, copy);
    (void)check_prefix();
    expect_u64(checked.problems, 1);
    cr_expect(strstr(checked.last, copy) && strstr(checked.last, "damaged"), "%s", checked.last);
    shell("cp %1$s/%2$s %1$s/%3$s", union_prefix.path, first, copy);
    _cleanup_free_ char *path = feed_path(&union_nodes[0]);
    shell("printf x | dd of=%s bs=1 seek=100 conv=notrunc status=none", path);
    (void)check_prefix();
    expect_u64(checked.problems, 1);
    cr_expect(strstr(checked.last, path + strlen(union_prefix.path) + 1) &&
                  strstr(checked.last, "damaged: head 2"),
              "%s", checked.last);
}

/* Of heads before the one that is shown the feeds are looked for. */
Test(union, is_checked_for_feeds_of_earlier_heads)
{
    publish_first();
    _cleanup_free_ char *path = feed_path(&union_nodes[1]);
    publish_second();
    shell("rm %s", path);
    (void)check_prefix();
    expect_u64(checked.problems, 1);
    cr_expect(strstr(checked.last, path + strlen(union_prefix.path) + 1) &&
                  strstr(checked.last, "missing: head 1"),
              "%s", checked.last);
}

/* --- many runs -------------------------------------------------------------------------------- */

static void expect_many(struct store_fixture *shown)
{
    expect_read(shown, "0-0", 0);
    expect_read(shown, "1-29", 1029);
}

/* More than one merge took before. Both nodes give their runs the same ids. */
Test(union, of_many_runs)
{
    for (unsigned node = 0; node < NODES; node++) {
        for (unsigned i = 0; i < 30; i++) {
            _cleanup_free_ char *name = xasprintf("%u-%u", node, i);
            several_put_file(node, name, node * 1000 + i);
        }
        fixture_wait_published(&union_nodes[node].fixture);
        several_split_runs(&union_nodes[node], RUN_LIST_MAX);
    }
    several_publish();
    expect_fresh(expect_many, 1);
}

/* --- writers ---------------------------------------------------------------------------------- */

Test(union, is_not_written_by_a_single_writer)
{
    publish_first();
    fixture_use_remote(&reader, union_prefix.path);
    expect_i64(fixture_open_only(&reader), -EINVAL);
    cr_expect(strstr(reader.text, "-o nodes") && strstr(reader.text, "-o ro"), "%s", reader.text);
    cr_expect_null(strchr(reader.text, '\n'));
    open_reader();
    expect_first(&reader);
    fixture_close(&reader);
    fixture_use_remote(&reader, union_prefix.path);
    expect_i64(fixture_open_only(&reader), -EINVAL);
    cr_expect_not_null(strstr(reader.text, "-o nodes"), "%s", reader.text);
}
