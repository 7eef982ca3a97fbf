// SPDX-License-Identifier: Apache-2.0
/* The heads of a prefix. */
#pragma once

#include "prefix/prefix.h"

/* Is it of another store? No head (number 0) is. */
static inline bool head_is_theirs(const struct local *local, const struct head *head)
{
    return head->number > 0 && memcmp(head->store, local->sb.store, sizeof head->store) != 0;
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
/* The store holds the prefix, and gives it the head: fields that say so. Not its number. */
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
