// SPDX-License-Identifier: Apache-2.0
/* The heads of a prefix. */
#pragma once

#include "prefix/prefix.h"

/* Returns whether the head was published by another store; false for no head (number 0). */
static inline bool head_is_theirs(const struct local *local, const struct head *head)
{
    return head->number > 0 && memcmp(head->store, local->sb.store, sizeof head->store) != 0;
}

/* Returns the writer's name, for people. */
static inline const char *head_writer_text(const struct head *head)
{
    return head_has_nodes(head) ? "several nodes" : head->holder;
}

/* --- heads.c ---------------------------------------------------------------------------------- */

/* Returns the number of the newest head after number `after`; 0: there is none. */
CAIRN_MUST_CHECK int heads_newest_number(struct prefix *prefix, uint64_t after,
                                         uint64_t *ret_newest);
/* Reads the newest head after number `after`; -ENOENT: there is none. -EAGAIN: it is listed, but
 * cannot be found. */
CAIRN_MUST_CHECK int heads_newest(struct prefix *prefix, uint64_t after, struct head *ret_head);
/* -ENOENT; -EUCLEAN: the head is not of this history. After an error *ret_head is cleared. */
CAIRN_MUST_CHECK int head_read(struct prefix *prefix, uint64_t number, struct head *ret_head);
/* Fills in number, store, epoch and writer, to make `head` the next head, by this store. */
void head_sign(const struct prefix *prefix, struct head *head);
/* Creates head->number exclusively. -ESTALE: another store created it; `head` is then that store's
 * head. After any other error (in a patient prefix only -ECANCELED) it is not known whether the
 * head exists, or will. */
CAIRN_MUST_CHECK int head_put(struct prefix *prefix, struct head *head);
/* Records in prefix->head, from which a writer continues, that later heads are given up, and logs
 * it. Sets given_up->time. */
CAIRN_MUST_CHECK int heads_give_up(struct prefix *prefix, struct head_given_up *given_up);

/* --- tried.c ---------------------------------------------------------------------------------- */

void tried_load(struct prefix *prefix);
/* Called before the head is created. */
void tried_add(struct prefix *prefix, const struct head *head);
/* Returns whether this store tried to create the head, in this session, or in one that was killed,
 * whatever the remote answered. */
bool tried_is_own(const struct prefix *prefix, const struct head *head);

/* --- choose.c --------------------------------------------------------------------------------- */

/* Sets prefix->head to the head that options->at chooses, or if that is damaged, to the one before
 * it, with a text in prefix->shown_instead. -ENODATA: *ret_text lists the heads that exist. */
CAIRN_MUST_CHECK int heads_choose(struct prefix *prefix, char **ret_text);

/* --- whole.c ---------------------------------------------------------------------------------- */

/* Finds the newest head between two numbers that does not need the lost object and whose runs are
 * all in the remote, and fetches its runs to STORE/runs. -ENOENT: there is none. */
CAIRN_MUST_CHECK int heads_find_whole(struct prefix *prefix, uint64_t after, uint64_t before,
                                      const struct lost_object *lost, struct head *ret_head);
/* The newest head lacks an object, for the reason `why`: sets prefix->head to a whole head after
 * number `after`, if the options allow it. Else *ret_text says what can be done (caller frees).
 * Only reads. */
CAIRN_MUST_CHECK int heads_go_back(struct prefix *prefix, uint64_t after,
                                   const struct lost_object *lost, const char *why,
                                   char **ret_text);
/* As heads_go_back(), if the newest head itself is damaged, and the options allow it. */
CAIRN_MUST_CHECK int heads_go_back_from_damaged(struct prefix *prefix, char **ret_text);
/* Detects that newer heads existed than the newest one that is there: by a run that no head names.
 * Notes and logs it. */
void heads_look_for_later_run(struct prefix *prefix);
/* Sets prefix->head to the state of `whole`, from which a writer continues: it gives up the later
 * heads. */
CAIRN_MUST_CHECK int heads_rest_on(struct prefix *prefix, const struct head *whole);
#define HEAD_TIME_LEN 32u
/* Prints a time (ns since 1970; 0: unknown), for people. */
void head_time_text(int64_t time, char buf[HEAD_TIME_LEN]);
