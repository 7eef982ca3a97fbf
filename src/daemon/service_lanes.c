// SPDX-License-Identifier: Apache-2.0
/* Programs that save lazily through this mount (libcairn), in the status. */
#include "base/clock.h"
#include "daemon/control.h"
#include "daemon/service_internal.h"

struct lane_sums {
    cJSON *clients;
    int64_t now;
    uint64_t pending_bytes, pending_saves, blocked_ns, published, failed;
};

static void add_lane(const struct fs_lane *lane, void *arg)
{
    struct lane_sums *sums = arg;
    cJSON *item = cJSON_CreateObject();
    control_add_u64(item, "pid", (uint64_t)lane->process.pid);
    (void)cJSON_AddStringToObject(item, "program", lane->process.name);
    control_add_u64(item, "uid", lane->uid);
    control_add_u64(item, "pending_bytes", lane->pending_bytes);
    control_add_u64(item, "pending_saves", lane->pending_saves);
    (void)cJSON_AddNumberToObject(item, "blocked_seconds", (double)lane->blocked_ns / 1e9);
    control_add_u64(item, "published", lane->published);
    control_add_u64(item, "failed", lane->failed);
    if (*lane->error)
        (void)cJSON_AddStringToObject(item, "last_error", lane->error);
    (void)cJSON_AddNumberToObject(item, "seen_s_ago",
                                  (double)((sums->now - lane->seen) / 1000000) / 1000);
    (void)cJSON_AddItemToArray(sums->clients, item);
    /* The numbers are what programs say: a sum may be any number. */
    sums->pending_bytes += lane->pending_bytes;
    sums->pending_saves += lane->pending_saves;
    sums->blocked_ns += lane->blocked_ns;
    sums->published += lane->published;
    sums->failed += lane->failed;
}

void service_add_lanes(const struct service *service, cJSON *status)
{
    cJSON *lanes = cJSON_AddObjectToObject(status, "lanes");
    struct lane_sums sums = {.clients = cJSON_AddArrayToObject(lanes, "clients"),
                             .now = clock_monotonic_ns()};
    uint64_t forgotten = 0;
    if (service->fs)
        fs_lanes(service->fs, add_lane, &sums, &forgotten);
    control_add_u64(lanes, "pending_bytes", sums.pending_bytes);
    control_add_u64(lanes, "pending_saves", sums.pending_saves);
    (void)cJSON_AddNumberToObject(lanes, "blocked_seconds", (double)sums.blocked_ns / 1e9);
    control_add_u64(lanes, "published", sums.published);
    control_add_u64(lanes, "failed", sums.failed);
    control_add_u64(lanes, "forgotten", forgotten);
}
