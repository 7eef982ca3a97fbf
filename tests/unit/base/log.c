// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "../expect.h"
#include "base/cause.h"
#include "base/io.h"
#include "base/log.h"
#include "base/log_limit.h"
#include "base/pool.h"

static char directory[] = "/tmp/cairn-log-XXXXXX";
static char *path, *old_path;

static void begin(void)
{
    cr_assert_not_null(mkdtemp(directory));
    path = xasprintf("%s/log", directory);
    old_path = xasprintf("%s/log.1", directory);
}

static void end(void)
{
    _cleanup_free_ char *command = xasprintf("rm -r %s", directory);
    log_set_fd(STDERR_FILENO);
    assert_i64(system(command), 0);
    free(path);
    free(old_path);
}

TestSuite(log, .init = begin, .fini = end, .timeout = 600);

static uint64_t length_of(const char *name)
{
    struct stat st;
    return stat(name, &st) == 0 ? (uint64_t)st.st_size : 0;
}

static unsigned count_in(const char *name, const char *word)
{
    _cleanup_free_ char *text = NULL;
    size_t len;
    unsigned count = 0;
    assert_i64(io_read_file(name, 16 * MIB, &text, &len), 0);
    for (const char *p = text; (p = strstr(p, word)); p++)
        count++;
    return count;
}

Test(log, is_kept_private_and_goes_on_where_it_was)
{
    uint64_t end_of;
    struct stat st;
    assert_i64(log_open(path, false, &end_of), 0);
    assert_u64(end_of, 0);
    log_info("first");
    uint64_t len = length_of(path);
    log_set_fd(STDERR_FILENO);
    assert_i64(log_open(path, false, &end_of), 0);
    assert_u64(end_of, len);
    log_info("second");
    assert_u64(count_in(path, "cairn info: first\n"), 1);
    assert_u64(count_in(path, "cairn info: second\n"), 1);
    assert_i64(stat(path, &st), 0);
    assert_u64(st.st_mode & 0777, 0600);
    assert_i64(log_open("/nonexistent/log", false, &end_of), -ENOENT);
    assert_i64(symlink("log", old_path), 0);
    assert_i64(log_open(old_path, false, &end_of), -ELOOP);
}

#define WRITERS 4u
#define LINES 9000u

static void *write_lines(void *arg)
{
    char text[700];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    for (unsigned i = 0; i < LINES; i++)
        log_debug("%u %u %s", *(unsigned *)arg, i, text);
    return NULL;
}

Test(log, is_moved_when_it_is_full)
{
    pthread_t threads[WRITERS];
    unsigned numbers[WRITERS];
    uint64_t end_of;
    log_set_level(LOG_LEVEL_DEBUG);
    assert_i64(log_open(path, false, &end_of), 0);
    for (unsigned i = 0; i < WRITERS; i++) {
        numbers[i] = i;
        assert_i64(thread_start(&threads[i], "writer", write_lines, &numbers[i]), 0);
    }
    for (unsigned i = 0; i < WRITERS; i++)
        assert_i64(pthread_join(threads[i], NULL), 0);
    /* 27 MB were written; one line of each writer may be under way while the file is moved. */
    cr_assert_leq(length_of(path), LOG_FILE_MAX);
    cr_assert(length_of(old_path) > LOG_FILE_MAX - 64 * KIB &&
                  length_of(old_path) < LOG_FILE_MAX + 64 * KIB,
              "%llu", (unsigned long long)length_of(old_path));
    log_info("the last");
    log_tick();
    assert_u64(count_in(path, "the last\n"), 1);
    assert_u64(count_in(path, " cairn "), count_in(path, "\n"), "lines are whole");
}

Test(log, that_cannot_be_moved_begins_anew)
{
    uint64_t end_of;
    log_set_level(LOG_LEVEL_DEBUG);
    assert_i64(mkdir(old_path, 0700), 0);
    assert_i64(log_open(path, false, &end_of), 0);
    (void)write_lines(&(unsigned){1});
    cr_assert_lt(length_of(path), LOG_FILE_MAX);
    cr_assert_gt(length_of(path), 0);
}

Test(log, takes_what_libraries_say)
{
    uint64_t end_of;
    int saved = dup(STDERR_FILENO);
    assert_i64(log_open(path, false, &end_of), 0);
    log_take_stderr();
    (void)fprintf(stderr, "a library\n");
    log_info("ours");
    assert_i64(dup2(saved, STDERR_FILENO), STDERR_FILENO);
    assert_u64(count_in(path, "a library\n"), 1);
    assert_u64(count_in(path, "ours\n"), 1);
}

Test(log, the_same_line_comes_a_few_times)
{
    uint64_t end_of;
    assert_i64(log_open(path, false, &end_of), 0);
    for (unsigned i = 0; i < 1000; i++)
        log_warn("the disk is %s", "slow");
    assert_u64(count_in(path, "the disk is slow"), LOG_SAME_TEXT);
    log_warn("the disk is %s", "fast");
    assert_u64(count_in(path, "the disk is fast"), 1);
}

Test(limit, of_the_same_text)
{
    struct log_left left;
    unsigned admitted = 0;
    for (int64_t i = 0; i < 1000; i++)
        admitted += log_limit_admits("%s", LOG_LEVEL_ERROR, "same", 1 + i, &left);
    assert_u64(admitted, LOG_SAME_TEXT);
    cr_assert_not(log_limit_take(LOG_WINDOW_NS, &left));
    cr_assert(log_limit_admits("%s", LOG_LEVEL_ERROR, "same", 1 + LOG_WINDOW_NS, &left));
    assert_u64(left.count, 1000 - LOG_SAME_TEXT);
    assert_u64(left.level, LOG_LEVEL_ERROR);
    assert_str(left.sample, "same");
}

Test(limit, of_the_same_kind)
{
    static const char kind[] = "file %u", other[] = "other %u";
    struct log_left left;
    unsigned admitted = 0;
    for (unsigned i = 0; i < 1000; i++) {
        char text[32];
        (void)snprintf(text, sizeof text, "file %u", i);
        admitted += log_limit_admits(kind, LOG_LEVEL_WARN, text, 1, &left);
    }
    assert_u64(admitted, LOG_SAME_KIND);
    cr_assert(log_limit_admits(other, LOG_LEVEL_WARN, "other 1", 1, &left));
    unsigned told = 0;
    while (log_limit_take(1 + LOG_WINDOW_NS, &left))
        told += left.count;
    assert_u64(told, 1000 - LOG_SAME_KIND, "%u", told);
    cr_assert_not(log_limit_take(1 + LOG_WINDOW_NS, &left), "once");
}

Test(cause, is_that_of_the_thread)
{
    cause_clear();
    assert_str(cause_text(), "");
    cause_note("no room for %d", 5);
    assert_str(cause_text(), "no room for 5");
    cause_clear();
    assert_str(cause_text(), "");
}
