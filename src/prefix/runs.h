// SPDX-License-Identifier: Apache-2.0
/* The runs of a prefix, each of which is stored there twice, and the feeds that name runs; the
 * files in STORE/runs and STORE/feeds belong to commit/run_lists.h. */
#pragma once

#include "prefix/prefix.h"

/* --- feeds.c ---------------------------------------------------------------------------------- */

/* Makes sure that STORE/feeds has the head's feed of this writer. If prefix_object_is_lost() is
 * true for the result, the prefix does not have the feed any more. */
CAIRN_MUST_CHECK int feed_fetch(struct prefix *prefix, const struct head *head, uint32_t writer);
/* As feed_fetch(), for all feeds that are needed to read content. *ret_lost: the first lost feed;
 * cause_text() names it. */
CAIRN_MUST_CHECK int feeds_fetch(struct prefix *prefix, const struct head *head,
                                 struct lost_object *ret_lost);

/* --- run_fetch.c ------------------------------------------------------------------------------ */

/* Makes sure that STORE/runs has all of the runs, whole and verified. If prefix_object_is_lost() is
 * true for the result, the prefix does not have *ret_lost any more, in neither place; cause_text()
 * names it. */
CAIRN_MUST_CHECK int runs_fetch(struct prefix *prefix, const struct run_info *runs, size_t count,
                                struct lost_object *ret_lost);
/* As runs_fetch(), for all runs from which the state of a head is read, and the feeds that name
 * them. */
CAIRN_MUST_CHECK int runs_fetch_head(struct prefix *prefix, const struct head *head,
                                     struct lost_object *ret_lost);
bool head_names_run(const struct head *head, uint64_t id);
/* Determines whether the head needs the lost object. Fetches a feed of the head if necessary. */
CAIRN_MUST_CHECK int head_names_lost(struct prefix *prefix, const struct head *head,
                                     const struct lost_object *lost, bool *ret_names);
/* Returns whether an object of the run was found missing or damaged, and not put again since. */
bool run_is_bad(const struct prefix *prefix, uint64_t id, enum run_place place);

/* --- runs.c ----------------------------------------------------------------------------------- */

/* Puts a run of STORE/runs in both places. On return it is in the first one; if the copy failed,
 * prefix->runs.are_due is set. -ECANCELED: the store stops. Any other error: the disk cannot read
 * the run. */
CAIRN_MUST_CHECK int run_put(struct prefix *prefix, const struct run_info *info);
/* Checks that the object exists, with the length of the run, and optionally its content. If
 * prefix_object_is_lost() is true for the result, it is not so. */
CAIRN_MUST_CHECK int run_check_at(struct prefix *prefix, const struct run_info *info,
                                  enum run_place place, bool reads_content);
/* Puts missing objects again. Bit i of seen[place] says that run i of the newest head is known to
 * exist in that place; the other objects are checked. */
CAIRN_MUST_CHECK int runs_keep(struct prefix *prefix, const uint64_t seen[RUN_PLACES]);
/* Reads all of the newest head's runs, also those in STORE/runs, and repairs and counts bad
 * ones. */
void runs_scrub(struct prefix *prefix);
