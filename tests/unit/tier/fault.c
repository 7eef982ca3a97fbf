// SPDX-License-Identifier: Apache-2.0

#include "../expect.h"
#include "store.h"

struct plan {
    const char *op; /* the next call of this one fails */
    int error;
    unsigned calls;
    const char *object;
};

static int decide(const char *op, const char *object, void *arg)
{
    struct plan *plan = arg;
    plan->calls++;
    plan->object = object;
    if (!plan->op || strcmp(op, plan->op) != 0)
        return 0;
    plan->op = NULL;
    return plan->error;
}

static struct plan plan;

static void open_with_faults(void)
{
    store_open();
    tier = fault_tier_new(tier, decide, &plan);
}

TestSuite(fault, .init = open_with_faults, .fini = store_close);

static int list_none(const struct tier_object *object, void *arg)
{
    (void)object, (void)arg;
    return 0;
}

/* The first time each call fails without effect, the second time it goes on. */
Test(fault, every_call_fails_once)
{
    _cleanup_free_ void *buf = content_new(5000, 1);
    uint64_t n;
    char byte;
    struct tier_space space;
#define FAILS_ONCE(name, call)                                                                     \
    do {                                                                                           \
        plan.op = name;                                                                            \
        plan.error = -EIO;                                                                         \
        assert_i64(call, -EIO);                                                                    \
        assert_i64(call, 0);                                                                       \
    } while (0)
    FAILS_ONCE("put", tier->ops->put(tier, "packs/1", buf, 5000));
    FAILS_ONCE("put_new", tier->ops->put_new(tier, "packs/2", buf, 5000));
    assert_str(plan.object, "packs/2");
    FAILS_ONCE("stat", tier->ops->stat(tier, "packs/1", &n));
    assert_u64(n, 5000);
    FAILS_ONCE("get_range", tier->ops->get_range(tier, "packs/1", 0, &byte, 1));
    FAILS_ONCE("list", tier->ops->list(tier, "packs", NULL, list_none, NULL));
    FAILS_ONCE("sync", tier->ops->sync(tier));
    FAILS_ONCE("log_create", tier->ops->log_create(tier, "journal/1", 4096));
    FAILS_ONCE("log_append", tier->ops->log_append(tier, "journal/1", 0, "x", 1));
    FAILS_ONCE("reserve", tier->ops->reserve(tier, 0, 0, &n));
    FAILS_ONCE("space", tier->ops->space(tier, &space));
    FAILS_ONCE("remove", tier->ops->remove(tier, "packs/1"));
    assert_u64(plan.calls, 22);
}

Test(fault, a_tier_without_logs_stays_one)
{
    struct tier_ops ops = *tier->ops;
    ops.log_create = NULL;
    ops.log_append = NULL;
    struct tier bare = {.ops = &ops};
    _cleanup_free_ struct tier *over = fault_tier_new(&bare, decide, &plan);
    cr_assert_null(over->ops->log_create);
    cr_assert_null(over->ops->log_append);
}

/* What the tier below has and lacks shows through. */
Test(fault, over_a_remote)
{
    char *error;
    int64_t now;
    struct tier_traffic traffic;
    _cleanup_free_ char *path = xasprintf("%s/remote", store);
    struct tier *remote;
    assert_i64(dir_tier_open(&(struct dir_options){.path = path}, &remote, &error), 0);
    struct tier *over = fault_tier_new(remote, decide, &plan);
    cr_assert(over->ops->is_sorted);
    cr_assert_null(over->ops->reserve);
    cr_assert_null(over->ops->remove_many);
    plan.op = "now";
    plan.error = -ETIMEDOUT;
    assert_i64(over->ops->now(over, &now), -ETIMEDOUT);
    assert_i64(over->ops->now(over, &now), 0);
    assert_i64(over->ops->put(over, "packs/1", "x", 1), 0);
    over->ops->traffic(over, &traffic);
    assert_u64(traffic.sent_bytes, 1);
    over->ops->interrupt(over);
    assert_i64(over->ops->now(over, &now), -ECANCELED);
    over->ops->close(over);
}
