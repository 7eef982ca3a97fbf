// SPDX-License-Identifier: Apache-2.0
/* Which states -o keep chooses. A pure function. */
#pragma once

#include "format/head.h"

struct keep_state {
    uint64_t cut;
    int64_t published;
    bool stays;
};
/* Sets `stays` in the states that the policy chooses; ascending. Neighbours with one cut are one
 * state: only the last of them is considered. */
void keep_choose(const struct head_keep *keep, struct keep_state *states, size_t count);
