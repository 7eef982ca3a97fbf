// SPDX-License-Identifier: Apache-2.0
#include "base/process.h"

#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "../expect.h"
#include "base/clock.h"

TestSuite(process, .timeout = 60);

static pid_t child_that_waits(void)
{
    pid_t child = fork();
    if (child == 0)
        for (;;)
            (void)pause();
    return child;
}

Test(process, the_end_of_a_child_is_waited_for)
{
    pid_t child = fork();
    if (child == 0)
        _exit(7);
    int status = 0;
    assert_i64(process_await_end(child, 30000), PROCESS_HAS_ENDED);
    assert_i64(waitpid(child, &status, WNOHANG), child);
    expect_i64(WEXITSTATUS(status), 7);
}

Test(process, a_child_that_lives_is_waited_for_no_longer_than_the_limit)
{
    pid_t child = child_that_waits();
    assert_i64(process_await_end(child, 0), PROCESS_LIVES);
    assert_i64(process_await_end(child, 20), PROCESS_LIVES);
    assert_i64(kill(child, SIGKILL), 0);
    assert_i64(process_await_end(child, 30000), PROCESS_HAS_ENDED);
    assert_i64(waitpid(child, NULL, WNOHANG), child);
    assert_i64(process_await_end(child, 0), -ESRCH);
}

/* --- groups ----------------------------------------------------------------------------------- */

static uint64_t start_of(pid_t pid)
{
    struct process process;
    assert_i64(process_of_thread(pid, &process), 0);
    return process.started;
}

/* In a child: what `move` leaves of it is asked about by its parent; then it ends. */
struct asked {
    pid_t pid;
    int to_child, from_child;
};

static struct asked begin_child(void (*move)(void))
{
    int ask[2], say[2];
    assert_i64(pipe(ask), 0);
    assert_i64(pipe(say), 0);
    struct asked child = {fork(), ask[1], say[0]};
    if (child.pid == 0) {
        char byte = 'm';
        (void)close(ask[1]);
        move();
        _exit(write(say[1], &byte, 1) == 1 && read(ask[0], &byte, 1) == 0 ? 0 : 1);
    }
    (void)close(ask[0]);
    (void)close(say[1]);
    char byte;
    assert_i64(read(child.from_child, &byte, 1), 1);
    return child;
}

static void end_child(const struct asked *child)
{
    int status;
    (void)close(child->to_child);
    (void)close(child->from_child);
    assert_i64(waitpid(child->pid, &status, 0), child->pid);
    assert_i64(status, 0);
}

static void stay(void)
{
}

static void lead_group(void)
{
    (void)setpgid(0, 0);
}

static void lead_session(void)
{
    (void)setsid();
}

/* Clock ticks must tell them apart. */
static void let_ticks_pass(void)
{
    (void)usleep(50000);
}

Test(process, a_group_begins_with_its_leader)
{
    struct process_group own, group;
    assert_i64(process_group_of_thread(getpid(), &own), 0);
    expect_i64(own.group, getpgrp());
    let_ticks_pass();
    struct asked child = begin_child(stay);
    assert_i64(process_group_of_thread(child.pid, &group), 0);
    expect_i64(group.group, own.group);
    expect_u64(group.started, own.started, "not its own start");
    cr_expect(start_of(child.pid) > own.started);
    end_child(&child);
    expect_i64(process_group_of_thread(child.pid, &group), -ESRCH);
    expect_i64(process_group_of_thread(0, &group), -ESRCH);
}

Test(process, who_leads_a_group_or_a_session_is_its_beginning)
{
    void (*const moves[])(void) = {lead_group, lead_session};
    for (size_t i = 0; i < ARRAY_LEN(moves); i++) {
        struct process_group group;
        struct asked child = begin_child(moves[i]);
        assert_i64(process_group_of_thread(child.pid, &group), 0);
        expect_i64(group.group, child.pid);
        expect_u64(group.started, start_of(child.pid));
        end_child(&child);
    }
}

/* A session's leader makes a group in it, whose leader starts a process and ends. */
static pid_t orphans_pid;
static int orphans_pipe[2];

static void leave_an_orphan(bool session_ends)
{
    assert_i64(pipe(orphans_pipe), 0);
    pid_t leader = fork();
    if (leader == 0) {
        (void)setsid();
        let_ticks_pass();
        pid_t middle = fork();
        if (middle == 0) {
            (void)setpgid(0, 0);
            let_ticks_pass();
            pid_t orphan = fork();
            if (orphan == 0)
                for (;;)
                    (void)pause();
            _exit(write(orphans_pipe[1], &orphan, sizeof orphan) == sizeof orphan ? 0 : 1);
        }
        (void)waitpid(middle, NULL, 0);
        if (session_ends)
            _exit(0);
        (void)close(orphans_pipe[1]);
        for (;;)
            (void)pause();
    }
    assert_i64(read(orphans_pipe[0], &orphans_pid, sizeof orphans_pid), sizeof orphans_pid);
    struct process_group group;
    int r = -EAGAIN;
    for (int i = 0; i < 6000 && r != 0; i++) { /* until the middle one is gone */
        r = process_group_of_thread(orphans_pid, &group);
        if (r == 0 && kill(group.group, 0) == 0)
            r = -EAGAIN;
        (void)usleep(10000);
    }
    assert_i64(r, 0);
    uint64_t of_session = session_ends ? 0 : start_of(leader);
    if (session_ends)
        assert_i64(waitpid(leader, NULL, 0), leader);
    assert_i64(process_group_of_thread(orphans_pid, &group), 0);
    expect_u64(group.started, of_session);
    (void)kill(orphans_pid, SIGKILL);
    (void)kill(leader, SIGKILL);
    (void)waitpid(leader, NULL, 0);
}

Test(process, without_its_leader_a_group_began_with_its_session)
{
    leave_an_orphan(false);
}

Test(process, without_both_its_beginning_is_unknown)
{
    leave_an_orphan(true);
}

static void *look_at_own_group(void *arg)
{
    *(int *)arg = process_group_of_thread((pid_t)syscall(SYS_gettid), &(struct process_group){0});
    return NULL;
}

Test(process, the_group_of_a_thread_is_that_of_its_process)
{
    pthread_t thread;
    int r = -1;
    assert_i64(pthread_create(&thread, NULL, look_at_own_group, &r), 0);
    assert_i64(pthread_join(thread, NULL), 0);
    expect_i64(r, 0);
}

Test(process, starts_are_on_the_clock_since_boot)
{
    int64_t before = clock_boottime_ns();
    let_ticks_pass();
    struct asked child = begin_child(stay);
    int64_t start = process_start_ns(start_of(child.pid));
    cr_expect(start > before && start <= clock_boottime_ns(), "%lld, after %lld", (long long)start,
              (long long)before);
    end_child(&child);
}
