// SPDX-License-Identifier: Apache-2.0
/* Log lines for the operator: one line each, control bytes escaped, to standard error or to a file
 * of bounded size. Any thread. A lower layer returns its error; the outermost caller logs it, once.
 *
 * A line is "YYYY-MM-DD HH:MM:SS.mmm cairn LEVEL: TEXT". Of lines that repeat (log_limit.h) a few
 * are written, then the number of those left out. */
#pragma once

#include "base/base.h"

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARN, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };
#define LOG_LEVELS 4

/* At this size the file is renamed to PATH.1, which replaces the previous one, and a new file is
 * begun. */
#define LOG_FILE_MAX (4 * MIB)

/* "error", "warning", "info", "debug": as they stand in lines and options. Ends with NULL. */
extern const char *const log_level_words[LOG_LEVELS + 1];

/* Drops lines above `level`. Not safe against other threads: call it at start. */
void log_set_level(enum log_level level);

/* Sends lines to `fd` from now on (borrowed, must stay open). Closes the file of log_open(). */
void log_set_fd(int fd);

/* Sends lines to the file at `path`, created with mode 0600 if missing, and, if `echo`, to standard
 * error too. A file that is not a regular one is never renamed. Call it at start, while there is
 * one thread. *ret_end: the length of the file before this run. */
CAIRN_MUST_CHECK int log_open(const char *path, bool echo, uint64_t *ret_end);

/* From now on, standard error too goes to the file of log_open(), e.g. output of libraries. */
void log_take_stderr(void);

/* Call it about once a second: logs how many lines were left out. */
void log_tick(void);

void log_line(enum log_level level, const char *fmt, ...) CAIRN_PRINTF(2, 3);

#define log_error(...) log_line(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warn(...) log_line(LOG_LEVEL_WARN, __VA_ARGS__)
#define log_info(...) log_line(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...) log_line(LOG_LEVEL_DEBUG, __VA_ARGS__)
