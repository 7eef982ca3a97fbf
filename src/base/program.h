// SPDX-License-Identifier: Apache-2.0
/* Starts programs and waits for their end. Any thread. */
#pragma once

#include <sys/types.h>

#include "base/base.h"

/* Starts `program` (without a '/': searched in $PATH) with no signal blocked. `fds` are pairs: a
 * descriptor of ours, and its number in the program; other descriptors keep their FD_CLOEXEC.
 * Returns -errno if it cannot be executed. */
CAIRN_MUST_CHECK int program_start(const char *program, const char *const argv[],
                                   const int (*fds)[2], size_t fd_count, bool own_session,
                                   pid_t *ret);

/* Reads the output of a program from `fd` until its end. The first `capacity` - 1 bytes are stored
 * in `text`, followed by a NUL; the rest is dropped. Returns false at `deadline` (monotonic ns). */
bool program_hear(int fd, char *text, size_t capacity, int64_t deadline);

/* Waits for the end of a child; returns its status as from waitpid(). */
int program_await(pid_t child);
