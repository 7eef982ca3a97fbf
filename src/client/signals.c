// SPDX-License-Identifier: Apache-2.0
#include "client/signals.h"

#include <time.h>

static void pipe_only(sigset_t *set)
{
    (void)sigemptyset(set);
    (void)sigaddset(set, SIGPIPE);
}

void signals_hold_pipe(struct signals_held *held)
{
    sigset_t set, pending;
    pipe_only(&set);
    (void)sigpending(&pending);
    held->was_pending = sigismember(&pending, SIGPIPE) == 1;
    (void)pthread_sigmask(SIG_BLOCK, &set, &held->before);
}

void signals_release_pipe(const struct signals_held *held)
{
    sigset_t set;
    pipe_only(&set);
    int error = errno;
    while (!held->was_pending && sigtimedwait(&set, NULL, &(struct timespec){0}) < 0 &&
           errno == EINTR)
        ;
    (void)pthread_sigmask(SIG_SETMASK, &held->before, NULL);
    errno = error;
}
