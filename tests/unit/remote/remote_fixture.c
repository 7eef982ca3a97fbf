// SPDX-License-Identifier: Apache-2.0
#include "remote_fixture.h"

#include <stdio.h>

#include "../expect.h"

void choose_remote(struct store_fixture *fixture, const char *prefix, int64_t grace_ns)
{
    _cleanup_free_ char *path = xasprintf("%s-%s", fixture->path, prefix);
    char *text = NULL;
    struct remote_options *options = &fixture->options.remote;
    *options = (struct remote_options){.name = "dir:test",
                                       .holder = "test",
                                       .upload_threads = 2,
                                       .lease_ns = 10000000000ll,
                                       .gc_grace_ns = grace_ns};
    assert_i64(dir_tier_open(&(struct dir_options){.path = path}, &options->tier, &text), 0, "%s",
               text ? text : "");
}

void open_with(struct store_fixture *fixture, const char *prefix, int64_t grace_ns)
{
    choose_remote(fixture, prefix, grace_ns);
    fixture_open(fixture);
    fixture->store->remote->maintenance->gc_at = INT64_MAX;
}

void make_with_remote(struct store_fixture *fixture, const char *prefix, int64_t grace_ns)
{
    fixture_make(fixture);
    open_with(fixture, prefix, grace_ns);
}

void remove_with_remotes(struct store_fixture *fixture)
{
    fixture_remove(fixture);
    run("rm -rf %s-*", fixture->path, "");
}

void wait_published(struct store_fixture *fixture)
{
    struct store *store = fixture->store;
    fixture_wait(fixture);
    for (int i = 0; i < 24000; i++) {
        if (horizon_published(store_commit(store)->horizon) >=
                horizon_reached(store_commit(store)->horizon) &&
            view_remote(store->local.view).pending_chunks == 0 &&
            !remote_repair_is_due(store->remote))
            return;
        pause_ms(5);
    }
    cr_fail("it is not published");
}

enum remote_state state_of(struct store_fixture *fixture)
{
    struct remote_status status;
    store_remote_status(fixture->store, &status);
    return status.state;
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

int gc(struct store_fixture *fixture, bool dry, unsigned *ret_lines)
{
    struct remote_gc_request request = {
        .dry_run = dry, .say = count_line, .is_cancelled = never, .arg = ret_lines};
    *ret_lines = 0;
    int r = remote_gc_ask(fixture->store->remote, &request);
    fixture->store->remote->maintenance->gc_at = INT64_MAX;
    return r;
}

struct job_status run_job(struct store_fixture *fixture, struct job_options options)
{
    struct job_status status;
    uint64_t number;
    unsigned lines = 0;
    assert_i64(store_job_start(fixture->store, &options, &number), 0);
    do {
        pause_ms(5);
        store_job_status(fixture->store, 0, count_line, &lines, &status);
    } while (status.running);
    assert_u64(status.number, number);
    return status;
}

static int take_first(const struct view_remote_pack *pack, void *arg)
{
    *(uint64_t *)arg = pack->pack;
    return 1;
}

uint64_t remote_pack(struct store_fixture *fixture)
{
    uint64_t pack = 0;
    assert_i64(view_remote_packs(fixture->store->local.view, take_first, &pack), 0);
    return pack;
}

void lose_a_pack(struct store_fixture *fixture)
{
    char object[32];
    struct tier *tier = fixture->store->remote->tier;
    pack_object_name(remote_pack(fixture), object);
    assert_i64(tier->ops->remove(tier, object), 0);
}

void pause_ms(unsigned ms)
{
    (void)usleep(ms * 1000);
}

void run(const char *format, const char *a, const char *b)
{
    char command[256];
    (void)snprintf(command, sizeof command, format, a, b);
    assert_i64(system(command), 0, "%s", command);
}
