// SPDX-License-Identifier: Apache-2.0
#include "cli/cli.h"

#include <fcntl.h>
#include <getopt.h>
#include <libgen.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "base/text.h"
#include "daemon/control.h"
#include "daemon/store_folder.h"
#include "daemon/upgrade.h"

#define ASK_TIMEOUT_MS 30000
#define HUMAN_SECONDS_MAX 1e9
#define STARTING_MS 10000
#define STARTING_STEP_MS 50

static int verb_version(const struct verb *verb, int argc, char **argv);
static int verb_help(const struct verb *verb, int argc, char **argv);

/* clang-format off */
const struct verb verb_table[] = {
    {"mount", "STORE MOUNTPOINT [-o OPTION[=VALUE],...] [-f]",
     "mount a store; a new or empty folder becomes one",
     "Returns when the mount is usable. Each option below is also a flag: --stage 4G, --fsync=stage, --ro.\n"
     "  -o LIST   options, as in fstab; a comma in a value is written \\,\n"
     "  -f        stay in the foreground; SIGINT and SIGTERM carry all to NVMe, unmount and end\n"
     "Exit codes: 0 mounted, 1 wrong usage or no permission, 2 system error, 8 interrupted, 32 mount failed.",
     1, verb_mount, mount_options_help, mount_takes},
    {"umount", "MOUNTPOINT [--drain LEVEL] [--timeout TIME] [--keep-others]", "carry all to NVMe, unmount, wait for the daemon to end",
     "  -d, --drain nvme|remote   remote: upload all first; nvme (default): the next mount goes on with that\n"
     "  -t, --timeout TIME        give up after TIME (10s, 5m); the mount then stays as it is\n"
     "  -k, --keep-others         change nothing where another mount namespace has the mount, too; else it ends there as well\n"
     "Exit codes: 0 unmounted, 1 failed (in use: it says by whom), 2 wrong usage, 3 the time is up and it is still "
     "mounted, 130 interrupted.",
     CLI_USAGE, verb_umount, NULL, NULL},
    {"status", "[MOUNTPOINT|STORE] [--json]",
     "what is where, what is under way; without argument: of all mounts",
     "  -j, --json   the same as JSON\n"
     "Exit codes: 0 shown, 1 a daemon does not answer, 2 wrong usage.",
     CLI_USAGE, verb_status, NULL, NULL},
    {"info", "PATH [--json]", "what a file, or all below a folder, consists of, and where it lies",
     "Version, chunks, level, bytes stored, deduplication and compression, and what deleting it would free.\n"
     "  -j, --json   the same as JSON\n"
     "What is in the stage only is counted by itself. Exit codes: 0 shown, 1 failed, 2 wrong usage, 130 interrupted.",
     CLI_USAGE, verb_info, NULL, NULL},
    {"du", "PATH... [--json]", "how much files, or all below folders, take",
     "logical: their sizes; unique: what is different in them; stored: that, as it is stored; what is not on NVMe yet.\n"
     "  -j, --json   the same as JSON\n"
     "Exit codes: 0 shown, 1 failed, 2 wrong usage, 130 interrupted.",
     CLI_USAGE, verb_du, NULL, NULL},
    {"stats", "MOUNTPOINT [--interval TIME] [--count N] [--json]", "a line a second of what a mount does",
     "  -i, --interval TIME   another time than 1s\n"
     "  -n, --count N         end after N lines\n"
     "  -j, --json            each line as a JSON object\n"
     "Exit codes: 0 N lines were shown, 1 the daemon does not answer, 2 wrong usage, 130 interrupted.",
     CLI_USAGE, verb_stats, NULL, NULL},
    {"metrics", "MOUNTPOINT", "counters and gauges of a mount, in the text format of Prometheus",
     "-o metrics=ADDRESS:PORT serves the same over HTTP, and /healthz. Exit codes: 0 shown, 1 failed, 2 wrong usage.",
     CLI_USAGE, verb_metrics, NULL, NULL},
    {"log", "[MOUNTPOINT|STORE] [--follow] [--level LEVEL] [--lines N] [--json]",
     "what a daemon wrote to its log; without argument: of the one mount that there is",
     "  -f, --follow    go on with what comes\n"
     "  -l, --level error|warning|info|debug   no lines that matter less (default debug)\n"
     "  -n, --lines N   only the last N\n"
     "  -j, --json      each line as a JSON object\n"
     "Exit codes: 0 shown, 1 failed, 2 wrong usage, 130 interrupted.",
     CLI_USAGE, verb_log, NULL, NULL},
    {"wait", "PATH... [--level LEVEL] [--timeout TIME]",
     "wait until files, or all below folders, are on NVMe or in the remote",
     "  -l, --level stage|nvme|remote   where it is to be (default nvme)\n"
     "  -t, --timeout TIME              give up after TIME (10s, 5m)\n"
     "Exit codes: 0 all is there, 1 failed, 2 wrong usage, 3 the time is up, 130 interrupted.",
     CLI_USAGE, verb_wait, NULL, NULL},
    {"warmup", "PATH... [--timeout TIME]", "fetch files, or all below folders, from the remote onto NVMe",
     "  -t, --timeout TIME   give up after TIME (10s, 5m); what was fetched stays\n"
     "Exit codes: 0 all is there, 1 failed, or NVMe has no room for all, 2 wrong usage, 3 the time is up, 130 interrupted.",
     CLI_USAGE, verb_warmup, NULL, NULL},
    {"evict", "PATH... [--timeout TIME]", "drop files, or all below folders, from NVMe; the remote has them",
     "  -t, --timeout TIME   give up after TIME (10s, 5m)\n"
     "What the remote does not have, and what is pinned (setfattr -n user.cairn.pin -v 1), stays.\n"
     "Exit codes: 0 nothing is left, 1 failed, or something had to stay, 2 wrong usage, 3 the time is up, 130 interrupted.",
     CLI_USAGE, verb_evict, NULL, NULL},
    {"scrub", "[--rate BYTES/s] [--remote|--local] MOUNTPOINT",
     "read and verify all that is stored, heal what is damaged from where it is not",
     "  -r, --rate RATE   read no more than that in a second (100M)\n"
     "  --remote          only the remote\n"
     "  --local           only NVMe\n"
     "An interrupt cancels it. Exit codes: 0 clean or healed, 1 not all healed, or failed, 2 wrong usage, 130 interrupted.",
     CLI_USAGE, verb_scrub, NULL, NULL},
    {"gc", "[--dry-run] MOUNTPOINT", "delete now what nothing needs, on NVMe and in the remote",
     "  -n, --dry-run   say what would be deleted, and why\n"
     "Both happen by themselves; in the remote after -o gc_grace. Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted.",
     CLI_USAGE, verb_gc, NULL, NULL},
    {"upgrade", "MOUNTPOINT [--binary PATH] [--timeout TIME]", "go on with a mount in another version of cairn, under running programs",
     "  -b, --binary PATH    that one; default: the cairn that is run with this\n"
     "  -t, --timeout TIME   wait no longer than TIME (10s, 5m); the upgrade goes on by itself then\n"
     "Nothing is unmounted: open files, maps and locks stay, and calls wait. Where the other version cannot take the mount over,\n"
     "this one goes on with it. Exit codes: 0 done, 1 failed, 2 wrong usage, 3 the time is up, 130 interrupted.",
     CLI_USAGE, verb_upgrade, NULL, NULL},
    {"ls", "[-l] [-R] SOURCE:PATH...", "what is in a remote, or in a store that is not mounted",
     "  -l   as ls -l: mode, links, owner, size, time\n"
     "  -R   all below it, too\n"
     "Of a remote its newest head is shown. Exit codes: 0 shown, 1 failed, 2 wrong usage.",
     CLI_USAGE, verb_ls, source_flags_help, source_takes},
    {"cp", "[-r] SOURCE:PATH... LOCAL", "copy from a remote, or from a store that is not mounted",
     "  -r   folders, with all below them; of a PATH that ends in '/', and of the root, what is in it\n"
     "Everything is verified; a file has its name only when it is whole. Modes, times, holes and symbolic links are kept,\n"
     "owners are not. Exit codes: 0 copied, 1 something was not, 2 wrong usage, 130 interrupted.",
     CLI_USAGE, verb_cp, source_flags_help, source_takes},
    {"fsck", "[--repair] STORE", "check a store that is not mounted: every reference, every chunk",
     "  --repair   cut the journal where it is damaged; what comes behind is lost, and kept in STORE/lost+found\n"
     "Exit codes: 0 clean, 1 cut and clean now, 4 problems found, 8 could not check, 16 wrong usage.",
     16, verb_fsck, NULL, NULL},
    {"adopt", "--new-id STORE", "make the copy of a store, which is not mounted, a store of its own",
     "  --new-id   it gets a new id; a copy has that of its original, and should not go on beside it so\n"
     "Journal, packs and history stay as they are. A remote takes it for another writer from then on.\n"
     "Exit codes: 0 done, 1 failed, 2 wrong usage.",
     CLI_USAGE, verb_adopt, NULL, NULL},
    {"version", "", "print the version", "Exit codes: 0, 2 wrong usage.", CLI_USAGE, verb_version, NULL, NULL},
    {"help", "[VERB]", "explain cairn, or one verb",
     "Exit codes: 0, 2 wrong usage.", CLI_USAGE, verb_help, NULL, NULL},
    {"completion", "bash|zsh|fish", "print what lets a shell complete cairn's verbs, flags and mountpoints",
     "For this session: source <(cairn completion bash). An installation puts them where the shells look.\n"
     "Exit codes: 0, 2 wrong usage.",
     CLI_USAGE, verb_completion, NULL, NULL},
    {0},
};
/* clang-format on */

static const struct verb *find_verb(const char *name)
{
    for (const struct verb *verb = verb_table; verb->name; verb++)
        if (strcmp(verb->name, name) == 0)
            return verb;
    return NULL;
}

static void vcomplain(const char *verb, const char *fmt, va_list ap)
{
    _cleanup_free_ char *text = NULL;
    if (vasprintf(&text, fmt, ap) < 0)
        text = NULL;
    text_print(stderr, "cairn %s: %s", verb, text ? text : "out of memory");
}

void complain(const char *verb, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vcomplain(verb, fmt, ap);
    va_end(ap);
}

int complain_usage(const struct verb *verb, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vcomplain(verb->name, fmt, ap);
    va_end(ap);
    return verb->usage_exit;
}

int complain_option(const struct verb *verb, int found, char **argv)
{
    const char *last = argv[optind - 1];
    bool is_long = strncmp(last, "--", 2) == 0;
    /* Letters that stand together, -xy, are one argument, and it may not be done with. */
    char letter[] = {'-', (char)optopt, '\0'};
    const char *option = optopt == 0 || is_long ? last : letter;
    if (found == ':')
        return complain_usage(verb, "%s needs a value; see 'cairn help %s'", option, verb->name);
    if (is_long && optopt && strchr(last, '='))
        return complain_usage(verb, "%.*s takes no value; see 'cairn help %s'", (int)strcspn(last, "="), last, verb->name);
    return complain_usage(verb, "%s is no option here; see 'cairn help %s'", option, verb->name);
}

int take_json(const struct verb *verb, int argc, char **argv, bool *ret_json)
{
    static const struct option flags[] = {{"json", no_argument, NULL, 'j'}, {0}};
    int found;
    opterr = 0;
    optind = 1;
    while ((found = getopt_long(argc, argv, ":j", flags, NULL)) != -1) {
        if (found != 'j')
            return complain_option(verb, found, argv);
        *ret_json = true;
    }
    return CLI_OK;
}

const char *daemon_trouble(int r)
{
    switch (r) {
    case -ENOENT:
    case -ECONNREFUSED:
        return "no daemon serves it; mount it with 'cairn mount'";
    case -EACCES:
    case -EPERM:
        return "permission denied; run as root or as the user who mounted it";
    case -ETIMEDOUT:
        return "the daemon does not answer; its log (STORE/log) may say why";
    case -ECONNRESET:
    case -EPIPE:
        return "the daemon ended; mount the store again, what was written is recovered";
    case -EBADMSG:
        return "the daemon's answer is not understood; is it another version?";
    default:
        return strerror(-r);
    }
}

static bool is_none(int r)
{
    return r == -ENOENT || r == -ECONNREFUSED || r == -ECONNRESET || r == -EPIPE;
}

int request_patiently(const char *store, const cJSON *request, int timeout_ms, cJSON **ret_reply)
{
    for (int waited = 0;; waited += STARTING_STEP_MS) {
        pid_t holder;
        int r = control_request(store, request, timeout_ms, ret_reply);
        /* Where it died while it was asked, another may go on. */
        if (!is_none(r) || waited >= STARTING_MS || store_lock_holder(store, &holder) != 1)
            return r;
        (void)nanosleep(&(struct timespec){.tv_nsec = STARTING_STEP_MS * 1000000}, NULL);
    }
}

static int ask(const char *verb, const char *store, const char *name, cJSON *request, bool may_end, cJSON **ret_reply)
{
    if (!request)
        request = cJSON_CreateObject();
    (void)cJSON_AddStringToObject(request, "verb", name);
    cJSON *reply = NULL;
    int r = request_patiently(store, request, ASK_TIMEOUT_MS, &reply);
    cJSON_Delete(request);
    if (may_end && is_none(r))
        return -ESHUTDOWN;
    if (r < 0) {
        complain(verb, "store %s: %s", store, daemon_trouble(r));
        return r;
    }
    const cJSON *error = cJSON_GetObjectItemCaseSensitive(reply, "error");
    /* The horizon has an "error" of its own: the last one of writeback, which is no answer to the request. */
    if (cJSON_IsString(error) && cJSON_HasObjectItem(reply, "errno")) {
        complain(verb, "store %s: %s", store, error->valuestring);
        cJSON_Delete(reply);
        return -EREMOTEIO;
    }
    *ret_reply = reply;
    return 0;
}

int ask_daemon(const char *verb, const char *store, const char *name, cJSON *request, cJSON **ret_reply)
{
    return ask(verb, store, name, request, false, ret_reply);
}

int ask_daemon_or_end(const char *verb, const char *store, const char *name, cJSON *request, cJSON **ret_reply)
{
    return ask(verb, store, name, request, true, ret_reply);
}

struct human human_bytes(uint64_t bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    struct human h;
    double value = (double)bytes;
    size_t unit = 0;
    while (value >= 1024 && unit + 1 < ARRAY_LEN(units)) {
        value /= 1024;
        unit++;
    }
    (void)snprintf(h.text, sizeof h.text, unit == 0 || value >= 100 ? "%.0f %s" : "%.1f %s", value,
                   units[unit]);
    return h;
}

struct human human_seconds(double seconds)
{
    struct human h;
    /* Whatever a reply says: NaN and what no clock ever showed, too. */
    long whole = seconds > 0 ? (long)fmin(seconds, HUMAN_SECONDS_MAX) : 0;
    if (whole < 60)
        (void)snprintf(h.text, sizeof h.text, "%.1f s", seconds > 0 ? seconds : 0);
    else if (whole < 3600)
        (void)snprintf(h.text, sizeof h.text, "%ld min %ld s", whole / 60, whole % 60);
    else
        (void)snprintf(h.text, sizeof h.text, "%ld h %ld min", whole / 3600, whole / 60 % 60);
    return h;
}

static int verb_version(const struct verb *verb, int argc, char **argv)
{
    if (argc > 1)
        return complain_usage(verb, "'%s' is too much; run: cairn version", argv[1]);
    (void)printf("cairn %s\n", CAIRN_VERSION);
    return CLI_OK;
}

static void print_overview(FILE *out)
{
    (void)fprintf(out, "cairn: checkpoints land in memory, are carried to NVMe and on to a remote in order, and survive.\n\n");
    for (const struct verb *verb = verb_table; verb->name; verb++)
        (void)fprintf(out, "  cairn %-10s %s\n", verb->name, verb->summary);
    (void)fprintf(out, "\n'cairn help VERB' explains one.\n");
}

static void explain(const struct verb *verb)
{
    (void)printf("cairn %s %s\n%s\n\n%s\n", verb->name, verb->synopsis, verb->summary, verb->help);
    if (verb->more_help)
        verb->more_help();
}

static int verb_help(const struct verb *verb, int argc, char **argv)
{
    if (argc > 2)
        return complain_usage(verb, "'%s' is too much; run: cairn help [VERB]", argv[2]);
    if (argc < 2) {
        print_overview(stdout);
        return CLI_OK;
    }
    const struct verb *about = find_verb(argv[1]);
    if (!about)
        return complain_usage(verb, "'%s' is no verb; 'cairn help' lists them", argv[1]);
    explain(about);
    return CLI_OK;
}

static bool wants_help(int argc, char **argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--help") == 0)
            return true;
    return false;
}

/* mount(8) and umount(8) run /sbin/mount.cairnfs and /sbin/umount.cairnfs, links to cairn. */
static bool is_called(char *argv0, const char *name)
{
    return strncmp(basename(argv0), name, strlen(name)) == 0;
}

/* Below 3 nothing of the store may be opened: what a library prints would go into it, and the daemon puts other files there when it leaves
 * the terminal. Who reads or writes what stands there instead gets EBADF, as from a closed one. */
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

/* Who keeps what a verb prints learns when it is not all of it. */
static int end_output(const struct verb *verb, int code)
{
    errno = 0;
    bool lost = ferror(stdout) != 0;
    if (fflush(stdout) == 0 && !lost)
        return code;
    complain(verb->name, "writing failed: %s", errno ? strerror(errno) : "standard output did not take all");
    return code ? code : CLI_FAILED;
}

static int run_verb(const struct verb *verb, int argc, char **argv)
{
    if (!wants_help(argc, argv))
        return verb->run(verb, argc, argv);
    explain(verb);
    return CLI_OK;
}

int main(int argc, char **argv)
{
    (void)signal(SIGCHLD, SIG_DFL); /* where it is ignored, as it may be inherited, no child can be waited for */
    int r = fill_closed_standard_files();
    if (r < 0) {
        text_print(stderr, "cairn: cannot open /: %s", strerror(-r));
        return CLI_FAILED;
    }
    if (argc > 0 && is_called(argv[0], "mount."))
        return mount_helper(find_verb("mount"), argc, argv);
    if (argc > 0 && is_called(argv[0], "umount."))
        return umount_helper(find_verb("umount"), argc, argv);
    if (argc < 2) {
        print_overview(stderr);
        return CLI_USAGE;
    }
    const char *name = argv[1];
    if (strcmp(name, "holder") == 0 && argc > 2)
        return upgrade_main(argc - 1, argv + 1); /* no verb for people */
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
        name = "help";
    else if (strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0)
        name = "version";
    const struct verb *verb = find_verb(name);
    if (!verb) {
        text_print(stderr, "cairn: '%s' is no verb; 'cairn help' lists them", argv[1]);
        return CLI_USAGE;
    }
    return end_output(verb, run_verb(verb, argc - 1, argv + 1));
}
