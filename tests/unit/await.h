// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <unistd.h>

/* Looks again and again, for some minutes: what other threads do later signals nothing to a test.
 * After the condition, what has not happened then. */
#define AWAIT(condition, ...)                                                                      \
    for (unsigned looks_ = 0; !(condition); looks_++) {                                            \
        cr_assert_lt(looks_, 120000u, __VA_ARGS__);                                                \
        (void)usleep(2000);                                                                        \
    }
