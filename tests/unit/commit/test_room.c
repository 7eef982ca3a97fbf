// SPDX-License-Identifier: Apache-2.0
/* Room on NVMe by itself, on a medium of plain numbers. */
#include "../await.h"
#include "../expect.h"
#include "base/clock.h"
#include "base/log.h"
#include "commit/commit.h"
#include "objects.h"

static struct {
    struct tier tier;
    struct tier *below;
    _Atomic uint64_t free, held; /* bytes */
    _Atomic unsigned told;       /* that there may be room */
} medium;

static int medium_reserve(struct tier *tier, uint64_t bytes, unsigned files, uint64_t *ret_held)
{
    (void)tier;
    (void)files;
    uint64_t all = atomic_load(&medium.free) + atomic_load(&medium.held);
    uint64_t held = min_u64(bytes, all);
    atomic_store(&medium.held, held);
    atomic_store(&medium.free, all - held);
    *ret_held = held;
    return held < bytes ? -ENOSPC : 0;
}

static int medium_space(struct tier *tier, struct tier_space *ret)
{
    (void)tier;
    *ret = (struct tier_space){.free_bytes = atomic_load(&medium.free),
                               .held_bytes = atomic_load(&medium.held)};
    return 0;
}

static const struct tier_ops medium_ops = {.reserve = medium_reserve, .space = medium_space};

static void tell(void *arg)
{
    (void)arg;
    atomic_fetch_add(&medium.told, 1);
}

static void setup(void)
{
    objects_setup();
    medium.tier.ops = &medium_ops;
    medium.below = o.local.tier;
    o.local.tier = &medium.tier;
    atomic_store(&medium.free, 10000 * MIB);
    atomic_store(&medium.held, 0);
    atomic_store(&medium.told, 0);
    room_on_room(o.room, tell, NULL);
}

static void teardown(void)
{
    room_waits_since(0);
    room_stop(o.room);
    o.local.tier = medium.below;
    objects_teardown();
}

TestSuite(commit_room, .init = setup, .fini = teardown, .timeout = 120);

static uint64_t granted(void)
{
    LOCK_SCOPE(&o.room->lock);
    return o.room->granted;
}

Test(commit_room, what_is_granted_is_admitted_and_no_more)
{
    o.local.options.cap_bytes = GIB; /* the disk's free space changes while other tests run */
    expect_i64(room_admit(o.room, 1), -EAGAIN, "nothing is held yet");
    assert_i64(room_start(o.room), 0);
    uint64_t most = granted() - 2 * MIB;
    expect_i64(room_admit(o.room, most), 0);
    expect_i64(room_admit(o.room, most + 1), -EAGAIN);
    o.staged = 280 * MIB; /* with a 28th for frames and the index */
    expect_i64(room_admit(o.room, most - 290 * MIB), 0);
    expect_i64(room_admit(o.room, most - 290 * MIB + 1), -EAGAIN);
}

/* How often the thread has looked; UINT64_MAX: it is at it. */
static uint64_t looks(void)
{
    LOCK_SCOPE(&o.room->lock);
    return o.room->rounds_begun == o.room->rounds_done ? o.room->rounds_done : UINT64_MAX;
}

/* What is spent is gone before the thread looks, which it does also unasked. */
static void spend_between_looks(uint64_t bytes)
{
    uint64_t seen, before, after;
    do {
        AWAIT((seen = looks()) != UINT64_MAX, "the thread looks all the time");
        before = granted();
        room_spend(o.room, bytes);
        after = granted();
    } while (looks() != seen);
    expect_u64(before - after, bytes);
}

Test(commit_room, a_cap_holds_however_fast_content_is_written_back)
{
    o.local.options.cap_bytes = 400 * MIB;
    assert_i64(room_start(o.room), 0);
    cr_expect_leq(granted(), 400 * MIB);
    spend_between_looks(10 * MIB);
    o.used = 395 * MIB;
    expect_u64(room_available(o.room, 0), 0);
    expect_u64(room_used(o.room), 395 * MIB);
}

Test(commit_room, names_and_attributes_have_room_of_their_own)
{
    o.local.options.cap_bytes = 100 * MIB;
    o.used = 100 * MIB - TIER_RESERVE_UNIT;
    assert_i64(room_start(o.room), 0);
    expect_i64(room_admit(o.room, 1), -EAGAIN);
    expect_i64(room_admit_change(o.room, MIB), 0);
    expect_i64(room_admit_change(o.room, 9 * MIB), -EAGAIN);
}

static void fill_up(void)
{
    o.local.options.cap_bytes = 100 * MIB;
    o.used = 100 * MIB;
    horizon_note_waiting(o.horizon, 1);
    assert_i64(room_start(o.room), 0);
}

Test(commit_room, a_writer_gets_enospc_only_after_a_search_that_began_later_was_in_vain)
{
    fill_up();
    int64_t now = clock_monotonic_ns();
    room_waits_since(now);
    expect_i64(room_admit(o.room, MIB), -EAGAIN, "nothing was searched");
    room_settle(o.room, now - 1, false);
    expect_i64(room_admit(o.room, MIB), -EAGAIN, "the search began before");
    cr_expect(room_is_full(o.room));
    room_settle(o.room, now + 1, false);
    expect_i64(room_admit(o.room, MIB), -ENOSPC);
    cr_expect_geq(atomic_load(&medium.told), 2);
    room_waits_since(0);
    expect_i64(room_admit(o.room, MIB), -EAGAIN, "one that has not waited does");
    expect_i64(room_admit_own(o.room, MIB), -ENOSPC);
}

Test(commit_room, a_search_says_nothing_while_something_may_come_free)
{
    int64_t now = clock_monotonic_ns();
    fill_up();
    room_settle(o.room, now, true);
    cr_expect_not(room_is_full(o.room), "it found something");
    o.is_carried = false;
    room_settle(o.room, now, false);
    cr_expect_not(room_is_full(o.room), "something is to be carried");
    o.is_carried = o.may_free = true;
    room_settle(o.room, now, false);
    cr_expect_not(room_is_full(o.room), "something may be evicted");
    o.may_free = false;
    room_settle(o.room, now, false);
    cr_expect(room_is_full(o.room));
}

Test(commit_room, room_that_comes_free_is_told_and_admits)
{
    fill_up();
    room_settle(o.room, clock_monotonic_ns(), false);
    cr_assert(room_is_full(o.room));
    unsigned told = atomic_load(&medium.told);
    o.used = 0;
    room_account(o.room);
    AWAIT(room_admit(o.room, MIB) == 0, "there is room");
    cr_expect_gt(atomic_load(&medium.told), told);
    cr_expect_not(room_is_full(o.room));
}

static int waited = 1;

static void note_end(int result, void *arg)
{
    (void)arg;
    waited = result;
}

Test(commit_room, a_medium_that_refuses_ends_waits_until_a_try_succeeds)
{
    uint64_t ticket;
    assert_i64(room_start(o.room), 0);
    horizon_await(o.horizon, 100, note_end, NULL, &ticket);
    for (unsigned tries = 1; tries < 5; tries++)
        room_note_try(o.room, tries, -ENOSPC);
    cr_expect_not(room_refuses(o.room), "most errors pass");
    expect_i64(waited, 1);
    room_note_try(o.room, 5, -ENOSPC);
    cr_expect(room_refuses(o.room));
    expect_i64(waited, -EIO);
    expect_i64(room_admit(o.room, 1), -EIO);
    room_note_try(o.room, 0, 0);
    cr_expect_not(room_refuses(o.room));
    expect_i64(room_admit(o.room, 1), 0);
}

Test(commit_room, fetched_bytes_are_promoted_beside_what_writers_need)
{
    cr_expect_not(room_promote(o.room, MIB, false));
    assert_i64(room_start(o.room), 0);
    uint64_t all = granted();
    cr_expect_not(room_promote(o.room, all, false));
    cr_assert(room_promote(o.room, 10 * MIB, false));
    expect_u64(room_promoted(o.room), 10 * MIB);
    expect_i64(room_admit(o.room, all - 2 * MIB), -EAGAIN, "they need room as staged ones do");
    room_promote_done(o.room, 10 * MIB);
    expect_i64(room_admit(o.room, all - 2 * MIB), 0);
}
