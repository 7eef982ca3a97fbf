// SPDX-License-Identifier: Apache-2.0
/* A store that follows another writer's heads. */
#pragma once

#include "base/base.h"

struct head;
struct store;

/* Looks for a newer head now, and shows it: it is shown on return, or there is none that can be.
 * Not in the remote's thread. */
void follow_look_now(struct store *store);
/* The same without a mount, of a store that is read alone: its view becomes that of `head`, whose
 * runs are in STORE/runs, and was that of `known`. `changed` is told each inode whose row differs.
 */
CAIRN_MUST_CHECK int follow_show(struct store *store, const struct head *known,
                                 const struct head *head, void (*changed)(uint64_t ino, void *arg),
                                 void *arg);
/* A round of the writeback thread: makes the change that the remote's thread asks for. */
bool follow_round(struct store *store, bool now);
