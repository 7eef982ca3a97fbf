// SPDX-License-Identifier: Apache-2.0
#include <stdio.h>

#include "cli/command.h"
#include "cli/human.h"
#include "cli/job.h"

struct gc_request {
    bool dry_run;
};

static int execute_gc(const struct command *command, int argc, char **argv)
{
    struct gc_request options = {0};
    char **operands;
    int code = flags_parse(command, argc, argv, &options, &operands);
    if (code != CLI_OK)
        return code;
    cJSON *request = cJSON_CreateObject();
    struct job_report report;
    (void)cJSON_AddStringToObject(request, "kind", "gc");
    (void)cJSON_AddBoolToObject(request, "local", true);
    (void)cJSON_AddBoolToObject(request, "remote", true);
    (void)cJSON_AddBoolToObject(request, "dry_run", options.dry_run);
    code = job_execute(command, *operands, request, &report);
    if (code != CLI_OK)
        return code;
    (void)printf("%llu objects, %s%s\n", (unsigned long long)report.objects,
                 human_bytes(report.removed_bytes).text,
                 options.dry_run    ? " would be deleted"
                 : report.cancelled ? " deleted (cancelled)"
                                    : " deleted");
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
                              {0}},
    .operands = (const struct operand[]){{.name = "MOUNTPOINT", .offers = OFFER_MOUNTPOINTS}, {0}},
    .exits = (const struct exit_status[]){{CLI_OK, "done"},
                                          {CLI_FAILED, "failed"},
                                          {CLI_USAGE, "wrong usage"},
                                          {CLI_INTERRUPTED, "interrupted"},
                                          {0}},
    .usage_exit = CLI_USAGE,
    .execute = execute_gc,
};
