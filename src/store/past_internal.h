// SPDX-License-Identifier: Apache-2.0
/* Inside store/past*.c. */
#pragma once

#include "store/past.h"
#include "view/view.h"

DEFINE_VECTOR(past_inos, uint64_t);

/* The view of the state that is shown. */
struct view *past_view(struct past *past);
/* STORE/snapshots; NULL: they are states of a remote. Lent. */
const char *past_snapshots(const struct past *past);
/* The store by which the state is read; only of a remote. */
struct store *past_store(struct past *past);
/* The newest head. */
struct head;
const struct head *past_newest(const struct past *past);
/* As past_show(), of a remote; what has the name `name` has a copy of the head, and that is taken.
 * NULL: the head itself. */
CAIRN_MUST_CHECK int past_show_named(struct past *past, uint64_t number, const char *name,
                                     char **ret_text);
/* Does the remote have that still? Blocks. */
bool past_has(struct past *past, uint64_t number, const char *name);
/* Inodes whose rows differ from those of the state that was shown when they were taken last, in any
 * order, some more than once; NULL: not known, maybe all. Forgotten by past_take_changes(). */
const struct past_inos *past_changes(const struct past *past);
void past_take_changes(struct past *past);
