// SPDX-License-Identifier: Apache-2.0
#include "daemon/lifecycle.h"

#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/text.h"
#include "daemon/control.h"
#include "daemon/holder_link.h"
#include "daemon/notify.h"
#include "daemon/store_directory.h"
#include "daemon/upgrade.h"

#define LOG_TAIL_MAX (64 * KIB)
#define STOP_EXTENSION_US 60000000
/* A holder that died sooner has died quickly; then the delay before the next one grows. */
#define HOLDER_STEADY_NS (60ll * 1000000000)
#define HOLDER_FIRST_BACKOFF_NS 1000000000ll
#define HOLDER_BACKOFFS_MAX 6u /* doublings: up to a minute */

/* The state of a mount process. */
struct mount_process {
    const struct mount_options *options;
    const struct holder_link *holder_link;
    const char *mountpoint;
    struct store_directory directory;
    int ready_fd;  /* of the waiting parent; -1 in the foreground */
    int notify_fd; /* of the service manager; -1: none */
    char *log_path;
    bool has_log;         /* the log is open */
    uint64_t log_start;   /* length of the log before this mount */
    uint64_t bytes_left;  /* bytes still to be written when the end was reported last */
    pid_t holder;         /* started by this process; 0: none */
    int64_t holder_tried; /* monotonic ns; 0: never */
    /* when another holder is started, while there is none; 0: there is one */
    int64_t holder_next;
    unsigned holder_deaths; /* quick deaths, and failed starts, in a row */
    struct service *service;
    struct control *control;
};

/* State for the signal handlers. */
static struct service *_Atomic stop_target;
static atomic_int stop_signals;
static volatile int stop_link = -1; /* to the holder; set before the signals are caught */

static void on_stop_signal(int signo)
{
    (void)signo;
    int saved = errno;
    if (atomic_fetch_add(&stop_signals, 1) > 0) {
        holder_end(stop_link, 1);
        _exit(1); /* the stage stays and is recovered by the next mount */
    }
    struct service *service = atomic_load(&stop_target);
    if (service)
        service_stop(service);
    errno = saved;
}

static void catch_signals(bool foreground)
{
    struct sigaction stop = {.sa_handler = on_stop_signal, .sa_flags = SA_RESTART};
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    (void)sigaction(SIGTERM, &stop, NULL);
    (void)sigaction(SIGINT, &stop, NULL);
    (void)sigaction(SIGHUP, foreground ? &stop : &ignore, NULL);
    (void)sigaction(SIGPIPE, &ignore, NULL);
    /* a file too large for a limit: EFBIG is handled like other errors */
    (void)sigaction(SIGXFSZ, &ignore, NULL);
    /* A holder has these signals blocked, so that none arrives between its fork and this call. */
    sigset_t set;
    (void)sigemptyset(&set);
    (void)sigprocmask(SIG_SETMASK, &set, NULL);
}

static void write_oom_score(const char *score)
{
    _cleanup_close_ int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (fd >= 0 && write(fd, score, strlen(score)) < 0)
        return; /* only root may lower it; the mount works without */
}

/* The chunk key and users' data are in memory: forbids core files and reading by other processes.
 * Sets the OOM score first: a process that is not dumpable may not write it. */
static void harden_process(void)
{
    struct rlimit none = {0, 0};
    write_oom_score("-900");
    process_raise_limits(); /* the limits of the user's shell: the stage is one large file */
    (void)setrlimit(RLIMIT_CORE, &none);
    (void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    (void)umask(077);
}

/* In the foreground lines are also written to standard error: a terminal, or a journal. */
static int open_log(struct mount_process *p, struct service_error *error)
{
    const struct mount_options *o = p->options;
    p->log_path = options_log_path(o, p->directory.path);
    int r = log_open(p->log_path, o->foreground, &p->log_start);
    if (r < 0)
        return service_fail(error, MOUNT_SYSTEM, r,
                            "cannot open the log %s: %s; give another with -o log=FILE",
                            p->log_path, strerror(-r));
    p->has_log = true;
    return 0;
}

static int start_control(struct mount_process *p, struct service_error *error)
{
    int r = control_start(p->directory.path, service_handle, p->service, &p->control);
    if (r == 0)
        return 0;
    if (p->holder_link && p->holder_link->is_adopting) {
        log_error("cannot open the control socket %s/control: %s", p->directory.path, strerror(-r));
        _exit(MOUNT_SYSTEM); /* the mount must not be ended here: the next daemon may continue it */
    }
    service_stop(p->service);
    if (service_serve(p->service) < 0)
        log_error("the mount that had no control socket did not end cleanly");
    service_free(p->service);
    return service_fail(error, MOUNT_SYSTEM, r,
                        "cannot open the control socket %s/control: %s; mount again",
                        p->directory.path, strerror(-r));
}

/* An error means that the parent was killed, and no process reads. */
static void write_ready(struct mount_process *p, const char *text, size_t len)
{
    (void)!io_write_full(p->ready_fd, text, len);
}

/* Returns a line for the terminal; caller frees. */
static char *lifecycle_message(const char *line)
{
    char *text = xasprintf("cairn mount: %s", line);
    text_hide_controls(text);
    char *whole = xasprintf("%s\n", text);
    free(text);
    return whole;
}

/* Reports the reason why the start waits; it is in the log already. */
static void report_progress(const char *line, void *arg)
{
    struct mount_process *p = arg;
    _cleanup_free_ char *text = lifecycle_message(line);
    if (p->ready_fd >= 0)
        write_ready(p, text, strlen(text));
    else
        (void)fputs(text, stderr);
    notify_send(p->notify_fd, "STATUS=starting: %s", line);
}

/* Extends the service manager's timeout while the remaining amount shrinks. */
static void report_stop_progress(uint64_t bytes_left, bool remote, void *arg)
{
    struct mount_process *p = arg;
    notify_send(p->notify_fd, "STOPPING=1\nSTATUS=stopping: %llu MiB left to write to %s",
                (unsigned long long)(bytes_left / MIB), remote ? "the remote" : "NVMe");
    if (bytes_left < p->bytes_left)
        notify_send(p->notify_fd, "EXTEND_TIMEOUT_USEC=%d", STOP_EXTENSION_US);
    p->bytes_left = bytes_left;
}

static bool is_cancelled(void *arg)
{
    (void)arg;
    return atomic_load(&stop_signals) > 0;
}

/* Passes the mount to the holder: from now on it outlives the daemon. */
static void hand_over(struct mount_process *p)
{
    struct front_passport passport;
    int fuse_fd;
    if (!p->holder_link || p->holder_link->link_fd < 0)
        return;
    service_passport(p->service, &passport, &fuse_fd);
    int r = holder_notify(p->holder_link->link_fd, &passport, fuse_fd, p->directory.lock_fd);
    if (r < 0)
        log_warn("the holder process does not answer (%s): if the daemon dies, the mount ends",
                 strerror(-r));
}

/* Replaces a dead holder, without which the mount would end with the daemon. The new one is started
 * from the running program, even if its file is gone. */
static int replace_dead_holder(struct mount_process *p, int64_t now)
{
    struct holder_link holder_link = *p->holder_link;
    struct handover_source from = {.store = p->directory.path,
                                   .mountpoint = p->mountpoint,
                                   .options = p->options,
                                   .holder_link = &holder_link,
                                   .child = getpid(),
                                   .served_at = now};
    int link[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, link) < 0)
        return -errno;
    holder_link.link_fd = link[0];
    holder_link.lock_fd = p->directory.lock_fd;
    service_passport(p->service, &holder_link.adopted.passport, &holder_link.adopted.fd);
    int r = upgrade_spawn("/proc/self/exe", "keep", &from, &p->holder);
    /* other threads may use the descriptor meanwhile */
    if (r == 0 && dup3(link[1], p->holder_link->link_fd, O_CLOEXEC) < 0)
        r = -errno;
    (void)close(link[0]);
    (void)close(link[1]);
    return r;
}

/* The holder has just died. After a first death the next holder is started at once. */
static void note_holder_death(struct mount_process *p, int64_t now)
{
    bool quick = p->holder_tried && now - p->holder_tried < HOLDER_STEADY_NS;
    p->holder_deaths = quick ? p->holder_deaths + 1 : 0;
    int64_t wait = p->holder_deaths ? HOLDER_FIRST_BACKOFF_NS
                                          << min_u64(p->holder_deaths - 1, HOLDER_BACKOFFS_MAX)
                                    : 0;
    p->holder_next = now + wait;
    if (wait)
        log_warn("the holder process has died again; there is no holder now: if the daemon dies, "
                 "the mount ends; the next one is started in %lld s",
                 (long long)(wait / 1000000000));
}

/* Called about once a second while there is no holder. */
static void replace_holder(void *arg)
{
    struct mount_process *p = arg;
    int64_t now = clock_monotonic_ns();
    if (p->holder > 0 && waitpid(p->holder, NULL, WNOHANG) == p->holder)
        p->holder = 0;
    if (!p->holder_next)
        note_holder_death(p, now);
    if (now < p->holder_next)
        return;
    p->holder_next = 0;
    p->holder_tried = now;
    int r = replace_dead_holder(p, now);
    if (r < 0)
        log_error("the holder process has died, and no other can be started (%s): there is no "
                  "holder now; if the daemon dies, the mount ends",
                  strerror(-r));
    else
        log_warn("the holder process has died; another one (pid %d) replaces it", (int)p->holder);
}

static void report_adopting(const struct mount_process *p)
{
    const struct holder_link *holder_link = p->holder_link;
    if (holder_link->is_upgrade)
        notify_send(p->notify_fd, "STATUS=starting: version %s takes over the mount",
                    CAIRN_VERSION);
    else
        notify_send(p->notify_fd,
                    "STATUS=starting: the daemon died (%s); its successor takes over the mount",
                    holder_link->last_death);
}

static int lifecycle_start(struct mount_process *p, const char *store, struct service_error *error)
{
    struct service_plan plan = {.mountpoint = p->mountpoint,
                                .options = p->options,
                                .progress = report_progress,
                                .cancelled = is_cancelled,
                                .ending = report_stop_progress,
                                .holder_ended = replace_holder,
                                .progress_arg = p,
                                .holder_link = p->holder_link};
    if (p->holder_link && p->holder_link->is_adopting) {
        report_adopting(p);
        store_directory_adopt(store, p->holder_link->lock_fd, &p->directory);
    } else {
        struct store_waiter waiter = {
            .report = report_progress, .cancelled = is_cancelled, .arg = p};
        TRY(store_directory_take(store, &waiter, &p->directory, error));
    }
    TRY(open_log(p, error));
    plan.store = p->directory.path;
    TRY(service_start(&plan, &p->service, error));
    TRY(start_control(p, error));
    hand_over(p);
    return 0;
}

/* Adds lines that the start wrote to the log and that the user should see on the terminal, too. */
static void add_log_warnings(const struct mount_process *p, FILE *out)
{
    if (p->options->foreground)
        return; /* they are on standard error already */
    _cleanup_close_ int fd = open(p->log_path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    _cleanup_free_ char *text = xcalloc(1, LOG_TAIL_MAX + 1);
    if (fd < 0 || pread(fd, text, LOG_TAIL_MAX, (off_t)p->log_start) <= 0)
        return;
    char *rest = text;
    for (char *line = strsep(&rest, "\n"); line; line = strsep(&rest, "\n")) {
        char *found = strstr(line, " cairn warning: ");
        if (!found)
            found = strstr(line, " cairn error: ");
        if (found)
            (void)fprintf(out, "cairn mount: %s\n", found + strlen(" cairn "));
    }
}

/* Adds the memory formula that the service reports. */
static void add_summary(const struct mount_process *p, FILE *out)
{
    cJSON *request = cJSON_CreateObject();
    (void)cJSON_AddStringToObject(request, "verb", "status");
    cJSON *status = service_handle(request, p->service);
    const cJSON *memory = json_part(status, "memory");
    const cJSON *formula = json_part(memory, "formula");
    text_print(out, "cairn mount: %s is mounted at %s", p->directory.path, p->mountpoint);
    if (cJSON_IsString(formula))
        (void)fprintf(out, "cairn mount: memory: %s\n", formula->valuestring);
    cJSON_Delete(status);
    cJSON_Delete(request);
}

/* Writes an exit code and the lines to show to the parent, or in the foreground to the terminal. */
static void lifecycle_report(struct mount_process *p, int exit_code, const char *text, size_t len)
{
    if (p->ready_fd < 0) {
        (void)fwrite(text, 1, len, stderr);
        return;
    }
    const char code[] = {READY_MARK, (char)exit_code};
    write_ready(p, code, sizeof code);
    write_ready(p, text, len);
    (void)close(p->ready_fd);
    p->ready_fd = -1;
}

static void report_usable(struct mount_process *p)
{
    char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);
    check(out != NULL);
    bool interrupted = atomic_load(&stop_signals) > 0;
    if (interrupted)
        (void)fprintf(out, "cairn mount: interrupted; unmounting, nothing is lost\n");
    add_log_warnings(p, out);
    if (!interrupted)
        add_summary(p, out);
    (void)fclose(out);
    lifecycle_report(p, interrupted ? MOUNT_INTERRUPTED : MOUNT_OK, text, len);
    if (!interrupted)
        notify_send(p->notify_fd, "READY=1\nSTATUS=%s is mounted at %s", p->directory.path,
                    p->mountpoint);
    free(text);
}

/* After an interrupt the message is about the interrupt, whatever failed in the start. */
static int code_of_failure(const struct service_error *error)
{
    if (atomic_load(&stop_signals) > 0)
        return MOUNT_INTERRUPTED;
    return error->exit_code ? error->exit_code : MOUNT_FAILED;
}

static void report_failed(struct mount_process *p, const struct service_error *error, int exit_code)
{
    _cleanup_free_ char *line =
        lifecycle_message(error->text ? error->text : "the mount failed; see the log");
    lifecycle_report(p, exit_code, line, strlen(line));
    notify_send(p->notify_fd, "STATUS=failed: %s", error->text ? error->text : "see the log");
}

/* Detaches from the user's terminal and working directory. */
static void leave_terminal(void)
{
    log_take_stderr();
    _cleanup_close_ int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null_fd < 0)
        log_warn("cannot open /dev/null: %s; standard output and error stay as they are",
                 strerror(errno));
    /* The caller may wait for the end of a pipe that was inherited: it is closed in any case. */
    int instead = null_fd >= 0 ? null_fd : STDERR_FILENO;
    (void)dup2(instead, STDIN_FILENO);
    (void)dup2(instead, STDOUT_FILENO);
    if (chdir("/") < 0)
        log_warn("cannot leave the working directory: %s", strerror(errno));
}

/* An orderly end leaves no stage. If a stage is left, the exit status must not be that of
 * success. */
static bool left_stage(const struct mount_process *p)
{
    _cleanup_free_ char *stage = NULL;
    /* A store that was moved meanwhile is not found, so nothing is known. */
    if (service_left_stage(p->directory.path, &stage) < 0 || !stage)
        return false;
    log_error("not everything came to NVMe; mount %s again to recover the rest from the stage (%s)",
              p->directory.path, stage);
    return true;
}

static int lifecycle_serve(struct mount_process *p)
{
    atomic_store(&stop_target, p->service);
    if (atomic_load(&stop_signals) > 0)
        service_stop(p->service);
    p->bytes_left = UINT64_MAX;
    int r = service_serve(p->service);
    if (r < 0)
        log_error("the mount of %s ended with an error: %s", p->directory.path, strerror(-r));
    control_stop(p->control);
    atomic_store(&stop_target, NULL);
    service_free(p->service);
    return r < 0 || left_stage(p) ? MOUNT_FAILED : MOUNT_OK;
}

int lifecycle_main(const char *store, const char *mountpoint, const struct mount_options *options,
                   int ready_fd, const struct holder_link *holder_link)
{
    struct mount_process p = {.options = options,
                              .holder_link = holder_link,
                              .mountpoint = mountpoint,
                              .directory.lock_fd = -1,
                              .ready_fd = ready_fd,
                              .notify_fd = options->foreground ? notify_open() : -1};
    struct service_error error = {0};
    int exit_code;
    harden_process();
    stop_link = holder_link ? holder_link->link_fd : -1;
    catch_signals(options->foreground);
    log_set_level((enum log_level)options->log_level);
    bool started = lifecycle_start(&p, store, &error) == 0;
    if (started) {
        report_usable(&p);
        if (!options->foreground)
            leave_terminal();
        exit_code = lifecycle_serve(&p);
    } else {
        exit_code = code_of_failure(&error);
    }
    /* Without a log, or in the foreground, the text is printed on the terminal in a moment. */
    if (!started && p.has_log && !options->foreground)
        log_error("the mount failed: %s", error.text ? error.text : "unknown reason");
    log_tick();
    log_set_fd(STDERR_FILENO);
    free(p.log_path);
    if (p.directory.lock_fd >= 0)
        store_directory_release(&p.directory, !started);
    /* Last, so that the caller finds the directory as it was. */
    if (!started)
        report_failed(&p, &error, exit_code);
    free(error.text);
    if (holder_link && holder_link->link_fd >= 0)
        holder_end(holder_link->link_fd, exit_code);
    return exit_code;
}
