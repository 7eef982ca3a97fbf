// SPDX-License-Identifier: Apache-2.0
/* Jobs of the control socket that fetch files to NVMe or evict them. */
#include "daemon/control.h"
#include "daemon/service_internal.h"

cJSON *handle_warm(struct service *service, const cJSON *request)
{
    uint64_t ino, job;
    bool evicts = json_true(request, "evict");
    if (!control_get_u64(request, "ino", &ino))
        return control_error(EINVAL, "warm: ino is missing");
    int r = fetch_warm_start(service->store, ino, evicts, &job);
    if (r == -ENOTCONN)
        return control_error(ENOTCONN,
                             "no remote is configured: all data is on NVMe; mount with --remote");
    if (r == -EBUSY)
        return control_error(EBUSY,
                             "too many of these jobs are running; try again when one has ended");
    if (r < 0)
        return control_error(-r, strerror(-r));
    cJSON *reply = cJSON_CreateObject();
    control_add_u64(reply, "job", job);
    return reply;
}

cJSON *handle_warm_status(struct service *service, const cJSON *request)
{
    struct warm_status s;
    struct remote_status remote;
    uint64_t job;
    if (!control_get_u64(request, "job", &job))
        return control_error(EINVAL, "warm_status: job is missing");
    bool cancel = json_true(request, "cancel");
    if (fetch_warm_status(service->store, job, cancel, &s) < 0)
        return control_error(ENOENT, "it has ended, and its result is no longer known");
    remote_get_status(service->store, &remote);
    cJSON *reply = cJSON_CreateObject();
    control_add_u64(reply, "total_bytes", s.total_bytes);
    control_add_u64(reply, "done_bytes", s.done_bytes);
    control_add_u64(reply, "failed_bytes", s.failed_bytes);
    control_add_u64(reply, "not_kept_bytes", s.not_kept_bytes);
    control_add_u64(reply, "other_bytes", s.other_bytes);
    control_add_u64(reply, "dropped_bytes", s.dropped_bytes);
    control_add_u64(reply, "pinned_bytes", s.pinned_bytes);
    control_add_u64(reply, "busy_bytes", s.busy_bytes);
    control_add_u64(reply, "unpublished_bytes", s.unpublished_bytes);
    (void)cJSON_AddBoolToObject(reply, "ended", s.ended);
    if (s.error < 0)
        (void)cJSON_AddStringToObject(reply, "failed", strerror(-s.error));
    if (s.failed_bytes)
        (void)cJSON_AddStringToObject(reply, "remote_error", remote.error);
    return reply;
}
