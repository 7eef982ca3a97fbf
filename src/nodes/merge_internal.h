// SPDX-License-Identifier: Apache-2.0
/* Inside the merge: what its parts share. */
#pragma once

#include "nodes/merge.h"

struct merge {
    struct view *view;
    uint64_t cut;
    struct merge_counts counts;
    uint64_t epoch;           /* of the node whose operation is applied */
    const struct record *rec; /* that operation */
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

/* NAME.cairn-EPOCH; a long name loses its end. */
void place_aside(struct place *place, uint64_t epoch);
/* 1: it is there, and no directory. */
CAIRN_MUST_CHECK int owned_is_file(struct merge *m, uint64_t ino);
/* A rule gives the name that the inode has there to another. */
CAIRN_MUST_CHECK int owned_give_way(struct merge *m, const struct place *place, uint64_t ino);
/* Its node removed a name of it, and keeps it open if `is_orphan`. `place`: where that is in the
 * union, if it is there; NULL: nowhere. */
CAIRN_MUST_CHECK int owned_lose(struct merge *m, uint64_t ino, const struct place *place,
                                bool is_orphan);
/* Its node gave it a name that the union does not have. */
CAIRN_MUST_CHECK int owned_lack(struct merge *m, uint64_t ino);
/* Its node made it, under a name that it cannot have: it is there without one. */
CAIRN_MUST_CHECK int owned_make_nameless(struct merge *m, struct record rec);
/* Its node has it no more. */
CAIRN_MUST_CHECK int owned_reap(struct merge *m, uint64_t ino);
