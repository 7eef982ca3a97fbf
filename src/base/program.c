// SPDX-License-Identifier: Apache-2.0
#include "base/program.h"

#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

#include "base/clock.h"

extern char **environ;

int program_start(const char *program, const char *const argv[], const int (*fds)[2],
                  size_t fd_count, bool own_session, pid_t *ret)
{
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    sigset_t none;
    short flags = POSIX_SPAWN_SETSIGMASK | (short)(own_session ? POSIX_SPAWN_SETSID : 0);
    check(posix_spawn_file_actions_init(&files) == 0 && posix_spawnattr_init(&attributes) == 0);
    (void)sigemptyset(&none);
    int r = posix_spawnattr_setsigmask(&attributes, &none);
    r = r ? r : posix_spawnattr_setflags(&attributes, flags);
    for (size_t i = 0; r == 0 && i < fd_count; i++)
        r = posix_spawn_file_actions_adddup2(&files, fds[i][0], fds[i][1]);
    char *const *arguments = (char *const *)(uintptr_t)argv;
    r = r ? r : posix_spawnp(ret, program, &files, &attributes, arguments, environ);
    (void)posix_spawn_file_actions_destroy(&files);
    (void)posix_spawnattr_destroy(&attributes);
    return -r;
}

bool program_hear(int fd, char *text, size_t capacity, int64_t deadline)
{
    char more[4096];
    size_t len = 0;
    for (;;) {
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        int64_t left_ms = (deadline - clock_monotonic_ns()) / MS_NS + 1;
        text[len] = '\0';
        if (left_ms <= 0)
            return false;
        if (poll(&ready, 1, (int)min_u64((uint64_t)left_ms, INT_MAX)) <= 0)
            continue;
        ssize_t n = read(fd, more, sizeof more);
        if (n == 0 || (n < 0 && errno != EINTR))
            return true;
        size_t kept = n > 0 ? min_u64((uint64_t)n, capacity - 1 - len) : 0;
        memcpy(text + len, more, kept);
        len += kept;
    }
}

int program_await(pid_t child)
{
    int status = -1;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    return status;
}
