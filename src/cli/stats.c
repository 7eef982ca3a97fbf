// SPDX-License-Identifier: Apache-2.0
/* cairn stats: the activity of a mount, a line an interval, from two answers of its daemon. */
#include <math.h>
#include <stdio.h>

#include "base/clock.h"
#include "cli/ask.h"
#include "cli/command.h"
#include "cli/interrupt.h"
#include "cli/human.h"
#include "cli/json.h"

#define HEADER_EVERY 20

struct stats_request {
    int64_t interval_ns;
    uint64_t count; /* lines; 0: no end */
    bool json;
};

/* The columns of a line; rates and growth are computed from counters. Columns about encodings cover
 * both tiers together; JSON has each tier's counters instead. */
static const struct column {
    const char *title, *group, *field, *json;
    enum {
        RATE,
        BYTES,
        SECONDS,
        SECONDS_GROWTH,
        NUMBER,
        PERCENT,
        GROWTH,
        ENCODING_SHARE,
        ENCODING_SECONDS
    } kind;
} columns[] = {
    {"write/s", "mount", "written_bytes_total", "written_bytes_per_s", RATE},
    {"read/s", "mount", "read_bytes_total", "read_bytes_per_s", RATE},
    {"stage used", "stage", "dirty_bytes", "stage_used_percent", PERCENT},
    {"to nvme/s", "nvme", "written_bytes_total", "nvme_written_bytes_per_s", RATE},
    {"dedup/s", "nvme", "dedup_bytes_total", "dedup_bytes_per_s", RATE},
    {"reduced/s", "nvme", "reduced_bytes_total", "reduced_bytes_per_s", RATE},
    {"fx", NULL, "fx", NULL, ENCODING_SHARE},
    {"upload/s", "remote", "uploaded_bytes_total", "uploaded_bytes_per_s", RATE},
    {"up saved/s", "remote", "reduced_bytes_total", "remote_reduced_bytes_per_s", RATE},
    {"twin", "remote", "twin", NULL, ENCODING_SHARE},
    {"dx", "remote", "dx", NULL, ENCODING_SHARE},
    {"encode cpu", NULL, "cpu_s", NULL, ENCODING_SECONDS},
    {"fetch/s", "remote", "fetched_bytes_total", "fetched_bytes_per_s", RATE},
    {"nvme lag", "nvme", "seconds_behind", "nvme_seconds_behind", SECONDS},
    {"remote lag", "remote", "seconds_behind", "remote_seconds_behind", SECONDS},
    {"waiting", "stage", "waiting_writers", "waiting_writers", NUMBER},
    {"waits", "stage", "wait_count", "waits", GROWTH},
    {"lazy left", "lanes", "pending_bytes", "lane_pending_bytes", BYTES},
    {"blocked", "lanes", "blocked_seconds", "lane_blocked_seconds", SECONDS_GROWTH},
};

static const char *const reduced_tiers[] = {"nvme", "remote"};

static const cJSON *find_encoding(const cJSON *reduction, const char *name)
{
    const cJSON *one;
    cJSON_ArrayForEach(one, json_part(reduction, "encodings"))
    {
        const char *encoding = json_text(one, "encoding");
        if (encoding && strcmp(encoding, name) == 0)
            return one;
    }
    return NULL;
}

/* By how much a field of an encoding has grown in both tiers. */
static uint64_t encoding_growth(const cJSON *before, const cJSON *now, const char *name,
                                const char *field)
{
    uint64_t growth = 0;
    for (size_t i = 0; i < ARRAY_LEN(reduced_tiers); i++) {
        const cJSON *old = json_part(json_part(before, reduced_tiers[i]), "reduction"),
                    *new = json_part(json_part(now, reduced_tiers[i]), "reduction");
        uint64_t count = json_count(find_encoding(new, name), field),
                 was = json_count(find_encoding(old, name), field);
        growth += count > was ? count - was : 0;
    }
    return growth;
}

/* Returns the share of bytes that chunks take in the encoding. 0: there were none. */
static double encoding_share(const cJSON *before, const cJSON *now, const char *name)
{
    uint64_t raw = encoding_growth(before, now, name, "raw_bytes");
    return raw ? (double)encoding_growth(before, now, name, "stored_bytes") / (double)raw : 0;
}

static double encoding_seconds(const cJSON *before, const cJSON *now, const char *field)
{
    double seconds = 0;
    for (size_t i = 0; i < ARRAY_LEN(reduced_tiers); i++)
        seconds += json_number(json_part(json_part(now, reduced_tiers[i]), "reduction"), field) -
                   json_number(json_part(json_part(before, reduced_tiers[i]), "reduction"), field);
    return fmax(0, seconds);
}

static double value_of(const struct column *c, const cJSON *before, const cJSON *now,
                       double seconds)
{
    const cJSON *group = json_part(now, c->group);
    uint64_t count = json_count(group, c->field),
             old = json_count(json_part(before, c->group), c->field);
    uint64_t total = json_count(group, "total_bytes");
    switch (c->kind) {
    case RATE:
        return count > old && seconds > 0 ? (double)(count - old) / seconds : 0;
    case PERCENT:
        return total ? 100.0 * (double)count / (double)total : 0;
    case SECONDS:
        return json_number(group, c->field);
    case SECONDS_GROWTH:
        return fmax(0, json_number(group, c->field) -
                           json_number(json_part(before, c->group), c->field));
    case ENCODING_SHARE:
        return encoding_share(before, now, c->field);
    case ENCODING_SECONDS:
        return encoding_seconds(before, now, c->field);
    case GROWTH:
        return count > old ? (double)(count - old) : 0;
    default:
        return (double)count;
    }
}

static bool status_has_remote(const cJSON *status)
{
    const char *state = json_text(json_part(status, "remote"), "state");
    return state && strcmp(state, "none") != 0;
}

static bool status_has_lanes(const cJSON *status)
{
    return cJSON_GetArraySize(json_part(json_part(status, "lanes"), "clients")) > 0;
}

/* Returns whether the mount has the remote, or the lanes, that the column shows. */
static bool is_column_shown(const struct column *c, const cJSON *status)
{
    if (c->group && strcmp(c->group, "remote") == 0)
        return status_has_remote(status);
    return !c->group || strcmp(c->group, "lanes") != 0 || status_has_lanes(status);
}

/* A number of bytes takes eight columns. */
static int column_width(const struct column *c)
{
    return (int)max_u64(strlen(c->title), 8);
}

static void print_header(const cJSON *status)
{
    for (size_t i = 0; i < ARRAY_LEN(columns); i++)
        if (is_column_shown(&columns[i], status))
            (void)printf("%s%*s", i ? "  " : "", column_width(&columns[i]), columns[i].title);
    (void)printf("\n");
}

static struct human human_value(const struct column *c, double value)
{
    struct human h = {"-"};
    switch (c->kind) {
    case RATE:
    case BYTES:
        return human_bytes((uint64_t)value);
    case SECONDS:
    case SECONDS_GROWTH:
        return human_seconds(value);
    case ENCODING_SECONDS:
        (void)snprintf(h.text, sizeof h.text, "%.2f s", value);
        return h;
    case ENCODING_SHARE:
        if (value > 0)
            (void)snprintf(h.text, sizeof h.text, "%.3f", value);
        return h;
    default:
        (void)snprintf(h.text, sizeof h.text, c->kind == PERCENT ? "%.0f %%" : "%.0f", value);
        return h;
    }
}

static void print_line(const cJSON *before, const cJSON *now, double seconds)
{
    for (size_t i = 0; i < ARRAY_LEN(columns); i++) {
        const struct column *c = &columns[i];
        if (is_column_shown(c, now))
            (void)printf("%s%*s", i ? "  " : "", column_width(c),
                         human_value(c, value_of(c, before, now, seconds)).text);
    }
    (void)printf("\n");
    (void)fflush(stdout);
}

/* Returns whether a column was added or removed. */
static bool columns_change(const cJSON *before, const cJSON *now)
{
    return status_has_remote(before) != status_has_remote(now) ||
           status_has_lanes(before) != status_has_lanes(now);
}

/* Copies the part from the status, if it has one. */
static void add_part(cJSON *line, const char *name, const cJSON *part)
{
    if (part)
        (void)cJSON_AddItemToObject(line, name, cJSON_Duplicate(part, true));
}

/* `time_ns`: when `now` was sampled; `seconds`: since `before` was. */
static void print_json_line(const cJSON *before, const cJSON *now, int64_t time_ns, double seconds)
{
    _cleanup_json_ cJSON *line = cJSON_CreateObject();
    (void)cJSON_AddNumberToObject(line, "time_s", (double)(time_ns / 1000000) / 1000);
    for (size_t i = 0; i < ARRAY_LEN(columns); i++)
        if (columns[i].json)
            (void)cJSON_AddNumberToObject(
                line, columns[i].json,
                round(value_of(&columns[i], before, now, seconds) * 1000) / 1000);
    add_part(line, "lane_clients", json_part(json_part(now, "lanes"), "clients"));
    add_part(line, "nvme_reduction", json_part(json_part(now, "nvme"), "reduction"));
    add_part(line, "remote_reduction", json_part(json_part(now, "remote"), "reduction"));
    json_print_line(line);
}

static bool sleep_until(int64_t at)
{
    for (int64_t left; (left = at - clock_monotonic_ns()) > 0;)
        if (!interrupt_sleep_ms((unsigned)(left / 1000000) + 1))
            return false;
    return interrupt_sleep_ms(0);
}

static int execute_stats(struct call *call)
{
    const struct stats_request *request = call->request;
    const char *name = call->command->name, *store = call->target.store;
    cJSON *before = NULL;
    int64_t began = clock_monotonic_ns();
    interrupt_catch(false);
    int code = ask_daemon(name, store, "status", NULL, &before) < 0 ? CLI_FAILED : CLI_OK;
    int64_t sampled = clock_monotonic_ns();
    for (uint64_t lines = 0; code == CLI_OK && (request->count == 0 || lines < request->count);
         lines++) {
        cJSON *now = NULL;
        if (!sleep_until(began + (int64_t)(lines + 1) * request->interval_ns)) {
            code = CLI_INTERRUPTED;
            break;
        }
        if (ask_daemon(name, store, "status", NULL, &now) < 0) {
            code = CLI_FAILED;
            break;
        }
        int64_t at = clock_monotonic_ns();
        double seconds = (double)(at - sampled) / 1e9;
        if (!request->json && (lines % HEADER_EVERY == 0 || columns_change(before, now)))
            print_header(now);
        if (request->json)
            print_json_line(before, now, clock_realtime_ns(), seconds);
        else
            print_line(before, now, seconds);
        sampled = at;
        cJSON_Delete(before);
        before = now;
    }
    cJSON_Delete(before);
    return code;
}

#define FIELD(f) offsetof(struct stats_request, f)
static const struct flag flags[] = {
    {FLAG_OF('i', "interval", FLAG_TIME, FIELD(interval_ns)), .argument = "TIME",
     .help = "print a line every TIME instead of every second", .min = SECOND_NS / 10},
    {FLAG_OF('n', "count", FLAG_COUNT, FIELD(count)), .argument = "N", .help = "exit after N lines",
     .min = 1},
    FLAG_JSON_OF("print each line as a JSON object", FIELD(json)),
    {0},
};

const struct command stats_command = {
    .name = "stats",
    .summary = "print a line of activity of a mount every second",
    .flags = flags,
    REQUEST(struct stats_request, .interval_ns = SECOND_NS),
    .target = TARGET_MOUNT,
    .operands = operands_mount,
    .exits = EXITS_INTERRUPTED("N lines were printed", "the daemon does not answer"),
    .execute = execute_stats,
};
