// SPDX-License-Identifier: Apache-2.0
/* A store and the newest head of its remote go together. Where nothing else is said, *ret_text is
 * why not in one line (caller frees), or NULL. One thread; each blocks. */
#pragma once

#include "base/base.h"

struct head;
struct journal;
struct local;
struct prefix;

/* All are lent. */
struct adoption {
    struct local *local;
    struct journal *journal;
    struct prefix *prefix; /* NULL: no remote */
    bool is_node;          /* other nodes write the prefix, too */
};

/* --- adopt.c ---------------------------------------------------------------------------------- */

/* Before anything looks at journal or view: ends what was broken off while one state was exchanged
 * for another. */
CAIRN_MUST_CHECK int adopt_clean_up(const struct adoption *adoption, char **ret_text);
/* Has the store no state of its own, so that it cannot do without the remote? */
bool adopt_is_blank(const struct adoption *adoption);
/* With the journal not yet read: how the store and the newest head go together. The store may begin
 * with that head, go on from it, or have nothing to do with it: -ESTALE with *ret_text. Without a
 * remote too: where the journal begins. */
CAIRN_MUST_CHECK int adopt_decide(const struct adoption *adoption, char **ret_text);
/* Would adopt_decide() refuse? Changes nothing. `adoption`: struct adoption, with a remote. */
CAIRN_MUST_CHECK int adopt_may(void *adoption, char **ret_text);
/* The same question for a remote that was reached after the mount: nothing is changed. -ESTALE with
 * *ret_text: it went on without us. */
CAIRN_MUST_CHECK int adopt_is_consistent(void *adoption, char **ret_text);
/* Has the remote, which was refused with `error` after the mount, gone on without this store? Else
 * it is asked again: a head that is older than the one that the store knows shows nothing. */
bool adopt_is_lost_for_good(const struct adoption *adoption, int error);

/* The store, which has nothing of its own, begins with this head, whose runs are in STORE/runs. */
CAIRN_MUST_CHECK int adopt_begin_with(const struct adoption *adoption, const struct head *head,
                                      char **ret_text);
/* The store goes back to its own head of that number (0: to nothing), and gives up what came later.
 * It begins with that, whatever else was; packs on NVMe stay. */
CAIRN_MUST_CHECK int adopt_go_back(const struct adoption *adoption, uint64_t number,
                                   char **ret_text);

/* From the one to the other, view, journal and STORE/head need not fit each other: the next start
 * removes what they hold, and makes them anew from STORE/head or the remote's. */
CAIRN_MUST_CHECK int adopt_mark(const struct local *local);
CAIRN_MUST_CHECK int adopt_unmark(const struct local *local);

/* --- older.c ---------------------------------------------------------------------------------- */

/* Does the remote, at a mount, show an older head than the one that this store published last?
 * Where nothing is missing by that, the store goes on from its own state: prefix->head is that,
 * where the remote has it. -ESTALE with *ret_text: chunks would be lost. */
CAIRN_MUST_CHECK int older_judge(const struct adoption *adoption, const struct head *known,
                                 char **ret_text);
