// SPDX-License-Identifier: Apache-2.0
/* cairn doctor: one archive for a report of a fault. Each part is the output of a command or the
 * text of a file, without secrets; a part that is not available contains the reason, and the others
 * follow. All commands run at once, and have 10 s together: a daemon that hangs makes each of them
 * wait. */
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/utsname.h>
#include <time.h>

#include "base/archive.h"
#include "base/clock.h"
#include "base/program.h"
#include "cli/ask.h"
#include "cli/command.h"
#include "cli/human.h"
#include "cli/json.h"
#include "cli/redact.h"
#include "daemon/store_directory.h"

#define PART_MAX (16u * 1024 * 1024)
#define FILE_WAIT_NS (10 * SECOND_NS)
#define LOOKS_WAIT_S 10   /* for all of them: a daemon that hangs does not answer */
#define PING_WAIT_MS 5000 /* of this time; the commands run meanwhile */
#define LOOK_WORDS_MAX 3

/* Commands whose output is a part. They run at once. */
static const struct {
    const char *part, *words[LOOK_WORDS_MAX + 1];
} looks[] = {{"status.txt", {"status", "-v"}},
             {"status.json", {"status", "--json"}},
             {"log.txt", {"log"}},
             {"metrics.txt", {"metrics"}},
             {"stats.txt", {"stats", "-n", "2"}}};

struct look {
    pid_t pid; /* 0: it was not started */
    int fd;    /* its output; -1: it has ended */
    char *text;
    size_t len; /* at most PART_MAX */
};

struct doctor {
    const struct target *target;
    struct redact redact;
    struct archive *archive;
    char *top;    /* directory in the archive */
    uint64_t pid; /* of the daemon; 0: none holds the store */
    cJSON *ping;  /* the daemon's answer; NULL: none */
    struct look looks[ARRAY_LEN(looks)];
    int64_t until;     /* monotonic ns: then the commands are ended */
    cJSON *unanswered; /* parts whose commands did not end by themselves */
};

/* --- parts ------------------------------------------------------------------------------------ */

static void doctor_add(struct doctor *d, const char *name, const char *text)
{
    _cleanup_free_ char *path = xasprintf("%s/%s", d->top, name);
    _cleanup_free_ char *clean = redact_text(&d->redact, text);
    archive_add(d->archive, path, clean, strlen(clean));
}

/* Returns everything to the end, at most PART_MAX; files of /proc have no size. */
static char *doctor_read(const char *path)
{
    _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return xasprintf("%s: %s\n", path, strerror(errno));
    char *text = xmalloc(PART_MAX + 1);
    (void)program_hear(fd, text, PART_MAX + 1, clock_monotonic_ns() + FILE_WAIT_NS);
    return text;
}

static void doctor_add_file(struct doctor *d, const char *name, const char *path)
{
    _cleanup_free_ char *text = doctor_read(path);
    doctor_add(d, name, text);
}

static void print_space(FILE *out, const char *path)
{
    struct statvfs s;
    if (!path)
        return;
    if (statvfs(path, &s) < 0)
        (void)fprintf(out, "%s: %s\n", path, strerror(errno));
    else
        (void)fprintf(out, "%s: %s of %s free, %llu of %llu inodes free\n", path,
                      human_bytes((uint64_t)s.f_bavail * s.f_frsize).text,
                      human_bytes((uint64_t)s.f_blocks * s.f_frsize).text,
                      (unsigned long long)s.f_favail, (unsigned long long)s.f_files);
}

static void doctor_add_space(struct doctor *d)
{
    char *text = NULL;
    size_t len;
    FILE *out = open_memstream(&text, &len);
    check(out);
    print_space(out, d->target->store);
    print_space(out, json_text(d->ping, "stage"));
    print_space(out, "/dev/shm");
    bool complete = fclose(out) == 0;
    check(complete);
    doctor_add(d, "space.txt", text);
    free(text);
}

struct when {
    char text[32];
};

static struct when time_text(const char *format)
{
    struct when when = {"now"};
    time_t now = time(NULL);
    struct tm tm;
    if (gmtime_r(&now, &tm))
        (void)strftime(when.text, sizeof when.text, format, &tm);
    return when;
}

static void doctor_add_machine(struct doctor *d)
{
    struct utsname u;
    struct when when = time_text("%Y-%m-%dT%H:%M:%SZ");
    if (uname(&u) < 0)
        u = (struct utsname){.sysname = "unknown"};
    _cleanup_free_ char *os = doctor_read("/etc/os-release");
    _cleanup_free_ char *text =
        xasprintf("made at %s by cairn %s\n%s %s %s %s\n\n%s", when.text, CAIRN_VERSION, u.sysname,
                  u.release, u.version, u.machine, os);
    doctor_add(d, "machine.txt", text);
}

/* Lists the threads: id, name, and where in the kernel each one waits. */
static char *threads_text(uint64_t pid)
{
    _cleanup_free_ char *path = xasprintf("/proc/%llu/task", (unsigned long long)pid);
    char *text = NULL;
    size_t len;
    FILE *out = open_memstream(&text, &len);
    check(out);
    DIR *tasks = opendir(path);
    for (const struct dirent *task; tasks && (task = readdir(tasks));) {
        if (task->d_name[0] == '.')
            continue;
        _cleanup_free_ char *comm_path = xasprintf("%s/%s/comm", path, task->d_name);
        _cleanup_free_ char *wait_path = xasprintf("%s/%s/wchan", path, task->d_name);
        _cleanup_free_ char *comm = doctor_read(comm_path);
        _cleanup_free_ char *where = doctor_read(wait_path);
        (void)fprintf(out, "%s %.*s %.*s\n", task->d_name, (int)strcspn(comm, "\n"), comm,
                      (int)strcspn(where, "\n"), where);
    }
    if (tasks)
        (void)closedir(tasks);
    bool complete = fclose(out) == 0;
    check(complete);
    return text;
}

static void doctor_add_daemon(struct doctor *d)
{
    _cleanup_free_ char *threads = d->pid ? threads_text(d->pid) : NULL;
    if (threads)
        doctor_add(d, "daemon/threads", threads);
    static const char *const files[] = {"status", "limits", "cgroup", "io"};
    for (size_t i = 0; d->pid && i < ARRAY_LEN(files); i++) {
        _cleanup_free_ char *name = xasprintf("daemon/%s", files[i]);
        _cleanup_free_ char *path =
            xasprintf("/proc/%llu/%s", (unsigned long long)d->pid, files[i]);
        doctor_add_file(d, name, path);
    }
}

static bool is_on_mount(const char *path, unsigned major_number, unsigned minor_number)
{
    struct stat st;
    return path && stat(path, &st) == 0 && major(st.st_dev) == major_number &&
           minor(st.st_dev) == minor_number;
}

/* Adds mounts of CairnFS, and the mounts below the store and the stage. */
static void doctor_add_mounts(struct doctor *d)
{
    _cleanup_free_ char *all = doctor_read("/proc/self/mountinfo");
    char *text = NULL, *rest = all;
    size_t len;
    FILE *out = open_memstream(&text, &len);
    check(out);
    for (char *line; (line = strsep(&rest, "\n"));) {
        unsigned major_number, minor_number;
        bool is_read = sscanf(line, "%*u %*u %u:%u", &major_number, &minor_number) == 2;
        if (is_read && (strstr(line, " fuse.cairnfs ") ||
                        is_on_mount(d->target->store, major_number, minor_number) ||
                        is_on_mount(json_text(d->ping, "stage"), major_number, minor_number)))
            (void)fprintf(out, "%s\n", line);
    }
    bool complete = fclose(out) == 0;
    check(complete);
    doctor_add(d, "mountinfo.txt", text);
    free(text);
}

/* --- commands --- */

/* Runs a command of this program; its output and its errors are captured. */
static int look_run(struct look *look, const char *const argv[])
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        return -errno;
    const int fds[][2] = {{ends[1], STDOUT_FILENO}, {ends[1], STDERR_FILENO}};
    int r = program_start("/proc/self/exe", argv, fds, ARRAY_LEN(fds), false, &look->pid);
    (void)close(ends[1]);
    if (r == 0)
        look->fd = ends[0];
    else
        (void)close(ends[0]);
    return r;
}

static void look_add(struct look *look, const char *text, size_t len)
{
    len = min_u64(len, PART_MAX - look->len);
    memcpy(look->text + look->len, text, len);
    look->len += len;
    look->text[look->len] = '\0';
}

static void look_begin(struct doctor *d, size_t i)
{
    struct look *look = &d->looks[i];
    const char *argv[LOOK_WORDS_MAX + 3] = {"cairn"};
    size_t count = 1;
    *look = (struct look){.fd = -1, .text = xcalloc(1, PART_MAX + 1)};
    for (const char *const *word = looks[i].words; *word; word++)
        argv[count++] = *word;
    check(count + 1 < ARRAY_LEN(argv));
    argv[count] = d->target->mountpoint ? d->target->mountpoint : d->target->store;
    int r = look_run(look, argv);
    _cleanup_free_ char *why = xasprintf("cannot run it: %s\n", strerror(-r));
    if (r < 0)
        look_add(look, why, strlen(why));
}

static void look_hear(struct look *look)
{
    char more[4096];
    ssize_t n = read(look->fd, more, sizeof more);
    if (n > 0)
        look_add(look, more, (size_t)n);
    if (n > 0 || (n < 0 && errno == EINTR))
        return;
    (void)close(look->fd);
    look->fd = -1;
}

static void hear_looks(struct doctor *d)
{
    for (;;) {
        struct pollfd ready[ARRAY_LEN(looks)];
        int64_t left_ms = (d->until - clock_monotonic_ns()) / MS_NS + 1;
        bool all_ended = true;
        for (size_t i = 0; i < ARRAY_LEN(looks); i++) {
            ready[i] = (struct pollfd){.fd = d->looks[i].fd, .events = POLLIN};
            all_ended = all_ended && d->looks[i].fd < 0;
        }
        if (all_ended || left_ms <= 0)
            return;
        if (poll(ready, ARRAY_LEN(ready), (int)left_ms) <= 0)
            continue;
        for (size_t i = 0; i < ARRAY_LEN(looks); i++)
            if (d->looks[i].fd >= 0 && ready[i].revents)
                look_hear(&d->looks[i]);
    }
}

/* The command has ended, or its time is over. */
static void look_end(struct doctor *d, size_t i)
{
    struct look *look = &d->looks[i];
    if (look->fd >= 0) {
        _cleanup_free_ char *late = xasprintf("[no end within %d s]\n", LOOKS_WAIT_S);
        look_add(look, late, strlen(late));
        (void)cJSON_AddItemToArray(d->unanswered, cJSON_CreateString(looks[i].part));
        (void)close(look->fd);
    }
    if (look->pid > 0) {
        (void)kill(look->pid, SIGKILL);
        (void)program_await(look->pid);
    }
}

static void doctor_add_looks(struct doctor *d)
{
    hear_looks(d);
    for (size_t i = 0; i < ARRAY_LEN(looks); i++) {
        look_end(d, i);
        doctor_add(d, looks[i].part, d->looks[i].text);
        free(d->looks[i].text);
    }
}

/* --- all parts -------------------------------------------------------------------------------- */

static void doctor_add_parts(struct doctor *d)
{
    doctor_add(d, "README.txt",
               "Made by 'cairn doctor'. It has no data of files, and no credentials: keys, tokens "
               "and passwords\nwere replaced by [removed]. Paths, names of programs and users' "
               "numbers are in it: look through it\nbefore you pass it on.\n");
    doctor_add_machine(d);
    doctor_add_looks(d);
    _cleanup_free_ char *options =
        xasprintf("%s\n", json_text_or(d->ping, "options", "not known: no daemon answers"));
    doctor_add(d, "options.txt", options);
    doctor_add_mounts(d);
    doctor_add_file(d, "memory.txt", "/proc/meminfo");
    doctor_add_file(d, "pressure-io.txt", "/proc/pressure/io");
    doctor_add_space(d);
    doctor_add_daemon(d);
}

/* --- before the parts ------------------------------------------------------------------------- */

/* Gets the daemon's pid and options; a daemon that does not answer is reported in the parts. */
static void ask_daemon_about_itself(struct doctor *d)
{
    pid_t holder;
    if (store_directory_lock_holder(d->target->store, &holder) == STORE_IS_HELD)
        d->pid = (uint64_t)holder;
    if (ask_patiently(d->target->store, "ping", PING_WAIT_MS, &d->ping) < 0)
        d->ping = NULL;
}

static void learn_environment(struct doctor *d, const char *path)
{
    FILE *file = fopen(path, "re");
    char *block = xcalloc(1, PART_MAX + 1);
    size_t len = file ? fread(block, 1, PART_MAX, file) : 0;
    redact_learn_environment(&d->redact, block, len);
    explicit_bzero(block, len);
    free(block);
    if (file)
        (void)fclose(file);
}

/* Learns secrets of the daemon and of the caller: none of them may be in any part. */
static void learn_secrets(struct doctor *d)
{
    static const char *const files[][2] = {{"AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials"},
                                           {"AWS_CONFIG_FILE", ".aws/config"}};
    const char *home = getenv("HOME");
    learn_environment(d, "/proc/self/environ");
    if (d->pid) {
        _cleanup_free_ char *path = xasprintf("/proc/%llu/environ", (unsigned long long)d->pid);
        learn_environment(d, path);
    }
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        const char *named = getenv(files[i][0]);
        _cleanup_free_ char *path =
            named ? xstrdup(named) : xasprintf("%s/%s", home ? home : "", files[i][1]);
        redact_learn_file(&d->redact, path);
    }
}

/* --- the command ------------------------------------------------------------------------------ */

struct doctor_request {
    const char *output; /* NULL: a name of its own, in the working directory */
    bool json;
};

/* -EEXIST: an existing file is not overwritten. */
static int doctor_make(struct doctor *d, const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return -errno;
    d->until = clock_monotonic_ns() + LOOKS_WAIT_S * SECOND_NS;
    for (size_t i = 0; i < ARRAY_LEN(looks); i++)
        look_begin(d, i);
    ask_daemon_about_itself(d);
    learn_secrets(d);
    d->archive = archive_begin(fd);
    doctor_add_parts(d);
    int r = archive_end(d->archive);
    if (r < 0)
        (void)unlink(path);
    return r;
}

static void doctor_print(const struct doctor *d, const char *path, bool json)
{
    for (const cJSON *part = d->unanswered->child; part; part = part->next)
        complain("doctor", "%s is not whole: no end within %d s", part->valuestring, LOOKS_WAIT_S);
    if (!json) {
        (void)printf("%s\n", path);
        return;
    }
    _cleanup_json_ cJSON *object = cJSON_CreateObject();
    (void)cJSON_AddStringToObject(object, "archive", path);
    (void)cJSON_AddItemReferenceToObject(object, "unanswered", d->unanswered);
    json_print(object);
}

static int execute_doctor(struct call *call)
{
    const struct doctor_request *request = call->request;
    struct doctor d = {.target = &call->target,
                       .unanswered = cJSON_CreateArray(),
                       .top = xasprintf("cairn-doctor-%s", time_text("%Y%m%d-%H%M%S").text)};
    _cleanup_free_ char *path =
        request->output ? xstrdup(request->output) : xasprintf("%s.tar.gz", d.top);
    int r = doctor_make(&d, path);
    if (r < 0)
        complain(call->command->name, "cannot write %s: %s; name another file with -o", path,
                 strerror(-r));
    else
        doctor_print(&d, path, request->json);
    redact_done(&d.redact);
    cJSON_Delete(d.ping);
    cJSON_Delete(d.unanswered);
    free(d.top);
    return r < 0 ? CLI_FAILED : CLI_OK;
}

const struct command doctor_command = {
    .name = "doctor",
    .summary = "collect status, log, options and machine into one archive for a bug report",
    .description = "Credentials are left out. Paths are not: look through it before you pass it "
                   "on. Works also if the daemon is dead or hangs, which takes 10 s.",
    .flags =
        (const struct flag[]){
            {FLAG_OF('o', "output", FLAG_TEXT, offsetof(struct doctor_request, output)),
             .argument = "FILE",
             .help = "write FILE (default cairn-doctor-TIME.tar.gz in the working directory)"},
            FLAG_JSON(offsetof(struct doctor_request, json)),
            {0}},
    REQUEST(struct doctor_request, 0),
    .target = TARGET_ANY,
    .operands = operands_any,
    .exits = EXITS("written; its name is printed", "failed"),
    .execute = execute_doctor,
};
