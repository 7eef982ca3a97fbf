// SPDX-License-Identifier: Apache-2.0
/* Monitoring of a service: its status in the text format of Prometheus, and its health. */
#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "daemon/control.h"
#include "daemon/service_internal.h"

#define RECENT_S 30

/* One number of the status. */
static const struct metric {
    const char *name, *type, *group, *field;
    double unit; /* of the field, in the base unit */
    const char *help;
} metrics[] = {
    {"requests_total", "counter", "mount", "requests_total", 1, "Answered requests of the kernel."},
    {"successor_ready", "gauge", "mount", "successor_ready", 1,
     "1: a successor takes over the mount if the daemon dies."},
    {"daemon_deaths_total", "counter", "mount", "daemon_deaths", 1,
     "Daemons of the mount that died."},
    {"written_bytes_total", "counter", "mount", "written_bytes_total", 1,
     "Bytes that programs wrote."},
    {"read_bytes_total", "counter", "mount", "read_bytes_total", 1,
     "Bytes that programs read, and that were not in the page cache."},
    {"client_errors_total", "counter", NULL, "errors_total", 1,
     "Correct calls of programs that failed: EIO, ENOSPC and such."},
    {"damaged_files", "gauge", NULL, "damage", 1,
     "Files that could not be read in full since the mount; bounded."},
    {"uptime_seconds", "gauge", NULL, "uptime_s", 1, "Time since the mount."},
    {"stage_size_bytes", "gauge", "stage", "total_bytes", 1, "Size of the stage."},
    {"stage_dirty_bytes", "gauge", "stage", "dirty_bytes", 1,
     "Data in the stage that is not on NVMe yet."},
    {"stage_clean_bytes", "gauge", "stage", "clean_bytes", 1,
     "Data kept in the stage for reading."},
    {"stage_free_bytes", "gauge", "stage", "free_bytes", 1, "Free space in the stage."},
    {"stage_files_removed", "gauge", "stage", "files_removed", 1,
     "1: the files of the stage were removed; it is lost if the daemon dies."},
    {"drafts", "gauge", "stage", "drafts", 1, "Files that are being written."},
    {"draft_bytes", "gauge", "stage", "draft_bytes", 1, "Bytes of these in the stage."},
    {"waiting_writers", "gauge", "stage", "waiting_writers", 1,
     "Requests that wait for space now."},
    {"waits_total", "counter", "stage", "wait_count", 1, "Requests that had to wait for space."},
    {"wait_seconds_total", "counter", "stage", "wait_ms_total", 1e-3,
     "Total time that these waited."},
    {"nvme_cap_bytes", "gauge", "nvme", "cap_bytes", 1, "Maximum size of the store on its disk."},
    {"nvme_used_bytes", "gauge", "nvme", "used_bytes", 1, "Size of the store on its disk."},
    {"nvme_reserved_bytes", "gauge", "nvme", "reserved_bytes", 1,
     "Space reserved for data in the stage."},
    {"nvme_available_bytes", "gauge", "nvme", "available_bytes", 1,
     "Space left before data is evicted."},
    {"nvme_evictable_bytes", "gauge", "nvme", "evictable_bytes", 1,
     "Space that eviction would free: the remote has the data."},
    {"files", "gauge", "nvme", "files", 1, "Regular files."},
    {"logical_bytes", "gauge", "nvme", "logical_bytes", 1, "Sum of their sizes."},
    {"stored_bytes", "gauge", "nvme", "stored_bytes", 1,
     "Size of their chunks, each once, as stored."},
    {"held_bytes", "gauge", "nvme", "held_bytes", 1,
     "Of that, what no file has, and chunks of files are stored by."},
    {"chunks", "gauge", "nvme", "chunks", 1, "Chunks that files refer to."},
    {"nvme_packs", "gauge", "nvme", "packs", 1, "Packs on NVMe."},
    {"nvme_pack_bytes", "gauge", "nvme", "pack_bytes", 1, "Their size."},
    {"nvme_behind_bytes", "gauge", "nvme", "behind_bytes", 1, "Data that is not on NVMe yet."},
    {"nvme_behind_files", "gauge", "nvme", "behind_files", 1,
     "Files with data that is not on NVMe yet."},
    {"nvme_behind_seconds", "gauge", "nvme", "seconds_behind", 1,
     "Age of the oldest operation that is not on NVMe."},
    {"nvme_written_bytes_total", "counter", "nvme", "written_bytes_total", 1,
     "Bytes that were written to NVMe, as stored."},
    {"dedup_bytes_total", "counter", "nvme", "dedup_bytes_total", 1,
     "Bytes that were stored already (deduplicated)."},
    {"reduced_bytes_total", "counter", "nvme", "reduced_bytes_total", 1,
     "Bytes saved by the reduction of new chunks."},
    {"dropped_bytes_total", "counter", "nvme", "dropped_bytes_total", 1,
     "Bytes deleted before they were written."},
    {"evicted_bytes_total", "counter", "nvme", "evicted_bytes_total", 1,
     "Bytes that left NVMe because the remote has them."},
    {"healed_chunks_total", "counter", "nvme", "healed_chunks_total", 1,
     "Damaged chunks that were repaired."},
    {"nvme_errors_total", "counter", "nvme", "errors", 1,
     "Errors of NVMe; writes are retried for ever."},
    {"remote_behind_bytes", "gauge", "remote", "behind_bytes", 1,
     "Data on NVMe that is not in the remote yet."},
    {"remote_behind_chunks", "gauge", "remote", "behind_chunks", 1, "Chunks of that data."},
    {"remote_damaged_chunks", "gauge", "remote", "damaged_chunks", 1,
     "Chunks of files that neither NVMe nor the remote has."},
    {"remote_suspect_packs", "gauge", "remote", "suspect_packs", 1,
     "Packs of the remote that are missing or damaged; they are asked for again."},
    {"remote_suspect_chunks", "gauge", "remote", "suspect_chunks", 1,
     "Chunks of files that lie only in such packs."},
    {"remote_unpublished_files", "gauge", "remote", "unpublished_files", 1,
     "Fenced mount: changed files that are not published."},
    {"remote_unpublished_bytes", "gauge", "remote", "unpublished_bytes", 1, "Their size."},
    {"remote_behind_seconds", "gauge", "remote", "seconds_behind", 1,
     "Age of the oldest operation that is not in the remote."},
    {"remote_head", "gauge", "remote", "head", 1, "Number of the newest published state."},
    {"remote_packs", "gauge", "remote", "packs", 1, "Objects with data in the remote."},
    {"remote_pack_bytes", "gauge", "remote", "pack_bytes", 1, "Their size."},
    {"remote_held_bytes", "gauge", "remote", "held_bytes", 1,
     "Of that, what no file has, and chunks of files are stored by."},
    {"remote_files", "gauge", "remote", "files", 1, "Files of the published state."},
    {"remote_logical_bytes", "gauge", "remote", "logical_bytes", 1, "Sum of their sizes."},
    {"uploaded_bytes_total", "counter", "remote", "uploaded_bytes_total", 1,
     "Bytes that were uploaded."},
    {"remote_reduced_bytes_total", "counter", "remote", "reduced_bytes_total", 1,
     "Bytes of uploaded chunks that their encoding saved."},
    {"fetched_bytes_total", "counter", "remote", "fetched_bytes_total", 1,
     "Bytes that were fetched from the remote."},
    {"remote_merge_fetched_bytes_total", "counter", "remote", "merge_fetched_bytes_total", 1,
     "Of the bytes that were fetched, those that were read to write packs anew."},
    {"remote_requests_total", "counter", "remote", "requests_total", 1, "Requests to the remote."},
    {"remote_received_bytes_total", "counter", "remote", "received_bytes_total", 1,
     "Bytes read from the remote: packs, runs and heads."},
    {"remote_put_requests_total", "counter", "remote", "put_requests_total", 1,
     "Requests that store an object in the remote."},
    {"remote_get_requests_total", "counter", "remote", "get_requests_total", 1,
     "Requests that read an object of the remote, or a part."},
    {"remote_list_requests_total", "counter", "remote", "list_requests_total", 1,
     "Requests that list objects of the remote."},
    {"remote_head_requests_total", "counter", "remote", "head_requests_total", 1,
     "Requests for the length of an object, or for the time."},
    {"remote_delete_requests_total", "counter", "remote", "delete_requests_total", 1,
     "Requests that delete objects of the remote."},
    {"remote_retries_total", "counter", "remote", "retries_total", 1, "Retried requests."},
    {"remote_errors_total", "counter", "remote", "errors", 1, "Errors of the remote."},
    {"remote_unreachable_seconds", "gauge", "remote", "unreachable_s", 1,
     "Time for which the remote is unreachable; 0: it is reachable."},
    {"memory_bound_bytes", "gauge", "memory", "bound_bytes", 1,
     "Upper bound of the daemon's memory, the stage included."},
    {"memory_resident_bytes", "gauge", "memory", "resident_bytes", 1, "Memory of the daemon now."},
    {"lane_clients", "gauge", "lanes", "clients", 1, "Programs that save lazily."},
};

/* One number of each program that saves lazily, as it says it. */
static const struct metric lane_metrics[] = {
    {"lane_pending_bytes", "gauge", NULL, "pending_bytes", 1,
     "Bytes that a program still has to copy into its saves."},
    {"lane_pending_saves", "gauge", NULL, "pending_saves", 1,
     "Saves of a program that have no name yet."},
    {"lane_blocked_seconds_total", "counter", NULL, "blocked_seconds", 1,
     "Time for which calls and fences blocked a program."},
    {"lane_published_total", "counter", NULL, "published", 1,
     "Saves of a program that got their names."},
    {"lane_failed_total", "counter", NULL, "failed", 1, "Saves of a program that failed."},
};

static const char *const states[] = {"connecting",  "idle",   "uploading",
                                     "unreachable", "fenced", "following"};

static double metrics_value_of(const cJSON *item)
{
    uint64_t whole = 0;
    if (cJSON_IsArray(item))
        return cJSON_GetArraySize(item);
    if (cJSON_IsNumber(item))
        return item->valuedouble;
    /* One of 16 digits or more is a string. */
    return cJSON_IsString(item) &&
                   sscanf(item->valuestring, "%llu", (unsigned long long *)&whole) == 1
               ? (double)whole
               : 0;
}

/* --- the list: [{name, type, help, samples: [{labels, value}]}] ------------------------------- */

/* Returns the samples, to be filled. */
static cJSON *add_metric(cJSON *list, const struct metric *m)
{
    cJSON *one = cJSON_CreateObject();
    _cleanup_free_ char *name = xasprintf("cairnfs_%s", m->name);
    (void)cJSON_AddStringToObject(one, "name", name);
    (void)cJSON_AddStringToObject(one, "type", m->type);
    (void)cJSON_AddStringToObject(one, "help", m->help);
    (void)cJSON_AddItemToArray(list, one);
    return cJSON_AddArrayToObject(one, "samples");
}

/* Returns the labels, to be filled. */
static cJSON *add_metric_sample(cJSON *samples, double value)
{
    cJSON *sample = cJSON_CreateObject();
    cJSON *labels = cJSON_AddObjectToObject(sample, "labels");
    (void)cJSON_AddNumberToObject(sample, "value", value);
    (void)cJSON_AddItemToArray(samples, sample);
    return labels;
}

static void add_metric_number(cJSON *list, const struct metric *m, const cJSON *group)
{
    (void)add_metric_sample(add_metric(list, m),
                            metrics_value_of(cJSON_GetObjectItem(group, m->field)) * m->unit);
}

static void add_metrics_info(cJSON *list, const cJSON *status)
{
    static const struct metric info = {
        .name = "info", .type = "gauge", .help = "Version, store and mountpoint."};
    static const char *const labels[] = {"version", "store", "store_id", "mountpoint"};
    cJSON *to = add_metric_sample(add_metric(list, &info), 1);
    for (size_t i = 0; i < ARRAY_LEN(labels); i++) {
        const char *value = cJSON_GetStringValue(cJSON_GetObjectItem(status, labels[i]));
        (void)cJSON_AddStringToObject(to, labels[i], value ? value : "");
    }
}

static void add_metric_state(cJSON *list, const char *state)
{
    static const struct metric metric = {
        .name = "remote_state", .type = "gauge", .help = "1 for the state of the remote."};
    cJSON *samples = add_metric(list, &metric);
    for (size_t i = 0; i < ARRAY_LEN(states); i++)
        (void)cJSON_AddStringToObject(add_metric_sample(samples, strcmp(state, states[i]) == 0),
                                      "state", states[i]);
}

/* The reduction of one tier: its encodings, and what they cost. */
struct reduction_metrics {
    const char *tier;
    struct metric raw, stored, cpu, wrong;
};

static const struct reduction_metrics reduction_metrics[] = {
    {"nvme",
     {"encoded_raw_bytes_total", "counter", NULL, "raw_bytes", 1,
      "Bytes of new chunks, by their encoding."},
     {"encoded_stored_bytes_total", "counter", NULL, "stored_bytes", 1,
      "The same chunks, as they are stored."},
     {"encode_cpu_seconds_total", "counter", NULL, "cpu_s", 1,
      "CPU time that encoding took, with what did not pay and the verification."},
     {"encode_wrong_chunks_total", "counter", NULL, "wrong_chunks", 1,
      "Chunks stored raw because an encoding did not decode to the same bytes."}},
    {"remote",
     {"remote_encoded_raw_bytes_total", "counter", NULL, "raw_bytes", 1,
      "Bytes of uploaded chunks, by their encoding."},
     {"remote_encoded_stored_bytes_total", "counter", NULL, "stored_bytes", 1,
      "The same chunks, as they are stored in the remote."},
     {"remote_encode_cpu_seconds_total", "counter", NULL, "cpu_s", 1,
      "CPU time that twin and dx took, with what did not pay and the verification."},
     {"remote_encode_wrong_chunks_total", "counter", NULL, "wrong_chunks", 1,
      "Chunks uploaded as on NVMe because twin or dx did not decode to the same bytes."}},
};

static void add_metric_by_encoding(cJSON *list, const struct metric *m, const cJSON *encodings)
{
    const cJSON *one;
    cJSON *samples = add_metric(list, m);
    cJSON_ArrayForEach(one, encodings)
    {
        cJSON *labels =
            add_metric_sample(samples, metrics_value_of(cJSON_GetObjectItem(one, m->field)));
        (void)cJSON_AddStringToObject(labels, "encoding",
                                      cJSON_GetStringValue(cJSON_GetObjectItem(one, "encoding")));
    }
}

static void add_reduction_metrics(cJSON *list, const cJSON *status)
{
    for (size_t i = 0; i < ARRAY_LEN(reduction_metrics); i++) {
        const struct reduction_metrics *m = &reduction_metrics[i];
        const cJSON *reduction =
            cJSON_GetObjectItem(cJSON_GetObjectItem(status, m->tier), "reduction");
        if (!reduction)
            continue;
        add_metric_by_encoding(list, &m->raw, cJSON_GetObjectItem(reduction, "encodings"));
        add_metric_by_encoding(list, &m->stored, cJSON_GetObjectItem(reduction, "encodings"));
        add_metric_number(list, &m->cpu, reduction);
        add_metric_number(list, &m->wrong, reduction);
    }
}

static void add_lane_metrics(cJSON *list, const cJSON *clients)
{
    const cJSON *client;
    for (size_t i = 0; cJSON_GetArraySize(clients) > 0 && i < ARRAY_LEN(lane_metrics); i++) {
        const struct metric *m = &lane_metrics[i];
        cJSON *samples = add_metric(list, m);
        cJSON_ArrayForEach(client, clients)
        {
            char pid[24];
            cJSON *labels =
                add_metric_sample(samples, metrics_value_of(cJSON_GetObjectItem(client, m->field)));
            (void)snprintf(pid, sizeof pid, "%.0f",
                           cJSON_GetNumberValue(cJSON_GetObjectItem(client, "pid")));
            (void)cJSON_AddStringToObject(labels, "pid", pid);
            (void)cJSON_AddStringToObject(
                labels, "program", cJSON_GetStringValue(cJSON_GetObjectItem(client, "program")));
        }
    }
}

/* Data of a fenced mount is not behind; only such a mount has data that is never published. */
static bool is_metric_reported(const char *state, const char *field)
{
    bool fenced = strcmp(state, "fenced") == 0;
    if (strncmp(field, "unpublished_", strlen("unpublished_")) == 0)
        return fenced;
    return !(fenced && strncmp(field, "behind_", strlen("behind_")) == 0);
}

static cJSON *metrics_of(struct service *service)
{
    cJSON *list = cJSON_CreateArray(), *status = handle_status(service, NULL);
    const cJSON *remote = cJSON_GetObjectItem(status, "remote");
    const char *state = cJSON_GetStringValue(cJSON_GetObjectItem(remote, "state"));
    bool has_remote = state && strcmp(state, "none") != 0;
    add_metrics_info(list, status);
    if (has_remote)
        add_metric_state(list, state);
    for (size_t i = 0; i < ARRAY_LEN(metrics); i++) {
        const struct metric *m = &metrics[i];
        bool is_remote = m->group && strcmp(m->group, "remote") == 0;
        if (!is_remote || (has_remote && is_metric_reported(state, m->field)))
            add_metric_number(list, m, m->group ? cJSON_GetObjectItem(status, m->group) : status);
    }
    add_reduction_metrics(list, status);
    add_lane_metrics(list, cJSON_GetObjectItem(cJSON_GetObjectItem(status, "lanes"), "clients"));
    cJSON_Delete(status);
    return list;
}

/* --- its text --------------------------------------------------------------------------------- */

/* A label's value: backslash, quote and line end are escaped. Other control characters, and bytes
 * that are no UTF-8, appear as \\xNN or \\uNNNN. */
static void metrics_put_escaped(FILE *out, const char *text)
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

static void metrics_put_sample(FILE *out, const char *name, const cJSON *sample)
{
    const cJSON *label;
    char between = '{';
    (void)fputs(name, out);
    cJSON_ArrayForEach(label, cJSON_GetObjectItem(sample, "labels"))
    {
        (void)fprintf(out, "%c%s=\"", between, label->string);
        metrics_put_escaped(out, label->valuestring);
        (void)fputc('"', out);
        between = ',';
    }
    (void)fprintf(out, "%s %.15g\n", between == ',' ? "}" : "",
                  cJSON_GetNumberValue(cJSON_GetObjectItem(sample, "value")));
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
        const char *name = cJSON_GetStringValue(cJSON_GetObjectItem(one, "name"));
        (void)fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", name,
                      cJSON_GetStringValue(cJSON_GetObjectItem(one, "help")), name,
                      cJSON_GetStringValue(cJSON_GetObjectItem(one, "type")));
        cJSON_ArrayForEach(sample, cJSON_GetObjectItem(one, "samples"))
        {
            metrics_put_sample(out, name, sample);
        }
    }
    cJSON_Delete(list);
    (void)fclose(out);
    return text;
}

cJSON *handle_metrics(struct service *service, const cJSON *request)
{
    cJSON *reply = cJSON_CreateObject();
    if (cJSON_IsTrue(cJSON_GetObjectItem(request, "json"))) {
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

/* Only what stops the mount from doing its work now: a remote that is away for a while does not. */
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
        store_remote_status(service->store, &remote);
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
