// SPDX-License-Identifier: Apache-2.0
/* The chunks of a pack, on NVMe (KEY_PLACED) or in the remote (KEY_REMOTE_PLACED).
 *
 * The row of a pack is its *list*: the first bytes of the names of its chunks, each prefix once,
 * ascending. That suffices to find the rows of these chunks (KEY_CHUNK, KEY_REMOTE_CHUNK), which
 * hold the current place of each chunk. So the list stays the same when a chunk gets another place;
 * it is removed when its pack is dropped or unreferenced. Names with the same first bytes share one
 * prefix, which finds the rows of all of them. */
#pragma once

#include "view/db.h"

/* Adds a chunk that has its new place in the pack to the pack's list. */
void list_add(struct txn *txn, enum key_type list, uint64_t pack, const struct chunk_name *name);
/* Call when no chunk has its place in the pack any more. */
void list_remove(struct txn *txn, enum key_type list, uint64_t pack);

/* Writes the additions to the transaction; call before a commit. */
CAIRN_MUST_CHECK int lists_store(struct txn *txn);

/* Walks the rows of the chunks whose current place is in the pack. `fn` may change these and other
 * rows; it returns 0 to continue, 1 to stop (and 1 is returned), or a -errno. */
CAIRN_MUST_CHECK int list_each(struct txn *txn, enum key_type list, uint64_t pack,
                               int (*fn)(struct txn *txn, const struct chunk_row *row, void *arg),
                               void *arg);
/* As list_each(), in a snapshot. */
CAIRN_MUST_CHECK int snap_list_each(const struct snap *snap, enum key_type list, uint64_t pack,
                                    int (*fn)(const struct chunk_row *row, void *arg), void *arg);
/* Does the pack's list contain the prefix of this name? 1, 0 or -errno. */
CAIRN_MUST_CHECK int snap_list_has(const struct snap *snap, enum key_type list, uint64_t pack,
                                   const struct chunk_name *name);
