// SPDX-License-Identifier: Apache-2.0
/* The requests of the control socket, and the answers to most of them. */

#include "base/clock.h"
#include "base/log.h"
#include "daemon/control.h"
#include "daemon/service_internal.h"

#define HOLDS_MAX 3

/* If several nodes write the remote, nothing is sealed for a moment around each round: waits for
 * its end. -EAGAIN: the log is full. */
static int seal_below(struct service *service, uint64_t ino)
{
    struct history *history = service->commit->history;
    int r = history_seal_below(history, ino);
    for (int i = 0; r == -EAGAIN && i < HOLDS_MAX; i++) {
        int64_t ns = history_hold_ns(history) + MS_NS; /* it may just have ended */
        (void)nanosleep(&(struct timespec){.tv_nsec = ns}, NULL);
        r = history_seal_below(history, ino);
    }
    return r;
}

/* Seals drafts below `ino`. *ret_seq: the operation that the horizon of NVMe must include. */
static int need_nvme(struct service *service, uint64_t ino, uint64_t *ret_seq)
{
    int r = seal_below(service, ino);
    if (r == 0)
        *ret_seq = ns_last_change(store_ns(service->store), ino);
    return r;
}

/* An operation's number says nothing in another generation, in which numbers begin again from an
 * earlier one. */
static void add_seq(struct service *service, uint64_t seq, cJSON *reply)
{
    control_add_u64(reply, "seq", seq);
    control_add_u64(reply, "generation", store_generation(service->store));
}

cJSON *handle_need(struct service *service, const cJSON *request)
{
    uint64_t ino, seq = 0;
    const char *level = json_text(request, "level");
    if (!control_get_u64(request, "ino", &ino) || !level)
        return control_error(EINVAL, "need: ino or level is missing");
    bool remote = strcmp(level, "remote") == 0;
    if (!remote && strcmp(level, "nvme") != 0 && strcmp(level, "stage") != 0)
        return control_error(EINVAL, "unknown level; use stage, nvme or remote");
    if (remote && !remote_side_is_usable(service))
        return remote_side_refusal(service);
    int r = strcmp(level, "stage") == 0 ? 0 : need_nvme(service, ino, &seq);
    if (r == 0 && remote)
        r = remote_side_need(service, ino, &seq);
    if (r < 0)
        return control_error(-r, strerror(-r));
    cJSON *reply = cJSON_CreateObject();
    add_seq(service, seq, reply);
    control_add_u64(reply, "bytes",
                    remote ? remote_side_missing_bytes(service, seq)
                           : store_missing_bytes(service->store, seq));
    return reply;
}

/* Reports how much of a file is not safely in the remote, although its horizon has passed it. */
cJSON *handle_damaged(struct service *service, const cJSON *request)
{
    uint64_t ino;
    struct fetch_unsafe unsafe;
    if (!control_get_u64(request, "ino", &ino))
        return control_error(EINVAL, "damaged: ino is missing");
    int r = fetch_remote_damaged(service->store, ino, &unsafe);
    if (r < 0 && r != -ENOENT)
        return control_error(-r, strerror(-r));
    cJSON *reply = cJSON_CreateObject();
    control_add_u64(reply, "bytes", unsafe.lost_bytes);
    control_add_u64(reply, "pending_bytes", unsafe.pending_bytes);
    return reply;
}

cJSON *handle_horizon(struct service *service, const cJSON *request)
{
    (void)request;
    struct store_status s;
    store_status(service->store, &s);
    cJSON *reply = cJSON_CreateObject();
    control_add_u64(reply, "nvme", s.nvme.horizon_seq);
    control_add_u64(reply, "newest", s.newest_seq);
    control_add_u64(reply, "generation", store_generation(service->store));
    control_add_u64(reply, "missing_bytes", store_missing_bytes(service->store, s.newest_seq));
    if (s.nvme.errors && clock_monotonic_ns() - s.nvme.last_error_ns < URGENT_LEASE_NS)
        (void)cJSON_AddStringToObject(reply, "error", s.nvme.last_error);
    (void)cJSON_AddBoolToObject(reply, "nvme_refuses", room_refuses(service->commit->room));
    remote_side_add_horizon(service, s.newest_seq, reply);
    return reply;
}

static bool asks_for_remote_level(const cJSON *request)
{
    return strcmp(json_text_or(request, "level", ""), "remote") == 0;
}

cJSON *handle_urgent(struct service *service, const cJSON *request)
{
    bool on = json_true(request, "on");
    int64_t until = on ? clock_monotonic_ns() + URGENT_LEASE_NS : 0;
    horizon_urge(service->commit->horizon, until);
    if (asks_for_remote_level(request))
        remote_side_urge(service, until);
    return cJSON_CreateObject();
}

cJSON *handle_drain(struct service *service, const cJSON *request)
{
    const cJSON *at_end = json_part(request, "at_end");
    bool remote = asks_for_remote_level(request);
    if (remote && !remote_side_is_usable(service))
        return remote_side_refusal(service);
    if (remote && at_end)
        remote_side_drain_at_end(service, cJSON_IsTrue(at_end));
    int r = seal_below(service, ROOT_INO);
    if (r < 0)
        return control_error(-r, strerror(-r));
    cJSON *reply = cJSON_CreateObject();
    add_seq(service, history_newest(service->commit->history), reply);
    return reply;
}

/* The mount was removed from its mountpoint, and must end wherever else it is mounted; its data is
 * written to NVMe first. */
cJSON *handle_end(struct service *service, const cJSON *request)
{
    (void)request;
    cJSON *reply = cJSON_CreateObject();
    (void)cJSON_AddBoolToObject(reply, "serves", !front_is_over(service->front));
    log_info("asked to end: unmounting everywhere else, too");
    service_stop(service);
    return reply;
}

cJSON *handle_ping(struct service *service, const cJSON *request)
{
    (void)request;
    cJSON *reply = cJSON_CreateObject();
    control_add_u64(reply, "pid", (uint64_t)getpid());
    if (service->options->log_path)
        (void)cJSON_AddStringToObject(reply, "log", service->options->log_path);
    _cleanup_free_ char *options = options_print(service->options);
    (void)cJSON_AddStringToObject(reply, "options", options);
    (void)cJSON_AddStringToObject(reply, "stage", commit_stage_directory(service->commit));
    return reply;
}

cJSON *service_handle(const cJSON *request, void *arg)
{
#define HANDLER(verb) {#verb, handle_##verb},
    static const struct {
        const char *verb;
        cJSON *(*handle)(struct service *service, const cJSON *request);
    } verbs[] = {SERVICE_VERBS(HANDLER)};
    const char *verb = json_text(request, "verb");
    for (size_t i = 0; verb && i < ARRAY_LEN(verbs); i++)
        if (strcmp(verb, verbs[i].verb) == 0)
            return verbs[i].handle(arg, request);
    return control_error(EINVAL, "unknown verb");
}

/* --- offline ---------------------------------------------------------------------------------- */

int service_fsck(const char *store, void (*report)(const char *line, bool is_problem, void *arg),
                 void *arg)
{
    return store_fsck(store, report, arg);
}

int service_repair(const char *store, void (*report)(const char *line, bool is_problem, void *arg),
                   void *arg, bool *ret_truncated)
{
    return store_repair(store, report, arg, ret_truncated);
}

int service_left_stage(const char *store, char **ret_stage)
{
    return store_open_session(store, ret_stage);
}

int service_unpublished(const char *store, uint64_t *ret_changes, uint64_t *ret_bytes)
{
    struct remote_unpublished total = {0};
    int r = store_peek_unpublished(store, &total);
    *ret_changes = total.inodes;
    *ret_bytes = total.bytes;
    return r;
}
