// SPDX-License-Identifier: Apache-2.0
#include "tier/tier.h"

struct fault {
    struct tier tier;
    struct tier_ops ops; /* those of the tier below, NULL for the same operations */
    struct tier *below;
    int (*fn)(const char *op, const char *object, void *arg);
    void *arg;
};

static struct fault *fault_of(struct tier *tier)
{
    return container_of(tier, struct fault, tier);
}

static int ask_fault(struct tier *tier, const char *op, const char *object)
{
    struct fault *f = fault_of(tier);
    f->below->patience_ns = tier->patience_ns;
    return f->fn(op, object, f->arg);
}

static void fault_close(struct tier *tier)
{
    struct fault *f = fault_of(tier);
    f->below->ops->close(f->below);
    free(f);
}

static int fault_put(struct tier *tier, const char *object, const void *buf, size_t len)
{
    int r = ask_fault(tier, "put", object);
    struct tier *below = fault_of(tier)->below;
    return r < 0 ? r : below->ops->put(below, object, buf, len);
}

static int fault_put_from(struct tier *tier, const char *object, struct tier_source *source)
{
    int r = ask_fault(tier, "put", object);
    struct tier *below = fault_of(tier)->below;
    return r < 0 ? r : below->ops->put_from(below, object, source);
}

static int fault_put_new(struct tier *tier, const char *object, const void *buf, size_t len)
{
    int r = ask_fault(tier, "put_new", object);
    struct tier *below = fault_of(tier)->below;
    return r < 0 ? r : below->ops->put_new(below, object, buf, len);
}

static int fault_get_range(struct tier *tier, const char *object, uint64_t offset, void *buf,
                           size_t len)
{
    int r = ask_fault(tier, "get_range", object);
    struct tier *below = fault_of(tier)->below;
    return r < 0 ? r : below->ops->get_range(below, object, offset, buf, len);
}

static int fault_stat(struct tier *tier, const char *object, uint64_t *ret_len)
{
    int r = ask_fault(tier, "stat", object);
    struct tier *below = fault_of(tier)->below;
    return r < 0 ? r : below->ops->stat(below, object, ret_len);
}

static int fault_list(struct tier *tier, const char *directory, const char *after,
                      int (*fn)(const struct tier_object *object, void *arg), void *arg)
{
    int r = ask_fault(tier, "list", directory);
    struct tier *below = fault_of(tier)->below;
    return r < 0 ? r : below->ops->list(below, directory, after, fn, arg);
}

static int fault_remove(struct tier *tier, const char *object)
{
    int r = ask_fault(tier, "remove", object);
    struct tier *below = fault_of(tier)->below;
    return r < 0 ? r : below->ops->remove(below, object);
}

static int fault_sync(struct tier *tier)
{
    int r = ask_fault(tier, "sync", "");
    struct tier *below = fault_of(tier)->below;
    return r < 0 ? r : below->ops->sync(below);
}

static int fault_remove_many(struct tier *tier, const char *const *objects, size_t count)
{
    int r = ask_fault(tier, "remove_many", count ? objects[0] : "");
    struct tier *below = fault_of(tier)->below;
    return r < 0 ? r : below->ops->remove_many(below, objects, count);
}

static int fault_read_clock(struct tier *tier, struct tier_reading *ret)
{
    int r = ask_fault(tier, "read_clock", "");
    struct tier *below = fault_of(tier)->below;
    return r < 0 ? r : below->ops->read_clock(below, ret);
}

static int fault_now(struct tier *tier, int64_t *ret_ns)
{
    int r = ask_fault(tier, "now", "");
    struct tier *below = fault_of(tier)->below;
    return r < 0 ? r : below->ops->now(below, ret_ns);
}

static void fault_interrupt(struct tier *tier)
{
    struct tier *below = fault_of(tier)->below;
    below->ops->interrupt(below);
}

static void fault_last_error(struct tier *tier, char *buf, size_t size)
{
    struct tier *below = fault_of(tier)->below;
    below->ops->last_error(below, buf, size);
}

static void fault_traffic(struct tier *tier, struct tier_traffic *ret_traffic)
{
    struct tier *below = fault_of(tier)->below;
    below->ops->traffic(below, ret_traffic);
}

static int fault_log_create(struct tier *tier, const char *object, uint64_t len)
{
    int r = ask_fault(tier, "log_create", object);
    struct tier *below = fault_of(tier)->below;
    return r < 0 ? r : below->ops->log_create(below, object, len);
}

static int fault_log_append(struct tier *tier, const char *object, uint64_t offset, const void *buf,
                            size_t len)
{
    int r = ask_fault(tier, "log_append", object);
    struct tier *below = fault_of(tier)->below;
    return r < 0 ? r : below->ops->log_append(below, object, offset, buf, len);
}

static int fault_reserve(struct tier *tier, uint64_t bytes, unsigned files, uint64_t *ret_held)
{
    int r = ask_fault(tier, "reserve", "");
    struct tier *below = fault_of(tier)->below;
    *ret_held = 0;
    return r < 0 ? r : below->ops->reserve(below, bytes, files, ret_held);
}

static int fault_space(struct tier *tier, struct tier_space *ret_space)
{
    int r = ask_fault(tier, "space", "");
    struct tier *below = fault_of(tier)->below;
    return r < 0 ? r : below->ops->space(below, ret_space);
}

struct tier *fault_tier_new(struct tier *below,
                            int (*fn)(const char *op, const char *object, void *arg), void *arg)
{
    struct fault *f = xcalloc(1, sizeof *f);
    const struct tier_ops *has = below->ops;
    f->ops = (struct tier_ops){
        .name = has->name,
        .is_sorted = has->is_sorted,
        .close = fault_close,
        .put = fault_put,
        .put_new = fault_put_new,
        .get_range = fault_get_range,
        .stat = fault_stat,
        .list = fault_list,
        .remove = fault_remove,
        .sync = fault_sync,
        .remove_many = has->remove_many ? fault_remove_many : NULL,
        .put_from = has->put_from ? fault_put_from : NULL,
        .now = has->now ? fault_now : NULL,
        .read_clock = has->read_clock ? fault_read_clock : NULL,
        .interrupt = has->interrupt ? fault_interrupt : NULL,
        .last_error = has->last_error ? fault_last_error : NULL,
        .traffic = has->traffic ? fault_traffic : NULL,
        .log_create = has->log_create ? fault_log_create : NULL,
        .log_append = has->log_append ? fault_log_append : NULL,
        .reserve = has->reserve ? fault_reserve : NULL,
        .space = has->space ? fault_space : NULL,
    };
    f->tier.ops = &f->ops;
    f->tier.patience_ns = below->patience_ns;
    f->below = below;
    f->fn = fn;
    f->arg = arg;
    return &f->tier;
}
