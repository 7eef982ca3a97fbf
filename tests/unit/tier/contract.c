/* What tier.h promises of every tier, on the local one. */
#include <criterion/criterion.h>

#include "base/pool.h"
#include "store.h"

TestSuite(contract, .init = store_open, .fini = store_close);

Test(contract, objects_of_many_lengths)
{
    static const size_t lens[] = {0, 1, 4095, 4096, 4097, 100000, 4 * MIB, 5 * MIB + 3};
    for (size_t i = 0; i < ARRAY_LEN(lens); i++) {
        _cleanup_free_ char *object = xasprintf("packs/%016zx", i);
        put_ok(object, lens[i], i);
    }
    cr_assert_eq(tier->ops->sync(tier), 0);
    for (size_t i = 0; i < ARRAY_LEN(lens); i++) {
        _cleanup_free_ char *object = xasprintf("packs/%016zx", i);
        expect_content(object, lens[i], i);
    }
}

Test(contract, parents_are_made)
{
    put_ok("packs/00/11/abc", 5000, 1);
    put_ok("heads/1.json", 100, 2);
    put_ok("superblock", 4096, 3);
    cr_assert_eq(tier->ops->sync(tier), 0);
    expect_content("packs/00/11/abc", 5000, 1);
    expect_content("heads/1.json", 100, 2);
    expect_content("superblock", 4096, 3);
}

Test(contract, nothing_is_overwritten)
{
    put_ok("packs/1", 5000, 1);
    _cleanup_free_ void *other = content_new(6000, 2);
    cr_assert_eq(tier->ops->put(tier, "packs/1", other, 6000), -EEXIST);
    cr_assert_eq(tier->ops->put_new(tier, "packs/1", other, 6000), -EEXIST);
    cr_assert_eq(tier->ops->put_new(tier, "packs/2", other, 6000), 0);
    cr_assert_eq(tier->ops->log_create(tier, "packs/1", 4096), -EEXIST);
    expect_content("packs/1", 5000, 1);
    expect_content("packs/2", 6000, 2);
}

Test(contract, missing_objects)
{
    uint64_t len;
    char buf[4];
    cr_assert_eq(tier->ops->stat(tier, "packs/none", &len), -ENOENT);
    cr_assert_eq(tier->ops->stat(tier, "packs", &len), -ENOENT, "folders are no objects");
    cr_assert_eq(tier->ops->get_range(tier, "packs/none", 0, buf, 4), -ENOENT);
    cr_assert_eq(tier->ops->log_append(tier, "journal/none", 0, "x", 1), -ENOENT);
    cr_assert_eq(tier->ops->remove(tier, "packs/none"), 0, "gone already is no error");
}

Test(contract, removed_objects_are_gone_and_may_come_back)
{
    put_ok("packs/1", 5000, 1);
    expect_content("packs/1", 5000, 1);
    cr_assert_eq(tier->ops->remove(tier, "packs/1"), 0);
    char buf[4];
    cr_assert_eq(tier->ops->get_range(tier, "packs/1", 0, buf, 4), -ENOENT);
    put_ok("packs/1", 6000, 2);
    expect_content("packs/1", 6000, 2);
    cr_assert_eq(tier->ops->sync(tier), 0);
}

struct listing {
    unsigned count;
    uint64_t bytes;
    bool found;
    int result;
};

static int list_one(const char *object, uint64_t len, void *arg)
{
    struct listing *l = arg;
    l->count++;
    l->bytes += len;
    l->found |= strcmp(object, "packs/00/b") == 0 && len == 20;
    return l->result;
}

Test(contract, list)
{
    put_ok("packs/a", 10, 1);
    put_ok("packs/00/b", 20, 1);
    put_ok("journal/c", 40, 1);
    struct listing l = {0};
    cr_assert_eq(tier->ops->list(tier, "packs", list_one, &l), 0);
    cr_assert_eq(l.count, 2);
    cr_assert_eq(l.bytes, 30);
    cr_assert(l.found);
    l = (struct listing){0};
    cr_assert_eq(tier->ops->list(tier, "nowhere", list_one, &l), 0);
    cr_assert_eq(l.count, 0);
    l = (struct listing){.result = -ECANCELED};
    cr_assert_eq(tier->ops->list(tier, "packs", list_one, &l), -ECANCELED);
    cr_assert_eq(l.count, 1);
}

Test(contract, logs)
{
    cr_assert_eq(tier->ops->log_create(tier, "journal/1", 100000), 0);
    cr_assert_eq(tier->ops->log_create(tier, "journal/1", 100000), -EEXIST);
    cr_assert_eq(tier->ops->log_append(tier, "journal/1", 0, "first", 5), 0);
    cr_assert_eq(tier->ops->log_append(tier, "journal/1", 5, "second", 6), 0);
    char buf[100000];
    cr_assert_eq(tier->ops->get_range(tier, "journal/1", 0, buf, sizeof buf), 0);
    cr_assert_arr_eq(buf, "firstsecond", 11);
    for (size_t i = 11; i < sizeof buf; i++)
        cr_assert_eq(buf[i], 0);
    cr_assert_eq(tier->ops->log_append(tier, "journal/1", 11, "third", 5), 0);
    cr_assert_eq(tier->ops->get_range(tier, "journal/1", 11, buf, 5), 0);
    cr_assert_arr_eq(buf, "third", 5);
    cr_assert_eq(tier->ops->remove(tier, "journal/1"), 0);
    cr_assert_eq(tier->ops->log_append(tier, "journal/1", 0, "x", 1), -ENOENT);
}

Test(contract, many_logs_and_objects_in_turn)
{
    for (int i = 0; i < 100; i++) {
        _cleanup_free_ char *log = xasprintf("journal/%d", i);
        cr_assert_eq(tier->ops->log_create(tier, log, 8192), 0);
    }
    for (int round = 0; round < 3; round++)
        for (int i = 0; i < 100; i++) {
            _cleanup_free_ char *log = xasprintf("journal/%d", i);
            char byte = (char)('a' + round), got;
            cr_assert_eq(tier->ops->log_append(tier, log, 0, &byte, 1), 0);
            cr_assert_eq(tier->ops->get_range(tier, log, 0, &got, 1), 0);
            cr_assert_eq(got, byte);
        }
}

Test(contract, space)
{
    struct tier_space space;
    cr_assert_eq(tier->ops->space(tier, &space), 0);
    cr_assert_gt(space.total_bytes, 0);
    cr_assert_leq(space.free_bytes, space.total_bytes);
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
    cr_assert_eq(tier->ops->sync(tier), 0);
    uint64_t held;
    cr_assert_eq(tier->ops->reserve(tier, t->number % 3 * MIB, &held), 0);
    cr_assert_eq(tier->ops->remove(tier, object), 0);
    char byte;
    cr_assert_eq(tier->ops->get_range(tier, object, 0, &byte, 1), -ENOENT);
}

Test(contract, many_threads)
{
    struct pool *pool;
    struct task tasks[64];
    cr_assert_eq(pool_new("test", 8, 64, NULL, NULL, &pool), 0);
    for (unsigned round = 0; round < 4; round++) {
        for (unsigned i = 0; i < ARRAY_LEN(tasks); i++) {
            tasks[i] = (struct task){i, round};
            pool_submit(pool, work, &tasks[i]);
        }
        pool_drain(pool);
    }
    pool_free(pool);
    struct listing l = {0};
    cr_assert_eq(tier->ops->list(tier, "packs", list_one, &l), 0);
    cr_assert_eq(l.count, 0);
}
