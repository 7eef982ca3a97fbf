// SPDX-License-Identifier: Apache-2.0
#include <stdarg.h>
#include <stdio.h>

#include "daemon/service.h"

int service_fail(struct service_error *error, int exit_code, int r, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    if (vasprintf(&error->text, fmt, ap) < 0)
        error->text = NULL;
    va_end(ap);
    error->exit_code = exit_code;
    return r;
}
