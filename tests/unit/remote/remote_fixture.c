// SPDX-License-Identifier: Apache-2.0
#include "remote_fixture.h"

#include "../shell.h"

struct store_fixture fixture;

void remote_setup(void)
{
    fixture_make(&fixture);
}

void remote_teardown(void)
{
    fixture_remove(&fixture);
    shell("rm -rf %s-*", fixture.path);
}

void choose_remote(const char *prefix, int64_t grace_ns)
{
    _cleanup_free_ char *path = xasprintf("%s-%s", fixture.path, prefix);
    fixture_use_remote(&fixture, path);
    fixture.options.remote.gc_grace_ns = grace_ns;
}

void choose_faulty_remote(const char *prefix, int64_t grace_ns,
                          int (*fn)(const char *op, const char *object, void *arg))
{
    choose_remote(prefix, grace_ns);
    fixture.options.remote.tier = fault_tier_new(fixture.options.remote.tier, fn, NULL);
}

void open_only_with(const char *prefix, int64_t grace_ns)
{
    if (fixture.store)
        fixture_close(&fixture);
    choose_remote(prefix, grace_ns);
    assert_i64(fixture_open_only(&fixture), 0, "%s", fixture.text);
}

void open_with(const char *prefix, int64_t grace_ns)
{
    open_only_with(prefix, grace_ns);
    fixture_start(&fixture);
    fixture.store->remote->maintenance->gc_at = INT64_MAX;
}

void publish_file(const char *name, unsigned number, size_t length)
{
    fixture_put(&fixture, name, number, length);
    wait_published();
}

void wait_published(void)
{
    fixture_wait_published(&fixture);
}

static void count_line(const char *line, void *arg)
{
    (void)line;
    ++*(unsigned *)arg;
}

static bool never(void *arg)
{
    (void)arg;
    return false;
}

int gc(bool dry, unsigned *ret_lines)
{
    struct remote_gc_request request = {
        .dry_run = dry, .say = count_line, .is_cancelled = never, .arg = ret_lines};
    *ret_lines = 0;
    int r = remote_gc_ask(fixture.store->remote, &request);
    fixture.store->remote->maintenance->gc_at = INT64_MAX;
    return r;
}

struct job_status scrub_remote(void)
{
    return fixture_run_job(&fixture, (struct job_options){.kind = JOB_SCRUB, .remote = true});
}

static int take_first(const struct view_remote_pack *pack, void *arg)
{
    *(uint64_t *)arg = pack->pack;
    return 1;
}

uint64_t remote_pack(void)
{
    uint64_t pack = 0;
    assert_i64(view_remote_packs(fixture.store->local.view, take_first, &pack), 0);
    return pack;
}

static int take_two(const struct view_remote_pack *pack, void *arg)
{
    uint64_t *packs = arg;
    packs[packs[0] ? 1 : 0] = pack->pack;
    return 0;
}

void find_two_packs(uint64_t packs[2])
{
    packs[0] = packs[1] = 0;
    assert_i64(view_remote_packs(fixture.store->local.view, take_two, packs), 0);
    cr_assert_neq(packs[1], 0);
}

void lose_a_pack(void)
{
    char object[32];
    struct tier *tier = fixture.store->remote->prefix.tier;
    pack_object_name(remote_pack(), object);
    assert_i64(tier->ops->remove(tier, object), 0);
}

struct head *make_their_head(uint64_t later)
{
    struct head *theirs = xmalloc(sizeof *theirs);
    assert_i64(local_head_read(store_commit(fixture.store)->local, theirs), 0);
    theirs->number += later;
    theirs->epoch++;
    theirs->store[0] ^= 1;
    return theirs;
}

static void note_result(int result, void *arg)
{
    atomic_store((_Atomic int *)arg, result);
}

void begin_wait(struct remote_wait *wait, uint64_t seq)
{
    atomic_store(&wait->result, 1);
    remote_start_wait(fixture.store, seq, note_result, &wait->result, &wait->ticket);
}

void expect_end_of_wait(struct remote_wait *wait, int expected)
{
    for (int i = 0; i < 24000 && atomic_load(&wait->result) == 1; i++)
        pause_ms(5);
    expect_i64(atomic_load(&wait->result), expected);
}

void pause_ms(unsigned ms)
{
    (void)usleep(ms * 1000);
}
