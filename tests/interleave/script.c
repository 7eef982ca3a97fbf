// SPDX-License-Identifier: Apache-2.0
/* One call at a time, on the mount and on another filesystem; see interleave.c. */
#include "interleave.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define THREADS 4u
#define SLOTS 5u
#define CALLS 28u           /* of a run */
#define FILE_LEN (3u << 20) /* no offset lies behind that */
#define WRITE_MAX (1200u << 10)
#define TRACE_LEN 200u
#define LEG 120u /* runs before something happens to the daemon */

/* One open file, on both sides. */
struct pair {
    int fds[2]; /* mount, other; -1: closed */
    int flags;
    int64_t position; /* that both must have */
};

struct run {
    const struct options *options;
    unsigned number;
    uint64_t random;
    char paths[2][4096];
    struct pair slots[SLOTS];
    char trace[CALLS + 2][TRACE_LEN];
    unsigned calls;
};

static uint8_t bytes[WRITE_MAX], seen[2][FILE_LEN + WRITE_MAX];

static void note(struct run *run, unsigned thread, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

static void note(struct run *run, unsigned thread, const char *fmt, ...)
{
    va_list ap;
    char *line = run->trace[run->calls < CALLS + 1 ? run->calls++ : CALLS + 1];
    int n = snprintf(line, TRACE_LEN, "thread %u ", thread);
    va_start(ap, fmt);
    (void)vsnprintf(line + n, TRACE_LEN - (size_t)n, fmt, ap);
    va_end(ap);
}

static void differs(struct run *run, const char *what, long long mount, long long other)
{
    for (unsigned i = 0; i < run->calls; i++)
        (void)printf("  %s\n", run->trace[i]);
    fail("run %u of seed %llu, last call: %s is %lld on the mount, %lld on the other", run->number,
         (unsigned long long)run->options->seed, what, mount, other);
}

/* Results of one call, on both sides. */
static void same(struct run *run, const char *what, const long long results[2], const int errors[2])
{
    if (results[0] != results[1])
        differs(run, what, results[0], results[1]);
    if (results[0] < 0 && errors[0] != errors[1])
        differs(run, "errno", errors[0], errors[1]);
}

static void same_bytes(struct run *run, const char *what, size_t len)
{
    if (memcmp(seen[0], seen[1], len) == 0)
        return;
    size_t at = 0;
    while (seen[0][at] == seen[1][at])
        at++;
    (void)printf("  %s: differs from byte %zu on\n", what, at);
    differs(run, "a byte", seen[0][at], seen[1][at]);
}

/* Does CALL, an expression of `side`, for both sides. */
#define BOTH(run, what, call)                                                                      \
    do {                                                                                           \
        long long results_[2];                                                                     \
        int errors_[2];                                                                            \
        for (int side = 0; side < 2; side++) {                                                     \
            errno = 0;                                                                             \
            results_[side] = (long long)(call);                                                    \
            errors_[side] = errno;                                                                 \
        }                                                                                          \
        same(run, what, results_, errors_);                                                        \
    } while (0)

/* --- the calls -------------------------------------------------------------------------------- */

static void call_open(struct run *run, unsigned thread, struct pair *pair)
{
    static const int access[] = {O_RDONLY, O_WRONLY, O_RDWR, O_RDWR};
    pair->flags = access[random_below(&run->random, 4)] |
                  (random_below(&run->random, 4) ? O_CREAT : 0) |
                  ((random_below(&run->random, 4) == 0) ? O_TRUNC : 0) |
                  (random_below(&run->random, 10) ? 0 : O_APPEND);
    if ((pair->flags & O_ACCMODE) == O_RDONLY)
        pair->flags &= ~(O_TRUNC | O_CREAT);
    note(run, thread, "open slot %td%s%s%s", pair - run->slots,
         (pair->flags & O_ACCMODE) == O_RDONLY   ? " O_RDONLY"
         : (pair->flags & O_ACCMODE) == O_WRONLY ? " O_WRONLY"
                                                 : " O_RDWR",
         pair->flags & O_TRUNC ? " O_TRUNC" : "", pair->flags & O_APPEND ? " O_APPEND" : "");
    BOTH(run, "open", (pair->fds[side] = open(run->paths[side], pair->flags, 0644)) < 0 ? -1 : 0);
    pair->position = 0;
}

static size_t some_length(struct run *run)
{
    static const size_t most[] = {100, 5000, 5000, 70000, 70000, 300u << 10, WRITE_MAX};
    return 1 +
           random_below(&run->random, most[random_below(&run->random, sizeof most / sizeof *most)]);
}

static void call_write(struct run *run, unsigned thread, struct pair *pair)
{
    size_t len = some_length(run);
    off_t offset = (off_t)random_below(&run->random, FILE_LEN - WRITE_MAX);
    bool seeks = random_below(&run->random, 2);
    if (random_below(&run->random, 3) == 0)
        offset &= ~4095;
    fill(bytes, len, next_random(&run->random));
    note(run, thread, "%s slot %td: %zu bytes at %lld", seeks ? "lseek, write" : "pwrite",
         pair - run->slots, len, (long long)offset);
    if (seeks) {
        BOTH(run, "lseek", lseek(pair->fds[side], offset, SEEK_SET));
        BOTH(run, "write", write(pair->fds[side], bytes, len));
        BOTH(run, "position", lseek(pair->fds[side], 0, SEEK_CUR));
    } else {
        BOTH(run, "pwrite", pwrite(pair->fds[side], bytes, len, offset));
    }
}

static void call_read(struct run *run, unsigned thread, struct pair *pair)
{
    size_t len = some_length(run);
    off_t offset = (off_t)random_below(&run->random, FILE_LEN);
    note(run, thread, "pread slot %td: %zu bytes at %lld", pair - run->slots, len,
         (long long)offset);
    BOTH(run, "pread", pread(pair->fds[side], seen[side], len, offset));
    ssize_t n = pread(pair->fds[1], seen[1], len, offset);
    if (n > 0)
        same_bytes(run, "pread", (size_t)n);
}

static void call_truncate(struct run *run, unsigned thread, struct pair *pair)
{
    off_t size = random_below(&run->random, 3) ? (off_t)random_below(&run->random, FILE_LEN) : 0;
    note(run, thread, "ftruncate slot %td to %lld", pair - run->slots, (long long)size);
    BOTH(run, "ftruncate", ftruncate(pair->fds[side], size));
}

static void call_punch(struct run *run, unsigned thread, struct pair *pair)
{
    off_t offset = (off_t)random_below(&run->random, FILE_LEN), len = (off_t)some_length(run);
    note(run, thread, "punch slot %td: %lld bytes at %lld", pair - run->slots, (long long)len,
         (long long)offset);
    BOTH(run, "fallocate",
         fallocate(pair->fds[side], FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, len));
}

static int store(int fd, off_t offset, size_t len)
{
    off_t page = offset & ~4095ll;
    size_t skip = (size_t)(offset - page);
    uint8_t *map = mmap(NULL, skip + len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, page);
    if (map == MAP_FAILED)
        return -1;
    memcpy(map + skip, bytes, len);
    return munmap(map, skip + len);
}

static void call_store(struct run *run, unsigned thread, struct pair *pair)
{
    struct stat st;
    size_t len = 1 + random_below(&run->random, 9000);
    if (fstat(pair->fds[1], &st) < 0 || st.st_size < (off_t)len ||
        (pair->flags & O_ACCMODE) != O_RDWR)
        return;
    off_t offset = (off_t)random_below(&run->random, (uint64_t)st.st_size - len + 1);
    fill(bytes, len, next_random(&run->random));
    note(run, thread, "store through a map, slot %td: %zu bytes at %lld", pair - run->slots, len,
         (long long)offset);
    BOTH(run, "mmap", store(pair->fds[side], offset, len));
}

/* A duplicate is closed: that flushes, and the descriptor goes on. */
static void call_flush(struct run *run, unsigned thread, struct pair *pair)
{
    note(run, thread, "dup and close, slot %td", pair - run->slots);
    BOTH(run, "close of a duplicate", close(dup(pair->fds[side])));
}

static void call_sync(struct run *run, unsigned thread, struct pair *pair)
{
    note(run, thread, "fdatasync slot %td", pair - run->slots);
    if (fdatasync(pair->fds[0]) < 0)
        differs(run, "fdatasync", errno, 0);
}

static void call_close(struct run *run, unsigned thread, struct pair *pair)
{
    note(run, thread, "close slot %td", pair - run->slots);
    BOTH(run, "close", close(pair->fds[side]));
    pair->fds[0] = pair->fds[1] = -1;
}

/* Another file takes the place of the first, which may be open; or the first goes away and comes
 * back. */
static void call_rename(struct run *run, unsigned thread, struct pair *pair)
{
    char temporary[2][4200];
    (void)pair;
    bool over = random_below(&run->random, 2);
    note(run, thread, over ? "write a new file and rename it over" : "rename away and back");
    for (int side = 0; side < 2; side++)
        (void)snprintf(temporary[side], sizeof temporary[side], "%s.new", run->paths[side]);
    if (over) {
        int fds[2];
        fill(bytes, 7000, next_random(&run->random));
        BOTH(run, "open",
             (fds[side] = open(temporary[side], O_WRONLY | O_CREAT | O_TRUNC, 0644)) < 0 ? -1 : 0);
        BOTH(run, "write", write(fds[side], bytes, 7000));
        BOTH(run, "rename", rename(temporary[side], run->paths[side]));
        BOTH(run, "close", close(fds[side]));
    } else {
        BOTH(run, "rename", rename(run->paths[side], temporary[side]));
        BOTH(run, "rename", rename(temporary[side], run->paths[side]));
    }
}

/* --- a run ------------------------------------------------------------------------------------ */

typedef void call_fn(struct run *run, unsigned thread, struct pair *pair);

static call_fn *choose_call(struct run *run, struct pair *pair)
{
    static call_fn *const on_open[] = {call_write, call_write, call_write, call_write,
                                       call_write, call_read,  call_read,  call_truncate,
                                       call_punch, call_store, call_flush, call_close,
                                       call_close, call_close, call_sync};
    if (random_below(&run->random, 40) == 0)
        return call_rename;
    if (pair->fds[0] < 0)
        return call_open;
    call_fn *call = on_open[random_below(&run->random, sizeof on_open / sizeof *on_open)];
    return call == call_sync && random_below(&run->random, 4) ? call_write : call;
}

static void check_sizes(struct run *run)
{
    struct stat st[2];
    BOTH(run, "stat", stat(run->paths[side], &st[side]));
    if (stat(run->paths[1], &st[1]) == 0 && st[0].st_size != st[1].st_size)
        differs(run, "st_size", st[0].st_size, st[1].st_size);
}

static void check_content(struct run *run)
{
    int fds[2];
    check_sizes(run);
    BOTH(run, "open", (fds[side] = open(run->paths[side], O_RDONLY)) < 0 ? -1 : 0);
    if (fds[0] < 0)
        return;
    long long n[2];
    BOTH(run, "read of all", n[side] = pread(fds[side], seen[side], sizeof seen[side], 0));
    same_bytes(run, "the whole file", (size_t)n[0]);
    BOTH(run, "close", close(fds[side]));
}

static struct {
    sem_t begin[THREADS], done;
    pthread_t threads[THREADS];
    struct run *run;
    call_fn *call;
    struct pair *pair;
} turn;

static void *work(void *arg)
{
    unsigned thread = (unsigned)(uintptr_t)arg;
    for (;;) {
        while (sem_wait(&turn.begin[thread]) < 0)
            ;
        if (!turn.call)
            return NULL;
        turn.call(turn.run, thread, turn.pair);
        (void)sem_post(&turn.done);
    }
}

static void do_run(struct run *run)
{
    turn.run = run;
    for (unsigned i = 0; i < CALLS; i++) {
        turn.pair = &run->slots[random_below(&run->random, SLOTS)];
        turn.call = choose_call(run, turn.pair);
        (void)sem_post(&turn.begin[random_below(&run->random, THREADS)]);
        while (sem_wait(&turn.done) < 0)
            ;
        check_sizes(run);
    }
    check_content(run);
}

static void close_slots(struct run *run, bool is_dead)
{
    for (unsigned i = 0; i < SLOTS; i++) {
        struct pair *pair = &run->slots[i];
        if (pair->fds[0] < 0)
            continue;
        if (is_dead)
            (void)(close(pair->fds[0]) + close(pair->fds[1]));
        else
            BOTH(run, "close", close(pair->fds[side]));
        pair->fds[0] = pair->fds[1] = -1;
    }
}

static struct run *new_run(const struct options *options, unsigned number)
{
    struct run *run = calloc(1, sizeof *run);
    if (!run)
        fail("no memory");
    run->options = options;
    run->number = number;
    run->random = options->seed * 1000003 + number;
    (void)snprintf(run->paths[0], sizeof run->paths[0], "%s/file-%u", options->mount, number);
    (void)snprintf(run->paths[1], sizeof run->paths[1], "%s/file-%u", options->other, number);
    for (unsigned i = 0; i < SLOTS; i++)
        run->slots[i].fds[0] = run->slots[i].fds[1] = -1;
    return run;
}

static void end_run(struct run *run)
{
    check_content(run);
    for (int side = 0; side < 2; side++)
        (void)unlink(run->paths[side]);
    free(run);
}

/* Some runs, of which a half leaves its descriptors open; then the daemon is killed, or it ends
 * well, and all is looked at again. */
static void do_leg(const struct options *options, unsigned first, unsigned count)
{
    uint64_t random = options->seed ^ first;
    bool is_kill = random_below(&random, 3) > 0;
    struct run *runs[LEG];
    if (options->is_urged)
        urge_begin(options->mount);
    for (unsigned i = 0; i < count; i++) {
        runs[i] = new_run(options, first + i);
        do_run(runs[i]);
        if (random_below(&random, 2))
            close_slots(runs[i], false);
        check_content(runs[i]);
    }
    urge_end();
    for (unsigned i = 0; i < count && !is_kill; i++)
        close_slots(runs[i], false);
    stop_at(is_kill ? "kill" : "remount");
    for (unsigned i = 0; i < count; i++)
        close_slots(runs[i], true);
    for (unsigned i = 0; i < count; i++)
        end_run(runs[i]);
}

void script_run(const struct options *options)
{
    (void)sem_init(&turn.done, 0, 0);
    for (uintptr_t i = 0; i < THREADS; i++) {
        (void)sem_init(&turn.begin[i], 0, 0);
        if (pthread_create(&turn.threads[i], NULL, work, (void *)i) != 0)
            fail("no thread");
    }
    for (unsigned done = 0; done < options->runs; done += LEG)
        do_leg(options, options->first + done,
               options->runs - done < LEG ? options->runs - done : LEG);
    turn.call = NULL;
    for (unsigned i = 0; i < THREADS; i++) {
        (void)sem_post(&turn.begin[i]);
        (void)pthread_join(turn.threads[i], NULL);
    }
    (void)printf("done\n");
}
