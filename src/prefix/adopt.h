// SPDX-License-Identifier: Apache-2.0
/* How a store and the newest head of its remote are combined. Unless stated otherwise, *ret_text is
 * the reason of a failure in one line (caller frees), or NULL. One thread; each call blocks. */
#pragma once

#include "base/base.h"

struct head;
struct journal;
struct local;
struct prefix;

/* All members stay the caller's. */
struct adoption {
    struct local *local;
    struct journal *journal;
    struct prefix *prefix; /* NULL: no remote */
    bool is_node;          /* other nodes write the prefix, too */
};

/* --- adopt.c ---------------------------------------------------------------------------------- */

/* Called before journal or view are read: completes an exchange of one state for another that was
 * interrupted. */
CAIRN_MUST_CHECK int adopt_clean_up(const struct adoption *adoption, char **ret_text);
/* Returns whether the store has no state of its own, so that it needs the remote. */
bool adopt_is_blank(const struct adoption *adoption);
/* Called before the journal is read: decides how the store and the newest head are combined. The
 * store may begin with that head, continue from it, or be unrelated to it: -ESTALE with *ret_text.
 * Also called without a remote: finds where the journal begins. */
CAIRN_MUST_CHECK int adopt_decide(const struct adoption *adoption, char **ret_text);
/* Fails as adopt_decide() would, but changes nothing. `adoption`: struct adoption, with a
 * remote. */
CAIRN_MUST_CHECK int adopt_may(void *adoption, char **ret_text);
/* As adopt_may(), for a remote that was reached only after the mount. -ESTALE with *ret_text: the
 * remote continued without this store. */
CAIRN_MUST_CHECK int adopt_is_consistent(void *adoption, char **ret_text);
/* The remote was refused with `error` after the mount: returns whether it has continued without
 * this store. False: the caller asks again, as a head older than the one that the store knows
 * proves nothing. */
bool adopt_is_lost_for_good(const struct adoption *adoption, int error);

/* Makes the store, which has no state of its own, begin with this head, whose runs are in
 * STORE/runs. */
CAIRN_MUST_CHECK int adopt_begin_with(const struct adoption *adoption, const struct head *head,
                                      char **ret_text);
/* Resets the store to its own head of that number (0: to nothing), and gives up later states. The
 * store begins with that head, whatever its state was; packs on NVMe stay. */
CAIRN_MUST_CHECK int adopt_go_back(const struct adoption *adoption, uint64_t number,
                                   char **ret_text);

/* Marks the store before one state is exchanged for another: until adopt_unmark() view, journal and
 * STORE/head need not fit each other, and the next start removes view and journal and makes them
 * anew from STORE/head or the remote's head. */
CAIRN_MUST_CHECK int adopt_mark(const struct local *local);
CAIRN_MUST_CHECK int adopt_unmark(const struct local *local);

/* --- older.c ---------------------------------------------------------------------------------- */

/* Handles the case that at a mount the remote shows an older head than the one that this store
 * published last. If nothing is missing because of this, the store continues from its own state:
 * prefix->head is set to that, if the remote has it. -ESTALE with *ret_text: chunks would be
 * lost. */
CAIRN_MUST_CHECK int older_judge(const struct adoption *adoption, const struct head *known,
                                 char **ret_text);
