/* Log lines for the operator: one line each, control bytes escaped, to standard error or to a file.
 * Any thread. A lower layer returns its error; the edge logs it, once. */
#pragma once

#include "base/base.h"

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARN, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

/* Lines above `level` are dropped. Not thread-safe against itself; call at start. */
void log_set_level(enum log_level level);

/* Lines go to `fd` from now on (borrowed, must stay open). */
void log_set_fd(int fd);

void log_line(enum log_level level, const char *fmt, ...) CAIRN_PRINTF(2, 3);

#define log_error(...) log_line(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warn(...) log_line(LOG_LEVEL_WARN, __VA_ARGS__)
#define log_info(...) log_line(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...) log_line(LOG_LEVEL_DEBUG, __VA_ARGS__)
