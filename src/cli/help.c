// SPDX-License-Identifier: Apache-2.0
/* cairn help, cairn version: texts made from the tables of the commands, for people and as JSON. */
#include <stdio.h>

#include "cli/command.h"
#include "cli/json.h"
#include "daemon/figures.h"

/* --- for people ------------------------------------------------------------------------------- */

void help_print_overview(FILE *out)
{
    (void)fprintf(out, "usage: cairn COMMAND [ARGUMENT...]\n\n"
                       "CairnFS keeps checkpoints in memory and writes them to NVMe and to a "
                       "remote, in order.\n\n");
    for (const struct command *const *c = command_table; *c; c++)
        (void)fprintf(out, "  cairn %-10s %s\n", (*c)->name, (*c)->summary);
    (void)fprintf(out, "\n'cairn help COMMAND' explains one command.\n");
}

/* "-t, --timeout TIME" */
struct flag_text {
    char text[96];
};

static struct flag_text flag_text(const struct flag *flag)
{
    struct flag_text t;
    char letter[] = {'-', flag->letter, '\0'};
    (void)snprintf(t.text, sizeof t.text, "%s%s%s%s%s%s", flag->letter ? letter : "",
                   flag->letter && flag->name ? ", " : "", flag->name ? "--" : "",
                   flag->name ? flag->name : "", flag->argument ? " " : "",
                   flag->argument ? flag->argument : "");
    return t;
}

static void print_flags(const struct flag *flags)
{
    int width = 0;
    for (const struct flag *flag = flags; flag && (flag->letter || flag->name); flag++)
        if (flag->help)
            width = (int)max_u64((uint64_t)width, strlen(flag_text(flag).text));
    if (width > 0)
        (void)printf("\nOptions:\n");
    for (const struct flag *flag = flags; flag && (flag->letter || flag->name); flag++)
        if (flag->help)
            (void)printf("  %-*s   %s\n", width, flag_text(flag).text, flag->help);
}

void help_print(const struct command *command)
{
    _cleanup_free_ char *usage = command_usage(command);
    (void)printf("usage: %s\n\n%s\n", usage, command->summary);
    if (command->description)
        (void)printf("\n%s\n", command->description);
    print_flags(command->flags);
    (void)printf("\nExit status:\n");
    for (const struct exit_status *status = command->exits; status->meaning; status++)
        (void)printf("  %-3d  %s\n", status->code, status->meaning);
    if (command->more_help)
        command->more_help();
}

/* --- as JSON ---------------------------------------------------------------------------------- */

static void add_text(cJSON *object, const char *name, const char *text)
{
    if (text)
        (void)cJSON_AddStringToObject(object, name, text);
}

static cJSON *add_object(cJSON *array)
{
    cJSON *object = cJSON_CreateObject();
    (void)cJSON_AddItemToArray(array, object);
    return object;
}

static void add_flag(cJSON *array, const struct flag *flag)
{
    char letter[] = {flag->letter, '\0'};
    cJSON *object = add_object(array);
    add_text(object, "letter", flag->letter ? letter : NULL);
    add_text(object, "name", flag->name);
    add_text(object, "argument", flag->argument);
    (void)cJSON_AddBoolToObject(object, "required", flag->is_required);
    add_text(object, "help", flag->help);
}

/* The index of each is its bit of OFFER_. */
static const char *const offer_names[] = {"words", "commands", "mountpoints", "directories",
                                          "files"};

static void add_operand(cJSON *array, const struct operand *operand)
{
    cJSON *object = add_object(array);
    add_text(object, "name", operand->name);
    (void)cJSON_AddBoolToObject(object, "optional", operand->is_optional);
    (void)cJSON_AddBoolToObject(object, "repeated", operand->is_repeated);
    cJSON *offers = cJSON_AddArrayToObject(object, "offers");
    for (unsigned i = 0; i < ARRAY_LEN(offer_names); i++)
        if (operand->offers & 1u << i)
            (void)cJSON_AddItemToArray(offers, cJSON_CreateString(offer_names[i]));
}

static cJSON *command_json(const struct command *command)
{
    cJSON *object = cJSON_CreateObject();
    add_text(object, "name", command->name);
    add_text(object, "summary", command->summary);
    add_text(object, "description", command->description);
    cJSON *flags = cJSON_AddArrayToObject(object, "flags");
    for (const struct flag *flag = command->flags; flag && (flag->letter || flag->name); flag++)
        if (flag->help)
            add_flag(flags, flag);
    cJSON *operands = cJSON_AddArrayToObject(object, "operands");
    for (const struct operand *operand = command->operands; operand && operand->name; operand++)
        add_operand(operands, operand);
    cJSON *options = cJSON_AddArrayToObject(object, "mount_options");
    for (const struct option_spec *spec = option_table; command->takes_option && spec->name; spec++)
        if (spec->help && command->takes_option(spec))
            (void)cJSON_AddItemToArray(options, cJSON_CreateString(spec->name));
    cJSON *exits = cJSON_AddArrayToObject(object, "exit_status");
    for (const struct exit_status *status = command->exits; status->meaning; status++) {
        cJSON *exit = add_object(exits);
        (void)cJSON_AddNumberToObject(exit, "code", status->code);
        add_text(exit, "meaning", status->meaning);
    }
    return object;
}

static cJSON *option_json(const struct option_spec *spec)
{
    cJSON *object = cJSON_CreateObject();
    add_text(object, "name", spec->name);
    add_text(object, "group", option_group_titles[spec->group]);
    add_text(object, "value", option_value_kind(spec));
    cJSON *words = spec->words ? cJSON_AddArrayToObject(object, "words") : NULL;
    for (size_t i = 0; words && spec->words[i]; i++)
        (void)cJSON_AddItemToArray(words, cJSON_CreateString(spec->words[i]));
    add_text(object, "default", option_shown_default(spec));
    add_text(object, "help", spec->help);
    return object;
}

/* {"json":"nvme.used_bytes","metric":"cairnfs_nvme_used_bytes",...} */
static cJSON *figure_json(const struct figure *f)
{
    cJSON *object = cJSON_CreateObject();
    _cleanup_free_ char *path = xasprintf("%s%s%s", f->group, *f->group ? "." : "", f->json);
    _cleanup_free_ char *metric = f->metric ? xasprintf("cairnfs_%s", f->metric) : NULL;
    add_text(object, "json", path);
    add_text(object, "metric", metric);
    add_text(object, "unit", figure_unit_names[f->unit]);
    add_text(object, "text", f->text);
    add_text(object, "help", f->help);
    return object;
}

static void print_json(void)
{
    cJSON *all = cJSON_CreateObject();
    add_text(all, "version", CAIRN_VERSION);
    cJSON *commands = cJSON_AddArrayToObject(all, "commands");
    for (const struct command *const *c = command_table; *c; c++)
        (void)cJSON_AddItemToArray(commands, command_json(*c));
    cJSON *options = cJSON_AddArrayToObject(all, "mount_options");
    for (const struct option_spec *spec = option_table; spec->name; spec++)
        if (spec->help)
            (void)cJSON_AddItemToArray(options, option_json(spec));
    cJSON *figures = cJSON_AddArrayToObject(all, "figures");
    for (const struct figure *f = figure_table; f->json; f++)
        (void)cJSON_AddItemToArray(figures, figure_json(f));
    json_print(all);
    cJSON_Delete(all);
}

/* --- the commands ----------------------------------------------------------------------------- */

static const struct exit_status exits[] = {{CLI_OK, "printed"}, {CLI_USAGE, "wrong usage"}, {0}};

struct help_request {
    bool json;
};

static int help_unknown(const struct command *command, const char *name)
{
    const char *guess = command_guess(name);
    return guess ? complain_usage(command, "unknown command '%s'; did you mean '%s'?", name, guess)
                 : complain_usage(command, "unknown command '%s'; 'cairn help' lists all", name);
}

static int execute_help(struct call *call)
{
    const struct help_request *request = call->request;
    const char *name = *call->operands;
    if (name && request->json)
        return complain_usage(call->command, "unexpected argument '%s'; --json prints all commands",
                              name);
    const struct command *about = name ? command_find(name) : NULL;
    if (name && !about)
        return help_unknown(call->command, name);
    if (about)
        help_print(about);
    else if (request->json)
        print_json();
    else
        help_print_overview(stdout);
    return CLI_OK;
}

const struct command help_command = {
    .name = "help",
    .summary = "explain cairn, or one command",
    .flags =
        (const struct flag[]){
            FLAG_JSON_OF("print the tables of all commands, options and figures as JSON",
                         offsetof(struct help_request, json)),
            {0}},
    REQUEST(struct help_request, 0),
    .operands = (const struct operand[]){{"COMMAND", OFFER_COMMANDS, true, false}, {0}},
    .exits = exits,
    .execute = execute_help,
};

static int execute_version(struct call *call)
{
    const struct help_request *request = call->request;
    (void)printf(request->json ? "{\"version\":\"%s\"}\n" : "cairn %s\n", CAIRN_VERSION);
    return CLI_OK;
}

const struct command version_command = {
    .name = "version",
    .summary = "print the version",
    .flags = (const struct flag[]){FLAG_JSON(offsetof(struct help_request, json)), {0}},
    REQUEST(struct help_request, 0),
    .exits = exits,
    .execute = execute_version,
};
