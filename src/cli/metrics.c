// SPDX-License-Identifier: Apache-2.0
#include <stdio.h>

#include "base/text.h"
#include "cli/ask.h"
#include "cli/command.h"
#include "cli/json.h"
#include "cli/target.h"
#include "daemon/control.h"

struct metrics_request {
    bool json;
};

static int execute_metrics(const struct command *command, int argc, char **argv)
{
    struct metrics_request request = {0};
    struct target target;
    char **operands;
    int code = flags_parse(command, argc, argv, &request, &operands);
    if (code == CLI_OK)
        code = target_of_mount(command, *operands, &target);
    if (code != CLI_OK)
        return code;
    cJSON *ask = cJSON_CreateObject(), *reply = NULL;
    (void)cJSON_AddBoolToObject(ask, "json", request.json);
    if (ask_daemon(command->name, target.store, "metrics", ask, &reply) < 0) {
        code = CLI_FAILED;
    } else if (request.json && cJSON_IsArray(json_part(reply, "metrics"))) {
        json_print(json_part(reply, "metrics"));
    } else if (!request.json && json_text(reply, "text")) {
        text_print_lines(stdout, json_text(reply, "text"));
    } else {
        complain(command->name, "store %s: %s", target.store, daemon_trouble(-EBADMSG));
        code = CLI_FAILED;
    }
    cJSON_Delete(reply);
    target_done(&target);
    return code;
}

const struct command metrics_command = {
    .name = "metrics",
    .summary = "print the metrics of a mount in the text format of Prometheus",
    .description = "-o metrics=ADDRESS:PORT serves the same over HTTP, and /healthz.",
    .flags = (const struct flag[]){FLAG_JSON(offsetof(struct metrics_request, json)), {0}},
    .operands = (const struct operand[]){{.name = "MOUNTPOINT", .offers = OFFER_MOUNTPOINTS}, {0}},
    .exits = EXITS("printed", "failed"),
    .execute = execute_metrics,
};
