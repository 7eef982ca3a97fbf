// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "expect.h"

/* Runs a command of the shell, which must succeed. %1$s may stand in several places: the compiler
 * does not check the format, because ISO C has no such operands. */
static inline void shell(const char *format, ...)
{
    char command[1000];
    va_list ap;
    va_start(ap, format);
    int length = vsnprintf(command, sizeof command, format, ap);
    va_end(ap);
    cr_assert(length > 0 && (size_t)length < sizeof command);
    assert_i64(system(command), 0, "%s", command);
}
