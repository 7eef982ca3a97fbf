// SPDX-License-Identifier: Apache-2.0
#include "nodes/node_tier.h"

#include <stdio.h>

#include "commit/local.h"
#include "format/object.h"

#define PACKS "packs"
#define NAME_MAX_LEN 128u

struct node_tier {
    struct tier tier; /* the tier for callers */
    struct tier_ops ops;
    struct tier *common;
    bool (*is_own)(uint64_t epoch, void *arg);
    void *arg;
    char directory[24]; /* "nodes/NODE/" */
};

static struct node_tier *of(struct tier *tier)
{
    return (struct node_tier *)tier;
}

/* Returns the tier below, and passes on this tier's current patience. */
static struct tier *common_of(struct tier *tier)
{
    struct tier *common = of(tier)->common;
    common->patience_ns = tier->patience_ns;
    return common;
}

static bool is_pack(const char *object)
{
    return strncmp(object, PACKS "/", sizeof PACKS) == 0;
}

static const char *place(struct tier *tier, const char *object, char buf[NAME_MAX_LEN])
{
    const char *directory = of(tier)->directory;
    check(*directory && strlen(directory) + strlen(object) < NAME_MAX_LEN);
    *buf = '\0';
    if (!is_pack(object))
        (void)strcat(buf, directory);
    return strcat(buf, object);
}

static void node_tier_close(struct tier *tier)
{
    free(of(tier));
}

static int node_tier_put(struct tier *tier, const char *object, const void *buf, size_t len)
{
    char name[NAME_MAX_LEN];
    struct tier *common = common_of(tier);
    return common->ops->put(common, place(tier, object, name), buf, len);
}

static int node_tier_put_new(struct tier *tier, const char *object, const void *buf, size_t len)
{
    char name[NAME_MAX_LEN];
    struct tier *common = common_of(tier);
    return common->ops->put_new(common, place(tier, object, name), buf, len);
}

static int node_tier_put_from(struct tier *tier, const char *object, struct tier_source *source)
{
    char name[NAME_MAX_LEN];
    return tier_put_from(common_of(tier), place(tier, object, name), source);
}

static int node_tier_get_range(struct tier *tier, const char *object, uint64_t offset, void *buf,
                               size_t len)
{
    char name[NAME_MAX_LEN];
    struct tier *common = common_of(tier);
    return common->ops->get_range(common, place(tier, object, name), offset, buf, len);
}

static int node_tier_stat(struct tier *tier, const char *object, uint64_t *ret_len)
{
    char name[NAME_MAX_LEN];
    struct tier *common = common_of(tier);
    return common->ops->stat(common, place(tier, object, name), ret_len);
}

struct listing {
    struct node_tier *tier;
    size_t skip; /* bytes of a name hidden from the caller */
    int (*fn)(const struct tier_object *object, void *arg);
    void *arg;
};

static int give_listed(const struct tier_object *object, void *arg)
{
    const struct listing *listing = arg;
    struct tier_object shown = *object;
    uint64_t id;
    shown.name += listing->skip;
    bool is_foreign = object_number(shown.name, PACKS, &id) &&
                      !listing->tier->is_own(ID_EPOCH(id), listing->tier->arg);
    return is_foreign ? 0 : listing->fn(&shown, listing->arg);
}

static int node_tier_list(struct tier *tier, const char *directory, const char *after,
                          int (*fn)(const struct tier_object *object, void *arg), void *arg)
{
    char name[NAME_MAX_LEN], behind[NAME_MAX_LEN];
    struct tier *common = common_of(tier);
    bool is_shared = strcmp(directory, PACKS) == 0;
    struct listing listing = {of(tier), is_shared ? 0 : strlen(of(tier)->directory), fn, arg};
    return common->ops->list(common, is_shared ? directory : place(tier, directory, name),
                             after ? place(tier, after, behind) : NULL, give_listed, &listing);
}

static int node_tier_remove(struct tier *tier, const char *object)
{
    char name[NAME_MAX_LEN];
    struct tier *common = common_of(tier);
    return common->ops->remove(common, place(tier, object, name));
}

static int node_tier_remove_many(struct tier *tier, const char *const *objects, size_t count)
{
    struct tier *common = common_of(tier);
    _cleanup_free_ char(*names)[NAME_MAX_LEN] = xcalloc(count, sizeof *names);
    _cleanup_free_ const char **placed = xcalloc(count, sizeof *placed);
    for (size_t i = 0; i < count; i++)
        placed[i] = place(tier, objects[i], names[i]);
    return common->ops->remove_many(common, placed, count);
}

static int node_tier_sync(struct tier *tier)
{
    struct tier *common = common_of(tier);
    return common->ops->sync(common);
}

static int node_tier_now(struct tier *tier, int64_t *ret_ns)
{
    struct tier *common = common_of(tier);
    return common->ops->now(common, ret_ns);
}

static int node_tier_read_clock(struct tier *tier, struct tier_reading *ret)
{
    struct tier *common = common_of(tier);
    return common->ops->read_clock(common, ret);
}

static void node_tier_interrupt(struct tier *tier)
{
    of(tier)->common->ops->interrupt(of(tier)->common);
}

static void node_tier_last_error(struct tier *tier, char *buf, size_t size)
{
    of(tier)->common->ops->last_error(of(tier)->common, buf, size);
}

static int node_tier_place(struct tier *tier, struct tier_place *ret)
{
    struct tier *common = common_of(tier);
    return common->ops->place(common, ret);
}

static void node_tier_look_again(struct tier *tier)
{
    of(tier)->common->ops->look_again(of(tier)->common);
}

static void node_tier_traffic(struct tier *tier, struct tier_traffic *ret)
{
    of(tier)->common->ops->traffic(of(tier)->common, ret);
}

/* Operations that the common tier lacks are missing here, too. */
static void set_ops(struct tier_ops *ops, const struct tier_ops *common)
{
    *ops = (struct tier_ops){
        .name = common->name,
        .is_sorted = common->is_sorted,
        .close = node_tier_close,
        .put = node_tier_put,
        .put_new = node_tier_put_new,
        .get_range = node_tier_get_range,
        .stat = node_tier_stat,
        .list = node_tier_list,
        .remove = node_tier_remove,
        .sync = common->sync ? node_tier_sync : NULL,
        .remove_many = common->remove_many ? node_tier_remove_many : NULL,
        .put_from = common->put_from ? node_tier_put_from : NULL,
        .now = common->now ? node_tier_now : NULL,
        .read_clock = common->read_clock ? node_tier_read_clock : NULL,
        .interrupt = common->interrupt ? node_tier_interrupt : NULL,
        .last_error = common->last_error ? node_tier_last_error : NULL,
        .place = common->place ? node_tier_place : NULL,
        .look_again = common->look_again ? node_tier_look_again : NULL,
        .traffic = common->traffic ? node_tier_traffic : NULL,
    };
}

struct tier *node_tier_new(struct tier *common, bool (*is_own)(uint64_t epoch, void *arg),
                           void *arg)
{
    struct node_tier *tier = xcalloc(1, sizeof *tier);
    set_ops(&tier->ops, common->ops);
    tier->common = common;
    tier->is_own = is_own;
    tier->arg = arg;
    tier->tier.ops = &tier->ops;
    tier->tier.patience_ns = common->patience_ns;
    return &tier->tier;
}

void node_tier_set_node(struct tier *tier, uint64_t node)
{
    (void)snprintf(of(tier)->directory, sizeof of(tier)->directory, "nodes/%016llx/",
                   (unsigned long long)node);
}
