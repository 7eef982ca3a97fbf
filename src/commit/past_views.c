// SPDX-License-Identifier: Apache-2.0
#include "commit/past_views.h"

#include "base/clock.h"
#include "base/lock.h"
#include "view/remote.h"
#include "view/view.h"

struct past_view {
    unsigned slot; /* 0: the entry is free */
    struct view *view;
    bool is_local;  /* see past_views_add() */
    unsigned users; /* threads that entered it and have not left */
    int64_t used;   /* monotonic ns: when the last one entered */
};

struct past_views {
    struct cairn_mutex lock; /* a leaf */
    struct past_view at[PAST_VIEWS_MAX];
};

struct past_views *past_views_new(void)
{
    struct past_views *views = xcalloc(1, sizeof *views);
    mutex_init(&views->lock, LOCK_LEAF);
    return views;
}

void past_views_free(struct past_views *views)
{
    if (!views)
        return;
    check(past_views_count(views) == 0);
    mutex_done(&views->lock);
    free(views);
}

static struct past_view *find_locked(struct past_views *views, unsigned slot)
{
    check_held(&views->lock);
    for (unsigned i = 0; i < PAST_VIEWS_MAX; i++)
        if (views->at[i].slot == slot)
            return &views->at[i];
    return NULL;
}

static struct view *enter(struct past_view *place)
{
    place->users++;
    place->used = clock_monotonic_ns();
    return place->view;
}

struct view *past_views_enter(struct past_views *views, unsigned slot)
{
    check(slot);
    LOCK_SCOPE(&views->lock);
    struct past_view *place = find_locked(views, slot);
    return place ? enter(place) : NULL;
}

void past_views_leave(struct past_views *views, unsigned slot)
{
    LOCK_SCOPE(&views->lock);
    struct past_view *place = find_locked(views, slot);
    check(place && place->users > 0);
    place->users--;
}

void past_views_add(struct past_views *views, unsigned slot, struct view *view, bool is_local)
{
    LOCK_SCOPE(&views->lock);
    struct past_view *place = find_locked(views, 0);
    check(place && slot && !find_locked(views, slot));
    *place = (struct past_view){.slot = slot, .view = view, .is_local = is_local};
    (void)enter(place);
}

struct view *past_views_take_idle(struct past_views *views, int64_t before, unsigned *ret_slot)
{
    struct past_view *oldest = NULL;
    LOCK_SCOPE(&views->lock);
    for (unsigned i = 0; i < PAST_VIEWS_MAX; i++) {
        struct past_view *place = &views->at[i];
        if (place->slot && place->users == 0 && place->used < before &&
            (!oldest || place->used < oldest->used))
            oldest = place;
    }
    if (!oldest)
        return NULL;
    struct view *view = oldest->view;
    *ret_slot = oldest->slot;
    *oldest = (struct past_view){0};
    return view;
}

struct view *past_views_take_any(struct past_views *views, unsigned *ret_slot)
{
    LOCK_SCOPE(&views->lock);
    for (unsigned i = 0; i < PAST_VIEWS_MAX; i++) {
        struct past_view place = views->at[i];
        if (!place.slot)
            continue;
        views->at[i] = (struct past_view){0};
        *ret_slot = place.slot;
        return place.view;
    }
    return NULL;
}

unsigned past_views_count(struct past_views *views)
{
    unsigned count = 0;
    LOCK_SCOPE(&views->lock);
    for (unsigned i = 0; i < PAST_VIEWS_MAX; i++)
        count += views->at[i].slot != 0;
    return count;
}

/* Enters the view in the i-th entry; 0: the entry is free, or its view is of the other kind. */
static unsigned enter_place(struct past_views *views, unsigned i, bool is_local, struct view **ret)
{
    LOCK_SCOPE(&views->lock);
    struct past_view *place = &views->at[i];
    if (!place->slot || place->is_local != is_local)
        return 0;
    *ret = place->view;
    place->users++; /* does not count as a use */
    return place->slot;
}

typedef int find_fn(struct view *view, const struct chunk_name *name, struct chunk_entry *ret);

static int find_local(struct view *view, const struct chunk_name *name, struct chunk_entry *ret)
{
    uint64_t refs;
    int r = view_chunk(view, name, ret, &refs);
    return r == 0 && ret->pack == 0 ? -ENOENT : r;
}

static int find_in_any(struct past_views *views, bool is_local, const struct chunk_name *name,
                       struct chunk_entry *ret)
{
    find_fn *find = is_local ? find_local : view_remote_place;
    int r = -ENOENT;
    for (unsigned i = 0; i < PAST_VIEWS_MAX && r == -ENOENT; i++) {
        struct view *view;
        unsigned slot = enter_place(views, i, is_local, &view);
        if (!slot)
            continue;
        r = find(view, name, ret);
        past_views_leave(views, slot);
    }
    return r;
}

int past_views_find_local(struct past_views *views, const struct chunk_name *name,
                          struct chunk_entry *ret)
{
    return find_in_any(views, true, name, ret);
}

int past_views_find_place(struct past_views *views, const struct chunk_name *name,
                          struct chunk_entry *ret)
{
    return find_in_any(views, false, name, ret);
}
