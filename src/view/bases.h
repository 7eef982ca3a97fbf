// SPDX-License-Identifier: Apache-2.0
/* The chunks of the remote that rest on others.
 *
 * An entry of the remote (a row of KEY_REMOTE_CHUNK) may refer to other chunks, without which its
 * bytes cannot be decoded: its bases. Its chunk is a dependent of each. A chunk is *needed* in the
 * remote if a file refers to it, or an entry of a needed chunk does. So the live chunks of a
 * remote pack, the pending uploads and the chunks that a run names go by need. Live chunks on NVMe
 * are another matter: struct chunk_row.
 *
 * Four things hold after each change of the view:
 *
 *   1. For each base of each entry there is one KEY_DEPENDENT, which says whether the dependent is
 *      needed. (So a base is needed if it has references, or a key of a needed dependent.)
 *   2. An entry is deeper than those of its bases: nothing rests on itself, and no chain is longer
 *      than CHUNK_DEPTH_MAX.
 *   3. What is needed has an entry or is pending upload.
 *   4. The entry of a needed chunk that also lies here is *complete*: its pack is not suspect, each
 *      base has an entry, and that one is complete. Where a base is lost or a pack becomes suspect,
 *      such a chunk is sent anew. One that lies in the remote alone keeps its entry, for the base
 *      or the pack may come back.
 *
 * These functions look; places.c changes. */
#pragma once

#include "view/apply.h"

/* Has the chunk dependents with that need? 1, 0 or -errno. */
CAIRN_MUST_CHECK int base_has(const struct look *look, const struct chunk_name *base,
                              enum need need);
/* Is the chunk needed, with the references that it has? 1, 0 or -errno. */
CAIRN_MUST_CHECK int chunk_is_needed(const struct look *look, const struct chunk_name *name,
                                     uint64_t refs);
/* The same, and *ret: the chunk's row on NVMe, empty where it has none. */
CAIRN_MUST_CHECK int look_needed(const struct look *look, const struct chunk_name *name,
                                 struct chunk_row *ret);
/* Has the chunk dependents, needed or not? */
CAIRN_MUST_CHECK int base_has_any(const struct look *look, const struct chunk_name *base,
                                  bool *ret);
/* 1: the entry is incomplete: the pack of it is suspect, or it lacks a base. 0: it is complete. */
CAIRN_MUST_CHECK int entry_is_incomplete(const struct look *look, const struct chunk_entry *entry);
/* 1: the entry lacks *ret_base (unless NULL), which has no entry, or one in a suspect pack; 0: it
 * lacks none. */
CAIRN_MUST_CHECK int entry_lacks_base(const struct look *look, const struct chunk_entry *entry,
                                      struct chunk_name *ret_base);

/* The first dependent of `base` with that need whose name is greater than *after, which it becomes;
 * `from_start`: the first of all. -ENOENT: there is none. */
CAIRN_MUST_CHECK int next_dependent(struct txn *txn, const struct chunk_name *base, enum need need,
                                    bool from_start, struct chunk_name *after, unsigned *ret_depth);

/* Is it deeper than its bases, and are its dependents deeper? -EUCLEAN with the reason. */
CAIRN_MUST_CHECK int entry_check_depths(struct txn *txn, const struct chunk_entry *entry);
/* May the entry be noted, in place of the one that the chunk has? -EUCLEAN with the reason. */
CAIRN_MUST_CHECK int entry_check(struct txn *txn, const struct chunk_entry *entry);
