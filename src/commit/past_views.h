// SPDX-License-Identifier: Apache-2.0
/* Views of earlier states that are open beside the newest one, so that these can be browsed.
 *
 * Each earlier state that is known has a *slot*, a number from 1 on, and its inodes carry it in
 * their upper 16 bits, which inodes of the store do not use. So one number says which file of which
 * state is meant, and no two files have the same.
 *
 * Here are the open ones. A view stays open while some thread has entered it. Any thread; nothing
 * blocks but the reads of the views. */
#pragma once

#include "base/base.h"
#include "format/pack.h"

#define PAST_SLOT_SHIFT 48
#define PAST_SLOT_MAX 0xfffeu
#define PAST_VIEWS_MAX 4u /* open at once */

static inline unsigned past_slot(uint64_t ino)
{
    return (unsigned)(ino >> PAST_SLOT_SHIFT);
}
/* The inode's number in its state. */
static inline uint64_t past_number(uint64_t ino)
{
    return ino & ((1ull << PAST_SLOT_SHIFT) - 1);
}
static inline uint64_t past_ino(unsigned slot, uint64_t number)
{
    return (uint64_t)slot << PAST_SLOT_SHIFT | number;
}

struct past_views;
struct view;

struct past_views *past_views_new(void);
void past_views_free(struct past_views *views); /* no view is open */

/* The view of a slot, which stays open until past_views_leave(). NULL: it is not open. */
CAIRN_MUST_CHECK struct view *past_views_enter(struct past_views *views, unsigned slot);
void past_views_leave(struct past_views *views, unsigned slot);

/* The view is open from now on, and entered by the caller. There is a place for it. */
void past_views_add(struct past_views *views, unsigned slot, struct view *view);
/* Takes out the least recently used view that nobody has entered since `before` (monotonic ns), for
 * the caller to close. NULL: there is none. */
CAIRN_MUST_CHECK struct view *past_views_take_idle(struct past_views *views, int64_t before,
                                                   unsigned *ret_slot);
/* Takes out any, also one that was entered and will not be left: no thread uses them any more. */
CAIRN_MUST_CHECK struct view *past_views_take_any(struct past_views *views, unsigned *ret_slot);
unsigned past_views_count(struct past_views *views);

/* A chunk's place on NVMe, by any of the open views. -ENOENT. Reads views. */
CAIRN_MUST_CHECK int past_views_find_local(struct past_views *views, const struct chunk_name *name,
                                           struct chunk_entry *ret);
/* A chunk's place in the remote, by any of the open views. -ENOENT. Reads views. */
CAIRN_MUST_CHECK int past_views_find_place(struct past_views *views, const struct chunk_name *name,
                                           struct chunk_entry *ret);
