// SPDX-License-Identifier: Apache-2.0
/* STORE/union: the names of all nodes as the newest union head has them, in a view of its own, and
 * that head's runs. It can be made anew from the head at any time, and is whenever there is doubt:
 * at a start, after an error, and when another merger has published. One thread. */
#pragma once

#include "nodes/merge.h"
#include "nodes/stays.h"

struct union_names {
    struct prefix *prefix; /* prefix->local is STORE/union */
    struct merge *merge;   /* NULL: nothing is there */
    uint64_t next_run;
    struct busy *busy;
};

/* What the newest head, prefix->head, has; without one (number 0), nothing but the root. */
CAIRN_MUST_CHECK int union_open(struct union_names *names);
void union_close(struct union_names *names);
static inline bool union_is_open(const struct union_names *names)
{
    return names->merge != NULL;
}

/* Applies all operations of feeds up to the round of the head that is made, in their order. After
 * an error it is to be closed: only a part may be done. */
CAIRN_MUST_CHECK int union_apply(struct union_names *names, struct stays *stays,
                                 const struct head *head);
/* Publishes what was applied: the run, and the head, which has its rows already. -ESTALE: another
 * merger did, *head is its. After an error it is to be closed. */
CAIRN_MUST_CHECK int union_publish(struct union_names *names, struct head *head);
