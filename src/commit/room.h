// SPDX-License-Identifier: Apache-2.0
/* Room on NVMe (room.c), and what makes it: gc (gc.c). For the components that share the store. */
#pragma once

#include "base/event.h"
#include "format/pack.h"

struct store;

/* --- room.c ----------------------------------------------------------------------------------- */

void room_stop(struct store *store);
void room_account(struct store *store);
/* STORE/runs changed. Any thread. */
void room_account_runs(struct store *store);
uint64_t room_used(struct store *store);
/* Bytes that may still be staged and written, by what is known now. */
uint64_t room_available(struct store *store);
/* The same if `more` came free. */
uint64_t room_available_with(struct store *store, uint64_t more);
/* The view's database cannot bear a full disk: there is room for it to write, or -ENOSPC. */
CAIRN_MUST_CHECK int room_for_view(struct store *store);
/* Gives inodes that are held back to the medium: the view's database found none. Until the room is
 * adjusted again, in a second. */
void room_give_files(struct store *store);
/* Could one more pack be made, and be in a cut that the view follows, beside all that is staged? */
bool room_for_moving(struct store *store);
/* Bytes that would have to come free until all is held that should be. */
uint64_t room_missing(struct store *store);
/* Fetched bytes may be promoted; they count until a batch names them. False: there is no room
 * now; room_more() is signalled when it is worth another try. `asks`: the thread is to look for
 * room now where there is little: not in such a try, which follows a look. */
bool room_promote(struct store *store, uint64_t bytes, bool asks);
void room_promote_done(struct store *store, uint64_t bytes);
uint64_t room_promoted(struct store *store);
/* The event of room_promote(): for those that wait, and for what ends their wait. */
struct event *room_more(struct store *store);

/* --- gc.c ------------------------------------------------------------------------------------- */

/* Adds a chunk that lives in `pack` to a new one, if its place is there. */
struct moving {
    struct store *store;
    uint64_t pack;
    uint8_t *raw, *stored;
};
CAIRN_MUST_CHECK int gc_move_chunk(const struct chunk_entry *entry, void *moving);
