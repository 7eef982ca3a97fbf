// SPDX-License-Identifier: Apache-2.0
/* Content as layers: what lies over what, and what a cut leaves. */
#include "../expect.h"
#include "stage_fixture.h"

TestSuite(stage_layers, .init = stage_setup, .fini = stage_teardown, .timeout = 600);

Test(stage_layers, draft_over_sealed_over_pinned_over_clean_over_below)
{
    fixture_put(&fixture, 1, 0, "aaaaaaaaaa");
    fixture_write_back(&fixture, 1);
    fixture_put_pinned(&fixture, 1, 8, "bbbb");
    fixture_put_sealed(&fixture, 1, 6, "cccc");
    fixture_put(&fixture, 1, 4, "dd");
    fixture_put(&fixture, 1, 12, "d");
    fixture_expect(&fixture, 1, 0, "aaaaddccccbbd");
    fixture_done(&fixture, 1);
    fixture_expect(&fixture, 1, 0, "aaaaddccccbbd");
    fixture_expect(&fixture, 1, 5, "dcc");
}

Test(stage_layers, later_writes_win_wherever_they_lie)
{
    fixture_put(&fixture, 1, 0, "0123456789");
    fixture_put(&fixture, 1, 3, "xxx");
    fixture_put(&fixture, 1, 4, "y");
    fixture_put(&fixture, 1, 0, "z");
    fixture_put(&fixture, 1, 9, "ww");
    fixture_expect(&fixture, 1, 0, "z12xyx678ww");
    fixture_put(&fixture, 1, 0, "------------");
    fixture_expect(&fixture, 1, 0, "------------");
}

Test(stage_layers, a_gap_between_the_old_end_and_a_write_is_a_hole)
{
    fixture_put(&fixture, 1, 0, "ab");
    fixture_put(&fixture, 1, 5, "c");
    fixture_expect(&fixture, 1, 0, "ab...c");
}

Test(stage_layers, truncation_hides_what_lay_below_for_good)
{
    fixture_put(&fixture, 1, 0, "abcdefgh");
    fixture_write_back(&fixture, 1);
    fixture_cut(&fixture, 1, 3, UINT64_MAX, 3);
    expect_u64(fixture_size(&fixture, 1), 3);
    fixture_cut(&fixture, 1, 6, UINT64_MAX, 6);
    fixture_expect(&fixture, 1, 0, "abc...");
    fixture_put(&fixture, 1, 7, "z");
    fixture_expect(&fixture, 1, 0, "abc....z");
    fixture_seal(&fixture, 1);
    fixture_expect(&fixture, 1, 0, "abc....z");
    fixture_pin(&fixture, 1);
    fixture_done(&fixture, 1);
    fixture_expect(&fixture, 1, 0, "abc....z");
}

Test(stage_layers, a_hole_is_punched_through_every_layer)
{
    fixture_put(&fixture, 1, 0, "abcdefgh");
    fixture_write_back(&fixture, 1);
    fixture_put(&fixture, 1, 2, "XX");
    fixture_cut(&fixture, 1, 3, 3, 8);
    fixture_expect(&fixture, 1, 0, "abX...gh");
    fixture_put_sealed(&fixture, 1, 4, "Y");
    fixture_expect(&fixture, 1, 0, "abX.Y.gh");
    fixture_pin(&fixture, 1);
    fixture_done(&fixture, 1);
    fixture_expect(&fixture, 1, 0, "abX.Y.gh");
}

Test(stage_layers, versions_that_wait_become_one_and_raise_the_floor)
{
    fixture_put_sealed(&fixture, 1, 0, "aaaa");
    expect_u64(stage_floor(fixture.stage), 0);
    fixture_put_sealed(&fixture, 1, 2, "bbbb");
    expect_u64(stage_floor(fixture.stage), stage_last_seq(fixture.stage));
    struct stage_sealed sealed[2];
    assert_u64(stage_sealed_list(fixture.stage, sealed, 2), 1);
    expect_u64(sealed[0].version, 2);
    expect_u64(sealed[0].seal_seq, stage_last_seq(fixture.stage));
    expect_u64(sealed[0].size, 6);
    expect_u64(sealed[0].bytes, 6);
    fixture_expect(&fixture, 1, 0, "aabbbb");
}

Test(stage_layers, a_pinned_version_is_not_merged)
{
    fixture_put_pinned(&fixture, 1, 0, "aaaa");
    fixture_cut(&fixture, 1, 2, UINT64_MAX, 2);
    fixture_seal(&fixture, 1);
    expect_u64(stage_floor(fixture.stage), 0);
    struct stage_sealed sealed[2];
    assert_u64(stage_sealed_list(fixture.stage, sealed, 2), 1);
    expect_u64(sealed[0].keep, 2);
    expect_u64(sealed[0].version, 2);
    fixture_expect(&fixture, 1, 0, "aa..");
}

/* The view does not have it yet, and the next target has a newer one. */
Test(stage_layers, two_versions_that_are_pinned_one_after_the_other_are_one)
{
    fixture_put(&fixture, 1, 0, "aaaaaaaaaa");
    fixture_write_back(&fixture, 1);
    fixture_put_pinned(&fixture, 1, 2, "bb");
    fixture_cut(&fixture, 1, 6, UINT64_MAX, 6);
    fixture_put_sealed(&fixture, 1, 8, "cc");
    struct stage_sealed sealed[1];
    assert_u64(stage_sealed_list(fixture.stage, sealed, 1), 1);
    uint64_t seal_seq = sealed[0].seal_seq;
    fixture_put(&fixture, 1, 3, "d");
    fixture_expect(&fixture, 1, 0, "aabdaa..cc");
    stage_pin(fixture.stage, &sealed[0]);
    expect_u64(stage_sealed_list(fixture.stage, NULL, 0), 0);
    expect_u64(sealed[0].seal_seq, seal_seq);
    expect_u64(sealed[0].version, 3);
    expect_u64(sealed[0].keep, 6);
    _cleanup_free_ uint8_t *content = fixture_layer_content(&fixture, &sealed[0]);
    cr_expect_arr_eq(content, "aabbaa\0\0cc", 10);
    fixture_expect(&fixture, 1, 0, "aabdaa..cc");
}

Test(stage_layers, nothing_changed_is_not_sealed)
{
    cr_expect_not(fixture_seal(&fixture, 1));
    struct stage_draft draft;
    cr_expect(stage_seal(fixture.stage, 2, 1, stage_next_seq(fixture.stage), true, &draft));
    expect_u64(draft.size, 0);
    expect_u64(draft.bytes, 0);
    assert_i64(stage_unlink(fixture.stage, 2, stage_next_seq(fixture.stage), false), 0);
}

Test(stage_layers, only_a_write_that_may_opens_a_draft)
{
    struct stage_write w = {.ino = 1, .length = 1, .slab = SLAB_NONE, .data = "a", .time = 5};
    bool has_draft;
    expect_i64(stage_write_draft(fixture.stage, &w, &has_draft), 0);
    cr_expect_not(has_draft);
    expect_u64(stage_drafts(fixture.stage, NULL, 0), 0);
    expect_i64(stage_write(fixture.stage, &w), 0);
    expect_i64(stage_write_draft(fixture.stage, &w, &has_draft), 0);
    cr_expect(has_draft);
    struct stage_file_state state;
    cr_assert(stage_file_state(fixture.stage, 1, &state));
    cr_expect(state.has_draft && !state.has_sealed);
    expect_i64(state.draft_mtime, 5);
    assert_i64(stage_set_mtime(fixture.stage, 1, 9), 0);
    cr_assert(stage_file_state(fixture.stage, 1, &state));
    expect_i64(state.draft_mtime, 9);
}

Test(stage_layers, an_unlinked_file_is_dropped)
{
    fixture_put_sealed(&fixture, 1, 0, "aaaa");
    fixture_put(&fixture, 1, 0, "b");
    assert_i64(stage_unlink(fixture.stage, 1, 4711, false), 0);
    expect_u64(stage_floor(fixture.stage), 4711);
    struct stage_file_state state;
    cr_expect_not(stage_file_state(fixture.stage, 1, &state));
    expect_u64(stage_usage(fixture.stage).dropped_bytes_total, 5);
    fixture_expect(&fixture, 1, 0, "....");
}

Test(stage_layers, drafts_become_ripe)
{
    fixture_fill(&fixture, 1, 0, 'a', 1000);
    fixture_fill(&fixture, 2, 0, 'a', 3000);
    uint64_t inos[4];
    const struct stage_ripeness too_early = {0, 1, 1, UINT64_MAX},
                                old_and_small = {INT64_MAX, INT64_MAX, 1, 2000},
                                idle = {INT64_MAX, 1, INT64_MAX, 2000};
    expect_u64(stage_ripe_drafts(fixture.stage, &too_early, inos, 4), 0);
    expect_u64(stage_ripe_drafts(fixture.stage, &old_and_small, inos, 4), 1);
    expect_u64(inos[0], 1);
    expect_u64(stage_ripe_drafts(fixture.stage, &idle, inos, 4), 2);
    expect_u64(stage_ripe_drafts(fixture.stage, &idle, inos, 1), 1);
}

Test(stage_layers, an_orphan_is_read_and_written_until_it_is_forgotten)
{
    fixture_put_sealed(&fixture, 1, 0, "aaaa");
    fixture_put(&fixture, 1, 2, "b");
    assert_i64(stage_unlink(fixture.stage, 1, stage_next_seq(fixture.stage), true), 0);
    fixture_put(&fixture, 1, 3, "c");
    fixture_expect(&fixture, 1, 0, "aabc");
    uint64_t inos[4];
    expect_u64(stage_drafts(fixture.stage, inos, 4), 0, "an orphan's draft is never sealed");
    const struct stage_ripeness all = {.now = INT64_MAX, .small_bytes = UINT64_MAX};
    expect_u64(stage_ripe_drafts(fixture.stage, &all, inos, 4), 0);
    stage_forget(fixture.stage, 1);
    struct stage_file_state state;
    cr_expect_not(stage_file_state(fixture.stage, 1, &state));
}

Test(stage_layers, an_orphan_stays_one_while_nothing_of_it_is_staged)
{
    fixture_put_pinned(&fixture, 1, 0, "aaaa");
    assert_i64(stage_unlink(fixture.stage, 1, stage_next_seq(fixture.stage), true), 0);
    fixture_done(&fixture, 1);
    assert_i64(stage_unlink(fixture.stage, 2, stage_next_seq(fixture.stage), true), 0);
    /* Another file takes all the room, so that what is clean goes. */
    for (uint64_t i = 0; i < 20; i++)
        fixture_fill(&fixture, 3, i * SLAB_PAYLOAD, 'x', SLAB_PAYLOAD);
    fixture_put(&fixture, 1, 0, "b");
    fixture_put(&fixture, 2, 0, "b");
    uint64_t inos[4];
    expect_u64(stage_drafts(fixture.stage, inos, 4), 1);
    stage_forget(fixture.stage, 1);
    stage_forget(fixture.stage, 2);
}

Test(stage_layers, a_pinned_version_of_a_dead_file_lasts_until_it_is_done)
{
    fixture_put_pinned(&fixture, 1, 0, "aaaa");
    assert_i64(stage_unlink(fixture.stage, 1, stage_next_seq(fixture.stage), false), 0);
    fixture.below[1].exists = false;
    expect_u64(stage_usage(fixture.stage).dirty_bytes, 4);
    fixture_done(&fixture, 1);
    expect_u64(stage_usage(fixture.stage).dirty_bytes, 0);
    fixture.below[1].exists = true;
}

Test(stage_layers, requests_that_continue_each_other_are_one_write)
{
    _cleanup_free_ uint8_t *data = xcalloc(1, SLAB_PAYLOAD);
    fixture_write_ok(&fixture, 1, 0, data, SLAB_PAYLOAD);
    fixture_write_ok(&fixture, 1, SLAB_PAYLOAD, data, SLAB_PAYLOAD - 4000);
    fixture_write_ok(&fixture, 1, 2 * SLAB_PAYLOAD - 4000, data, 100);
    fixture_write_ok(&fixture, 1, 2 * SLAB_PAYLOAD - 3900, data, 100);
    struct stage_part parts[8];
    size_t count =
        stage_read(fixture.stage, 1, 0, 2 * SLAB_PAYLOAD - 3800, parts, ARRAY_LEN(parts));
    assert_u64(count, 4);
    const bool starts[] = {true, false, false, true};
    for (size_t i = 0; i < count; i++)
        expect_u64(parts[i].starts_write, starts[i], "part %zu", i);
    stage_unpin_parts(fixture.stage, parts, count);
}

/* The kernel lets threads write one file at once: how a file is split must not depend on which of
 * them is faster. */
Test(stage_layers, requests_of_several_writes_may_alternate)
{
    enum { WRITERS = 6, REQUESTS = 3, LAST = SLAB_PAYLOAD - 5000 };
    _cleanup_free_ uint8_t *data = xcalloc(1, SLAB_PAYLOAD);
    for (uint64_t at = 0; at < REQUESTS; at++)
        for (uint64_t writer = WRITERS; writer-- > 0;)
            fixture_write_ok(&fixture, 1, (REQUESTS * writer + at) * SLAB_PAYLOAD, data,
                             at == REQUESTS - 1 ? LAST : SLAB_PAYLOAD);
    struct stage_part parts[WRITERS * (REQUESTS + 1)];
    size_t count =
        stage_read(fixture.stage, 1, 0, WRITERS * REQUESTS * SLAB_PAYLOAD, parts, ARRAY_LEN(parts));
    for (size_t i = 0; i < count; i++)
        expect_u64(parts[i].starts_write, parts[i].offset % (REQUESTS * SLAB_PAYLOAD) == 0,
                   "at %llu", (unsigned long long)parts[i].offset);
    assert_u64(count, WRITERS * (REQUESTS + 1)); /* each write has a hole behind it */
    stage_unpin_parts(fixture.stage, parts, count);
}

Test(stage_layers, a_chunk_may_be_content)
{
    fixture.chunks[0] =
        (struct fixture_chunk){.pack = 7, .bytes = (uint8_t *)xstrdup("0123456789"), .len = 10};
    fixture.chunk_count = 1;
    struct stage_chunk_range range = {.offset = 2, .length = 5, .chunk_offset = 3, .pack = 7};
    const struct stage_change change = {.ino = 1, .time = 5};
    assert_i64(stage_put_chunk(fixture.stage, &change, &range), 0);
    cr_expect(stage_uses_pack(fixture.stage, 7));
    fixture_expect(&fixture, 1, 0, "..34567");
    fixture_put(&fixture, 1, 4, "x");
    fixture_expect(&fixture, 1, 0, "..34x67");
    fixture_write_back(&fixture, 1);
    cr_expect_not(stage_uses_pack(fixture.stage, 7), "what is clean needs no pack");
    fixture_expect(&fixture, 1, 0, "..34x67");
}
