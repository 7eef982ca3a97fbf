// SPDX-License-Identifier: Apache-2.0
/* Packs that a reader without a mount did not find.
 *
 * A mount goes on asking for such a pack (suspects.c). `cairn cp` and `cairn fsck` of a remote end,
 * and say for good what is missing. A server may have lost sight of the object for a moment: so it
 * is asked once more, AGAIN_MS later, by each call that does not find it. Of a pack that is missing
 * then, too, no call waits any more; nor of any where MISSING_MAX are: that is no lapse. */
#include <uthash.h>

#include "remote/internal.h"

#define AGAIN_MS 2000
#define MISSING_MAX 1024u

struct missing_pack {
    UT_hash_handle hh;
    uint64_t pack;
};

struct missing {
    struct cairn_mutex lock;    /* LOCK_LEAF */
    struct missing_pack *packs; /* were asked for twice */
};

struct missing *missing_new(void)
{
    struct missing *missing = xcalloc(1, sizeof *missing);
    mutex_init(&missing->lock, LOCK_LEAF);
    return missing;
}

void missing_free(struct missing *missing)
{
    struct missing_pack *pack, *next;
    if (!missing)
        return;
    HASH_ITER(hh, missing->packs, pack, next)
    {
        HASH_DEL(missing->packs, pack);
        free(pack);
    }
    mutex_done(&missing->lock);
    free(missing);
}

static struct missing_pack *find_missing_locked(struct missing *missing, uint64_t id)
{
    check_held(&missing->lock);
    struct missing_pack *pack = NULL;
    HASH_FIND(hh, missing->packs, &id, sizeof id, pack);
    return pack;
}

static bool is_surely_missing(struct missing *missing, uint64_t id)
{
    LOCK_SCOPE(&missing->lock);
    return HASH_COUNT(missing->packs) == MISSING_MAX || find_missing_locked(missing, id);
}

static void note_missing(struct missing *missing, uint64_t id)
{
    LOCK_SCOPE(&missing->lock);
    if (HASH_COUNT(missing->packs) == MISSING_MAX || find_missing_locked(missing, id))
        return;
    struct missing_pack *pack = xcalloc(1, sizeof *pack);
    pack->pack = id;
    HASH_ADD(hh, missing->packs, pack, sizeof pack->pack, pack);
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
    char object[32];
    pack_object_name(part->pack, object);
    return part->tier->ops->get_range(part->tier, object, part->offset, part->buf, part->length);
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
