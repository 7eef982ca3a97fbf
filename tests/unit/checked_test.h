// SPDX-License-Identifier: Apache-2.0
/* What has to hold at the end of each test of a suite, checked within the test. A check in a .fini
 * counts as well (fini/fini.c): new suites have it there.
 *
 *     CheckedTest(merge, one_node_alone, merge_expect_whole)
 *     {
 *         ...
 *     }
 */
#pragma once

#include <criterion/criterion.h>

#define CheckedTest(suite, name, check)                                                            \
    static void suite##_##name##_unchecked(void);                                                  \
    Test(suite, name)                                                                              \
    {                                                                                              \
        suite##_##name##_unchecked();                                                              \
        check();                                                                                   \
    }                                                                                              \
    static void suite##_##name##_unchecked(void)
