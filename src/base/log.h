// SPDX-License-Identifier: Apache-2.0
/* Log lines for the operator: one line each, control bytes escaped, to standard error or to a file
 * of bounded size. Any thread. A lower layer returns its error; the edge logs it, once.
 *
 * A line is "YYYY-MM-DD HH:MM:SS.mmm cairn LEVEL: TEXT". Of lines that come again and again
 * (log_limit.h) a few are written, and how many were left out. */
#pragma once

#include "base/base.h"

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARN, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };
#define LOG_LEVELS 4

/* Then the file is moved to PATH.1, in the place of the one before, and begun anew. */
#define LOG_FILE_MAX (4 * MIB)

/* "error", "warning", "info", "debug": as they stand in lines and options. Ends with NULL. */
extern const char *const log_level_words[LOG_LEVELS + 1];

/* Lines above `level` are dropped. Not thread-safe against itself; call at start. */
void log_set_level(enum log_level level);

/* Lines go to `fd` from now on (borrowed, must stay open). Ends what log_open() began. */
void log_set_fd(int fd);

/* Lines go to the file at `path`, which is made (0600) unless it is there, and, if `echo`, to
 * standard error too. A file that is no regular one is never moved. Call at start, while there is
 * one thread. *ret_end: its length until now. */
CAIRN_MUST_CHECK int log_open(const char *path, bool echo, uint64_t *ret_end);

/* Sends to the file of log_open(), from now on, also what others write to standard error. */
void log_take_stderr(void);

/* To be called about once a second: says what was left out. */
void log_tick(void);

void log_line(enum log_level level, const char *fmt, ...) CAIRN_PRINTF(2, 3);

#define log_error(...) log_line(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warn(...) log_line(LOG_LEVEL_WARN, __VA_ARGS__)
#define log_info(...) log_line(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...) log_line(LOG_LEVEL_DEBUG, __VA_ARGS__)
