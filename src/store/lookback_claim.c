// SPDX-License-Identifier: Apache-2.0
/* A file is copied from an earlier state by reference. A chunk that only earlier states need has no
 * place in the remote in the newest state's view: the head after the deletion left its pack
 * unreferenced, and the pack waits for gc. Such a pack is claimed: it becomes a referenced one
 * again, with all its chunks and the packs that these chunks are stored by, so that nothing is
 * uploaded again, and NVMe needs none of the bytes.
 *
 * Against gc: gc notes in the view that a pack is gone before it deletes the object, and a pack
 * that is gone cannot be claimed; a claimed pack is not unreferenced, and stays. Against the next
 * head: a pack is not left unreferenced while it is pinned, or while staged content refers to it or
 * is stored by its chunks (remote/upload_doom.c). */
#include "base/log.h"
#include "commit/packs.h"
#include "commit/room.h"
#include "remote/maintenance.h"
#include "remote/state.h"
#include "store/internal.h"
#include "store/lookback_internal.h"
#include "view/remote.h"

bool store_refers_to_remote(struct store *store)
{
    return !store->node && remote_has_ours(store->remote);
}

DEFINE_VECTOR(claimed_entries, struct chunk_entry);

struct claiming {
    struct store *store;
    struct view *past;
    struct claim *claim;
};

static int add_entry(const struct chunk_entry *entry, bool is_needed, void *arg)
{
    (void)is_needed;
    vector_add((struct claimed_entries *)arg, *entry);
    return 0;
}

static int compare_depths(const void *a, const void *b)
{
    const struct chunk_entry *x = a, *y = b;
    return (int)x->depth - (int)y->depth;
}

static bool is_pinned(const struct claim *claim, uint64_t pack)
{
    for (size_t i = 0; i < claim->packs.count; i++)
        if (claim->packs.at[i] == pack)
            return true;
    return false;
}

static int claim_pack(struct claiming *c, uint64_t pack, unsigned levels);

/* Claims the packs of bases that have no place in the newest state's view. */
static int claim_bases(struct claiming *c, const struct chunk_entry *entry, unsigned levels)
{
    struct chunk_entry base;
    for (unsigned i = 0; i < entry->ref_count; i++) {
        const struct chunk_name *name = &entry->refs[i].name;
        if (view_remote_place(c->store->local.view, name, &base) != -ENOENT ||
            view_remote_place(c->past, name, &base) < 0 || is_pinned(c->claim, base.pack))
            continue;
        TRY(levels ? claim_pack(c, base.pack, levels - 1) : -ELOOP);
    }
    return 0;
}

/* Claims a pack's chunks, each base before its dependents. */
static int claim_entries(struct claiming *c, uint64_t pack, struct claimed_entries *entries,
                         unsigned levels)
{
    TRY(view_remote_pack_chunks(c->past, pack, add_entry, entries));
    vector_sort(entries, compare_depths);
    for (size_t i = 0; i < entries->count; i++)
        TRY(claim_bases(c, &entries->at[i], levels));
    return view_remote_pack_claimed(c->store->local.view, pack, entries->at,
                                    (uint32_t)entries->count);
}

static int claim_pack(struct claiming *c, uint64_t pack, unsigned levels)
{
    struct claimed_entries entries = {0};
    if (!packs_pin(c->store->commit.packs, pack))
        return -EBUSY;
    vector_add(&c->claim->packs, pack);
    int r = claim_entries(c, pack, &entries, levels);
    vector_free(&entries);
    if (r == 0)
        log_debug("remote: pack %llu of an earlier state is referred to again",
                  (unsigned long long)pack);
    return r;
}

void lookback_claim(struct lookback *lookback, struct view *past, const struct chunk_name *name,
                    struct claim *ret)
{
    struct store *store = lookback->store;
    struct claiming c = {store, past, ret};
    struct chunk_entry entry;
    *ret = (struct claim){0};
    if (!store_refers_to_remote(store) ||
        view_remote_place(store->local.view, name, &entry) != -ENOENT ||
        view_remote_place(past, name, &entry) < 0 || room_for_view(store->commit.room) < 0)
        return;
    int r = claim_pack(&c, entry.pack, CHUNK_DEPTH_MAX);
    if (r == 0)
        remote_note_claim(store->remote);
    if (r < 0)
        log_debug("remote: pack %llu of an earlier state cannot be referred to: %s",
                  (unsigned long long)entry.pack, strerror(-r));
}

void lookback_unclaim(struct lookback *lookback, struct claim *claim)
{
    for (size_t i = 0; i < claim->packs.count; i++)
        packs_unpin(lookback->store->commit.packs, claim->packs.at[i]);
    vector_free(&claim->packs);
}
