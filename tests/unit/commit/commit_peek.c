// SPDX-License-Identifier: Apache-2.0
#include "commit_peek.h"

#include "commit/internal.h"

unsigned seals_due(struct store *store)
{
    LOCK_SCOPE(&store->commit->history.lock);
    return store->commit->history.due_count;
}

uint64_t room_granted(struct store *store)
{
    LOCK_SCOPE(&store->commit->room.lock);
    return store->commit->room.granted;
}
