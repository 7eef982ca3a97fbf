#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <time.h>

static enum log_level log_level_max = LOG_LEVEL_INFO;
static int log_fd = STDERR_FILENO;

void log_set_level(enum log_level level)
{
    log_level_max = level;
}

void log_set_fd(int fd)
{
    log_fd = fd;
}

/* A file name may hold newlines or escapes: they must not forge or break lines. */
static void escape_controls(char *s)
{
    for (; *s; s++)
        if ((unsigned char)*s < 0x20 || *s == 0x7f)
            *s = '?';
}

void log_line(enum log_level level, const char *fmt, ...)
{
    static const char *const names[] = {"error", "warning", "info", "debug"};
    if (level > log_level_max)
        return;
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    escape_controls(text);

    struct timespec now;
    struct tm tm;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    (void)localtime_r(&now.tv_sec, &tm);
    char line[1200];
    int n = snprintf(line, sizeof line, "%04d-%02d-%02d %02d:%02d:%02d.%03ld cairn %s: %s\n", tm.tm_year + 1900,
                     tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec, now.tv_nsec / 1000000,
                     names[level], text);
    /* A log that cannot be written must not stop the filesystem. */
    if (write(log_fd, line, (size_t)n) < 0)
        return;
}
