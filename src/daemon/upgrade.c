// SPDX-License-Identifier: Apache-2.0
#include "daemon/upgrade.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/program.h"
#include "base/text.h"

#define CHECK_TIMEOUT_NS (10ll * 1000000000)
#define CHECK_FD 3
#define CHECK_FD_TEXT "3"
#define SAID_MAX 1024

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
        return text_fail(ret_text, -EPROTO,
                         "%s cannot take the mount over: it was killed by signal %d", binary,
                         WTERMSIG(status));
    if (*said)
        return text_fail(ret_text, -EPROTO, "%s cannot take the mount over: %s", binary, said);
    return text_fail(ret_text, -EPROTO,
                     "%s cannot take the mount over: it does not support upgrades (exit status %d "
                     "without a message)",
                     binary, WEXITSTATUS(status));
}

static int binary_ask(const char *binary, int state_fd, char **ret_text)
{
    static const char *const argv[] = {"cairn", "holder", "check", CHECK_FD_TEXT, NULL};
    int out[2];
    char said[SAID_MAX] = "";
    pid_t child;
    if (pipe2(out, O_CLOEXEC) < 0)
        return -errno;
    const int fds[][2] = {{out[1], STDOUT_FILENO}, {out[1], STDERR_FILENO}, {state_fd, CHECK_FD}};
    int r = program_start(binary, argv, fds, ARRAY_LEN(fds), false, &child);
    (void)close(out[1]);
    if (r < 0) {
        (void)close(out[0]);
        return r;
    }
    bool in_time = program_hear(out[0], said, sizeof said, clock_monotonic_ns() + CHECK_TIMEOUT_NS);
    (void)close(out[0]);
    if (!in_time)
        (void)kill(child, SIGKILL);
    int status = program_await(child);
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
    TRY(handover_write(from, &state_fd));
    (void)snprintf(number, sizeof number, "%d", state_fd);
    handover_inherit_fds(from->holder_link, state_fd, true);
    (void)execl(binary, "cairn", "holder", how, number, from->store, from->mountpoint,
                (char *)NULL);
    int r = -errno;
    handover_inherit_fds(from->holder_link, state_fd, false);
    return r;
}

int upgrade_spawn(const char *binary, const char *how, const struct handover_source *from,
                  pid_t *ret)
{
    const struct holder_link *link = from->holder_link;
    _cleanup_close_ int state_fd = -1;
    char number[16];
    TRY(handover_write(from, &state_fd));
    (void)snprintf(number, sizeof number, "%d", state_fd);
    const char *const argv[] = {"cairn",     "holder",         how, number,
                                from->store, from->mountpoint, NULL};
    /* A descriptor that already has its number is not closed by the exec. */
    const int fds[][2] = {{link->adopted.fd, link->adopted.fd},
                          {link->lock_fd, link->lock_fd},
                          {link->link_fd, link->link_fd},
                          {state_fd, state_fd}};
    return program_start(binary, argv, fds, ARRAY_LEN(fds), true, ret);
}
