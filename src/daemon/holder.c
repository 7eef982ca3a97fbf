// SPDX-License-Identifier: Apache-2.0
#include "daemon/holder.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "daemon/holder_link.h"
#include "daemon/notify.h"
#include "daemon/upgrade.h"

#define QUICK_DEATHS_MAX 5u
#define FAILED_STARTS_MAX 20u /* their causes usually lie outside: a disk, memory, a server */
#define FIRST_BACKOFF_NS 100000000ll
#define BACKOFF_MAX_NS (1600 * MS_NS)
#define OUTSIDE_BACKOFF_MAX_NS (30 * SECOND_NS)
/* a program that is no cairn may do anything instead of a reply */
#define HELLO_NS (10ll * 1000000000)
#define CANNOT_EXECUTE 127

struct holder {
    const char *store, *mountpoint;
    const struct mount_options *options;
    /* of the process that waits for the first daemon; -1: none, or it has received the result */
    int ready_fd;
    int signal_fd;
    int link_fd;    /* to the running daemon; -1: none is running */
    pid_t child;    /* 0: none */
    bool has_mount; /* a daemon has mounted, and left this state: */
    struct holder_link holder_link;
    int64_t served_at;     /* the child serves since then; 0: it is starting */
    unsigned quick_deaths; /* in a row */
    unsigned same_deaths;  /* the last of these that had one cause: */
    char cause[sizeof((struct holder_link *)0)->last_death];
    bool is_outside;
    bool stops;    /* the daemon was asked to end */
    char *binary;  /* program of the next daemon; NULL: ours */
    bool is_trial; /* the child runs `binary`, and does not serve yet */
    /* the daemon is no child of this process, so that only the link shows its end */
    bool is_foreign;
    bool is_end_reported; /* the daemon reported that it ends, and how: */
    int end_status;       /* as from waitpid() */
    /* monotonic ns: the child that runs `binary` is killed if it has sent nothing by then; 0: it
     * has */
    int64_t hello_by;
};

/* The holder closes everything of the user's terminal, as the daemon does. */
static void leave_terminal(const struct holder *h)
{
    if (h->options->foreground)
        return;
    _cleanup_close_ int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    /* The caller may wait for the end of a pipe that the holder inherited: the pipe is closed in
     * any case. */
    if (null_fd < 0)
        null_fd = memfd_create("null", MFD_CLOEXEC);
    if (null_fd < 0)
        return;
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        (void)dup2(null_fd, fd);
    if (chdir("/") < 0)
        return; /* then the directory stays busy */
}

static void end_trial(struct holder *h)
{
    free(h->binary);
    h->binary = NULL;
    h->is_trial = false;
    h->hello_by = 0;
}

static void close_fd(int *fd)
{
    if (*fd >= 0)
        (void)close(*fd);
    *fd = -1;
}

static void become_other(struct holder *h);

static void acknowledge(struct holder *h)
{
    char ack = 1;
    if (send(h->link_fd, &ack, sizeof ack, MSG_NOSIGNAL) < 0)
        return; /* the daemon has died meanwhile */
}

static void take_mount(struct holder *h, const struct front_passport *passport, const int fds[2])
{
    close_fd(&h->holder_link.adopted.fd);
    close_fd(&h->holder_link.lock_fd);
    h->holder_link.adopted.passport = *passport;
    h->holder_link.adopted.fd = fds[0];
    h->holder_link.lock_fd = fds[1];
    h->served_at = clock_monotonic_ns();
    if (!h->has_mount)
        leave_terminal(h);
    h->has_mount = true;
    acknowledge(h);
    if (h->is_trial)
        become_other(h);
}

static void take_binary(struct holder *h, char *binary)
{
    binary[HOLDER_PATH_MAX - 1] = '\0';
    free(h->binary);
    h->binary = xstrdup(binary);
    acknowledge(h);
}

static void receive(struct holder *h)
{
    union fds_message fds;
    union link_message received;
    struct iovec iov = {&received, sizeof received};
    struct msghdr message = {.msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = fds.bytes,
                             .msg_controllen = sizeof fds.bytes};
    ssize_t n = recvmsg(h->link_fd, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (n <= 0) {
        /* the daemon's end is a SIGCHLD, or this end of the link */
        if (n == 0 || (errno != EAGAIN && errno != EINTR))
            close_fd(&h->link_fd);
        return;
    }
    const struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    h->hello_by = 0;
    if (n == (ssize_t)sizeof received.binary && !header)
        take_binary(h, received.binary);
    if (n == 2 && (received.binary[0] == END_MARK || received.binary[0] == DEATH_MARK)) {
        int how = (uint8_t)received.binary[1];
        h->is_end_reported = true;
        h->end_status =
            received.binary[0] == END_MARK ? W_EXITCODE(how, 0) : W_EXITCODE(0, how & 0x7f);
    }
    if (n != (ssize_t)sizeof received.passport || !header ||
        header->cmsg_len != CMSG_LEN(2 * sizeof(int)))
        return;
    int taken[2];
    memcpy(taken, CMSG_DATA(header), sizeof taken);
    take_mount(h, &received.passport, taken);
}

/* --- another program -------------------------------------------------------------------------- */

static struct handover_source to_hand_over(const struct holder *h)
{
    return (struct handover_source){.store = h->store,
                                    .mountpoint = h->mountpoint,
                                    .options = h->options,
                                    .holder_link = &h->holder_link,
                                    .child = h->child,
                                    .served_at = h->served_at,
                                    .stops = h->stops};
}

/* Opens the log of the mount, which otherwise the daemon writes, for lines of the holder. */
static bool begin_log(const struct holder *h)
{
    _cleanup_free_ char *path = options_log_path(h->options, h->store);
    uint64_t start;
    return log_open(path, h->options->foreground, &start) == 0;
}

static void end_log(void)
{
    log_set_fd(STDERR_FILENO);
}

/* The other program's daemon serves: the holder becomes that program. Returns only if it cannot be
 * executed. */
static void become_other(struct holder *h)
{
    h->holder_link.link_fd = h->link_fd;
    struct handover_source from = to_hand_over(h);
    int r = upgrade_execute(h->binary, "keep", &from);
    if (begin_log(h))
        log_error("cannot run %s: %s; its daemon serves, but its successor will be of version %s",
                  h->binary, strerror(-r), CAIRN_VERSION);
    end_log();
    end_trial(h);
}

/* The child executes the other program as its daemon. */
static int execute_other(struct holder *h, int link_fd)
{
    h->holder_link.link_fd = link_fd;
    struct handover_source from = to_hand_over(h);
    (void)close(h->signal_fd);
    (void)setpgid(0, 0);
    (void)upgrade_execute(h->binary, "daemon", &from);
    return CANNOT_EXECUTE;
}

/* --- the daemon ------------------------------------------------------------------------------- */

static int child_main(struct holder *h, int link_fd)
{
    h->holder_link.link_fd = link_fd;
    (void)close(h->signal_fd);
    (void)setpgid(0, 0); /* signals of a terminal reach the holder, which forwards them */
    (void)prctl(PR_SET_NAME, "cairn");
    return lifecycle_main(h->store, h->mountpoint, h->options, h->ready_fd, &h->holder_link);
}

static int start_child(struct holder *h)
{
    int link[2];
    h->holder_link.is_adopting = h->has_mount;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, link) < 0)
        return -errno;
    (void)fflush(NULL);
    h->child = fork();
    if (h->child == 0) {
        (void)close(link[0]);
        _exit(h->is_trial ? execute_other(h, link[1]) : child_main(h, link[1]));
    }
    int r = h->child < 0 ? -errno : 0;
    (void)close(link[1]);
    close_fd(&h->link_fd);
    h->link_fd = link[0];
    close_fd(&h->ready_fd);
    h->is_foreign = h->is_end_reported = false;
    h->served_at = 0;
    h->hello_by = h->is_trial ? clock_monotonic_ns() + HELLO_NS : 0;
    if (h->child < 0)
        h->child = 0;
    else if (h->stops)
        (void)kill(h->child, SIGTERM);
    return r;
}

static void pass_on_signals(struct holder *h)
{
    struct signalfd_siginfo info;
    while (read(h->signal_fd, &info, sizeof info) == (ssize_t)sizeof info) {
        if (info.ssi_signo == SIGCHLD)
            continue;
        h->stops = h->stops || info.ssi_signo != SIGHUP || h->options->foreground;
        if (h->child)
            (void)kill(h->child, (int)info.ssi_signo);
    }
}

/* --- deaths ----------------------------------------------------------------------------------- */

/* Returns false if the daemon has ended in order: the mount is over, with *ret_code. */
static bool is_death(struct holder *h, int status, int *ret_code)
{
    h->is_outside = !WIFSIGNALED(status);
    if (WIFSIGNALED(status)) {
        bool for_view = WTERMSIG(status) == HOLDER_NEW_VIEW_SIGNAL && h->served_at;
        h->holder_link.view_deaths += for_view;
        if (h->is_foreign && !h->is_end_reported)
            (void)snprintf(h->holder_link.last_death, sizeof h->holder_link.last_death, "a signal");
        else
            (void)snprintf(h->holder_link.last_death, sizeof h->holder_link.last_death,
                           for_view ? "signal %d, to rebuild the view"
                           : WTERMSIG(status) == HOLDER_BACK_SIGNAL ? "signal %d, to go back"
                                                                    : "signal %d",
                           WTERMSIG(status));
        return true;
    }
    *ret_code = WEXITSTATUS(status);
    (void)snprintf(h->holder_link.last_death, sizeof h->holder_link.last_death,
                   "exit status %d while starting", *ret_code);
    return *ret_code != MOUNT_OK && !h->served_at && !h->stops;
}

static void report_giving_up(const struct holder *h)
{
    _cleanup_close_ int notify_fd = h->options->foreground ? notify_connect() : -1;
    notify_send(notify_fd, "STATUS=failed: %u daemons in a row died soon after they started (%s)",
                h->same_deaths, h->holder_link.last_death);
    if (!begin_log(h))
        return;
    log_error("%u daemons in a row died soon after they started (%s); giving up the mount of %s: "
              "acknowledged data is in the stage, mount again to recover it",
              h->same_deaths, h->holder_link.last_death, h->store);
    end_log();
}

/* Waits for the cause of the deaths to pass, as nothing reports its end. A client that requests the
 * end of the mount is not delayed. */
static void back_off(struct holder *h, int64_t wait_ns)
{
    int64_t until = clock_monotonic_ns() + wait_ns, left;
    pass_on_signals(h);
    while (!h->stops && (left = until - clock_monotonic_ns()) > 0) {
        (void)poll(&(struct pollfd){.fd = h->signal_fd, .events = POLLIN}, 1,
                   (int)(left / MS_NS) + 1);
        pass_on_signals(h);
    }
}

/* Only deaths of one cause make the holder give up. A daemon that exits during its start has met a
 * cause outside, which passes more often than a fault of ours. */
static void count_death(struct holder *h, bool quick)
{
    const char *cause = h->holder_link.last_death;
    check(h->has_mount && h->child == 0);
    bool is_same = quick && strcmp(h->cause, cause) == 0;
    h->quick_deaths = quick ? h->quick_deaths + 1 : 1;
    h->same_deaths = is_same ? h->same_deaths + 1 : 1;
    (void)snprintf(h->cause, sizeof h->cause, "%s", cause);
}

static int64_t backoff_of(const struct holder *h)
{
    int64_t most = h->is_outside ? OUTSIDE_BACKOFF_MAX_NS : BACKOFF_MAX_NS;
    if (h->quick_deaths <= 1)
        return 0;
    return (int64_t)min_u64((uint64_t)FIRST_BACKOFF_NS << min_u64(h->quick_deaths - 2, 16),
                            (uint64_t)most);
}

/* Starts the next daemon. Returns false if the mount is given up. */
static bool replace_daemon(struct holder *h)
{
    int64_t now = clock_monotonic_ns();
    count_death(h, h->served_at == 0 || now - h->served_at < h->options->crash_window_ns);
    if (h->holder_link.died_at == 0 || h->served_at)
        h->holder_link.died_at = now;
    h->holder_link.deaths++;
    h->holder_link.is_upgrade = false;
    unsigned most = h->is_outside ? FAILED_STARTS_MAX : QUICK_DEATHS_MAX;
    if (h->same_deaths > most && h->options->crash_window_ns > 0)
        return false;
    back_off(h, backoff_of(h));
    return start_child(h) == 0;
}

/* Ends as the first daemon did, for the caller that waits for it. */
static int end_as(int status)
{
    if (WIFEXITED(status))
        return WEXITSTATUS(status);
    sigset_t set;
    (void)sigemptyset(&set);
    (void)signal(WTERMSIG(status), SIG_DFL);
    (void)sigprocmask(SIG_SETMASK, &set, NULL);
    (void)raise(WTERMSIG(status));
    return MOUNT_SYSTEM;
}

/* Starts the other program's daemon: ours has ended for it. */
static int start_trial(struct holder *h)
{
    struct holder_link *holder_link = &h->holder_link;
    check(h->binary && !h->is_trial && h->child == 0);
    holder_link->died_at = clock_monotonic_ns();
    holder_link->is_upgrade = h->is_trial = true;
    holder_link->upgrade_tries++;
    holder_link->upgrades++; /* undone if it fails */
    holder_link->upgrade_error[0] = '\0';
    (void)snprintf(holder_link->version_before, sizeof holder_link->version_before, "%s",
                   CAIRN_VERSION);
    return start_child(h);
}

/* The daemon of the other program has failed, and no daemon serves: starts one of this program. */
static int start_own(struct holder *h, int status)
{
    char *why = h->holder_link.upgrade_error;
    check(h->is_trial && h->child == 0 && h->holder_link.upgrades > 0);
    size_t capacity = sizeof h->holder_link.upgrade_error;
    if (WIFSIGNALED(status) && h->hello_by)
        (void)snprintf(why, capacity, "%s was killed by signal %d before it started", h->binary,
                       WTERMSIG(status));
    else if (WIFSIGNALED(status))
        (void)snprintf(why, capacity, "the daemon of %s was killed by signal %d while starting",
                       h->binary, WTERMSIG(status));
    else if (WEXITSTATUS(status) == CANNOT_EXECUTE)
        (void)snprintf(why, capacity, "cannot run %s", h->binary);
    else
        (void)snprintf(why, capacity,
                       "the daemon of %s exited while starting, with status %d; see 'cairn log'",
                       h->binary, WEXITSTATUS(status));
    h->holder_link.upgrades--;
    end_trial(h);
    return start_child(h);
}

/* Returns true if the end belongs to an exchange of the program; *ret_over if no further daemon
 * follows. */
static bool reap_exchanged(struct holder *h, int status, bool *ret_over)
{
    if (!h->binary)
        return false;
    int r = h->is_trial ? start_own(h, status) : start_trial(h);
    *ret_over = r < 0;
    return true;
}

static void watch_trial(struct holder *h)
{
    if (h->hello_by && h->child && clock_monotonic_ns() > h->hello_by)
        (void)kill(h->child, SIGKILL);
}

/* As waitpid(), also for a daemon that is no child of this process: it has ended when the link is
 * closed. */
static bool has_daemon_ended(struct holder *h, int *ret_status)
{
    pid_t found = waitpid(h->child, ret_status, WNOHANG);
    if (found == h->child)
        return true;
    h->is_foreign = found < 0 && errno == ECHILD;
    if (!h->is_foreign || h->link_fd >= 0)
        return false;
    /* the signal is not known */
    *ret_status = h->is_end_reported ? h->end_status : W_EXITCODE(0, SIGKILL);
    return true;
}

/* Returns true if the mount is over, with *ret_code. */
static bool reap(struct holder *h, int *ret_code)
{
    int status;
    if (!h->child || !has_daemon_ended(h, &status))
        return false;
    h->child = 0;
    if (h->link_fd >= 0)
        receive(h); /* the last report of the daemon */
    if (!h->has_mount) {
        *ret_code = end_as(status);
        return true;
    }
    bool over;
    if (reap_exchanged(h, status, &over))
        return over;
    if (!is_death(h, status, ret_code))
        return true;
    if (replace_daemon(h))
        return false;
    *ret_code = MOUNT_FAILED;
    report_giving_up(h);
    return true;
}

static int watch(struct holder *h)
{
    int code = MOUNT_SYSTEM;
    while (!reap(h, &code)) {
        struct pollfd fds[2] = {{.fd = h->signal_fd, .events = POLLIN},
                                {.fd = h->link_fd, .events = POLLIN}};
        watch_trial(h);
        if (poll(fds, 2, 1000) < 0)
            continue;
        if (fds[0].revents)
            pass_on_signals(h);
        if (fds[1].revents && h->link_fd >= 0)
            receive(h);
    }
    return code;
}

/* --- itself ----------------------------------------------------------------------------------- */

/* Protects the holder from the OOM killer: it needs almost no memory, and the mount depends on it.
 * Its environment is that of the mounting user, and the daemon needs it: no other user may read
 * it. */
static void prepare(struct holder *h)
{
    sigset_t set;
    _cleanup_close_ int score = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (score >= 0 && write(score, "-1000", 5) < 0)
        log_debug("cannot protect the process from the OOM killer: only root may");
    (void)setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    (void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    (void)prctl(PR_SET_NAME, "cairn-holder");
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGTERM);
    (void)sigaddset(&set, SIGINT);
    (void)sigaddset(&set, SIGHUP);
    (void)sigaddset(&set, SIGCHLD);
    (void)sigprocmask(SIG_BLOCK, &set, NULL);
    h->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

static int hold(struct holder *h)
{
    int code = watch(h);
    close_fd(&h->holder_link.adopted.fd);
    close_fd(&h->holder_link.lock_fd);
    close_fd(&h->link_fd);
    close_fd(&h->signal_fd);
    return code;
}

int holder_main(const char *store, const char *mountpoint, const struct mount_options *options,
                int ready_fd)
{
    struct holder h = {.store = store,
                       .mountpoint = mountpoint,
                       .options = options,
                       .ready_fd = ready_fd,
                       .link_fd = -1,
                       .holder_link = {.lock_fd = -1, .adopted = {.fd = -1}}};
    prepare(&h);
    /* a mount without a successor is better than none */
    if (h.signal_fd < 0 || start_child(&h) < 0)
        return lifecycle_main(store, mountpoint, options, h.ready_fd, NULL);
    return hold(&h);
}

int holder_go_on(const struct handover *handover)
{
    struct holder h = {.store = handover->store,
                       .mountpoint = handover->mountpoint,
                       .options = &handover->options,
                       .ready_fd = -1,
                       .link_fd = handover->holder_link.link_fd,
                       .child = handover->child,
                       .has_mount = true,
                       .holder_link = handover->holder_link,
                       .served_at = handover->served_at,
                       .stops = handover->stops};
    prepare(&h);
    return h.signal_fd < 0 ? MOUNT_SYSTEM : hold(&h);
}
