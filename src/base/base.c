// SPDX-License-Identifier: Apache-2.0
#include "base/base.h"

#include <stdarg.h>
#include <stdio.h>
#include <sys/mman.h>

#include "base/log.h"

#define HUGE_PAGE (2u * 1024 * 1024)

static const char *_Atomic meaning = "nothing acknowledged is lost";

void check_means(const char *text)
{
    meaning = text;
}

_Noreturn void check_failed(const char *expr, const char *file, int line)
{
    log_error("bug: check failed: %s (%s:%d); %s", expr, file, line, meaning);
    abort();
}

static void *must_have(void *p)
{
    if (!p) {
        log_error("out of memory for control structures");
        abort();
    }
    return p;
}

void *xmalloc(size_t size)
{
    return must_have(malloc(size ? size : 1));
}

/* The first touch of a small page costs as much as copying several. */
void *xmalloc_large(size_t size)
{
    void *p = NULL;
    must_have(posix_memalign(&p, HUGE_PAGE, size) == 0 ? p : NULL);
    (void)madvise(p, size - size % HUGE_PAGE, MADV_HUGEPAGE);
    return p;
}

void *xcalloc(size_t count, size_t size)
{
    return must_have(calloc(count ? count : 1, size ? size : 1));
}

void *xrealloc(void *ptr, size_t size)
{
    return must_have(realloc(ptr, size ? size : 1));
}

char *xstrdup(const char *s)
{
    return must_have(strdup(s));
}

char *xasprintf(const char *fmt, ...)
{
    char *s = NULL;
    va_list ap;
    va_start(ap, fmt);
    int n = vasprintf(&s, fmt, ap);
    va_end(ap);
    return must_have(n < 0 ? NULL : s);
}
