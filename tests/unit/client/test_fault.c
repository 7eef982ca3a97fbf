// SPDX-License-Identifier: Apache-2.0
/* Memory that goes away while a thread of ours reads it; faults that are none of ours. */
#include "client/fault.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../expect.h"
#include "client/client.h"

#define LENGTH (8 * MIB)

static char *mapped(size_t length)
{
    char *bytes = mmap(NULL, length, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    cr_assert(bytes != MAP_FAILED);
    return bytes;
}

static char *unmapped(size_t length)
{
    char *bytes = mapped(length);
    cr_assert(munmap(bytes, length) == 0);
    return bytes;
}

static void read_byte(void *arg)
{
    char *volatile *bytes = arg;
    **(volatile char *volatile *)bytes;
}

Test(fault, is_an_error_again_and_again)
{
    char *there = mapped(LENGTH), *gone = unmapped(LENGTH); /* in this order: not at one place */
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
    char *gone = unmapped(LENGTH);
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
    char *gone = unmapped(LENGTH);
    (void)signal(SIGSEGV, SIG_DFL);
    fault_install();
    read_byte(&gone);
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
        expect_gone(save_of(lane, unmapped(LENGTH), CAIRN_SAVE_URGENT | ways[i]));
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
