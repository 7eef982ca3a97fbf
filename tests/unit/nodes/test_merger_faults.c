// SPDX-License-Identifier: Apache-2.0
/* Mergers that end, or follow each other, and objects that are damaged or forged. Each head is
 * checked all the same (check_heads()). */
#include "../spoil.h"
#include "format/feed.h"
#include "world_suite.h"

#define SHORT_NS (1000ll * 1000000)
#define EPOCH(i) w.nodes[i].peer.node.epoch /* of its stay */

TestSuite(merger_faults, .init = setup, .fini = teardown);

static void next_round(void)
{
    world_work(&w, &seeded, 60);
    world_tell_round(&w);
}

static void pass(struct merger *m)
{
    next_round();
    world_turn(&w, m);
}

static struct merger_status status_of(struct merger *m)
{
    struct merger_status status;
    merger_status(m, &status);
    merger_status_done(&status);
    return status;
}

static void expect_why(uint64_t epoch, const char *why)
{
    struct merger_status status;
    bool is_found = false;
    merger_status(merger, &status);
    for (size_t i = 0; i < status.stay_count; i++)
        if (status.stays[i].epoch == epoch) {
            expect_str(status.stays[i].why, why);
            cr_assert(status.stays[i].is_silent || *why == '\0');
            is_found = true;
        }
    cr_assert(is_found);
    merger_status_done(&status);
}

static void expect_head(uint64_t number)
{
    assert_u64(world_newest_head(&w), number);
}

/* --- one after the other ---------------------------------------------------------------------- */

CheckedTest(merger_faults, another_takes_over, check_heads)
{
    begin_with(SHORT_NS, GRACE_NS);
    other = world_merger(&w, 2, SHORT_NS, GRACE_NS);
    pass(merger);
    pass(merger);
    world_turn(&w, other);
    cr_assert_not(status_of(other).is_merger);
    assert_u64(status_of(other).head, 2);
    assert_str(status_of(other).holder, "merger");
    time_pass(2 * SHORT_NS);
    pass(other);
    cr_assert(status_of(other).is_merger);
    expect_head(3);
    pass(merger);
    cr_assert_not(status_of(merger).is_merger);
    expect_head(3);
    world_turn(&w, other);
    expect_head(4);
    merger_free(other);
    other = NULL;
    time_pass(SHORT_NS);
    pass(merger);
    cr_assert(status_of(merger).is_merger);
    expect_head(5);
    assert_u64(status_of(merger).round, w.round);
}

/* Each takes itself for the merger. */
CheckedTest(merger_faults, two_at_once, check_heads)
{
    pass(merger);
    shell("rm %s/lease/holder", w.path);
    other = world_merger(&w, 2, LEASE_NS, GRACE_NS);
    for (unsigned i = 0; i < 6; i++) {
        pass(i % 2 ? merger : other);
        cr_assert(status_of(merger).is_merger && status_of(other).is_merger);
    }
    expect_head(7);
}

static void turn_other(void *arg)
{
    world_turn(&w, arg);
}

/* A turn that is longer than the lease keeps it. */
CheckedTest(merger_faults, a_long_turn, check_heads)
{
    for (unsigned i = 0; i < 12; i++)
        next_round();
    begin_with(SHORT_NS, GRACE_NS);
    other = world_merger(&w, 2, SHORT_NS, GRACE_NS);
    odd.slow_ns = SHORT_NS / 10;
    odd.before_head = turn_other;
    odd.arg = other;
    world_turn(&w, merger);
    cr_assert_not(status_of(other).is_merger);
    expect_head(1);
}

/* The other creates the head under the number that this one is about to create. */
CheckedTest(merger_faults, a_head_of_another_in_its_place, check_heads)
{
    pass(merger);
    shell("rm %s/lease/holder", w.path);
    other = world_merger(&w, 2, LEASE_NS, GRACE_NS);
    world_turn(&w, other);
    odd.before_head = turn_other;
    odd.arg = other;
    pass(merger);
    expect_head(2);
    pass(merger);
    expect_head(3);
    assert_u64(status_of(merger).head, 3);
    assert_u64(status_of(merger).round, w.round);
}

/* The answer says nothing of what happened, or that it may be repeated. */
CheckedTest(merger_faults, lost_answers, check_heads)
{
    pass(merger);
    odd.lost_answer = -EACCES;
    pass(merger);
    expect_head(2);
    odd.lost_answer = -ETIMEDOUT;
    next_round();
    assert_i64(merger_turn(merger, world_now(&w)), -ETIMEDOUT);
    expect_head(3);
    pass(merger);
    expect_head(4);
    assert_u64(status_of(merger).round, w.round);
}

/* Its run is there, and no head: the next one of its store makes both anew. */
CheckedTest(merger_faults, ended_between_run_and_head, check_heads)
{
    pass(merger);
    odd.fails_heads = true;
    next_round();
    assert_i64(merger_turn(merger, world_now(&w)), -EACCES);
    expect_head(1);
    assert_i64(status_of(merger).error, -EACCES);
    odd.fails_heads = false;
    begin_with(LEASE_NS, GRACE_NS);
    pass(merger);
    expect_head(2);
    assert_u64(world_count(&w, "runs"), world_count(&w, "copies"));
}

/* Whatever a predecessor left in STORE/union. */
CheckedTest(merger_faults, leftovers_in_its_directory, check_heads)
{
    pass(merger);
    merger_free(merger);
    shell("cd %s/union-1 && for f in view/* runs/*; do echo damaged > $f; done && mkdir view/d",
          w.path);
    merger = world_merger(&w, 1, LEASE_NS, GRACE_NS);
    pass(merger);
    expect_head(2);
    assert_u64(status_of(merger).error, 0);
}

/* --- damage ----------------------------------------------------------------------------------- */

static void spoil(const char *path, uint64_t offset)
{
    spoil_file(path, offset, 1, 1);
    world_stamp(path);
}

static char *feed_path(unsigned node)
{
    return world_path(&w, "feeds/%016llx-%016llx", (unsigned long long)w.round,
                      (unsigned long long)EPOCH(node));
}

/* The union stands until the feed is whole again. */
CheckedTest(merger_faults, a_damaged_feed, check_heads)
{
    begin_with(SHORT_NS, GRACE_NS);
    pass(merger);
    next_round();
    _cleanup_free_ char *path = feed_path(1);
    spoil(path, 300);
    time_pass(SHORT_NS / 4);
    world_turn(&w, merger);
    expect_why(EPOCH(1), "it is damaged, or says what cannot be");
    expect_why(EPOCH(0), "");
    pass(merger);
    expect_head(1);
    spoil(path, 300);
    time_pass(2 * SHORT_NS);
    world_turn(&w, merger);
    expect_head(2);
    assert_u64(status_of(merger).round, w.round);
}

/* It came while the list was made, which has the one after it. */
CheckedTest(merger_faults, a_list_that_lacks_a_feed, check_heads)
{
    char hidden[FEED_NAME_LEN];
    pass(merger);
    next_round();
    feed_name(w.round, EPOCH(1), hidden);
    next_round();
    odd.hidden = hidden;
    world_turn(&w, merger);
    expect_head(1);
    odd.hidden = NULL;
    world_turn(&w, merger);
    expect_head(2);
    assert_u64(status_of(merger).round, w.round);
}

/* A server whose lists are older than what was created before: the head lacks operations of a node
 * that joined, and others may have relied on them. So such servers are not supported. The union
 * stands when it sees that. */
CheckedTest(merger_faults, a_server_whose_lists_lag, check_heads)
{
    char hidden[OBJECT_NAME_LEN];
    pass(merger);
    world_join(&w, 2);
    object_name("writers", EPOCH(2), hidden);
    odd.hidden = hidden;
    while (w.nodes[2].peer.node.ops == 0)
        world_work(&w, &seeded, 10);
    pass(merger);
    expect_head(2);
    _cleanup_free_ struct head *head = xmalloc(sizeof *head);
    world_read_head(&w, 2, head);
    assert_u64(head_round(head), w.round);
    assert_u64(head->writer_count, 2);
    cr_assert_neq(w.nodes[2].noted[w.round - FIRST_ROUND], 0);
    w.checked = 2; /* torn, as was just seen */
    odd.hidden = NULL;
    pass(merger);
    time_pass(LEASE_NS / 4); /* until the silent are looked for again */
    pass(merger);
    expect_head(2);
    expect_why(EPOCH(2), "it tells of rounds that the union is past: is a clock wrong?");
}

static void make_foreign(struct feed *feed)
{
    feed->history[0] ^= 1;
}

static void skip_operations(struct feed *feed)
{
    struct record rec;
    size_t at = 0;
    cr_assert(feed_next(feed, &at, &rec));
    feed->from = rec.seq;
    feed->records += at;
    feed->records_len -= at;
    feed->record_count--;
}

static void forget_the_one_before(struct feed *feed)
{
    feed->previous[0] ^= 1;
}

static void claim_another_node(struct feed *feed)
{
    feed->node--;
}

static void hide_inodes(struct feed *feed)
{
    feed->max_ino = 1;
}

static void claim_last_epoch(struct feed *feed)
{
    feed->max_id = ~0ull;
}

static void be_of_a_later_generation(struct feed *feed)
{
    feed->generation = 1;
}

CheckedTest(merger_faults, forged_feeds, check_heads)
{
    static const char cannot_be[] = "it is damaged, or says what cannot be";
    static const struct {
        void (*forge)(struct feed *feed);
        const char *why;
    } cases[] = {{make_foreign, cannot_be},
                 {skip_operations, "it lacks operations"},
                 {forget_the_one_before, "it follows another feed than the one before it"},
                 {claim_another_node, "it is of another node"},
                 {hide_inodes, cannot_be},
                 {claim_last_epoch, cannot_be},
                 {be_of_a_later_generation, "it is of a generation that no head began"}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        if (i > 0) {
            check_heads();
            teardown();
            setup();
        }
        begin_with(SHORT_NS, GRACE_NS);
        pass(merger);
        pass(merger);
        world_work(&w, &seeded, 200);
        w.nodes[1].forge = cases[i].forge;
        for (unsigned k = 0; k < 3; k++) {
            pass(merger);
            time_pass(SHORT_NS / 4);
        }
        expect_why(EPOCH(1), cases[i].why);
        expect_head(2);
    }
}

/* It may be that of any node. */
CheckedTest(merger_faults, a_damaged_entry_of_a_writer, check_heads)
{
    begin_with(SHORT_NS, GRACE_NS);
    pass(merger);
    world_join(&w, 2);
    _cleanup_free_ char *path = world_path(&w, "writers/%016llx", (unsigned long long)EPOCH(2));
    spoil(path, 40);
    pass(merger);
    time_pass(SHORT_NS / 4);
    pass(merger);
    expect_head(1);
    expect_why(EPOCH(2), "its entry in writers/ is damaged");
    spoil(path, 40);
    time_pass(SHORT_NS);
    pass(merger);
    expect_head(2);
    time_pass(SHORT_NS / 4);
    world_turn(&w, merger);
    expect_why(EPOCH(2), "");
}

/* It never told anything, and somebody removed it. */
CheckedTest(merger_faults, an_entry_of_a_writer_that_is_gone, check_heads)
{
    pass(merger);
    world_join(&w, 2);
    world_tick(&w);
    world_tell(&w, 0, w.round);
    world_tell(&w, 1, w.round);
    world_turn(&w, merger);
    shell("rm %s/writers/%016llx", w.path, (unsigned long long)EPOCH(2));
    fixture_close(&w.nodes[2].peer.own);
    w.nodes[2].is_there = false;
    pass(merger);
    expect_head(2);
}

/* A merger that begins takes a run from where it is whole. */
CheckedTest(merger_faults, damaged_runs, check_heads)
{
    _cleanup_free_ struct head *head = xmalloc(sizeof *head);
    pass(merger);
    pass(merger);
    shell("cd %s/runs && for f in *; do echo damaged > $f; done", w.path);
    other = world_merger(&w, 2, LEASE_NS, GRACE_NS);
    shell("rm %s/lease/holder", w.path);
    pass(other);
    expect_head(3);
    world_read_head(&w, 3, head);
    for (uint32_t i = 0; i < head->run_count; i++)
        shell("cmp %1$s/runs/%2$016llx %1$s/copies/%2$016llx", w.path,
              (unsigned long long)head->runs[i].id);
    merger_free(other);
    shell("rm %1$s/runs/* %1$s/copies/*", w.path);
    other = world_merger(&w, 2, LEASE_NS, GRACE_NS);
    shell("rm -r %s/union-2/runs", w.path);
    next_round();
    assert_i64(merger_turn(other, world_now(&w)), -ENOENT);
    expect_head(3);
    w.checked = 3; /* nobody can read them */
}

/* Its own files, under it. */
CheckedTest(merger_faults, damaged_local_runs, check_heads)
{
    pass(merger);
    for (unsigned i = 0; i < 8; i++) {
        shell("cd %s/union-1/runs && for f in *; do echo damaged > $f; done", w.path);
        next_round();
        (void)!merger_turn(merger, world_now(&w));
        world_turn(&w, merger);
    }
    assert_u64(status_of(merger).round, w.round);
}

CheckedTest(merger_faults, a_damaged_head, check_heads)
{
    pass(merger);
    pass(merger);
    shell("rm %s/lease/holder", w.path);
    _cleanup_free_ char *path = world_path(&w, "heads/%016llx", 2ull);
    spoil(path, 120);
    other = world_merger(&w, 2, LEASE_NS, GRACE_NS);
    next_round();
    assert_i64(merger_turn(other, world_now(&w)), -EBADMSG);
    expect_head(2);
    spoil(path, 120);
    world_turn(&w, other);
    expect_head(3);
}

/* Its node's content is named by it: the union goes on. */
CheckedTest(merger_faults, a_feed_of_a_row_that_is_lost, check_heads)
{
    _cleanup_free_ struct head *head = xmalloc(sizeof *head);
    pass(merger);
    world_work(&w, &seeded, 40);
    world_leave(&w, 1);
    pass(merger);
    shell("rm %s/feeds/%016llx-* %s/lease/holder", w.path, (unsigned long long)ROUND_MAX, w.path);
    other = world_merger(&w, 2, LEASE_NS, GRACE_NS);
    pass(other);
    world_read_head(&w, 3, head);
    assert_u64(head->writer_count, 2);
    assert_u64(head->packs, 1);
    world_check_but_totals(&w);
}

/* It is a feed, but not that of the row. */
CheckedTest(merger_faults, a_feed_of_a_row_that_is_another, check_heads)
{
    _cleanup_free_ struct head *head = xmalloc(sizeof *head);
    _cleanup_free_ struct feed *feed = xmalloc(sizeof *feed);
    _cleanup_free_ char *bytes = NULL;
    size_t len;
    pass(merger);
    world_work(&w, &seeded, 40);
    world_leave(&w, 1);
    pass(merger);
    _cleanup_free_ char *path = world_path(
        &w, "feeds/%016llx-%016llx", (unsigned long long)ROUND_MAX, (unsigned long long)EPOCH(1));
    assert_i64(io_read_file(path, FEED_LEN_MAX, &bytes, &len), 0);
    assert_i64(feed_decode(bytes, len, feed), 0);
    feed->packs = 100;
    _cleanup_free_ uint8_t *again = xmalloc(len);
    feed_encode(feed, again);
    assert_i64(io_write_file_durable(path, again, len), 0);
    shell("rm %s/lease/holder", w.path);
    other = world_merger(&w, 2, LEASE_NS, GRACE_NS);
    pass(other);
    world_read_head(&w, 3, head);
    assert_u64(head->packs, 1);
    world_check_but_totals(&w);
}

/* It leaves the prefix to others, and takes it again where there are none. */
CheckedTest(merger_faults, a_merger_that_cannot, check_heads)
{
    begin_with(SHORT_NS, GRACE_NS);
    pass(merger);
    next_round();
    odd.fails_heads = true;
    assert_i64(merger_turn(merger, world_now(&w)), -EACCES);
    cr_assert(status_of(merger).is_merger);
    time_pass(SHORT_NS);
    assert_i64(merger_turn(merger, world_now(&w)), -EACCES);
    cr_assert_not(status_of(merger).is_merger);
    cr_assert_not(world_has(&w, "lease/holder"));
    odd.fails_heads = false;
    world_turn(&w, merger);
    cr_assert_not(status_of(merger).is_merger);
    time_pass(SHORT_NS);
    world_turn(&w, merger);
    expect_head(2);
}
