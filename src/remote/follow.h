// SPDX-License-Identifier: Apache-2.0
/* A store that follows another writer's heads. */
#pragma once

#include "base/base.h"

struct head;
struct store;

/* Looks for a newer head now: on return the newest usable one is shown. Not in the remote's
 * thread. */
void follow_look_now(struct store *store);
/* As follow_look_now(), without a mount, for a store that is only read: switches its view from
 * `known` to `head`, whose runs are in STORE/runs. Calls `changed` for each inode whose row
 * differs. */
CAIRN_MUST_CHECK int follow_show(struct store *store, const struct head *known,
                                 const struct head *head, void (*changed)(uint64_t ino, void *arg),
                                 void *arg);
/* A round of the writeback thread: makes the change requested by the remote's thread. */
bool follow_round(struct store *store, bool now);
