// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>

#include "cli/cli.h"
#include "cli/mount.h"
#include "cli/mounts.h"
#include "daemon/holder.h"
#include "daemon/lifecycle.h"
#include "daemon/store_folder.h"

#define TABLE_FLAG 1000 /* getopt's value for option_table[0] */
#define FLAGS_MAX 128

static volatile pid_t waited_child;

static void on_parent_signal(int signo)
{
    (void)signo;
    int saved = errno;
    (void)kill(waited_child, SIGTERM);
    errno = saved;
}

/* Why a child ended that told nothing. */
static int tell_child_died(pid_t child)
{
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    if (WIFSIGNALED(status))
        complain("mount", "the daemon died of signal %d while starting; look at STORE/log, then mount again",
                 WTERMSIG(status));
    else
        complain("mount", "the daemon ended while starting; look at STORE/log, then mount again");
    return MOUNT_SYSTEM;
}

/* What a child has told so far. */
struct ready {
    bool marked, has_code;
    int exit_code;
};

/* Shows the lines and takes the exit code out from among them. */
static void take_told(struct ready *ready, char *buf, size_t len)
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

/* Waits for what the child tells; passes on an interrupt. */
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
        take_told(&ready, buf, (size_t)n);
    }
    return ready.has_code ? ready.exit_code : tell_child_died(child);
}

/* In this process, or in a child of it that may be replaced. */
static int run_daemon(const char *store, const char *mountpoint, const struct mount_options *options, int ready_fd)
{
    bool keep = options->successor == SUCCESSOR_ON || (options->successor == SUCCESSOR_AUTO && !options->foreground);
    return keep ? holder_run(store, mountpoint, options, ready_fd) : lifecycle_run(store, mountpoint, options, ready_fd, NULL);
}

/* Closes inherited descriptors: the parent may wait for the end of a pipe or a lock that the daemon would keep open. The one descriptor that the
 * daemon needs, `ours`, gets another number. */
static int leave_inherited(int ours)
{
    int fd = STDERR_FILENO + 1;
    if (ours != fd && dup3(ours, fd, O_CLOEXEC) < 0)
        return ours;
    closefrom(fd + 1);
    return fd;
}

static int run_in_background(const char *store, const char *mountpoint, const struct mount_options *options)
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
        _exit(run_daemon(store, mountpoint, options, leave_inherited(ready[1])));
    }
    (void)close(ready[1]);
    int code = await_child(child, ready[0]);
    (void)close(ready[0]);
    return code;
}

static int complain_resolve(const char *store, int r)
{
    if (r == -ENOENT)
        complain("mount", "the folder that is to hold the store %s does not exist; make it with mkdir -p",
                 store);
    else
        complain("mount", "cannot look at the store %s: %s; give another folder", store, strerror(-r));
    return r == -EACCES ? MOUNT_USAGE : MOUNT_FAILED;
}

int mount_store(const struct mount_options *options, bool fake, const char *store_given, const char *mountpoint_given)
{
    _cleanup_free_ char *store = NULL;
    _cleanup_free_ char *mountpoint = NULL;
    struct service_error error = {0};
    bool cleared = false;
    int r = store_resolve(store_given, &store);
    if (r < 0)
        return complain_resolve(store_given, r);
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
        return run_daemon(store, mountpoint, options, -1);
    return run_in_background(store, mountpoint, options);
}

/* One long flag for each name in the table, and one more where '-' can stand for '_'. `dashed` gets the names
 * to free. */
static void make_flags(struct option *flags, char **dashed)
{
    size_t used = 0;
    for (size_t i = 0; option_table[i].name; i++) {
        const struct option_spec *spec = &option_table[i];
        int has_value =
            spec->kind == OPTION_SET || spec->kind == OPTION_CLEAR ? no_argument : required_argument;
        dashed[i] = xstrdup(spec->name);
        for (char *c = dashed[i]; *c; c++)
            *c = *c == '_' ? '-' : *c;
        check(used + 3 < FLAGS_MAX);
        flags[used++] = (struct option){spec->name, has_value, NULL, TABLE_FLAG + (int)i};
        if (strcmp(dashed[i], spec->name) != 0)
            flags[used++] = (struct option){dashed[i], has_value, NULL, TABLE_FLAG + (int)i};
    }
    flags[used] = (struct option){0};
}

static int set_one(const struct verb *verb, struct mount_options *options, int found, char **argv)
{
    char *error = NULL;
    int r = 0;
    if (found == 'o')
        r = options_set_list(options, optarg, false, &error);
    else if (found >= TABLE_FLAG)
        r = options_set(options, option_table[found - TABLE_FLAG].name, optarg, &error);
    else if (found == 'f')
        options->foreground = true;
    else
        return complain_option(verb, found, argv);
    if (r < 0)
        complain("mount", "%s", error);
    free(error);
    return r < 0 ? verb->usage_exit : 0;
}

static int parse_arguments(const struct verb *verb, struct mount_options *options, int argc, char **argv)
{
    struct option flags[FLAGS_MAX];
    char *dashed[FLAGS_MAX] = {0};
    int found, code = 0;
    make_flags(flags, dashed);
    opterr = 0;
    optind = 1;
    while (code == 0 && (found = getopt_long(argc, argv, ":o:f", flags, NULL)) != -1)
        code = set_one(verb, options, found, argv);
    for (size_t i = 0; i < FLAGS_MAX; i++)
        free(dashed[i]);
    if (code == 0 && argc - optind != 2)
        code = complain_usage(verb, "%s; run: cairn mount %s",
                              argc - optind < 2 ? "STORE and MOUNTPOINT are needed"
                                                : "there are too many arguments",
                              verb->synopsis);
    char *error = NULL;
    if (code == 0 && options_finish(options, &error) < 0)
        code = complain_usage(verb, "%s", error);
    free(error);
    return code;
}

int verb_mount(const struct verb *verb, int argc, char **argv)
{
    struct mount_options options;
    options_init(&options);
    int code = parse_arguments(verb, &options, argc, argv);
    if (code == 0)
        code = mount_store(&options, false, argv[optind], argv[optind + 1]);
    options_done(&options);
    return code;
}

static void print_option(const struct option_spec *spec)
{
    const char *kind = option_value_kind(spec);
    char name[48];
    (void)snprintf(name, sizeof name, "%s%s%s", spec->name, kind ? "=" : "", kind ? kind : "");
    (void)printf("  %-24s %s", name, spec->help);
    if (spec->fallback && strcmp(spec->fallback, "0") != 0)
        (void)printf(" (default %s)", spec->fallback);
    (void)printf("\n");
}

bool mount_takes(const struct option_spec *spec)
{
    (void)spec;
    return true;
}

void mount_options_help(void)
{
    static const char *const titles[GROUP_COUNT] = {[GROUP_TIERS] = "Stage and NVMe",
                                                    [GROUP_REMOTE] = "Remote",
                                                    [GROUP_ACCESS] = "Files, users, kernel",
                                                    [GROUP_DAEMON] = "The daemon"};
    (void)printf("\nOptions (sizes: 512M 4G 1T; times: 250ms 10s 5m 1h)\n");
    for (unsigned group = 0; group < GROUP_COUNT; group++) {
        (void)printf("\n%s:\n", titles[group]);
        for (const struct option_spec *spec = option_table; spec->name; spec++)
            if (spec->help && spec->group == group)
                print_option(spec);
    }
}
