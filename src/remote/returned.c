// SPDX-License-Identifier: Apache-2.0
/* Chunks that are in no tier, according to the view, and packs that may contain them all the same.
 * There are several causes: 0.2.0 gave up a pack that was missing once, and published its chunks
 * without a place; a copy on NVMe was damaged before it could be uploaded again; a file was made to
 * refer to an unreferenced pack (lookback_claim.c), and the view is older, or was rebuilt. So while
 * such chunks exist, the index of a pack is read before the pack is deleted. A pack that contains
 * any of them stays, and they get their places there again. */
#include "base/log.h"
#include "remote/maintenance_internal.h"

#define LOST_MAX 100000u /* names: with more, no pack is deleted */
#define LOOKS_MAX 1000u  /* indexes read per pass: other packs stay until the next */

static int compare_lost(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(struct chunk_name));
}

static int add_lost(const struct chunk_name *name, bool is_local, void *arg)
{
    struct returned *returned = arg;
    if (is_local && !damage_is_known(returned->remote->store->commit.damage, name))
        return 0;
    vector_add(&returned->lost, *name);
    return returned->lost.count == LOST_MAX;
}

int returned_begin(struct returned *ret, struct remote *remote, bool dry_run)
{
    *ret = (struct returned){.remote = remote, .dry_run = dry_run};
    return view_pending_chunks(remote->store->local.view, add_lost, ret); /* in order of name */
}

void returned_done(struct returned *returned)
{
    vector_free(&returned->lost);
}

struct look_inside {
    const struct returned *returned;
    VECTOR(struct chunk_entry) entries;
    uint32_t lost;
};

static int look_at_entry(const struct chunk_entry *entry, void *arg)
{
    struct look_inside *look = arg;
    vector_add(&look->entries, *entry);
    look->lost += vector_search(&look->returned->lost, &entry->name, compare_lost) != NULL;
    return 0;
}

static void take_back(struct returned *returned, uint64_t pack, uint64_t length,
                      const struct look_inside *look)
{
    struct remote *remote = returned->remote;
    uint32_t placed = 0;
    char object[32];
    check(look->lost > 0 && look->lost <= look->entries.count);
    pack_object_name(pack, object);
    int r = room_for_view(remote->store->commit.room);
    if (r == 0)
        r = view_remote_pack_returned(remote->store->local.view, pack, length, look->entries.at,
                                      (uint32_t)look->entries.count, &placed);
    if (r < 0)
        log_warn("remote: %s holds lost chunks, and cannot be noted: %s", object, strerror(-r));
    if (r < 0 || placed == 0)
        return;
    log_warn("remote: %s holds %u chunks that were taken for lost: they are back", object, placed);
    remote->maintenance->has_returned = true;
}

bool returned_keeps(struct returned *returned, uint64_t pack)
{
    struct remote *remote = returned->remote;
    struct look_inside look = {.returned = returned};
    uint64_t length = 0;
    check(returned->lost.count <= LOST_MAX);
    if (returned->lost.count == 0)
        return false;
    if (returned->lost.count == LOST_MAX || returned->looks++ >= LOOKS_MAX)
        return true;
    int r = pack_read_index(remote->prefix.tier, remote->store->local.sb.history, pack,
                            look_at_entry, &look, &length);
    if (r == 0 && look.lost > 0 && !returned->dry_run)
        take_back(returned, pack, length, &look);
    bool keeps = r == 0 ? look.lost > 0 : r != -ENOENT;
    vector_free(&look.entries);
    return keeps;
}
