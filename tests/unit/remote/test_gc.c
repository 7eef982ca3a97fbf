// SPDX-License-Identifier: Apache-2.0
/* What is done to a remote between uploads: gc, repair, scrub; on a directory. */
#include <stdio.h>

#include "../expect.h"
#include "base/clock.h"
#include "remote_fixture.h"

static bool is_there(struct store_fixture *fixture, const char *object)
{
    uint64_t len;
    struct tier *tier = fixture->store->remote->tier;
    return tier->ops->stat(tier, object, &len) == 0;
}

static void put(struct store_fixture *fixture, const char *object)
{
    static _Alignas(4096) uint8_t bytes[4096] = "x";
    struct tier *tier = fixture->store->remote->tier;
    assert_i64(tier->ops->put(tier, object, bytes, sizeof bytes), 0);
}

static int count_pack(const struct tier_object *object, void *arg)
{
    (void)object;
    (*(unsigned *)arg)++;
    return 0;
}

static unsigned pack_count(struct store_fixture *fixture)
{
    unsigned count = 0;
    struct tier *tier = fixture->store->remote->tier;
    assert_i64(tier->ops->list(tier, "packs", NULL, count_pack, &count), 0);
    return count;
}

Test(remote_gc, superseded_goes_after_the_grace)
{
    struct store_fixture fixture;
    unsigned lines;
    make_with_remote(&fixture, "remote", LONG_GRACE_NS);
    fixture_put(&fixture, "a", 1, MIB);
    wait_published(&fixture);
    fixture_unlink(&fixture, "a", 0);
    fixture_put(&fixture, "b", 2, MIB);
    wait_published(&fixture);
    assert_i64(gc(&fixture, false, &lines), 0);
    expect_u64(lines, 0, "within the grace");
    cr_expect(is_there(&fixture, "heads/0000000000000001"));
    fixture_close(&fixture);
    open_with(&fixture, "remote", GRACE_NS);
    pause_ms(300);
    assert_i64(gc(&fixture, true, &lines), 0);
    cr_expect_gt(lines, 0);
    expect_u64(pack_count(&fixture), 2, "only told");
    assert_i64(gc(&fixture, false, &lines), 0);
    expect_u64(pack_count(&fixture), 1);
    cr_expect_not(is_there(&fixture, "heads/0000000000000001"));
    assert_i64(gc(&fixture, false, &lines), 0);
    expect_u64(lines, 0, "nothing is left to do");
    fixture_expect(&fixture, "b", 2, MIB);
    remove_with_remotes(&fixture);
}

Test(remote_gc, leftovers_go_and_strangers_stay)
{
    struct store_fixture fixture;
    unsigned lines;
    make_with_remote(&fixture, "remote", GRACE_NS);
    fixture_put(&fixture, "a", 1, MIB);
    wait_published(&fixture);
    put(&fixture, "packs/0000000000abcdef");
    put(&fixture, "runs/0000000000abcdef");
    put(&fixture, "copies/0000000000abcdef");
    put(&fixture, "probe/0000000000abcdef");
    put(&fixture, "packs/readme.txt");
    assert_i64(gc(&fixture, false, &lines), 0);
    cr_expect(is_there(&fixture, "packs/0000000000abcdef"), "it is young");
    pause_ms(300);
    assert_i64(gc(&fixture, false, &lines), 0);
    cr_expect_not(is_there(&fixture, "packs/0000000000abcdef"));
    cr_expect_not(is_there(&fixture, "runs/0000000000abcdef"));
    cr_expect_not(is_there(&fixture, "copies/0000000000abcdef"));
    cr_expect_not(is_there(&fixture, "probe/0000000000abcdef"));
    cr_expect(is_there(&fixture, "packs/readme.txt"));
    remove_with_remotes(&fixture);
}

Test(remote_gc, another_writers_head_stops_it)
{
    struct store_fixture fixture;
    unsigned lines;
    make_with_remote(&fixture, "remote", GRACE_NS);
    fixture_put(&fixture, "a", 1, MIB);
    wait_published(&fixture);
    put(&fixture, "packs/0000000000abcdef"); /* the successor's, for all that this store can know */
    pause_ms(300);
    struct remote *remote = fixture.store->remote;
    struct head *theirs = xmalloc(sizeof *theirs);
    assert_i64(local_head_read(store_commit(fixture.store)->local, theirs), 0);
    theirs->number++;
    theirs->epoch++;
    theirs->store[0] ^= 1;
    assert_i64(remote_put_head(remote, theirs), 0);
    assert_i64(gc(&fixture, false, &lines), -ESTALE);
    expect_u64(lines, 0);
    cr_expect(is_there(&fixture, "packs/0000000000abcdef"));
    struct remote_status status;
    store_remote_status(fixture.store, &status);
    expect_u64(status.state, REMOTE_FENCED);
    assert_i64(gc(&fixture, false, &lines), -ESHUTDOWN);
    free(theirs);
    remove_with_remotes(&fixture);
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
static void expect_idle(struct store_fixture *fixture)
{
    for (int i = 0; i < 12000 && state_of(fixture) != REMOTE_IDLE; i++)
        pause_ms(5);
    expect_u64(state_of(fixture), REMOTE_IDLE);
}

/* Its own head under its number is no reason to believe that it was replaced. */
Test(remote_gc, a_head_that_is_there_although_it_failed)
{
    struct store_fixture fixture;
    make_with_remote(&fixture, "remote", GRACE_NS);
    make_liar(fixture.store->remote->tier);
    liar.lies = true;
    fixture_put(&fixture, "a", 1, MIB);
    wait_published(&fixture);
    liar.is_late = true;
    liar.len = 0;
    fixture_put(&fixture, "b", 2, MIB);
    fixture_wait(&fixture);
    for (int i = 0; i < 12000 && liar.len == 0; i++)
        pause_ms(5);
    pause_ms(100); /* it was looked for, and is not there */
    cr_assert_gt(liar.len, 0);
    assert_i64(liar.real->put_new(fixture.store->remote->tier, liar.object, liar.bytes, liar.len),
               0);
    liar.lies = false;
    store_drain_remote(fixture.store); /* does not wait until it is time to try again */
    fixture_put(&fixture, "c", 3, MIB);
    wait_published(&fixture);
    expect_idle(&fixture);
    remove_with_remotes(&fixture);
}

/* The same at mount, which does not wait: the uploader finds it. */
Test(remote_gc, a_claim_that_comes_late)
{
    struct store_fixture fixture;
    make_with_remote(&fixture, "remote", GRACE_NS);
    fixture_put(&fixture, "a", 1, MIB);
    wait_published(&fixture);
    fixture_close(&fixture);
    choose_remote(&fixture, "remote", GRACE_NS);
    make_liar(fixture.options.remote.tier);
    liar.lies = liar.is_late = true;
    fixture_open(&fixture);
    assert_u64(state_of(&fixture), REMOTE_UNREACHABLE);
    assert_i64(liar.real->put_new(fixture.store->remote->tier, liar.object, liar.bytes, liar.len),
               0);
    liar.lies = false;
    fixture_put(&fixture, "b", 2, MIB);
    wait_published(&fixture);
    expect_idle(&fixture);
    remove_with_remotes(&fixture);
}

Test(remote_gc, many_small_packs_become_few, .timeout = 600)
{
    struct store_fixture fixture;
    char name[16];
    make_with_remote(&fixture, "remote", GRACE_NS);
    for (unsigned i = 0; i < 40; i++) {
        (void)snprintf(name, sizeof name, "f%u", i);
        fixture_put(&fixture, name, i, 40000);
        wait_published(&fixture);
    }
    uint64_t packs = view_remote(fixture.store->local.view).packs;
    cr_expect_leq(packs, 18, "%llu", (unsigned long long)packs);
    cr_expect_leq(atomic_load(&fixture.store->remote->uploaded_total), 8 * MIB);
    struct job_status status =
        run_job(&fixture, (struct job_options){.kind = JOB_SCRUB, .local = true, .remote = true});
    expect_u64(status.counts.found, 0);
    expect_i64(status.error, 0);
    remove_with_remotes(&fixture);
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
static void make_small_packs(struct store_fixture *fixture)
{
    char name[16];
    uint64_t job;
    struct warm_status status;
    make_with_remote(fixture, "remote", LONG_GRACE_NS);
    fixture->store->remote->maintenance->repair_at = INT64_MAX;
    for (unsigned i = 0; i < MERGED_PACKS * MERGED_FILES; i++) {
        (void)snprintf(name, sizeof name, "f%u", i);
        fixture_put(fixture, name, i, 40000);
        if (i % MERGED_FILES == MERGED_FILES - 1)
            wait_published(fixture);
    }
    assert_i64(store_warm_start(fixture->store, ROOT_INO, true, &job), 0);
    do {
        pause_ms(5);
        assert_i64(store_warm_status(fixture->store, job, false, &status), 0);
    } while (!status.ended);
    cr_assert_gt(status.dropped_bytes, 0);
    fixture_close(fixture);
    fixture_lose_power(fixture);
}

/* What lies together comes by one request: chunks of whole packs, not one each. */
Test(remote_gc, neighbours_are_merged_by_one_request, .timeout = 300)
{
    struct store_fixture fixture;
    make_small_packs(&fixture);
    choose_remote(&fixture, "remote", LONG_GRACE_NS);
    fixture.options.remote.tier =
        fault_tier_new(fixture.options.remote.tier, count_pack_gets, NULL);
    atomic_store(&pack_gets, 0);
    fixture_open(&fixture);
    struct remote *remote = fixture.store->remote;
    cr_assert_geq(view_remote(fixture.store->local.view).packs, MERGED_PACKS);
    fixture_put(&fixture, "another", 1000, 40000); /* a round, which merges */
    wait_published(&fixture);
    uint64_t bytes = atomic_load(&remote->merged_total);
    unsigned gets = atomic_load(&pack_gets);
    cr_expect_geq(bytes, (uint64_t)MERGED_FILES * 40000 * 10, "%llu bytes were merged",
                  (unsigned long long)bytes);
    cr_expect_leq(gets, 3 * MERGED_PACKS, "%u requests for %u chunks", gets,
                  MERGED_PACKS * MERGED_FILES);
    cr_expect_leq(bytes, (uint64_t)MERGED_PACKS * MERGED_FILES * 40000 * 5 / 4,
                  "no byte is read much more than once: %llu", (unsigned long long)bytes);
    fixture_expect(&fixture, "f7", 7, 40000);
    remove_with_remotes(&fixture);
}

Test(remote_gc, scrub_heals_a_lost_pack)
{
    struct store_fixture fixture;
    make_with_remote(&fixture, "remote", LONG_GRACE_NS);
    fixture_put(&fixture, "a", 1, 3 * MIB);
    wait_published(&fixture);
    lose_a_pack(&fixture);
    struct job_status status =
        run_job(&fixture, (struct job_options){.kind = JOB_SCRUB, .remote = true});
    cr_expect_gt(status.counts.found, 0);
    expect_u64(status.counts.unhealed, 0);
    expect_u64(status.counts.found, status.counts.healed);
    status =
        run_job(&fixture, (struct job_options){.kind = JOB_SCRUB, .local = true, .remote = true});
    expect_u64(status.counts.found, 0);
    fixture_expect(&fixture, "a", 1, 3 * MIB);
    remove_with_remotes(&fixture);
}

Test(remote_gc, one_job_at_a_time_and_cancelled_at_the_end)
{
    struct store_fixture fixture;
    uint64_t number;
    struct job_options slow = {.kind = JOB_SCRUB, .local = true, .rate = 1};
    make_with_remote(&fixture, "remote", GRACE_NS);
    fixture_put(&fixture, "a", 1, 20 * MIB);
    wait_published(&fixture);
    assert_i64(store_job_start(fixture.store, &slow, &number), 0);
    expect_i64(store_job_start(fixture.store, &slow, &number), -EBUSY);
    int64_t began = clock_monotonic_ns();
    fixture_close(&fixture);
    cr_expect_lt(clock_monotonic_ns() - began, 10000000000ll);
    remove_with_remotes(&fixture);
}
