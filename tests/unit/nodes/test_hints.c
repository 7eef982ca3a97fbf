// SPDX-License-Identifier: Apache-2.0
/* Markers that lie behind operations of other nodes, as their jobs say: no head has one without. */
#include <stdio.h>

#include "format/hint.h"
#include "nodes/hints.h"
#include "world_suite.h"

TestSuite(hints, .init = setup, .fini = teardown);

static struct head head;

static uint64_t next_number(unsigned i)
{
    const struct node *node = &w.nodes[i].peer.node;
    return (node->epoch << SEQ_EPOCH_SHIFT) + node->ops + 1;
}

/* Node i sets a hint. */
static void hint(unsigned i, uint64_t number)
{
    char text[32];
    int len = snprintf(text, sizeof text, "1 %llu", (unsigned long long)number);
    peer_op(&w.nodes[i].peer, (struct record){.type = REC_SETXATTR,
                                              .ino = ROOT_INO,
                                              .name = HINT_XATTR,
                                              .name_len = strlen(HINT_XATTR),
                                              .value = text,
                                              .value_len = (uint32_t)len});
}

/* Returns the round of the newest head. */
static uint64_t tell_and_turn(void)
{
    world_tell_round(&w);
    world_turn(&w, merger);
    world_read_head(&w, world_newest_head(&w), &head);
    return head_round(&head);
}

static uint64_t begin(void)
{
    world_work(&w, &seeded, 60);
    uint64_t round = tell_and_turn();
    assert_u64(round, w.round);
    return round;
}

/* By the rounds of node 1 its operation came later: its clock is ahead, or that of node 0 behind.
 */
CheckedTest(hints, clocks_that_contradict_each_other, check_heads)
{
    uint64_t before = begin(), number;
    world_work(&w, &seeded, 60);
    number = next_number(1);
    hint(0, number);
    assert_u64(tell_and_turn(), before);
    begin_with(LEASE_NS, GRACE_NS); /* another one knows it, too */
    world_turn(&w, merger);
    world_read_head(&w, world_newest_head(&w), &head);
    assert_u64(head_round(&head), before);
    while (next_number(1) <= number)
        world_work(&w, &seeded, 10);
    assert_u64(tell_and_turn(), w.round);
    cr_assert_geq(head.writers[1].merged, number);
}

CheckedTest(hints, what_is_told_already, check_heads)
{
    (void)begin();
    hint(0, w.nodes[1].from);
    assert_u64(tell_and_turn(), w.round);
    hint(1, w.nodes[0].from);
    assert_u64(tell_and_turn(), w.round);
}

/* Anybody may set one. */
CheckedTest(hints, operations_that_never_come, check_heads)
{
    uint64_t before = begin();
    hint(0, next_number(1) + 100000);
    uint64_t first = w.round + 1;
    while (w.round + 1 < first + HINT_ROUNDS)
        assert_u64(tell_and_turn(), before);
    assert_u64(tell_and_turn(), w.round);
}

CheckedTest(hints, numbers_of_nobody, check_heads)
{
    (void)begin();
    hint(0, 5);
    hint(0, 4096ull << SEQ_EPOCH_SHIFT | 7);
    hint(0, UINT64_MAX);
    assert_u64(tell_and_turn(), w.round);
}

CheckedTest(hints, a_node_that_left, check_heads)
{
    (void)begin();
    world_leave(&w, 1);
    hint(0, next_number(1) + 5);
    assert_u64(tell_and_turn(), w.round);
}

/* What the marker lies behind is lost: then so is the marker. */
CheckedTest(hints, a_node_that_is_lost, check_heads)
{
    uint64_t before = begin();
    hint(0, next_number(1));
    world_tick(&w);
    world_tell(&w, 0, w.round);
    world_tell(&w, 1, w.round);
    world_die(&w, 1);
    for (unsigned i = 0; i < 5; i++) {
        time_pass(LEASE_NS / 4);
        assert_u64(tell_and_turn(), before);
    }
    time_pass(LEASE_NS / 4);
    world_turn(&w, merger);
    world_read_head(&w, world_newest_head(&w), &head);
    assert_u64(head_generation(&head), 1);
    assert_u64(head_round(&head), before);
}
