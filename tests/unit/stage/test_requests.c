// SPDX-License-Identifier: Apache-2.0

#include "../expect.h"
#include "../named.h"
#include "stage_fixture.h"
#include "stage/internal.h"
#include "stage/requests.h"

static void remove_stage(void)
{
    fixture_remove(&fixture);
}

TestSuite(stage_requests, .init = stage_setup, .fini = remove_stage);

/* The daemon dies, and another adopts the mount. */
static void die_and_adopt(void)
{
    fixture_die(&fixture);
    assert_i64(fixture_reopen(&fixture), 0);
    assert_i64(stage_adopt(fixture.stage, fixture.epoch, true), 0);
    assert_i64(fixture_compact(&fixture), 0);
}

static void append_unlink(uint64_t ino)
{
    struct record rec = {.type = REC_UNLINK,
                         .ino = ino,
                         .parent = 1,
                         NAMED("a"),
                         .seq = stage_next_seq(fixture.stage)};
    assert_i64(stage_log_append(fixture.stage, &rec), 0);
}

Test(stage_requests, what_was_recorded_was_applied)
{
    struct stage_request left;
    stage_request_enter(fixture.stage, 10, 10, REQUEST_RECORDS, 1ull << REC_UNLINK);
    append_unlink(5);
    stage_request_enter(fixture.stage, 12, 10, REQUEST_RECORDS, 1ull << REC_UNLINK);
    stage_request_leave();
    die_and_adopt();
    cr_assert(stage_request_left_made(fixture.stage, 5));
    cr_assert(stage_request_return(fixture.stage, 10, &left));
    cr_expect(left.is_applied && left.ino == 5 && left.opcode == 10);
    cr_assert(stage_request_return(fixture.stage, 12, &left));
    cr_expect_not(left.is_applied);
    cr_expect_not(stage_request_return(fixture.stage, 14, &left));
    cr_expect_not(stage_request_take_left(fixture.stage, &left));
}

/* The number is noted, and the daemon dies before the record, or behind it, and before that is
 * noted, too. */
Test(stage_requests, a_number_that_is_nowhere_was_not_applied)
{
    struct stage_request left;
    append_unlink(5);
    uint64_t there = stage_last_seq(fixture.stage);
    stage_request_enter(fixture.stage, 10, 10, REQUEST_RECORDS, 1ull << REC_UNLINK);
    struct record rec = {.type = REC_UNLINK, .ino = 5, .seq = there};
    cr_assert(request_begin_record(&rec));
    stage_request_enter(fixture.stage, 12, 10, REQUEST_RECORDS, 1ull << REC_UNLINK);
    rec.seq = there + 1000;
    cr_assert(request_begin_record(&rec));
    stage_request_leave();
    die_and_adopt();
    cr_assert(stage_request_return(fixture.stage, 10, &left));
    cr_expect(left.is_applied);
    cr_assert(stage_request_return(fixture.stage, 12, &left));
    cr_expect_not(left.is_applied);
}

Test(stage_requests, other_records_do_not_decide)
{
    struct stage_request left;
    stage_request_enter(fixture.stage, 10, 12, REQUEST_RECORDS, 1ull << REC_RENAME);
    append_unlink(5);
    stage_request_leave();
    die_and_adopt();
    cr_assert(stage_request_return(fixture.stage, 10, &left));
    cr_expect_not(left.is_applied);
}

Test(stage_requests, an_answered_request_is_forgotten)
{
    struct stage_request left;
    stage_request_enter(fixture.stage, 10, 10, REQUEST_RECORDS, 1ull << REC_UNLINK);
    append_unlink(5);
    stage_request_leave();
    stage_request_answering(fixture.stage, 10);
    stage_request_answered(fixture.stage, 10);
    die_and_adopt();
    cr_expect_not(stage_request_return(fixture.stage, 10, &left));
}

Test(stage_requests, handles_stay_but_those_of_what_was_not_made)
{
    uint64_t kept, opened, made, closed, handle, ino, cursor = 0;
    uint32_t flags;
    struct stage_request left;
    assert_i64(stage_handle_open(fixture.stage, 5, 1, &kept), 0);
    assert_i64(stage_handle_open(fixture.stage, 6, 1, &closed), 0);
    stage_request_enter(fixture.stage, 10, 14, REQUEST_OPENS, 0);
    assert_i64(stage_handle_open(fixture.stage, 7, 1, &opened), 0);
    stage_request_enter(fixture.stage, 12, 35, REQUEST_RECORDS, 1ull << REC_NASCENT);
    assert_i64(stage_handle_open(fixture.stage, 8, 1, &made), 0);
    stage_request_enter(fixture.stage, 14, 18, REQUEST_CLOSES, 0);
    (void)stage_handle_close(fixture.stage, closed, &flags);
    stage_request_leave();
    die_and_adopt();
    expect_u64(stage_usage(fixture.stage).handles, 2);
    cr_assert(stage_handle_next(fixture.stage, &cursor, &handle, &ino, &flags));
    cr_expect(handle == kept && ino == 5 && flags == 1);
    cr_assert(stage_handle_next(fixture.stage, &cursor, &handle, &ino, &flags));
    cr_expect(handle == opened && ino == 7);
    cr_expect_not(stage_handle_next(fixture.stage, &cursor, &handle, &ino, &flags));
    cr_assert(stage_request_return(fixture.stage, 10, &left));
    cr_expect(left.is_applied && left.has_handle && left.handle == opened);
    cr_assert(stage_request_return(fixture.stage, 12, &left));
    cr_expect_not(left.is_applied || left.has_handle);
    cr_assert(stage_request_return(fixture.stage, 14, &left));
    cr_expect(left.is_applied && !left.has_handle, "the handle may be another's by now");
    uint64_t again;
    assert_i64(stage_handle_open(fixture.stage, 9, 1, &again), 0);
    cr_expect(again == closed || again == made);
}

Test(stage_requests, written_bytes_decide)
{
    struct stage_request left;
    struct stage_write w = {.ino = 1, .length = 3, .slab = SLAB_NONE, .data = "abc", .time = 5};
    stage_request_enter(fixture.stage, 10, 16, REQUEST_WRITES, 0);
    assert_i64(stage_write(fixture.stage, &w), 0);
    stage_request_leave();
    die_and_adopt();
    cr_assert(stage_request_return(fixture.stage, 10, &left));
    cr_expect(left.is_applied && left.result == 3 && left.ino == 1);
}

Test(stage_requests, any_other_recovery_clears_the_table)
{
    struct stage_request left;
    stage_request_enter(fixture.stage, 10, 10, REQUEST_RECORDS, 1ull << REC_UNLINK);
    append_unlink(5);
    stage_request_leave();
    fixture_crash(&fixture);
    cr_expect_not(stage_request_return(fixture.stage, 10, &left));
}

/* A stage that was made anew below a mount has handles of its own numbers, which its successor has,
 * too. */
Test(stage_requests, handles_have_the_tag_of_their_stage)
{
    uint64_t kept, opened, handle, ino, cursor = 0;
    uint32_t flags;
    struct stage_request left;
    fixture.stage->header->handle_tag = 7;
    assert_i64(stage_handle_open(fixture.stage, 5, 1, &kept), 0);
    expect_u64(kept >> 32, 7);
    stage_request_enter(fixture.stage, 10, 14, REQUEST_OPENS, 0);
    assert_i64(stage_handle_open(fixture.stage, 6, 1, &opened), 0);
    stage_request_enter(fixture.stage, 12, 18, REQUEST_CLOSES, 0);
    stage_request_closes(fixture.stage, (uint32_t)kept);
    stage_request_enter(fixture.stage, 14, 18, REQUEST_CLOSES, 0);
    stage_request_closes(fixture.stage, kept);
    stage_request_leave();
    die_and_adopt();
    cr_assert(stage_handle_next(fixture.stage, &cursor, &handle, &ino, &flags));
    cr_expect(handle == kept && ino == 5 && flags == 1);
    cr_assert(stage_request_return(fixture.stage, 10, &left));
    cr_expect(left.has_handle && left.handle == opened);
    cr_assert(stage_request_return(fixture.stage, 12, &left));
    cr_expect_not(left.has_handle, "it is of another stage");
    cr_assert(stage_request_return(fixture.stage, 14, &left));
    cr_expect(left.has_handle && left.handle == kept);
    expect_u64(stage_handle_inode(fixture.stage, (uint32_t)kept), 0);
    expect_u64(stage_handle_flags(fixture.stage, (uint32_t)kept), 0);
    expect_u64(stage_handle_close(fixture.stage, kept, &flags), 5);
}

/* --- listings --------------------------------------------------------------------------------- */

Test(stage_requests, a_handle_keeps_where_its_listing_ends)
{
    uint64_t end = (1ull << 62) - 3, listed, other, cursor, handle, ino;
    uint32_t flags;
    assert_i64(stage_handle_open(fixture.stage, 5, 2, &other), 0);
    assert_i64(stage_handle_open(fixture.stage, 6, 0, &listed), 0);
    expect_u64(stage_handle_listing_end(fixture.stage, listed), 0);
    stage_handle_set_listing_end(fixture.stage, listed, end + 3);
    expect_u64(stage_handle_listing_end(fixture.stage, listed), 0, "it has no room for that");
    stage_handle_set_listing_end(fixture.stage, listed, end);
    expect_u64(stage_handle_listing_end(fixture.stage, listed), end);
    expect_u64(stage_handle_listing_end(fixture.stage, other), 0);
    expect_u64(stage_handle_flags(fixture.stage, listed), 0);
    die_and_adopt();
    expect_u64(stage_handle_listing_end(fixture.stage, listed), end);
    cursor = listed;
    cr_assert(stage_handle_next(fixture.stage, &cursor, &handle, &ino, &flags));
    cr_expect(handle == listed && ino == 6 && flags == 0);
    expect_u64(stage_handle_close(fixture.stage, listed, &flags), 6);
    expect_u64(flags, 0);
    assert_i64(stage_handle_open(fixture.stage, 6, 0, &listed), 0);
    expect_u64(stage_handle_listing_end(fixture.stage, listed), 0);
}
