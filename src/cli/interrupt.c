// SPDX-License-Identifier: Apache-2.0
#include "cli/interrupt.h"

#include <signal.h>
#include <time.h>

static volatile sig_atomic_t was_interrupted;

static void on_interrupt(int signo)
{
    (void)signo;
    was_interrupted = 1;
}

void interrupt_catch(bool once)
{
    /* no SA_RESTART: a sleep is to end */
    struct sigaction action = {.sa_handler = on_interrupt,
                               .sa_flags = once ? (int)SA_RESETHAND : 0};
    (void)sigaction(SIGINT, &action, NULL);
    (void)sigaction(SIGTERM, &action, NULL);
}

bool interrupted(void)
{
    return was_interrupted != 0;
}

bool interrupt_sleep_ms(unsigned ms)
{
    struct timespec t = {ms / 1000, (long)(ms % 1000) * 1000000};
    if (!interrupted())
        (void)nanosleep(&t, NULL);
    return !interrupted();
}
