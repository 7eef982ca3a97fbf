// SPDX-License-Identifier: Apache-2.0
/* cairn completion: prints the script for a shell (completion/cairn.SHELL.in). Each @NAME@ in it is
 * a part that is filled in here, from the tables of the commands and of the mount options. */
#include "cli/completion.h"

#include <stdio.h>

#include "cli/command.h"
#include "cli/mounts.h"
#include "daemon/options.h"

/* The ways in which a shell offers each source; a bit of OFFER_ is the index. */
enum { SOURCES = 6 };

struct part {
    const char *name;
    void (*print)(void);
};

/* Returns the sources that complete the argument of a flag; 0: none. */
static unsigned flag_offers(const struct flag *flag)
{
    if (flag->kind == FLAG_WORD)
        return OFFER_WORDS;
    if (flag->kind == FLAG_OPTIONS)
        return OFFER_OPTIONS;
    return strcmp(flag->argument, "PATH") == 0 ? OFFER_FILES : 0;
}

/* Returns the sources that complete the operands of a command: shells offer the same for each of
 * them. */
static unsigned command_offers(const struct command *command)
{
    unsigned offers = 0;
    for (const struct operand *operand = command->operands; operand && operand->name; operand++)
        offers |= operand->offers;
    return offers;
}

/* The words of an operand, or NULL. */
static const char *command_words(const struct command *command)
{
    const struct operand *operand = command->operands;
    return operand && operand->offers == OFFER_WORDS ? operand->name : NULL;
}

/* "a|b" as "a b" */
static void print_words(const char *words)
{
    for (; *words; words++)
        (void)putchar(*words == '|' ? ' ' : *words);
}

static void print_command_names(void)
{
    for (const struct command *const *c = command_table; *c; c++)
        (void)printf("%s%s", (*c)->name, c[1] ? " " : "");
}

/* Prints text inside single quotes, where zsh gives brackets a meaning. */
static void print_text(const char *text)
{
    for (; *text; text++) {
        if (*text == '\'')
            (void)printf("'\\''");
        else
            (void)putchar(*text == '[' ? '(' : *text == ']' ? ')' : *text);
    }
}

static void print_option_names(void)
{
    for (const struct option_spec *spec = option_table; spec->name; spec++)
        if (spec->help)
            (void)printf("%s%s ", spec->name, option_value_kind(spec) ? "=" : "");
}

static void print_option_values(void)
{
    for (const struct option_spec *spec = option_table; spec->name; spec++)
        for (size_t i = 0; spec->help && spec->words && spec->words[i]; i++)
            (void)printf("%s=%s ", spec->name, spec->words[i]);
}

static void print_fstype(void)
{
    (void)printf("%s", CAIRN_FSTYPE);
}

static void for_commands(void (*fn)(const struct command *command))
{
    for (const struct command *const *c = command_table; *c; c++) {
        fn(*c);
        (void)printf("%s", c[1] ? "\n" : "");
    }
}

/* --- bash ------------------------------------------------------------------------------------- */

static void bash_offer(unsigned offers, const char *words)
{
    static const char *const calls[SOURCES] = {
        "_cairn_offer ",      "_cairn_offer $_cairn_commands",
        "_cairn_mountpoints", "_cairn_files -d",
        "_cairn_files -f",    "_cairn_options"};
    for (unsigned i = 0; i < SOURCES; i++) {
        if (!(offers & 1u << i))
            continue;
        (void)printf(" %s", calls[i]);
        if (1u << i == OFFER_WORDS)
            print_words(words);
        (void)printf(" ;");
    }
    (void)printf("%s", offers ? ";" : " : ;;");
}

static void bash_value(const struct flag *flag, void *arg)
{
    const struct command *command = arg;
    if (!flag->argument)
        return;
    (void)printf("    ");
    if (flag->letter)
        (void)printf("%s/-%c%s", command->name, flag->letter, flag->name ? " | " : "");
    if (flag->name)
        (void)printf("%s/--%s", command->name, flag->name);
    (void)printf(")");
    bash_offer(flag_offers(flag), flag->argument);
    (void)printf("\n");
}

static void bash_values(void)
{
    for (const struct command *const *c = command_table; *c; c++)
        command_each_flag(*c, bash_value, (void *)*c);
}

static void bash_flag(const struct flag *flag, void *arg)
{
    (void)arg;
    if (flag->letter)
        (void)printf(" -%c", flag->letter);
    if (flag->name)
        (void)printf(" --%s", flag->name);
}

static void bash_command_flags(const struct command *command)
{
    (void)printf("    %s) _cairn_offer --help", command->name);
    command_each_flag(command, bash_flag, NULL);
    (void)printf(" ;;");
}

static void bash_flags(void)
{
    for_commands(bash_command_flags);
}

static void bash_command_operands(const struct command *command)
{
    (void)printf("    %s)", command->name);
    bash_offer(command_offers(command), command_words(command));
}

static void bash_operands(void)
{
    for_commands(bash_command_operands);
}

static const struct part bash_parts[] = {{"FSTYPE", print_fstype},
                                         {"COMMANDS", print_command_names},
                                         {"OPTION_NAMES", print_option_names},
                                         {"OPTION_VALUES", print_option_values},
                                         {"VALUES", bash_values},
                                         {"FLAGS", bash_flags},
                                         {"OPERANDS", bash_operands},
                                         {0}};

/* --- zsh -------------------------------------------------------------------------------------- */

static const char *const zsh_actions[SOURCES] = {
    "", "_cairn_commands", "_cairn_mountpoints", "_files -/", "_files", "_cairn_options"};

static void zsh_action(unsigned offers, const char *words)
{
    if (offers == OFFER_WORDS) {
        (void)printf("(");
        print_words(words);
        (void)printf(")");
    }
    for (unsigned i = 1; i < SOURCES; i++)
        if (offers == 1u << i)
            (void)printf("%s", zsh_actions[i]);
    if (offers == 0)
        (void)printf(" ");
}

/* One spelling of a flag: "-l+" and "--level=" take their argument behind them or as the
 * next word. */
static void zsh_spelling(const struct flag *flag, const char *dashes, const char *name, char glue)
{
    (void)printf(" \\\n            '%s%s", dashes, name);
    if (flag->argument)
        (void)printf("%c", glue);
    (void)printf("[");
    print_text(flag->help);
    (void)printf("]");
    if (flag->argument) {
        (void)printf(":%s:", flag->kind == FLAG_WORD ? "word" : flag->argument);
        zsh_action(flag_offers(flag), flag->argument);
    }
    (void)printf("'");
}

static void zsh_flag(const struct flag *flag, void *arg)
{
    const char letter[] = {flag->letter, '\0'};
    (void)arg;
    if (flag->letter)
        zsh_spelling(flag, "-", letter, '+');
    if (flag->name)
        zsh_spelling(flag, "--", flag->name, '=');
}

static void zsh_operands(const struct command *command)
{
    unsigned offers = command_offers(command);
    if (offers == 0)
        return;
    (void)printf(" \\\n            '*:%s:", command->name);
    if ((offers & (offers - 1)) == 0) {
        zsh_action(offers, command_words(command));
    } else {
        (void)printf("_alternative");
        for (unsigned i = 1; i < SOURCES; i++)
            if (offers & 1u << i)
                (void)printf(" \"%s\\:%s\\:%s\"", command->name, command->name, zsh_actions[i]);
    }
    (void)printf("'");
}

static void zsh_command_arguments(const struct command *command)
{
    (void)printf("    %s)\n        _arguments '--help[explain the command]'", command->name);
    command_each_flag(command, zsh_flag, NULL);
    zsh_operands(command);
    (void)printf(" ;;");
}

static void zsh_arguments(void)
{
    for_commands(zsh_command_arguments);
}

static void zsh_command(const struct command *command)
{
    (void)printf("        '%s:", command->name);
    print_text(command->summary);
    (void)printf("'");
}

static void zsh_commands(void)
{
    for_commands(zsh_command);
}

static void zsh_options(void)
{
    const char *before = "";
    for (const struct option_spec *spec = option_table; spec->name; spec++) {
        const char *kind = option_value_kind(spec);
        if (!spec->help)
            continue;
        (void)printf("%s        '%s[", before, spec->name);
        print_text(spec->help);
        (void)printf("]%s%s", kind ? ":" : "", kind ? kind : "");
        for (size_t i = 0; spec->words && spec->words[i]; i++)
            (void)printf("%s%s%s", i ? " " : ":(", spec->words[i], spec->words[i + 1] ? "" : ")");
        (void)printf("'");
        before = " \\\n";
    }
}

static const struct part zsh_parts[] = {{"FSTYPE", print_fstype},
                                        {"COMMANDS", zsh_commands},
                                        {"OPTIONS", zsh_options},
                                        {"ARGUMENTS", zsh_arguments},
                                        {0}};

/* --- fish ------------------------------------------------------------------------------------- */

static void fish_action(unsigned source, const char *words)
{
    static const char *const arguments[SOURCES] = {
        " -x -a '",
        " -x -a '",
        " -x -a '(__cairn_mountpoints)'",
        " -x -a '(__fish_complete_directories)'",
        " -r -F",
        " -x -a '(__fish_complete_list , __cairn_options)'"};
    for (unsigned i = 0; i < SOURCES; i++)
        if (source == 1u << i)
            (void)printf("%s", arguments[i]);
    if (source == OFFER_WORDS)
        print_words(words);
    if (source == OFFER_COMMANDS)
        print_command_names();
    if (source == OFFER_WORDS || source == OFFER_COMMANDS)
        (void)printf("'");
    if (source == 0)
        (void)printf(" -x");
}

static void fish_begin(const struct command *command)
{
    (void)printf("complete -c cairn -n '__cairn_is_command %s'", command->name);
}

static void fish_flag(const struct flag *flag, void *arg)
{
    fish_begin(arg);
    if (flag->letter)
        (void)printf(" -s %c", flag->letter);
    if (flag->name)
        (void)printf(" -l %s", flag->name);
    if (flag->argument)
        fish_action(flag_offers(flag), flag->argument);
    (void)printf(" -d '");
    print_text(flag->help);
    (void)printf("'\n");
}

static void fish_completions(void)
{
    for (const struct command *const *c = command_table; *c; c++) {
        (void)printf("complete -c cairn -n __cairn_is_command -a %s -d '", (*c)->name);
        print_text((*c)->summary);
        (void)printf("'\n");
        command_each_flag(*c, fish_flag, (void *)*c);
        for (unsigned i = 0, offers = command_offers(*c); i < SOURCES; i++) {
            if (!(offers & 1u << i))
                continue;
            fish_begin(*c);
            fish_action(1u << i, command_words(*c));
            (void)printf("\n");
        }
    }
}

static const struct part fish_parts[] = {{"FSTYPE", print_fstype},
                                         {"OPTION_NAMES", print_option_names},
                                         {"OPTION_VALUES", print_option_values},
                                         {"COMPLETIONS", fish_completions},
                                         {0}};

/* --- the command ------------------------------------------------------------------------------ */

/* The part whose name stands at `at`, a '@'; NULL: none does. */
static const struct part *part_at(const struct part *parts, const char *at)
{
    for (; parts->name; parts++) {
        size_t len = strlen(parts->name);
        if (strncmp(at + 1, parts->name, len) == 0 && at[1 + len] == '@')
            return parts;
    }
    return NULL;
}

static void print_script(const char *script, const struct part *parts)
{
    while (*script) {
        const struct part *part = *script == '@' ? part_at(parts, script) : NULL;
        if (part)
            part->print();
        else
            (void)putchar(*script);
        script += part ? strlen(part->name) + 2 : 1;
    }
}

static int execute_completion(const struct command *command, int argc, char **argv)
{
    const struct {
        const char *shell, *script;
        const struct part *parts;
    } shells[] = {{"bash", completion_bash, bash_parts},
                  {"zsh", completion_zsh, zsh_parts},
                  {"fish", completion_fish, fish_parts}};
    char **shell;
    int code = flags_parse(command, argc, argv, NULL, &shell);
    for (size_t i = 0; code == CLI_OK && i < ARRAY_LEN(shells); i++)
        if (strcmp(shells[i].shell, *shell) == 0)
            print_script(shells[i].script, shells[i].parts);
    return code;
}

const struct command completion_command = {
    .name = "completion",
    .summary = "print the completion script of a shell",
    .description = "It completes commands, options and mountpoints. For this session: source "
                   "<(cairn completion bash).\n"
                   "An installation puts the scripts where the shells look for them.",
    .operands = (const struct operand[]){{.name = "bash|zsh|fish", .offers = OFFER_WORDS}, {0}},
    .exits = (const struct exit_status[]){{CLI_OK, "printed"}, {CLI_USAGE, "wrong usage"}, {0}},
    .usage_exit = CLI_USAGE,
    .execute = execute_completion,
};
