// SPDX-License-Identifier: Apache-2.0
#include <stdio.h>

#include "base/text.h"
#include "cli/ask.h"
#include "cli/command.h"
#include "cli/json.h"

struct metrics_request {
    bool json;
};

static int execute_metrics(struct call *call)
{
    const struct metrics_request *request = call->request;
    const char *name = call->command->name, *store = call->target.store;
    _cleanup_json_ cJSON *reply = NULL;
    cJSON *ask = cJSON_CreateObject();
    (void)cJSON_AddBoolToObject(ask, "json", request->json);
    if (ask_daemon(name, store, "metrics", ask, &reply) < 0)
        return CLI_FAILED;
    if (request->json && cJSON_IsArray(json_part(reply, "metrics")))
        json_print(json_part(reply, "metrics"));
    else if (!request->json && json_text(reply, "text"))
        text_print_lines(stdout, json_text(reply, "text"));
    else
        return complain_answer(name, store);
    return CLI_OK;
}

const struct command metrics_command = {
    .name = "metrics",
    .summary = "print the metrics of a mount in the text format of Prometheus",
    .description = "-o metrics=ADDRESS:PORT serves the same over HTTP, and /healthz.",
    .flags = (const struct flag[]){FLAG_JSON(offsetof(struct metrics_request, json)), {0}},
    REQUEST(struct metrics_request, 0),
    .target = TARGET_MOUNT,
    .operands = operands_mount,
    .exits = EXITS("printed", "failed"),
    .execute = execute_metrics,
};
