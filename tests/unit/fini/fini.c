// SPDX-License-Identifier: Apache-2.0
/* A check that fails in the .fini of a test fails the test, and so does an .init or .fini that ends
 * its process. Criterion has counted a test as passed when its .fini begins: it prints what fails
 * there, and returns 0.
 *
 * Linked into all unit tests. The hooks run in Criterion's own process, the runner. */
#include <criterion/criterion.h>
#include <criterion/hooks.h>

static size_t under_way; /* tests that began, and did not end */
static size_t failed_late;

ReportHook(PRE_INIT)(struct criterion_test *test)
{
    (void)test;
    under_way++;
}

ReportHook(TEST_CRASH)(struct criterion_test_stats *test)
{
    (void)test;
    under_way--;
}

ReportHook(POST_FINI)(struct criterion_test_stats *test)
{
    under_way--;
    if (test->test_status != CR_STATUS_PASSED || test->failed_asserts == 0)
        return;
    test->test_status = CR_STATUS_FAILED;
    failed_late++;
}

ReportHook(POST_ALL)(struct criterion_global_stats *all)
{
    all->tests_failed += failed_late + under_way;
}
