// SPDX-License-Identifier: Apache-2.0
#include "base/process.h"

#include <poll.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "base/clock.h"

/* Indexes of fields of /proc/PID/stat, counted from the state, which follows the name. */
#define FIELD_GROUP 2
#define FIELD_SESSION 3
#define FIELD_THREADS 17
#define FIELD_STARTED 19
#define FIELDS 20

#define NOFILE_WANTED 65536

static ssize_t read_process_file(pid_t pid, const char *file, char *buf, size_t size)
{
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, file);
    FILE *f = fopen(path, "re");
    if (!f)
        return -ESRCH;
    size_t len = fread(buf, 1, size - 1, f);
    (void)fclose(f);
    buf[len] = '\0';
    return len > 0 ? (ssize_t)len : -ESRCH;
}

/* The fields of /proc/PID/stat, indexed by FIELD_*. */
struct stat_line {
    char state;
    uint64_t fields[FIELDS];
};

/* The name may contain any bytes, also parentheses. */
static int read_stat(pid_t pid, struct stat_line *ret)
{
    char text[1024];
    ssize_t len = pid > 0 ? read_process_file(pid, "stat", text, sizeof text) : -ESRCH;
    const char *at = len > 0 ? strrchr(text, ')') : NULL;
    if (!at || at[1] != ' ')
        return -ESRCH;
    at += 2;
    *ret = (struct stat_line){.state = *at};
    for (int field = 0; at && field < FIELDS; field++) {
        ret->fields[field] = strtoull(at, NULL, 10);
        at = strchr(at, ' ');
        at = at ? at + 1 : NULL;
    }
    return ret->fields[FIELD_STARTED] ? 0 : -ESRCH;
}

/* Reads when the process started; -ESRCH if it has ended. */
static int read_start(pid_t pid, uint64_t *ret)
{
    struct stat_line line;
    TRY(read_stat(pid, &line));
    /* Its first thread may have ended while others still run. */
    bool ended = (line.state == 'Z' || line.state == 'X') && line.fields[FIELD_THREADS] <= 1;
    if (ended)
        return -ESRCH;
    *ret = line.fields[FIELD_STARTED];
    return 0;
}

int process_group_of_thread(pid_t tid, struct process_group *ret)
{
    struct stat_line line, leader;
    TRY(read_stat(tid, &line));
    *ret = (struct process_group){.group = (pid_t)line.fields[FIELD_GROUP]};
    /* While a group or session has members, no other process gets its number. */
    if (read_stat(ret->group, &leader) == 0 ||
        read_stat((pid_t)line.fields[FIELD_SESSION], &leader) == 0)
        ret->started = leader.fields[FIELD_STARTED];
    return 0;
}

int64_t process_start_ns(uint64_t ticks)
{
    return (int64_t)(ticks * (uint64_t)(SECOND_NS / sysconf(_SC_CLK_TCK)));
}

int process_of_thread(pid_t tid, struct process *ret)
{
    char text[2048];
    int pid = 0;
    if (tid <= 0 || read_process_file(tid, "status", text, sizeof text) < 0)
        return -ESRCH;
    /* The name is on an earlier line, with newlines escaped, so this match is the real field. */
    const char *line = strstr(text, "\nTgid:");
    if (!line || sscanf(line, "\nTgid: %d", &pid) != 1 || pid <= 0)
        return -ESRCH;
    *ret = (struct process){.pid = pid};
    ssize_t len = read_process_file(pid, "comm", ret->name, sizeof ret->name);
    if (len < 0)
        return -ESRCH;
    if (ret->name[len - 1] == '\n')
        ret->name[len - 1] = '\0';
    return read_start(pid, &ret->started);
}

bool process_lives(const struct process *process)
{
    uint64_t started = 0;
    return read_start(process->pid, &started) == 0 && started == process->started;
}

int process_end_fd(pid_t child)
{
    long fd = syscall(SYS_pidfd_open, child, 0);
    return fd < 0 ? -errno : (int)fd;
}

int process_await_end(pid_t child, int timeout_ms)
{
    int64_t until = clock_monotonic_ns() + timeout_ms * MS_NS, left;
    struct pollfd end = {.fd = process_end_fd(child), .events = POLLIN};
    if (end.fd < 0)
        return end.fd;
    while ((left = until - clock_monotonic_ns()) > 0 &&
           poll(&end, 1, (int)(left / MS_NS) + 1) < 0 && errno == EINTR)
        ;
    (void)close(end.fd);
    return end.revents ? PROCESS_HAS_ENDED : PROCESS_LIVES;
}

static void raise_limit(int resource, rlim_t wanted)
{
    struct rlimit limit;
    if (getrlimit(resource, &limit) < 0)
        return;
    struct rlimit raised = {.rlim_cur = wanted, .rlim_max = max_u64(limit.rlim_max, wanted)};
    if (setrlimit(resource, &raised) == 0)
        return;
    limit.rlim_cur = min_u64(limit.rlim_max, wanted);
    (void)setrlimit(resource, &limit);
}

void process_raise_limits(void)
{
    raise_limit(RLIMIT_NOFILE, NOFILE_WANTED);
    raise_limit(RLIMIT_FSIZE, RLIM_INFINITY);
}

uint64_t process_file_max(void)
{
    struct rlimit limit;
    return getrlimit(RLIMIT_FSIZE, &limit) < 0 ? UINT64_MAX : limit.rlim_cur;
}
