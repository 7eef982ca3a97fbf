// SPDX-License-Identifier: Apache-2.0
/* What is done to a remote between uploads: gc, repair, scrub; on a directory. */
#include <stdio.h>

#include "../expect.h"
#include "../numbered.h"
#include "base/clock.h"
#include "remote_fixture.h"

static bool is_there(const char *object)
{
    uint64_t len;
    struct tier *tier = fixture.store->remote->prefix.tier;
    return tier->ops->stat(tier, object, &len) == 0;
}

static void put(const char *object)
{
    static _Alignas(4096) uint8_t bytes[4096] = "x";
    struct tier *tier = fixture.store->remote->prefix.tier;
    assert_i64(tier->ops->put(tier, object, bytes, sizeof bytes), 0);
}

static int count_pack(const struct tier_object *object, void *arg)
{
    (void)object;
    (*(unsigned *)arg)++;
    return 0;
}

static unsigned pack_count(void)
{
    unsigned count = 0;
    struct tier *tier = fixture.store->remote->prefix.tier;
    assert_i64(tier->ops->list(tier, "packs", NULL, count_pack, &count), 0);
    return count;
}

TestSuite(remote_gc, .init = remote_setup, .fini = remote_teardown);

Test(remote_gc, superseded_goes_after_the_grace)
{
    unsigned lines;
    open_with("remote", LONG_GRACE_NS);
    publish_file("a", 1, MIB);
    fixture_unlink(&fixture, "a", 0);
    publish_file("b", 2, MIB);
    assert_i64(gc(false, &lines), 0);
    expect_u64(lines, 0, "within the grace");
    cr_expect(is_there("heads/0000000000000001"));
    open_with("remote", GRACE_NS);
    pause_ms(300);
    assert_i64(gc(true, &lines), 0);
    cr_expect_gt(lines, 0);
    expect_u64(pack_count(), 2, "only told");
    assert_i64(gc(false, &lines), 0);
    expect_u64(pack_count(), 1);
    cr_expect_not(is_there("heads/0000000000000001"));
    assert_i64(gc(false, &lines), 0);
    expect_u64(lines, 0, "nothing is left to do");
    fixture_expect(&fixture, "b", 2, MIB);
}

static struct {
    const struct tier_ops *real;
    struct tier_ops ops;
} later;

static int two_hours_later(struct tier *tier, int64_t *ret_ns)
{
    int r = later.real->now(tier, ret_ns);
    *ret_ns += 7200 * SECOND_NS;
    return r;
}

/* By the medium's clock. */
static void pass_two_hours(void)
{
    struct tier *tier = fixture.store->remote->prefix.tier;
    later.real = tier->ops;
    later.ops = *tier->ops;
    later.ops.now = two_hours_later;
    tier->ops = &later.ops;
}

Test(remote_gc, leftovers_go_and_strangers_stay)
{
    static const char *const leftovers[] = {"packs/0000000000abcdef", "runs/0000000000abcdef",
                                            "copies/0000000000abcdef", "probe/0000000000abcdef"};
    unsigned lines;
    open_with("remote", LONG_GRACE_NS);
    publish_file("a", 1, MIB);
    for (size_t i = 0; i < ARRAY_LEN(leftovers); i++)
        put(leftovers[i]);
    put("packs/readme.txt");
    assert_i64(gc(false, &lines), 0);
    cr_expect(is_there("packs/0000000000abcdef"), "it is young");
    pass_two_hours();
    assert_i64(gc(false, &lines), 0);
    for (size_t i = 0; i < ARRAY_LEN(leftovers); i++)
        cr_expect_not(is_there(leftovers[i]), "%s", leftovers[i]);
    cr_expect(is_there("packs/readme.txt"));
}

Test(remote_gc, another_writers_head_stops_it)
{
    unsigned lines;
    open_with("remote", GRACE_NS);
    publish_file("a", 1, MIB);
    put("packs/0000000000abcdef"); /* the successor's, for all that this store can know */
    pause_ms(300);
    _cleanup_free_ struct head *theirs = make_their_head(1);
    assert_i64(head_put(&fixture.store->remote->prefix, theirs), 0);
    assert_i64(gc(false, &lines), -ESTALE);
    expect_u64(lines, 0);
    cr_expect(is_there("packs/0000000000abcdef"));
    expect_u64(fixture_remote_state(&fixture), REMOTE_FENCED);
    assert_i64(gc(false, &lines), -ESHUTDOWN);
}

/* A medium that creates heads and says that it may not; the last that it was asked for can wait
 * until later. */
static struct {
    const struct tier_ops *real;
    struct tier_ops ops;
    bool lies, is_late;
    char object[32];
    _Alignas(4096) uint8_t bytes[16384];
    size_t len;
} liar;

static int lying_put_new(struct tier *tier, const char *object, const void *buf, size_t len)
{
    if (!liar.lies || strncmp(object, "heads/", 6) != 0)
        return liar.real->put_new(tier, object, buf, len);
    (void)snprintf(liar.object, sizeof liar.object, "%s", object);
    memcpy(liar.bytes, buf, len);
    liar.len = len;
    int r = liar.is_late ? 0 : liar.real->put_new(tier, object, buf, len);
    return r < 0 ? r : -EACCES;
}

static void make_liar(struct tier *tier)
{
    liar.real = tier->ops;
    liar.ops = *tier->ops;
    liar.ops.put_new = lying_put_new;
    tier->ops = &liar.ops;
}

/* The horizon is told a moment before the state. */
static void expect_idle(void)
{
    for (int i = 0; i < 12000 && fixture_remote_state(&fixture) != REMOTE_IDLE; i++)
        pause_ms(5);
    expect_u64(fixture_remote_state(&fixture), REMOTE_IDLE);
}

/* Its own head under its number is no reason to believe that it was replaced. */
Test(remote_gc, a_head_that_is_there_although_it_failed)
{
    open_with("remote", GRACE_NS);
    make_liar(fixture.store->remote->prefix.tier);
    liar.lies = true;
    publish_file("a", 1, MIB);
    liar.is_late = true;
    liar.len = 0;
    fixture_put(&fixture, "b", 2, MIB);
    fixture_wait(&fixture);
    for (int i = 0; i < 12000 && liar.len == 0; i++)
        pause_ms(5);
    pause_ms(100); /* it was looked for, and is not there */
    cr_assert_gt(liar.len, 0);
    assert_i64(
        liar.real->put_new(fixture.store->remote->prefix.tier, liar.object, liar.bytes, liar.len),
        0);
    liar.lies = false;
    remote_drain(fixture.store); /* does not wait until it is time to try again */
    publish_file("c", 3, MIB);
    expect_idle();
}

/* The same at mount, which does not wait: the uploader finds it. */
Test(remote_gc, a_claim_that_comes_late)
{
    open_with("remote", GRACE_NS);
    publish_file("a", 1, MIB);
    fixture_close(&fixture);
    choose_remote("remote", GRACE_NS);
    make_liar(fixture.options.remote.tier);
    liar.lies = liar.is_late = true;
    fixture_open(&fixture);
    assert_u64(fixture_remote_state(&fixture), REMOTE_UNREACHABLE);
    assert_i64(
        liar.real->put_new(fixture.store->remote->prefix.tier, liar.object, liar.bytes, liar.len),
        0);
    liar.lies = false;
    publish_file("b", 2, MIB);
    expect_idle();
}

static const struct job_options scrub_both = {.kind = JOB_SCRUB, .local = true, .remote = true};

Test(remote_gc, many_small_packs_become_few, .timeout = 600)
{
    open_with("remote", GRACE_NS);
    for (unsigned i = 0; i < 40; i++)
        publish_file(numbered("f%u", i), i, 40000);
    uint64_t packs = view_remote(fixture.store->local.view).packs;
    cr_expect_leq(packs, 18, "%llu", (unsigned long long)packs);
    cr_expect_leq(atomic_load(&fixture.store->remote->prefix.uploaded_total), 8 * MIB);
    struct job_status status = fixture_run_job(&fixture, scrub_both);
    expect_u64(status.counts.found, 0);
    expect_i64(status.error, 0);
}

#define MERGED_PACKS 18u /* 17 small ones are merged */
#define MERGED_FILES 20u /* a chunk each, in each pack */

static _Atomic unsigned pack_gets;

static int count_pack_gets(const char *op, const char *object, void *arg)
{
    (void)arg;
    atomic_fetch_add(&pack_gets, strcmp(op, "get_range") == 0 && strncmp(object, "packs/", 6) == 0);
    return 0;
}

/* With MERGED_PACKS small packs in the remote, and nothing of them on NVMe. */
static void make_small_packs(void)
{
    open_with("remote", LONG_GRACE_NS);
    fixture.store->remote->maintenance->repair_at = INT64_MAX;
    for (unsigned i = 0; i < MERGED_PACKS * MERGED_FILES; i++) {
        fixture_put(&fixture, numbered("f%u", i), i, 40000);
        if (i % MERGED_FILES == MERGED_FILES - 1)
            wait_published();
    }
    cr_assert_gt(fixture_evict(&fixture), 0);
    fixture_close(&fixture);
    fixture_lose_power(&fixture);
}

/* What lies together comes by one request: chunks of whole packs, not one each. */
Test(remote_gc, neighbours_are_merged_by_one_request, .timeout = 300)
{
    make_small_packs();
    choose_faulty_remote("remote", LONG_GRACE_NS, count_pack_gets);
    atomic_store(&pack_gets, 0);
    fixture_open(&fixture);
    struct remote *remote = fixture.store->remote;
    cr_assert_geq(view_remote(fixture.store->local.view).packs, MERGED_PACKS);
    publish_file("another", 1000, 40000); /* a round, which merges */
    uint64_t bytes = atomic_load(&remote->merged_total);
    unsigned gets = atomic_load(&pack_gets);
    cr_expect_geq(bytes, (uint64_t)MERGED_FILES * 40000 * 10, "%llu bytes were merged",
                  (unsigned long long)bytes);
    cr_expect_leq(gets, 3 * MERGED_PACKS, "%u requests for %u chunks", gets,
                  MERGED_PACKS * MERGED_FILES);
    cr_expect_leq(bytes, (uint64_t)MERGED_PACKS * MERGED_FILES * 40000 * 5 / 4,
                  "no byte is read much more than once: %llu", (unsigned long long)bytes);
    fixture_expect(&fixture, "f7", 7, 40000);
}

Test(remote_gc, scrub_heals_a_lost_pack)
{
    open_with("remote", LONG_GRACE_NS);
    publish_file("a", 1, 3 * MIB);
    lose_a_pack();
    struct job_status status = scrub_remote();
    cr_expect_gt(status.counts.found, 0);
    expect_u64(status.counts.unhealed, 0);
    expect_u64(status.counts.found, status.counts.healed);
    expect_u64(fixture_run_job(&fixture, scrub_both).counts.found, 0);
    fixture_expect(&fixture, "a", 1, 3 * MIB);
}

Test(remote_gc, one_job_at_a_time_and_cancelled_at_the_end)
{
    uint64_t number;
    struct job_options slow = {.kind = JOB_SCRUB, .local = true, .rate = 1};
    open_with("remote", GRACE_NS);
    publish_file("a", 1, 20 * MIB);
    assert_i64(store_job_start(fixture.store, &slow, &number), 0);
    expect_i64(store_job_start(fixture.store, &slow, &number), -EBUSY);
    int64_t began = clock_monotonic_ns();
    fixture_close(&fixture);
    cr_expect_lt(clock_monotonic_ns() - began, 100000000000ll);
}
