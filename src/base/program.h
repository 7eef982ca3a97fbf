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

/* Waits for the end of a child; its status as waitpid() gives it. */
int program_await(pid_t child);
