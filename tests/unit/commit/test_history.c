// SPDX-License-Identifier: Apache-2.0
/* The history by itself: the order of operations, seals that race, room in the log, cuts. */
#include <pthread.h>
#include <stdio.h>
#include <sys/stat.h>

#include "../expect.h"
#include "../stopped_time.h"
#include "objects.h"
#include "overlay/ns.h"
#include "stage/stage.h"
#include "base/clock.h"

#define RACERS 4u
#define ROUNDS 25u

static void setup(void)
{
    struct ns_inode root;
    objects_setup_with_stage();
    assert_i64(ns_hold(o.local.ns, ROOT_INO, &root), 0);
}

static struct node_clock *node_clock_of_test;

static void teardown(void)
{
    ns_drop(o.local.ns, ROOT_INO);
    objects_teardown();
    node_clock_free(node_clock_of_test);
}

TestSuite(commit_history, .init = setup, .fini = teardown, .timeout = 120);

static void commit_ok(struct record rec)
{
    int r;
    while ((r = history_commit(o.history, &rec)) == -EAGAIN)
        (void)sched_yield();
    assert_i64(r, 0);
}

static void make_file(uint64_t ino)
{
    char name[32];
    int len = snprintf(name, sizeof name, "file-%llu", (unsigned long long)ino);
    commit_ok((struct record){.type = REC_NASCENT,
                              .ino = ino,
                              .parent = ROOT_INO,
                              .name = name,
                              .name_len = (uint16_t)len,
                              .attrs = {.mode = S_IFREG | 0600}});
}

static void write_file(uint64_t ino)
{
    uint8_t bytes[100] = {1};
    struct stage_write w = {.ino = ino, .length = sizeof bytes, .slab = SLAB_NONE, .data = bytes};
    assert_i64(history_write(o.history, &w), 0);
}

static void seal(uint64_t ino)
{
    assert_i64(history_seal(o.history, ino), 0);
}

static void change_mode(uint64_t ino)
{
    struct ns_inode inode;
    assert_i64(ns_hold(o.local.ns, ino, &inode), 0);
    commit_ok((struct record){.type = REC_SETATTR, .ino = ino, .mask = ATTR_MODE});
    ns_drop(o.local.ns, ino);
}

/* The place of each file's only seal in the list; all numbers ascend. */
static size_t places_of_seals(uint64_t first, size_t *places, size_t files)
{
    size_t count, seals = 0;
    struct op **ops = history_look(o.history, &count);
    memset(places, 0xff, files * sizeof *places);
    for (size_t i = 0; i < count; i++) {
        if (i > 0)
            cr_assert_lt(ops[i - 1]->seq, ops[i]->seq);
        if (ops[i]->type != REC_SEAL || ops[i]->ino < first || ops[i]->ino >= first + files)
            continue;
        expect_u64(places[ops[i]->ino - first], SIZE_MAX, "inode %llu is sealed once",
                   (unsigned long long)ops[i]->ino);
        places[ops[i]->ino - first] = i;
        seals++;
    }
    history_looked(o.history, ops);
    return seals;
}

Test(commit_history, a_file_becomes_history_with_its_seal)
{
    make_file(10);
    expect_u64(history_newest(o.history), 0);
    write_file(10);
    seal(10);
    size_t place;
    expect_u64(places_of_seals(10, &place, 1), 1);
    uint64_t newest = history_newest(o.history);
    cr_expect_gt(newest, 0);
    seal(10);
    expect_u64(history_newest(o.history), newest, "there is no draft any more");
}

static uint64_t version_of(uint64_t ino)
{
    struct ns_inode inode;
    assert_i64(ns_hold(o.local.ns, ino, &inode), 0);
    ns_drop(o.local.ns, ino);
    return inode.version;
}

/* The store was alone at first, and has become one of several nodes; then it is another one's
 * version that is followed. */
Test(commit_history, versions_carry_the_node)
{
    make_file(10);
    for (unsigned i = 0; i < 3; i++) {
        write_file(10);
        seal(10);
    }
    expect_u64(version_of(10), 3);
    o.local.sb.incompat |= SUPERBLOCK_INCOMPAT_NODES;
    write_file(10);
    seal(10);
    expect_u64(version_of(10), 1 << 24);
    o.local.sb.node = NODE_MAX;
    write_file(10);
    seal(10);
    expect_u64(version_of(10), 2 << 24 | NODE_MAX);
    o.local.sb.node = 7;
    write_file(10);
    seal(10);
    expect_u64(version_of(10), 3 << 24 | 7);
}

/* Two files in one thread, one after the other; the seal of the first may wait, and the second is
 * sealed at once. */
static void *race(void *arg)
{
    uint64_t first = 1000 + (uint64_t)(uintptr_t)arg * 2 * ROUNDS;
    for (uint64_t ino = first; ino < first + 2 * ROUNDS; ino += 2) {
        make_file(ino);
        make_file(ino + 1);
        write_file(ino);
        write_file(ino + 1);
        assert_i64(history_seal_later(o.history, ino), 0);
        seal(ino + 1);
    }
    return NULL;
}

static _Atomic bool over;

/* The writeback thread's part meanwhile: chooses cuts, which pins versions, and looks. */
static void *choose(void *arg)
{
    uint64_t last = 0;
    (void)arg;
    while (!atomic_load(&over)) {
        struct stage_sealed *sealed;
        size_t count, op_count;
        uint64_t cut = history_choose(o.history, 1 << 20, false, &sealed, &count);
        cr_assert_geq(cut, last);
        struct op **ops = history_up_to(o.history, cut, &op_count);
        cr_assert(op_count == 0 || ops[op_count - 1]->seq <= cut);
        history_seal_ripe(o.history, 0);
        last = cut;
        free(ops);
        free(sealed);
    }
    return NULL;
}

Test(commit_history, no_cut_has_only_the_later_of_two_seals_that_race_with_others)
{
    pthread_t racers[RACERS], chooser;
    atomic_store(&over, false);
    assert_i64(pthread_create(&chooser, NULL, choose, NULL), 0);
    for (size_t i = 0; i < RACERS; i++)
        assert_i64(pthread_create(&racers[i], NULL, race, (void *)i), 0);
    for (size_t i = 0; i < RACERS; i++)
        assert_i64(pthread_join(racers[i], NULL), 0);
    atomic_store(&over, true);
    assert_i64(pthread_join(chooser, NULL), 0);
    static size_t places[2 * RACERS * ROUNDS];
    expect_u64(places_of_seals(1000, places, ARRAY_LEN(places)), ARRAY_LEN(places));
    for (size_t i = 0; i < ARRAY_LEN(places); i += 2)
        cr_expect_lt(places[i], places[i + 1], "pair %zu", i / 2);
}

Test(commit_history, a_seal_that_waits_enters_before_whatever_else_enters)
{
    make_file(10);
    make_file(11);
    write_file(10);
    write_file(11);
    seal(11);
    uint64_t newest = history_newest(o.history);
    assert_i64(history_seal_later(o.history, 10), 0);
    assert_i64(history_seal_later(o.history, 10), 0);
    expect_u64(history_newest(o.history), newest);
    expect_u64(o.history->due_count, 1, "the second waits with the first");
    change_mode(11);
    size_t places[2], count;
    expect_u64(places_of_seals(10, places, 2), 2);
    struct op **ops = history_look(o.history, &count);
    expect_u64(ops[count - 1]->type, REC_SETATTR);
    expect_u64(places[0], count - 2);
    history_looked(o.history, ops);
}

Test(commit_history, erasing_lets_a_closed_state_become_a_version_first)
{
    make_file(10);
    write_file(10);
    assert_i64(history_seal_later(o.history, 10), 0);
    assert_i64(history_erase(o.history, 10, 50, 50, 50), 0);
    size_t place;
    expect_u64(places_of_seals(10, &place, 1), 1);
    struct stage_file_state state;
    cr_assert(stage_file_state(o.local.stage, 10, &state) && state.has_draft);
    expect_u64(state.draft_size, 50);
    expect_u64(state.sealed_size, 100);
}

static size_t count_seals_in_a_row(bool chosen, bool looked)
{
    size_t count;
    make_file(10);
    write_file(10);
    seal(10); /* the birth stays */
    write_file(10);
    seal(10);
    struct op **ops = looked ? history_look(o.history, &count) : NULL;
    if (chosen) {
        struct stage_sealed *sealed;
        (void)history_choose(o.history, 1 << 20, false, &sealed, &count);
        free(sealed);
    }
    write_file(10);
    seal(10);
    if (looked)
        history_looked(o.history, ops);
    ops = history_up_to(o.history, UINT64_MAX, &count);
    free(ops);
    return count;
}

Test(commit_history, one_seal_after_the_other_is_one_operation)
{
    expect_u64(count_seals_in_a_row(false, false), 2);
}

Test(commit_history, what_a_cut_has_chosen_stays_an_operation)
{
    expect_u64(count_seals_in_a_row(true, false), 3);
}

Test(commit_history, what_is_looked_at_stays_an_operation)
{
    expect_u64(count_seals_in_a_row(false, true), 3);
}

Test(commit_history, a_cut_ends_before_the_version_that_makes_it_too_large)
{
    for (uint64_t ino = 10; ino < 13; ino++) {
        make_file(ino);
        write_file(ino);
        seal(ino);
    }
    struct stage_sealed *sealed;
    size_t count, op_count;
    uint64_t cut = history_choose(o.history, 150, false, &sealed, &count);
    expect_u64(count, 1, "100 bytes are missing; with the second, 200");
    cr_expect_lt(cut, history_newest(o.history));
    free(sealed);
    struct op **ops = history_up_to(o.history, cut, &op_count);
    expect_u64(op_count, 1);
    free(ops);
    uint64_t seq;
    int64_t happened;
    history_retire(o.history, cut);
    cr_assert(history_oldest(o.history, &seq, &happened));
    cr_expect_gt(seq, cut);
}

Test(commit_history, a_cut_of_its_own_has_a_number_of_its_own)
{
    struct stage_sealed *sealed;
    size_t count;
    history_begin(o.history, 500);
    expect_u64(horizon_reached(o.horizon), 500);
    expect_u64(history_choose(o.history, 1, false, &sealed, &count), 500);
    free(sealed);
    cr_expect_gt(history_choose(o.history, 1, true, &sealed, &count), 500);
    free(sealed);
}

/* --- room ------------------------------------------------------------------------------------- */

static int reserve(enum reserve_kind kind, size_t len)
{
    LOCK_SCOPE(&o.history->lock);
    return history_reserve_locked(o.history, kind, len);
}

Test(commit_history, the_list_is_bounded_with_what_the_view_lacks)
{
    make_file(10);
    write_file(10);
    seal(10);
    history_retire_lagging(o.history, UINT64_MAX);
    expect_u64(atomic_load(&o.history->lagging), 1);
    atomic_store(&o.history->lagging, PENDING_OPS_MAX);
    expect_i64(reserve(RESERVE_RECORD, 0), -EAGAIN);
    expect_i64(reserve(RESERVE_DRAFT, 0), -EAGAIN);
    expect_i64(reserve(RESERVE_REAP, 0), 0, "it frees room");
    expect_i64(reserve(RESERVE_NONE, 0), 0);
    history_followed(o.history);
    expect_i64(reserve(RESERVE_RECORD, 0), 0);
}

Test(commit_history, each_kind_needs_its_room_in_the_log)
{
    size_t room = stage_log_room(o.local.stage);
    expect_i64(reserve(RESERVE_RECORD, 0), 0);
    expect_i64(reserve(RESERVE_DRAFT, 0), 0);
    expect_i64(reserve(RESERVE_RECORD, room - STAGE_LOG_MARGIN / 2 - 1), 0);
    expect_i64(reserve(RESERVE_RECORD, room - STAGE_LOG_MARGIN / 2), -EAGAIN);
    expect_i64(reserve(RESERVE_REAP, room - STAGE_LOG_MARGIN / 2), 0);
    expect_i64(reserve(RESERVE_REAP, room - STAGE_LOG_MARGIN / 4), -EAGAIN);
    expect_i64(reserve(RESERVE_NONE, room), 0);
}

Test(commit_history, a_store_that_follows_takes_no_change)
{
    make_file(10);
    o.local.options.remote.name = "s3://bucket";
    o.local.options.remote.read_only = true;
    expect_i64(reserve(RESERVE_NONE, 0), -EROFS);
    struct record rec = {.type = REC_SETATTR, .ino = 10, .mask = ATTR_MODE};
    expect_i64(history_commit(o.history, &rec), -EROFS);
}

/* --- rounds ----------------------------------------------------------------------------------- */

#define ROUND_NS (200 * MS_NS)
#define CLOCK_ERROR_NS (20 * MS_NS)
#define RACE_NS (2000 * MS_NS)
#define RACED_MAX 200000u

/* The wall clock is the time. */
static void begin_rounds(void)
{
    node_clock_of_test = node_clock_new(
        &(struct node_clock_options){.error_least = CLOCK_ERROR_NS, .error_most = ROUND_NS / 8});
    node_clock_vouch(node_clock_of_test, 0);
    history_begin_rounds(o.history, ROUND_NS, node_clock_of_test);
}

struct raced {
    uint64_t seq;
    int64_t begun, ended;
};

struct round_racer {
    pthread_t thread;
    unsigned rounds; /* in which an operation of it ended */
    unsigned number;
    struct raced *ops;
    size_t count;
};

static void *race_rounds(void *arg)
{
    struct round_racer *racer = arg;
    int64_t until = clock_realtime_ns() + RACE_NS;
    while ((clock_realtime_ns() < until || racer->rounds < 8) && racer->count < RACED_MAX) {
        struct record rec = {.type = REC_SETATTR,
                             .ino = ROOT_INO,
                             .mask = ATTR_UID,
                             .attrs = {.uid = racer->number}};
        struct raced *op = &racer->ops[racer->count];
        op->begun = clock_realtime_ns();
        int r;
        while ((r = history_commit(o.history, &rec)) == -EAGAIN)
            (void)usleep(200);
        assert_i64(r, 0);
        op->ended = clock_realtime_ns();
        op->seq = rec.seq;
        if (racer->count++ == 0 || op->ended / ROUND_NS != op[-1].ended / ROUND_NS)
            racer->rounds++;
        (void)usleep(300);
    }
    return NULL;
}

/* What ended before the window of a round did is told with it, and what began after the window
 * began is not. */
static unsigned check_round(const struct round_racer *racers, const struct rounds_span *span)
{
    int64_t first = (int64_t)span->lo * ROUND_NS, last = (int64_t)span->hi * ROUND_NS;
    unsigned before = 0;
    for (unsigned i = 0; i < RACERS; i++)
        for (size_t j = 0; j < racers[i].count; j++) {
            const struct raced *op = &racers[i].ops[j];
            if (op->ended < first + CLOCK_ERROR_NS)
                assert_u64(op->seq <= span->number, true, "it was acknowledged before");
            if (op->begun >= last - CLOCK_ERROR_NS) {
                assert_u64(op->seq > span->number, true, "it began later");
                assert_u64(op->ended >= last + CLOCK_ERROR_NS, true, "it waits for the window");
            }
            before += op->seq <= span->number;
        }
    return before;
}

Test(commit_history, operations_stay_clear_of_rounds)
{
    struct round_racer racers[RACERS];
    unsigned seen = 0;
    begin_rounds();
    for (unsigned i = 0; i < RACERS; i++) {
        racers[i] =
            (struct round_racer){.number = i, .ops = xcalloc(RACED_MAX, sizeof(struct raced))};
        assert_i64(pthread_create(&racers[i].thread, NULL, race_rounds, &racers[i]), 0);
    }
    for (unsigned i = 0; i < RACERS; i++)
        (void)pthread_join(racers[i].thread, NULL);
    for (unsigned i = 0; i < RACERS; i++)
        for (size_t j = 0; j < racers[i].count; j++) {
            struct rounds_span span;
            if (history_rounds_of(o.history, racers[i].ops[j].seq, 0, &span))
                seen += check_round(racers, &span) > 0;
        }
    for (unsigned i = 0; i < RACERS; i++)
        free(racers[i].ops);
    cr_assert_geq(seen, 5u);
}

static void pass_round_after(int64_t ns)
{
    int64_t until = (ns / ROUND_NS + 1) * ROUND_NS + 2 * CLOCK_ERROR_NS;
    time_pass(until - clock_realtime_ns());
}

static int count_seals(uint64_t up_to)
{
    size_t count;
    int seals = 0;
    struct op **ops = history_look(o.history, &count);
    for (size_t i = 0; i < count; i++)
        seals += ops[i]->type == REC_SEAL && ops[i]->seq <= up_to;
    history_looked(o.history, ops);
    return seals;
}

/* It was acknowledged before the round, and has no number then. */
Test(commit_history, a_seal_that_waits_is_told_with_the_round)
{
    struct rounds_span span = {0};
    time_stop();
    begin_rounds();
    pass_round_after(clock_realtime_ns());
    make_file(5);
    write_file(5);
    int64_t closed = clock_realtime_ns();
    assert_i64(history_seal_later(o.history, 5), 0);
    pass_round_after(closed);
    struct record rec = {
        .type = REC_SETATTR, .ino = ROOT_INO, .mask = ATTR_UID, .attrs = {.uid = 1}};
    assert_i64(history_commit(o.history, &rec), 0);
    uint64_t sealed = rec.seq - 10;
    while (sealed < rec.seq &&
           !history_rounds_of(o.history, sealed, (uint64_t)(closed / ROUND_NS), &span))
        sealed++;
    cr_assert_lt(sealed, rec.seq, "the round is noted");
    assert_i64(count_seals(span.number), 1);
}

static bool is_told(uint64_t number, int64_t since)
{
    struct rounds_span span;
    history_pass_rounds(o.history);
    return history_rounds_of(o.history, number, (uint64_t)(since / ROUND_NS), &span);
}

/* Drafts that a recovery had no room for were closed before the daemon died. */
Test(commit_history, no_round_is_told_before_what_a_recovery_left)
{
    make_file(5);
    write_file(5);
    uint64_t before = history_newest(o.history);
    time_stop();
    begin_rounds();
    history_seal_rest_later(o.history);
    int64_t began = clock_realtime_ns();
    pass_round_after(began);
    cr_assert(!is_told(before, began));
    while (history_seal_rest(o.history) == -EAGAIN)
        (void)usleep(1000);
    int64_t sealed = clock_realtime_ns();
    pass_round_after(sealed);
    cr_assert(is_told(history_newest(o.history), sealed));
    assert_i64(count_seals(history_newest(o.history)), 1);
}

/* Where one is wanted, a cut ends there, and the next one behind it. */
Test(commit_history, a_cut_ends_at_a_round)
{
    struct stage_sealed *sealed;
    size_t count;
    time_stop();
    begin_rounds();
    pass_round_after(clock_realtime_ns());
    make_file(5);
    write_file(5);
    seal(5);
    uint64_t first = history_newest(o.history);
    pass_round_after(clock_realtime_ns());
    make_file(6);
    write_file(6);
    seal(6);
    uint64_t second = history_newest(o.history);
    history_want_round(o.history, true, 0);
    history_pass_rounds(o.history);
    assert_u64(history_choose(o.history, UINT64_MAX, false, &sealed, &count), first);
    assert_u64(count, 1);
    free(sealed);
    assert_u64(history_choose(o.history, UINT64_MAX, false, &sealed, &count), second);
    assert_u64(count, 1, "the other one is pinned");
    free(sealed);
}

/* While the union of all nodes does not get on, what is kept for it stays bounded. */
Test(commit_history, changes_wait_while_the_union_lacks_too_many)
{
    struct record rec = {.type = REC_SETATTR, .ino = ROOT_INO, .mask = ATTR_MODE};
    begin_rounds();
    struct touched *touched = history_touched(o.history);
    for (uint64_t seq = 1; seq <= PENDING_OPS_MAX; seq++)
        touched_add(touched, &(struct record){.type = REC_SETATTR, .seq = seq, .ino = ROOT_INO});
    for (int64_t end = clock_monotonic_ns() + 3 * ROUND_NS; clock_monotonic_ns() < end;)
        assert_i64(history_commit(o.history, &rec), -EAGAIN);
    touched_forget(touched, 1);
    commit_ok(rec);
    expect_u64(touched_count(touched), PENDING_OPS_MAX);
}
