// SPDX-License-Identifier: Apache-2.0
/* The union of the names that several nodes made. Each node tells its own operations, and knows
 * nothing of those that others made meanwhile. Here they are applied one after the other, by time,
 * to a view that has names alone; an operation that does not fit what others did becomes one that
 * does:
 *
 *   two nodes make one directory    the first one stands; later operations in the other go there
 *   two nodes make one file         the later one has the name, as if by a rename over the first
 *   a file and a directory          the directory has the name; the file is NAME.cairn-EPOCH
 *   an entry of a removed directory the directory is there again, where it was
 *   rmdir of what others filled     is not done
 *   unlink, rename of what others   is not done: only what the node itself had seen goes, or is
 *   put there                       replaced
 *
 * A node changes its own files alone. What is no directory is in the union exactly as long as its
 * node has it, in its newest version: without a name where a rule took that, or where the node
 * keeps it open.
 *
 * The result depends on the order of the operations alone, and not on how many are merged at once.
 * One thread. */
#pragma once

#include "view/view.h"

/* Operations that became others, since merge_new(). */
struct merge_counts {
    uint64_t done;     /* all that were merged */
    uint64_t joined;   /* directories that another node had made */
    uint64_t replaced; /* files that gave way to a later one of their name */
    uint64_t renamed;  /* files that gave way to a directory of their name */
    uint64_t revived;  /* directories that came back, since something was made in them */
    uint64_t refused;  /* that were not done */
    /* changes that no state allows (a second root, an inode that exists): not done */
    uint64_t impossible;
};

struct merge;

/* `view`: names of the union; the caller's. */
struct merge *merge_new(struct view *view);
void merge_free(struct merge *merge);

/* The cut of the union that the operations belong to: for view_state(). Ascending. */
void merge_set_cut(struct merge *merge, uint64_t cut);

/* Applies the next operation, which a node with this epoch told. The caller gives those of all
 * nodes in the order of (time, epoch, number). -EUCLEAN: a record that no feed has. Else
 * the view failed: the operation may be applied in part, so the view is to be made anew. */
CAIRN_MUST_CHECK int merge_record(struct merge *merge, uint64_t epoch, const struct record *rec);

struct merge_counts merge_counts(const struct merge *merge);
