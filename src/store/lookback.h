// SPDX-License-Identifier: Apache-2.0
/* Earlier states, of the remote and of the store (local_snapshots.h), beside the newest one: which
 * there are, and their views, each opened when it is asked for
 * (commit/past_views.h). Files of an open state are read as others, by inodes that carry its slot.
 * Nothing of the newest state waits for this.
 *
 * A state that is open lies in STORE/history, and is held from the gc of this store. Those that
 * nobody has entered for a minute are closed, and before, if others need their places.
 *
 * Any thread, without locks. Errors are negative errno, with a cause. */
#pragma once

#include "base/vector.h"
#include "commit/past_views.h"
#include "format/snapshot.h"

struct lookback;
struct store;

/* For users who browse. NULL: the store is one of several nodes, or was opened without
 * options.history. */
struct lookback *store_lookback(struct store *store);

/* Is there a directory of them? Not in a store without a remote that neither has one nor takes any:
 * there the name is free. NULL: no. */
bool lookback_is_shown(const struct lookback *lookback);

#define LOOKBACK_NAME_MAX 96u

struct lookback_item {
    uint64_t head;     /* its number; 0: what has its name is damaged */
    unsigned slot;     /* 0: it has none, and is not listed */
    int64_t published; /* ns since 1970; 0: the head cannot be read */
    bool is_named;
    bool is_local; /* a snapshot of the store: `head` is its number */
    /* of the snapshot, or the time of the head: "2026-11-28T20:59:08Z"; where a later one is of the
     * same second, or it cannot be read, with its number */
    char name[LOOKBACK_NAME_MAX];
};
DEFINE_VECTOR(lookback_items, struct lookback_item);

/* Asks the remote which snapshots there are, unless it was asked just now. Ascending by head, with
 * the names of one behind it. If the remote cannot be reached, its last answer is used; without
 * one, its error is returned. Blocks. */
CAIRN_MUST_CHECK int lookback_list(struct lookback *lookback, struct lookback_items *ret);
/* By its name, or the number of its head. -ENOENT; -EIO: it is damaged. Blocks; does not
 * query the remote if the store has a snapshot of that name. */
CAIRN_MUST_CHECK int lookback_find(struct lookback *lookback, const char *name,
                                   struct lookback_item *ret);
/* Returns a state's item, as far as it is known here. Does not block. */
bool lookback_known(struct lookback *lookback, unsigned slot, struct lookback_item *ret);

/* Opens the state of a slot, if it is not open. It stays so until past_views_leave() of
 * lookback_views(). -ESTALE: it is not there any more; -ENFILE: all that can be open at once are in
 * use; -EIO: it is damaged. Blocks. */
CAIRN_MUST_CHECK int lookback_enter(struct lookback *lookback, unsigned slot, struct view **ret);
struct past_views *lookback_views(struct lookback *lookback);

/* May files refer to chunks that lie in the remote alone? */
bool store_refers_to_remote(struct store *store);
/* Before a file is made to refer to a chunk of an open state: if the newest state's view knows no
 * place of the chunk in the remote, it gets the one that `past` knows, with all chunks of that
 * pack. *ret: the packs, which keep their chunks until lookback_unclaim(); none: nothing was to be
 * done, or nothing can be, e.g. as gc deletes the pack. Does not wait for the remote. */
struct claim {
    VECTOR(uint64_t) packs;
};
void lookback_claim(struct lookback *lookback, struct view *past, const struct chunk_name *name,
                    struct claim *ret);
void lookback_unclaim(struct lookback *lookback, struct claim *claim);

/* Most memory that open states take. NULL is fine. */
uint64_t lookback_memory(const struct lookback *lookback);

/* About once a second: closes what nobody uses, a scrub included. */
void lookback_tick(struct store *store);
