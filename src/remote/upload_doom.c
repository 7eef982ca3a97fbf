// SPDX-License-Identifier: Apache-2.0
/* Which packs the view may leave unreferenced with a head: not those to which staged content,
 * unknown to the view, has begun to refer since its cut. The order is as for dropping a pack on
 * NVMe: first the mark, then the check. A thread that refers to a chunk from now on sees the mark;
 * one that did before has its packs pinned (then there is no mark), or its reference is staged, or
 * applied. */
#include "remote/upload.h"

#include "commit/packs.h"
#include "stage/versions.h"

DEFINE_VECTOR(pack_ids, uint64_t);

struct holding {
    struct upload *up;
    struct pack_ids ids; /* packs that staged content needs, with the packs of their bases */
    unsigned levels;     /* of bases that are still followed */
};

static int hold_pack(struct holding *holding, uint64_t pack);

static int hold_bases(const struct chunk_entry *entry, bool is_needed, void *arg)
{
    struct holding *holding = arg;
    struct chunk_entry base;
    (void)is_needed;
    for (unsigned i = 0; i < entry->ref_count && holding->levels > 0; i++) {
        int r =
            view_remote_place(holding->up->remote->store->local.view, &entry->refs[i].name, &base);
        holding->levels--;
        if (r == 0)
            r = hold_pack(holding, base.pack);
        holding->levels++;
        if (r < 0 && r != -ENOENT)
            return r;
    }
    return 0;
}

/* Includes the bases of all chunks of a pack, not only of those referred to: this holds more packs
 * than necessary, for a while. */
static int hold_pack(struct holding *holding, uint64_t pack)
{
    if (vector_has(&holding->ids, pack))
        return 0;
    vector_add(&holding->ids, pack);
    return view_remote_pack_chunks(holding->up->remote->store->local.view, pack, hold_bases,
                                   holding);
}

static int hold_if_used(const struct view_remote_pack *pack, void *arg)
{
    struct holding *holding = arg;
    bool is_used = !pack->unreferenced && !pack->gone &&
                   stage_uses_pack(holding->up->remote->store->local.stage, pack->pack);
    return is_used ? hold_pack(holding, pack->pack) : 0;
}

static bool begin_doom(uint64_t pack, void *arg)
{
    struct upload *up = arg;
    bool may = packs_begin_doom(up->remote->store->commit.packs, pack);
    if (may)
        vector_add(&up->doomed, pack);
    return may;
}

static bool is_not_held(uint64_t pack, void *arg)
{
    const struct pack_ids *held = arg;
    return !vector_has(held, pack);
}

int upload_begin_dooms(struct upload *up)
{
    struct store *store = up->remote->store;
    struct holding holding = {.up = up, .levels = CHUNK_DEPTH_MAX};
    view_cut_spare(up->cut, begin_doom, up);
    if (up->doomed.count == 0 || !stage_refers_to_remote(store->local.stage))
        return 0;
    int r = view_remote_packs(store->local.view, hold_if_used, &holding);
    if (r == 0)
        view_cut_spare(up->cut, is_not_held, &holding.ids);
    vector_free(&holding.ids);
    return r;
}

void upload_end_dooms(struct upload *up)
{
    for (size_t i = 0; i < up->doomed.count; i++)
        packs_end_doom(up->remote->store->commit.packs, up->doomed.at[i]);
    vector_free(&up->doomed);
}
