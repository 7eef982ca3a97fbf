// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <libgen.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "base/text.h"
#include "cli/command.h"
#include "cli/helper.h"
#include "daemon/upgrade.h"

static bool has_letter(const struct command *command, char letter)
{
    for (const struct flag *flag = command->flags; flag && (flag->letter || flag->name); flag++)
        if (flag->letter == letter)
            return true;
    return false;
}

static bool wants_help(const struct command *command, int argc, char **argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--help") == 0 ||
            (strcmp(argv[i], "-h") == 0 && !has_letter(command, 'h')))
            return true;
    return false;
}

/* mount(8) and umount(8) run /sbin/mount.cairnfs and /sbin/umount.cairnfs, links to cairn. */
static bool is_called(char *argv0, const char *name)
{
    return strncmp(basename(argv0), name, strlen(name)) == 0;
}

/* No file of the store may get a descriptor below 3: messages of a library would be written to it,
 * and the daemon opens other files there when it leaves the terminal. Reads and writes of the files
 * opened there instead fail with EBADF, as on a closed descriptor. */
static int fill_closed_standard_files(void)
{
    int fd;
    do
        fd = open("/", O_PATH);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd < 0)
        return -errno;
    (void)close(fd);
    return 0;
}

/* A lost part of the output is an error, as the caller may rely on it. */
static int end_output(const struct command *command, int code)
{
    errno = 0;
    bool lost = ferror(stdout) != 0;
    if (fflush(stdout) == 0 && !lost)
        return code;
    complain(command->name, "cannot write to standard output: %s",
             errno ? strerror(errno) : "it was truncated");
    return code ? code : CLI_FAILED;
}

static int execute_command(const struct command *command, int argc, char **argv)
{
    if (!wants_help(command, argc, argv))
        return command_run(command, argc, argv);
    help_print(command);
    return CLI_OK;
}

static void report_unknown(const char *name)
{
    const char *guess = command_guess(name);
    if (name[0] == '/') /* a type of "fuse.cairn" in fstab leads here */
        text_print(stderr,
                   "cairn: unknown command '%s'; to mount it, run: cairn mount STORE MOUNTPOINT; "
                   "the type for mount(8) and fstab is cairnfs",
                   name);
    else if (name[0] == '-')
        text_print(stderr, "cairn: unknown option %s; see 'cairn help'", name);
    else if (guess)
        text_print(stderr, "cairn: unknown command '%s'; did you mean '%s'?", name, guess);
    else
        text_print(stderr, "cairn: unknown command '%s'; 'cairn help' lists all", name);
}

int main(int argc, char **argv)
{
    /* where it is ignored, as it may be inherited, no child can be waited for */
    (void)signal(SIGCHLD, SIG_DFL);
    int r = fill_closed_standard_files();
    if (r < 0) {
        text_print(stderr, "cairn: cannot open /: %s", strerror(-r));
        return CLI_FAILED;
    }
    if (argc > 0 && is_called(argv[0], "mount."))
        return mount_helper(argc, argv);
    if (argc > 0 && is_called(argv[0], "umount."))
        return umount_helper(argc, argv);
    if (argc < 2) {
        help_print_overview(stderr);
        return CLI_USAGE;
    }
    const char *name = argv[1];
    if (strcmp(name, "holder") == 0 && argc > 2)
        return upgrade_main(argc - 1, argv + 1); /* internal: not in the table */
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
        name = "help";
    else if (strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0)
        name = "version";
    const struct command *command = command_find(name);
    if (!command) {
        report_unknown(name);
        return CLI_USAGE;
    }
    return end_output(command, execute_command(command, argc - 1, argv + 1));
}
