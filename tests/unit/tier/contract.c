// SPDX-License-Identifier: Apache-2.0
/* What tier.h promises of every tier: on the local one, on a directory, and on S3 where the
 * environment names an endpoint (CAIRN_TEST_S3_ENDPOINT, see tests/rgw). */

#include "../expect.h"
#include "base/clock.h"
#include "base/pool.h"
#include "store.h"

TestSuite(contract_nvme, .init = store_open, .fini = store_close);
TestSuite(contract_dir, .init = store_open_dir, .fini = store_close);
TestSuite(contract_s3, .init = store_open_s3, .fini = store_close);

#define CONTRACT(name)                                                                             \
    static void name(void);                                                                        \
    Test(contract_nvme, name)                                                                      \
    {                                                                                              \
        name();                                                                                    \
    }                                                                                              \
    Test(contract_dir, name)                                                                       \
    {                                                                                              \
        name();                                                                                    \
    }                                                                                              \
    Test(contract_s3, name)                                                                        \
    {                                                                                              \
        if (!tier)                                                                                 \
            cr_skip_test("CAIRN_TEST_S3_ENDPOINT is not set: tests/rgw makes an endpoint");        \
        name();                                                                                    \
    }                                                                                              \
    static void name(void)

#define THREADS 16

CONTRACT(objects_of_many_lengths)
{
    static const size_t lens[] = {0, 1, 4095, 4096, 4097, 100000, 4 * MIB, 5 * MIB + 3};
    for (size_t i = 0; i < ARRAY_LEN(lens); i++) {
        _cleanup_free_ char *object = xasprintf("packs/%016zx", i);
        put_ok(object, lens[i], i);
    }
    assert_i64(tier->ops->sync(tier), 0);
    for (size_t i = 0; i < ARRAY_LEN(lens); i++) {
        _cleanup_free_ char *object = xasprintf("packs/%016zx", i);
        expect_content(object, lens[i], i);
    }
}

struct elsewhere {
    const char *bytes;
    uint64_t bad_at; /* what lies behind cannot be read */
    unsigned errors;
};

static int read_elsewhere(uint64_t offset, void *buf, size_t len, void *arg)
{
    struct elsewhere *from = arg;
    if (offset + len > from->bad_at) {
        from->errors++;
        return -EIO;
    }
    memcpy(buf, from->bytes + offset, len);
    return 0;
}

CONTRACT(objects_from_elsewhere)
{
    static const size_t lens[] = {0, 1, TIER_SOURCE_STEP, TIER_SOURCE_STEP + 1, 5 * MIB + 3};
    for (size_t i = 0; i < ARRAY_LEN(lens) && tier->ops->put_from; i++) {
        _cleanup_free_ char *object = xasprintf("runs/%016zx", i);
        _cleanup_free_ void *bytes = content_new(lens[i], i);
        struct elsewhere from = {.bytes = bytes, .bad_at = UINT64_MAX};
        struct tier_source source = {.len = lens[i], .read = read_elsewhere, .arg = &from};
        assert_i64(tier_put_from(tier, object, &source), 0);
        expect_content(object, lens[i], i);
    }
}

CONTRACT(elsewhere_is_not_to_be_read)
{
    static const size_t lens[] = {1, TIER_SOURCE_STEP + 1, 5 * MIB + 3};
    for (size_t i = 0; i < ARRAY_LEN(lens) && tier->ops->put_from; i++) {
        _cleanup_free_ void *bytes = content_new(lens[i], i);
        struct elsewhere from = {.bytes = bytes, .bad_at = lens[i] - 1};
        struct tier_source source = {.len = lens[i], .read = read_elsewhere, .arg = &from};
        uint64_t len;
        assert_i64(tier_put_from(tier, "runs/1", &source), -EIO);
        assert_i64(source.error, -EIO);
        assert_u64(from.errors, 1, "what fails is not the tier: once is enough");
        assert_i64(tier->ops->stat(tier, "runs/1", &len), -ENOENT);
    }
}

CONTRACT(parents_are_made)
{
    put_ok("packs/00/11/abc", 5000, 1);
    put_ok("heads/1.json", 100, 2);
    put_ok("superblock", 4096, 3);
    assert_i64(tier->ops->sync(tier), 0);
    expect_content("packs/00/11/abc", 5000, 1);
    expect_content("heads/1.json", 100, 2);
    expect_content("superblock", 4096, 3);
}

CONTRACT(put_new_replaces_nothing)
{
    put_ok("packs/1", 5000, 1);
    _cleanup_free_ void *other = content_new(6000, 2);
    assert_i64(tier->ops->put_new(tier, "packs/1", other, 6000), -EEXIST);
    assert_i64(tier->ops->put_new(tier, "packs/2", other, 6000), 0);
    assert_i64(tier->ops->put_new(tier, "packs/2", other, 6000), -EEXIST);
    expect_content("packs/1", 5000, 1);
    expect_content("packs/2", 6000, 2);
}

/* The local tier refuses, remotes put the new one in its place: it is whole in any case. */
CONTRACT(put_over_another)
{
    put_ok("packs/1", 5000, 1);
    _cleanup_free_ void *other = content_new(6000, 2);
    int r = tier->ops->put(tier, "packs/1", other, 6000);
    cr_assert(r == 0 || r == -EEXIST);
    expect_content("packs/1", r ? 5000 : 6000, r ? 1 : 2);
}

CONTRACT(missing_objects)
{
    uint64_t len;
    char buf[4];
    assert_i64(tier->ops->stat(tier, "packs/none", &len), -ENOENT);
    assert_i64(tier->ops->stat(tier, "packs", &len), -ENOENT, "directories are no objects");
    assert_i64(tier->ops->get_range(tier, "packs/none", 0, buf, 4), -ENOENT);
    assert_i64(tier->ops->get_range(tier, "packs/none", 0, buf, 0), -ENOENT);
    assert_i64(tier->ops->remove(tier, "packs/none"), 0, "gone already is no error");
}

CONTRACT(removed_objects_are_gone_and_may_come_back)
{
    put_ok("packs/1", 5000, 1);
    expect_content("packs/1", 5000, 1);
    assert_i64(tier->ops->remove(tier, "packs/1"), 0);
    char buf[4];
    assert_i64(tier->ops->get_range(tier, "packs/1", 0, buf, 4), -ENOENT);
    put_ok("packs/1", 6000, 2);
    expect_content("packs/1", 6000, 2);
    assert_i64(tier->ops->sync(tier), 0);
}

CONTRACT(ranges)
{
    _cleanup_free_ uint8_t *all = content_new(100000, 7);
    uint8_t got[1000];
    assert_i64(tier->ops->put(tier, "packs/1", all, 100000), 0);
    for (size_t offset = 0; offset < 99000; offset += 9001) {
        assert_i64(tier->ops->get_range(tier, "packs/1", offset, got, sizeof got), 0);
        cr_assert_arr_eq(got, all + offset, sizeof got);
    }
    assert_i64(tier->ops->get_range(tier, "packs/1", 99000, got, 1000), 0);
    assert_i64(tier->ops->get_range(tier, "packs/1", 99001, got, 1000), -EUCLEAN);
    assert_i64(tier->ops->get_range(tier, "packs/1", 100000, got, 1), -EUCLEAN);
    assert_i64(tier->ops->get_range(tier, "packs/1", 1ull << 40, got, 1), -EUCLEAN);
    assert_i64(tier->ops->get_range(tier, "packs/1", UINT64_MAX, got, 2), -EUCLEAN);
}

struct listing {
    unsigned count;
    uint64_t bytes;
    bool found, unsorted;
    int result;
    char last[64];
};

static int list_one(const struct tier_object *object, void *arg)
{
    struct listing *l = arg;
    l->count++;
    l->bytes += object->len;
    l->found |= strcmp(object->name, "packs/00/b") == 0 && object->len == 20;
    l->unsorted |= strcmp(object->name, l->last) <= 0;
    strcpy(l->last, object->name);
    int64_t age = clock_realtime_ns() - object->modified_ns;
    cr_assert(age > -5000000000 && age < 600000000000,
              "by the clock of a medium that is this machine");
    return l->result;
}

CONTRACT(list)
{
    put_ok("packs/a", 10, 1);
    put_ok("packs/00/b", 20, 1);
    put_ok("journal/c", 40, 1);
    put_ok("packsx", 80, 1);
    struct listing l = {0};
    assert_i64(tier->ops->list(tier, "packs", NULL, list_one, &l), 0);
    assert_u64(l.count, 2);
    assert_u64(l.bytes, 30);
    cr_assert(l.found);
    l = (struct listing){0};
    assert_i64(tier->ops->list(tier, "nowhere", NULL, list_one, &l), 0);
    assert_u64(l.count, 0);
    l = (struct listing){.result = -ECANCELED};
    assert_i64(tier->ops->list(tier, "packs", NULL, list_one, &l), -ECANCELED);
    assert_u64(l.count, 1);
    l = (struct listing){.result = 1};
    assert_i64(tier->ops->list(tier, "packs", NULL, list_one, &l), 0, "the caller has seen enough");
    assert_u64(l.count, 1);
    assert_i64(tier->ops->remove(tier, "packsx"), 0);
}

CONTRACT(list_goes_on_behind_a_name)
{
    static const char *const names[] = {"packs/0",    "packs/00-x", "packs/00.x", "packs/00/a",
                                        "packs/00/b", "packs/000",  "packs/01/a", "packs/a"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        put_ok(names[i], 1, i);
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        struct listing l = {0};
        assert_i64(tier->ops->list(tier, "packs", names[i], list_one, &l), 0);
        assert_u64(l.count, ARRAY_LEN(names) - 1 - i, "%u behind %s", l.count, names[i]);
        cr_assert(!(tier->ops->is_sorted && l.unsorted));
    }
    struct listing l = {0};
    assert_i64(tier->ops->list(tier, "packs", "packs/00/", list_one, &l), 0);
    assert_u64(l.count, 5);
    l = (struct listing){0};
    assert_i64(tier->ops->list(tier, "packs", "a", list_one, &l), 0);
    assert_u64(l.count, 8);
    l = (struct listing){0};
    assert_i64(tier->ops->list(tier, "packs", "zzz", list_one, &l), 0);
    assert_u64(l.count, 0);
}

static void remove_all_of(const char *const *names, size_t count)
{
    if (tier->ops->remove_many) {
        assert_i64(tier->ops->remove_many(tier, names, count), 0);
        return;
    }
    for (size_t i = 0; i < count; i++)
        assert_i64(tier->ops->remove(tier, names[i]), 0);
}

static void put_small(void *arg)
{
    put_ok(arg, 3, 1);
}

/* More than one page of a list, and more than one request's worth of names to remove. */
CONTRACT(many_objects)
{
    enum { COUNT = 2100 };
    static char *names[COUNT + 1];
    struct pool *pool;
    assert_i64(pool_new("test", THREADS, 64, NULL, NULL, &pool), 0);
    for (size_t i = 0; i < COUNT; i++) {
        names[i] = xasprintf("packs/%02zx/%zu", i % 7, i);
        pool_submit(pool, put_small, names[i]);
    }
    pool_free(pool);
    struct listing l = {0};
    assert_i64(tier->ops->list(tier, "packs", NULL, list_one, &l), 0);
    assert_u64(l.count, COUNT);
    assert_u64(l.bytes, 3 * COUNT);
    cr_assert(!(tier->ops->is_sorted && l.unsorted));
    names[COUNT] = xstrdup("packs/never-was");
    remove_all_of((const char *const *)names, COUNT + 1);
    assert_i64(tier->ops->sync(tier), 0);
    l = (struct listing){0};
    assert_i64(tier->ops->list(tier, "packs", NULL, list_one, &l), 0);
    assert_u64(l.count, 0);
    for (size_t i = 0; i <= COUNT; i++)
        free(names[i]);
}

CONTRACT(logs)
{
    if (!tier->ops->log_create)
        return;
    assert_i64(tier->ops->log_create(tier, "journal/1", 100000), 0);
    assert_i64(tier->ops->log_create(tier, "journal/1", 100000), -EEXIST);
    assert_i64(tier->ops->log_append(tier, "journal/1", 0, "first", 5), 0);
    assert_i64(tier->ops->log_append(tier, "journal/1", 5, "second", 6), 0);
    char buf[100000];
    assert_i64(tier->ops->get_range(tier, "journal/1", 0, buf, sizeof buf), 0);
    cr_assert_arr_eq(buf, "firstsecond", 11);
    for (size_t i = 11; i < sizeof buf; i++)
        assert_i64(buf[i], 0);
    assert_i64(tier->ops->log_append(tier, "journal/1", 11, "third", 5), 0);
    assert_i64(tier->ops->get_range(tier, "journal/1", 11, buf, 5), 0);
    cr_assert_arr_eq(buf, "third", 5);
    assert_i64(tier->ops->remove(tier, "journal/1"), 0);
    assert_i64(tier->ops->log_append(tier, "journal/1", 0, "x", 1), -ENOENT);
    assert_i64(tier->ops->log_append(tier, "journal/none", 0, "x", 1), -ENOENT);
}

CONTRACT(many_logs_and_objects_in_turn)
{
    if (!tier->ops->log_create)
        return;
    for (int i = 0; i < 100; i++) {
        _cleanup_free_ char *log = xasprintf("journal/%d", i);
        assert_i64(tier->ops->log_create(tier, log, 8192), 0);
    }
    for (int round = 0; round < 3; round++)
        for (int i = 0; i < 100; i++) {
            _cleanup_free_ char *log = xasprintf("journal/%d", i);
            char byte = (char)('a' + round), got;
            assert_i64(tier->ops->log_append(tier, log, 0, &byte, 1), 0);
            assert_i64(tier->ops->get_range(tier, log, 0, &got, 1), 0);
            assert_i64(got, byte);
        }
}

CONTRACT(space)
{
    struct tier_space space;
    if (!tier->ops->space)
        return;
    assert_i64(tier->ops->space(tier, &space), 0);
    cr_assert_gt(space.total_bytes, 0);
    cr_assert_leq(space.free_bytes, space.total_bytes);
}

CONTRACT(clock_of_the_medium)
{
    int64_t first, second;
    if (!tier->ops->now)
        return;
    assert_i64(tier->ops->now(tier, &first), 0);
    cr_assert_lt(llabs(first - clock_realtime_ns()), 60000000000, "the medium is this machine");
    put_ok("packs/1", 1, 1);
    assert_i64(tier->ops->now(tier, &second), 0);
    cr_assert_geq(second, first);
}

CONTRACT(traffic_is_counted)
{
    struct tier_traffic t;
    if (!tier->ops->traffic)
        return;
    put_ok("packs/1", 5000, 1);
    char buf[1000];
    assert_i64(tier->ops->get_range(tier, "packs/1", 0, buf, 1000), 0);
    assert_i64(tier->ops->get_range(tier, "packs/none", 0, buf, 1000), -ENOENT);
    tier->ops->traffic(tier, &t);
    assert_u64(t.sent_bytes, 5000);
    assert_u64(t.received_bytes, 1000);
    assert_u64(t.requests, 3);
    assert_u64(t.retries, 0);
    assert_u64(t.failures, 0, "what is not there is no failure");
    char error[100] = "x";
    tier->ops->last_error(tier, error, sizeof error);
    cr_assert_str_empty(error);
}

CONTRACT(interrupted_for_good)
{
    if (!tier->ops->interrupt)
        return;
    uint64_t len;
    int64_t now;
    _cleanup_free_ void *buf = content_new(10, 1);
    struct listing l = {0};
    tier->ops->interrupt(tier);
    assert_i64(tier->ops->put(tier, "packs/1", buf, 10), -ECANCELED);
    assert_i64(tier->ops->put_new(tier, "packs/1", buf, 10), -ECANCELED);
    assert_i64(tier->ops->stat(tier, "packs/1", &len), -ECANCELED);
    assert_i64(tier->ops->get_range(tier, "packs/1", 0, buf, 1), -ECANCELED);
    assert_i64(tier->ops->list(tier, "packs", NULL, list_one, &l), -ECANCELED);
    assert_i64(tier->ops->remove(tier, "packs/1"), -ECANCELED);
    assert_i64(tier->ops->sync(tier), -ECANCELED);
    assert_i64(tier->ops->now(tier, &now), -ECANCELED);
}

struct task {
    unsigned number;
    unsigned round;
};

static void work(void *arg)
{
    struct task *t = arg;
    _cleanup_free_ char *object = xasprintf("packs/%02u/%u-%u", t->number % 4, t->number, t->round);
    put_ok(object, 1000 + 997 * t->number, t->number);
    expect_content(object, 1000 + 997 * t->number, t->number);
    assert_i64(tier->ops->sync(tier), 0);
    uint64_t held;
    if (tier->ops->reserve)
        assert_i64(tier->ops->reserve(tier, t->number % 3 * MIB, t->number % 2, &held), 0);
    assert_i64(tier->ops->remove(tier, object), 0);
    char byte;
    assert_i64(tier->ops->get_range(tier, object, 0, &byte, 1), -ENOENT);
}

CONTRACT(many_threads)
{
    struct pool *pool;
    struct task tasks[64];
    assert_i64(pool_new("test", THREADS, 64, NULL, NULL, &pool), 0);
    for (unsigned round = 0; round < 4; round++) {
        for (unsigned i = 0; i < ARRAY_LEN(tasks); i++) {
            tasks[i] = (struct task){i, round};
            pool_submit(pool, work, &tasks[i]);
        }
        pool_drain(pool);
    }
    pool_free(pool);
    struct listing l = {0};
    assert_i64(tier->ops->list(tier, "packs", NULL, list_one, &l), 0);
    assert_u64(l.count, 0);
}

struct runner {
    unsigned number;
    const char *object;
    int result;
};

static void race(void *arg)
{
    struct runner *runner = arg;
    _cleanup_free_ void *buf = content_new(5000, runner->number);
    runner->result = tier->ops->put_new(tier, runner->object, buf, 5000);
}

/* Which writer becomes the owner of a name is decided once, however many come at the same time. */
CONTRACT(one_of_many_wins)
{
    struct pool *pool;
    assert_i64(pool_new("test", THREADS, 64, NULL, NULL, &pool), 0);
    for (unsigned round = 0; round < 10; round++) {
        struct runner runners[THREADS];
        _cleanup_free_ char *object = xasprintf("heads/%u", round);
        for (unsigned i = 0; i < THREADS; i++) {
            runners[i] = (struct runner){.number = i, .object = object};
            pool_submit(pool, race, &runners[i]);
        }
        pool_drain(pool);
        unsigned winners = 0, winner = 0;
        for (unsigned i = 0; i < THREADS; i++) {
            cr_assert(runners[i].result == 0 || runners[i].result == -EEXIST, "%d",
                      runners[i].result);
            winners += runners[i].result == 0;
            winner = runners[i].result == 0 ? i : winner;
        }
        assert_u64(winners, 1, "%u winners", winners);
        expect_content(object, 5000, winner);
    }
    pool_free(pool);
}
