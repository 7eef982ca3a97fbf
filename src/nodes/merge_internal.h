// SPDX-License-Identifier: Apache-2.0
/* Inside the merge: what its parts share. */
#pragma once

#include "nodes/merge.h"

struct merge {
    struct view *view;
    uint64_t cut;
    struct merge_counts counts;
    const struct merge_op *op; /* that is applied */
    const struct record *rec;  /* op->rec */
};

struct place {
    uint64_t parent;
    char name[NAME_LEN_MAX + 1];
    uint16_t len;
};

/* --- merge_step.c ------------------------------------------------------------------------------
 */

/* Applies a change that fits the union. One that fits no state is counted, and changes nothing. */
CAIRN_MUST_CHECK int merge_apply(struct merge *m, struct record rec);
/* The operation is not done. */
int merge_refuse(struct merge *m);
/* The place of a name in its directory's order: the node's, unless that is taken. */
CAIRN_MUST_CHECK int merge_settle_cookie(struct merge *m, uint64_t dir, uint64_t *cookie);
/* The first entry with a cookie above `after`. -ENOENT: there is none. */
CAIRN_MUST_CHECK int merge_first_entry(struct merge *m, uint64_t dir, uint64_t after,
                                       struct view_entry *ret);
CAIRN_MUST_CHECK int merge_look_up(struct merge *m, const struct place *place,
                                   struct view_entry *ret);

/* --- owned.c: inodes that are no directories ---------------------------------------------------
 */

/* NAME.cairn-EPOCH, of the epoch that made the inode; a long name loses its end. */
void place_aside(struct place *place, uint64_t ino);
/* 1: it is there, and no directory. */
CAIRN_MUST_CHECK int owned_is_file(struct merge *m, uint64_t ino);
/* Where the inode has that name: there, or beside a directory that has it. 1: it does not. */
CAIRN_MUST_CHECK int owned_find(struct merge *m, struct place *place, uint64_t ino);
/* It loses the name that it has there. */
CAIRN_MUST_CHECK int owned_lose(struct merge *m, const struct place *place, uint64_t ino);
/* It loses all that it has. */
CAIRN_MUST_CHECK int owned_lose_all(struct merge *m, uint64_t ino);
/* Its owner made it, under a name that it cannot have: it is there without one. */
CAIRN_MUST_CHECK int owned_make_nameless(struct merge *m, struct record rec);
/* Its owner has it no more. */
CAIRN_MUST_CHECK int owned_reap(struct merge *m, uint64_t ino);
