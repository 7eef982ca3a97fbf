// SPDX-License-Identifier: Apache-2.0
/* Monitoring of a service: its status in the text format of Prometheus, and its health. */
#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "daemon/control.h"
#include "daemon/service_internal.h"

#define RECENT_S 30

static double value_of(const cJSON *item)
{
    uint64_t whole = 0;
    if (cJSON_IsArray(item))
        return cJSON_GetArraySize(item);
    if (cJSON_IsNumber(item))
        return item->valuedouble;
    /* A number of 16 digits or more is a string. */
    return cJSON_IsString(item) &&
                   sscanf(item->valuestring, "%llu", (unsigned long long *)&whole) == 1
               ? (double)whole
               : 0;
}

/* --- the list: [{name, type, help, samples: [{labels, value}]}] ------------------------------- */

/* Returns the samples, for the caller to fill. */
static cJSON *add_metric(cJSON *list, const struct figure *f)
{
    cJSON *one = cJSON_CreateObject();
    _cleanup_free_ char *name = xasprintf("cairnfs_%s", f->metric);
    (void)cJSON_AddStringToObject(one, "name", name);
    (void)cJSON_AddStringToObject(one, "type", figure_grows(f) ? "counter" : "gauge");
    (void)cJSON_AddStringToObject(one, "help", f->help);
    (void)cJSON_AddItemToArray(list, one);
    return cJSON_AddArrayToObject(one, "samples");
}

/* Returns the labels, for the caller to fill. */
static cJSON *add_sample(cJSON *samples, double value)
{
    cJSON *sample = cJSON_CreateObject();
    cJSON *labels = cJSON_AddObjectToObject(sample, "labels");
    (void)cJSON_AddNumberToObject(sample, "value", value);
    (void)cJSON_AddItemToArray(samples, sample);
    return labels;
}

static void add_info(cJSON *list, const cJSON *status)
{
    static const struct figure info = {.metric = "info", .help = "Version, store and mountpoint."};
    static const char *const labels[] = {"version", "store", "store_id", "mountpoint"};
    cJSON *to = add_sample(add_metric(list, &info), 1);
    for (size_t i = 0; i < ARRAY_LEN(labels); i++) {
        const char *value = json_text(status, labels[i]);
        (void)cJSON_AddStringToObject(to, labels[i], value ? value : "");
    }
}

static void add_state(cJSON *list, enum remote_state state)
{
    static const struct figure metric = {.metric = "remote_state",
                                         .help = "1 for the state of the remote."};
    cJSON *samples = add_metric(list, &metric);
    for (enum remote_state i = REMOTE_NONE + 1; i <= REMOTE_FOLLOWING; i++)
        (void)cJSON_AddStringToObject(add_sample(samples, state == i), "state",
                                      remote_state_word(i));
}

/* Adds a sample for each program, or encoding; no metric if there is none. */
static void add_samples_of_array(cJSON *list, const struct figure *f, const cJSON *array)
{
    static const char *const names[] = {"encoding", "pid", "program"};
    const cJSON *item;
    cJSON *samples = cJSON_GetArraySize(array) > 0 ? add_metric(list, f) : NULL;
    cJSON_ArrayForEach(item, array)
    {
        cJSON *labels = add_sample(samples, value_of(json_part(item, f->json)));
        for (size_t i = 0; i < ARRAY_LEN(names); i++) {
            const cJSON *label = json_part(item, names[i]);
            char number[24] = "";
            if (cJSON_IsNumber(label))
                (void)snprintf(number, sizeof number, "%.0f", label->valuedouble);
            if (label)
                (void)cJSON_AddStringToObject(labels, names[i],
                                              *number ? number : cJSON_GetStringValue(label));
        }
    }
}

static cJSON *metrics_of(struct service *service)
{
    struct snapshot s;
    cJSON *list = cJSON_CreateArray(), *status = service_status(service, &s);
    add_info(list, status);
    if (s.has & OF_REMOTE)
        add_state(list, s.remote.state);
    for (const struct figure *f = figure_table; f->json; f++) {
        cJSON *group = figure_group(status, f->group, false);
        if (!f->metric || (f->of & ~s.has))
            continue;
        if (figure_is_of_array(f))
            add_samples_of_array(list, f, group);
        else
            (void)add_sample(add_metric(list, f), value_of(json_part(group, f->json)) *
                                                      (f->unit == FIGURE_MILLISECONDS ? 1e-3 : 1));
    }
    cJSON_Delete(status);
    return list;
}

/* --- the text format --- */

/* Writes a label's value: backslash, quote and line end are escaped. Other control characters, and
 * bytes that are no UTF-8, appear as \\xNN or \\uNNNN. */
static void put_escaped(FILE *out, const char *text)
{
    unsigned code;
    for (size_t len; *text; text += len) {
        len = text_utf8_len(text);
        if (*text == '\n')
            (void)fputs("\\n", out);
        else if (text_control_len(text, &code) > 0 || len == 0)
            (void)fprintf(out, code > 0xff ? "\\\\u%04x" : "\\\\x%02x", code);
        else
            (void)fprintf(out, "%s%.*s", *text == '\\' || *text == '"' ? "\\" : "", (int)len, text);
        len = len ? len : 1;
    }
}

static void put_sample(FILE *out, const char *name, const cJSON *sample)
{
    const cJSON *label;
    char between = '{';
    (void)fputs(name, out);
    cJSON_ArrayForEach(label, json_part(sample, "labels"))
    {
        (void)fprintf(out, "%c%s=\"", between, label->string);
        put_escaped(out, label->valuestring);
        (void)fputc('"', out);
        between = ',';
    }
    (void)fprintf(out, "%s %.15g\n", between == ',' ? "}" : "",
                  cJSON_GetNumberValue(json_part(sample, "value")));
}

static char *metrics_text(struct service *service)
{
    char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);
    check(out != NULL);
    cJSON *list = metrics_of(service);
    const cJSON *one, *sample;
    cJSON_ArrayForEach(one, list)
    {
        const char *name = json_text(one, "name");
        (void)fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", name, json_text(one, "help"), name,
                      json_text(one, "type"));
        cJSON_ArrayForEach(sample, json_part(one, "samples"))
        {
            put_sample(out, name, sample);
        }
    }
    cJSON_Delete(list);
    (void)fclose(out);
    return text;
}

cJSON *handle_metrics(struct service *service, const cJSON *request)
{
    cJSON *reply = cJSON_CreateObject();
    if (json_true(request, "json")) {
        (void)cJSON_AddItemToObject(reply, "metrics", metrics_of(service));
        return reply;
    }
    _cleanup_free_ char *text = metrics_text(service);
    (void)cJSON_AddStringToObject(reply, "text", text);
    return reply;
}

/* --- over HTTP -------------------------------------------------------------------------------- */

static char *serve_metrics(void *arg)
{
    struct service *service = arg;
    return atomic_load(&service->life) == SERVICE_STARTS ? NULL : metrics_text(service);
}

/* Only causes that stop the mount now: a remote that is unreachable for a while does not. */
static char *serve_trouble(void *arg)
{
    struct service *service = arg;
    struct store_status s;
    struct remote_status remote = {.state = REMOTE_NONE};
    if (atomic_load(&service->life) != SERVICE_SERVES)
        return xstrdup(atomic_load(&service->life) == SERVICE_STARTS ? "the mount is starting\n"
                                                                     : "the mount is ending\n");
    store_status(service->store, &s);
    if (service->options->remote.address)
        remote_get_status(service->store, &remote);
    if (remote.state == REMOTE_FENCED)
        return xasprintf("another writer has taken over the remote: %s\n", remote.error);
    if (s.nvme.stage_is_lost)
        return xstrdup("the files of the stage were removed: data not yet on NVMe is lost if the "
                       "daemon dies; unmount and mount again\n");
    const char *stays = atomic_load(&service->renewal.stays);
    if (s.nvme.view_is_lost)
        return xasprintf("the view is damaged: lookups may fail, and writers will block; %s%s\n",
                         stays ? "it is not rebuilt now: " : "it is about to be rebuilt",
                         stays ? stays : "");
    if (s.nvme.is_full)
        return xstrdup("NVMe is full and nothing can be evicted: programs get ENOSPC\n");
    if (s.nvme.errors && s.behind_bytes > 0 &&
        clock_monotonic_ns() - s.nvme.last_error_ns < RECENT_S * 1000000000ll)
        return xasprintf("writes to NVMe are failing; retrying: %s\n", s.nvme.last_error);
    return NULL;
}

int service_metrics_start(struct service *service, struct service_error *ret_error)
{
    const char *address = service->options->metrics;
    struct metrics_source source = {serve_metrics, serve_trouble, service};
    char *text = NULL;
    if (!address)
        return 0;
    int r = metrics_server_start(address, &source, &service->metrics, &text);
    if (r < 0)
        *ret_error = (struct service_error){MOUNT_SYSTEM, text};
    else
        log_info("metrics: serving http://%s/metrics and /healthz to all that reach that address",
                 address);
    return r;
}
