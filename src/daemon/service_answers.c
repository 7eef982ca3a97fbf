// SPDX-License-Identifier: Apache-2.0
/* Answers to the requests of the control socket, and the status of a store that is not mounted. */
#include <stdio.h>

#include "base/clock.h"
#include "base/hex.h"
#include "base/log.h"
#include "daemon/control.h"
#include "daemon/service_internal.h"

static cJSON *answers_add_object(cJSON *parent, const char *name)
{
    return cJSON_AddObjectToObject(parent, name);
}

static struct front_status answers_front_of(const struct service *service)
{
    struct front_status front = {0};
    if (service->front)
        front_status(service->front, &front);
    return front;
}

static void add_stage(const struct service *service, bool is_lost, cJSON *status)
{
    struct stage_usage usage = stage_usage(store_stage(service->store));
    struct front_status front = answers_front_of(service);
    cJSON *stage = answers_add_object(status, "stage");
    (void)cJSON_AddStringToObject(stage, "dir", commit_stage_directory(service->store));
    control_add_u64(stage, "files_removed", is_lost);
    control_add_u64(stage, "total_bytes", usage.total_bytes);
    control_add_u64(stage, "dirty_bytes", usage.dirty_bytes);
    control_add_u64(stage, "clean_bytes", usage.clean_bytes);
    control_add_u64(stage, "free_bytes", usage.free_bytes);
    control_add_u64(stage, "draft_bytes", usage.draft_bytes);
    control_add_u64(stage, "drafts", usage.drafts);
    control_add_u64(stage, "waiting_writers", front.waiting);
    control_add_u64(stage, "wait_count", front.wait_count);
    control_add_u64(stage, "wait_ms_total", front.wait_ms_total);
}

/* Adds the deaths of the mount's daemons, and the fate of calls in progress at the last one. */
static void add_successor(const struct service *service, const struct front_status *front,
                          cJSON *mount)
{
    const struct holder_link *holder_link = service->plan.holder_link;
    cJSON *successor = answers_add_object(mount, "successor");
    (void)cJSON_AddBoolToObject(successor, "kept", service_has_holder(service));
    (void)cJSON_AddBoolToObject(successor, "wanted", holder_link != NULL);
    control_add_u64(mount, "successor_ready", service_has_holder(service));
    control_add_u64(mount, "daemon_deaths", holder_link ? holder_link->deaths : 0);
    control_add_u64(successor, "deaths", holder_link ? holder_link->deaths : 0);
    control_add_u64(successor, "views_made_anew", holder_link ? holder_link->view_deaths : 0);
    service_upgrade_add_status(service, successor);
    if (!front->is_adopted)
        return;
    (void)cJSON_AddStringToObject(successor, "last_death", holder_link->last_death);
    (void)cJSON_AddNumberToObject(successor, "pause_seconds", (double)service->pause_ns / 1e9);
    control_add_u64(successor, "calls_sent_again", front->resent);
    control_add_u64(successor, "calls_answered_from_memory", front->remembered);
    control_add_u64(successor, "calls_lost", front->lost);
}

static void answers_add_mount(const struct service *service, cJSON *status)
{
    struct front_status front = answers_front_of(service);
    cJSON *mount = answers_add_object(status, "mount");
    (void)cJSON_AddStringToObject(mount, "write", "direct");
    (void)cJSON_AddBoolToObject(mount, "mmap_shared", front.mmap_shared);
    control_add_u64(mount, "threads", front.threads);
    control_add_u64(mount, "requests_total", front.requests_total);
    control_add_u64(mount, "written_bytes_total", front.written_bytes_total);
    control_add_u64(mount, "read_bytes_total", front.read_bytes_total);
    control_add_u64(mount, "open_files", stage_usage(store_stage(service->store)).handles);
    add_successor(service, &front, mount);
}

static void add_view_answer(const struct service *service, const struct store_status *s,
                            cJSON *status)
{
    cJSON *view = answers_add_object(status, "view");
    const char *stays = atomic_load(&service->renewal.stays);
    control_add_u64(view, "applied_seq", s->view.applied_seq);
    (void)cJSON_AddBoolToObject(view, "damaged", s->nvme.view_is_lost);
    if (s->nvme.view_is_lost && stays)
        (void)cJSON_AddStringToObject(view, "not_made_anew", stays);
}

static void add_nvme(const char *path, const struct store_status *s, cJSON *status)
{
    cJSON *nvme = answers_add_object(status, "nvme");
    (void)cJSON_AddStringToObject(nvme, "path", path);
    const struct {
        const char *name;
        uint64_t value;
    } numbers[] = {{"cap_bytes", s->cap_bytes},
                   {"used_bytes", s->used_bytes},
                   {"reserved_bytes", s->reserved_bytes},
                   {"available_bytes", s->available_bytes},
                   {"evictable_bytes", s->evictable_bytes},
                   {"files", s->view.files},
                   {"logical_bytes", s->view.logical_bytes},
                   {"stored_bytes", s->view.stored_bytes},
                   {"held_bytes", s->view.held_bytes},
                   {"chunks", s->view.chunks},
                   {"packs", s->view.packs},
                   {"pack_bytes", s->view.pack_bytes},
                   {"horizon_seq", s->nvme.horizon_seq},
                   {"newest_seq", s->newest_seq},
                   {"behind_bytes", s->behind_bytes},
                   {"behind_files", s->behind_files},
                   {"written_bytes_total", s->nvme.written_bytes_total},
                   {"dedup_bytes_total", s->nvme.dedup_bytes_total},
                   {"reduced_bytes_total", service_reduced_bytes(&s->nvme.encoded)},
                   {"evicted_bytes_total", s->evicted_bytes_total},
                   {"healed_chunks_total", s->nvme.healed_chunks_total},
                   {"errors", s->nvme.errors}};
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++)
        control_add_u64(nvme, numbers[i].name, numbers[i].value);
    (void)cJSON_AddNumberToObject(nvme, "seconds_behind", s->seconds_behind);
    service_add_reduction(&s->nvme.encoded, nvme);
    if (s->nvme.errors) {
        (void)cJSON_AddStringToObject(nvme, "last_error", s->nvme.last_error);
        (void)cJSON_AddNumberToObject(
            nvme, "last_error_s_ago",
            (double)((clock_monotonic_ns() - s->nvme.last_error_ns) / 1000000000));
    }
}

static uint64_t resident_bytes(void)
{
    unsigned long long total, resident = 0;
    FILE *f = fopen("/proc/self/statm", "re");
    if (!f)
        return 0;
    if (fscanf(f, "%llu %llu", &total, &resident) != 2)
        resident = 0;
    (void)fclose(f);
    return resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* One item for each file, with the first of its damaged chunks, and how many there are. */
static void add_damage(const char *path, const char *what, void *arg)
{
    cJSON *item;
    cJSON_ArrayForEach(item, (cJSON *)arg)
    {
        cJSON *chunks = cJSON_GetObjectItem(item, "chunks");
        if (strcmp(cJSON_GetStringValue(cJSON_GetObjectItem(item, "path")), path) != 0)
            continue;
        (void)cJSON_SetNumberValue(chunks, cJSON_GetNumberValue(chunks) + 1);
        return;
    }
    item = cJSON_CreateObject();
    (void)cJSON_AddStringToObject(item, "path", path);
    (void)cJSON_AddStringToObject(item, "what", what);
    (void)cJSON_AddNumberToObject(item, "chunks", 1);
    (void)cJSON_AddItemToArray(arg, item);
}

static void add_failure(const struct front_failure *failure, void *arg)
{
    cJSON *item = cJSON_CreateObject();
    (void)cJSON_AddStringToObject(item, "path", failure->path);
    (void)cJSON_AddStringToObject(item, "call", failure->call);
    (void)cJSON_AddNumberToObject(item, "errno", failure->error);
    (void)cJSON_AddStringToObject(item, "error", strerror(failure->error));
    (void)cJSON_AddStringToObject(item, "cause", failure->cause);
    control_add_u64(item, "count", failure->count);
    (void)cJSON_AddNumberToObject(item, "first_s", (double)(failure->first / 1000000) / 1000);
    (void)cJSON_AddNumberToObject(item, "last_s", (double)(failure->last / 1000000) / 1000);
    (void)cJSON_AddItemToArray(arg, item);
}

/* Adds the calls that failed. */
static void add_failures(const struct service *service, cJSON *status)
{
    uint64_t total = 0, forgotten = 0;
    cJSON *errors = cJSON_AddArrayToObject(status, "errors");
    if (service->front)
        front_failures(service->front, add_failure, errors, &total, &forgotten);
    control_add_u64(status, "errors_total", total);
    control_add_u64(status, "errors_forgotten", forgotten);
}

static void add_identity(cJSON *status, const char *store, const struct store_status *s)
{
    char id[33];
    hex_print(id, s->store_id, sizeof s->store_id);
    (void)cJSON_AddStringToObject(status, "version", CAIRN_VERSION);
    (void)cJSON_AddStringToObject(status, "store", store);
    (void)cJSON_AddStringToObject(status, "store_id", id);
}

cJSON *handle_status(struct service *service, const cJSON *request)
{
    (void)request;
    cJSON *status = cJSON_CreateObject();
    struct store_status s;
    store_status(service->store, &s);
    add_identity(status, service->store_path, &s);
    (void)cJSON_AddStringToObject(status, "mountpoint", service->mountpoint);
    control_add_u64(status, "pid", (uint64_t)getpid());
    control_add_u64(status, "epoch", s.epoch);
    (void)cJSON_AddNumberToObject(status, "uptime_s",
                                  (double)((clock_monotonic_ns() - service->started) / 1000000000));
    add_stage(service, s.nvme.stage_is_lost, status);
    answers_add_mount(service, status);
    add_nvme(service->store_path, &s, status);
    add_view_answer(service, &s, status);
    control_add_u64(cJSON_GetObjectItem(status, "nvme"), "dropped_bytes_total",
                    stage_usage(store_stage(service->store)).dropped_bytes_total);
    remote_side_add_status(service, status);
    cJSON *memory = answers_add_object(status, "memory");
    (void)cJSON_AddStringToObject(memory, "formula", s.memory_formula);
    control_add_u64(memory, "bound_bytes", s.memory_bound_bytes);
    control_add_u64(memory, "resident_bytes", resident_bytes());
    damage_list(service->store, add_damage, cJSON_AddArrayToObject(status, "damage"));
    add_failures(service, status);
    service_add_lanes(service, status);
    return status;
}

/* Drafts below `ino` are sealed; what the horizon of NVMe must reach then. */
static int need_nvme(struct service *service, uint64_t ino, uint64_t *ret_seq)
{
    int r = history_seal_below(service->store, ino);
    if (r == 0)
        *ret_seq = ns_last_change(store_ns(service->store), ino);
    return r;
}

cJSON *handle_need(struct service *service, const cJSON *request)
{
    uint64_t ino, seq = 0;
    const char *level = cJSON_GetStringValue(cJSON_GetObjectItem(request, "level"));
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
    control_add_u64(reply, "seq", seq);
    control_add_u64(reply, "bytes",
                    remote ? remote_side_missing_bytes(service, seq)
                           : store_missing_bytes(service->store, seq));
    return reply;
}

/* Tells how much of a file the remote does not have safely, though its horizon says so. */
cJSON *handle_damaged(struct service *service, const cJSON *request)
{
    uint64_t ino;
    struct store_unsafe unsafe;
    if (!control_get_u64(request, "ino", &ino))
        return control_error(EINVAL, "damaged: ino is missing");
    int r = store_remote_damaged(service->store, ino, &unsafe);
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
    control_add_u64(reply, "missing_bytes", store_missing_bytes(service->store, s.newest_seq));
    if (s.nvme.errors && clock_monotonic_ns() - s.nvme.last_error_ns < URGENT_LEASE_NS)
        (void)cJSON_AddStringToObject(reply, "error", s.nvme.last_error);
    (void)cJSON_AddBoolToObject(reply, "nvme_refuses", room_refuses(service->store));
    remote_side_add_horizon(service, s.newest_seq, reply);
    return reply;
}

static bool asks_for_remote_level(const cJSON *request)
{
    const char *level = cJSON_GetStringValue(cJSON_GetObjectItem(request, "level"));
    return level && strcmp(level, "remote") == 0;
}

cJSON *handle_urgent(struct service *service, const cJSON *request)
{
    bool on = cJSON_IsTrue(cJSON_GetObjectItem(request, "on"));
    int64_t until = on ? clock_monotonic_ns() + URGENT_LEASE_NS : 0;
    horizon_urge(service->store, until);
    if (asks_for_remote_level(request))
        remote_side_urge(service, until);
    return cJSON_CreateObject();
}

cJSON *handle_drain(struct service *service, const cJSON *request)
{
    const cJSON *at_end = cJSON_GetObjectItem(request, "at_end");
    bool remote = asks_for_remote_level(request);
    if (remote && !remote_side_is_usable(service))
        return remote_side_refusal(service);
    if (remote && at_end)
        remote_side_drain_at_end(service, cJSON_IsTrue(at_end));
    int r = history_seal_below(service->store, ROOT_INO);
    if (r < 0)
        return control_error(-r, strerror(-r));
    cJSON *reply = cJSON_CreateObject();
    control_add_u64(reply, "seq", history_newest(service->store));
    return reply;
}

/* The mount is gone where it was mounted, and is to end wherever else it is; what was written goes
 * to NVMe first. */
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
    (void)cJSON_AddStringToObject(reply, "stage", commit_stage_directory(service->store));
    return reply;
}

/* --- offline ---------------------------------------------------------------------------------- */

int service_fsck(const char *store, void (*report)(const char *line, bool is_problem, void *arg),
                 void *arg)
{
    return store_fsck(store, report, arg);
}

int service_repair(const char *store, void (*report)(const char *line, bool is_problem, void *arg),
                   void *arg)
{
    return store_repair(store, report, arg);
}

int service_offline_status(const char *store, cJSON **ret_status)
{
    struct store_status s;
    int r = store_peek(store, &s);
    if (r < 0)
        return r;
    cJSON *status = cJSON_CreateObject();
    add_identity(status, store, &s);
    add_nvme(store, &s, status);
    if (s.staged_in) {
        cJSON *stage = answers_add_object(status, "stage");
        (void)cJSON_AddStringToObject(stage, "left_in", s.staged_in);
        control_add_u64(stage, "left_bytes", s.staged_bytes);
    }
    free(s.staged_in);
    *ret_status = status;
    return 0;
}

int service_left_stage(const char *store, char **ret_stage)
{
    return store_open_session(store, ret_stage);
}

int service_unpublished(const char *store, uint64_t *ret_changes, uint64_t *ret_bytes)
{
    struct store_unpublished total = {0};
    int r = store_peek_unpublished(store, &total);
    *ret_changes = total.inodes;
    *ret_bytes = total.bytes;
    return r;
}
