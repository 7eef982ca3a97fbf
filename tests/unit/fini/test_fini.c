// SPDX-License-Identifier: Apache-2.0
/* Each of these tests has to fail, but for those of `whole`: fini.c; leaks.c with a sanitizer. */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

static void fail_check(void)
{
    cr_expect(0, "it is to fail");
}

static void end_process(void)
{
    _exit(0);
}

TestSuite(check_fails, .fini = fail_check);
Test(check_fails, test)
{
    cr_expect(1);
}

TestSuite(fini_exits, .fini = end_process);
Test(fini_exits, test)
{
    cr_expect(1);
}

TestSuite(init_exits, .init = end_process);
Test(init_exits, test)
{
    cr_expect(1);
}

static void *volatile leaked;

Test(leaks, test)
{
    leaked = malloc(100);
    leaked = NULL;
    cr_expect(1);
}

/* All of that is counted right where nothing is wrong. */
static void hold_check(void)
{
    cr_expect(1);
}

TestSuite(whole, .init = hold_check, .fini = hold_check);
Test(whole, test)
{
    cr_expect(1);
}

Test(whole, ends_as_it_should, .exit_code = 3)
{
    _exit(3);
}

Test(whole, dies_as_it_should, .signal = SIGKILL)
{
    (void)raise(SIGKILL);
}

Test(whole, skipped)
{
    cr_skip_test("on purpose");
}
