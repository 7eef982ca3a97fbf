// SPDX-License-Identifier: Apache-2.0
/* STORE/union: the names of all nodes as in the newest union head, in a view of its own, and that
 * head's runs. It can be rebuilt from the head at any time, and is rebuilt whenever in doubt: at
 * the start, after an error, and when another merger has published. One thread. */
#pragma once

#include "nodes/merge.h"
#include "nodes/stays.h"

struct union_names {
    struct prefix *prefix; /* prefix->local is STORE/union */
    struct merge *merge;   /* NULL: not open */
    uint64_t next_run;
    struct busy *busy;
};

/* Opens the state of the newest head, prefix->head; without one (number 0), only the root. */
CAIRN_MUST_CHECK int union_open(struct union_names *names);
void union_close(struct union_names *names);
static inline bool union_is_open(const struct union_names *names)
{
    return names->merge != NULL;
}

/* Applies all operations of feeds up to the round of the new head, in order. After an error the
 * names must be closed: only a part may be applied. */
CAIRN_MUST_CHECK int union_apply(struct union_names *names, struct stays *stays,
                                 const struct head *head);
/* Publishes the applied operations: the run, and the head, whose rows are filled in already.
 * -ESTALE: another merger did, *head is its head. After an error the names must be closed. */
CAIRN_MUST_CHECK int union_publish(struct union_names *names, struct head *head);
