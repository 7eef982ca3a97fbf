// SPDX-License-Identifier: Apache-2.0
/* Removes unneeded objects of a union: all heads but the newest, runs that it does not name, and
 * feeds that its rows have passed. Only the merger deletes, and only objects that it has itself
 * seen unneeded for longer than the grace: so it depends on no other clock, and readers that lag
 * still find the objects that they read. Runs, copies and feeds live a little longer than the heads
 * that name them.
 *
 * Also removes entries of writers/ of a node with a later stay, once no inode of the union and no
 * pack has one of their numbers; and then verdicts on stays without entry. One thread. */
#pragma once

#include "nodes/stays.h"

struct unneeded;

struct union_gc {
    struct prefix *prefix;
    int64_t grace_ns;
    int64_t due_at;           /* monotonic */
    struct unneeded *watched; /* sorted; NULL: none */
    size_t watched_count;
};

void union_gc_init(struct union_gc *gc, struct prefix *prefix, int64_t grace_ns);
void union_gc_done(struct union_gc *gc);
/* Makes a pass if one is due. prefix->head is the newest head, and this merger's; before anything
 * is deleted the newest existing head is checked again. -ESTALE: there is a newer one. */
CAIRN_MUST_CHECK int union_gc_tick(struct union_gc *gc, const struct stays *stays,
                                   int64_t now_monotonic);
