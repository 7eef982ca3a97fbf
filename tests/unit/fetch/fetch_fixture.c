// SPDX-License-Identifier: Apache-2.0
#include "../../remove_tree.h"
#include "../expect.h"
#include "fetch_fixture.h"

#include <stdio.h>
#include <sys/stat.h>

struct store_fixture fixture;
char remote_path[64];
_Atomic unsigned gets;
_Atomic int get_error, put_error;
_Atomic bool gets_wait, one_get_fails;
static char remote_name[80];

static int count_gets(const char *op, const char *object, void *arg)
{
    (void)arg;
    if (strcmp(op, "put") == 0)
        return atomic_load(&put_error);
    if (strcmp(op, "get_range") != 0 || strncmp(object, "packs/", 6) != 0)
        return 0;
    atomic_fetch_add(&gets, 1);
    while (atomic_load(&gets_wait))
        (void)usleep(1000);
    if (atomic_exchange(&one_get_fails, false))
        return -EACCES;
    return atomic_load(&get_error);
}

void use_remote(bool wanted)
{
    fixture.options.remote = (struct remote_options){0};
    if (!wanted)
        return;
    struct tier *tier = NULL;
    char *text = NULL;
    assert_i64(dir_tier_open(&(struct dir_options){.path = remote_path}, &tier, &text), 0, "%s",
               text ? text : "");
    fixture.options.remote = (struct remote_options){.name = remote_name,
                                                     .tier = fault_tier_new(tier, count_gets, NULL),
                                                     .holder = "test",
                                                     .upload_threads = 2,
                                                     .fetch_threads = 4,
                                                     .lease_ns = 1000000000,
                                                     .gc_grace_ns = 3600ll * 1000000000};
}

void open_store(bool with_remote)
{
    if (fixture.store)
        fixture_close(&fixture);
    use_remote(with_remote);
    fixture_open(&fixture);
}

void fetch_setup(void)
{
    fixture_make(&fixture);
    strcpy(remote_path, "/tmp/cairn-remote-XXXXXX");
    cr_assert_not_null(mkdtemp(remote_path));
    (void)snprintf(remote_name, sizeof remote_name, "dir:%s", remote_path);
    open_store(true);
}

void fetch_teardown(void)
{
    fixture_remove(&fixture);
    remove_tree(remote_path);
}

void wait_remote(void)
{
    fixture_wait(&fixture);
    AWAIT(horizon_published(store_commit(fixture.store)->horizon) >=
              history_newest(store_commit(fixture.store)->history),
          "the remote gets it");
}

void move_node(void)
{
    wait_remote();
    fixture_close(&fixture);
    fixture_delete(&fixture, "");
    assert_i64(mkdir(fixture.path, 0700), 0);
    fixture_lose_power(&fixture);
    atomic_store(&gets, 0);
    open_store(true);
}

void await_kept(uint64_t bytes)
{
    AWAIT(fixture_status(&fixture).view.pack_bytes >= bytes, "%llu bytes are kept",
          (unsigned long long)fixture_status(&fixture).view.pack_bytes);
}

uint64_t start_job(const char *name, bool evicts)
{
    uint64_t job;
    uint64_t ino = name ? fixture_lookup(&fixture, name) : ROOT_INO;
    assert_i64(fetch_warm_start(fixture.store, ino, evicts, &job), 0);
    return job;
}

struct warm_status look_at_job(uint64_t job)
{
    struct warm_status s;
    assert_i64(fetch_warm_status(fixture.store, job, false, &s), 0);
    return s;
}

struct warm_status await_job(uint64_t job)
{
    struct warm_status s;
    while (s = look_at_job(job), !s.ended)
        (void)usleep(5000);
    assert_i64(s.error, 0, "%s", strerror(-s.error));
    return s;
}

struct warm_status run_job(const char *name, bool evicts)
{
    return await_job(start_job(name, evicts));
}

int try_read(uint64_t ino)
{
    uint8_t buf[4096];
    return fixture_try_read(&fixture, ino, 0, buf, sizeof buf);
}

static void note(const char *path, const char *what, void *arg)
{
    (void)path;
    (void)snprintf(arg, 200, "%s", what);
}

const char *damage_found(void)
{
    static char what[200];
    what[0] = 0;
    damage_list(store_commit(fixture.store)->damage, note, what);
    return what;
}
