// SPDX-License-Identifier: Apache-2.0
/* What nobody needs of a union: heads but the newest, runs that it does not name, and feeds that
 * its rows are past. Only the merger deletes, and only what it saw unneeded for longer than the
 * grace by itself: so no clock but its own is believed, and readers that lag have what they read.
 * Runs, copies and feeds live a little longer than the heads that name them.
 *
 * Entries of writers/ go, too, of a node that has a later stay, once no inode of the union and no
 * pack has a number of theirs; and then verdicts on stays of which there is no entry. One thread.
 */
#pragma once

#include "nodes/stays.h"

struct unneeded;

struct union_gc {
    struct prefix *prefix;
    int64_t grace_ns;
    int64_t due_at;           /* monotonic */
    struct unneeded *watched; /* in order; NULL: none */
    size_t watched_count;
};

void union_gc_init(struct union_gc *gc, struct prefix *prefix, int64_t grace_ns);
void union_gc_done(struct union_gc *gc);
/* Makes a pass where one is due. prefix->head is the newest head, and this merger's; the newest
 * that is there is looked for again before anything is deleted. -ESTALE: there is another. */
CAIRN_MUST_CHECK int union_gc_tick(struct union_gc *gc, const struct stays *stays,
                                   int64_t now_monotonic);
