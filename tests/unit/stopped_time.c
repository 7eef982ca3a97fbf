// SPDX-License-Identifier: Apache-2.0
#include "stopped_time.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>

#include "base/clock.h"
#include "base/event.h"

static atomic_bool stopped;
static _Atomic int64_t monotonic, boottime, raw, realtime;

int __real_clock_gettime(clockid_t id, struct timespec *t);
int __wrap_clock_gettime(clockid_t id, struct timespec *t);
int __wrap_clock_gettime(clockid_t id, struct timespec *t)
{
    _Atomic int64_t *ours = id == CLOCK_MONOTONIC       ? &monotonic
                            : id == CLOCK_BOOTTIME      ? &boottime
                            : id == CLOCK_MONOTONIC_RAW ? &raw
                            : id == CLOCK_REALTIME      ? &realtime
                                                        : NULL;
    if (!ours || !atomic_load(&stopped))
        return __real_clock_gettime(id, t);
    int64_t ns = atomic_load(ours);
    *t = (struct timespec){.tv_sec = ns / SECOND_NS, .tv_nsec = ns % SECOND_NS};
    return 0;
}

/* What would wait for a while lets it pass. */
bool __real_event_wait(struct event *event, uint64_t *seen, int64_t until_ns);
bool __wrap_event_wait(struct event *event, uint64_t *seen, int64_t until_ns);
bool __wrap_event_wait(struct event *event, uint64_t *seen, int64_t until_ns)
{
    int64_t ns = until_ns - clock_monotonic_ns();
    bool waits = until_ns != INT64_MAX && ns > 0 && event_count(event) == *seen;
    if (waits && atomic_load(&stopped))
        time_pass(ns);
    return __real_event_wait(event, seen, until_ns);
}

void time_stop(void)
{
    atomic_store(&monotonic, clock_monotonic_ns());
    atomic_store(&boottime, clock_boottime_ns());
    atomic_store(&raw, clock_ns(CLOCK_MONOTONIC_RAW));
    atomic_store(&realtime, clock_realtime_ns());
    atomic_store(&stopped, true);
}

void time_pass(int64_t ns)
{
    atomic_fetch_add(&monotonic, ns);
    atomic_fetch_add(&boottime, ns);
    atomic_fetch_add(&raw, ns);
    atomic_fetch_add(&realtime, ns);
}
