// SPDX-License-Identifier: Apache-2.0
/* Chunks of the remote that depend on others.
 *
 * An entry of the remote (a row of KEY_REMOTE_CHUNK) may refer to other chunks, without which its
 * bytes cannot be decoded: its bases. Its chunk is a dependent of each. A chunk is *needed* in the
 * remote if a file refers to it, or the entry of a needed chunk does. Need determines the live
 * chunks of a remote pack, the pending uploads, and the chunks that a run names. Live chunks on
 * NVMe are defined differently: struct chunk_row.
 *
 * Invariants after each change of the view:
 *
 * 1. For each base of each entry there is one KEY_DEPENDENT, which says whether the dependent is
 *    needed. (So a base is needed if it has references, or a key of a needed dependent.)
 * 2. An entry is deeper than the entries of its bases: no chunk depends on itself, and no chain is
 *    longer than CHUNK_DEPTH_MAX.
 * 3. A needed chunk has an entry or is pending upload.
 * 4. The entry of a needed chunk that is also on NVMe is *complete*: its pack is not suspect, and
 *    each base has a complete entry. If a base is lost or a pack becomes suspect, such a chunk is
 *    uploaded again. A chunk that is only in the remote keeps its entry, since the base or the pack
 *    may come back.
 *
 * These functions only read; places.c makes changes. */
#pragma once

#include "view/apply.h"

/* Does the chunk have dependents with that need? 1, 0 or -errno. */
CAIRN_MUST_CHECK int base_has(const struct look *look, const struct chunk_name *base,
                              enum need need);
/* Is the chunk needed, with the references that it has? 1, 0 or -errno. */
CAIRN_MUST_CHECK int chunk_is_needed(const struct look *look, const struct chunk_name *name,
                                     uint64_t refs);
/* As chunk_is_needed(), and *ret: the chunk's row on NVMe, empty if it has none. */
CAIRN_MUST_CHECK int look_needed(const struct look *look, const struct chunk_name *name,
                                 struct chunk_row *ret);
/* Does the chunk have any dependents, needed or not? */
CAIRN_MUST_CHECK int base_has_any(const struct look *look, const struct chunk_name *base,
                                  bool *ret);
/* 1: the entry is incomplete: its pack is suspect, or a base is missing. 0: it is complete. */
CAIRN_MUST_CHECK int entry_is_incomplete(const struct look *look, const struct chunk_entry *entry);
/* 1: *ret_base (unless NULL) is missing: it has no entry, or one in a suspect pack; 0: no base is
 * missing. */
CAIRN_MUST_CHECK int entry_lacks_base(const struct look *look, const struct chunk_entry *entry,
                                      struct chunk_name *ret_base);

/* Finds the first dependent of `base` with that need whose name is greater than *after, and stores
 * its name there; `from_start`: the first of all. -ENOENT: none. */
CAIRN_MUST_CHECK int next_dependent(struct txn *txn, const struct chunk_name *base, enum need need,
                                    bool from_start, struct chunk_name *after, unsigned *ret_depth);

/* Checks that the entry is deeper than its bases, and its dependents deeper than the entry.
 * -EUCLEAN with the reason. */
CAIRN_MUST_CHECK int entry_check_depths(struct txn *txn, const struct chunk_entry *entry);
/* Checks whether the entry may replace the chunk's current one. -EUCLEAN with the reason. */
CAIRN_MUST_CHECK int entry_check(struct txn *txn, const struct chunk_entry *entry);
