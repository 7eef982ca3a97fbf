// SPDX-License-Identifier: Apache-2.0
/* What a bug of the library tells the user of a training program, who mounts nothing. */
#include <cairn/cairn.h>
#include <signal.h>
#include <sys/wait.h>

#include "../expect.h"
#include "base/base.h"

Test(check, tells_what_it_means_to_the_program)
{
    char text[1000] = "";
    int pipes[2], status;
    assert_i64(pipe(pipes), 0);
    pid_t child = fork();
    if (child == 0) {
        cairn_lane *lane;
        (void)dup2(pipes[1], STDERR_FILENO);
        (void)signal(SIGABRT, SIG_DFL);
        if (cairn_lane_open(NULL, &lane) == 0)
            check_failed("1 == 2", "client/save.c", 7);
        _exit(1);
    }
    (void)close(pipes[1]);
    for (ssize_t n = 1, have = 0; n > 0 && have < (ssize_t)sizeof text - 1; have += n)
        n = read(pipes[0], text + have, sizeof text - 1 - (size_t)have);
    assert_i64(waitpid(child, &status, 0), child);
    cr_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    cr_assert(strstr(text, "bug: check failed: 1 == 2 (client/save.c:7)"), "%s", text);
    cr_assert(strstr(text, "of libcairn") && strstr(text, "saves under way are not there"), "%s",
              text);
    cr_assert(!strstr(text, "acknowledged"), "%s", text);
}
