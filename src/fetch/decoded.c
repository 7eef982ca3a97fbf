// SPDX-License-Identifier: Apache-2.0
#include "fetch/decoded.h"

#include "fetch/plan.h"

void decoded_init(struct decoded_set *set)
{
    mutex_init(&set->lock, LOCK_LEAF);
    TAILQ_INIT(&set->by_use);
    for (size_t i = 0; i < DECODED_MAX; i++) {
        STAILQ_INIT(&set->places[i].waiting);
        TAILQ_INSERT_TAIL(&set->by_use, &set->places[i], link);
    }
}

void decoded_done(struct decoded_set *set)
{
    for (size_t i = 0; i < DECODED_MAX; i++)
        check(set->places[i].pins == 0 && set->places[i].state != DECODED_LOADING);
    free(set->memory);
    mutex_done(&set->lock);
}

static struct decoded *find_locked(struct decoded_set *set, const struct chunk_name *name)
{
    check_held(&set->lock);
    for (size_t i = 0; i < DECODED_MAX; i++) {
        struct decoded *place = &set->places[i];
        if (place->state != DECODED_EMPTY && chunk_name_equal(&place->name, name))
            return place;
    }
    return NULL;
}

static void pin_locked(struct decoded_set *set, struct decoded *place)
{
    check_held(&set->lock);
    check(place->state == DECODED_READY);
    place->pins++;
    TAILQ_REMOVE(&set->by_use, place, link);
    TAILQ_INSERT_TAIL(&set->by_use, place, link);
}

struct decoded *decoded_find(struct decoded_set *set, const struct chunk_name *name)
{
    LOCK_SCOPE(&set->lock);
    struct decoded *place = find_locked(set, name);
    if (!place || place->state != DECODED_READY)
        return NULL;
    pin_locked(set, place);
    return place;
}

/* Returns the least recently used place that nothing holds. NULL: there is none. */
static struct decoded *free_place_locked(struct decoded_set *set)
{
    check_held(&set->lock);
    struct decoded *place;
    TAILQ_FOREACH(place, &set->by_use, link)
    if (place->pins == 0 && place->state != DECODED_LOADING)
        return place;
    return NULL;
}

static void take_place_locked(struct decoded_set *set, struct decoded *place,
                              const struct chunk_name *name)
{
    check_held(&set->lock);
    if (!set->memory)
        set->memory = xmalloc_large((size_t)DECODED_MAX * CHUNK_SIZE_MAX);
    place->bytes = set->memory + (size_t)(place - set->places) * CHUNK_SIZE_MAX;
    place->name = *name;
    place->state = DECODED_LOADING;
}

enum decoded_get decoded_get(struct decoded_set *set, const struct chunk_name *name,
                             struct decoded **ret)
{
    LOCK_SCOPE(&set->lock);
    *ret = find_locked(set, name);
    if (*ret && (*ret)->state == DECODED_LOADING)
        return DECODED_OTHERS;
    if (*ret) {
        pin_locked(set, *ret);
        return DECODED_FOUND;
    }
    *ret = free_place_locked(set);
    if (!*ret)
        return DECODED_FULL;
    take_place_locked(set, *ret, name);
    return DECODED_MINE;
}

void decoded_end(struct decoded_set *set, struct decoded *place, uint32_t len,
                 struct plan_list *woken)
{
    LOCK_SCOPE(&set->lock);
    check(place->state == DECODED_LOADING && place->pins == 0);
    place->state = len ? DECODED_READY : DECODED_EMPTY;
    place->len = len;
    if (len)
        pin_locked(set, place);
    STAILQ_CONCAT(woken, &place->waiting);
}

bool decoded_wait(struct decoded_set *set, const struct chunk_name *name, struct plan *plan)
{
    LOCK_SCOPE(&set->lock);
    struct decoded *place = find_locked(set, name);
    if (!place || place->state != DECODED_LOADING)
        return false;
    STAILQ_INSERT_TAIL(&place->waiting, plan, link);
    return true;
}

void decoded_unpin(struct decoded_set *set, struct decoded *place)
{
    LOCK_SCOPE(&set->lock);
    check(place->pins > 0);
    place->pins--;
}
