// SPDX-License-Identifier: Apache-2.0
/* A node's own prefix within one that several nodes write, as a tier. Packs are stored together
 * with those of all nodes, as their ids differ, and a list contains only the node's own; all other
 * objects are below nodes/NODE/. So a node publishes, repairs and removes as if it were alone. */
#pragma once

#include "tier/tier.h"

/* `common`: borrowed; closed after this tier. `is_own`: may a pack id of this epoch be the node's?
 * Any thread. */
struct tier *node_tier_new(struct tier *common, bool (*is_own)(uint64_t epoch, void *arg),
                           void *arg);
/* Sets the node's number, before anything is stored. */
void node_tier_set_node(struct tier *tier, uint64_t node);
