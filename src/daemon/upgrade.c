// SPDX-License-Identifier: Apache-2.0
#include "daemon/upgrade.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/text.h"

#define CHECK_TIMEOUT_NS (10ll * 1000000000)
#define CHECK_FD 3
#define SAID_MAX 1024

extern char **environ;

/* Collects what the program says until it ends. Returns false where the time is up. */
static bool binary_hear(int fd, char *said)
{
    int64_t deadline = clock_monotonic_ns() + CHECK_TIMEOUT_NS;
    char more[SAID_MAX];
    size_t len = 0;
    for (;;) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        int64_t left_ms = (deadline - clock_monotonic_ns()) / 1000000;
        if (left_ms <= 0)
            return false;
        if (poll(&p, 1, (int)left_ms) <= 0)
            continue;
        ssize_t n = read(fd, more, sizeof more);
        if (n <= 0)
            return n == 0 || errno == EINTR;
        size_t taken = min_u64((uint64_t)n, SAID_MAX - 1 - len);
        memcpy(said + len, more, taken);
        len += taken;
    }
}

static int spawn_check(const char *binary, int state_fd, int out_fd, pid_t *ret)
{
    char program[] = "cairn", verb[] = "holder", how[] = "check", number[8];
    char *argv[] = {program, verb, how, number, NULL};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none;
    (void)snprintf(number, sizeof number, "%d", CHECK_FD);
    check(posix_spawn_file_actions_init(&actions) == 0 && posix_spawnattr_init(&attributes) == 0);
    (void)sigemptyset(&none);
    int r = posix_spawn_file_actions_adddup2(&actions, out_fd, STDOUT_FILENO);
    if (r == 0)
        r = posix_spawn_file_actions_adddup2(&actions, out_fd, STDERR_FILENO);
    if (r == 0)
        r = posix_spawn_file_actions_adddup2(&actions, state_fd, CHECK_FD);
    if (r == 0)
        r = posix_spawnattr_setsigmask(&attributes, &none);
    if (r == 0)
        r = posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    if (r == 0)
        r = posix_spawn(ret, binary, &actions, &attributes, argv, environ);
    (void)posix_spawn_file_actions_destroy(&actions);
    (void)posix_spawnattr_destroy(&attributes);
    return -r;
}

static int binary_evaluate(const char *binary, int status, char *said, char **ret_text)
{
    char *end = strchr(said, '\n');
    if (end)
        *end = '\0';
    bool is_ours = strncmp(said, UPGRADE_CHECK_PREFIX, strlen(UPGRADE_CHECK_PREFIX)) == 0;
    text_hide_controls(said);
    if (is_ours && WIFEXITED(status) && WEXITSTATUS(status) == 0) {
        *ret_text = xstrdup(said + strlen(UPGRADE_CHECK_PREFIX));
        return 0;
    }
    if (WIFSIGNALED(status))
        *ret_text = xasprintf("%s cannot take the mount over: it was killed by signal %d", binary,
                              WTERMSIG(status));
    else if (*said)
        *ret_text = xasprintf("%s cannot take the mount over: %s", binary, said);
    else
        *ret_text = xasprintf("%s cannot take the mount over: it does not support upgrades (exit "
                              "status %d without a message)",
                              binary, WEXITSTATUS(status));
    return -EPROTO;
}

static int binary_ask(const char *binary, int state_fd, char **ret_text)
{
    int out[2], status = 0;
    char said[SAID_MAX] = "";
    pid_t child;
    if (pipe2(out, O_CLOEXEC) < 0)
        return -errno;
    int r = spawn_check(binary, state_fd, out[1], &child);
    (void)close(out[1]);
    if (r < 0) {
        (void)close(out[0]);
        return r;
    }
    bool in_time = binary_hear(out[0], said);
    (void)close(out[0]);
    if (!in_time)
        (void)kill(child, SIGKILL);
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    if (!in_time)
        return text_fail(ret_text, -ETIMEDOUT, "%s cannot take the mount over: it does not answer",
                         binary);
    return binary_evaluate(binary, status, said, ret_text);
}

int upgrade_check(const char *binary, const struct handover_source *from, char **ret_text)
{
    _cleanup_close_ int state_fd = -1, high_fd = -1;
    int r = handover_write(from, &state_fd);
    /* The number must differ from the one that the descriptor gets in the child. */
    if (r == 0 && (high_fd = fcntl(state_fd, F_DUPFD_CLOEXEC, CHECK_FD + 1)) < 0)
        r = -errno;
    if (r == 0)
        r = binary_ask(binary, high_fd, ret_text);
    if (r < 0 && !*ret_text)
        *ret_text = xasprintf("cannot run %s: %s", binary, strerror(-r));
    return r;
}

int upgrade_execute(const char *binary, const char *how, const struct handover_source *from)
{
    _cleanup_close_ int state_fd = -1;
    char number[16];
    int r = handover_write(from, &state_fd);
    if (r < 0)
        return r;
    (void)snprintf(number, sizeof number, "%d", state_fd);
    handover_inherit_fds(from->holder_link, state_fd, true);
    (void)execl(binary, "cairn", "holder", how, number, from->store, from->mountpoint,
                (char *)NULL);
    r = -errno;
    handover_inherit_fds(from->holder_link, state_fd, false);
    return r;
}

/* A descriptor that is put in its own place is not closed by the exec. */
static int pass_on(posix_spawn_file_actions_t *actions, const struct holder_link *holder_link,
                   int state_fd)
{
    const int fds[] = {holder_link->adopted.fd, holder_link->lock_fd, holder_link->link_fd,
                       state_fd};
    int r = 0;
    for (size_t i = 0; i < ARRAY_LEN(fds) && r == 0; i++)
        r = posix_spawn_file_actions_adddup2(actions, fds[i], fds[i]);
    return r;
}

int upgrade_spawn(const char *binary, const char *how, const struct handover_source *from,
                  pid_t *ret)
{
    _cleanup_close_ int state_fd = -1;
    _cleanup_free_ char *how_copy = xstrdup(how), *store = xstrdup(from->store),
                        *mountpoint = xstrdup(from->mountpoint);
    char program[] = "cairn", verb[] = "holder", number[16];
    char *argv[] = {program, verb, how_copy, number, store, mountpoint, NULL};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none;
    int r = handover_write(from, &state_fd);
    if (r < 0)
        return r;
    (void)snprintf(number, sizeof number, "%d", state_fd);
    (void)sigemptyset(&none);
    check(posix_spawn_file_actions_init(&actions) == 0 && posix_spawnattr_init(&attributes) == 0);
    r = pass_on(&actions, from->holder_link, state_fd);
    if (r == 0)
        r = posix_spawnattr_setsigmask(&attributes, &none);
    if (r == 0)
        r = posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSID);
    if (r == 0)
        r = posix_spawn(ret, binary, &actions, &attributes, argv, environ);
    (void)posix_spawn_file_actions_destroy(&actions);
    (void)posix_spawnattr_destroy(&attributes);
    return -r;
}
