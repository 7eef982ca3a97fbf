// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/log_limit.h"
#include "base/text.h"

const char *const log_level_words[LOG_LEVELS + 1] = {"error", "warning", "info", "debug", NULL};

/* The destination of lines. A new file is put under the same descriptor number (dup), so a thread
 * that writes needs no lock. */
static struct {
    enum log_level level;
    int fd;
    bool is_ours;   /* close it */
    bool echoes;    /* to standard error too */
    bool is_stderr; /* standard error is the file */
    char *path;     /* of a file that is moved when it is full; NULL: none */
    _Atomic uint64_t size;
    _Atomic unsigned lost; /* lines that could not be written and are not reported yet */
    atomic_flag moving;
} sink = {.level = LOG_LEVEL_INFO, .fd = STDERR_FILENO, .moving = ATOMIC_FLAG_INIT};

void log_set_level(enum log_level level)
{
    sink.level = level;
}

static void take_sink(int fd, bool is_ours)
{
    int before = sink.is_ours ? sink.fd : -1;
    free(sink.path);
    sink.path = NULL;
    sink.echoes = sink.is_stderr = false;
    sink.is_ours = is_ours;
    sink.fd = fd;
    if (before >= 0)
        (void)close(before);
}

void log_set_fd(int fd)
{
    take_sink(fd, false);
}

static int open_file(const char *path)
{
    return open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
}

int log_open(const char *path, bool echo, uint64_t *ret_end)
{
    struct stat st;
    int fd = open_file(path);
    if (fd < 0)
        return -errno;
    bool is_regular = fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
    take_sink(fd, true);
    sink.echoes = echo;
    sink.path = is_regular ? xstrdup(path) : NULL;
    *ret_end = is_regular ? (uint64_t)st.st_size : 0;
    atomic_store(&sink.size, *ret_end);
    return 0;
}

void log_take_stderr(void)
{
    if (sink.fd == STDERR_FILENO)
        return;
    sink.is_stderr = dup2(sink.fd, STDERR_FILENO) >= 0;
    sink.echoes = false;
}

/* Renames the full file. If that fails it is truncated, as its size must stay bounded. */
static void move_file(void)
{
    _cleanup_free_ char *old = xasprintf("%s.1", sink.path);
    if (rename(sink.path, old) < 0 && ftruncate(sink.fd, 0) < 0)
        return;
    int fd = open_file(sink.path);
    if (fd < 0)
        return; /* later lines are appended to the old file */
    (void)dup3(fd, sink.fd, O_CLOEXEC);
    if (sink.is_stderr)
        (void)dup2(fd, STDERR_FILENO);
    (void)close(fd);
}

/* Makes room in the file for a line, by a rename if it is full. False: another thread is renaming
 * it; the line is dropped, as the file could grow without bound meanwhile. */
static bool make_room_in_log(size_t len)
{
    if (!sink.path || atomic_fetch_add(&sink.size, len) + len <= LOG_FILE_MAX)
        return true;
    if (atomic_flag_test_and_set(&sink.moving))
        return false;
    /* Another thread may have renamed it between the two checks. */
    if (atomic_load(&sink.size) > LOG_FILE_MAX) {
        move_file();
        atomic_store(&sink.size, len);
    }
    atomic_flag_clear(&sink.moving);
    return true;
}

/* Each line is one write, so that lines of several threads do not mix. A log that cannot be written
 * must not stop the filesystem. */
static void write_line(const char *line, size_t len)
{
    if (!make_room_in_log(len) || write(sink.fd, line, len) < 0)
        atomic_fetch_add(&sink.lost, 1);
    if (sink.echoes && write(STDERR_FILENO, line, len) < 0)
        sink.echoes = false; /* the reader has closed it */
}

static void write_log_text(enum log_level level, const char *text)
{
    struct timespec now;
    struct tm tm;
    char line[1200];
    (void)clock_gettime(CLOCK_REALTIME, &now);
    (void)localtime_r(&now.tv_sec, &tm);
    int n = snprintf(line, sizeof line, "%04d-%02d-%02d %02d:%02d:%02d.%03ld cairn %s: %s\n",
                     tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec,
                     now.tv_nsec / 1000000, log_level_words[level], text);
    write_line(line, (size_t)n);
}

static void write_left(const struct log_left *left)
{
    char text[200];
    (void)snprintf(text, sizeof text, "%u more lines like this were left out in a minute: %s",
                   left->count, left->sample);
    write_log_text(left->level, text);
}

void log_tick(void)
{
    struct log_left left;
    while (log_limit_take(clock_monotonic_ns(), &left))
        write_left(&left);
    unsigned lost = atomic_exchange(&sink.lost, 0);
    char text[64];
    (void)snprintf(text, sizeof text, "%u lines of this log could not be written", lost);
    if (lost)
        write_log_text(LOG_LEVEL_WARN, text);
}

void log_line(enum log_level level, const char *fmt, ...)
{
    struct log_left left = {0};
    char text[1024];
    va_list ap;
    if (level > sink.level)
        return;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    text_hide_controls(text);
    /* At debug level every debug line is written, unlimited. */
    bool admitted =
        level == LOG_LEVEL_DEBUG || log_limit_admits(fmt, level, text, clock_monotonic_ns(), &left);
    if (left.count)
        write_left(&left);
    if (admitted)
        write_log_text(level, text);
}
