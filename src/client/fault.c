// SPDX-License-Identifier: Apache-2.0
#include "client/fault.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <ucontext.h>
#include <unistd.h>

/* Where to continue after a fault in this thread; NULL: the fault is not in fault_try(). The TLS
 * model makes an access from a signal handler safe in a new thread: no memory is allocated for
 * it. */
static __thread sigjmp_buf *volatile back __attribute__((tls_model("initial-exec")));

static const int numbers[] = {SIGSEGV, SIGBUS};
static struct sigaction before[ARRAY_LEN(numbers)];

/* Calls it as the kernel would: a handler may rely on being called once, on its signal mask, and on
 * raising the signal again. */
static void call_handler(const struct sigaction *handler, int number, siginfo_t *info,
                         void *context)
{
    sigset_t own, entry;
    (void)sigemptyset(&own);
    (void)sigaddset(&own, number);
    if (handler->sa_flags & SA_RESETHAND)
        (void)signal(number, SIG_DFL);
    (void)pthread_sigmask(SIG_BLOCK, &handler->sa_mask, &entry);
    if (handler->sa_flags & SA_NODEFER)
        (void)pthread_sigmask(SIG_UNBLOCK, &own, NULL);
    if (handler->sa_flags & SA_SIGINFO)
        handler->sa_sigaction(number, info, context);
    else
        handler->sa_handler(number);
    (void)pthread_sigmask(SIG_SETMASK, &entry, NULL);
}

/* The default action works as without this handler: the instruction faults again, or a signal sent
 * by another process is raised again. */
static void pass_on(const struct sigaction *to, int number, siginfo_t *info, void *context)
{
    bool is_sent = info->si_code <= 0;
    if (to->sa_handler != SIG_DFL && to->sa_handler != SIG_IGN) {
        call_handler(to, number, info, context);
    } else if (!is_sent || to->sa_handler == SIG_DFL) {
        (void)sigaction(number, to, NULL);
        if (is_sent)
            (void)raise(number);
    }
}

/* Also true if a later handler ran first and raised the signal again. */
static bool is_of_this_thread(const siginfo_t *info)
{
    return info->si_code > 0 || (info->si_code == SI_TKILL && info->si_pid == getpid());
}

/* Jumps to fault_try(), with the signal mask and alternate stack that a return would restore. */
static _Noreturn void leave_to_try(const ucontext_t *context)
{
    (void)sigaltstack(&context->uc_stack, NULL); /* SS_AUTODISARM disabled it */
    (void)pthread_sigmask(SIG_SETMASK, &context->uc_sigmask, NULL);
    siglongjmp(*back, 1);
}

static void on_fault(int number, siginfo_t *info, void *context)
{
    if (back && is_of_this_thread(info))
        leave_to_try(context);
    int error = errno;
    pass_on(&before[number == numbers[0] ? 0 : 1], number, info, context);
    errno = error;
}

static void install_handlers(void)
{
    struct sigaction ours = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    (void)sigemptyset(&ours.sa_mask);
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++) {
        struct sigaction there;
        (void)sigaction(numbers[i], NULL, &there);
        if (there.sa_sigaction == on_fault) /* a fork interrupted this function */
            continue;
        before[i] = there; /* stored before a fault needs it */
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
        return -EFAULT;
    }
    back = &here;
    reads(arg);
    back = NULL;
    return 0;
}
