// SPDX-License-Identifier: Apache-2.0
/* Starts programs, and waits for their end. Any thread. */
#pragma once

#include <sys/types.h>

#include "base/base.h"

/* Starts `program` (without a '/': looked for in $PATH) with no signal blocked. `fds` are pairs: a
 * descriptor of ours, and its number there; other descriptors keep their FD_CLOEXEC. -errno where
 * it cannot be executed. */
CAIRN_MUST_CHECK int program_start(const char *program, const char *const argv[],
                                   const int (*fds)[2], size_t fd_count, bool own_session,
                                   pid_t *ret);

/* Reads what a program writes into `fd` until its end; the first `capacity` - 1 bytes go to `text`,
 * with a NUL behind them. Returns false where the time was up (monotonic ns). */
bool program_hear(int fd, char *text, size_t capacity, int64_t deadline);

/* Waits for the end of a child; its status as waitpid() gives it. */
int program_await(pid_t child);
