#include "base/base.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/log.h"

_Noreturn void check_failed(const char *expr, const char *file, int line)
{
    log_error("bug: check failed: %s (%s:%d); nothing acknowledged is lost, mount again", expr, file, line);
    abort();
}

static void *must(void *p)
{
    if (!p) {
        log_error("out of memory for control structures");
        abort();
    }
    return p;
}

void *xmalloc(size_t size)
{
    return must(malloc(size ? size : 1));
}

void *xcalloc(size_t count, size_t size)
{
    return must(calloc(count ? count : 1, size ? size : 1));
}

void *xrealloc(void *ptr, size_t size)
{
    return must(realloc(ptr, size ? size : 1));
}

char *xstrdup(const char *s)
{
    return must(strdup(s));
}

char *xasprintf(const char *fmt, ...)
{
    char *s = NULL;
    va_list ap;
    va_start(ap, fmt);
    int n = vasprintf(&s, fmt, ap);
    va_end(ap);
    return must(n < 0 ? NULL : s);
}
