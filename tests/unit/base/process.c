// SPDX-License-Identifier: Apache-2.0
#include "base/process.h"

#include <signal.h>
#include <sys/wait.h>

#include "../expect.h"

TestSuite(process, .timeout = 60);

static pid_t child_that_waits(void)
{
    pid_t child = fork();
    if (child == 0)
        for (;;)
            (void)pause();
    return child;
}

Test(process, the_end_of_a_child_is_waited_for)
{
    pid_t child = fork();
    if (child == 0)
        _exit(7);
    int status = 0;
    assert_i64(process_await_end(child, 30000), 1);
    assert_i64(waitpid(child, &status, WNOHANG), child);
    expect_i64(WEXITSTATUS(status), 7);
}

Test(process, a_child_that_lives_is_waited_for_no_longer_than_the_limit)
{
    pid_t child = child_that_waits();
    assert_i64(process_await_end(child, 0), 0);
    assert_i64(process_await_end(child, 20), 0);
    assert_i64(kill(child, SIGKILL), 0);
    assert_i64(process_await_end(child, 30000), 1);
    assert_i64(waitpid(child, NULL, WNOHANG), child);
    assert_i64(process_await_end(child, 0), -ESRCH);
}
