// SPDX-License-Identifier: Apache-2.0
/* The boundary to the caller: copies structs of other versions, stores errors, writes log lines. */
#include <stdarg.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/text.h"
#include "client/lane.h"
#include "client/signals.h"

#define STRUCT_MAX 4096u

static int read_size(const void *from, size_t *ret)
{
    memcpy(ret, from, sizeof *ret);
    if (*ret >= sizeof *ret && *ret <= STRUCT_MAX)
        return 0;
    cause_note("a struct begins with its size, and %zu is none", *ret);
    return -EINVAL;
}

int copy_struct(void *ret, const void *have, size_t size)
{
    size_t theirs;
    TRY(read_size(ret, &theirs));
    memset(ret, 0, theirs);
    memcpy(ret, have, theirs < size ? theirs : size);
    memcpy(ret, &theirs, sizeof theirs);
    return 0;
}

int take_struct(void *ret, size_t size, const void *from)
{
    size_t theirs;
    memset(ret, 0, size);
    if (!from)
        return 0;
    TRY(read_size(from, &theirs));
    for (size_t i = size; i < theirs; i++) {
        if (((const char *)from)[i] == 0)
            continue;
        cause_note(
            "the options are of a newer version of the library, and use what this one lacks");
        return -E2BIG;
    }
    memcpy(ret, from, theirs < size ? theirs : size);
    return 0;
}

int lane_return(struct cairn_lane *lane, int64_t begun_ns, int r)
{
    if (r < 0 && cause_text()[0] == '\0')
        cause_note("%s", strerror(-r));
    if (lane && begun_ns)
        atomic_fetch_add(&lane->blocked_ns, (uint64_t)(clock_monotonic_ns() - begun_ns));
    return r;
}

const char *cairn_error(void)
{
    return cause_text();
}

static const char *const level_words[] = {"error", "warning", "info", "debug"};

int log_level_of(const struct cairn_lane_options *options)
{
    const char *wanted = getenv("CAIRN_LOG");
    for (int i = 0; wanted && i < (int)ARRAY_LEN(level_words); i++)
        if (strcmp(wanted, level_words[i]) == 0)
            return i;
    return options->log ? CAIRN_LOG_DEBUG : CAIRN_LOG_WARNING;
}

/* Makes one write(), so that lines of several threads do not mix. */
static void to_stderr(int level, const char *text)
{
    char line[1100];
    struct signals_held held;
    int n = snprintf(line, sizeof line, "libcairn %s: %s\n", level_words[level], text);
    signals_hold_pipe(&held);
    if (write(STDERR_FILENO, line, (size_t)n < sizeof line ? (size_t)n : sizeof line - 1) < 0)
        errno = 0; /* the reader has closed it */
    signals_release_pipe(&held);
}

void lane_log(struct cairn_lane *lane, int level, const char *fmt, ...)
{
    char text[1024];
    va_list ap;
    if (level > lane->log_level)
        return;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    text_hide_controls(text);
    if (lane->options.log)
        lane->options.log(level, text, lane->options.log_arg);
    else
        to_stderr(level, text);
}
