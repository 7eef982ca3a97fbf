// SPDX-License-Identifier: Apache-2.0
#include "../await.h"
#include "../expect.h"
#include "../stopped_time.h"
#include "world.h"

#define LEASE_NS (60ll * 1000000000)
#define SHORT_NS (200ll * 1000000)
#define GRACE_NS (3600ll * 1000000000)

#define EPOCH(i) w.nodes[i].peer.node.epoch /* of its stay */

static struct world w;
static struct merger *merger;

static void setup(void)
{
    world_open(&w);
    merger = world_merger(&w, 1, LEASE_NS, GRACE_NS);
}

static void setup_stopped(void)
{
    time_stop();
    setup();
}

static void check_heads(void)
{
    world_check(&w);
}

static void teardown(void)
{
    merger_free(merger);
    world_close(&w);
}

TestSuite(merger, .init = setup_stopped, .fini = teardown);

static struct merger_status status_of(struct merger *m)
{
    struct merger_status status;
    merger_status(m, &status);
    merger_status_done(&status); /* the stays are looked at by stay_of() */
    return status;
}

static struct merger_stay stay_of(struct merger *m, uint64_t epoch)
{
    struct merger_status status;
    struct merger_stay stay = {0};
    merger_status(m, &status);
    for (size_t i = 0; i < status.stay_count; i++)
        if (status.stays[i].epoch == epoch)
            stay = status.stays[i];
    merger_status_done(&status);
    return stay;
}

/* Each node tells what it did at the newest round. */
static void tell_all(void)
{
    for (unsigned i = 0; i < WORLD_NODES; i++)
        if (w.nodes[i].is_there && !w.nodes[i].has_left)
            world_tell(&w, i, w.round);
}

static void next_round(struct seeded *seeded, unsigned steps)
{
    world_work(&w, seeded, steps);
    world_tick(&w);
}

/* They tell of whatever rounds they like, but for those that many zeros end: so a common one
 * comes. */
CheckedTest(merger, nodes_that_leave_rounds_out, check_heads)
{
    struct seeded seeded = {test_number("CAIRN_TESTS_SEED", 1)};
    for (unsigned i = 0; i < 3; i++)
        world_join(&w, i);
    for (unsigned k = 0; k < 60; k++) {
        next_round(&seeded, (unsigned)seeded_below(&seeded, 12));
        for (unsigned i = 0; i < 3; i++)
            if (w.round % 8 == 0 || seeded_below(&seeded, 3) == 0)
                world_tell(&w, i, w.round);
        if (seeded_below(&seeded, 2) == 0)
            world_turn(&w, merger);
    }
    cr_assert_gt(world_newest_head(&w), 5);
    assert_u64(status_of(merger).head, world_newest_head(&w));
    cr_assert(status_of(merger).is_merger);
}

/* Only a round that both determine is one: what they tell beside it waits. */
CheckedTest(merger, no_head_before_a_common_round, check_heads)
{
    struct seeded seeded = {2};
    world_join(&w, 0);
    world_join(&w, 1);
    world_tick(&w);
    world_turn(&w, merger);
    assert_u64(world_newest_head(&w), 0);
    for (unsigned k = 0; k < 6; k++) {
        next_round(&seeded, 20);
        world_tell(&w, k % 2, w.round);
        world_turn(&w, merger);
    }
    assert_u64(world_newest_head(&w), 0);
    assert_u64(status_of(merger).held_back_by, EPOCH(0));
    next_round(&seeded, 20);
    tell_all();
    world_turn(&w, merger);
    assert_u64(world_newest_head(&w), 1);
    assert_u64(status_of(merger).round, w.round);
    assert_u64(status_of(merger).held_back_by, 0);
}

static void tell_end(unsigned i, uint64_t ino, const char *name)
{
    struct peer *peer = &w.nodes[i].peer;
    peer->tell(peer, &(struct record){.type = REC_UNLINK,
                                      .flags = RECORD_ORPHAN,
                                      .ino = ino,
                                      .parent = ROOT_INO,
                                      NAMED(name)});
    peer->tell(peer, &(struct record){.type = REC_REAP, .ino = ino});
}

/* Whose a file is, the number says that it was made with, in whichever stay of its node. */
CheckedTest(merger, a_node_ends_its_own_files_alone, check_heads)
{
    world_join(&w, 0);
    world_join(&w, 1);
    peer_make(&w.nodes[0].peer, ROOT_INO, "a", 1);
    uint64_t ino = w.nodes[0].peer.inos[1];
    tell_end(1, ino, "a");
    world_tick(&w);
    tell_all();
    world_turn(&w, merger);
    assert_u64(world_newest_head(&w), 1);
    world_check(&w);
    world_leave(&w, 0);
    world_join(&w, 0);
    tell_end(0, ino, "a");
    world_tick(&w);
    tell_all();
    world_turn(&w, merger);
    assert_u64(world_newest_head(&w), 2);
}

/* Rounds of which this node's clock cannot say for sure that they passed. */
CheckedTest(merger, a_round_that_may_not_have_passed, check_heads)
{
    struct seeded seeded = {3};
    world_join(&w, 0);
    next_round(&seeded, 20);
    tell_all();
    int64_t at = (int64_t)w.round * ROUND_NS;
    assert_i64(merger_turn(merger, at - 1), 0);
    assert_u64(world_newest_head(&w), 0);
    assert_i64(merger_turn(merger, at), 0);
    assert_u64(world_newest_head(&w), 1);
}

/* Nothing is published until it tells; then its names are there. */
CheckedTest(merger, a_node_that_joins, check_heads)
{
    struct seeded seeded = {4};
    world_join(&w, 0);
    for (unsigned k = 0; k < 3; k++) {
        next_round(&seeded, 100);
        tell_all();
        world_turn(&w, merger);
    }
    assert_u64(world_newest_head(&w), 3);
    world_join(&w, 1);
    world_tick(&w);
    world_tell(&w, 0, w.round);
    world_turn(&w, merger);
    assert_u64(world_newest_head(&w), 3);
    assert_u64(status_of(merger).held_back_by, EPOCH(1));
    world_tell(&w, 1, w.round);
    for (unsigned k = 0; k < 3; k++) {
        world_turn(&w, merger);
        next_round(&seeded, 20);
        tell_all();
    }
    world_turn(&w, merger);
    assert_u64(world_newest_head(&w), 7);
}

/* It holds nobody up, and its content is named; when its store is back, that is the node's newest
 * feed's to do. */
CheckedTest(merger, a_node_that_leaves_and_comes_again, check_heads)
{
    struct seeded seeded = {5};
    merger_free(merger);
    merger = world_merger(&w, 1, SHORT_NS, GRACE_NS);
    _cleanup_free_ struct head *head = xmalloc(sizeof *head);
    world_join(&w, 0);
    world_join(&w, 1);
    for (unsigned k = 0; k < 3; k++) {
        next_round(&seeded, 80);
        tell_all();
        world_turn(&w, merger);
    }
    world_work(&w, &seeded, 10);
    world_leave(&w, 1);
    cr_assert_not(stay_of(merger, EPOCH(1)).has_left);
    for (unsigned k = 0; k < 3; k++) {
        next_round(&seeded, 80);
        tell_all();
        world_turn(&w, merger);
    }
    world_read_head(&w, world_newest_head(&w), head);
    assert_u64(head->writer_count, 2);
    assert_u64(head->writers[1].state, HEAD_WRITER_ENDED);
    time_pass(2 * SHORT_NS);
    world_turn(&w, merger);
    cr_assert(stay_of(merger, EPOCH(1)).has_left);
    cr_assert(stay_of(merger, EPOCH(0)).is_silent);
    cr_assert_not(stay_of(merger, EPOCH(1)).is_silent);
    world_check(&w);
    uint64_t first = EPOCH(1);
    world_join(&w, 1);
    for (unsigned k = 0; k < 3; k++) {
        world_tick(&w);
        tell_all();
        world_turn(&w, merger);
        world_work(&w, &seeded, 20);
    }
    world_read_head(&w, world_newest_head(&w), head);
    assert_u64(head->writer_count, 2);
    assert_u64(head->writers[1].epoch, EPOCH(1));
    assert_u64(head->writers[1].node, first);
    assert_u64(head->cut, w.round);
}

/* A node that does nothing tells rounds alone: no head is made of them within the minute. */
CheckedTest(merger, nothing_new, check_heads)
{
    struct seeded seeded = {6};
    world_join(&w, 0);
    for (unsigned k = 0; k < 5; k++) {
        next_round(&seeded, k == 0 ? 20 : 0);
        tell_all();
        world_turn(&w, merger);
    }
    assert_u64(world_newest_head(&w), 1);
    next_round(&seeded, 20);
    tell_all();
    world_turn(&w, merger);
    assert_u64(world_newest_head(&w), 2);
}

/* A node that took what others did has a newer number, and nothing to tell: a head says so soon. */
CheckedTest(merger, a_number_that_goes_on, check_heads)
{
    struct seeded seeded = {8};
    struct head *head = xmalloc(sizeof *head);
    world_join(&w, 0);
    next_round(&seeded, 20);
    tell_all();
    world_turn(&w, merger);
    world_tick(&w);
    w.nodes[0].noted[w.round - FIRST_ROUND]++;
    tell_all();
    world_turn(&w, merger);
    assert_u64(world_newest_head(&w), 1);
    world_read_head(&w, 1, head);
    uint64_t merged = head->writers[0].merged;
    time_pass(6ll * 1000000000);
    world_turn(&w, merger);
    assert_u64(world_newest_head(&w), 2);
    world_read_head(&w, 2, head);
    assert_u64(head->writers[0].merged, merged + 1);
    free(head);
}

static struct head *heard; /* the last one */

static void hear(const struct head *head, void *arg)
{
    (void)arg;
    cr_assert(head->number >= heard->number);
    *heard = *head;
}

/* A merger tells of each newer head, also of another's. */
CheckedTest(merger, what_it_tells_of_heads, check_heads)
{
    struct seeded seeded = {6};
    heard = xcalloc(1, sizeof *heard);
    w.on_head = hear;
    struct merger *waits = world_merger(&w, 2, LEASE_NS, GRACE_NS);
    world_join(&w, 0);
    for (unsigned k = 0; k < 3; k++) {
        next_round(&seeded, 20);
        tell_all();
        world_turn(&w, merger);
        world_turn(&w, waits);
        cr_assert_not(status_of(waits).is_merger);
        assert_u64(world_newest_head(&w), k + 1);
        assert_u64(heard->number, k + 1);
        assert_u64(heard->writers[0].merged, w.nodes[0].from);
    }
    merger_end(merger);
    next_round(&seeded, 20);
    tell_all();
    time_pass(LEASE_NS + 1);
    world_turn(&w, waits);
    cr_assert(status_of(waits).is_merger);
    assert_u64(heard->number, 4);
    assert_u64(heard->writers[0].merged, w.nodes[0].from);
    merger_free(waits);
    free(heard);
}

CheckedTest(merger, a_silent_node, check_heads)
{
    struct seeded seeded = {7};
    merger_free(merger);
    merger = world_merger(&w, 1, SHORT_NS, GRACE_NS);
    world_join(&w, 0);
    world_join(&w, 1);
    next_round(&seeded, 20);
    tell_all();
    world_turn(&w, merger);
    next_round(&seeded, 20);
    world_tell(&w, 0, w.round);
    world_turn(&w, merger);
    cr_assert_not(stay_of(merger, EPOCH(1)).is_silent);
    time_pass(2 * SHORT_NS);
    next_round(&seeded, 20);
    world_tell(&w, 0, w.round);
    world_turn(&w, merger);
    cr_assert(stay_of(merger, EPOCH(1)).is_silent);
    cr_assert_not(stay_of(merger, EPOCH(0)).is_silent);
    cr_assert_gt(stay_of(merger, EPOCH(1)).age_ns, SHORT_NS);
    assert_str(stay_of(merger, EPOCH(1)).holder, "node 1");
    assert_u64(status_of(merger).held_back_by, EPOCH(1));
    assert_u64(world_newest_head(&w), 1);
}

/* What is not kept in memory is read again. */
CheckedTest(merger, feeds_that_wait_for_long, check_heads)
{
    struct seeded seeded = {8};
    merger_free(merger);
    w.keeps_nothing = true;
    merger = world_merger(&w, 1, LEASE_NS, GRACE_NS);
    world_join(&w, 0);
    world_join(&w, 1);
    for (unsigned k = 0; k < 20; k++) {
        next_round(&seeded, 20);
        world_tell(&w, 0, w.round);
        world_turn(&w, merger);
    }
    assert_u64(world_newest_head(&w), 0);
    world_tell(&w, 1, w.round);
    world_turn(&w, merger);
    assert_u64(world_newest_head(&w), 1);
}

/* Heads have few runs, however many there were. */
CheckedTest(merger, runs_are_merged, check_heads)
{
    struct seeded seeded = {6};
    _cleanup_free_ struct head *head = xmalloc(sizeof *head);
    world_join(&w, 0);
    world_join(&w, 1);
    uint32_t most = 0;
    for (unsigned k = 1; k <= 40; k++) {
        next_round(&seeded, 20);
        tell_all();
        world_turn(&w, merger);
        world_read_head(&w, k, head);
        most = (uint32_t)max_u64(most, head->run_count);
    }
    cr_assert_gt(most, 1u);
    cr_assert_leq(head->run_count, 8);
    assert_u64(head->cut, w.round);
    _cleanup_free_ char *runs =
        world_path(&w, "union-1/runs/%016llx", (unsigned long long)head->runs[0].id);
    assert_i64(access(runs, F_OK), 0);
}

TestSuite(merger_thread, .init = setup, .fini = teardown);

CheckedTest(merger_thread, its_thread, check_heads)
{
    struct seeded seeded = {10};
    world_join(&w, 0);
    next_round(&seeded, 20);
    tell_all();
    assert_i64(merger_start(merger), 0);
    AWAIT(world_newest_head(&w) == 1, "no head");
    cr_assert(world_has(&w, "lease/holder"));
    merger_stop(merger);
    merger_free(merger);
    cr_assert_not(world_has(&w, "lease/holder"));
    merger = NULL;
}
