// SPDX-License-Identifier: Apache-2.0
/* Memory that goes away while a thread of ours reads it; faults that are none of ours. */
#include "client/fault.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../expect.h"
#include "client/save.h"

#define LENGTH (8 * MIB)

static char *mapped(size_t length)
{
    char *bytes = mmap(NULL, length, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    cr_assert(bytes != MAP_FAILED);
    return bytes;
}

/* No other memory comes to lie at its place. */
static char *unreadable(size_t length)
{
    char *bytes = mapped(length);
    cr_assert(mprotect(bytes, length, PROT_NONE) == 0);
    return bytes;
}

static void read_byte(void *arg)
{
    char *volatile *bytes = arg;
    **(volatile char *volatile *)bytes;
}

Test(fault, is_an_error_again_and_again)
{
    char *there = mapped(LENGTH), *gone = unreadable(LENGTH);
    fault_install();
    for (int i = 0; i < 3; i++) {
        assert_i64(fault_try(read_byte, &gone), -EFAULT);
        assert_i64(fault_try(read_byte, &there), 0);
    }
}

/* A mapped file that was cut off: SIGBUS. */
Test(fault, of_a_file_that_is_shorter_now)
{
    FILE *file = tmpfile();
    cr_assert(file && ftruncate(fileno(file), LENGTH) == 0);
    char *bytes = mmap(NULL, LENGTH, PROT_READ, MAP_SHARED, fileno(file), 0);
    cr_assert(bytes != MAP_FAILED && ftruncate(fileno(file), 0) == 0);
    fault_install();
    assert_i64(fault_try(read_byte, &bytes), -EFAULT);
}

static sigjmp_buf elsewhere;

static void jump_elsewhere(int number)
{
    siglongjmp(elsewhere, number);
}

Test(fault, elsewhere_goes_to_the_handler_of_before)
{
    char *gone = unreadable(LENGTH);
    cr_assert(signal(SIGSEGV, jump_elsewhere) != SIG_ERR);
    fault_install();
    fault_install(); /* does not come before itself */
    int number = sigsetjmp(elsewhere, 1);
    if (number == 0)
        read_byte(&gone);
    assert_i64(number, SIGSEGV);
    assert_i64(fault_try(read_byte, &gone), -EFAULT);
}

Test(fault, elsewhere_ends_the_process_as_before, .signal = SIGSEGV)
{
    char *gone = unreadable(LENGTH);
    struct sigaction by_default = {.sa_handler = SIG_DFL, .sa_flags = SA_SIGINFO};
    cr_assert(sigaction(SIGSEGV, &by_default, NULL) == 0);
    fault_install();
    read_byte(&gone);
}

/* A reporter of crashes: it returns, and counts on the default for the second time. */
static void return_once(int number)
{
    (void)number;
}

Test(fault, elsewhere_goes_once_to_a_handler_for_once, .signal = SIGSEGV)
{
    char *gone = unreadable(LENGTH);
    struct sigaction once = {.sa_handler = return_once, .sa_flags = (int)SA_RESETHAND};
    cr_assert(sigaction(SIGSEGV, &once, NULL) == 0);
    fault_install();
    read_byte(&gone);
}

/* Or raises it again, and would go on if that did not end the process at once. */
static void raise_again(int number)
{
    (void)raise(number);
    _exit(1);
}

Test(fault, elsewhere_is_raised_again_by_a_handler, .signal = SIGSEGV)
{
    char *gone = unreadable(LENGTH);
    struct sigaction raises = {.sa_handler = raise_again,
                               .sa_flags = (int)SA_RESETHAND | SA_NODEFER};
    cr_assert(sigaction(SIGSEGV, &raises, NULL) == 0);
    fault_install();
    read_byte(&gone);
}

static void check_mask(int number)
{
    sigset_t now;
    (void)pthread_sigmask(SIG_BLOCK, NULL, &now);
    bool is_as_said = sigismember(&now, SIGUSR1) == 1 && sigismember(&now, SIGSEGV) == 1;
    siglongjmp(elsewhere, is_as_said ? number : -1);
}

Test(fault, elsewhere_is_handled_with_the_mask_of_the_handler)
{
    char *gone = unreadable(LENGTH);
    struct sigaction masks = {.sa_handler = check_mask};
    (void)sigaddset(&masks.sa_mask, SIGUSR1);
    cr_assert(sigaction(SIGSEGV, &masks, NULL) == 0);
    fault_install();
    int number = sigsetjmp(elsewhere, 1);
    if (number == 0)
        read_byte(&gone);
    assert_i64(number, SIGSEGV);
}

/* As Python's faulthandler: it is asked first, and puts back what it found. */
static struct sigaction earlier;

static void put_back_and_raise(int number)
{
    (void)sigaction(number, &earlier, NULL);
    (void)raise(number);
}

static void pass_back(int number, siginfo_t *info, void *context)
{
    earlier.sa_sigaction(number, info, context);
}

Test(fault, comes_by_a_later_handler)
{
    char *gone = unreadable(LENGTH), *there = mapped(LENGTH);
    const struct sigaction later[] = {
        {.sa_handler = put_back_and_raise, .sa_flags = SA_NODEFER | SA_ONSTACK},
        {.sa_handler = put_back_and_raise},
        {.sa_sigaction = pass_back, .sa_flags = SA_SIGINFO},
    };
    fault_install();
    for (size_t i = 0; i < ARRAY_LEN(later); i++) {
        cr_assert(sigaction(SIGSEGV, &later[i], &earlier) == 0);
        assert_i64(fault_try(read_byte, &gone), -EFAULT);
        assert_i64(fault_try(read_byte, &there), 0);
        assert_i64(fault_try(read_byte, &gone), -EFAULT);
    }
}

#ifndef SS_AUTODISARM
#define SS_AUTODISARM (1u << 31)
#endif

/* A stack for signals, which the kernel takes away while a handler is on it; and what is blocked.
 */
Test(fault, leaves_the_thread_as_it_was)
{
    static char memory[64 * KIB];
    char *gone = unreadable(LENGTH);
    stack_t stack = {.ss_sp = memory, .ss_size = sizeof memory, .ss_flags = (int)SS_AUTODISARM};
    stack_t after, own;
    sigset_t blocked, now;
    (void)sigemptyset(&blocked);
    (void)sigaddset(&blocked, SIGBUS);
    (void)sigaddset(&blocked, SIGUSR2);
    cr_assert(sigaltstack(&stack, &own) == 0);
    cr_assert(pthread_sigmask(SIG_BLOCK, &blocked, NULL) == 0);
    fault_install();
    for (int i = 0; i < 2; i++) {
        assert_i64(fault_try(read_byte, &gone), -EFAULT);
        cr_assert(sigaltstack(NULL, &after) == 0 && pthread_sigmask(SIG_BLOCK, NULL, &now) == 0);
        cr_assert(after.ss_sp == memory && after.ss_flags == (int)SS_AUTODISARM);
        cr_assert(sigismember(&now, SIGBUS) && sigismember(&now, SIGUSR2));
        cr_assert(!sigismember(&now, SIGSEGV));
    }
    cr_assert(sigaltstack(&own, NULL) == 0); /* a sanitizer's */
}

/* A thread that has used up its stack: the handler of before has one of its own. */
static void *overflow(void *arg)
{
    volatile char frame[4096];
    frame[0] = 1;
    return arg && frame[0] ? overflow((void *)frame) : NULL;
}

static void *overflow_on_thread(void *memory)
{
    stack_t stack = {.ss_sp = memory, .ss_size = 64 * KIB}, own;
    cr_assert(sigaltstack(&stack, &own) == 0);
    int number = sigsetjmp(elsewhere, 1);
    if (number == 0)
        (void)overflow(memory);
    cr_assert(sigaltstack(&own, NULL) == 0); /* a sanitizer's */
    return (void *)(intptr_t)number;
}

Test(fault, of_a_stack_goes_to_the_handler_of_before)
{
    static char memory[64 * KIB];
    struct sigaction jumps = {.sa_handler = jump_elsewhere, .sa_flags = SA_ONSTACK};
    pthread_t thread;
    void *number;
    cr_assert(sigaction(SIGSEGV, &jumps, NULL) == 0);
    fault_install();
    cr_assert(pthread_create(&thread, NULL, overflow_on_thread, memory) == 0);
    cr_assert(pthread_join(thread, &number) == 0);
    assert_i64((intptr_t)number, SIGSEGV);
}

/* A child has the handlers, for its own reads and its own crash. */
Test(fault, in_a_child)
{
    char *gone = unreadable(LENGTH);
    int status = 0;
    (void)signal(SIGSEGV, SIG_DFL);
    fault_install();
    pid_t child = fork();
    if (child == 0) {
        fault_install();
        if (fault_try(read_byte, &gone) == -EFAULT)
            read_byte(&gone);
        _exit(1);
    }
    cr_assert(child > 0 && waitpid(child, &status, 0) == child);
    cr_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV, "%#x", (unsigned)status);
}

static void send_it(void *arg)
{
    (void)kill(getpid(), *(int *)arg);
}

/* It is not taken for a fault, even while we read. */
Test(fault, that_is_sent_ends_the_process, .signal = SIGSEGV)
{
    int number = SIGSEGV;
    (void)signal(SIGSEGV, SIG_DFL);
    fault_install();
    assert_i64(fault_try(send_it, &number), 1); /* does not come back */
}

/* --- saves ------------------------------------------------------------------------------------ */

static void path_of(char path[64])
{
    (void)snprintf(path, 64, "/tmp/cairn-fault-%d", (int)getpid());
}

static cairn_save *save_of(cairn_lane *lane, const char *bytes, uint32_t flags)
{
    char path[64];
    path_of(path);
    cairn_save *save;
    struct cairn_save_options options = {.size = sizeof options, .flags = flags};
    struct cairn_zip_record record = {"data/0", {.length = LENGTH, .host = bytes}};
    assert_i64(cairn_save_zip(lane, path, &record, 1, NULL, &options, &save), 0);
    return save;
}

static void expect_gone(cairn_save *save)
{
    const char *text;
    char path[64];
    path_of(path);
    assert_i64(cairn_save_wait(save, CAIRN_PUBLISHED, -1), -EFAULT);
    assert_i64(cairn_save_error(save, &text), -EFAULT);
    cr_assert(strstr(text, "was freed or moved while it was copied"), "%s", text);
    cr_assert(access(path, F_OK) < 0);
    cairn_save_free(save);
}

/* By what computes the CRC, by the kernel, and by fingerprints; an urgent save is not sampled. */
Test(fault, of_a_source_fails_its_save)
{
    static const uint32_t ways[] = {0, CAIRN_SAVE_NO_CRC, CAIRN_SAVE_REFER};
    cairn_lane *lane;
    assert_i64(cairn_lane_open(NULL, &lane), 0);
    for (size_t i = 0; i < ARRAY_LEN(ways); i++)
        expect_gone(save_of(lane, unreadable(LENGTH), CAIRN_SAVE_URGENT | ways[i]));
    assert_i64(cairn_lane_close(lane), 0);
}

/* By the samples, and by the copy of a small source; then the lane goes on. */
Test(fault, of_a_source_during_the_call)
{
    static const struct {
        size_t length;
        uint32_t flags;
    } ways[] = {{LENGTH, 0}, {4096, CAIRN_SOURCE_NOW}};
    char path[64], *there = mapped(LENGTH);
    path_of(path);
    cairn_lane *lane;
    cairn_save *save;
    assert_i64(cairn_lane_open(NULL, &lane), 0);
    for (size_t i = 0; i < ARRAY_LEN(ways); i++) {
        struct cairn_source source = {
            .length = ways[i].length, .host = unreadable(LENGTH), .flags = ways[i].flags};
        assert_i64(cairn_save_begin(lane, path, source.length, NULL, &save), 0);
        assert_i64(cairn_save_put(save, &source, 1), -EFAULT);
        cr_assert(strstr(cairn_error(), "was not there when the call read it"));
        source.host = there;
        assert_i64(cairn_save_put(save, &source, 1), 0);
        assert_i64(cairn_save_commit(save), 0);
        assert_i64(cairn_save_wait(save, CAIRN_PUBLISHED, -1), 0);
        cairn_save_free(save);
    }
    (void)unlink(path);
    assert_i64(cairn_lane_close(lane), 0);
}

/* Wherever the copy is then, the sample behind it included. */
Test(fault, of_a_source_at_any_time)
{
    int failed = 0;
    char path[64];
    path_of(path);
    cairn_lane *lane;
    assert_i64(cairn_lane_open(NULL, &lane), 0);
    for (unsigned i = 0; i < 200; i++) {
        char *bytes = mapped(LENGTH);
        cairn_save *save = save_of(lane, bytes, 0);
        (void)usleep(i * 20); /* 0 to 4 ms, which is about what the copy takes */
        (void)munmap(bytes, LENGTH);
        int r = cairn_save_wait(save, CAIRN_PUBLISHED, -1);
        cr_assert(r == 0 || r == -EFAULT, "%d", r);
        failed += r < 0;
        cairn_save_free(save);
    }
    cr_assert(failed > 0);
    (void)unlink(path);
    (void)cairn_lane_close(lane);
}
