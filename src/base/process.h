// SPDX-License-Identifier: Apache-2.0
/* Properties of a process, read from /proc, and waiting for its end. Any thread; reads files. */
#pragma once

#include <sys/types.h>

#include "base/base.h"

#define PROCESS_NAME_MAX 16u /* with its NUL */

struct process {
    pid_t pid;
    /* clock ticks since boot: distinguishes the process from a later one with the same number */
    uint64_t started;
    /* of the program, as the program or its user chose it: may contain any bytes */
    char name[PROCESS_NAME_MAX];
};

/* Finds the process of thread `tid`. -ESRCH: no such thread, or /proc does not show it. */
CAIRN_MUST_CHECK int process_of_thread(pid_t tid, struct process *ret);
/* The process group of a thread. */
struct process_group {
    pid_t group;
    /* Clock ticks since boot when its leader started, or, if that has ended, the leader of its
     * session. 0: neither can be seen. */
    uint64_t started;
};
/* -ESRCH: no such thread, or /proc does not show it. */
CAIRN_MUST_CHECK int process_group_of_thread(pid_t tid, struct process_group *ret);
/* Converts clock ticks since boot to CLOCK_BOOTTIME, ns. The process started at most one tick
 * later. */
int64_t process_start_ns(uint64_t ticks);

/* Does the process still run? A zombie does not. */
bool process_lives(const struct process *process);

/* A descriptor that is readable once the child has ended; waitpid() does not block then. -errno. */
CAIRN_MUST_CHECK int process_end_fd(pid_t child);
/* Waits for the end of that child for at most `timeout_ms`. Returns enum process_end, or -errno. */
enum process_end { PROCESS_LIVES, PROCESS_HAS_ENDED };
CAIRN_MUST_CHECK int process_await_end(pid_t child, int timeout_ms);

/* Raises the limits of file size and of descriptors as far as this process may: root as far as a
 * store needs, others to their hard limits. */
void process_raise_limits(void);
/* The largest file in bytes that this process may write. */
uint64_t process_file_max(void);
