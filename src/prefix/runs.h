// SPDX-License-Identifier: Apache-2.0
/* The runs of a prefix, of which each lies there twice, and the feeds that name runs; in STORE/runs
 * and STORE/feeds they are commit/run_lists.h's. */
#pragma once

#include "prefix/prefix.h"

/* --- feeds.c ---------------------------------------------------------------------------------- */

/* Makes sure that STORE/feeds has the feed of this writer of the head. prefix_object_is_lost() of
 * the result: the prefix does not have it any more. */
CAIRN_MUST_CHECK int feed_fetch(struct prefix *prefix, const struct head *head, uint32_t writer);
/* The same, of all feeds by which content is read. *ret_lost: the first that is lost; cause_text()
 * names it. */
CAIRN_MUST_CHECK int feeds_fetch(struct prefix *prefix, const struct head *head,
                                 struct lost_object *ret_lost);

/* --- run_fetch.c ------------------------------------------------------------------------------ */

/* Makes sure that STORE/runs has all of the runs, whole and verified. prefix_object_is_lost() of
 * the result: the prefix does not have *ret_lost any more, in neither place; cause_text() names it.
 */
CAIRN_MUST_CHECK int runs_fetch(struct prefix *prefix, const struct run_info *runs, size_t count,
                                struct lost_object *ret_lost);
/* The same, of all runs from which the state of a head is read, and of the feeds that name them. */
CAIRN_MUST_CHECK int runs_fetch_head(struct prefix *prefix, const struct head *head,
                                     struct lost_object *ret_lost);
bool head_names_run(const struct head *head, uint64_t id);
/* Does the head need what was lost? Where that takes one of its feeds, it is fetched. */
CAIRN_MUST_CHECK int head_names_lost(struct prefix *prefix, const struct head *head,
                                     const struct lost_object *lost, bool *ret_names);
/* Was one of its objects found missing or damaged, and not put again since? */
bool run_is_bad(const struct prefix *prefix, uint64_t id, enum run_place place);

/* --- runs.c ----------------------------------------------------------------------------------- */

/* Puts a run of STORE/runs in both places. It is in the first on return; where the copy failed,
 * prefix->runs.are_due. -ECANCELED: the store stops. Else the disk cannot read it. */
CAIRN_MUST_CHECK int run_put(struct prefix *prefix, const struct run_info *info);
/* Is the object there, in the length of the run, and its content, if that is read?
 * prefix_object_is_lost() of the result: no. */
CAIRN_MUST_CHECK int run_check_at(struct prefix *prefix, const struct run_info *info,
                                  enum run_place place, bool reads_content);
/* Puts what is missing again. Run i of the newest head is known to be there in a place if bit i of
 * seen[place] says so; the others are looked for. */
CAIRN_MUST_CHECK int runs_keep(struct prefix *prefix, const uint64_t seen[RUN_PLACES]);
/* Reads all of the newest head's runs, in STORE/runs, too, and makes whole what is not: counted. */
void runs_scrub(struct prefix *prefix);
