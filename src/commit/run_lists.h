// SPDX-License-Identifier: Apache-2.0
/* The runs from which the state of a head is read.
 *
 * A head of a single writer names one list of runs, with rows of all types. A head of several nodes
 * has rows of names in its own runs; the content of files is in the runs of the nodes, one list
 * each, which the node's feed names. No two lists have a row of the same key, and within each list
 * the newest row of a key counts. STORE/feeds contains copies of the feeds named by STORE/head, so
 * that a view can be rebuilt without the remote.
 *
 * All calls block. */
#pragma once

#include "base/vector.h"
#include "commit/run_file.h"
#include "format/feed.h"

struct run_list {
    uint32_t node;     /* owner; 0: no node */
    const char *types; /* first bytes of the keys of its rows; NULL: all */
    size_t first;      /* earlier runs are known and are not read */
    size_t count;
    const struct run_info *runs; /* oldest first */
};

struct run_lists {
    VECTOR(struct run_list) lists;
};

/* --- feed_file.c ------------------------------------------------------------------------------ */

/* Is content read through this writer entry? Not if its node has not published a feed yet, or if a
 * later stay of the node has: the later feed covers all content of the node. */
bool head_reads_writer(const struct head *head, uint32_t i);
/* Decodes the feed named by writer `i` of the head. -EBADMSG: it has another hash; -EUCLEAN: not of
 * this history, epoch and node; or errors of feed_decode(). */
CAIRN_MUST_CHECK int feed_decode_named(const struct head *head, uint32_t i, const void *bytes,
                                       size_t len, struct feed *ret_feed);
/* Stores a copy of such a feed, durably. Any thread. */
CAIRN_MUST_CHECK int feed_keep(const struct local *local, const struct head_writer *writer,
                               const void *bytes, size_t len);
/* Reads the stored feed, without its records; errors of feed_decode_named(), and of the disk. */
CAIRN_MUST_CHECK int feed_look(const struct local *local, const struct head *head, uint32_t i,
                               struct feed *ret_feed);
/* Removes stored feeds that the head does not name. */
void feeds_tidy(const struct local *local, const struct head *head);

/* --- run_lists.c ------------------------------------------------------------------------------ */

/* Returns the lists of a head whose feeds are stored. Caller frees, also after an error. */
CAIRN_MUST_CHECK int run_lists_of(const struct local *local, const struct head *head,
                                  struct run_lists *ret_lists);
void run_lists_done(struct run_lists *lists);
/* Skips runs that both lists contain: all later changes are in the runs after them, and maybe older
 * ones. Skips nothing if a row may have been removed without a trace. */
void run_lists_go_on(struct run_lists *lists, const struct run_lists *known);
/* Marks all runs as not known. */
void run_lists_forget(struct run_lists *lists);
/* Are all runs to be read, as none is known? */
bool run_lists_are_new(const struct run_lists *lists);
/* Reads the rows of the runs that are not known, from STORE/runs, in key order. If all runs are
 * read, omits rows without a value. */
CAIRN_MUST_CHECK int run_lists_read(const struct local *local, const struct run_lists *lists,
                                    int (*fn)(const struct run_row *row, void *arg), void *arg);
/* Does STORE/runs have all runs of a head, verified as by run_look(), and its feeds? Returns the
 * first error. */
CAIRN_MUST_CHECK int runs_verify(const struct local *local, const struct head *head);
/* Reads all rows of a head. */
CAIRN_MUST_CHECK int runs_read(const struct local *local, const struct head *head,
                               int (*fn)(const struct run_row *row, void *arg), void *arg);
/* Removes files of runs and feeds that the head does not name, if it is STORE/head. */
void runs_tidy(const struct local *local, struct room *room, const struct head *head);
/* As runs_tidy(), for a head of which only its own runs are stored. */
void runs_tidy_own(const struct local *local, struct room *room, const struct head *head);
