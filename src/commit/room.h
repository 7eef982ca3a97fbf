// SPDX-License-Identifier: Apache-2.0
/* Room on NVMe (room.c), and the gc that makes it (gc.c). For the components that share the store.
 */
#pragma once

#include "base/event.h"
#include "format/pack.h"

struct commit;
struct room;

/* --- room.c ----------------------------------------------------------------------------------- */

void room_stop(struct room *room);
/* The room in use has changed: reads the sizes that are not kept current elsewhere. Writeback
 * thread only. */
void room_account(struct room *room);
/* STORE/runs has changed. Any thread. */
void room_account_runs(struct room *room);
uint64_t room_used(struct room *room);
/* Bytes that may still be staged and written, as far as is known now, if `more` became free. */
uint64_t room_available(struct room *room, uint64_t more);
/* Ensures room for the view's database to write, since it does not survive a full disk; -ENOSPC. */
CAIRN_MUST_CHECK int room_for_view(struct room *room);
/* Releases reserved inodes, because the view's database found none. They are reserved again at the
 * next adjustment, in a second. */
void room_give_files(struct room *room);
/* Is there room for one more pack, and for a cut with it that the view can follow, besides all
 * staged data? */
bool room_for_moving(struct room *room);
/* Bytes that must become free before the whole reserve is held. */
uint64_t room_missing(struct room *room);
/* Is there less room than writers need? */
bool room_is_short(struct room *room);
/* Reserves room to promote fetched bytes; they count until a batch names them. False: no room now;
 * room_more() is signalled when a retry makes sense. `asks`: if room is short, makes the thread
 * look for some; not to be set in a retry, which follows such a look. */
bool room_promote(struct room *room, uint64_t bytes, bool asks);
void room_promote_done(struct room *room, uint64_t bytes);
uint64_t room_promoted(struct room *room);
/* The event of room_promote(): for waiters, and for those that end a wait. */
struct event *room_more(struct room *room);

/* Counts bytes of snapshots outside packs as used. Writeback thread only. */
void room_note_snapshots(struct room *room, uint64_t bytes);

/* --- gc.c ------------------------------------------------------------------------------------- */

/* gc_move_chunk(): adds a chunk that is live in `pack` to a new pack, if its place is there. */
struct moving {
    struct commit *commit;
    uint64_t pack;
    uint8_t *raw, *stored;
};
/* Could gc free part of the pack, if it were not pinned: all of it, or by moving its live
 * chunks? */
struct view_pack;
bool gc_frees(const struct view_pack *pack);
CAIRN_MUST_CHECK int gc_move_chunk(const struct chunk_entry *entry, void *moving);
