// SPDX-License-Identifier: Apache-2.0
/* Time in nanoseconds. Any thread. */
#pragma once

#include <time.h>

#include "base/base.h"

#define SECOND_NS 1000000000ll
#define MS_NS 1000000ll

static inline int64_t clock_ns(clockid_t id)
{
    struct timespec t;
    (void)clock_gettime(id, &t);
    return (int64_t)t.tv_sec * SECOND_NS + t.tv_nsec;
}

/* For intervals. Stops while the machine sleeps. */
static inline int64_t clock_monotonic_ns(void)
{
    return clock_ns(CLOCK_MONOTONIC);
}

/* For intervals that include the sleep of the machine: time since boot, as in the start times of
 * processes. */
static inline int64_t clock_boottime_ns(void)
{
    return clock_ns(CLOCK_BOOTTIME);
}

/* For file times and records: nanoseconds since 1970. */
static inline int64_t clock_realtime_ns(void)
{
    return clock_ns(CLOCK_REALTIME);
}
