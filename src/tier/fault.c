#include "tier/tier.h"

struct fault {
    struct tier tier;
    struct tier_ops ops; /* without what the tier below lacks */
    struct tier *below;
    int (*fn)(const char *op, const char *object, void *arg);
    void *arg;
};

static struct fault *fault_of(struct tier *tier)
{
    return container_of(tier, struct fault, tier);
}

static int ask(struct tier *tier, const char *op, const char *object)
{
    struct fault *f = fault_of(tier);
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
    int r = ask(tier, "put", object);
    struct tier *below = fault_of(tier)->below;
    return r < 0 ? r : below->ops->put(below, object, buf, len);
}

static int fault_put_new(struct tier *tier, const char *object, const void *buf, size_t len)
{
    int r = ask(tier, "put_new", object);
    struct tier *below = fault_of(tier)->below;
    return r < 0 ? r : below->ops->put_new(below, object, buf, len);
}

static int fault_get_range(struct tier *tier, const char *object, uint64_t offset, void *buf, size_t len)
{
    int r = ask(tier, "get_range", object);
    struct tier *below = fault_of(tier)->below;
    return r < 0 ? r : below->ops->get_range(below, object, offset, buf, len);
}

static int fault_stat(struct tier *tier, const char *object, uint64_t *ret_len)
{
    int r = ask(tier, "stat", object);
    struct tier *below = fault_of(tier)->below;
    return r < 0 ? r : below->ops->stat(below, object, ret_len);
}

static int fault_list(struct tier *tier, const char *folder,
                      int (*fn)(const char *object, uint64_t len, void *arg), void *arg)
{
    int r = ask(tier, "list", folder);
    struct tier *below = fault_of(tier)->below;
    return r < 0 ? r : below->ops->list(below, folder, fn, arg);
}

static int fault_remove(struct tier *tier, const char *object)
{
    int r = ask(tier, "remove", object);
    struct tier *below = fault_of(tier)->below;
    return r < 0 ? r : below->ops->remove(below, object);
}

static int fault_sync(struct tier *tier)
{
    int r = ask(tier, "sync", "");
    struct tier *below = fault_of(tier)->below;
    return r < 0 ? r : below->ops->sync(below);
}

static int fault_log_create(struct tier *tier, const char *object, uint64_t room)
{
    int r = ask(tier, "log_create", object);
    struct tier *below = fault_of(tier)->below;
    return r < 0 ? r : below->ops->log_create(below, object, room);
}

static int fault_log_append(struct tier *tier, const char *object, uint64_t offset, const void *buf,
                            size_t len)
{
    int r = ask(tier, "log_append", object);
    struct tier *below = fault_of(tier)->below;
    return r < 0 ? r : below->ops->log_append(below, object, offset, buf, len);
}

static int fault_reserve(struct tier *tier, uint64_t bytes, uint64_t *ret_held)
{
    int r = ask(tier, "reserve", "");
    struct tier *below = fault_of(tier)->below;
    *ret_held = 0;
    return r < 0 ? r : below->ops->reserve(below, bytes, ret_held);
}

static int fault_space(struct tier *tier, struct tier_space *ret_space)
{
    int r = ask(tier, "space", "");
    struct tier *below = fault_of(tier)->below;
    return r < 0 ? r : below->ops->space(below, ret_space);
}

struct tier *fault_tier_new(struct tier *below, int (*fn)(const char *op, const char *object, void *arg),
                            void *arg)
{
    struct fault *f = xcalloc(1, sizeof *f);
    f->ops = (struct tier_ops){
        .name = below->ops->name,
        .close = fault_close,
        .put = fault_put,
        .put_new = fault_put_new,
        .get_range = fault_get_range,
        .stat = fault_stat,
        .list = fault_list,
        .remove = fault_remove,
        .sync = fault_sync,
        .log_create = below->ops->log_create ? fault_log_create : NULL,
        .log_append = below->ops->log_append ? fault_log_append : NULL,
        .reserve = fault_reserve,
        .space = fault_space,
    };
    f->tier.ops = &f->ops;
    f->below = below;
    f->fn = fn;
    f->arg = arg;
    return &f->tier;
}
