// SPDX-License-Identifier: Apache-2.0
#include "client/fault.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <unistd.h>

/* Where a fault of this thread goes on; NULL: it is none of ours. The model makes an access from
 * a signal handler safe in threads that never had one: no memory is allocated for it. */
static __thread sigjmp_buf *volatile back __attribute__((tls_model("initial-exec")));

static const int numbers[] = {SIGSEGV, SIGBUS};
static struct sigaction before[ARRAY_LEN(numbers)];

/* Back at the instruction that faulted, or by the raise of what another process has sent, the
 * default does what it does without us. */
static void pass_on(const struct sigaction *to, int number, siginfo_t *info, void *context)
{
    if (to->sa_flags & SA_SIGINFO) {
        to->sa_sigaction(number, info, context);
    } else if (to->sa_handler != SIG_DFL && to->sa_handler != SIG_IGN) {
        to->sa_handler(number);
    } else {
        (void)sigaction(number, to, NULL);
        if (info->si_code <= 0)
            (void)raise(number);
    }
}

/* Also what a handler that came later has shown, and raises again. */
static bool is_of_this_thread(const siginfo_t *info)
{
    return info->si_code > 0 || (info->si_code == SI_TKILL && info->si_pid == getpid());
}

static void on_fault(int number, siginfo_t *info, void *context)
{
    if (back && is_of_this_thread(info))
        siglongjmp(*back, 1);
    int error = errno;
    pass_on(&before[number == numbers[0] ? 0 : 1], number, info, context);
    errno = error;
}

static void install_handlers(void)
{
    struct sigaction ours = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    (void)sigemptyset(&ours.sa_mask);
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++) {
        (void)sigaction(numbers[i], NULL, &before[i]); /* known before a fault asks for it */
        (void)sigaction(numbers[i], &ours, NULL);
    }
}

void fault_install(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, install_handlers);
}

void fault_admit(void)
{
    sigset_t set;
    (void)sigemptyset(&set);
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++)
        (void)sigaddset(&set, numbers[i]);
    (void)pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

int fault_try(void (*reads)(void *arg), void *arg)
{
    sigjmp_buf here;
    if (sigsetjmp(here, 0) != 0) {
        back = NULL;
        fault_admit(); /* the handler that was left had its signal blocked */
        return -EFAULT;
    }
    back = &here;
    reads(arg);
    back = NULL;
    return 0;
}
