// SPDX-License-Identifier: Apache-2.0
/* Views of earlier states that are open beside the newest one, for browsing.
 *
 * Each known earlier state has a *slot*, a number from 1 on. Its inode numbers contain the slot in
 * their upper 16 bits, which are unused in inodes of the store. So one number identifies a file in
 * a state, uniquely.
 *
 * This table contains the open views. A view stays open while any thread has entered it. Any
 * thread; nothing blocks except reads of the views. */
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
void past_views_free(struct past_views *views); /* no view may be open */

/* Enters the view of a slot, which stays open until past_views_leave(). NULL: it is not open. */
CAIRN_MUST_CHECK struct view *past_views_enter(struct past_views *views, unsigned slot);
void past_views_leave(struct past_views *views, unsigned slot);

/* Adds an open view, entered by the caller. The table must have room. `is_local`: of a snapshot of
 * the store, which pins packs on NVMe and none in the remote. */
void past_views_add(struct past_views *views, unsigned slot, struct view *view, bool is_local);
/* Removes the least recently used view that no thread has entered since `before` (monotonic ns),
 * for the caller to close. NULL: none. */
CAIRN_MUST_CHECK struct view *past_views_take_idle(struct past_views *views, int64_t before,
                                                   unsigned *ret_slot);
/* Removes any view, even one that was entered and never left: call when no thread uses them any
 * more. */
CAIRN_MUST_CHECK struct view *past_views_take_any(struct past_views *views, unsigned *ret_slot);
unsigned past_views_count(struct past_views *views);

/* A chunk's place on NVMe, according to any of the local views. -ENOENT. Reads views. */
CAIRN_MUST_CHECK int past_views_find_local(struct past_views *views, const struct chunk_name *name,
                                           struct chunk_entry *ret);
/* A chunk's place in the remote, according to any of the other views. -ENOENT. Reads views. */
CAIRN_MUST_CHECK int past_views_find_place(struct past_views *views, const struct chunk_name *name,
                                           struct chunk_entry *ret);
