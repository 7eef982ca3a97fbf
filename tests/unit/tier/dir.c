// SPDX-License-Identifier: Apache-2.0
/* What only a remote in a directory does: temporary files, leftovers, readers. */
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "../expect.h"
#include "base/clock.h"
#include "base/io.h"
#include "base/pool.h"
#include "store.h"
#include "tier/dir_calls.h"

TestSuite(dir, .init = store_open_dir, .fini = store_close);

static char *path_of(const char *name)
{
    return xasprintf("%s/remote/%s", store, name);
}

static void make_file(const char *name, time_t age_s)
{
    _cleanup_free_ char *path = path_of(name);
    struct timespec times[2] = {{.tv_sec = time(NULL) - age_s}, {.tv_sec = time(NULL) - age_s}};
    assert_i64(io_write_file_durable(path, "x", 1), 0);
    assert_i64(utimensat(AT_FDCWD, path, times, 0), 0);
}

static bool is_there(const char *name)
{
    _cleanup_free_ char *path = path_of(name);
    return access(path, F_OK) == 0;
}

static int count_one(const struct tier_object *object, void *arg)
{
    (void)object;
    ++*(unsigned *)arg;
    return 0;
}

static struct tier *open_readonly(void)
{
    struct tier *reader;
    char *error;
    _cleanup_free_ char *path = xasprintf("%s/remote", store);
    assert_i64(
        dir_tier_open(&(struct dir_options){.path = path, .read_only = true}, &reader, &error), 0);
    return reader;
}

Test(dir, put_replaces_and_leaves_nothing_behind)
{
    put_ok("packs/1", 5000, 1);
    put_ok("packs/1", 6000, 2);
    expect_content("packs/1", 6000, 2);
    _cleanup_free_ void *buf = content_new(10, 3);
    assert_i64(tier->ops->put_new(tier, "packs/1", buf, 10), -EEXIST);
    assert_i64(tier->ops->put_new(tier, "packs/2", buf, 10), 0);
    assert_i64(tier->ops->sync(tier), 0);
    _cleanup_free_ char *command = xasprintf(
        "test $(find %s/remote -type f | wc -l) = 2 && test $(stat -c %%a %s/remote/packs/2) = 600",
        store, store);
    assert_i64(system(command), 0);
}

Test(dir, old_leftovers_go_when_listed)
{
    put_ok("packs/00/1", 10, 1);
    make_file("packs/00/.put-0123456789abcdef", 25 * 3600);
    make_file("packs/00/.put-0123456789abcde0", 23 * 3600);
    unsigned count = 0;
    struct tier *reader = open_readonly();
    assert_i64(reader->ops->list(reader, "packs", NULL, count_one, &count), 0);
    reader->ops->close(reader);
    cr_assert(is_there("packs/00/.put-0123456789abcdef"), "a reader removes nothing");
    assert_i64(tier->ops->list(tier, "packs", NULL, count_one, &count), 0);
    assert_u64(count, 2);
    cr_assert_not(is_there("packs/00/.put-0123456789abcdef"));
    cr_assert(is_there("packs/00/.put-0123456789abcde0"), "it may still be being written");
}

Test(dir, readers_write_nothing)
{
    put_ok("packs/1", 5000, 1);
    struct tier *reader = open_readonly();
    char buf[10] = {0};
    int64_t now;
    assert_i64(reader->ops->put(reader, "packs/2", buf, 10), -EROFS);
    assert_i64(reader->ops->put_new(reader, "packs/2", buf, 10), -EROFS);
    assert_i64(reader->ops->remove(reader, "packs/1"), -EROFS);
    assert_i64(reader->ops->get_range(reader, "packs/1", 0, buf, 10), 0);
    assert_i64(reader->ops->now(reader, &now), 0);
    cr_assert_lt(llabs(now - clock_realtime_ns()), 60000000000);
    cr_assert_not(is_there(".clock"));
    make_file("packs/9", -3600);
    unsigned count = 0;
    assert_i64(reader->ops->list(reader, "packs", NULL, count_one, &count), 0);
    assert_i64(reader->ops->now(reader, &now), 0);
    cr_assert_gt(now, clock_realtime_ns() + 3000000000000,
                 "it is not earlier than what was written");
    reader->ops->close(reader);
}

Test(dir, open_says_why_not)
{
    struct tier *other;
    char *error = NULL;
    assert_i64(dir_tier_open(&(struct dir_options){.path = "/nowhere/at/all"}, &other, &error),
               -ENOENT);
    assert_str(error, "directory /nowhere/at/all: No such file or directory");
    free(error);
    make_file("file", 0);
    _cleanup_free_ char *path = path_of("file"), *missing = path_of("missing");
    assert_i64(dir_tier_open(&(struct dir_options){.path = path}, &other, &error), -ENOTDIR);
    free(error);
    assert_i64(
        dir_tier_open(&(struct dir_options){.path = missing, .read_only = true}, &other, &error),
        -ENOENT, "a reader makes nothing");
    free(error);
    assert_i64(dir_tier_open(&(struct dir_options){.path = missing}, &other, &error), 0);
    other->ops->close(other);
}

Test(dir, symbolic_links_are_not_followed)
{
    _cleanup_free_ char *path = path_of("packs/link");
    put_ok("packs/1", 1, 1);
    assert_i64(symlink("/etc/passwd", path), 0);
    char byte;
    uint64_t len;
    unsigned count = 0;
    assert_i64(tier->ops->get_range(tier, "packs/link", 0, &byte, 1), -ELOOP);
    assert_i64(tier->ops->stat(tier, "packs/link", &len), -ENOENT);
    assert_i64(tier->ops->list(tier, "packs", NULL, count_one, &count), 0);
    assert_u64(count, 1);
}

Test(dir, a_link_in_the_place_of_a_directory_leads_nowhere)
{
    _cleanup_free_ char *packs = path_of("packs"), *away = path_of("away"),
                        *outside = xasprintf("%s/outside", store);
    _cleanup_free_ char *command =
        xasprintf("cp -r %s %s && mv %s %s && ln -s %s %s && ls -A %s >%s.before", packs, outside,
                  packs, away, outside, packs, outside, store);
    _cleanup_free_ char *compare =
        xasprintf("ls -A %s | cmp - %s.before && rm %s.before", outside, store, store);
    _cleanup_free_ void *buf = content_new(20000, 1);
    uint64_t len;
    put_ok("packs/1", 20000, 1);
    assert_i64(system(command), 0);
    expect_i64(tier->ops->put(tier, "packs/2", buf, 10), -ELOOP);
    expect_i64(tier->ops->put_new(tier, "packs/3", buf, 20000), -ELOOP);
    expect_i64(tier->ops->get_range(tier, "packs/1", 0, buf, 10), -ELOOP);
    expect_i64(tier->ops->stat(tier, "packs/1", &len), -ELOOP);
    expect_i64(tier->ops->remove(tier, "packs/1"), -ELOOP);
    expect_i64(system(compare), 0);
}

Test(dir, a_failure_is_told)
{
    char error[200];
    put_ok("packs/1", 1, 1);
    _cleanup_free_ void *buf = content_new(10, 1);
    assert_i64(tier->ops->put(tier, "packs/1/below", buf, 10), -ENOTDIR);
    tier->ops->last_error(tier, error, sizeof error);
    cr_assert_not_null(strstr(error, "put /var/tmp/cairn-tier-"));
    cr_assert_not_null(strstr(error, "remote/packs/1/below: Not a directory"));
    struct tier_traffic t;
    tier->ops->traffic(tier, &t);
    assert_u64(t.failures, 1, "%llu", (unsigned long long)t.failures);
}

/* A file whose reads fail with EIO lies over the object. False: that takes root. */
static bool make_unreadable(const char *path)
{
    return unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
           mount("/proc/self/mem", path, NULL, MS_BIND, NULL) == 0;
}

Test(dir, what_stays_unreadable_is_damage)
{
    char buf[10], error[200];
    _cleanup_free_ char *path = path_of("packs/1");
    put_ok("packs/1", 5000, 1);
    put_ok("packs/2", 5000, 2);
    if (!make_unreadable(path))
        cr_skip_test("mounting takes root");
    struct tier *reader = open_readonly(); /* sees what is mounted */
    int64_t began = clock_monotonic_ns();
    expect_i64(reader->ops->get_range(reader, "packs/1", 0, buf, sizeof buf), -EUCLEAN);
    cr_expect_lt(clock_monotonic_ns() - began, 50000000000, "patience is 60 s");
    reader->ops->last_error(reader, error, sizeof error);
    cr_expect_not_null(strstr(error, "Input/output error"));
    expect_i64(reader->ops->get_range(reader, "packs/2", 0, buf, sizeof buf), 0);
    assert_i64(umount(path), 0);
    expect_i64(reader->ops->get_range(reader, "packs/1", 0, buf, sizeof buf), 0);
    reader->ops->close(reader);
}

/* --- the helper process ----------------------------------------------------------------------- */

static pid_t helper_pid(void)
{
    _cleanup_free_ char *path = xasprintf("/proc/self/task/%d/children", (int)getpid());
    FILE *f = fopen(path, "re");
    int pid = 0;
    cr_assert_not_null(f);
    assert_i64(fscanf(f, "%d", &pid), 1);
    (void)fclose(f);
    return pid;
}

/* Returns when it stands. */
static void stop(pid_t pid)
{
    _cleanup_free_ char *command = xasprintf(
        "while grep -q '^State:.[^T]' /proc/%d/task/*/status; do sleep 0.01; done", (int)pid);
    assert_i64(kill(pid, SIGSTOP), 0);
    assert_i64(system(command), 0);
}

Test(dir, a_helper_that_dies_is_replaced)
{
    char buf[10];
    put_ok("packs/1", 5 * MIB, 1);
    assert_i64(kill(helper_pid(), SIGKILL), 0);
    expect_content("packs/1", 5 * MIB, 1);
    put_ok("packs/00/2", 5000, 2);
    assert_i64(kill(helper_pid(), SIGKILL), 0);
    assert_i64(tier->ops->sync(tier), 0);
    assert_i64(tier->ops->get_range(tier, "packs/00/2", 5000, buf, 1), -EUCLEAN);
    expect_content("packs/00/2", 5000, 2);
}

/* Without /proc none can be started, and ENOENT would say that the object is gone. */
Test(dir, a_helper_that_cannot_be_started_says_nothing_of_objects)
{
    uint64_t len;
    put_ok("packs/1", 5000, 1);
    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        cr_skip_test("mounting takes root");
    pid_t pid = helper_pid();
    siginfo_t end;
    assert_i64(kill(pid, SIGKILL), 0);
    assert_i64(waitid(P_PID, (id_t)pid, &end, WEXITED | WNOWAIT), 0);
    assert_i64(mount("none", "/proc", "tmpfs", 0, NULL), 0);
    tier->patience_ns = 300000000;
    expect_i64(tier->ops->stat(tier, "packs/1", &len), -ECONNRESET);
    expect_i64(tier->ops->get_range(tier, "packs/1", 0, &len, 1), -ECONNRESET);
    assert_i64(umount("/proc"), 0);
    tier->patience_ns = 60000000000;
    expect_i64(tier->ops->stat(tier, "packs/1", &len), 0);
}

Test(dir, a_helper_that_has_nothing_open_asks_for_it)
{
    struct dir_root root = {.fd = -1};
    struct dir_talk talk = {.root = &root, .socket = -1, .in = -1, .out = -1, .pump = {{-1, -1}}};
    struct dir_answer answer;
    for (enum dir_verb verb = DIR_PUT; verb <= DIR_SPACE; verb++) {
        struct dir_request request = {.verb = verb, .name_len = 2};
        dir_calls_do(&talk, &request, "x\0", 0, &answer, NULL);
        expect_i64(answer.result, -ESTALE, "verb %d: %d", verb, answer.result);
    }
}

Test(dir, a_fifo_in_the_place_of_an_object_holds_nobody)
{
    _cleanup_free_ char *path = path_of("packs/fifo"), *clock = path_of(".clock");
    char byte;
    int64_t now;
    put_ok("packs/1", 1, 1);
    (void)unlink(clock);
    assert_i64(mkfifo(path, 0600), 0);
    assert_i64(mkfifo(clock, 0600), 0);
    tier->patience_ns = 60000000000;
    expect_i64(tier->ops->get_range(tier, "packs/fifo", 0, &byte, 1), -ENOENT);
    expect_i64(tier->ops->now(tier, &now), -ENXIO);
}

Test(dir, another_directory_in_its_place_is_not_used)
{
    _cleanup_free_ char *path = path_of(""), *away = xasprintf("%s/away", store);
    put_ok("packs/1", 10, 1);
    path[strlen(path) - 1] = '\0';
    assert_i64(rename(path, away), 0);
    assert_i64(mkdir(path, 0700), 0);
    put_ok("packs/2", 10, 1); /* by the descriptor: it goes to the one that was opened */
    assert_i64(kill(helper_pid(), SIGKILL), 0);
    char buf[10], error[200];
    tier->patience_ns = 5000000000;
    assert_i64(tier->ops->get_range(tier, "packs/1", 0, buf, sizeof buf), -EREMOTEIO);
    tier->ops->last_error(tier, error, sizeof error);
    cr_assert_not_null(strstr(error, "Stale file handle"), "%s", error);
    assert_i64(rmdir(path), 0);
    assert_i64(rename(away, path), 0);
    expect_content("packs/1", 10, 1);
    expect_content("packs/2", 10, 1);
}

static void *list_it(void *arg)
{
    unsigned count = 0;
    *(int *)arg = tier->ops->list(tier, "packs", NULL, count_one, &count);
    return NULL;
}

Test(dir, silence_is_given_up)
{
    pthread_t threads[20]; /* more than may be left behind */
    int results[ARRAY_LEN(threads)];
    uint64_t len;
    put_ok("packs/1", 10, 1);
    pid_t pid = helper_pid();
    stop(pid);
    tier->patience_ns = 300000000;
    expect_i64(tier->ops->stat(tier, "packs/1", &len), -ETIMEDOUT);
    for (size_t i = 0; i < ARRAY_LEN(threads); i++)
        assert_i64(thread_start(&threads[i], "list", list_it, &results[i]), 0);
    for (size_t i = 0; i < ARRAY_LEN(threads); i++) {
        assert_i64(pthread_join(threads[i], NULL), 0);
        expect_i64(results[i], -ETIMEDOUT);
    }
    expect_i64(tier->ops->stat(tier, "packs/1", &len), -ETIMEDOUT);
    assert_i64(kill(pid, SIGCONT), 0);
    tier->patience_ns = 60000000000;
    expect_i64(tier->ops->stat(tier, "packs/1", &len), 0);
}

struct putting {
    const void *buf;
    size_t len;
    int result;
};

static void *put_it(void *arg)
{
    struct putting *p = arg;
    p->result = tier->ops->put(tier, "packs/given-up", p->buf, p->len);
    return NULL;
}

/* Its memory is used for something else by then. */
Test(dir, what_was_given_up_never_gets_its_name)
{
    struct putting putting = {.len = 3 * MIB, .buf = content_new(3 * MIB, 7)};
    pthread_t thread;
    put_ok("packs/1", 10, 1);
    pid_t pid = helper_pid();
    stop(pid);
    assert_i64(thread_start(&thread, "put", put_it, &putting), 0);
    (void)usleep(200000); /* its pages are in the pipe */
    tier->ops->interrupt(tier);
    assert_i64(pthread_join(thread, NULL), 0);
    assert_i64(putting.result, -ECANCELED);
    assert_i64(kill(pid, SIGCONT), 0);
    (void)usleep(500000);
    cr_assert_not(is_there("packs/given-up"));
    free((void *)(uintptr_t)putting.buf);
}
