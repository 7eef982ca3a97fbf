// SPDX-License-Identifier: Apache-2.0
/* What becomes of a store when it goes together with a head of its prefix. */
#pragma once

#include "base/base.h"

struct head;
struct journal;
struct journal_batch;
struct record;
struct prefix;
struct view;

enum verdict {
    VERDICT_KEEP,     /* the store has the head's state, or goes on from it */
    VERDICT_BEGIN,    /* begins with the head: it has nothing that the head's state lacks */
    VERDICT_GO_ON,    /* the head's cut is in its journal, which goes on from there */
    VERDICT_REFUSE,   /* it has data that the head's state lacks, and may lack */
    VERDICT_GIVEN_UP, /* the same, and the head says that this was given up */
    VERDICT_DAMAGED,  /* its state is not known */
};

/* `known`: the newest head that the store knows; NULL: none. Asks nothing of the remote, changes
 * nothing. */
enum verdict verdict_of(struct prefix *prefix, struct journal *journal, const struct head *known,
                        const struct head *head);
/* Has another head the number of the one that this store published, where the newest is another
 * store's? Then that was lost, and others came in its place. If neither is there any more, nothing
 * is known, and nothing is found. Asks the remote. */
CAIRN_MUST_CHECK int head_check_number(struct prefix *prefix, const struct head *known,
                                       bool *ret_other);
/* Returns a line that says why the store must not go together with the head, and what can be done;
 * caller frees. */
char *verdict_explain(const struct prefix *prefix, const struct head *known,
                      const struct head *head, enum verdict verdict);
/* Was the known head published in this remote? Not in one that is gone, or in another. */
bool head_is_from_here(const struct prefix *prefix, const struct head *known);
/* False: the store went back to an older state, and could not publish that it did. Its head has the
 * number of one that it gives up. */
bool head_was_published(const struct head *known);
bool head_same_state(const struct head *a, const struct head *b);
/* Does `head` say that what this store published with the known head is no part of its state? */
bool head_was_given_up(const struct prefix *prefix, const struct head *known,
                       const struct head *head);

/* The store's view, before the store has it open; the caller closes it. -ENOENT: there is none. */
CAIRN_MUST_CHECK int prefix_look_at_view(const struct prefix *prefix, struct view **ret_view);

/* Calls `fn` with each record of the batch. -EUCLEAN: one is malformed. */
CAIRN_MUST_CHECK int batch_each_record(const struct journal_batch *batch,
                                       void (*fn)(const struct record *rec, void *arg), void *arg);
