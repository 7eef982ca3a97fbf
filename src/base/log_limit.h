// SPDX-License-Identifier: Apache-2.0
/* Limits the log: each minute it admits a few lines of the same text, and some more of the same
 * kind (the same format). The rest is counted. Any thread; takes no other lock, does no I/O.
 * Memory: a fixed table. */
#pragma once

#include "base/log.h"

#define LOG_SAME_TEXT 3u /* lines in LOG_WINDOW_NS */
#define LOG_SAME_KIND 30u
#define LOG_WINDOW_NS (60ll * 1000000000)

/* Lines that were left out. */
struct log_left {
    unsigned count; /* 0: none */
    enum log_level level;
    char sample[100]; /* one of them, or its beginning */
};

/* May the line be written, at `now` (monotonic ns)? *ret_left: how many lines like it were left out
 * in an interval that has ended. */
bool log_limit_admits(const char *kind, enum log_level level, const char *text, int64_t now,
                      struct log_left *ret_left);

/* Removes and returns the next count whose interval has ended at `now`. False: no such count. */
bool log_limit_take(int64_t now, struct log_left *ret_left);
