// SPDX-License-Identifier: Apache-2.0
/* Checks that end the process and print the cause. */
#pragma once

#include <stdio.h>
#include <unistd.h>

#include "base/cause.h"

#define expect(what, ...)                                                                          \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            (void)printf("%s:%d: %s: ", __FILE__, __LINE__, #what);                                \
            (void)printf(__VA_ARGS__);                                                             \
            (void)printf(" [%s]\n", cause_text());                                                 \
            (void)fflush(stdout);                                                                  \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)
#define expect_ok(call) expect((call) == 0, "not 0")
