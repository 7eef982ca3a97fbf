// SPDX-License-Identifier: Apache-2.0
/* Pins: a pack that holds a chunk which is about to be referred to is pinned, so that it is not
 * dropped in between. A drop begins with a mark; a marked pack is not pinned any more. */
#include "commit/internal.h"

static struct pack_pin *pin_of_locked(struct store *store, uint64_t pack, bool create)
{
    check_held(&store->commit->packs.lock);
    struct pack_pin *pin = NULL;
    HASH_FIND(hh, store->commit->packs.pins, &pack, sizeof pack, pin);
    if (!pin && create) {
        pin = xcalloc(1, sizeof *pin);
        pin->pack = pack;
        HASH_ADD(hh, store->commit->packs.pins, pack, sizeof pin->pack, pin);
    }
    return pin;
}

static void pin_settle_locked(struct store *store, struct pack_pin *pin)
{
    check_held(&store->commit->packs.lock);
    if (pin->pins == 0 && !pin->dropping) {
        HASH_DEL(store->commit->packs.pins, pin);
        free(pin);
        event_signal(&store->commit->progress);
    }
}

bool packs_pin_locked(struct store *store, uint64_t pack)
{
    check_held(&store->commit->packs.lock);
    struct pack_pin *pin = pin_of_locked(store, pack, true);
    if (pin->dropping)
        return false;
    pin->pins++;
    return true;
}

bool packs_pin(struct store *store, uint64_t pack)
{
    LOCK_SCOPE(&store->commit->packs.lock);
    return packs_pin_locked(store, pack);
}

void packs_hold_drops(struct store *store, bool hold)
{
    LOCK_SCOPE(&store->commit->packs.lock);
    store->commit->packs.drop_holds += hold ? 1 : -1u;
    event_signal(&store->commit->progress);
}

bool packs_are_dropping(struct store *store)
{
    LOCK_SCOPE(&store->commit->packs.lock);
    return store->commit->packs.drops > 0;
}

bool packs_is_free(struct store *store, uint64_t pack)
{
    if (stage_uses_pack(store->stage, pack))
        return false;
    LOCK_SCOPE(&store->commit->packs.lock);
    return store->commit->packs.drop_holds == 0 && !pin_of_locked(store, pack, false);
}

void packs_unpin(struct store *store, uint64_t pack)
{
    LOCK_SCOPE(&store->commit->packs.lock);
    struct pack_pin *pin = pin_of_locked(store, pack, false);
    check(pin && pin->pins > 0);
    pin->pins--;
    pin_settle_locked(store, pin);
}

/* Does a pack that the view does not know refer to chunks that it does not count for that? */
static bool is_rested_on_locked(struct store *store)
{
    check_held(&store->commit->packs.lock);
    const struct new_pack *pack = store->commit->packs.filling;
    bool rests = pack && pack->rests;
    TAILQ_FOREACH(pack, &store->commit->packs.written, link)
    rests = rests || pack->rests;
    return rests;
}

bool packs_begin_drop(struct store *store, uint64_t pack)
{
    LOCK_SCOPE(&store->commit->packs.lock);
    struct pack_pin *pin = pin_of_locked(store, pack, true);
    if (pin->pins > 0 || pin->dropping || store->commit->packs.drop_holds > 0 ||
        is_rested_on_locked(store)) {
        pin_settle_locked(store, pin);
        return false;
    }
    pin->dropping = true;
    store->commit->packs.drops++;
    return true;
}

void packs_end_drop(struct store *store, uint64_t pack)
{
    LOCK_SCOPE(&store->commit->packs.lock);
    struct pack_pin *pin = pin_of_locked(store, pack, false);
    check(pin && pin->dropping);
    pin->dropping = false;
    store->commit->packs.drops--;
    pin_settle_locked(store, pin);
}
