// SPDX-License-Identifier: Apache-2.0
/* Inside the store: from which runs the state of a head is read.
 *
 * That of a single writer names one list of runs, with rows of all types. A head of several nodes
 * has rows of names in its own runs; the content of the files is told by the runs of the nodes, one
 * list each, which the node's feed names. No two lists have a row of the same key, and within each
 * the newest row of a key counts. Of the feeds that STORE/head names, STORE/feeds has the objects
 * as they are, so that a view can be made anew without the remote.
 *
 * All calls block. */
#pragma once

#include "base/vector.h"
#include "commit/run_file.h"
#include "format/feed.h"

struct run_list {
    uint32_t node;     /* whose; 0: no node's */
    const char *types; /* first bytes of the keys of its rows; NULL: all */
    size_t first;      /* runs before it are known: they are not read */
    size_t count;
    const struct run_info *runs; /* oldest first */
};

struct run_lists {
    VECTOR(struct run_list) lists;
};

/* --- feed_file.c ------------------------------------------------------------------------------ */

/* Is content read by this row? Not if its node has put no feed yet, or a later stay of the node has
 * put one: that tells all that the node has. */
bool head_reads_writer(const struct head *head, uint32_t i);
/* Decodes the object that writer `i` of the head names. -EBADMSG: it has another hash; -EUCLEAN: it
 * is none of this history, epoch and node; or as feed_decode(). */
CAIRN_MUST_CHECK int feed_decode_named(const struct head *head, uint32_t i, const void *bytes,
                                       size_t len, struct feed *ret_feed);
/* Keeps such an object, durably. Any thread. */
CAIRN_MUST_CHECK int feed_keep(const struct local *local, const struct head_writer *writer,
                               const void *bytes, size_t len);
/* The one that is kept, without its records; errors of feed_decode_named(), and of the disk. */
CAIRN_MUST_CHECK int feed_look(const struct local *local, const struct head *head, uint32_t i,
                               struct feed *ret_feed);
/* Removes those that the head does not name. */
void feeds_tidy(const struct local *local, const struct head *head);

/* --- run_lists.c ------------------------------------------------------------------------------ */

/* The lists of a head whose feeds are kept. To be freed, also after an error. */
CAIRN_MUST_CHECK int run_lists_of(const struct local *local, const struct head *head,
                                  struct run_lists *ret_lists);
void run_lists_done(struct run_lists *lists);
/* Runs that both have are known: what comes after them has all that changed since, and maybe more.
 * None is where some row may be gone without a trace. */
void run_lists_go_on(struct run_lists *lists, const struct run_lists *known);
/* None is known any more. */
void run_lists_forget(struct run_lists *lists);
/* Are all runs to be read, since none is known? */
bool run_lists_are_new(const struct run_lists *lists);
/* The rows of the runs that are not known, in STORE/runs, in key order. Those without a value are
 * left out if all are read. */
CAIRN_MUST_CHECK int run_lists_read(const struct local *local, const struct run_lists *lists,
                                    int (*fn)(const struct run_row *row, void *arg), void *arg);
/* Does STORE/runs have all of a head, with its feeds, as run_look()? The first error. */
CAIRN_MUST_CHECK int runs_verify(const struct local *local, const struct head *head);
/* Reads all rows of a head. */
CAIRN_MUST_CHECK int runs_read(const struct local *local, const struct head *head,
                               int (*fn)(const struct run_row *row, void *arg), void *arg);
/* Removes files of runs and feeds that the head does not name, if it is STORE/head. */
void runs_tidy(const struct local *local, struct room *room, const struct head *head);
/* The same of a head of which the own runs alone are kept. */
void runs_tidy_own(const struct local *local, struct room *room, const struct head *head);
