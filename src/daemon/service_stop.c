// SPDX-License-Identifier: Apache-2.0
/* The end of a service: requesting it, and reporting its progress. */
#include <unistd.h>

#include "base/clock.h"
#include "daemon/service_internal.h"

#define ENDING_STEP_NS 1000000000

void service_stop(struct service *service)
{
    uint64_t one = 1;
    atomic_store(&service->is_stopped, true);
    if (write(service->stop_fd, &one, sizeof one) < 0)
        return; /* the counter is full: the end was requested before */
}

void service_report_ending(struct service *service, uint64_t bytes_left, bool remote,
                           int64_t *reported_at)
{
    int64_t now = clock_monotonic_ns();
    if (!service->plan.ending || (*reported_at && now - *reported_at < ENDING_STEP_NS))
        return;
    *reported_at = now;
    service->plan.ending(bytes_left, remote, service->plan.progress_arg);
}
