// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <openssl/crypto.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/process.h"
#include "base/text.h"
#include "tier/s3/credentials_source.h"

#define OUTPUT_MAX (64 * KIB)
#define ERRORS_MAX 200
#define READS_AT_ONCE 64u
#define PROCESS_TIMEOUT_NS (60ll * 1000000000)

/* A running command. It has a process group of its own, so that its children end with it. */
struct command {
    pid_t pid;
    int end;      /* readable when it has ended */
    int out, err; /* our ends of the pipes, nonblocking */
    char *output; /* OUTPUT_MAX + 1 bytes, wiped at the end */
    size_t output_len;
    char errors[ERRORS_MAX + 1]; /* the beginning of its error output */
    size_t errors_len;
    bool ended;
    int status;
};

extern char **environ;

/* The command must not inherit the daemon's masked and ignored signals. */
static int spawn_command(const char *command, int out, int err, pid_t *ret_pid)
{
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    sigset_t none, all;
    (void)sigemptyset(&none);
    (void)sigfillset(&all);
    if (posix_spawn_file_actions_init(&files) != 0)
        return -ENOMEM;
    if (posix_spawnattr_init(&attributes) != 0) {
        (void)posix_spawn_file_actions_destroy(&files);
        return -ENOMEM;
    }
    int r = posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    r = r ? r : posix_spawn_file_actions_adddup2(&files, out, STDOUT_FILENO);
    r = r ? r : posix_spawn_file_actions_adddup2(&files, err, STDERR_FILENO);
    r = r ? r : posix_spawnattr_setsigmask(&attributes, &none);
    r = r ? r : posix_spawnattr_setsigdefault(&attributes, &all);
    r = r ? r
          : posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK |
                                                      POSIX_SPAWN_SETSIGDEF);
    char *const argv[] = {(char *)"sh", (char *)"-c", (char *)command, NULL};
    r = r ? r : posix_spawn(ret_pid, "/bin/sh", &files, &attributes, argv, environ);
    (void)posix_spawnattr_destroy(&attributes);
    (void)posix_spawn_file_actions_destroy(&files);
    return -r;
}

static int command_start(const char *command, struct command *p)
{
    int out[2], err[2];
    if (pipe2(out, O_CLOEXEC) < 0)
        return -errno;
    if (pipe2(err, O_CLOEXEC) < 0) {
        int r = -errno;
        (void)close(out[0]);
        (void)close(out[1]);
        return r;
    }
    int r = spawn_command(command, out[1], err[1], &p->pid);
    (void)close(out[1]);
    (void)close(err[1]);
    (void)fcntl(out[0], F_SETFL, O_NONBLOCK);
    (void)fcntl(err[0], F_SETFL, O_NONBLOCK);
    p->out = out[0];
    p->err = err[0];
    p->output = r == 0 ? xmalloc(OUTPUT_MAX + 1) : NULL;
    if (r == 0)
        p->end = process_end_fd(p->pid);
    return r == 0 && p->end < 0 ? p->end : r;
}

/* Reads available output; bytes beyond `capacity` are dropped. Closes the pipe at its end. Each
 * call reads a limited amount, as a command may write without end. */
static void drain_pipe(int *fd, char *to, size_t capacity, size_t *len)
{
    char dropped[4096];
    for (unsigned i = 0; i < READS_AT_ONCE; i++) {
        bool full = *len == capacity;
        ssize_t n = read(*fd, full ? dropped : to + *len, full ? sizeof dropped : capacity - *len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return;
        if (n <= 0) {
            (void)close(*fd);
            *fd = -1;
            return;
        }
        if (!full)
            *len += (size_t)n;
    }
}

/* Waits until the command has ended or written too much; -ETIMEDOUT at the time limit. Processes
 * that it left running may keep the pipes open. */
static int command_wait(struct command *p)
{
    int64_t deadline = clock_monotonic_ns() + PROCESS_TIMEOUT_NS;
    while (!p->ended && p->output_len <= OUTPUT_MAX) {
        int64_t left = deadline - clock_monotonic_ns();
        if (left <= 0)
            return -ETIMEDOUT;
        struct pollfd fds[] = {{.fd = p->out, .events = POLLIN},
                               {.fd = p->err, .events = POLLIN},
                               {.fd = p->end, .events = POLLIN}};
        (void)poll(fds, ARRAY_LEN(fds), (int)(left / MS_NS) + 1);
        /* before the pipes are read, so that all output before its end is seen */
        pid_t pid = waitpid(p->pid, &p->status, WNOHANG);
        if (pid < 0 && errno != EINTR)
            return -errno;
        p->ended = pid == p->pid;
        if (p->out >= 0)
            drain_pipe(&p->out, p->output, OUTPUT_MAX + 1, &p->output_len);
        if (p->err >= 0)
            drain_pipe(&p->err, p->errors, ERRORS_MAX, &p->errors_len);
    }
    return 0;
}

static void command_done(struct command *p)
{
    if (p->pid > 0 && !p->ended) {
        (void)kill(-p->pid, SIGKILL);
        while (waitpid(p->pid, &p->status, 0) < 0 && errno == EINTR)
            ;
    }
    if (p->end >= 0)
        (void)close(p->end);
    if (p->out >= 0)
        (void)close(p->out);
    if (p->err >= 0)
        (void)close(p->err);
    if (p->output)
        OPENSSL_cleanse(p->output, p->output_len);
    free(p->output);
}

static int command_failed(struct command *p, const char *what, char **ret_error)
{
    char how[40];
    (void)snprintf(how, sizeof how,
                   WIFEXITED(p->status) ? "exited with status %d" : "was killed by signal %d",
                   WIFEXITED(p->status) ? WEXITSTATUS(p->status) : WTERMSIG(p->status));
    p->errors[p->errors_len] = '\0';
    p->errors[strcspn(p->errors, "\r\n")] = '\0';
    return text_fail(ret_error, -EACCES, "%s %s%s%s", what, how, *p->errors ? ": " : "", p->errors);
}

int s3_source_process(const char *profile, const char *command,
                      struct s3_credentials *ret_credentials, char **ret_error)
{
    struct command p = {.pid = -1, .end = -1, .out = -1, .err = -1};
    _cleanup_free_ char *what = xasprintf("credential_process of profile \"%s\"", profile);
    int r = command_start(command, &p);
    if (r == 0)
        r = command_wait(&p);
    if (r < 0)
        (void)text_fail(ret_error, r, "%s: %s", what,
                        r == -ETIMEDOUT ? "did not exit within 60 s" : strerror(-r));
    else if (p.status != 0)
        r = command_failed(&p, what, ret_error);
    else if (p.output_len > OUTPUT_MAX)
        r = text_fail(ret_error, -EINVAL, "%s: the answer has more than 64 KiB", what);
    else
        r = s3_credentials_parse(p.output, p.output_len, "SessionToken", what, ret_credentials,
                                 ret_error);
    command_done(&p);
    return r;
}
