// SPDX-License-Identifier: Apache-2.0
#include <stdio.h>

#include "cli/command.h"
#include "cli/human.h"
#include "cli/job.h"
#include "cli/json.h"
#include "daemon/control.h"

struct gc_request {
    bool dry_run, json;
};

static void print_json(const struct job_report *r, bool dry_run, cJSON *lines)
{
    _cleanup_json_ cJSON *object = cJSON_CreateObject();
    (void)cJSON_AddBoolToObject(object, "dry_run", dry_run);
    control_add_u64(object, "objects", r->objects);
    control_add_u64(object, "bytes", r->removed_bytes);
    (void)cJSON_AddBoolToObject(object, "complete", !r->cancelled && !r->failed);
    (void)cJSON_AddItemReferenceToObject(object, "lines", lines);
    json_print(object);
}

static void print_result(const struct job_report *r, bool dry_run)
{
    (void)printf("%llu objects, %s%s\n", (unsigned long long)r->objects,
                 human_bytes(r->removed_bytes).text,
                 dry_run        ? " would be deleted"
                 : r->cancelled ? " deleted (cancelled)"
                                : " deleted");
}

static int execute_gc(struct call *call)
{
    const struct gc_request *options = call->request;
    cJSON *request = cJSON_CreateObject();
    struct job_report report;
    (void)cJSON_AddStringToObject(request, "kind", "gc");
    (void)cJSON_AddBoolToObject(request, "local", true);
    (void)cJSON_AddBoolToObject(request, "remote", true);
    (void)cJSON_AddBoolToObject(request, "dry_run", options->dry_run);
    _cleanup_json_ cJSON *lines = options->json ? cJSON_CreateArray() : NULL;
    int code = job_execute(call, request, lines, &report);
    if (code == CLI_OK && lines)
        print_json(&report, options->dry_run, lines);
    else if (code == CLI_OK)
        print_result(&report, options->dry_run);
    if (code != CLI_OK)
        return code;
    return report.failed || report.cancelled ? CLI_FAILED : CLI_OK;
}

const struct command gc_command = {
    .name = "gc",
    .summary = "delete unreferenced data now, on NVMe and in the remote",
    .description = "Both happen without it: on NVMe at once, in the remote after -o gc_grace.",
    .flags =
        (const struct flag[]){{.letter = 'n',
                               .name = "dry-run",
                               .help = "print each object that would be deleted, and the reason",
                               .offset = offsetof(struct gc_request, dry_run)},
                              FLAG_JSON(offsetof(struct gc_request, json)),
                              {0}},
    REQUEST(struct gc_request, 0),
    .target = TARGET_MOUNT,
    .operands = operands_mount,
    .exits = EXITS_INTERRUPTED("done", "failed"),
    .execute = execute_gc,
};
