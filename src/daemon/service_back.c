// SPDX-License-Identifier: Apache-2.0
/* This node is behind the union, since another node was lost: its daemon ends for a successor,
 * which sets aside the later operations and goes back (store/back.h). Open files end with the
 * daemon. */
#include <signal.h>

#include "base/clock.h"
#include "base/log.h"
#include "daemon/holder_link.h"
#include "daemon/service_internal.h"
#include "store/back.h"

#define BUSY_REST_NS (2ll * 1000000000)
#define TRIES_MAX 3u

/* Nothing is acknowledged any more: calls that change something, and calls that wait to, get an
 * error. */
static void refuse_all(struct service *service)
{
    if (service->back.is_refused)
        return;
    service->back.is_refused = true;
    front_refuse_older(service->front, INT64_MAX);
    if (!service_has_holder(service))
        log_error("nodes: this mount has no successor that would go back with all other nodes: "
                  "unmount and mount again; until then changes fail");
}

void service_back_tick(struct service *service)
{
    uint64_t generation;
    if (!store_is_behind(service->store, &generation) || atomic_load(&service->is_stopped) ||
        atomic_load(&service->upgrade.state) != UPGRADE_NONE)
        return;
    refuse_all(service);
    if (!service_has_holder(service) || clock_monotonic_ns() < service->back.again_at)
        return;
    service->back.again_at = clock_monotonic_ns() + BUSY_REST_NS;
    /* With a kernel that cannot resend calls, those under way fail in the end. */
    bool is_held = front_hold(service->front) == 0;
    if (!is_held && ++service->back.tries < TRIES_MAX)
        return;
    if (back_ask(service->store_path, generation) == 0)
        service_end_for_successor(service, HOLDER_BACK_SIGNAL);
    if (is_held)
        front_release(service->front);
    log_warn("%s/back cannot be written; retrying", service->store_path);
}

/* Called in a thread of the store, before anything is acknowledged; the front may not exist yet. */
void service_on_open(void *arg, int64_t opens)
{
    struct service *service = arg;
    struct front *front = atomic_load(&service->front);
    atomic_store(&service->back.opens, opens);
    if (front)
        front_refuse_older(front, opens);
}
