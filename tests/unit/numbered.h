// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdarg.h>
#include <stdio.h>

/* A short name, as "file-%u" of a number; the fourth call after it writes over it. */
static inline __attribute__((format(printf, 1, 2))) const char *numbered(const char *format, ...)
{
    static _Thread_local char names[4][32];
    static _Thread_local unsigned next;
    char *name = names[next++ % 4];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(name, sizeof names[0], format, arguments);
    va_end(arguments);
    return name;
}
