// SPDX-License-Identifier: Apache-2.0
#include "base/cause.h"

#include <stdio.h>

static _Thread_local char cause[CAUSE_MAX];

void cause_clear(void)
{
    cause[0] = '\0';
}

void cause_vformat(char *buf, size_t size, const char *fmt, va_list ap)
{
    static const char more[] = " ...";
    check(size > 0);
    int len = vsnprintf(buf, size, fmt, ap);
    if (len < 0 || (size_t)len < size || size <= sizeof more)
        return;
    size_t end = size - sizeof more;
    while (end > 0 && buf[end] != ' ')
        end--;
    memcpy(buf + (end ? end : size - sizeof more), more, sizeof more);
}

void cause_format(char *buf, size_t size, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    cause_vformat(buf, size, fmt, ap);
    va_end(ap);
}

void cause_note(const char *fmt, ...)
{
    char text[CAUSE_MAX]; /* a copy first: an argument may be the current cause text */
    va_list ap;
    va_start(ap, fmt);
    cause_vformat(text, sizeof text, fmt, ap);
    va_end(ap);
    memcpy(cause, text, sizeof cause);
}

const char *cause_text(void)
{
    return cause;
}
