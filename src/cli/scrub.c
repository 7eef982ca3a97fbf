// SPDX-License-Identifier: Apache-2.0
/* cairn scrub, cairn gc: jobs of the daemon. */
#include <stdio.h>

#include "cli/command.h"
#include "cli/human.h"
#include "cli/job.h"
#include "cli/json.h"

static int scrub_exit(const struct job_report *r)
{
    return r->unhealed || r->cancelled || r->failed ? CLI_FAILED : CLI_OK;
}

static int print_scrub_json(const struct job_report *r, cJSON *lines)
{
    _cleanup_json_ cJSON *object = cJSON_CreateObject();
    control_add_u64(object, "packs", r->packs);
    control_add_u64(object, "chunks", r->chunks);
    control_add_u64(object, "read_bytes", r->bytes);
    control_add_u64(object, "damaged", r->found);
    control_add_u64(object, "healed", r->healed);
    control_add_u64(object, "not_healed", r->unhealed);
    control_add_u64(object, "files_that_lack_bytes", r->files);
    (void)cJSON_AddBoolToObject(object, "complete", !r->cancelled && !r->failed);
    (void)cJSON_AddItemReferenceToObject(object, "lines", lines);
    json_print(object);
    return scrub_exit(r);
}

static int print_scrub_result(const struct job_report *r)
{
    (void)printf("%llu packs, %llu chunks, %s read: ", (unsigned long long)r->packs,
                 (unsigned long long)r->chunks, human_bytes(r->bytes).text);
    if (r->found == 0 && !r->cancelled && !r->failed)
        (void)printf("clean");
    else
        (void)printf("%llu damaged or missing, %llu healed, %llu not healed",
                     (unsigned long long)r->found, (unsigned long long)r->healed,
                     (unsigned long long)r->unhealed);
    if (r->files)
        (void)printf("; %llu %s", (unsigned long long)r->files,
                     r->files == 1 ? "file lacks bytes" : "files lack bytes");
    (void)printf("%s\n", r->cancelled ? " (cancelled)" : "");
    return scrub_exit(r);
}

struct scrub_request {
    uint64_t rate; /* bytes per second; 0: no limit */
    bool remote, local, json;
};

static int execute_scrub(struct call *call)
{
    const struct scrub_request *options = call->request;
    cJSON *request = cJSON_CreateObject();
    struct job_report report;
    (void)cJSON_AddStringToObject(request, "kind", "scrub");
    (void)cJSON_AddBoolToObject(request, "local", options->local || !options->remote);
    (void)cJSON_AddBoolToObject(request, "remote", options->remote || !options->local);
    control_add_u64(request, "rate", options->rate);
    _cleanup_json_ cJSON *lines = options->json ? cJSON_CreateArray() : NULL;
    int code = job_execute(call, request, lines, &report);
    if (code == CLI_OK)
        code = lines ? print_scrub_json(&report, lines) : print_scrub_result(&report);
    return code;
}

#define FIELD(f) offsetof(struct scrub_request, f)
static const struct flag flags[] = {
    {FLAG_OF('r', "rate", FLAG_RATE, FIELD(rate)), .argument = "RATE",
     .help = "read at most RATE bytes per second (100M)"},
    {FLAG_OF('\0', "remote", FLAG_SET, FIELD(remote)), .help = "verify only the remote"},
    {FLAG_OF('\0', "local", FLAG_SET, FIELD(local)), .help = "verify only NVMe"},
    FLAG_JSON(FIELD(json)),
    {0},
};

const struct command scrub_command = {
    .name = "scrub",
    .summary = "verify all stored data, and repair damage from another tier",
    .description = "An interrupt cancels it.",
    .flags = flags,
    REQUEST(struct scrub_request, 0),
    .target = TARGET_MOUNT,
    .operands = operands_mount,
    .exits =
        EXITS_INTERRUPTED("clean, or all damage is repaired", "failed, or some damage is left"),
    .execute = execute_scrub,
};

/* --- gc --------------------------------------------------------------------------------------- */

struct gc_request {
    bool dry_run, json;
};

static void print_gc_json(const struct job_report *r, bool dry_run, cJSON *lines)
{
    _cleanup_json_ cJSON *object = cJSON_CreateObject();
    (void)cJSON_AddBoolToObject(object, "dry_run", dry_run);
    control_add_u64(object, "objects", r->objects);
    control_add_u64(object, "bytes", r->removed_bytes);
    (void)cJSON_AddBoolToObject(object, "complete", !r->cancelled && !r->failed);
    (void)cJSON_AddItemReferenceToObject(object, "lines", lines);
    json_print(object);
}

static void print_gc_result(const struct job_report *r, bool dry_run)
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
        print_gc_json(&report, options->dry_run, lines);
    else if (code == CLI_OK)
        print_gc_result(&report, options->dry_run);
    if (code != CLI_OK)
        return code;
    return report.failed || report.cancelled ? CLI_FAILED : CLI_OK;
}

const struct command gc_command = {
    .name = "gc",
    .summary = "delete unreferenced data now, on NVMe and in the remote",
    .description = "Both happen without it: on NVMe at once, in the remote after -o gc_grace.",
    .flags =
        (const struct flag[]){
            {FLAG_OF('n', "dry-run", FLAG_SET, offsetof(struct gc_request, dry_run)),
             .help = "print each object that would be deleted, and the reason"},
            FLAG_JSON(offsetof(struct gc_request, json)),
            {0}},
    REQUEST(struct gc_request, 0),
    .target = TARGET_MOUNT,
    .operands = operands_mount,
    .exits = EXITS_INTERRUPTED("done", "failed"),
    .execute = execute_gc,
};
