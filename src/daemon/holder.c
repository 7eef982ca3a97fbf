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

#define QUICK_DEATHS_MAX 5u
#define FIRST_BACKOFF_NS 100000000ll
#define ACK_TIMEOUT_S 10

struct holder {
    const char *store, *mountpoint;
    const struct mount_options *options;
    int ready_fd;  /* of who waits for the first daemon; -1: nobody, or it is told */
    int signal_fd;
    int link_fd;   /* to the daemon that runs; -1: none does */
    pid_t child;   /* 0: none */
    bool is_kept;  /* a daemon has mounted: */
    struct lifecycle_keeper keeper;
    int64_t served_at; /* the child serves since then; 0: it starts */
    unsigned quick_deaths;
    bool stops;    /* the daemon was told to end */
};

/* --- the link ------------------------------------------------------------------------------------------------------------------- */

union fds_message {
    struct cmsghdr header;
    char bytes[CMSG_SPACE(2 * sizeof(int))];
};

int holder_tell(int link_fd, const struct front_passport *passport, int fuse_fd, int lock_fd)
{
    union fds_message fds = {0};
    struct iovec iov = {(void *)(uintptr_t)passport, sizeof *passport};
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = fds.bytes, .msg_controllen = sizeof fds.bytes};
    struct timeval timeout = {.tv_sec = ACK_TIMEOUT_S};
    char ack;
    fds.header = (struct cmsghdr){.cmsg_len = CMSG_LEN(2 * sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(&fds.header), (int[]){fuse_fd, lock_fd}, 2 * sizeof(int));
    if (sendmsg(link_fd, &message, MSG_NOSIGNAL) < 0 || setsockopt(link_fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout) < 0)
        return -errno;
    ssize_t n = recv(link_fd, &ack, sizeof ack, 0);
    return n < 0 ? -errno : n == 0 ? -EPIPE : 0;
}

/* As the daemon does: nothing of the user's terminal is held any more. */
static void leave_terminal(const struct holder *h)
{
    if (h->options->foreground)
        return;
    _cleanup_close_ int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    /* Who started us may wait for the end of a pipe that we were given: it goes in any case. */
    if (null_fd < 0)
        null_fd = memfd_create("null", MFD_CLOEXEC);
    if (null_fd < 0)
        return;
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        (void)dup2(null_fd, fd);
    if (chdir("/") < 0)
        return; /* then the folder stays busy */
}

static void close_fd(int *fd)
{
    if (*fd >= 0)
        (void)close(*fd);
    *fd = -1;
}

static void keep(struct holder *h, const struct front_passport *passport, const int fds[2])
{
    close_fd(&h->keeper.adopted.fd);
    close_fd(&h->keeper.lock_fd);
    h->keeper.adopted.passport = *passport;
    h->keeper.adopted.fd = fds[0];
    h->keeper.lock_fd = fds[1];
    h->served_at = clock_monotonic_ns();
    if (!h->is_kept)
        leave_terminal(h);
    h->is_kept = true;
    char ack = 1;
    if (send(h->link_fd, &ack, sizeof ack, MSG_NOSIGNAL) < 0)
        return; /* it has died meanwhile */
}

static void receive(struct holder *h)
{
    union fds_message fds;
    struct front_passport passport;
    struct iovec iov = {&passport, sizeof passport};
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = fds.bytes, .msg_controllen = sizeof fds.bytes};
    ssize_t n = recvmsg(h->link_fd, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (n <= 0) {
        if (n == 0 || (errno != EAGAIN && errno != EINTR))
            close_fd(&h->link_fd); /* its end comes as a signal */
        return;
    }
    const struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    if (n != (ssize_t)sizeof passport || !header || header->cmsg_len != CMSG_LEN(2 * sizeof(int)))
        return;
    int received[2];
    memcpy(received, CMSG_DATA(header), sizeof received);
    keep(h, &passport, received);
}

/* --- the daemon ------------------------------------------------------------------------------------------------------------------ */

static int run_child(struct holder *h, int link_fd)
{
    h->keeper.link_fd = link_fd;
    (void)close(h->signal_fd);
    (void)setpgid(0, 0); /* what a terminal sends goes to the holder, which passes it on */
    (void)prctl(PR_SET_NAME, "cairn");
    return lifecycle_run(h->store, h->mountpoint, h->options, h->ready_fd, &h->keeper);
}

static int start_child(struct holder *h)
{
    int link[2];
    h->keeper.is_adopting = h->is_kept;
    h->keeper.adopted.no_resend = h->options->no_resend;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, link) < 0)
        return -errno;
    (void)fflush(NULL);
    h->child = fork();
    if (h->child == 0) {
        (void)close(link[0]);
        _exit(run_child(h, link[1]));
    }
    int r = h->child < 0 ? -errno : 0;
    (void)close(link[1]);
    close_fd(&h->link_fd);
    h->link_fd = link[0];
    close_fd(&h->ready_fd);
    h->served_at = 0;
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

/* --- deaths -------------------------------------------------------------------------------------------------------------------------- */

/* False: the mount is over, with *ret_code. */
static bool is_death(struct holder *h, int status, int *ret_code)
{
    if (WIFSIGNALED(status)) {
        (void)snprintf(h->keeper.last_death, sizeof h->keeper.last_death, "signal %d", WTERMSIG(status));
        return true;
    }
    *ret_code = WEXITSTATUS(status);
    (void)snprintf(h->keeper.last_death, sizeof h->keeper.last_death, "exit code %d while starting", *ret_code);
    return *ret_code != MOUNT_OK && !h->served_at && !h->stops;
}

static void log_giving_up(const struct holder *h)
{
    _cleanup_free_ char *path = options_log_path(h->options, h->store);
    uint64_t start;
    if (log_open(path, h->options->foreground, &start) < 0)
        return;
    log_error("%u daemons in a row died soon (the last: %s): the mount of %s is given up; what was acknowledged is in the stage: "
              "mount again to recover it",
              h->quick_deaths, h->keeper.last_death, h->store);
    log_set_fd(STDERR_FILENO);
}

/* False: no further one. */
static bool replace(struct holder *h)
{
    int64_t now = clock_monotonic_ns();
    bool quick = h->served_at == 0 || now - h->served_at < h->options->crash_window_ns;
    h->quick_deaths = quick ? h->quick_deaths + 1 : 1;
    if (h->keeper.died_at == 0 || h->served_at)
        h->keeper.died_at = now;
    h->keeper.deaths++;
    if (h->quick_deaths > QUICK_DEATHS_MAX && h->options->crash_window_ns > 0)
        return false;
    int64_t wait = h->quick_deaths > 1 ? FIRST_BACKOFF_NS << min_u64(h->quick_deaths - 2, QUICK_DEATHS_MAX - 1) : 0;
    (void)nanosleep(&(struct timespec){.tv_sec = wait / 1000000000, .tv_nsec = wait % 1000000000}, NULL);
    pass_on_signals(h);
    return start_child(h) == 0;
}

/* Who waits for the first daemon is to see what it died of. */
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

/* True: it is over, with *ret_code. */
static bool reap(struct holder *h, int *ret_code)
{
    int status;
    if (!h->child || waitpid(h->child, &status, WNOHANG) != h->child)
        return false;
    h->child = 0;
    if (h->link_fd >= 0)
        receive(h); /* what it told last */
    if (!h->is_kept) {
        *ret_code = end_as(status);
        return true;
    }
    if (!is_death(h, status, ret_code))
        return true;
    if (replace(h))
        return false;
    *ret_code = MOUNT_FAILED;
    log_giving_up(h);
    return true;
}

static int watch(struct holder *h)
{
    int code = MOUNT_SYSTEM;
    while (!reap(h, &code)) {
        struct pollfd fds[2] = {{.fd = h->signal_fd, .events = POLLIN}, {.fd = h->link_fd, .events = POLLIN}};
        if (poll(fds, 2, 1000) < 0)
            continue;
        if (fds[0].revents)
            pass_on_signals(h);
        if (fds[1].revents && h->link_fd >= 0)
            receive(h);
    }
    return code;
}

/* --- itself -------------------------------------------------------------------------------------------------------------------------- */

/* It needs next to nothing, and what it keeps is worth more than any process that needs memory. Its environment is that of the user who
 * mounts, which the daemon needs: nobody else may read it. */
static void prepare(struct holder *h)
{
    sigset_t set;
    _cleanup_close_ int score = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (score >= 0 && write(score, "-1000", 5) < 0)
        log_debug("only root may spare a process from the OOM killer");
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

int holder_run(const char *store, const char *mountpoint, const struct mount_options *options, int ready_fd)
{
    struct holder h = {.store = store,
                       .mountpoint = mountpoint,
                       .options = options,
                       .ready_fd = ready_fd,
                       .link_fd = -1,
                       .keeper = {.lock_fd = -1, .adopted = {.fd = -1}}};
    prepare(&h);
    if (h.signal_fd < 0 || start_child(&h) < 0)
        return lifecycle_run(store, mountpoint, options, h.ready_fd, NULL); /* without a successor rather than not at all */
    int code = watch(&h);
    close_fd(&h.keeper.adopted.fd);
    close_fd(&h.keeper.lock_fd);
    close_fd(&h.link_fd);
    close_fd(&h.signal_fd);
    return code;
}
