// SPDX-License-Identifier: Apache-2.0
/* cairn completion: prints the script for a shell. */
#include "cli/command.h"

/* Made by completion/scripts.py from completion/cairn.SHELL.in and the tables of the commands.
 * Weak: the program that prints those tables is linked without them. */
extern const char completion_bash[] __attribute__((weak)), completion_zsh[] __attribute__((weak)),
    completion_fish[] __attribute__((weak));

static int execute_completion(struct call *call)
{
    const struct {
        const char *shell, *script;
    } shells[] = {{"bash", completion_bash}, {"zsh", completion_zsh}, {"fish", completion_fish}};
    for (size_t i = 0; i < ARRAY_LEN(shells); i++)
        if (strcmp(shells[i].shell, *call->operands) == 0)
            (void)fputs(shells[i].script, stdout);
    return CLI_OK;
}

const struct command completion_command = {
    .name = "completion",
    .summary = "print the completion script of a shell",
    .description = "It completes commands, options and mountpoints. For this session: source "
                   "<(cairn completion bash).\n"
                   "An installation puts the scripts where the shells look for them.",
    .operands = (const struct operand[]){{.name = "bash|zsh|fish", .offers = OFFER_WORDS}, {0}},
    .exits = (const struct exit_status[]){{CLI_OK, "printed"}, {CLI_USAGE, "wrong usage"}, {0}},
    .execute = execute_completion,
};
