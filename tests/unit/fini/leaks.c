// SPDX-License-Identifier: Apache-2.0
/* With AddressSanitizer, a test that leaks memory fails.
 *
 * Each test has a process of its own, and Criterion does not look at the exit status of one whose
 * test passed. So such a process appends a byte to a file of the runner if it leaks. What the
 * runner itself leaks is Criterion's. */
#ifdef __SANITIZE_ADDRESS__

#include <criterion/criterion.h>
#include <criterion/hooks.h>
#include <fcntl.h>
#include <sanitizer/lsan_interface.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define VARIABLE "CAIRN_TEST_LEAKS" /* the path of the file; of a test's process */

static char path[] = "/tmp/cairn-test-leaks-XXXXXX"; /* of the runner */

/* LeakSanitizer's own check, at the very end, is left out. */
static int is_turned_off = 1;

__attribute__((visibility("default"))) int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void)
{
    return is_turned_off;
}

static void note_leaks(void)
{
    is_turned_off = 0;
    int leaks = __lsan_do_recoverable_leak_check();
    is_turned_off = 1;
    if (!leaks)
        return;
    int fd = open(getenv(VARIABLE), O_WRONLY | O_APPEND | O_CLOEXEC);
    if (fd < 0 || write(fd, "l", 1) != 1)
        abort();
    (void)close(fd);
}

__attribute__((constructor)) static void begin(void)
{
    if (getenv(VARIABLE)) {
        (void)atexit(note_leaks);
        return;
    }
    int fd = mkstemp(path);
    if (fd < 0 || setenv(VARIABLE, path, 1) < 0)
        abort();
    (void)close(fd);
}

ReportHook(POST_ALL)(struct criterion_global_stats *all)
{
    struct stat file;
    if (stat(path, &file) < 0)
        abort();
    all->tests_failed += (size_t)file.st_size;
    (void)unlink(path);
}

#else
typedef int leaks_are_not_looked_for;
#endif
