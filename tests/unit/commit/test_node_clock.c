// SPDX-License-Identifier: Apache-2.0
#include "commit/node_clock.h"

#include "../expect.h"
#include "base/clock.h"

#define LEAST (50 * MS_NS)
#define MOST (250 * MS_NS)
#define START (1000 * SECOND_NS)
#define WALL_OFFSET (1700000000 * SECOND_NS)

static struct node_clock *node_clock;
static struct clock_sample sample; /* the clocks of the kernel now */
static struct clock_look look;

static void begin(bool needs_medium)
{
    node_clock_free(node_clock);
    node_clock = node_clock_new(&(struct node_clock_options){LEAST, MOST, needs_medium});
    node_clock_look_at(node_clock, &sample, &look);
}

static void setup(void)
{
    sample = (struct clock_sample){START, START - 7, START + WALL_OFFSET};
    begin(true);
}

static void teardown(void)
{
    node_clock_free(node_clock);
    node_clock = NULL;
}

TestSuite(node_clock, .init = setup, .fini = teardown);

static void look_now(void)
{
    node_clock_look_at(node_clock, &sample, &look);
}

static void pass(int64_t ns)
{
    sample.boottime += ns;
    sample.raw += ns;
    sample.wall += ns;
    look_now();
}

/* The medium's clock is `ahead` of the wall clock that nobody has set. */
static struct tier_reading reading_of(int64_t ahead, int64_t took, int64_t grain)
{
    int64_t shown = sample.boottime - took / 2 + WALL_OFFSET + ahead;
    return (struct tier_reading){.asked = sample.boottime - took,
                                 .answered = sample.boottime,
                                 .least = shown - shown % grain,
                                 .most = shown - shown % grain + grain,
                                 .is_shared = true};
}

static void read_medium(int64_t ahead, int64_t took, int64_t grain)
{
    struct tier_reading reading = reading_of(ahead, took, grain);
    node_clock_read_medium_at(node_clock, &reading, &sample);
    look_now();
}

static enum clock_state state(void)
{
    struct node_clock_status status;
    node_clock_status_at(node_clock, &sample, &status);
    return status.state;
}

static void expect_within(int64_t ahead)
{
    int64_t time = sample.boottime + WALL_OFFSET + ahead;
    cr_assert(look.error >= 0, "there is a bound");
    cr_assert(llabs(look.now - time) <= look.error, "%lld ns, and at most %lld",
              llabs(look.now - time), (long long)look.error);
}

Test(node_clock, nothing_is_known_at_first)
{
    assert_i64(look.error, -1);
    assert_i64(node_clock_next_reading_at(node_clock, &sample), 0, "now");
    assert_i64(state(), CLOCK_UNREAD);
    node_clock_vouch(node_clock, 0);
    look_now();
    assert_i64(look.error, -1, "the medium may contradict");
}

Test(node_clock, a_medium_that_is_near_says_all)
{
    read_medium(77 * SECOND_NS, 2 * MS_NS, 4 * MS_NS);
    assert_i64(look.error, LEAST);
    assert_i64(state(), CLOCK_BOUND);
    expect_within(77 * SECOND_NS);
    int64_t was = look.now;
    pass(SECOND_NS);
    cr_assert_leq(llabs(look.now - was - SECOND_NS), MS_NS);
}

Test(node_clock, it_drifts_without_readings)
{
    read_medium(0, 2 * MS_NS, 4 * MS_NS);
    pass(600 * SECOND_NS);
    cr_assert_gt(look.error, LEAST);
    pass(3600 * SECOND_NS);
    assert_i64(look.error, -1);
    assert_i64(state(), CLOCK_WIDE);
    read_medium(0, 2 * MS_NS, 4 * MS_NS);
    assert_i64(look.error, LEAST);
}

/* A time daemon that makes up for a large error. */
Test(node_clock, it_is_slewed_by_others)
{
    read_medium(0, 2 * MS_NS, 4 * MS_NS);
    sample.raw -= 80 * MS_NS;
    pass(SECOND_NS);
    cr_assert_geq(look.error, 80 * MS_NS);
}

/* By whole seconds alone, at the times that it asks for. */
Test(node_clock, whole_seconds_become_narrow)
{
    const int64_t ahead = 5 * SECOND_NS + 123456789;
    read_medium(ahead, 20 * MS_NS, SECOND_NS);
    assert_i64(look.error, -1);
    assert_i64(state(), CLOCK_WIDE);
    int readings = 1;
    int64_t next;
    while ((next = node_clock_next_reading_at(node_clock, &sample)) <= SECOND_NS) {
        pass(next + 20 * MS_NS);
        read_medium(ahead, 20 * MS_NS, SECOND_NS);
        cr_assert_lt(readings++, 8);
    }
    cr_assert_leq(look.error, MOST);
    expect_within(ahead);
    cr_assert(next > 20 * SECOND_NS && next < 40 * SECOND_NS);
    for (int i = 0; i < 100; i++) {
        pass(node_clock_next_reading_at(node_clock, &sample) + 20 * MS_NS);
        read_medium(ahead, 20 * MS_NS, SECOND_NS);
        expect_within(ahead);
        cr_assert_leq(look.error, 150 * MS_NS);
    }
}

Test(node_clock, a_medium_that_is_too_far_away_is_not_asked_all_the_time)
{
    for (int i = 0; i < 20; i++) {
        pass(SECOND_NS);
        read_medium(0, 900 * MS_NS, SECOND_NS);
    }
    cr_assert_gt(node_clock_next_reading_at(node_clock, &sample), 20 * SECOND_NS);
}

Test(node_clock, who_vouches_makes_whole_seconds_exact)
{
    node_clock_vouch(node_clock, 20 * MS_NS);
    pass(SECOND_NS / 2);
    read_medium(0, 20 * MS_NS, SECOND_NS);
    assert_i64(look.error, LEAST);
    assert_i64(look.now, sample.wall);
}

/* All nodes have the medium in common. */
Test(node_clock, the_medium_is_right)
{
    struct node_clock_status status;
    node_clock_vouch(node_clock, 20 * MS_NS);
    read_medium(-3 * SECOND_NS, 2 * MS_NS, 4 * MS_NS);
    assert_i64(look.error, LEAST);
    expect_within(-3 * SECOND_NS);
    node_clock_status_at(node_clock, &sample, &status);
    cr_assert(status.contradicts < -2900 * MS_NS && status.contradicts > -3000 * MS_NS);
}

/* Files whose times are those of each machine. */
Test(node_clock, a_medium_that_tells_no_common_time)
{
    struct tier_reading reading = reading_of(0, 2 * MS_NS, 4 * MS_NS);
    reading.is_shared = false;
    node_clock_read_medium_at(node_clock, &reading, &sample);
    look_now();
    assert_i64(look.error, -1);
    assert_i64(state(), CLOCK_UNKNOWN);
    node_clock_vouch(node_clock, 120 * MS_NS);
    look_now();
    assert_i64(look.error, 120 * MS_NS);
    assert_i64(look.now, sample.wall);
    node_clock_vouch(node_clock, -1);
    look_now();
    assert_i64(look.error, -1);
}

Test(node_clock, the_wall_clock_is_set)
{
    node_clock_vouch(node_clock, 20 * MS_NS);
    read_medium(0, 2 * MS_NS, 4 * MS_NS);
    assert_u64(look.era, 0);
    assert_i64(look.era_began, 0);
    for (int i = 0; i < 2; i++) {
        sample.wall += (i ? -300 : 300) * SECOND_NS;
        pass(10 * MS_NS);
        assert_u64(look.era, (unsigned)i + 1);
        assert_i64(look.era_began, sample.boottime);
        assert_i64(look.error, -1);
        cr_assert_lt(llabs(look.now - sample.boottime - WALL_OFFSET), LEAST, "the best guess");
        struct tier_reading old = reading_of(0, 20 * MS_NS, 4 * MS_NS);
        node_clock_read_medium_at(node_clock, &old, &sample);
        look_now();
        assert_i64(look.error, -1, "it was asked for before");
        pass(10 * MS_NS);
        read_medium(0, 2 * MS_NS, 4 * MS_NS);
        assert_i64(look.error, LEAST);
        assert_u64(look.era, (unsigned)i + 1);
    }
}

Test(node_clock, nobody_looks_for_a_while)
{
    read_medium(0, 2 * MS_NS, 4 * MS_NS);
    pass(3 * SECOND_NS);
    assert_u64(look.era, 0, "nobody was to");
    node_clock_is_watched_at(node_clock, true, &sample);
    for (int i = 0; i < 30; i++)
        pass(100 * MS_NS);
    assert_u64(look.era, 0);
    pass(1100 * MS_NS);
    assert_u64(look.era, 1);
    assert_i64(look.error, -1);
}

/* A person sets the clock of the server. */
Test(node_clock, the_medium_is_set)
{
    read_medium(0, 2 * MS_NS, 4 * MS_NS);
    pass(SECOND_NS);
    read_medium(100 * MS_NS, 2 * MS_NS, 4 * MS_NS);
    assert_u64(look.era, 1);
    expect_within(100 * MS_NS);
    assert_i64(look.error, LEAST, "it begins with the new offset");
}

/* Within an era time never jumps. */
Test(node_clock, it_is_slewed)
{
    node_clock_vouch(node_clock, 100 * MS_NS);
    read_medium(80 * MS_NS, 20 * MS_NS, SECOND_NS);
    for (int i = 0; i < 200; i++) {
        int64_t was = look.now;
        pass(100 * MS_NS);
        if (i == 100)
            read_medium(80 * MS_NS, 2 * MS_NS, 4 * MS_NS);
        cr_assert(look.now - was >= 99 * MS_NS && look.now - was <= 101 * MS_NS);
        expect_within(80 * MS_NS);
    }
    assert_u64(look.era, 0);
}
