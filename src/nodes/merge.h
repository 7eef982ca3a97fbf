// SPDX-License-Identifier: Apache-2.0
/* The union of the names created by several nodes. Each node reports its own operations, without
 * knowing operations of others that it has not taken from the union yet. Here they are applied in
 * order of time to a view that contains only names; an operation that conflicts with those of other
 * nodes is changed to one that fits:
 *
 * two nodes make one directory    the first one stays; later operations in the other apply to it
 * two nodes make one file         the later one gets the name, as if renamed over the first
 * a file and a directory          the directory gets the name; the file becomes NAME.cairn-EPOCH
 * an entry of a removed directory the directory is restored at its last place
 * rmdir after others added files  is refused
 * unlink, rename of a name that   is refused: a node can only remove or replace an entry that it
 * others created                  had seen
 * unlink, rename, link, replace,  the name is removed, moved, added. The file itself is removed
 * only attributes of another's file    by its owner, the node that created it the owner removes the
 * last      all names that others gave to it are removed, too name that it knew
 *
 * Only the owner has the content: an inode that is not a directory is in the union from its birth
 * to its REAP, which no other node can report, in its newest version. Without a name it is an
 * orphan there.
 *
 * The owner follows from the number of an inode, and not from feeds: so no operation reported by a
 * node, right or wrong, changes more than a user of its mount could change in names.
 *
 * The result depends only on the order of the operations, and not on how many are merged at once.
 * One thread. */
#pragma once

#include "view/view.h"

/* Operations that were changed or refused, since merge_new(). */
struct merge_counts {
    uint64_t done;     /* all merged operations */
    uint64_t joined;   /* directories that another node had created already */
    uint64_t replaced; /* files replaced by a later one of the same name */
    uint64_t renamed;  /* files renamed because of a directory of the same name */
    uint64_t revived;  /* removed directories restored because an entry was created in them */
    uint64_t refused;  /* operations refused */
    /* changes impossible in any state (a second root, an existing inode, or one that another node
     * must create): ignored */
    uint64_t impossible;
};

struct merge;

/* `view`: the names of the union; borrowed. */
struct merge *merge_new(struct view *view);
void merge_free(struct merge *merge);

/* Sets the cut of the union to which the following operations belong: for view_state().
 * Ascending. */
void merge_set_cut(struct merge *merge, uint64_t cut);

/* An operation reported by a node. */
struct merge_op {
    const struct record *rec;
    bool owns, owns2; /* do rec->ino, rec->ino2 have numbers reserved by this node? */
};

/* Applies the next operation. The caller passes the operations of all nodes in the order of (time,
 * epoch, number). -EUCLEAN: a record that cannot be in a feed. Other errors: the view failed; the
 * operation may be applied in part, so the view must be rebuilt. */
CAIRN_MUST_CHECK int merge_record(struct merge *merge, const struct merge_op *op);

struct merge_counts merge_counts(const struct merge *merge);
