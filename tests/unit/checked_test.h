// SPDX-License-Identifier: Apache-2.0
/* Criterion has counted a test as passed when its .fini begins: a check that fails there is
 * printed, and no more. What has to hold at the end of each test of a suite is checked within the
 * test:
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
