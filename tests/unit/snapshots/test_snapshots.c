// SPDX-License-Identifier: Apache-2.0
/* Which heads stay for longer than the grace, and which packs they need. In a remote:
 * tests/remote/test_keep.py. */
#include <stdio.h>

#include "../expect.h"
#include "base/clock.h"
#include "snapshots/internal.h"
#include "view/remote.h"

#define HOUR (3600 * SECOND_NS)
#define DAY (24 * HOUR)
#define STATES_MAX 64u

/* --- the policy ------------------------------------------------------------------------------- */

/* Thursday, 2026-01-01T00:00:00Z. */
#define NEW_YEAR (1767225600ll * SECOND_NS)

static struct keep_state states[STATES_MAX];
static size_t state_count;

static void add_state(uint64_t cut, int64_t published)
{
    states[state_count++] = (struct keep_state){cut, published, false};
}

/* The indexes that stay, "0 3 4". */
static void expect_kept(struct head_keep keep, const char *expected)
{
    char text[256] = "";
    keep_choose(&keep, states, state_count);
    for (size_t i = 0; i < state_count; i++)
        if (states[i].stays)
            (void)snprintf(text + strlen(text), sizeof text - strlen(text), "%s%zu",
                           *text ? " " : "", i);
    assert_str(text, expected);
}

static void reset_states(void)
{
    state_count = 0;
}

TestSuite(keep, .init = reset_states);

Test(keep, nothing)
{
    expect_kept((struct head_keep){.last = 3}, "");
    add_state(1, NEW_YEAR);
    expect_kept((struct head_keep){0}, "");
}

Test(keep, the_last)
{
    for (uint64_t i = 0; i < 5; i++)
        add_state(i, NEW_YEAR);
    expect_kept((struct head_keep){.last = 1}, "4");
    expect_kept((struct head_keep){.last = 3}, "2 3 4");
    expect_kept((struct head_keep){.last = 1000}, "0 1 2 3 4");
}

/* Heads that follow each other with one cut are one state. */
Test(keep, a_state_is_its_newest_head)
{
    const uint64_t cuts[] = {1, 1, 2, 3, 3, 3, 4};
    for (size_t i = 0; i < ARRAY_LEN(cuts); i++)
        add_state(cuts[i], NEW_YEAR);
    expect_kept((struct head_keep){.last = 3}, "2 5 6");
    expect_kept((struct head_keep){.last = 9}, "1 2 5 6");
}

/* The newest of each hour that has one; hours without one do not count. */
Test(keep, by_the_hour)
{
    add_state(1, NEW_YEAR);
    add_state(2, NEW_YEAR + HOUR - 1);
    add_state(3, NEW_YEAR + HOUR);
    add_state(4, NEW_YEAR + 40 * HOUR);
    add_state(5, NEW_YEAR + 40 * HOUR + 5);
    expect_kept((struct head_keep){.hourly = 1}, "4");
    expect_kept((struct head_keep){.hourly = 2}, "2 4");
    expect_kept((struct head_keep){.hourly = 3}, "1 2 4");
}

/* Weeks begin on Monday: New Year's day was a Thursday. */
Test(keep, by_day_and_week)
{
    for (int64_t day = 0; day < 12; day++)
        add_state((uint64_t)day, NEW_YEAR + day * DAY + HOUR);
    expect_kept((struct head_keep){.daily = 2}, "10 11");
    expect_kept((struct head_keep){.weekly = 3}, "3 10 11"); /* two Sundays, and today */
    expect_kept((struct head_keep){.daily = 1, .weekly = 2, .last = 1}, "10 11");
}

/* Clocks that go back cost a rule some of its count, and lose nothing. */
Test(keep, with_a_clock_that_goes_back)
{
    add_state(1, NEW_YEAR);
    add_state(2, NEW_YEAR + 5 * HOUR);
    add_state(3, NEW_YEAR);
    expect_kept((struct head_keep){.hourly = 3}, "0 1 2");
    expect_kept((struct head_keep){.hourly = 2}, "1 2");
}

/* --- packs ------------------------------------------------------------------------------------ */

static bool needs(struct kept *kept, uint64_t pack, uint64_t until, int64_t unreferenced)
{
    const struct view_remote_pack row = {
        .pack = pack, .until = until, .unreferenced = unreferenced};
    return kept_needs_pack(kept, &row, 10);
}

Test(keep, which_packs_a_head_needs)
{
    struct kept_head heads[] = {{5, 100, 1000, 0}, {9, 200, 2000, 0}, {30, 300, 3000, 0}};
    struct kept kept = {.heads = {heads, 3, 3}};
    cr_expect(needs(&kept, 100, 6, 1));
    cr_expect_not(needs(&kept, 100, 5, 9999), "head 5 does not need it");
    cr_expect_not(needs(&kept, 101, 9, 9999), "it is younger than head 5");
    cr_expect(needs(&kept, 101, 10, 1));
    cr_expect_not(needs(&kept, 201, 30, 9999), "it came and went between 9 and 30");
    cr_expect(needs(&kept, 201, 31, 1));
    /* Of another writer's packs the time is known alone. */
    cr_expect(needs(&kept, 100, 0, 990));
    cr_expect_not(needs(&kept, 100, 0, 989));
    cr_expect_not(needs(&kept, 101, 0, 1989));
    cr_expect(needs(&kept, 101, 0, 1990));
    kept_count_pack(&kept, &(struct view_remote_pack){.pack = 150, .until = 10, .length = 7}, 10);
    kept_count_pack(&kept, &(struct view_remote_pack){.pack = 100, .until = 10, .length = 50}, 10);
    kept_count_pack(&kept, &(struct view_remote_pack){.pack = 50, .until = 6, .length = 3}, 10);
    kept_count_pack(&kept, &(struct view_remote_pack){.pack = 250, .until = 99, .length = 1}, 10);
    assert_u64(heads[0].only_bytes, 3);
    assert_u64(heads[1].only_bytes, 7, "head 5 needs the other one, too");
    assert_u64(heads[2].only_bytes, 1);
    kept.heads.count = 0;
    cr_expect_not(needs(&kept, 1, 2, 3));
    cr_expect_not(kept_has(&kept, 0, UINT64_MAX));
    kept.heads.count = 3;
    cr_expect(kept_has(&kept, 9, 9) && kept_has(&kept, 6, 9) && !kept_has(&kept, 6, 8) &&
              !kept_has(&kept, 31, 99));
}

/* --- heads that were given up ----------------------------------------------------------------- */

static void note_heads(struct snapshots *snapshots, uint64_t first, uint64_t last, uint64_t epoch)
{
    struct head head = {.epoch = epoch, .run_count = 1};
    for (head.number = first; head.number <= last; head.number++) {
        head.cut = head.number;
        head.published = NEW_YEAR + (int64_t)head.number * HOUR;
        snapshots_note_head(snapshots, &head);
    }
}

/* The numbers of the heads that stay of 1 to 7, in a prefix without names: "2 6 7". */
static void expect_chosen(struct prefix *prefix, struct head_keep keep, const char *expected)
{
    struct kept_head listed[7];
    struct kept kept;
    char text[64] = "";
    struct snapshots *snapshots = snapshots_new(prefix, &(struct snapshots_remote){0});
    prefix->head.keep = keep;
    note_heads(snapshots, 1, 5, 1);
    note_heads(snapshots, 6, 7, 2);
    for (size_t i = 0; i < ARRAY_LEN(listed); i++)
        listed[i] = (struct kept_head){.number = i + 1, .modified = (int64_t)i + 1};
    assert_i64(snapshots_choose(snapshots, listed, ARRAY_LEN(listed), &kept), 0);
    for (size_t i = 0; i < kept.heads.count; i++)
        (void)snprintf(text + strlen(text), sizeof text - strlen(text), "%s%llu", *text ? " " : "",
                       (unsigned long long)kept.heads.at[i].number);
    assert_str(text, expected);
    kept_done(&kept);
    snapshots_free(snapshots);
}

/* A --rollback gave up 3 to 5, and the state of 2 went on in 6. */
Test(keep, heads_that_were_given_up_take_the_place_of_none)
{
    char directory[] = "/tmp/cairn-keep-XXXXXX";
    struct remote_options options = {0};
    struct prefix prefix = {
        .options = &options,
        .head = {.given_up_count = 1, .given_up = {{.cut = 2, .epoch = 1, .first = 3, .last = 5}}}};
    char *text;
    cr_assert_not_null(mkdtemp(directory));
    assert_i64(dir_tier_open(&(struct dir_options){.path = directory}, &prefix.tier, &text), 0);
    expect_chosen(&prefix, (struct head_keep){.last = 3}, "2 6 7");
    expect_chosen(&prefix, (struct head_keep){.last = 9}, "1 2 6 7");
    expect_chosen(&prefix, (struct head_keep){.hourly = 4}, "1 2 6 7");
    prefix.head.given_up_count = 0;
    expect_chosen(&prefix, (struct head_keep){.last = 3}, "5 6 7");
    prefix.tier->ops->close(prefix.tier);
    assert_i64(rmdir(directory), 0, "nothing was made there");
}
