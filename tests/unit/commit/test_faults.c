// SPDX-License-Identifier: Apache-2.0
/* The journal and the packs when the medium fails, and when what they left is damaged. */
#include <stdatomic.h>
#include <stdio.h>
#include <sys/stat.h>

#include "../await.h"
#include "../numbered.h"
#include "../spoil.h"
#include "base/log.h"
#include "commit/history_internal.h"
#include "commit/journal_internal.h"
#include "commit/packs_internal.h"
#include "commit/shared.h"
#include "commit/writeback_internal.h"
#include "../fixtures/store_fixture.h"

static struct store_fixture fixture;

/* Calls of `op` on objects in `directory` fail from number `from` on, `times` times. */
static struct plan {
    const char *op, *directory;
    int from, times;
    _Atomic int seen, failed;
} plan;

static int fail(const char *op, const char *object, void *arg)
{
    (void)arg;
    if (!plan.op || strcmp(op, plan.op) != 0 ||
        strncmp(object, plan.directory, strlen(plan.directory)) != 0)
        return 0;
    int number = atomic_fetch_add(&plan.seen, 1);
    if (number < plan.from || number >= plan.from + plan.times)
        return 0;
    atomic_fetch_add(&plan.failed, 1);
    return -EIO;
}

static void setup(void)
{
    fixture_make(&fixture);
    plan.op = NULL;
}

static void teardown(void)
{
    fixture_remove(&fixture);
}

TestSuite(commit_faults, .init = setup, .fini = teardown, .timeout = 600);

static void open_with_faults(void)
{
    log_set_level(LOG_LEVEL_ERROR);
    assert_i64(fixture_open_only(&fixture), 0);
    fixture.store->local.tier = fault_tier_new(fixture.store->local.tier, fail, NULL);
    fixture_start(&fixture);
}

static void set_plan(const char *op, const char *directory, int from, int times)
{
    plan.op = NULL;
    atomic_store(&plan.seen, 0);
    atomic_store(&plan.failed, 0);
    plan.directory = directory;
    plan.from = from;
    plan.times = times;
    plan.op = op;
}

static void put_one_by_one(unsigned first, unsigned count, size_t length)
{
    for (unsigned i = first; i < first + count; i++) {
        fixture_put(&fixture, numbered("file-%u", i), i, length);
        fixture_wait(&fixture);
    }
}

static void expect_after_reopen(unsigned count, size_t length)
{
    fixture_close(&fixture);
    assert_i64(fixture_fsck(&fixture), 0);
    for (unsigned round = 0; round < 2; round++) {
        fixture_open(&fixture);
        for (unsigned i = 0; i < count; i++)
            fixture_expect(&fixture, numbered("file-%u", i), i, length);
        fixture_close(&fixture);
        fixture_delete(&fixture, "view");
    }
    fixture_open(&fixture);
}

/* --- journal ---------------------------------------------------------------------------------- */

Test(commit_faults, a_failed_append_goes_to_the_next_segment)
{
    open_with_faults();
    put_one_by_one(0, 2, 1000);
    set_plan("log_append", "journal", 0, 1);
    put_one_by_one(2, 3, 1000);
    expect_i64(atomic_load(&plan.failed), 1);
    expect_u64(fixture.store->commit.journal->segment, 2);
    expect_after_reopen(5, 1000);
}

Test(commit_faults, a_segment_that_cannot_be_begun_is_made_anew)
{
    open_with_faults();
    put_one_by_one(0, 1, 1000);
    set_plan("log_append", "journal", 0, 3);
    put_one_by_one(1, 2, 1000);
    expect_i64(atomic_load(&plan.failed), 3);
    expect_after_reopen(3, 1000);
}

Test(commit_faults, a_segment_that_cannot_be_made)
{
    open_with_faults();
    set_plan("log_append", "journal", 1, 1);
    put_one_by_one(0, 1, 1000);
    set_plan("log_create", "journal", 0, 2);
    put_one_by_one(1, 1, 1000);
    put_one_by_one(2, 1, 1000);
    expect_after_reopen(3, 1000);
}

static uint64_t segment_len(unsigned number)
{
    struct stat st;
    _cleanup_free_ char *path = xasprintf("%s/journal/%016x", fixture.path, number);
    return stat(path, &st) == 0 ? (uint64_t)st.st_size : 0;
}

static void damage_segment(unsigned number, uint64_t offset)
{
    _cleanup_free_ char *path = xasprintf("%s/journal/%016x", fixture.path, number);
    spoil_file(path, offset, 1, 1);
}

Test(commit_faults, a_torn_tail_does_not_count)
{
    open_with_faults();
    put_one_by_one(0, 3, 1000);
    uint64_t end = fixture.store->commit.journal->offset;
    fixture_put(&fixture, "torn", 9, 1000);
    fixture_wait(&fixture);
    fixture_close(&fixture);
    for (unsigned i = 0; i < 2; i++) {
        /* First a record, then the header. The view never saw what a power loss tore. */
        damage_segment(1, end + (i == 0 ? BATCH_HEADER_LEN + 40 : 8));
        fixture_delete(&fixture, "view");
        assert_i64(fixture_fsck(&fixture), 0);
        fixture_open(&fixture);
        expect_u64(fixture_lookup(&fixture, "torn"), 0);
        for (unsigned f = 0; f < 3; f++)
            fixture_expect(&fixture, numbered("file-%u", f), f, 1000);
        fixture_close(&fixture);
    }
    fixture_open(&fixture);
    fixture_put(&fixture, "torn", 10, 2000);
    expect_after_reopen(3, 1000);
    fixture_expect(&fixture, "torn", 10, 2000);
}

Test(commit_faults, a_journal_that_ends_before_the_view_is_damage_and_is_left_alone)
{
    open_with_faults();
    put_one_by_one(0, 2, 100000);
    uint64_t end = fixture.store->commit.journal->offset;
    fixture_put(&fixture, "last", 9, 100000);
    fixture_wait(&fixture);
    fixture_close(&fixture);
    damage_segment(1, end + 8);
    cr_assert_neq(fixture_fsck(&fixture), 0);
    damage_segment(1, end + 8);
    assert_i64(fixture_fsck(&fixture), 0, "nothing was changed");
    fixture_open(&fixture);
    fixture_expect(&fixture, "last", 9, 100000);
    fixture_close(&fixture);
}

/* What the view has is not asked of the journal again; a check asks, and so does whoever has to
 * make the view anew. */
static void expect_damage_behind_the_view(unsigned files)
{
    cr_expect_neq(fixture_fsck(&fixture), 0);
    fixture_open(&fixture);
    for (unsigned f = 0; f < files; f++)
        fixture_expect(&fixture, numbered("file-%u", f), f, 1000);
    fixture_close(&fixture);
    fixture_delete(&fixture, "view");
    cr_expect_lt(fixture_open_only(&fixture), 0);
    cr_expect_not_null(fixture.text);
}

static void open_with_two_segments(void)
{
    open_with_faults();
    put_one_by_one(0, 2, 1000);
    fixture_close(&fixture);
    fixture_open(&fixture);
    put_one_by_one(2, 2, 1000);
    fixture_close(&fixture);
    cr_assert_gt(segment_len(2), 0);
}

Test(commit_faults, a_missing_segment_is_an_error)
{
    open_with_two_segments();
    fixture_delete(&fixture, "journal/0000000000000001");
    expect_damage_behind_the_view(4);
}

Test(commit_faults, damage_in_the_middle_is_an_error)
{
    open_with_two_segments();
    damage_segment(1, SEGMENT_HEADER_LEN + 40);
    expect_damage_behind_the_view(4);
}

Test(commit_faults, segments_before_and_after_one_that_cannot_be_read_go)
{
    open_with_two_segments();
    fixture_open(&fixture);
    put_one_by_one(4, 2, 1000);
    fixture_close(&fixture);
    damage_segment(2, 8);
    fixture_open(&fixture);
    journal_trim(fixture.store->commit.journal, fixture.store->commit.journal->cut_seq);
    expect_u64(segment_len(1), 0);
    expect_u64(segment_len(2), 0);
    expect_u64(segment_len(3), 0);
    cr_expect_gt(segment_len(4), 0);
    fixture_close(&fixture);
}

Test(commit_faults, a_segment_missing_before_the_last_batches_is_an_error)
{
    open_with_two_segments();
    fixture_delete(&fixture, "journal/0000000000000002");
    cr_expect_lt(fixture_open_only(&fixture), 0,
                 "the view has what the journal lost: nothing is touched");
    _cleanup_free_ char *current = xasprintf("%s/view/CURRENT", fixture.path);
    expect_i64(access(current, F_OK), 0);
}

/* --- packs ------------------------------------------------------------------------------------ */

Test(commit_faults, a_failed_pack_is_written_anew)
{
    open_with_faults();
    set_plan("put", "packs", 0, 2);
    put_one_by_one(0, 2, 3 * MIB);
    expect_i64(atomic_load(&plan.failed), 2);
    cr_expect_geq(fixture_status(&fixture).nvme.errors, 2);
    expect_after_reopen(2, 3 * MIB);
}

Test(commit_faults, one_of_several_packs_fails)
{
    open_with_faults();
    set_plan("put", "packs", 1, 1);
    fixture_put(&fixture, numbered("file-%u", 0), 0, 60 * MIB / 2);
    fixture_put(&fixture, numbered("file-%u", 1), 1, 60 * MIB / 2);
    fixture_wait(&fixture);
    expect_after_reopen(2, 60 * MIB / 2);
}

Test(commit_faults, a_sync_that_fails)
{
    open_with_faults();
    set_plan("sync", "", 0, 2);
    put_one_by_one(0, 2, 300000);
    expect_after_reopen(2, 300000);
}

/* The first round wrote its packs and then died: they are named by the log, once or twice. */
static void die_with_logged_packs(struct store_fixture *s)
{
    fixture_put(s, "kept", 3, 300000);
    uint64_t ino = fixture_create(s, numbered("file-%u", 0));
    fixture_fill(s, ino, 0, 0, 150 * MIB);
    assert_i64(history_compact(s->store->commit.history), 0);
}

Test(commit_faults, packs_of_a_dead_daemon_are_taken_over_once)
{
    fixture_die_after(&fixture, die_with_logged_packs);
    assert_i64(fixture_open_only(&fixture), 0);
    struct new_pack *a, *b;
    TAILQ_FOREACH(a, &fixture.store->commit.packs->written, link)
    for (b = TAILQ_NEXT(a, link); b; b = TAILQ_NEXT(b, link))
        cr_assert_neq(a->id, b->id);
    fixture_start(&fixture);
    fixture_wait(&fixture);
    expect_after_reopen(1, 150 * MIB);
    fixture_expect(&fixture, "kept", 3, 300000);
}

static void die_with_a_pack_logged_twice(struct store_fixture *s)
{
    uint64_t ino = fixture_create(s, numbered("file-%u", 0));
    fixture_fill(s, ino, 0, 0, 150 * MIB);
    struct new_pack *pack = TAILQ_FIRST(&s->store->commit.packs->written);
    cr_assert_not_null(pack);
    struct record rec = {
        .type = REC_PACK, .pack = pack->id, .length = pack->length, .count = pack->count};
    assert_i64(stage_log_append(store_stage(s->store), &rec), 0);
}

Test(commit_faults, a_pack_that_the_log_names_twice_is_taken_over_once)
{
    fixture.options.writeback_delay_ns = INT64_MAX / 2;
    fixture_die_after(&fixture, die_with_a_pack_logged_twice);
    fixture_open(&fixture);
    fixture_wait(&fixture);
    expect_after_reopen(1, 150 * MIB);
}

Test(commit_faults, pins_keep_a_pack_from_being_dropped)
{
    assert_i64(fixture_open_only(&fixture), 0);
    fixture_start(&fixture);
    fixture_put(&fixture, "a", 1, MIB);
    fixture_wait(&fixture);
    struct store *store = fixture.store;
    AWAIT(view_state(store->local.view).packs > 0, "no pack");
    cr_expect(packs_begin_drop(store->commit.packs, 42));
    cr_expect_not(packs_begin_drop(store->commit.packs, 42));
    packs_end_drop(store->commit.packs, 42);
    uint64_t pinned = 0;
    _cleanup_free_ uint8_t *content = xmalloc(MIB);
    fixture_read(&fixture, fixture_lookup(&fixture, "a"), 0, content, MIB);
    struct iovec iov = {content, MIB};
    struct chunk_name name = hash_chunk(&store->local.sb.key, &iov, 1);
    cr_assert(packs_pin_stored(store->commit.packs, &name, &pinned));
    cr_expect_not(packs_begin_drop(store->commit.packs, pinned));
    packs_unpin(store->commit.packs, pinned);
    cr_expect(packs_begin_drop(store->commit.packs, pinned));
    uint64_t again;
    cr_expect_not(packs_pin_stored(store->commit.packs, &name, &again),
                  "what is about to go is not relied on");
    packs_end_drop(store->commit.packs, pinned);
}

/* --- batches ---------------------------------------------------------------------------------- */

static void hold_back(void)
{
    fixture.options.writeback_delay_ns = INT64_MAX / 2;
    fixture_open(&fixture);
}

/* Looks again and again, since what gc did is asserted, and has no notification. */
static void compact_now(void)
{
    uint64_t asked = atomic_fetch_add(&fixture.store->commit.upkeep->gc_asked, 1) + 1;
    AWAIT(atomic_load(&fixture.store->commit.upkeep->gc_done) >= asked, "gc has not ended");
}

/* What was to move stays where it is until it has moved. */
Test(commit_faults, a_pack_that_was_to_take_what_moves_fails)
{
    fixture.options.writeback_delay_ns = INT64_MAX / 2; /* both lie in one pack */
    open_with_faults();
    fixture_put(&fixture, numbered("file-%u", 0), 0, MIB);
    fixture_put(&fixture, "large", 77, 8 * MIB);
    fixture_wait(&fixture);
    fixture_unlink(&fixture, "large", 0);
    fixture_wait(&fixture);
    set_plan("put", "packs", 0, 1);
    compact_now();
    expect_i64(atomic_load(&plan.failed), 1, "something had to move");
    fixture_expect(&fixture, numbered("file-%u", 0), 0, MIB);
    put_one_by_one(1, 1, MIB);
    compact_now();
    fixture_expect(&fixture, numbered("file-%u", 0), 0, MIB);
    cr_expect_lt(fixture_status(&fixture).view.pack_bytes, 4 * MIB, "in the end the pack goes");
    expect_after_reopen(2, MIB);
}

Test(commit_faults, versions_between_are_not_written)
{
    hold_back();
    uint64_t ino = fixture_create(&fixture, numbered("file-%u", 0));
    for (unsigned i = 0; i < 5; i++) {
        fixture_fill(&fixture, ino, 0, i == 4 ? 0 : 100 + i, 2 * MIB);
        fixture_seal(&fixture, ino);
    }
    fixture_drop(&fixture, ino);
    fixture_wait(&fixture);
    expect_after_reopen(1, 2 * MIB);
    uint64_t bytes = fixture_status(&fixture).view.pack_bytes;
    cr_expect_lt(bytes, 3 * MIB);
    cr_expect_gt(bytes, 2 * MIB);
}

Test(commit_faults, what_was_born_and_died_between_leaves_nothing)
{
    hold_back();
    for (unsigned i = 0; i < 20; i++) {
        fixture_put(&fixture, "short", i, 300000);
        fixture_unlink(&fixture, "short", 0);
    }
    size_t count;
    struct op **ops = history_up_to(fixture.store->commit.history, UINT64_MAX, &count);
    expect_u64(count, 40);
    cr_expect(batch_is_void(ops, count));
    free(ops);
    fixture_put(&fixture, numbered("file-%u", 0), 0, 1000);
    fixture_wait(&fixture);
    expect_u64(fixture_status(&fixture).nvme.written_bytes_total, 0);
    expect_after_reopen(1, 1000);
    expect_u64(fixture_status(&fixture).view.files, 1);
    expect_u64(fixture_status(&fixture).view.packs, 0);
}

Test(commit_faults, more_extents_than_a_record_holds, .timeout = 600)
{
    const unsigned count = 9000;
    hold_back();
    uint64_t ino = fixture_create(&fixture, "holes");
    for (unsigned i = 0; i < count; i++)
        fixture_fill(&fixture, ino, (uint64_t)i * 100, i % 7, 40);
    fixture_seal(&fixture, ino);
    fixture_drop(&fixture, ino);
    fixture_wait(&fixture);
    fixture_close(&fixture);
    assert_i64(fixture_fsck(&fixture), 0);
    fixture_delete(&fixture, "view");
    fixture_open(&fixture);
    ino = fixture_lookup(&fixture, "holes");
    uint8_t gap[60], zeros[60] = {0};
    for (unsigned i = 0; i < count; i++) {
        fixture_expect_fill(&fixture, ino, (uint64_t)i * 100, i % 7, 40);
        if (i + 1 == count)
            break;
        fixture_read(&fixture, ino, (uint64_t)i * 100 + 40, gap, sizeof gap);
        assert_i64(memcmp(gap, zeros, sizeof gap), 0);
    }
}
