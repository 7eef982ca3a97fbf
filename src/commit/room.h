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
/* The room in use changed: sizes that are not kept current elsewhere are read again. The writeback
 * thread. */
void room_account(struct room *room);
/* STORE/runs changed. Any thread. */
void room_account_runs(struct room *room);
uint64_t room_used(struct room *room);
/* Bytes that may still be staged and written, as far as is known now, if `more` came free. */
uint64_t room_available(struct room *room, uint64_t more);
/* The view's database cannot bear a full disk: there is room for it to write, or -ENOSPC. */
CAIRN_MUST_CHECK int room_for_view(struct room *room);
/* Gives inodes that are held back to the medium: the view's database found none. Until the room is
 * adjusted again, in a second. */
void room_give_files(struct room *room);
/* Could one more pack be made, and be in a cut that the view follows, beside all that is staged? */
bool room_for_moving(struct room *room);
/* Bytes that would have to come free until all is held that should be. */
uint64_t room_missing(struct room *room);
/* Is there less than writers ask for? */
bool room_is_short(struct room *room);
/* Fetched bytes may be promoted; they count until a batch names them. False: there is no room
 * now; room_more() is signalled when it is worth another try. `asks`: the thread is to look for
 * room now where there is little: not in such a try, which follows a look. */
bool room_promote(struct room *room, uint64_t bytes, bool asks);
void room_promote_done(struct room *room, uint64_t bytes);
uint64_t room_promoted(struct room *room);
/* The event of room_promote(): for those that wait, and those that end their wait. */
struct event *room_more(struct room *room);

/* Bytes of snapshots of the store that are not in packs count as used. The writeback thread. */
void room_note_snapshots(struct room *room, uint64_t bytes);

/* --- gc.c ------------------------------------------------------------------------------------- */

/* Adds a chunk that lives in `pack` to a new one, if its place is there. */
struct moving {
    struct commit *commit;
    uint64_t pack;
    uint8_t *raw, *stored;
};
/* Could gc free something of it, were it not pinned: all, or by moving what lives? */
struct view_pack;
bool gc_frees(const struct view_pack *pack);
CAIRN_MUST_CHECK int gc_move_chunk(const struct chunk_entry *entry, void *moving);
