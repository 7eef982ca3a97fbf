// SPDX-License-Identifier: Apache-2.0
#include <stdio.h>

#include "base/text.h"
#include "cli/command.h"
#include "cli/human.h"
#include "cli/json.h"
#include "cli/source.h"
#include "cli/survey.h"
#include "cli/why.h"
#include "daemon/remote_address.h"

static cJSON *as_json(const char *path, const cJSON *root, const struct survey_sum *sum)
{
    cJSON *object = cJSON_CreateObject();
    (void)cJSON_AddStringToObject(object, "path", path);
    control_add_u64(object, "files", sum->files);
    control_add_u64(object, "directories", sum->directories);
    control_add_u64(object, "logical_bytes", sum->logical_bytes);
    control_add_u64(object, "unique_bytes", sum->unique_bytes);
    control_add_u64(object, "stored_bytes", sum->stored_bytes);
    control_add_u64(object, "staged_bytes", sum->staged_bytes);
    survey_add_forms(object, "encodings", sum->forms);
    control_add_u64(object, "remote_bytes", sum->remote_bytes);
    survey_add_forms(object, "remote_encodings", sum->remote_forms);
    if (json_part(root, "history_bytes"))
        control_add_u64(object, "history_bytes", json_count(root, "history_bytes"));
    return object;
}

struct forms_text {
    char text[96];
};

/* Each encoding of these chunks, with its ratio. */
static struct forms_text forms_text(const struct survey_form *forms)
{
    struct forms_text t = {""};
    size_t len = 0;
    for (unsigned i = 0; i < SURVEY_FORMS && len < sizeof t.text; i++)
        if (forms[i].raw > 0)
            len += (size_t)snprintf(t.text + len, sizeof t.text - len, "%s%s %.2f", len ? " " : "",
                                    survey_encoding_name(i), survey_ratio(&forms[i]));
    return t;
}

struct du_row {
    const char *logical, *unique, *stored, *staged, *encodings, *remote, *path;
};

static void print_row(const struct du_row *row)
{
    text_print(stdout, "%12s %12s %12s %12s  %-26s  %-26s  %s", row->logical, row->unique,
               row->stored, row->staged, row->encodings, row->remote, row->path);
    (void)fflush(stdout);
}

struct du_request {
    struct mount_options options; /* how a remote is reached */
    const char *at;               /* WHEN; NULL: PATHs are on mounts, or of the newest state */
    struct source source;
    bool json, why;
    bool is_usual; /* -s, -h: only sums in readable sizes are printed */
    bool headed;
    cJSON *all; /* with json */
};

static int print_sum(const struct command *command, const char *path, const char *store,
                     const cJSON *root, struct du_request *request, const struct survey_sum *sum)
{
    static const struct du_row head = {"logical", "unique",        "stored", "staged",
                                       "encoded", "in the remote", "path"};
    if (!request->headed)
        print_row(&head);
    request->headed = true;
    print_row(&(struct du_row){.logical = human_bytes(sum->logical_bytes).text,
                               .unique = human_bytes(sum->unique_bytes).text,
                               .stored = human_bytes(sum->stored_bytes).text,
                               .staged = human_bytes(sum->staged_bytes).text,
                               .encodings = forms_text(sum->forms).text,
                               .remote = forms_text(sum->remote_forms).text,
                               .path = path});
    if (json_count(root, "history_bytes") > 0)
        text_print(stdout, "  history         %s that only earlier states need",
                   json_bytes(root, "history_bytes").text);
    return request->why ? why_report(command, store, root, sum, NULL) : CLI_OK;
}

static int add_sum(const struct command *command, const char *path, const char *store,
                   const cJSON *root, struct du_request *request, const struct survey_sum *sum)
{
    cJSON *object = as_json(path, root, sum);
    (void)cJSON_AddItemToArray(request->all, object);
    return request->why
               ? why_report(command, store, root, sum, cJSON_AddObjectToObject(object, "why"))
               : CLI_OK;
}

static int du_path(const struct command *command, const char *path, struct du_request *request)
{
    struct target target = {0};
    struct survey_sum sum;
    _cleanup_json_ cJSON *root = NULL;
    int code = survey_look(command, path, &target, &root);
    if (code == CLI_OK)
        code = survey_walk(command, target.store, root, &sum);
    if (code == CLI_OK)
        code =
            (request->all ? add_sum : print_sum)(command, path, target.store, root, request, &sum);
    target_done(&target);
    return code;
}

/* Reads an earlier state without a daemon. */
static int du_source(const struct command *command, const char *text, struct du_request *request)
{
    _cleanup_(source_node_done) struct source_node node = {0};
    struct survey_sum sum;
    int code = source_open(command, &request->options, text, &request->source, &node);
    if (code == CLI_OK)
        code = survey_source(command, &request->source, &node, &sum);
    if (code == CLI_OK)
        code = (request->all ? add_sum : print_sum)(command, text, NULL, NULL, request, &sum);
    return code;
}

static int execute_du(struct call *call)
{
    struct du_request *request = call->request;
    int code = source_look_back(call->command, request->at, &request->options);
    if (code == CLI_OK && request->at && request->why)
        code = complain_usage(call->command, "--why is of files on a mount, and --at of a remote");
    if (code != CLI_OK)
        return code;
    request->all = request->json ? cJSON_CreateArray() : NULL;
    for (char **path = call->operands; *path && code != CLI_INTERRUPTED; path++) {
        bool is_source = request->at || remote_address_is(*path);
        int one = (is_source ? du_source : du_path)(call->command, *path, request);
        code = one != CLI_OK ? one : code;
    }
    if (request->all)
        json_print(request->all);
    cJSON_Delete(request->all);
    source_close(&request->source);
    return code;
}

#define FIELD(f) offsetof(struct du_request, f)
static const struct flag flags[] = {
    {FLAG_OF('\0', "why", FLAG_SET, FIELD(why)),
     .help = "show what made them small: encodings, and the files that they share content with or "
             "are stored by"},
    {.letter = 's', .offset = FIELD(is_usual)},
    {.letter = 'h', .offset = FIELD(is_usual)},
    FLAG_AT(FIELD(at)),
    FLAG_JSON(FIELD(json)),
    {0},
};

const struct command du_command = {
    .name = "du",
    .summary = "show how much space files or directories take",
    .description = "logical: their sizes. unique: their different content. stored: that content as "
                   "it is stored. staged: not on NVMe yet. encoded: how that content is stored, "
                   "and in the remote how it is stored there. PATH is on a mount; with --at it is "
                   "SOURCE:PATH, of which that state is counted.",
    .flags = flags,
    REQUEST(struct du_request, 0),
    .operands = operands_paths,
    .exits = EXITS_INTERRUPTED("printed", "failed"),
    .takes_option = source_takes_option,
    .options_offset = FIELD(options),
    .more_help = source_more_help,
    .execute = execute_du,
};
