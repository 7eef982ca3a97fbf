// SPDX-License-Identifier: Apache-2.0
/* Inside the merge: shared by its parts. */
#pragma once

#include "nodes/merge.h"

struct merge {
    struct view *view;
    uint64_t cut;
    struct merge_counts counts;
    const struct merge_op *op; /* the operation being applied */
    const struct record *rec;  /* op->rec */
};

struct place {
    uint64_t parent;
    char name[NAME_LEN_MAX + 1];
    uint16_t len;
};

/* --- merge_step.c ----------------------------------------------------------------------------- */

/* Applies a change that fits the union. A change impossible in any state is counted, and
 * ignored. */
CAIRN_MUST_CHECK int merge_apply(struct merge *m, struct record rec);
/* Counts the operation as refused. */
int merge_refuse(struct merge *m);
/* Settles the cookie of a name in its directory: the node's, unless that is taken. */
CAIRN_MUST_CHECK int merge_settle_cookie(struct merge *m, uint64_t dir, uint64_t *cookie);
/* The first entry with a cookie above `after`. -ENOENT: none. */
CAIRN_MUST_CHECK int merge_first_entry(struct merge *m, uint64_t dir, uint64_t after,
                                       struct view_entry *ret);
CAIRN_MUST_CHECK int merge_look_up(struct merge *m, const struct place *place,
                                   struct view_entry *ret);

/* --- owned.c: inodes other than directories --------------------------------------------------- */

/* Changes the name to NAME.cairn-EPOCH, with the epoch that created the inode; the end of a long
 * name is cut. */
void place_aside(struct place *place, uint64_t ino);
/* 1: the inode exists and is not a directory. */
CAIRN_MUST_CHECK int owned_is_file(struct merge *m, uint64_t ino);
/* Finds where the inode has that name: in the place, or beside a directory that has the name. 1:
 * nowhere. */
CAIRN_MUST_CHECK int owned_find(struct merge *m, struct place *place, uint64_t ino);
/* Removes its name in that place. */
CAIRN_MUST_CHECK int owned_lose(struct merge *m, const struct place *place, uint64_t ino);
/* Removes all its names. */
CAIRN_MUST_CHECK int owned_lose_all(struct merge *m, uint64_t ino);
/* Creates an inode whose name is impossible, without a name. */
CAIRN_MUST_CHECK int owned_make_nameless(struct merge *m, struct record rec);
/* Applies the REAP of the owner: removes the inode. */
CAIRN_MUST_CHECK int owned_reap(struct merge *m, uint64_t ino);
