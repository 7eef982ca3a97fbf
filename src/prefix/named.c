// SPDX-License-Identifier: Apache-2.0
#include "prefix/named.h"

static int add_name(const struct tier_object *object, void *arg)
{
    struct named_list *list = arg;
    const char *name = object->name + sizeof SNAPSHOT_DIRECTORY;
    if (strncmp(object->name, SNAPSHOT_DIRECTORY "/", sizeof SNAPSHOT_DIRECTORY) != 0 ||
        !snapshot_name_is_sane(name))
        return 0;
    memcpy(vector_next(list)->name, name, strlen(name) + 1);
    return list->count == NAMED_MAX;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const struct named_item *)a)->name, ((const struct named_item *)b)->name);
}

int named_list(struct prefix *prefix, struct named_list *list)
{
    int r = prefix->tier->ops->list(prefix->tier, SNAPSHOT_DIRECTORY, NULL, add_name, list);
    vector_sort(list, compare_names);
    return r;
}

static int decode(const void *buf, size_t len, void *arg)
{
    return snapshot_decode(buf, len, arg);
}

int named_read(struct prefix *prefix, const char *name, struct named_snapshot *ret)
{
    char object[SNAPSHOT_OBJECT_LEN];
    snapshot_object_name(name, object);
    TRY(prefix_read_object(prefix, object, SNAPSHOT_LEN_MAX, decode, ret));
    bool is_it =
        strcmp(ret->name, name) == 0 &&
        memcmp(ret->head.history, prefix->local->sb.history, sizeof ret->head.history) == 0;
    return is_it ? 0 : -EUCLEAN;
}

/* If the answer to the first attempt was lost, the second one finds the object. */
static int settle(struct prefix *prefix, const struct named_snapshot *snapshot)
{
    _cleanup_free_ struct named_snapshot *there = xmalloc(sizeof *there);
    int r = named_read(prefix, snapshot->name, there);
    if (r < 0)
        return prefix_object_is_lost(r) ? -EEXIST : r;
    bool is_ours = there->created == snapshot->created &&
                   memcmp(there->head.nonce, snapshot->head.nonce, sizeof there->head.nonce) == 0;
    return is_ours ? 0 : -EEXIST;
}

int named_create(struct prefix *prefix, const struct named_snapshot *snapshot)
{
    char object[SNAPSHOT_OBJECT_LEN];
    _cleanup_free_ uint8_t *bytes = xcalloc(1, SNAPSHOT_LEN_MAX);
    snapshot_object_name(snapshot->name, object);
    int r = prefix_put_object(prefix, object, bytes, snapshot_encode(snapshot, bytes), true);
    if (r == -EEXIST)
        r = settle(prefix, snapshot);
    return r < 0 ? r : prefix->tier->ops->sync(prefix->tier);
}

int named_remove(struct prefix *prefix, const char *name)
{
    char object[SNAPSHOT_OBJECT_LEN];
    snapshot_object_name(name, object);
    TRY(prefix->tier->ops->remove(prefix->tier, object));
    return prefix->tier->ops->sync(prefix->tier);
}
