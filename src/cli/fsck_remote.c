// SPDX-License-Identifier: Apache-2.0
#include "cli/fsck_remote.h"

#include <cjson/cJSON.h>
#include <stdio.h>

#include "base/log.h"
#include "base/text.h"
#include "cli/interrupt.h"
#include "cli/json.h"
#include "store/check_remote.h"

struct remote_report {
    const char *source;
    cJSON *json; /* NULL: lines */
    cJSON *objects, *files, *notes;
};

void fsck_more_help(void)
{
    source_print_help("REMOTE is s3://BUCKET/PREFIX or dir:/PATH. These mount options (see 'cairn "
                      "help mount') select how it is reached:");
}

/* --- findings --------------------------------------------------------------------------------- */

static void add_finding(struct remote_report *report, const struct remote_finding *finding)
{
    cJSON *one = cJSON_CreateObject();
    (void)cJSON_AddStringToObject(one, finding->object ? "object" : "path",
                                  finding->object ? finding->object : finding->path);
    (void)cJSON_AddStringToObject(one, "problem", finding->what);
    if (finding->path) {
        control_add_u64(one, "chunks", finding->chunks);
        control_add_u64(one, "damaged_chunks", finding->bad_chunks);
        control_add_u64(one, "damaged_bytes", finding->bad_bytes);
        (void)cJSON_AddBoolToObject(one, "only_through_bases", finding->is_through_base);
    }
    (void)cJSON_AddItemToArray(finding->object ? report->objects : report->files, one);
}

static void print_finding(const struct remote_finding *finding, void *arg)
{
    struct remote_report *report = arg;
    if (report->json)
        add_finding(report, finding);
    else if (finding->object)
        text_print(stdout, "problem: %s: %s", finding->object, finding->what);
    else
        text_print(stdout, "problem: %s: %llu of %llu chunks (%s) cannot be read%s: %s",
                   finding->path, (unsigned long long)finding->bad_chunks,
                   (unsigned long long)finding->chunks, human_bytes(finding->bad_bytes).text,
                   finding->is_through_base ? ", only through chunks that they are stored by" : "",
                   finding->what);
}

static void print_note(const char *line, void *arg)
{
    struct remote_report *report = arg;
    if (report->json)
        (void)cJSON_AddItemToArray(report->notes, cJSON_CreateString(line));
    else
        text_print(stdout, "%s", line);
}

/* --- the end ---------------------------------------------------------------------------------- */

static void add_counts(cJSON *json, const struct remote_check_counts *c)
{
    control_add_u64(json, "problems", c->problems);
    control_add_u64(json, "heads", c->heads);
    control_add_u64(json, "runs", c->runs);
    control_add_u64(json, "packs", c->packs);
    control_add_u64(json, "pack_bytes", c->pack_bytes);
    control_add_u64(json, "damaged_packs", c->bad_packs);
    control_add_u64(json, "read_packs", c->read_packs);
    control_add_u64(json, "read_chunks", c->chunks);
    control_add_u64(json, "read_bytes", c->bytes);
    control_add_u64(json, "damaged_chunks", c->bad_chunks);
    control_add_u64(json, "earlier_states", c->earlier);
    control_add_u64(json, "files", c->files);
    control_add_u64(json, "damaged_files", c->bad_files);
    control_add_u64(json, "files_damaged_through_bases", c->through_base_files);
}

static void print_counts(const struct remote_report *report, const struct remote_check_counts *c)
{
    text_print(stdout,
               "%llu files, %llu damaged (%llu of them only through chunks that they are stored "
               "by); %llu packs of %s, %llu damaged or missing; %llu heads; %llu runs; %llu chunks "
               "of %s in %llu packs read and verified",
               (unsigned long long)c->files, (unsigned long long)c->bad_files,
               (unsigned long long)c->through_base_files, (unsigned long long)c->packs,
               human_bytes(c->pack_bytes).text, (unsigned long long)c->bad_packs,
               (unsigned long long)c->heads, (unsigned long long)c->runs,
               (unsigned long long)c->chunks, human_bytes(c->bytes).text,
               (unsigned long long)c->read_packs);
    if (c->earlier > 0)
        text_print(stdout, "%llu earlier %s checked, with the packs that only %s",
                   (unsigned long long)c->earlier, c->earlier == 1 ? "state was" : "states were",
                   c->earlier == 1 ? "it needs" : "they need");
    if (c->problems > 0)
        text_print(stdout, "%s: %llu problems", report->source, (unsigned long long)c->problems);
    else
        text_print(stdout, "%s: clean", report->source);
}

/* `text`: why the remote cannot be opened; NULL: it was opened. */
static int end_check(const struct command *command, struct remote_report *report, int r,
                     const char *text, const struct remote_check_counts *counts)
{
    bool is_damage = text && (r == -EUCLEAN || r == -EBADMSG);
    if (report->json) {
        (void)cJSON_AddBoolToObject(report->json, "clean", r == 0 && counts->problems == 0);
        if (text || r < 0)
            (void)cJSON_AddStringToObject(report->json, "error", text ? text : strerror(-r));
        json_make_printable(report->json);
        json_print(report->json);
    } else if (is_damage) {
        text_print(stdout, "problem: %s", text);
    } else if (text) {
        complain(command->name, "%s", text);
    } else if (r == 0) {
        print_counts(report, counts);
    } else {
        complain(command->name, "%s was not checked to the end: %s", report->source, strerror(-r));
    }
    if (is_damage || (r == 0 && counts->problems > 0))
        return FSCK_PROBLEMS;
    bool is_lost = fflush(stdout) != 0 || ferror(stdout);
    return r < 0 || is_lost ? FSCK_OPERATIONAL : FSCK_CLEAN;
}

static int check_newest(const char *source, const struct fsck_request *request,
                        struct remote_check *check, struct remote_report *report, char **ret_text)
{
    struct offline *offline = NULL;
    pid_t holder;
    int r = offline_open(source, &request->options, &offline, &holder, ret_text);
    if (r == 0 && offline_warning(offline))
        print_note(offline_warning(offline), report);
    if (r == 0)
        r = remote_check_newest(check, offline_store(offline));
    offline_close(offline);
    return r;
}

static int check_earlier(const char *source, const struct fsck_request *request,
                         struct remote_check *check, char **ret_text)
{
    struct offline *offline = NULL;
    int r = offline_open_past(source, &request->options, &offline, ret_text);
    if (r == 0)
        r = remote_check_earlier(check, offline_past(offline));
    offline_close(offline);
    return r;
}

static void begin_json(struct remote_report *report)
{
    report->json = cJSON_CreateObject();
    (void)cJSON_AddStringToObject(report->json, "source", report->source);
    report->objects = cJSON_AddArrayToObject(report->json, "objects");
    report->files = cJSON_AddArrayToObject(report->json, "damaged");
    report->notes = cJSON_AddArrayToObject(report->json, "notes");
}

int fsck_remote(const struct command *command, const struct fsck_request *request,
                const char *source)
{
    struct remote_report report = {.source = source};
    char *text = NULL;
    if (request->repair)
        return complain_usage(
            command, "--repair is for a store; a mount repairs its remote: see 'cairn help scrub'");
    if (request->sample > 100)
        return complain_usage(command, "--sample %llu: give a percentage from 1 to 100",
                              (unsigned long long)request->sample);
    log_set_level(LOG_LEVEL_ERROR);
    interrupt_catch(true);
    if (request->is_json)
        begin_json(&report);
    const struct remote_check_options options = {
        .sample = request->sample ? (unsigned)request->sample : 100,
        .threads = (unsigned)min_u64(16, request->options.remote.connections),
        .found = print_finding,
        .note = print_note,
        .arg = &report,
        .is_interrupted = interrupted};
    struct remote_check *check = remote_check_new(&options);
    int r = check_newest(source, request, check, &report, &text);
    if (r == 0)
        r = check_earlier(source, request, check, &text);
    if (report.json && !text)
        add_counts(report.json, remote_check_counts(check));
    int code = r == -EINVAL && text
                   ? complain_usage(command, "%s", text)
                   : end_check(command, &report, r, text, remote_check_counts(check));
    remote_check_free(check);
    cJSON_Delete(report.json);
    free(text);
    return code;
}
