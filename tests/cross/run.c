// SPDX-License-Identifier: Apache-2.0
/* Runs the tests that were linked to it; with arguments only those that these name: SUITE or
 * SUITE/TEST. */
#include <stdarg.h>
#include <sys/wait.h>
#include <unistd.h>

#include "criterion/criterion.h"

static struct cross_test *all;

void cross_add(struct cross_test *test)
{
    test->next = all;
    all = test;
}

void cross_fail(const char *file, int line, const char *what, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    (void)fprintf(stderr, "%s:%d: %s: ", file, line, what);
    (void)vfprintf(stderr, fmt, ap);
    (void)fprintf(stderr, "\n");
    va_end(ap);
    _exit(1);
}

static void run_here(const struct cross_test *test)
{
    for (const struct cross_test *suite = all; suite; suite = suite->next)
        if (!suite->run && strcmp(suite->suite, test->suite) == 0 && suite->options.init)
            suite->options.init();
    if (test->options.init)
        test->options.init();
    test->run();
    _exit(0);
}

static bool passes(const struct cross_test *test)
{
    int status = 0;
    pid_t pid = fork();
    if (pid == 0)
        run_here(test);
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        return false;
    return test->options.signal ? WIFSIGNALED(status) && WTERMSIG(status) == test->options.signal
                                : WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static bool is_named(const struct cross_test *test, const char *name)
{
    size_t len = strlen(test->suite);
    return strncmp(name, test->suite, len) == 0 &&
           (name[len] == 0 || (name[len] == '/' && strcmp(name + len + 1, test->name) == 0));
}

static bool is_asked_for(const struct cross_test *test, int argc, char **argv)
{
    bool is = argc < 2;
    for (int i = 1; test->run && i < argc; i++)
        is = is || is_named(test, argv[i]);
    return is && test->run;
}

/* A suite that was renamed must not go missing without a word. */
static unsigned count_unknown(int argc, char **argv)
{
    unsigned unknown = 0;
    for (int i = 1; i < argc; i++) {
        bool is_known = false;
        for (const struct cross_test *test = all; test; test = test->next)
            is_known = is_known || (test->run && is_named(test, argv[i]));
        if (!is_known)
            printf("no test is named %s\n", argv[i]);
        unknown += !is_known;
    }
    return unknown;
}

int main(int argc, char **argv)
{
    unsigned passed = 0, failed = count_unknown(argc, argv);
    for (const struct cross_test *test = all; test; test = test->next) {
        if (!is_asked_for(test, argc, argv))
            continue;
        bool is_fine = passes(test);
        passed += is_fine;
        failed += !is_fine;
        if (!is_fine)
            printf("failed: %s/%s\n", test->suite, test->name);
    }
    printf("%u passed, %u failed\n", passed, failed);
    return passed == 0 || failed > 0;
}
