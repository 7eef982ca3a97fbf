// SPDX-License-Identifier: Apache-2.0
/* Inside store/past*.c. */
#pragma once

#include "store/past.h"
#include "view/view.h"

DEFINE_VECTOR(past_inos, uint64_t);

/* The view of the state that is shown. */
struct view *past_view(struct past *past);
/* That reads it; of a remote. */
struct store *past_store(struct past *past);
/* What its newest head says of -o keep. */
struct head_keep;
const struct head_keep *past_keep(const struct past *past);
/* Does the remote have the head still? Blocks. */
bool past_has(struct past *past, uint64_t number);
/* Inodes whose rows differ from those of the state that was shown when they were taken last, in any
 * order, some more than once; NULL: not known, maybe all. Forgotten by past_take_changes(). */
const struct past_inos *past_changes(const struct past *past);
void past_take_changes(struct past *past);
