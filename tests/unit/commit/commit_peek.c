// SPDX-License-Identifier: Apache-2.0
#include "commit_peek.h"

#include "commit/history_internal.h"
#include "commit/room_internal.h"
#include "commit/shared.h"

unsigned seals_due(struct store *store)
{
    LOCK_SCOPE(&store->commit.history->lock);
    return store->commit.history->due_count;
}

uint64_t room_granted(struct store *store)
{
    LOCK_SCOPE(&store->commit.room->lock);
    return store->commit.room->granted;
}
