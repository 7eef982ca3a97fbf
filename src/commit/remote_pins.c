// SPDX-License-Identifier: Apache-2.0
/* Pins of packs in the remote: while a reference to a chunk there is being made, no head leaves the
 * packs of the chunk and its bases unreferenced. Packs there and on NVMe have unique ids, and share
 * the table of pins. */
#include "commit/local.h"
#include "commit/packs_internal.h"
#include "view/remote.h"

#define TRIES 8
#define DOOM_WAIT_MS 250 /* a mark lasts for one change of the view */

static bool is_suspect(struct view *view, uint64_t id)
{
    struct view_remote_pack pack;
    return view_remote(view).suspect_packs > 0 &&
           (view_remote_pack(view, id, &pack) < 0 || pack.suspect);
}

static bool pin_chain(struct packs *packs, const struct chunk_name *name, unsigned levels,
                      struct remote_pins *pins)
{
    struct chunk_entry entry;
    struct view *view = packs->local->view;
    if (view_remote_place(view, name, &entry) < 0)
        return false;
    if (!vector_has(pins, entry.pack)) {
        if (is_suspect(view, entry.pack) || !packs_pin(packs, entry.pack))
            return false;
        vector_add(pins, entry.pack);
    }
    for (unsigned i = 0; i < entry.ref_count; i++)
        if (levels == 0 || !pin_chain(packs, &entry.refs[i].name, levels - 1, pins))
            return false;
    return true;
}

void packs_unpin_remote(struct packs *packs, struct remote_pins *pins)
{
    for (size_t i = 0; i < pins->count; i++)
        packs_unpin(packs, pins->at[i]);
    vector_free(pins);
}

uint64_t packs_dooms(struct packs *packs)
{
    return atomic_load(&packs->dooms);
}

bool packs_await_dooms(struct packs *packs, uint64_t dooms)
{
    LOCK_SCOPE(&packs->lock);
    bool was_set = packs->dooms_open > 0 || atomic_load(&packs->dooms) != dooms;
    if (packs->dooms_open > 0)
        (void)mutex_wait(&packs->lock, &packs->changed, DOOM_WAIT_MS);
    return was_set;
}

/* A place is lost only between a mark and its end: if there was no mark in between, the place found
 * is pinned. */
uint64_t packs_pin_remote(struct packs *packs, const struct chunk_name *name,
                          struct remote_pins *ret)
{
    *ret = (struct remote_pins){0};
    for (unsigned i = 0; i < TRIES; i++) {
        uint64_t dooms = atomic_load(&packs->dooms);
        bool pinned = pin_chain(packs, name, CHUNK_DEPTH_MAX, ret);
        if (pinned && atomic_load(&packs->dooms) == dooms)
            return ret->at[0];
        packs_unpin_remote(packs, ret);
        if (!pinned && !packs_await_dooms(packs, dooms))
            break;
    }
    return 0;
}

bool packs_begin_doom(struct packs *packs, uint64_t pack)
{
    LOCK_SCOPE(&packs->lock);
    atomic_fetch_add(&packs->dooms, 1);
    bool may = packs_mark_locked(packs, pack);
    packs->dooms_open += may;
    return may;
}

void packs_end_doom(struct packs *packs, uint64_t pack)
{
    LOCK_SCOPE(&packs->lock);
    atomic_fetch_add(&packs->dooms, 1);
    packs_unmark_locked(packs, pack);
    check(packs->dooms_open > 0);
    packs->dooms_open--;
    (void)pthread_cond_broadcast(&packs->changed);
}
