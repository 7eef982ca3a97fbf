// SPDX-License-Identifier: Apache-2.0
/* The least rate of a transfer. Without it, a peer that sends a byte now and then could hold a
 * caller for ever. E.g. with a limit of 15 s, 15 KiB must move within every 15 s. */
#pragma once

#include "base/clock.h"

#define PACE_LEAST 1024 /* bytes a second */

struct pace {
    int64_t since_ns; /* monotonic: when enough had moved last */
    uint64_t moved;   /* bytes at `since_ns` */
};

static inline void pace_restart(struct pace *pace, uint64_t moved)
{
    *pace = (struct pace){clock_monotonic_ns(), moved};
}

/* Restarts the clock if `moved`, the bytes so far, has grown enough since `since_ns`. */
static inline void pace_note(struct pace *pace, uint64_t moved, int64_t limit_ns)
{
    if (moved < pace->moved)
        pace->moved = moved; /* the transfer was restarted */
    if ((double)(moved - pace->moved) >= PACE_LEAST * ((double)limit_ns / SECOND_NS))
        pace_restart(pace, moved);
}
