// SPDX-License-Identifier: Apache-2.0
/* Properties of a process, read from /proc, and its end. Any thread; reads files. */
#pragma once

#include <sys/types.h>

#include "base/base.h"

#define PROCESS_NAME_MAX 16u /* with its NUL */

struct process {
    pid_t pid;
    /* clock ticks since boot: tells it from a later process with the same number */
    uint64_t started;
    char name[PROCESS_NAME_MAX]; /* of the program, as it or its user chose: any bytes */
};

/* The process that thread `tid` belongs to. -ESRCH: there is none, or /proc does not show it. */
CAIRN_MUST_CHECK int process_of_thread(pid_t tid, struct process *ret);
/* The process group of a thread. */
struct process_group {
    pid_t group;
    /* When its leader started, or if that is gone, the leader of its session: clock ticks since
     * boot. 0: neither is to be seen. */
    uint64_t started;
};
/* -ESRCH: there is no such thread, or /proc does not show it. */
CAIRN_MUST_CHECK int process_group_of_thread(pid_t tid, struct process_group *ret);
/* As CLOCK_BOOTTIME has it, ns. The process started at most a tick later. */
int64_t process_start_ns(uint64_t ticks);

/* Does it live still? Not what has ended and waits for its parent. */
bool process_lives(const struct process *process);

/* A descriptor that is readable once the child has ended; waitpid() does not block then. -errno. */
CAIRN_MUST_CHECK int process_end_fd(pid_t child);
/* Waits for that for at most `timeout_ms`. enum process_end, or -errno. */
enum process_end { PROCESS_LIVES, PROCESS_HAS_ENDED };
CAIRN_MUST_CHECK int process_await_end(pid_t child, int timeout_ms);

/* Raises the limits of file sizes and of descriptors as far as this process may: root to what a
 * store needs, others to their hard limits. */
void process_raise_limits(void);
/* Bytes that a file may have which this process writes. */
uint64_t process_file_max(void);
