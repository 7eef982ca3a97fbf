// SPDX-License-Identifier: Apache-2.0
/* The least rate of a transfer, for a caller that gives up what is too slow: a peer that sends a
 * byte now and then must not hold it for ever. E.g. with a limit of 15 s, 15 KiB must move within
 * every 15 s. */
#pragma once

#include "base/clock.h"

#define PACE_LEAST 1024 /* bytes a second */

struct pace {
    int64_t since_ns; /* monotonic: the last time that enough had moved */
    uint64_t moved;   /* bytes then */
};

static inline void pace_restart(struct pace *pace, uint64_t moved)
{
    *pace = (struct pace){clock_monotonic_ns(), moved};
}

/* Restarts the clock if the `moved` bytes of now are enough more than those of then. */
static inline void pace_note(struct pace *pace, uint64_t moved, int64_t limit_ns)
{
    if (moved < pace->moved)
        pace->moved = moved; /* the transfer began anew */
    if ((double)(moved - pace->moved) >= PACE_LEAST * ((double)limit_ns / SECOND_NS))
        pace_restart(pace, moved);
}
