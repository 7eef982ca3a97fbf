// SPDX-License-Identifier: Apache-2.0
/* Preloaded: a `dir:` remote of which some names cannot be seen for a while, as on a server that is
 * eventually consistent. CAIRN_TEST_HIDE names a file: its first line is the name whose exclusive
 * creation (linkat) ends that, right before ("<NAME") or after it (">NAME"); its other lines are
 * the names that are hidden. Without the file all is as it is. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Line 0 is the end, without its mark; others are hidden names. */
static bool has_line(const char *name, bool of_end, char *ret_mark)
{
    char line[256];
    const char *path = getenv("CAIRN_TEST_HIDE");
    FILE *file = path && name[0] != '/' ? fopen(path, "re") : NULL;
    bool found = false;
    for (int i = 0; file && !found && fgets(line, sizeof line, file); i++) {
        line[strcspn(line, "\n")] = '\0';
        found = of_end == (i == 0) && strcmp(line + of_end, name) == 0;
        *ret_mark = line[0];
    }
    if (file)
        (void)fclose(file);
    return found;
}

static bool is_hidden(const char *name)
{
    char mark;
    bool hidden = has_line(name, false, &mark);
    if (hidden)
        errno = ENOENT;
    return hidden;
}

int openat64(int at, const char *name, int flags, ...)
{
    static int (*real)(int, const char *, int, ...);
    va_list ap;
    va_start(ap, flags);
    mode_t mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(ap, mode_t) : 0;
    va_end(ap);
    if (!real)
        real = dlsym(RTLD_NEXT, "openat64");
    return is_hidden(name) ? -1 : real(at, name, flags, mode);
}

int fstatat64(int at, const char *name, struct stat64 *st, int flags)
{
    static int (*real)(int, const char *, struct stat64 *, int);
    if (!real)
        real = dlsym(RTLD_NEXT, "fstatat64");
    return is_hidden(name) ? -1 : real(at, name, st, flags);
}

int linkat(int from_at, const char *from, int at, const char *name, int flags)
{
    static int (*real)(int, const char *, int, const char *, int);
    char mark = '\0';
    if (!real)
        real = dlsym(RTLD_NEXT, "linkat");
    bool ends = has_line(name, true, &mark);
    if (ends && mark == '<')
        (void)unlink(getenv("CAIRN_TEST_HIDE"));
    int r = real(from_at, from, at, name, flags);
    int error = errno;
    if (ends && mark == '>')
        (void)unlink(getenv("CAIRN_TEST_HIDE"));
    errno = error;
    return r;
}
