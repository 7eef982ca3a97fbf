// SPDX-License-Identifier: Apache-2.0
/* The list of all commands, each of which is defined in its own file, and their execution. */
#include "base/text.h"
#include "cli/target.h"

/* clang-format off */
#define COMMANDS(X) \
    X(mount) X(umount) X(status) X(info) X(du) X(stats) X(top) X(metrics) X(log) X(wait) X(warmup) \
    X(evict) X(scrub) X(gc) X(upgrade) X(ls) X(cp) X(history) X(diff) X(snapshot) X(restore) \
    X(advise) X(nodes) X(fsck) X(adopt) X(doctor) X(version) X(help) X(completion)
/* clang-format on */
#define DECLARE(name) extern const struct command name##_command;
#define ENTRY(name) &name##_command,
COMMANDS(DECLARE)

const struct command *const command_table[] = {COMMANDS(ENTRY) NULL};

const struct command *command_find(const char *name)
{
    for (const struct command *const *c = command_table; *c; c++)
        if (strcmp((*c)->name, name) == 0)
            return *c;
    return NULL;
}

const char *command_guess(const char *name)
{
    struct text_guess guess = {.word = name};
    for (const struct command *const *c = command_table; *c; c++)
        text_guess_try(&guess, (*c)->name);
    return guess.best;
}

int command_run(const struct command *command, int argc, char **argv)
{
    struct call call = {.command = command, .request = xcalloc(1, command->request_size + 1)};
    struct mount_options *options = NULL;
    if (command->request)
        memcpy(call.request, command->request, command->request_size);
    if (command->takes_option)
        options_init(options = (void *)((char *)call.request + command->options_offset));
    int code = flags_parse(&call, argc, argv);
    if (code == CLI_OK && command->target == TARGET_MOUNT)
        code = target_of_mount(command, *call.operands, &call.target);
    else if (code == CLI_OK && command->target == TARGET_ANY)
        code = target_of_any(command, *call.operands, &call.target);
    if (code == CLI_OK)
        code = command->execute(&call);
    target_done(&call.target);
    if (options)
        options_done(options);
    free(call.request);
    return code;
}
