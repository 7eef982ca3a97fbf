// SPDX-License-Identifier: Apache-2.0
/* Many threads on one lane: for races, with the thread sanitizer, and for wrong bytes, with or
 * without one.
 *
 *   lane_threads [SECONDS [SEED]]
 *
 * Each worker has a buffer, its sources, which is of one step: all words are the same number. It
 * saves it in one of the ways there are, fences, and makes the next step. Whatever file is there is
 * whole and of one step; a marker names a step whose file is there; no save that was aborted, or
 * whose source was freed, has changed a file. Three sessions: each ends with the close of the lane.
 */
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/base.h"
#include "base/clock.h"
#include "cuda/checks.h"

#include <cairn/cairn.h>

#define WORKERS 6u
#define SESSIONS 3u
#define WORDS (640 * 1024u) /* 2.5 MiB: pieces of several sizes */

struct worker {
    unsigned index;
    uint64_t random;
    uint32_t step;
    uint32_t *words;
    cairn_save *last; /* the newest that is not aborted; a marker may come after it */
    cairn_lane *lane;
    int64_t end;
};

static char directory[] = "/tmp/cairn-lane-XXXXXX";
static _Atomic uint64_t saves, aborted, lost;

static uint64_t next_random(struct worker *w)
{
    w->random = w->random * 6364136223846793005ull + 1442695040888963407ull;
    return w->random >> 33;
}

static const char *path_of(const struct worker *w, const char *what, char path[PATH_MAX])
{
    (void)snprintf(path, PATH_MAX, "%s/%u.%s", directory, w->index, what);
    return path;
}

static void make_step(struct worker *w)
{
    w->step++;
    for (size_t i = 0; i < WORDS; i++)
        w->words[i] = w->step;
}

static void keep(struct worker *w, cairn_save *save)
{
    cairn_save_free(w->last);
    w->last = save;
    atomic_fetch_add(&saves, 1);
}

/* As raw pieces, put in any order, some of them now. */
static cairn_save *save_raw(struct worker *w, const uint32_t *words, bool commits)
{
    char path[PATH_MAX];
    cairn_save *save;
    size_t half = (size_t)(next_random(w) % WORDS);
    struct cairn_source sources[2] = {
        {.offset = half * 4, .length = (WORDS - half) * 4, .host = words + half},
        {.length = half * 4, .host = words, .flags = next_random(w) % 2}};
    expect_ok(cairn_save_begin(w->lane, path_of(w, "raw", path), WORDS * 4, NULL, &save));
    expect_ok(cairn_save_put(save, sources, 2));
    if (commits)
        expect_ok(cairn_save_commit(save));
    return save;
}

static cairn_save *save_zip(struct worker *w, const uint32_t *words, uint32_t flags)
{
    char path[PATH_MAX];
    cairn_save *save;
    struct cairn_save_options options = {
        .size = sizeof options, .flags = flags | (next_random(w) % 4 == 0 ? CAIRN_SAVE_URGENT : 0)};
    struct cairn_zip_record records[] = {
        {"step", {.length = 4, .host = words, .flags = CAIRN_SOURCE_NOW}},
        {"data/0", {.length = WORDS * 4, .host = words}},
        {"data/1", {.length = 0}},
    };
    expect_ok(cairn_save_zip(w->lane, path_of(w, "zip", path), records, ARRAY_LEN(records), NULL,
                             &options, &save));
    return save;
}

static void mark(struct worker *w)
{
    char path[PATH_MAX];
    cairn_save *after[] = {w->last}, *save;
    struct cairn_save_options options = {
        .size = sizeof options, .after = after, .after_count = w->last != NULL};
    expect_ok(cairn_save_marker(w->lane, path_of(w, "latest", path), &w->step, sizeof w->step,
                                &options, &save));
    cairn_save_free(save);
}

/* One that is given up, before or while it is copied. A write of it may be under way still,
 * and reads what it is given: that never changes, for what goes into a file that gets no name is no
 * race. */
static void give_up(struct worker *w)
{
    static const uint32_t words[WORDS];
    cairn_save *save =
        next_random(w) % 2 ? save_zip(w, words, CAIRN_SAVE_HOLD) : save_raw(w, words, false);
    const char *text;
    int r = next_random(w) % 2 ? cairn_save_abort(save)
                               : cairn_save_fail(save, -EUCLEAN, "the source changed");
    expect(r == 0, "%d", r);
    expect(cairn_save_error(save, &text) < 0 && text[0], "no error");
    cairn_save_free(save);
    atomic_fetch_add(&aborted, 1);
}

/* Memory that goes away during the copy: its save fails, or was faster. Its place is kept so long
 * that no other memory comes to lie there. The sanitizer is not told of it, for that reads of it
 * and its end race is what is tested. */
static void lose_source(struct worker *w)
{
    long there = syscall(SYS_mmap, NULL, WORDS * 4, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    expect(there != -1, "no memory");
    cairn_save *save = save_zip(w, (const uint32_t *)there, CAIRN_SAVE_HOLD);
    if (next_random(w) % 2) /* within the copy, at a moment that is chance */
        (void)usleep((useconds_t)(next_random(w) % 2000));
    expect_ok((int)syscall(SYS_mprotect, there, WORDS * 4, PROT_NONE));
    int r = cairn_save_wait(save, CAIRN_COPIED, -1);
    expect(r == 0 || r == -EFAULT, "%d", r);
    expect_ok(cairn_save_abort(save));
    cairn_save_free(save);
    expect_ok((int)syscall(SYS_munmap, there, WORDS * 4));
    atomic_fetch_add(&lost, 1);
}

/* For as long as it may take, or not: then the thread that asks the filesystem goes on, or nobody
 * waits for what it finds. */
static void wait_for_disk(struct worker *w)
{
    int timeouts[] = {0, 1, -1}, timeout = timeouts[next_random(w) % 3];
    int r = w->last ? cairn_save_wait(w->last, CAIRN_NVME, timeout) : 0;
    bool is_replaced = r == -ESTALE || r == -ENOENT; /* by a later save of that name */
    expect(r == 0 || is_replaced || (r == -ETIMEDOUT && timeout >= 0), "%d", r);
    r = w->last ? cairn_save_wait(w->last, CAIRN_REMOTE, timeout) : -ENODATA;
    expect(r == -ENODATA || (r == -ETIMEDOUT && timeout >= 0), "%d: a remote", r);
}

/* A child finds the lane as it was between two changes, whatever the other threads were in. */
static void fork_child(struct worker *w)
{
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        bool told = cairn_lane_fence(w->lane, NULL, 0, -1) == -ECHILD;
        cairn_save_free(w->last);
        _exit(told && cairn_lane_close(w->lane) == 0 ? 0 : 1);
    }
    expect(child > 0 && waitpid(child, &status, 0) == child && status == 0, "a child: %d", status);
}

static void save_somehow(struct worker *w)
{
    switch (next_random(w) % 11) {
    case 0:
    case 1:
        keep(w, save_raw(w, w->words, true));
        break;
    case 2:
    case 3:
        keep(w, save_zip(w, w->words, 0));
        break;
    case 4: {
        cairn_save *save = save_zip(w, w->words, CAIRN_SAVE_HOLD);
        expect_ok(cairn_save_wait(save, CAIRN_COPIED, -1));
        expect_ok(cairn_save_commit(save));
        keep(w, save);
        break;
    }
    case 5:
        mark(w);
        break;
    case 6:
        give_up(w);
        break;
    case 7:
        wait_for_disk(w);
        break;
    case 8:
        fork_child(w);
        break;
    case 9:
        lose_source(w);
        break;
    default:
        if (w->last)
            expect_ok(cairn_save_wait(w->last, CAIRN_PUBLISHED, -1));
    }
}

static void ask(struct worker *w)
{
    struct cairn_lane_stats stats = {.size = sizeof stats};
    struct cairn_save_progress progress = {.size = sizeof progress};
    expect_ok(cairn_lane_stats(w->lane, &stats));
    if (w->last)
        expect_ok(cairn_save_progress(w->last, &progress));
    expect(stats.saves_published + stats.saves_failed <= stats.saves_begun &&
               progress.bytes_copied <= progress.bytes,
           "numbers");
}

/* Whatever is there is of one step. Returns it; 0: no file. */
static uint32_t step_in(const struct worker *w, const char *what, size_t skip)
{
    char path[PATH_MAX];
    uint32_t first = 0;
    _cleanup_free_ uint32_t *words = malloc(WORDS * 4);
    _cleanup_close_ int fd = open(path_of(w, what, path), O_RDONLY);
    if (fd < 0)
        return 0;
    expect(words && pread(fd, words, WORDS * 4, (off_t)skip) == (ssize_t)WORDS * 4, "%s is short",
           path);
    first = words[0];
    for (size_t i = 0; i < WORDS; i++)
        expect(words[i] == first, "%s: word %zu is of step %u, the first of %u", path, i, words[i],
               first);
    return first;
}

/* The marker was written after a file of an earlier step, or of its own. */
static void verify(const struct worker *w)
{
    char path[PATH_MAX];
    uint32_t marked = 0, raw = step_in(w, "raw", 0), zip = step_in(w, "zip", 128);
    _cleanup_close_ int fd = open(path_of(w, "latest", path), O_RDONLY);
    if (fd >= 0)
        expect(pread(fd, &marked, sizeof marked, 0) == (ssize_t)sizeof marked, "%s is short", path);
    expect(marked <= w->step && raw <= w->step && zip <= w->step, "a step of the future");
}

static void *work(void *arg)
{
    struct worker *w = arg;
    while (clock_monotonic_ns() < w->end) {
        make_step(w);
        save_somehow(w);
        if (next_random(w) % 4 == 0)
            save_somehow(w);
        ask(w);
        expect_ok(cairn_lane_fence(w->lane, NULL, 0, -1));
    }
    cairn_save_free(w->last);
    w->last = NULL;
    return NULL;
}

static void say_nothing(int level, const char *text, void *arg)
{
    (void)level;
    (void)text;
    (void)arg;
}

static void run_session(struct worker *workers, double seconds, uint32_t copy_threads)
{
    struct cairn_lane_options options = {
        .size = sizeof options, .copy_threads = copy_threads, .log = say_nothing};
    pthread_t threads[WORKERS];
    cairn_lane *lane;
    expect_ok(cairn_lane_open(&options, &lane));
    for (unsigned i = 0; i < WORKERS; i++) {
        workers[i].lane = lane;
        workers[i].end = clock_monotonic_ns() + (int64_t)(seconds * 1e9);
        expect_ok(pthread_create(&threads[i], NULL, work, &workers[i]));
    }
    for (unsigned i = 0; i < WORKERS; i++)
        expect_ok(pthread_join(threads[i], NULL));
    expect_ok(cairn_lane_close(lane));
    for (unsigned i = 0; i < WORKERS; i++)
        verify(&workers[i]);
}

int main(int argc, char **argv)
{
    double seconds = argc > 1 ? atof(argv[1]) : 3;
    uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 0) : (uint64_t)clock_realtime_ns() % 1000000;
    static struct worker workers[WORKERS];
    char command[64];
    expect(mkdtemp(directory), "no directory");
    (void)printf("lane_threads: %g seconds, seed %llu\n", seconds, (unsigned long long)seed);
    (void)fflush(stdout);
    for (unsigned i = 0; i < WORKERS; i++) {
        workers[i] =
            (struct worker){.index = i, .random = seed * WORKERS + i, .words = malloc(WORDS * 4)};
        expect(workers[i].words, "no memory");
    }
    for (unsigned i = 0; i < SESSIONS; i++)
        run_session(workers, seconds / SESSIONS, i + 1);
    for (unsigned i = 0; i < WORKERS; i++)
        free(workers[i].words);
    (void)printf("lane_threads: %llu saves, %llu given up, %llu of freed memory, no problem\n",
                 (unsigned long long)atomic_load(&saves), (unsigned long long)atomic_load(&aborted),
                 (unsigned long long)atomic_load(&lost));
    (void)snprintf(command, sizeof command, "rm -rf %s", directory);
    return system(command) ? 1 : 0;
}
