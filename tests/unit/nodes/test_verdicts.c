// SPDX-License-Identifier: Apache-2.0
/* A node is lost: the verdict, the head that ends a generation, and what counts behind it. */
#include "../expect.h"
#include "../stopped_time.h"
#include "nodes/stays.h"
#include "world.h"

#define LEASE_NS (10ll * 1000000000)
#define GRACE_NS (3600ll * 1000000000)

#define EPOCH(i) w.nodes[i].peer.node.epoch /* of its stay */

static struct world w;
static struct merger *merger;
static struct seeded seeded;
static struct head head;

static void setup(void)
{
    world_open(&w);
    time_stop();
    seeded.state = test_number("CAIRN_TESTS_SEED", 1);
    merger = world_merger(&w, 1, LEASE_NS, GRACE_NS);
    for (unsigned i = 0; i < 3; i++)
        world_join(&w, i);
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

TestSuite(verdicts, .init = setup, .fini = teardown);

static void next_round(unsigned steps)
{
    world_work(&w, &seeded, steps);
    world_tick(&w);
    for (unsigned i = 0; i < WORLD_NODES; i++)
        if (w.nodes[i].is_there && !w.nodes[i].has_left)
            world_tell(&w, i, w.round);
}

static void turn(void)
{
    world_turn(&w, merger);
}

static void read_newest(void)
{
    world_read_head(&w, world_newest_head(&w), &head);
}

static const struct head_writer *row(unsigned i)
{
    for (uint32_t k = 0; k < head.writer_count; k++)
        if (head.writers[k].epoch == EPOCH(i))
            return &head.writers[k];
    return NULL;
}

/* A turn of each kind: the verdict, then the head. */
static void let_verdict_come(void)
{
    for (unsigned i = 0; i < 4; i++) {
        time_pass(LEASE_NS / 3);
        next_round(20);
        turn();
    }
    time_pass(LEASE_NS / 4);
    turn();
}

static struct merger_status status_of_merger(void)
{
    struct merger_status status;
    merger_status(merger, &status);
    merger_status_done(&status);
    return status;
}

CheckedTest(verdicts, a_node_is_lost, check_heads)
{
    uint64_t common, number;
    next_round(60);
    turn();
    next_round(60);
    turn();
    common = w.round;
    number = world_newest_head(&w);
    world_work(&w, &seeded, 30);
    world_die(&w, 1);
    let_verdict_come();
    read_newest();
    assert_u64(head.number, number + 1);
    assert_u64(head_generation(&head), 1);
    assert_u64(head_round(&head), common);
    cr_assert_gt(head.end_time, 0);
    assert_u64(row(1)->state, HEAD_WRITER_ENDED);
    assert_u64(row(0)->state, HEAD_WRITER_LIVES);
    assert_u64(row(0)->merged, w.nodes[0].noted[common - FIRST_ROUND]);
    cr_assert_lt(row(0)->merged, w.nodes[0].from, "something was told later");
    assert_u64(status_of_merger().generation, 1);

    /* Feeds of the generation before count nowhere, and neither does its node. */
    next_round(20);
    turn();
    time_pass(LEASE_NS / 2);
    turn();
    assert_u64(world_newest_head(&w), number + 1);
    world_set_aside(&w, 0, &head);
    next_round(0);
    turn();
    assert_u64(world_newest_head(&w), number + 1, "node 2 tells in the old one still");
    world_set_aside(&w, 2, &head);
    world_join(&w, 3);
    w.nodes[3].generation = 1;
    next_round(40);
    turn();
    read_newest();
    assert_u64(head.number, number + 2);
    assert_u64(head.cut, head_cut_of(1, w.round));
    assert_u64(row(1)->state, HEAD_WRITER_ENDED);
}

/* The turn of the verdict has news, too: no head may say that a node ended, and let the others go
 * on. */
CheckedTest(verdicts, a_verdict_beside_news, check_heads)
{
    next_round(60);
    turn();
    next_round(60);
    uint64_t common = w.round, number = world_newest_head(&w);
    world_die(&w, 1);
    for (unsigned i = 0; i < 4; i++) {
        time_pass(LEASE_NS / 3);
        next_round(20);
    }
    turn();
    assert_u64(world_count(&w, "ended"), 1);
    assert_u64(world_newest_head(&w), number);
    turn();
    read_newest();
    assert_u64(head.number, number + 1);
    assert_u64(head_generation(&head), 1);
    assert_u64(head_round(&head), common);
    assert_u64(row(1)->state, HEAD_WRITER_ENDED);
}

/* A lost node that told all that it did ends the generation, too: nobody else knows that. */
CheckedTest(verdicts, a_node_that_never_told, check_heads)
{
    next_round(60);
    turn();
    world_join(&w, 3);
    world_die(&w, 3);
    let_verdict_come();
    read_newest();
    assert_u64(head_generation(&head), 1);
    assert_u64(row(3)->state, HEAD_WRITER_ENDED);
    assert_u64(row(3)->merged, 0);
    assert_u64(row(3)->feed_round, 0);
    for (unsigned i = 0; i < 3; i++)
        world_set_aside(&w, i, &head);
    merger_free(merger);
    time_pass(LEASE_NS / 2);
    merger = world_merger(&w, 2, LEASE_NS, GRACE_NS);
    for (unsigned i = 0; i < 3; i++) {
        next_round(0);
        turn();
        time_pass(LEASE_NS / 4);
    }
    read_newest();
    assert_u64(head_generation(&head), 1, "it ends once");
}

/* What it had told in the stay before is all that there is of it: no head may forget which content
 * that is, and it is what the node goes back to. */
CheckedTest(verdicts, a_node_that_came_back_and_told_nothing, check_heads)
{
    uint64_t before = EPOCH(1);
    next_round(60);
    turn();
    world_leave(&w, 1);
    next_round(20);
    turn();
    read_newest();
    assert_u64(row(1)->state, HEAD_WRITER_ENDED);
    world_join(&w, 1);
    world_die(&w, 1);
    let_verdict_come();
    read_newest();
    assert_u64(head_generation(&head), 1);
    assert_u64(row(1)->feed_round, 0);
    world_set_aside(&w, 0, &head);
    world_set_aside(&w, 2, &head);
    world_join(&w, 3);
    w.nodes[3].generation = 1;
    for (unsigned i = 0; i < 3; i++) {
        next_round(40);
        turn();
    }
    uint64_t ended_at = head.number;
    read_newest();
    cr_assert_gt(head.number, ended_at);
    assert_u64(head.writers[1].epoch, before);
    assert_u64(head.writers[1].feed_round, ROUND_MAX);
}

/* The node itself, the store, or the job may be what stands still. */
CheckedTest(verdicts, most_are_silent, check_heads)
{
    struct local local = {.path = w.path, .sb = w.sb};
    struct prefix prefix = {0};
    const struct prefix_user user = {0};
    next_round(60);
    turn();
    world_die(&w, 1);
    world_die(&w, 2);
    let_verdict_come();
    assert_u64(world_count(&w, "ended"), 0);
    read_newest();
    assert_u64(head_generation(&head), 0);
    prefix_init(&prefix, &local, NULL, &w.remote, &user);
    for (unsigned i = 0; i < 2; i++) { /* twice is once */
        assert_i64(ended_put(&prefix, EPOCH(1), ENDED_BY_HAND, 0), 0);
        assert_i64(ended_put(&prefix, EPOCH(2), ENDED_BY_HAND, 0), 0);
    }
    prefix_done(&prefix);
    time_pass(LEASE_NS / 3);
    turn();
    read_newest();
    assert_u64(head_generation(&head), 1);
    assert_u64(row(1)->state, HEAD_WRITER_ENDED);
    assert_u64(row(2)->state, HEAD_WRITER_ENDED);
}

/* Two of three stand still at one time; the one was heard later than the other. */
CheckedTest(verdicts, most_fall_silent_one_after_the_other, check_heads)
{
    next_round(60);
    turn();
    time_pass(LEASE_NS / 5);
    world_tick(&w);
    world_tell(&w, 0, w.round);
    world_tell(&w, 1, w.round);
    world_die(&w, 1);
    world_die(&w, 2);
    for (unsigned i = 0; i < 10; i++) {
        time_pass(LEASE_NS / 5);
        world_tick(&w);
        world_tell(&w, 0, w.round);
        turn();
    }
    assert_u64(world_count(&w, "ended"), 0);
}

/* It only looked dead. */
static void tell_late(void *arg)
{
    (void)arg;
    world_tell(&w, 1, w.round);
}

CheckedTest(verdicts, a_feed_that_lands_late, check_heads)
{
    next_round(60);
    turn();
    world_work(&w, &seeded, 30);
    world_tick(&w);
    world_tell(&w, 0, w.round);
    world_tell(&w, 2, w.round);
    time_pass(LEASE_NS + LEASE_NS / 2);
    world_tick(&w);
    world_tell(&w, 0, w.round);
    world_tell(&w, 2, w.round);
    turn();
    assert_u64(world_count(&w, "ended"), 1);
    odd.before_head = tell_late;
    turn();
    read_newest();
    assert_u64(head_generation(&head), 1);
    assert_u64(row(1)->state, HEAD_WRITER_ENDED);
    time_pass(LEASE_NS / 4);
    turn();
    read_newest();
    cr_assert_lt(row(1)->feed_round, w.nodes[1].hi, "what landed later counts nowhere");
    w.nodes[1].is_dead = true;
    world_set_aside(&w, 1, &head);
}

/* A node that leaves while it is taken for dead has told all. */
CheckedTest(verdicts, a_node_that_leaves_at_last, check_heads)
{
    next_round(60);
    turn();
    time_pass(LEASE_NS + LEASE_NS / 2);
    world_tick(&w);
    world_tell(&w, 0, w.round);
    world_tell(&w, 2, w.round);
    turn();
    assert_u64(world_count(&w, "ended"), 1);
    world_leave(&w, 1);
    world_tick(&w);
    world_tell(&w, 0, w.round);
    world_tell(&w, 2, w.round);
    turn();
    read_newest();
    assert_u64(head_generation(&head), 0);
    assert_u64(row(1)->feed_round, ROUND_MAX);
}
