// SPDX-License-Identifier: Apache-2.0
/* What is done to a remote between uploads: gc, repair, scrub; on a directory. */
#include <stdio.h>

#include "../expect.h"
#include "base/clock.h"
#include "remote/maintenance.h"
#include "../fixtures/store_fixture.h"

#define GRACE_NS (200 * 1000000ll)

struct place {
    struct store_fixture fixture;
    char path[80];
};

static void open_on(struct place *place, int64_t grace_ns)
{
    struct store_fixture *fixture = &place->fixture;
    char *text = NULL;
    fixture->options.remote = (struct remote_options){.name = "dir:test",
                                                      .holder = "test",
                                                      .upload_threads = 2,
                                                      .lease_ns = 10000000000ll,
                                                      .gc_grace_ns = grace_ns};
    assert_i64(dir_tier_open(&(struct dir_options){.path = place->path},
                             &fixture->options.remote.tier, &text),
               0, "%s", text ? text : "");
    fixture_open(fixture);
    fixture->store->remote->maintenance->gc_at = INT64_MAX; /* only when asked */
}

static void make(struct place *place, int64_t grace_ns)
{
    fixture_make(&place->fixture);
    (void)snprintf(place->path, sizeof place->path, "%s-remote", place->fixture.path);
    open_on(place, grace_ns);
}

static void done(struct place *place)
{
    char command[128];
    fixture_remove(&place->fixture);
    (void)snprintf(command, sizeof command, "rm -rf %s", place->path);
    assert_i64(system(command), 0);
}

static void pause_ms(unsigned ms)
{
    (void)usleep(ms * 1000);
}

/* All that is durable is published, and nothing waits to be repaired. */
static void wait_published(struct place *place)
{
    struct store *store = place->fixture.store;
    fixture_wait(&place->fixture);
    for (int i = 0; i < 12000; i++) {
        if (store_remote_horizon(store) >= store_horizon(store) &&
            view_remote(store->view).pending_chunks == 0 && !remote_repair_is_due(store->remote))
            return;
        pause_ms(5);
    }
    cr_fail("it is not published");
}

static bool is_there(struct place *place, const char *object)
{
    uint64_t len;
    struct tier *tier = place->fixture.store->remote->tier;
    return tier->ops->stat(tier, object, &len) == 0;
}

static void put(struct place *place, const char *object)
{
    static _Alignas(4096) uint8_t bytes[4096] = "x";
    struct tier *tier = place->fixture.store->remote->tier;
    assert_i64(tier->ops->put(tier, object, bytes, sizeof bytes), 0);
}

static int count_pack(const struct tier_object *object, void *arg)
{
    (void)object;
    (*(unsigned *)arg)++;
    return 0;
}

static unsigned pack_count(struct place *place)
{
    unsigned count = 0;
    struct tier *tier = place->fixture.store->remote->tier;
    assert_i64(tier->ops->list(tier, "packs", NULL, count_pack, &count), 0);
    return count;
}

struct said {
    unsigned lines;
};

static void say(const char *line, void *arg)
{
    (void)line;
    ((struct said *)arg)->lines++;
}

static bool never(void *arg)
{
    (void)arg;
    return false;
}

static int gc(struct place *place, bool dry, unsigned *ret_lines)
{
    struct said said = {0};
    struct remote_gc_request request = {
        .dry_run = dry, .say = say, .is_cancelled = never, .arg = &said};
    int r = remote_gc_ask(place->fixture.store->remote, &request);
    place->fixture.store->remote->maintenance->gc_at = INT64_MAX;
    *ret_lines = said.lines;
    return r;
}

static struct job_status run_job(struct place *place, struct job_options options)
{
    struct said said = {0};
    struct job_status status;
    uint64_t number;
    assert_i64(store_job_start(place->fixture.store, &options, &number), 0);
    do {
        pause_ms(5);
        store_job_status(place->fixture.store, 0, say, &said, &status);
    } while (status.running);
    assert_u64(status.number, number);
    return status;
}

static int take_first(const struct view_remote_pack *pack, void *arg)
{
    *(uint64_t *)arg = pack->pack;
    return 1;
}

static uint64_t first_pack(struct place *place)
{
    uint64_t pack = 0;
    assert_i64(view_remote_packs(place->fixture.store->view, take_first, &pack), 0);
    return pack;
}

Test(remote_gc, superseded_goes_after_the_grace)
{
    struct place place;
    unsigned lines;
    make(&place, 3600 * 1000000000ll);
    fixture_put(&place.fixture, "a", 1, MIB);
    wait_published(&place);
    fixture_unlink(&place.fixture, "a", 0);
    fixture_put(&place.fixture, "b", 2, MIB);
    wait_published(&place);
    assert_i64(gc(&place, false, &lines), 0);
    expect_u64(lines, 0, "within the grace");
    cr_expect(is_there(&place, "heads/0000000000000001"));
    fixture_close(&place.fixture);
    open_on(&place, GRACE_NS);
    pause_ms(300);
    assert_i64(gc(&place, true, &lines), 0);
    cr_expect_gt(lines, 0);
    expect_u64(pack_count(&place), 2, "only told");
    assert_i64(gc(&place, false, &lines), 0);
    expect_u64(pack_count(&place), 1);
    cr_expect_not(is_there(&place, "heads/0000000000000001"));
    assert_i64(gc(&place, false, &lines), 0);
    expect_u64(lines, 0, "nothing is left to do");
    fixture_expect(&place.fixture, "b", 2, MIB);
    done(&place);
}

Test(remote_gc, leftovers_go_and_strangers_stay)
{
    struct place place;
    unsigned lines;
    make(&place, GRACE_NS);
    fixture_put(&place.fixture, "a", 1, MIB);
    wait_published(&place);
    put(&place, "packs/0000000000abcdef");
    put(&place, "runs/0000000000abcdef");
    put(&place, "probe/0000000000abcdef");
    put(&place, "packs/readme.txt");
    assert_i64(gc(&place, false, &lines), 0);
    cr_expect(is_there(&place, "packs/0000000000abcdef"), "it is young");
    pause_ms(300);
    assert_i64(gc(&place, false, &lines), 0);
    cr_expect_not(is_there(&place, "packs/0000000000abcdef"));
    cr_expect_not(is_there(&place, "runs/0000000000abcdef"));
    cr_expect_not(is_there(&place, "probe/0000000000abcdef"));
    cr_expect(is_there(&place, "packs/readme.txt"));
    done(&place);
}

Test(remote_gc, another_writers_head_stops_it)
{
    struct place place;
    unsigned lines;
    make(&place, GRACE_NS);
    fixture_put(&place.fixture, "a", 1, MIB);
    wait_published(&place);
    put(&place, "packs/0000000000abcdef"); /* the successor's, for all that this store can know */
    pause_ms(300);
    struct remote *remote = place.fixture.store->remote;
    struct head *theirs = xmalloc(sizeof *theirs);
    assert_i64(local_head_read(place.fixture.store, theirs), 0);
    theirs->number++;
    theirs->epoch++;
    theirs->store[0] ^= 1;
    assert_i64(remote_put_head(remote, theirs), 0);
    assert_i64(gc(&place, false, &lines), -ESTALE);
    expect_u64(lines, 0);
    cr_expect(is_there(&place, "packs/0000000000abcdef"));
    struct remote_status status;
    store_remote_status(place.fixture.store, &status);
    expect_u64(status.state, REMOTE_FENCED);
    assert_i64(gc(&place, false, &lines), -ESHUTDOWN);
    free(theirs);
    done(&place);
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

static enum remote_state state_of(struct place *place)
{
    struct remote_status status;
    store_remote_status(place->fixture.store, &status);
    return status.state;
}

/* The horizon is told a moment before the state. */
static void expect_idle(struct place *place)
{
    for (int i = 0; i < 12000 && state_of(place) != REMOTE_IDLE; i++)
        pause_ms(5);
    expect_u64(state_of(place), REMOTE_IDLE);
}

/* Its own head under its number is no reason to believe that it was replaced. */
Test(remote_gc, a_head_that_is_there_although_it_failed)
{
    struct place place;
    make(&place, GRACE_NS);
    make_liar(place.fixture.store->remote->tier);
    liar.lies = true;
    fixture_put(&place.fixture, "a", 1, MIB);
    wait_published(&place);
    liar.is_late = true;
    liar.len = 0;
    fixture_put(&place.fixture, "b", 2, MIB);
    fixture_wait(&place.fixture);
    for (int i = 0; i < 12000 && liar.len == 0; i++)
        pause_ms(5);
    pause_ms(100); /* it was looked for, and is not there */
    cr_assert_gt(liar.len, 0);
    assert_i64(
        liar.real->put_new(place.fixture.store->remote->tier, liar.object, liar.bytes, liar.len),
        0);
    liar.lies = false;
    store_drain_remote(place.fixture.store); /* does not wait until it is time to try again */
    fixture_put(&place.fixture, "c", 3, MIB);
    wait_published(&place);
    expect_idle(&place);
    done(&place);
}

/* The same at mount, which does not wait: the uploader finds it. */
Test(remote_gc, a_claim_that_comes_late)
{
    struct place place;
    make(&place, GRACE_NS);
    fixture_put(&place.fixture, "a", 1, MIB);
    wait_published(&place);
    fixture_close(&place.fixture);
    char *text = NULL;
    assert_i64(dir_tier_open(&(struct dir_options){.path = place.path},
                             &place.fixture.options.remote.tier, &text),
               0);
    make_liar(place.fixture.options.remote.tier);
    liar.lies = liar.is_late = true;
    fixture_open(&place.fixture);
    assert_u64(state_of(&place), REMOTE_UNREACHABLE);
    assert_i64(
        liar.real->put_new(place.fixture.store->remote->tier, liar.object, liar.bytes, liar.len),
        0);
    liar.lies = false;
    fixture_put(&place.fixture, "b", 2, MIB);
    wait_published(&place);
    expect_idle(&place);
    done(&place);
}

Test(remote_gc, many_small_packs_become_few, .timeout = 600)
{
    struct place place;
    char name[16];
    make(&place, GRACE_NS);
    for (unsigned i = 0; i < 40; i++) {
        (void)snprintf(name, sizeof name, "f%u", i);
        fixture_put(&place.fixture, name, i, 40000);
        wait_published(&place);
    }
    uint64_t packs = view_remote(place.fixture.store->view).packs;
    cr_expect_leq(packs, 18, "%llu", (unsigned long long)packs);
    cr_expect_leq(atomic_load(&place.fixture.store->remote->uploaded_total), 8 * MIB);
    struct job_status status =
        run_job(&place, (struct job_options){.kind = JOB_SCRUB, .local = true, .remote = true});
    expect_u64(status.counts.found, 0);
    expect_i64(status.error, 0);
    done(&place);
}

Test(remote_gc, scrub_heals_a_lost_pack)
{
    struct place place;
    char object[32];
    make(&place, 3600 * 1000000000ll);
    fixture_put(&place.fixture, "a", 1, 3 * MIB);
    wait_published(&place);
    struct tier *tier = place.fixture.store->remote->tier;
    pack_object_name(first_pack(&place), object);
    assert_i64(tier->ops->remove(tier, object), 0);
    struct job_status status =
        run_job(&place, (struct job_options){.kind = JOB_SCRUB, .remote = true});
    cr_expect_gt(status.counts.found, 0);
    expect_u64(status.counts.unhealed, 0);
    expect_u64(status.counts.found, status.counts.healed);
    status =
        run_job(&place, (struct job_options){.kind = JOB_SCRUB, .local = true, .remote = true});
    expect_u64(status.counts.found, 0);
    fixture_expect(&place.fixture, "a", 1, 3 * MIB);
    done(&place);
}

Test(remote_gc, one_job_at_a_time_and_cancelled_at_the_end)
{
    struct place place;
    uint64_t number;
    struct job_options slow = {.kind = JOB_SCRUB, .local = true, .rate = 1};
    make(&place, GRACE_NS);
    fixture_put(&place.fixture, "a", 1, 20 * MIB);
    wait_published(&place);
    assert_i64(store_job_start(place.fixture.store, &slow, &number), 0);
    expect_i64(store_job_start(place.fixture.store, &slow, &number), -EBUSY);
    int64_t began = clock_monotonic_ns();
    fixture_close(&place.fixture);
    cr_expect_lt(clock_monotonic_ns() - began, 10000000000ll);
    done(&place);
}
