// SPDX-License-Identifier: Apache-2.0
/* How a store and a head of its prefix fit together. */
#pragma once

#include "base/base.h"

struct head;
struct journal;
struct journal_batch;
struct record;
struct prefix;
struct view;

enum verdict {
    VERDICT_KEEP, /* the store has the head's state, or continues from it */
    /* the store begins with the head: it has nothing that the head's state lacks */
    VERDICT_BEGIN,
    VERDICT_GO_ON,    /* the head's cut is in the store's journal, which continues from there */
    VERDICT_REFUSE,   /* the store has data that the head's state lacks, and may lack */
    VERDICT_GIVEN_UP, /* as VERDICT_REFUSE, and the head says that this data was given up */
    VERDICT_DAMAGED,  /* the state of the store is not known */
};

/* `known`: the newest head that the store knows; NULL: none. Reads nothing from the remote, changes
 * nothing. */
enum verdict verdict_of(struct prefix *prefix, struct journal *journal, const struct head *known,
                        const struct head *head);
/* Sets *ret_other if another head has the number of the one that this store published, while the
 * newest head is another store's: then the store's head was lost, and others replaced it. If the
 * remote has no head of this number any more, *ret_other is false. Reads from the remote. */
CAIRN_MUST_CHECK int head_check_number(struct prefix *prefix, const struct head *known,
                                       bool *ret_other);
/* Returns a line with the reason why the store must not be combined with the head, and advice;
 * caller frees. */
char *verdict_explain(const struct prefix *prefix, const struct head *known,
                      const struct head *head, enum verdict verdict);
/* Returns whether the known head was published in this remote, and not in a remote that is gone, or
 * another one. */
bool head_is_from_here(const struct prefix *prefix, const struct head *known);
/* False: the store went back to an older state, but could not publish that. Its head has the number
 * of a head that it gives up. */
bool head_was_published(const struct head *known);
bool head_same_state(const struct head *a, const struct head *b);
/* Returns whether `head` records that the states which this store published up to the known head
 * are no part of its state. */
bool head_was_given_up(const struct prefix *prefix, const struct head *known,
                       const struct head *head);

/* Opens the store's view before the store does; the caller closes it. -ENOENT: there is none. */
CAIRN_MUST_CHECK int prefix_look_at_view(const struct prefix *prefix, struct view **ret_view);

/* Calls `fn` with each record of the batch. -EUCLEAN: a record is malformed. */
CAIRN_MUST_CHECK int batch_each_record(const struct journal_batch *batch,
                                       void (*fn)(const struct record *rec, void *arg), void *arg);
