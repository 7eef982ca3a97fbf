// SPDX-License-Identifier: Apache-2.0
/* The list of all commands; each is defined in its own file. */
#include "base/text.h"
#include "cli/command.h"

extern const struct command mount_command, umount_command, status_command, info_command, du_command,
    stats_command, metrics_command, log_command, wait_command, warmup_command, evict_command,
    scrub_command, gc_command, upgrade_command, ls_command, cp_command, fsck_command, adopt_command,
    doctor_command, version_command, help_command, completion_command;

const struct command *const command_table[] = {
    &mount_command,
    &umount_command,
    &status_command,
    &info_command,
    &du_command,
    &stats_command,
    &metrics_command,
    &log_command,
    &wait_command,
    &warmup_command,
    &evict_command,
    &scrub_command,
    &gc_command,
    &upgrade_command,
    &ls_command,
    &cp_command,
    &fsck_command,
    &adopt_command,
    &doctor_command,
    &version_command,
    &help_command,
    &completion_command,
    NULL,
};

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
