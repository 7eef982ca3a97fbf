// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>

#include "base/io.h"
#include "base/program.h"
#include "cli/mount.h"
#include "cli/mounts.h"
#include "daemon/holder.h"
#include "daemon/lifecycle.h"
#include "daemon/store_directory.h"

static volatile pid_t waited_child;

static void on_parent_signal(int signo)
{
    (void)signo;
    int saved = errno;
    (void)kill(waited_child, SIGTERM);
    errno = saved;
}

/* Prints the reason why a child ended without a report. */
static int print_child_died(pid_t child)
{
    int status = program_await(child);
    if (WIFSIGNALED(status))
        complain(
            "mount",
            "the daemon was killed by signal %d while starting; see STORE/log, then mount again",
            WTERMSIG(status));
    else
        complain("mount", "the daemon exited while starting; see STORE/log, then mount again");
    return MOUNT_SYSTEM;
}

/* The part of a child's report that has arrived. */
struct ready {
    bool marked, has_code;
    int exit_code;
};

/* Prints the lines, and extracts the exit status. */
static void take_report(struct ready *ready, char *buf, size_t len)
{
    size_t shown = 0;
    for (size_t i = 0; i < len; i++) {
        if (ready->marked && !ready->has_code) {
            ready->has_code = true;
            ready->exit_code = (unsigned char)buf[i];
        } else if (buf[i] == READY_MARK && !ready->marked) {
            ready->marked = true;
        } else {
            buf[shown++] = buf[i];
        }
    }
    (void)fwrite(buf, 1, shown, stderr);
}

/* Waits for the child's report; forwards an interrupt to it. */
static int await_child(pid_t child, int ready_fd)
{
    struct sigaction forward = {.sa_handler = on_parent_signal};
    struct ready ready = {.exit_code = MOUNT_SYSTEM};
    char buf[4096];
    waited_child = child;
    (void)sigaction(SIGINT, &forward, NULL);
    (void)sigaction(SIGTERM, &forward, NULL);
    for (;;) {
        ssize_t n = read(ready_fd, buf, sizeof buf);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        take_report(&ready, buf, (size_t)n);
    }
    return ready.has_code ? ready.exit_code : print_child_died(child);
}

/* Runs the daemon in this process, or in a child that a successor may replace. */
static int serve_mount(const char *store, const char *mountpoint,
                       const struct mount_options *options, int ready_fd)
{
    bool has_holder = options->successor == SUCCESSOR_ON ||
                      (options->successor == SUCCESSOR_AUTO && !options->foreground);
    return has_holder ? holder_main(store, mountpoint, options, ready_fd)
                      : lifecycle_main(store, mountpoint, options, ready_fd, NULL);
}

/* Closes inherited descriptors: the parent may wait for the end of a pipe or a lock that the daemon
 * would keep open. The one descriptor that the daemon needs, `ours`, gets another number. */
static int leave_inherited(int ours)
{
    int fd = STDERR_FILENO + 1;
    if (ours != fd && dup3(ours, fd, O_CLOEXEC) < 0)
        return ours;
    closefrom(fd + 1);
    return fd;
}

static int serve_in_background(const char *store, const char *mountpoint,
                               const struct mount_options *options)
{
    int ready[2];
    pid_t child = -1;
    if (pipe2(ready, O_CLOEXEC) == 0) {
        (void)fflush(NULL);
        child = fork();
    }
    if (child < 0) {
        complain("mount", "cannot start the daemon: %s; free memory or processes", strerror(errno));
        return MOUNT_SYSTEM;
    }
    if (child == 0) {
        (void)close(ready[0]);
        (void)setsid();
        _exit(serve_mount(store, mountpoint, options, leave_inherited(ready[1])));
    }
    (void)close(ready[1]);
    int code = await_child(child, ready[0]);
    (void)close(ready[0]);
    return code;
}

static int complain_resolve(const char *store, int r)
{
    if (r == -ENOENT)
        complain("mount",
                 "the parent directory of the store %s does not exist; create it with mkdir -p",
                 store);
    else
        complain("mount", "cannot access the store %s: %s; give another directory", store,
                 strerror(-r));
    return r == -EACCES ? MOUNT_USAGE : MOUNT_FAILED;
}

int mount_store(const struct mount_options *options, bool fake, const char *store_given,
                const char *mountpoint_given)
{
    _cleanup_free_ char *store = NULL;
    _cleanup_free_ char *mountpoint = NULL;
    struct service_error error = {0};
    bool cleared = false;
    int r = io_resolve_path(store_given, &store);
    if (r < 0)
        return complain_resolve(store_given, r);
    int code = check_mount(options, store, mountpoint_given);
    if (code != MOUNT_OK)
        return code;
    r = mountpoint_take(mountpoint_given, store, &mountpoint, &cleared, &error);
    if (cleared)
        complain("mount", "cleared the mount of a dead daemon from %s", mountpoint_given);
    if (r < 0) {
        complain("mount", "%s", error.text);
        free(error.text);
        return error.exit_code;
    }
    if (fake)
        return MOUNT_OK;
    if (options->foreground)
        return serve_mount(store, mountpoint, options, -1);
    return serve_in_background(store, mountpoint, options);
}

static int execute_mount(struct call *call)
{
    struct mount_options *options = call->request;
    _cleanup_free_ char *error = NULL;
    return options_finish(options, &error) < 0
               ? complain_usage(call->command, "%s", error)
               : mount_store(options, false, call->operands[0], call->operands[1]);
}

static void print_option(const struct option_spec *spec)
{
    const char *kind = option_value_kind(spec), *fallback = option_shown_default(spec);
    char name[48];
    (void)snprintf(name, sizeof name, "%s%s%s", spec->name, kind ? "=" : "", kind ? kind : "");
    (void)printf("  %-24s %s%s%s%s\n", name, spec->help, fallback ? " (default " : "",
                 fallback ? fallback : "", fallback ? ")" : "");
}

static void print_options(void)
{
    (void)printf("\nMount options (sizes: 512M 4G 1T; times: 250ms 10s 5m 1h)\n");
    for (unsigned group = 0; group < GROUP_COUNT; group++) {
        (void)printf("\n%s:\n", option_group_titles[group]);
        for (const struct option_spec *spec = option_table; spec->name; spec++)
            if (spec->help && spec->group == group)
                print_option(spec);
    }
}

static bool takes_every_option(const struct option_spec *spec)
{
    (void)spec;
    return true;
}

static const struct flag flags[] = {
    {.letter = 'o',
     .argument = "LIST",
     .help = "mount options, as in fstab: NAME[=VALUE],...; a comma in a value is written \\,",
     .kind = FLAG_OPTIONS},
    {.letter = 'f',
     .help = "run in the foreground; SIGINT and SIGTERM write everything to NVMe, unmount and exit",
     .offset = offsetof(struct mount_options, foreground)},
    {0},
};

const struct command mount_command = {
    .name = "mount",
    .summary = "mount a store; a new or empty directory becomes one",
    .description = "Returns when the mount is usable. Each mount option is also a flag: --stage "
                   "4G, --fsync=stage, --ro.",
    .flags = flags,
    REQUEST(struct mount_options, 0),
    .operands = (const struct operand[]){{.name = "STORE", .offers = OFFER_DIRECTORIES},
                                         {.name = "MOUNTPOINT", .offers = OFFER_DIRECTORIES},
                                         {0}},
    .exits = (const struct exit_status[]){{MOUNT_OK, "mounted"},
                                          {MOUNT_USAGE, "wrong usage, or permission denied"},
                                          {MOUNT_SYSTEM, "system error"},
                                          {MOUNT_INTERRUPTED, "interrupted"},
                                          {MOUNT_FAILED, "mount failed"},
                                          {0}},
    .usage_exit = MOUNT_USAGE,
    .takes_option = takes_every_option,
    .more_help = print_options,
    .execute = execute_mount,
};
