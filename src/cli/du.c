// SPDX-License-Identifier: Apache-2.0
#include <stdio.h>

#include "base/text.h"
#include "cli/command.h"
#include "cli/human.h"
#include "cli/json.h"
#include "cli/survey.h"
#include "daemon/control.h"

static cJSON *as_json(const char *path, const struct survey_sum *sum)
{
    cJSON *object = cJSON_CreateObject();
    (void)cJSON_AddStringToObject(object, "path", path);
    control_add_u64(object, "files", sum->files);
    control_add_u64(object, "folders", sum->directories);
    control_add_u64(object, "logical_bytes", sum->logical_bytes);
    control_add_u64(object, "unique_bytes", sum->unique_bytes);
    control_add_u64(object, "stored_bytes", sum->stored_bytes);
    control_add_u64(object, "staged_bytes", sum->staged_bytes);
    survey_add_encodings(object, sum);
    return object;
}

/* Each encoding that there is, with what it made of its chunks. */
static struct human encodings_of(const struct survey_sum *sum)
{
    struct human h = {""};
    size_t len = 0;
    for (unsigned i = 0; i <= CHUNK_ENCODINGS && len < sizeof h.text; i++)
        if (sum->encoded[i].raw > 0)
            len += (size_t)snprintf(h.text + len, sizeof h.text - len, "%s%s %.2f", len ? " " : "",
                                    survey_encoding_name(i),
                                    (double)sum->encoded[i].stored / (double)sum->encoded[i].raw);
    return h;
}

static void print_row(const char *logical, const char *unique, const char *stored,
                      const char *staged, const char *encodings, const char *path)
{
    text_print(stdout, "%12s %12s %12s %12s  %-26s  %s", logical, unique, stored, staged, encodings,
               path);
    (void)fflush(stdout);
}

/* One row, or into `all`. */
static int du_path(const struct command *command, const char *path, bool *headed, cJSON *all)
{
    struct target target;
    struct survey_sum sum;
    cJSON *root;
    int code = survey_look(command, path, &target, &root);
    if (code != CLI_OK)
        return code;
    code = survey_run(command, target.store, root, &sum);
    if (code == CLI_OK && all) {
        (void)cJSON_AddItemToArray(all, as_json(path, &sum));
    } else if (code == CLI_OK) {
        if (!*headed)
            print_row("logical", "unique", "stored", "in the stage", "encoded", "path");
        *headed = true;
        print_row(human_bytes(sum.logical_bytes).text, human_bytes(sum.unique_bytes).text,
                  human_bytes(sum.stored_bytes).text, human_bytes(sum.staged_bytes).text,
                  encodings_of(&sum).text, path);
    }
    cJSON_Delete(root);
    target_done(&target);
    return code;
}

struct du_request {
    bool json;
};

static int run_du(const struct command *command, int argc, char **argv)
{
    struct du_request request = {0};
    bool headed = false;
    char **path;
    int code = flags_parse(command, argc, argv, &request, &path);
    if (code != CLI_OK)
        return code;
    cJSON *all = request.json ? cJSON_CreateArray() : NULL;
    for (; *path && code != CLI_INTERRUPTED; path++) {
        int one = du_path(command, *path, &headed, all);
        code = one != CLI_OK ? one : code;
    }
    if (all)
        json_print(all);
    cJSON_Delete(all);
    return code;
}

const struct command du_command = {
    .name = "du",
    .summary = "show how much space files or directories take",
    .description = "logical: their sizes. unique: their different content. stored: that content as "
                   "it is stored. in the stage: not on NVMe yet.",
    .flags = (const struct flag[]){{.letter = 'j',
                                    .name = "json",
                                    .help = "print JSON",
                                    .offset = offsetof(struct du_request, json)},
                                   {0}},
    .operands =
        (const struct operand[]){{.name = "PATH", .offers = OFFER_FILES, .is_repeated = true}, {0}},
    .exits = (const struct exit_status[]){{CLI_OK, "printed"},
                                          {CLI_FAILED, "failed"},
                                          {CLI_USAGE, "wrong usage"},
                                          {CLI_INTERRUPTED, "interrupted"},
                                          {0}},
    .usage_exit = CLI_USAGE,
    .run = run_du,
};
