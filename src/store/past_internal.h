// SPDX-License-Identifier: Apache-2.0
/* Inside store/past*.c. */
#pragma once

#include "store/past.h"
#include "view/view.h"

DEFINE_VECTOR(past_inos, uint64_t);

/* Returns the view of the state that is shown. */
struct view *past_view(struct past *past);
/* STORE/snapshots; NULL: they are states of a remote. Lent. */
const char *past_snapshots(const struct past *past);
/* Returns the store by which the state is read; only for a remote. */
struct store *past_store(struct past *past);
/* Returns the newest head. */
struct head;
const struct head *past_newest(const struct past *past);
/* As past_show(), for a remote; the state is that of the copy of the head in the snapshot `name`.
 * NULL: of the head itself. */
CAIRN_MUST_CHECK int past_show_named(struct past *past, uint64_t number, const char *name,
                                     char **ret_text);
/* Returns whether the remote still has that head or snapshot. Blocks. */
bool past_has(struct past *past, uint64_t number, const char *name);
/* Returns the inodes whose rows differ from those of the state that was shown at the last
 * past_take_changes(), in any order, some more than once; NULL: not known, maybe all.
 * past_take_changes() clears the list. */
const struct past_inos *past_changes(const struct past *past);
void past_take_changes(struct past *past);
