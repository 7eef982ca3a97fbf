// SPDX-License-Identifier: Apache-2.0
/* The heads of a prefix. */
#pragma once

#include "prefix/prefix.h"

/* Is it of another store? No head (number 0) is. */
static inline bool head_is_theirs(const struct local *local, const struct head *head)
{
    return head->number > 0 && memcmp(head->store, local->sb.store, sizeof head->store) != 0;
}

/* Who wrote it, for people. */
static inline const char *head_writer_text(const struct head *head)
{
    return head_has_nodes(head) ? "several nodes" : head->holder;
}

/* --- heads.c ---------------------------------------------------------------------------------- */

/* Its number; 0: there is none after number `after`. */
CAIRN_MUST_CHECK int heads_newest_number(struct prefix *prefix, uint64_t after,
                                         uint64_t *ret_newest);
/* The newest head after number `after`; -ENOENT: there is none. -EAGAIN: it is listed, and not
 * found. */
CAIRN_MUST_CHECK int heads_newest(struct prefix *prefix, uint64_t after, struct head *ret_head);
/* -ENOENT; -EUCLEAN: it is none of this history. *ret_head is cleared then. */
CAIRN_MUST_CHECK int head_read(struct prefix *prefix, uint64_t number, struct head *ret_head);
/* It becomes the next head, by this store. */
void head_sign(const struct prefix *prefix, struct head *head);
/* Creates head->number exclusively. -ESTALE: another store did; `head` is then theirs. Any other
 * error (of a patient prefix only -ECANCELED): whether it is there, or will be, is not known. */
CAIRN_MUST_CHECK int head_put(struct prefix *prefix, struct head *head);
/* A writer goes back: prefix->head, which it will go on from, says so, and the log. Sets
 * given_up->time. */
CAIRN_MUST_CHECK int heads_give_up(struct prefix *prefix, struct head_given_up *given_up);

/* --- tried.c ---------------------------------------------------------------------------------- */

void tried_load(struct prefix *prefix);
/* Before the head is created. */
void tried_add(struct prefix *prefix, const struct head *head);
/* Did this store create it, whatever it was answered? In this session, or one that was killed. */
bool tried_is_own(const struct prefix *prefix, const struct head *head);

/* --- choose.c --------------------------------------------------------------------------------- */

/* prefix->head becomes the one that options->at chooses, or where that is damaged, the one before
 * it, and prefix->shown_instead says so. -ENODATA, and *ret_text says which heads there are. */
CAIRN_MUST_CHECK int heads_choose(struct prefix *prefix, char **ret_text);

/* --- whole.c ---------------------------------------------------------------------------------- */

/* The newest head between two numbers of which all runs are in STORE/runs now, where a later one
 * lacks what is lost. -ENOENT: there is none. */
CAIRN_MUST_CHECK int heads_find_whole(struct prefix *prefix, uint64_t after, uint64_t before,
                                      const struct lost_object *lost, struct head *ret_head);
/* The newest head lacks an object, as `why` says: prefix->head becomes a whole one after number
 * `after`, where the options allow it. Else *ret_text says what can be done (caller frees). Reads
 * alone. */
CAIRN_MUST_CHECK int heads_go_back(struct prefix *prefix, uint64_t after,
                                   const struct lost_object *lost, const char *why,
                                   char **ret_text);
/* The same where the newest head itself is damaged, and the options allow it. */
CAIRN_MUST_CHECK int heads_go_back_from_damaged(struct prefix *prefix, char **ret_text);
/* The newest head that is there may not be the newest that was: a run that no head names tells.
 * Notes and logs it. */
void heads_look_for_later_run(struct prefix *prefix);
/* prefix->head becomes the state of `whole`, which a writer goes on from: it gives up what came
 * later. */
CAIRN_MUST_CHECK int heads_rest_on(struct prefix *prefix, const struct head *whole);
#define HEAD_TIME_LEN 32u
/* Prints a time (ns since 1970; 0: unknown), for people. */
void head_time_text(int64_t time, char buf[HEAD_TIME_LEN]);
