// SPDX-License-Identifier: Apache-2.0
/* A node's own prefix within one that several nodes write, as a tier: packs lie with those of all
 * nodes, since their ids differ, and a list has the node's own alone; all other objects lie below
 * nodes/NODE/. So a node publishes, repairs and removes as if it were alone. */
#pragma once

#include "tier/tier.h"

/* `common`: lent, and closed after it. `is_own`: may an id of this epoch be the node's? Any
 * thread. */
struct tier *node_tier_new(struct tier *common, bool (*is_own)(uint64_t epoch, void *arg),
                           void *arg);
/* Before anything is stored: which node it is. */
void node_tier_set_node(struct tier *tier, uint64_t node);
