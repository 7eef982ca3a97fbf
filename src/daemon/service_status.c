// SPDX-License-Identifier: Apache-2.0
/* The status of a mount, or of a store that is not mounted. Its numbers are those of figure_table;
 * texts and lists are added here. */
#include <stdio.h>

#include "base/clock.h"
#include "base/hex.h"
#include "codec/encode.h"
#include "daemon/control.h"
#include "daemon/service_internal.h"

/* --- figures ---------------------------------------------------------------------------------- */

static void add_figure(cJSON *object, const struct figure *f, const void *from)
{
    const void *at = (const char *)from + f->offset;
    switch (f->kind) {
    case FIGURE_ELSEWHERE:
        break;
    case FIGURE_U64:
        control_add_u64(object, f->json, *(const uint64_t *)at);
        break;
    case FIGURE_UNSIGNED:
        control_add_u64(object, f->json, *(const unsigned *)at);
        break;
    case FIGURE_BOOL:
        (void)cJSON_AddBoolToObject(object, f->json, *(const bool *)at);
        break;
    case FIGURE_DOUBLE:
        if (*(const double *)at >= 0)
            (void)cJSON_AddNumberToObject(object, f->json, *(const double *)at);
        break;
    case FIGURE_NANOSECONDS:
        (void)cJSON_AddNumberToObject(object, f->json, (double)*(const uint64_t *)at / 1e9);
        break;
    }
}

static void add_figures(cJSON *status, const struct snapshot *s)
{
    for (const struct figure *f = figure_table; f->json; f++)
        if (f->kind != FIGURE_ELSEWHERE && (f->of & ~s->has) == 0 && !figure_is_of_array(f))
            add_figure(figure_group(status, f->group, true), f, s);
}

/* Adds the figures of an item of an array. */
static void add_item_figures(cJSON *item, const char *group, const void *from)
{
    for (const struct figure *f = figure_table; f->json; f++)
        if (strcmp(f->group, group) == 0)
            add_figure(item, f, from);
}

static void add_text(cJSON *status, const char *group, const char *name, const char *text)
{
    if (text && *text)
        (void)cJSON_AddStringToObject(figure_group(status, group, true), name, text);
}

/* --- lists ------------------------------------------------------------------------------------ */

/* Adds the bytes of the chunks that were written to a tier, by encoding; returns the bytes that
 * this saved. */
static uint64_t add_encodings(cJSON *status, const char *group, const struct encode_counts *counts)
{
    uint64_t saved = 0;
    _cleanup_free_ char *items = xasprintf("%s.encodings[]", group);
    cJSON *list = cJSON_AddArrayToObject(figure_group(status, group, true), "encodings");
    for (unsigned i = 0; i < CHUNK_ENCODINGS; i++) {
        cJSON *one = cJSON_CreateObject();
        (void)cJSON_AddStringToObject(one, "encoding", chunk_encoding_name((uint8_t)i));
        add_item_figures(one, items, &counts->bytes[i]);
        (void)cJSON_AddItemToArray(list, one);
        saved += counts->bytes[i].raw - counts->bytes[i].stored;
    }
    return saved;
}

struct lane_list {
    cJSON *clients;
    struct fs_lane *sums;
    int64_t now;
};

static void add_lane(const struct fs_lane *lane, void *arg)
{
    struct lane_list *list = arg;
    cJSON *item = cJSON_CreateObject();
    control_add_u64(item, "pid", (uint64_t)lane->process.pid);
    (void)cJSON_AddStringToObject(item, "program", lane->process.name);
    add_item_figures(item, "lanes.clients[]", lane);
    if (*lane->error)
        (void)cJSON_AddStringToObject(item, "last_error", lane->error);
    (void)cJSON_AddNumberToObject(item, "seen_s_ago",
                                  (double)((list->now - lane->seen) / 1000000) / 1000);
    (void)cJSON_AddItemToArray(list->clients, item);
    /* Programs report these numbers: a sum may be any number. */
    list->sums->pending_bytes += lane->pending_bytes;
    list->sums->pending_saves += lane->pending_saves;
    list->sums->blocked_ns += lane->blocked_ns;
    list->sums->published += lane->published;
    list->sums->failed += lane->failed;
}

/* Programs that save lazily through this mount (libcairn). */
static cJSON *list_lanes(const struct service *service, struct snapshot *s)
{
    struct lane_list list = {
        .clients = cJSON_CreateArray(), .sums = &s->lanes, .now = clock_monotonic_ns()};
    if (service->fs)
        fs_lanes(service->fs, add_lane, &list, &s->lanes_forgotten);
    return list.clients;
}

/* One item for each file, with the first of its damaged chunks, and how many there are. */
static void add_damage(const char *path, const char *what, void *arg)
{
    cJSON *item;
    cJSON_ArrayForEach(item, (cJSON *)arg)
    {
        cJSON *chunks = json_part(item, "chunks");
        if (strcmp(json_text(item, "path"), path) != 0)
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

/* --- the whole -------------------------------------------------------------------------------- */

static uint64_t resident_bytes(void)
{
    unsigned long long resident = 0;
    FILE *f = fopen("/proc/self/statm", "re");
    if (f && fscanf(f, "%*u %llu", &resident) != 1)
        resident = 0;
    if (f)
        (void)fclose(f);
    return resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void add_identity(cJSON *status, const char *store, const struct store_status *s)
{
    char id[33];
    hex_print(id, s->store_id, sizeof s->store_id);
    (void)cJSON_AddStringToObject(status, "version", CAIRN_VERSION);
    (void)cJSON_AddStringToObject(status, "store", store);
    (void)cJSON_AddStringToObject(status, "store_id", id);
}

/* Adds texts, lists, and the figures that are computed from the lists. */
static void add_store(cJSON *status, const char *path, struct snapshot *s)
{
    add_identity(status, path, &s->store);
    add_text(status, "nvme", "path", path);
    s->reduced_bytes = add_encodings(status, "nvme.reduction", &s->store.nvme.encoded);
    if (s->store.nvme.errors == 0)
        return;
    s->has |= OF_ERROR;
    s->last_error_s_ago =
        (uint64_t)(clock_monotonic_ns() - s->store.nvme.last_error_ns) / 1000000000;
    add_text(status, "nvme", "last_error", s->store.nvme.last_error);
}

static void add_remote(const struct service *service, cJSON *status, struct snapshot *s)
{
    add_text(status, "remote", "state", remote_state_word(s->remote.state));
    if (s->remote.state == REMOTE_NONE)
        return;
    add_text(status, "remote", "name", s->remote.name);
    add_text(status, "remote", "at", service->options->remote.at);
    add_text(status, "remote", "error", s->remote.error);
    if (s->remote.nodes.is_node) {
        add_text(status, "remote.nodes", "merger", s->remote.nodes.merger);
        add_text(status, "remote.nodes", "waits_for", s->remote.nodes.waits_for);
        add_text(status, "remote.nodes", "held_back_by", s->remote.nodes.held_back_by);
        add_text(status, "remote.nodes", "trouble", s->remote.nodes.trouble);
        add_text(status, "remote.nodes", "not_shown", s->take.trouble);
    }
    s->remote_reduced_bytes = add_encodings(status, "remote.reduction", &s->remote.encoded);
}

/* Adds the deaths of the mount's daemons, and the result for calls in progress at the last one. */
static void add_successor(const struct service *service, cJSON *status, struct snapshot *s)
{
    const struct holder_link *holder_link = service->plan.holder_link;
    s->has_holder = service_has_holder(service);
    s->successor_ready = s->has_holder;
    s->wants_holder = holder_link != NULL;
    s->deaths = holder_link ? holder_link->deaths : 0;
    s->view_deaths = holder_link ? holder_link->view_deaths : 0;
    s->pause_s = (double)service->pause_ns / 1e9;
    service_upgrade_add_status(service, figure_group(status, "mount.successor", true));
    if (!s->front.is_adopted)
        return;
    s->has |= OF_ADOPTED;
    (void)cJSON_AddStringToObject(figure_group(status, "mount.successor", true), "last_death",
                                  holder_link->last_death);
}

static void take_snapshot(struct service *service, struct snapshot *s)
{
    *s = (struct snapshot){.has = OF_MOUNT, .pid = (uint64_t)getpid()};
    store_status(service->store, &s->store);
    remote_side_look(service, s);
    service_take_look(service, s);
    if (service->front)
        front_status(service->front, &s->front);
    s->stage = stage_usage(store_stage(service->store));
    s->uptime_s = (uint64_t)(clock_monotonic_ns() - service->started) / 1000000000;
    s->stage_is_removed = s->store.nvme.stage_is_lost;
    s->resident_bytes = resident_bytes();
    s->snapshots = store_snapshots_cost(service->store);
}

/* Scripts may look for the first line with "pid" or "store": the lists of other processes and files
 * come last. */
cJSON *service_status(struct service *service, struct snapshot *s)
{
    cJSON *status = cJSON_CreateObject(), *damage = cJSON_CreateArray(),
          *errors = cJSON_CreateArray();
    const char *stays = atomic_load(&service->renewal.stays);
    take_snapshot(service, s);
    damage_list(service->commit->damage, add_damage, damage);
    if (service->front)
        front_failures(service->front, add_failure, errors, &s->errors_total, &s->errors_forgotten);
    cJSON *lanes = list_lanes(service, s);
    add_store(status, service->store_path, s);
    add_text(status, "", "mountpoint", service->mountpoint);
    add_text(status, "stage", "dir", commit_stage_directory(service->commit));
    add_text(status, "mount", "write", "direct");
    if (service->shown) {
        add_text(status, "mount", "at", service->options->remote.at);
        control_add_u64(figure_group(status, "mount", true), "shown_snapshot", service->shown);
    }
    add_successor(service, status, s);
    add_text(status, "view", "not_made_anew", s->store.nvme.view_is_lost ? stays : NULL);
    add_remote(service, status, s);
    add_text(status, "memory", "formula", s->store.memory_formula);
    add_figures(status, s);
    (void)cJSON_AddItemToObject(figure_group(status, "lanes", true), "clients", lanes);
    (void)cJSON_AddItemToObject(status, "damage", damage);
    (void)cJSON_AddItemToObject(status, "errors", errors);
    return status;
}

cJSON *handle_status(struct service *service, const cJSON *request)
{
    struct snapshot s;
    (void)request;
    return service_status(service, &s);
}

int service_offline_status(const char *store, cJSON **ret_status)
{
    struct snapshot s = {0};
    TRY(store_peek(store, &s.store));
    cJSON *status = cJSON_CreateObject();
    add_store(status, store, &s);
    add_figures(status, &s);
    if (s.store.staged_in) {
        add_text(status, "stage", "left_in", s.store.staged_in);
        control_add_u64(figure_group(status, "stage", true), "left_bytes", s.store.staged_bytes);
    }
    free(s.store.staged_in);
    *ret_status = status;
    return 0;
}
