// SPDX-License-Identifier: Apache-2.0
/* Requests of a mount that is one of several nodes. */
#include <stdio.h>

#include "base/clock.h"
#include "daemon/control.h"
#include "daemon/service_internal.h"
#include "nodes/node.h"
#include "nodes/roll.h"

static cJSON *refuse_single(void)
{
    return control_error(EOPNOTSUPP, "this mount is not one of several nodes: it has no -o nodes");
}

static void add_seconds(cJSON *object, const char *name, int64_t ns)
{
    (void)cJSON_AddNumberToObject(object, name, (double)(ns / 1000000) / 1000);
}

static cJSON *describe_stay(const struct roll_stay *stay)
{
    static const char *const states[] = {[ROLL_LIVES] = "lives",
                                         [ROLL_SILENT] = "silent",
                                         [ROLL_LEFT] = "left",
                                         [ROLL_ENDED] = "ended"};
    cJSON *one = cJSON_CreateObject();
    control_add_u64(one, "epoch", stay->epoch);
    control_add_u64(one, "node", stay->node);
    (void)cJSON_AddStringToObject(one, "holder", stay->holder);
    (void)cJSON_AddBoolToObject(one, "is_this", stay->is_own);
    (void)cJSON_AddStringToObject(one, "state", states[stay->state]);
    control_add_u64(one, "round", stay->round);
    control_add_u64(one, "merged", stay->merged);
    add_seconds(one, "behind_s", stay->behind_ns);
    add_seconds(one, "heard_s_ago", stay->heard_ns);
    if (stay->clock_error_ns)
        add_seconds(one, "clock_error_s", stay->clock_error_ns);
    if (*stay->why)
        (void)cJSON_AddStringToObject(one, "not_counted", stay->why);
    return one;
}

static void add_union(cJSON *reply, const struct roll *roll)
{
    cJSON *all = cJSON_AddObjectToObject(reply, "union");
    control_add_u64(all, "head", roll->head);
    control_add_u64(all, "generation", roll->generation);
    control_add_u64(all, "round", roll->round);
    if (roll->head)
        add_seconds(all, "age_s", roll->age_ns);
    (void)cJSON_AddBoolToObject(all, "merged_here", roll->merges);
    (void)cJSON_AddStringToObject(all, "merger", roll->merger);
    if (roll->held_back_by)
        control_add_u64(all, "held_back_by", roll->held_back_by);
}

/* Adds whether a job may begin again; this node must be open, too. */
static void add_settled(cJSON *reply, struct service *service, const struct roll *roll)
{
    int64_t left = front_opens(service->front) - clock_boottime_ns();
    char waits_for[sizeof roll->waits_for];
    memcpy(waits_for, roll->waits_for, sizeof waits_for);
    if (!*waits_for && left > 0)
        (void)snprintf(waits_for, sizeof waits_for, "this node opens in %.1f s",
                       (double)left / 1e9);
    (void)cJSON_AddBoolToObject(reply, "settled", !*waits_for);
    if (*waits_for)
        (void)cJSON_AddStringToObject(reply, "waits_for", waits_for);
}

static cJSON *describe_roll(struct service *service, const struct roll *roll)
{
    char trouble[256];
    cJSON *reply = cJSON_CreateObject();
    control_add_u64(reply, "number", roll->number);
    (void)cJSON_AddBoolToObject(reply, "running", roll->is_running);
    if (roll->error < 0)
        (void)cJSON_AddStringToObject(reply, "failed", roll->error_text);
    if (roll->is_running || roll->error < 0)
        return reply;
    add_seconds(reply, "lease_s", roll->lease_ns);
    node_trouble(store_node(service->store), trouble, sizeof trouble);
    if (*trouble)
        (void)cJSON_AddStringToObject(reply, "not_told", trouble);
    add_settled(reply, service, roll);
    add_union(reply, roll);
    cJSON *nodes = cJSON_AddArrayToObject(reply, "nodes");
    for (size_t i = 0; i < roll->stay_count; i++)
        (void)cJSON_AddItemToArray(nodes, describe_stay(&roll->stays[i]));
    return reply;
}

cJSON *handle_nodes(struct service *service, const cJSON *request)
{
    struct node *node = store_node(service->store);
    struct roll roll = {0};
    struct roll_before before = {0};
    uint64_t number;
    if (!node)
        return refuse_single();
    if (control_get_u64(request, "end", &before.epoch))
        before.fn = node_end_epoch;
    int r = before.fn || json_true(request, "look") ? node_roll_start(node, &before, &number) : 0;
    if (r < 0)
        return control_error(-r, r == -EBUSY ? "another command looks at the nodes; try again"
                                             : strerror(-r));
    node_roll(node, &roll);
    cJSON *reply = describe_roll(service, &roll);
    roll_done(&roll);
    return reply;
}

cJSON *handle_rejoin(struct service *service, const cJSON *request)
{
    uint64_t pid = 0;
    if (!store_node(service->store))
        return refuse_single();
    (void)control_get_u64(request, json_part(request, "pid") ? "pid" : "peer", &pid);
    if (pid > INT32_MAX)
        return control_error(EINVAL, "rejoin: there is no such pid");
    int r = front_rejoin(service->front, (pid_t)pid);
    if (r == -ESRCH)
        return control_error(ESRCH, "the daemon sees no such process, or neither the leader of its "
                                    "process group nor that of its session");
    return r < 0 ? control_error(-r, strerror(-r)) : cJSON_CreateObject();
}
