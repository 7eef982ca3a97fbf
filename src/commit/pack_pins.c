// SPDX-License-Identifier: Apache-2.0
/* Pins: a pack with a chunk that is about to be referred to is pinned, so that it is not dropped in
 * between. A drop begins with a mark; a marked pack can no longer be pinned. */
#include "commit/horizon_internal.h"
#include "commit/local.h"
#include "commit/packs_internal.h"

static struct pack_pin *pin_of_locked(struct packs *packs, uint64_t pack, bool create)
{
    check_held(&packs->lock);
    struct pack_pin *pin = NULL;
    HASH_FIND(hh, packs->pins, &pack, sizeof pack, pin);
    if (!pin && create) {
        pin = xcalloc(1, sizeof *pin);
        pin->pack = pack;
        HASH_ADD(hh, packs->pins, pack, sizeof pin->pack, pin);
    }
    return pin;
}

static void pin_settle_locked(struct packs *packs, struct pack_pin *pin)
{
    check_held(&packs->lock);
    if (pin->pins == 0 && !pin->dropping) {
        HASH_DEL(packs->pins, pin);
        free(pin);
        event_signal(&packs->horizon->progress);
    }
}

bool packs_pin_locked(struct packs *packs, uint64_t pack)
{
    check_held(&packs->lock);
    struct pack_pin *pin = pin_of_locked(packs, pack, true);
    if (pin->dropping)
        return false;
    pin->pins++;
    return true;
}

bool packs_pin(struct packs *packs, uint64_t pack)
{
    LOCK_SCOPE(&packs->lock);
    return packs_pin_locked(packs, pack);
}

void packs_hold_drops(struct packs *packs, bool hold)
{
    LOCK_SCOPE(&packs->lock);
    check(hold || packs->drop_holds > 0);
    packs->drop_holds += hold ? 1 : -1u;
    event_signal(&packs->horizon->progress);
}

bool packs_are_dropping(struct packs *packs)
{
    LOCK_SCOPE(&packs->lock);
    return packs->drops > 0;
}

bool packs_is_free(struct packs *packs, uint64_t pack)
{
    if (stage_uses_pack(packs->local->stage, pack))
        return false;
    LOCK_SCOPE(&packs->lock);
    return packs->drop_holds == 0 && !pin_of_locked(packs, pack, false);
}

void packs_unpin(struct packs *packs, uint64_t pack)
{
    LOCK_SCOPE(&packs->lock);
    struct pack_pin *pin = pin_of_locked(packs, pack, false);
    check(pin && pin->pins > 0);
    pin->pins--;
    pin_settle_locked(packs, pin);
}

/* Does a pack that the view does not have use bases that the view does not count as needed? */
static bool is_rested_on_locked(struct packs *packs)
{
    check_held(&packs->lock);
    const struct new_pack *pack = packs->filling;
    bool rests = pack && pack->rests;
    TAILQ_FOREACH(pack, &packs->written, link)
    rests = rests || pack->rests;
    return rests;
}

bool packs_mark_locked(struct packs *packs, uint64_t pack)
{
    check_held(&packs->lock);
    struct pack_pin *pin = pin_of_locked(packs, pack, true);
    bool may = pin->pins == 0 && !pin->dropping;
    if (may)
        pin->dropping = true;
    return may;
}

void packs_unmark_locked(struct packs *packs, uint64_t pack)
{
    check_held(&packs->lock);
    struct pack_pin *pin = pin_of_locked(packs, pack, false);
    check(pin && pin->dropping);
    pin->dropping = false;
    pin_settle_locked(packs, pin);
}

bool packs_begin_drop(struct packs *packs, uint64_t pack)
{
    LOCK_SCOPE(&packs->lock);
    if (packs->drop_holds > 0 || is_rested_on_locked(packs) || !packs_mark_locked(packs, pack))
        return false;
    packs->drops++;
    return true;
}

void packs_end_drop(struct packs *packs, uint64_t pack)
{
    LOCK_SCOPE(&packs->lock);
    check(packs->drops > 0);
    packs->drops--;
    packs_unmark_locked(packs, pack);
}
