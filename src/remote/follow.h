// SPDX-License-Identifier: Apache-2.0
/* A store that follows another writer's heads. */
#pragma once

#include "base/base.h"

struct store;

/* Looks for a newer head now, and shows it: it is shown on return, or there is none that can be.
 * Not in the remote's thread. */
void follow_look_now(struct store *store);
/* A round of the writeback thread: makes the change that the remote's thread asks for. */
bool follow_round(struct store *store, bool now);
