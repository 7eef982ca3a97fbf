// SPDX-License-Identifier: Apache-2.0
/* The union of the names that several nodes made. Each node tells its own operations, and does not
 * know those of others that it has not taken from the union yet. Here they are applied one after
 * the other, by time, to a view that has names alone; an operation that does not fit what others
 * did becomes one that does:
 *
 *   two nodes make one directory    the first one stands; later operations in the other go there
 *   two nodes make one file         the later one has the name, as if by a rename over the first
 *   a file and a directory          the directory has the name; the file is NAME.cairn-EPOCH
 *   an entry of a removed directory the directory is there again, where it was
 *   rmdir of what others filled     is not done
 *   unlink, rename of what others   is not done: only what the node itself had seen goes, or is
 *   put there                       replaced
 *   unlink, rename, link, replace,  the name goes, moves, comes. The file itself ends with its
 *   attributes of another's file    owner, the node that made it
 *   the owner removes the last      all names that others gave it go, too
 *   name that it knew
 *
 * Content is the owner's alone: what is no directory is in the union from its birth to its REAP,
 * which no other node can tell, in its newest version. Without a name, it is there as an orphan.
 *
 * Whose an inode is, its number says, and no feed: so no operation that a node tells, right or
 * wrong, does more than a user of its mount could do to names.
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
    /* changes that no state allows (a second root, an inode that exists, or is another node's to
     * make): not done */
    uint64_t impossible;
};

struct merge;

/* `view`: names of the union; the caller's. */
struct merge *merge_new(struct view *view);
void merge_free(struct merge *merge);

/* The cut of the union that the operations belong to: for view_state(). Ascending. */
void merge_set_cut(struct merge *merge, uint64_t cut);

/* An operation that a node told. */
struct merge_op {
    const struct record *rec;
    bool owns, owns2; /* is rec->ino, rec->ino2 of a number that this node reserved? */
};

/* Applies the next operation. The caller gives those of all nodes in the order of (time, epoch,
 * number). -EUCLEAN: a record that no feed has. Else the view failed: the operation may be applied
 * in part, so the view is to be made anew. */
CAIRN_MUST_CHECK int merge_record(struct merge *merge, const struct merge_op *op);

struct merge_counts merge_counts(const struct merge *merge);
