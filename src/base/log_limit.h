// SPDX-License-Identifier: Apache-2.0
/* Limits the log: of the same text a few lines are written a minute, of the same kind (the same
 * format) some more. The rest is counted. Any thread; takes no other lock, does no I/O. Memory: a
 * fixed table. */
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

/* May the line be written, at `now` (monotonic ns)? *ret_left: lines like it that were not, in a
 * time that is over. */
bool log_limit_admits(const char *kind, enum log_level level, const char *text, int64_t now,
                      struct log_left *ret_left);

/* Takes the next count whose time is over at `now`. False: there is none. */
bool log_limit_take(int64_t now, struct log_left *ret_left);
