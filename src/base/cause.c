// SPDX-License-Identifier: Apache-2.0
#include "base/cause.h"

#include <stdarg.h>
#include <stdio.h>

static _Thread_local char cause[CAUSE_MAX];

void cause_clear(void)
{
    cause[0] = '\0';
}

void cause_note(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(cause, sizeof cause, fmt, ap);
    va_end(ap);
}

const char *cause_text(void)
{
    return cause;
}
