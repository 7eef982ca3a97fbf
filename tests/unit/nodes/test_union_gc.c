// SPDX-License-Identifier: Apache-2.0
/* What a merger deletes, and what it must leave. Each head is checked all the same. */
#include "format/feed.h"
#include "world_suite.h"

TestSuite(union_gc, .init = setup, .fini = teardown);

static void pass(struct merger *m)
{
    world_work(&w, &seeded, 60);
    world_tell_round(&w);
    world_turn(&w, m);
}

static void expect_named_objects(void)
{
    _cleanup_free_ struct head *head = xmalloc(sizeof *head);
    world_read_head(&w, world_newest_head(&w), head);
    for (uint32_t i = 0; i < head->run_count; i++)
        for (unsigned place = 0; place < RUN_PLACES; place++) {
            char object[OBJECT_NAME_LEN];
            object_name(run_directories[place], head->runs[i].id, object);
            cr_assert(world_has(&w, object));
        }
    for (uint32_t i = 0; i < head->writer_count; i++) {
        char object[FEED_NAME_LEN];
        feed_name(head->writers[i].feed_round, head->writers[i].epoch, object);
        cr_assert(world_has(&w, object), "%s", object);
    }
    assert_u64(world_count(&w, "runs"), head->run_count);
    assert_u64(world_count(&w, "copies"), head->run_count);
    assert_u64(world_count(&w, "feeds"), head->writer_count);
    assert_u64(world_count(&w, "heads"), 1);
}

/* A clock of the medium that is wrong by a day changes nothing. What no head ever named goes, too.
 */
CheckedTest(union_gc, gc, check_heads)
{
    const int64_t grace = 600ll * 1000000;
    for (unsigned i = 0; i < 12; i++)
        pass(merger);
    world_work(&w, &seeded, 20);
    world_leave(&w, 1);
    pass(merger);
    world_join(&w, 1);
    pass(merger);
    shell("cp %1$s/runs/$(ls %1$s/runs | head -1) %1$s/runs/0000000000123456", w.path);
    shell("cp %1$s/feeds/$(ls %1$s/feeds | head -1) %1$s/feeds/%2$016llx-%3$016llx", w.path,
          (unsigned long long)FIRST_ROUND, 12345ull);
    world_check(&w);
    uint64_t heads = world_newest_head(&w);
    odd.ahead = 86400ll * 1000000000;
    begin_with(LEASE_NS, GRACE_NS);
    world_turn(&w, merger);
    assert_u64(world_count(&w, "heads"), heads);
    odd.ahead = 0;
    begin_with(LEASE_NS, grace);
    world_turn(&w, merger);
    for (unsigned i = 0; i < 10; i++) {
        time_pass(grace / 4);
        world_turn(&w, merger);
    }
    cr_assert(world_has(&w, "feeds/00000000000003e8-0000000000003039"));
    shell("rm %s/feeds/00000000000003e8-*", w.path);
    expect_named_objects();
    pass(merger);
    other = world_merger(&w, 2, LEASE_NS, grace);
    shell("rm %s/lease/holder", w.path);
    pass(other);
}

static void come_again(unsigned i)
{
    world_leave(&w, i);
    world_tell_round(&w);
    world_turn(&w, merger);
    world_check(&w);
    world_join(&w, i);
    world_tell_round(&w);
    world_turn(&w, merger);
    world_check(&w);
}

static void pass_grace(int64_t grace)
{
    for (unsigned i = 0; i < 10; i++) {
        time_pass(grace / 4);
        world_turn(&w, merger);
    }
}

static bool has_number(const char *directory, uint64_t number)
{
    char object[OBJECT_NAME_LEN];
    object_name(directory, number, object);
    return world_has(&w, object);
}

/* Node 1 joins again with four numbers: of the first a pack is there, of the second a file, of the
 * third nothing, and with the last one it writes. */
CheckedTest(union_gc, gc_of_numbers, check_heads)
{
    const int64_t grace = 600ll * 1000000;
    const uint64_t first = NODE_BLOCK * (w.numbers + 1), second = first + NODE_BLOCK,
                   third = second + NODE_BLOCK, last = third + NODE_BLOCK;
    pass(merger);
    come_again(1);
    come_again(1);
    peer_make(&w.nodes[1].peer, ROOT_INO, "kept", 1); /* a name that only this node uses */
    come_again(1);
    come_again(1);
    world_check(&w);
    uint64_t before = world_count(&w, "writers");
    const unsigned long long of_first = (first + 15) << 24 | 1, of_last = last << 24 | 1;
    shell("mkdir -p %1$s/ended %1$s/packs && touch %1$s/ended/%2$016llx %1$s/ended/%3$016llx "
          "%1$s/packs/%4$016llx %1$s/packs/%5$016llx",
          w.path, (unsigned long long)first, (unsigned long long)third, of_first, of_last);
    begin_with(LEASE_NS, grace);
    world_turn(&w, merger);
    cr_assert(has_number("writers", third), "the grace is not over");
    pass_grace(grace);
    cr_assert(has_number("writers", w.nodes[1].node), "there is the node");
    cr_assert(has_number("writers", first), "it has a pack");
    cr_assert(has_number("ended", first));
    cr_assert(has_number("writers", second), "it has a file");
    cr_assert_not(has_number("writers", third));
    cr_assert(has_number("writers", last), "it writes");
    pass_grace(grace);
    cr_assert_not(has_number("ended", third));
    shell("rm %s/packs/%016llx", w.path, of_first);
    pass_grace(2 * grace);
    cr_assert_not(has_number("writers", first));
    cr_assert_not(has_number("ended", first));
    assert_u64(world_count(&w, "writers"), before - 2);
    shell("rm %s/packs/*", w.path);
    pass(merger);
    come_again(1);
    cr_assert(has_number("writers", NODE_BLOCK * w.numbers));
    world_check(&w);
}

static void go_on_with(void *arg)
{
    pass(arg);
}

/* A merger that was paused while another went on knows what it saw, not what is. */
CheckedTest(union_gc, gc_of_a_merger_that_was_replaced, check_heads)
{
    const int64_t grace = 400ll * 1000000;
    begin_with(LEASE_NS, grace);
    for (unsigned i = 0; i < 4; i++)
        pass(merger);
    time_pass(grace / 4);
    world_turn(&w, merger);
    other = world_merger(&w, 2, LEASE_NS, GRACE_NS);
    shell("rm %s/lease/holder", w.path);
    world_turn(&w, other);
    world_check(&w);
    time_pass(3 * grace);
    odd.before_sync = go_on_with; /* between its look and its deleting */
    odd.arg = other;
    size_t heads = world_count(&w, "heads"), feeds = world_count(&w, "feeds");
    world_turn(&w, merger);
    assert_u64(world_count(&w, "heads"), heads + 1);
    assert_u64(world_count(&w, "feeds"), feeds + 2);
    time_pass(grace / 4);
    world_turn(&w, merger); /* it goes on from there */
    struct merger_status status;
    merger_status(merger, &status);
    assert_u64(status.round, w.round);
    merger_status_done(&status);
}
