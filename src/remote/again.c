// SPDX-License-Identifier: Apache-2.0
/* Packs that a reader without a mount did not find.
 *
 * A mount keeps checking for such a pack (suspects.c). `cairn cp` and `cairn fsck` of a remote end,
 * and report missing packs finally. A server may have lost the object only for a moment: so each
 * call that does not find it tries once more, AGAIN_MS later. For a pack that is missing then, too,
 * later calls do not wait; nor for any pack once MISSING_MAX are missing, which is no momentary
 * fault. */
#include "base/vector.h"
#include "remote/internal.h"

#define AGAIN_MS 2000
#define MISSING_MAX 1024u

struct missing {
    struct cairn_mutex lock; /* LOCK_LEAF */
    VECTOR(uint64_t) packs;  /* missing at the second attempt, too; ascending */
};

struct missing *missing_new(void)
{
    struct missing *missing = xcalloc(1, sizeof *missing);
    mutex_init(&missing->lock, LOCK_LEAF);
    return missing;
}

void missing_free(struct missing *missing)
{
    if (!missing)
        return;
    vector_free(&missing->packs);
    mutex_done(&missing->lock);
    free(missing);
}

static bool is_surely_missing(struct missing *missing, uint64_t id)
{
    LOCK_SCOPE(&missing->lock);
    return missing->packs.count == MISSING_MAX || vector_search(&missing->packs, &id, compare_u64);
}

static void note_missing(struct missing *missing, uint64_t id)
{
    LOCK_SCOPE(&missing->lock);
    if (missing->packs.count == MISSING_MAX)
        return;
    vector_add(&missing->packs, id);
    vector_sort_unique(&missing->packs);
}

int remote_look_twice(struct remote *remote, uint64_t pack, int (*look)(void *arg), void *arg)
{
    struct missing *missing = remote->missing;
    int r = look(arg);
    if (r != -ENOENT || !missing || is_surely_missing(missing, pack) ||
        !remote_pause(remote, AGAIN_MS))
        return r;
    r = look(arg);
    if (r == -ENOENT)
        note_missing(missing, pack);
    return r;
}

struct part_to_read {
    struct tier *tier;
    uint64_t pack, offset;
    void *buf;
    size_t length;
};

static int read_pack_part(void *arg)
{
    const struct part_to_read *part = arg;
    return pack_read_part(part->tier, part->pack, part->offset, part->buf, part->length);
}

int remote_read_twice(struct remote *remote, uint64_t pack, uint64_t offset, void *buf,
                      size_t length)
{
    struct part_to_read part = {remote->prefix.tier, pack, offset, buf, length};
    int r = remote_look_twice(remote, pack, read_pack_part, &part);
    if (r == 0)
        atomic_fetch_add(&remote->prefix.fetched_total, length);
    return r;
}
