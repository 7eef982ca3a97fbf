// SPDX-License-Identifier: Apache-2.0
/* The chunks that a pack has, on NVMe (KEY_PLACED) or in the remote (KEY_REMOTE_PLACED).
 *
 * The row of a pack is its *list*: how the names of its chunks begin, each beginning once,
 * ascending. That is enough to find the rows of these chunks (KEY_CHUNK, KEY_REMOTE_CHUNK), and
 * they say where the place of a chunk is now. So a list does not change when a chunk gets another
 * place; it goes when its pack does, or is unreferenced. Names that begin alike share one
 * beginning, under which all their rows are found. */
#pragma once

#include "view/db.h"

/* Adds a chunk to the list of a pack that gets its place. */
void list_add(struct txn *txn, enum key_type list, uint64_t pack, const struct chunk_name *name);
/* No chunk has its place in the pack any more. */
void list_remove(struct txn *txn, enum key_type list, uint64_t pack);

/* Before a commit: writes the additions with the transaction. */
CAIRN_MUST_CHECK int lists_store(struct txn *txn);

/* The rows of the chunks that have their place in the pack now. `fn` may change them, and others;
 * it returns 0 to go on, 1 to stop (then that is returned), or a -errno. */
CAIRN_MUST_CHECK int list_each(struct txn *txn, enum key_type list, uint64_t pack,
                               int (*fn)(struct txn *txn, const struct chunk_row *row, void *arg),
                               void *arg);
/* The same in a snapshot. */
CAIRN_MUST_CHECK int snap_list_each(const struct snap *snap, enum key_type list, uint64_t pack,
                                    int (*fn)(const struct chunk_row *row, void *arg), void *arg);
/* Does the pack's list have a name that begins so? 1, 0 or -errno. */
CAIRN_MUST_CHECK int snap_list_has(const struct snap *snap, enum key_type list, uint64_t pack,
                                   const struct chunk_name *name);
