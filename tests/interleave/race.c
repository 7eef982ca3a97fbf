// SPDX-License-Identifier: Apache-2.0
/* Threads that run freely; see interleave.c. */
#include "interleave.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define WRITERS 3u /* threads that open, seek, write and close for each slot */
/* Of a file; slot N belongs to writer N % WRITERS, 0 and the last to the writer of header and tail.
 */
#define SLOTS 24u
#define SLOT_LEN 20000u
#define WRITES_MAX 6u /* to one slot */
#define CUTS_MAX 3u
#define RACES 30u /* files between two events */

/* A call and when it was made and returned. `returned` 0: it never did, or failed with
 * its daemon. */
struct timed {
    int64_t called, returned;
};

struct write {
    struct timed when;
    uint64_t seed;
    size_t len;
};

struct race {
    const struct options *options;
    unsigned number;
    char path[4096];
    uint64_t random[WRITERS + 2];
    struct write writes[SLOTS][WRITES_MAX];
    unsigned counts[SLOTS]; /* one thread writes it, others look when that has ended */
    struct timed cuts[CUTS_MAX];
    unsigned cut_count;
    pthread_barrier_t begin;
    _Atomic bool is_dying; /* the daemon may be killed now: errors are its */
    _Atomic unsigned died;
};

static bool went_wrong(struct race *race, const char *call)
{
    if (!atomic_load(&race->is_dying))
        fail("race %u of seed %llu: %s: %s", race->number, (unsigned long long)race->options->seed,
             call, strerror(errno));
    atomic_fetch_add(&race->died, 1);
    return true;
}

/* False: the daemon died. */
static bool write_slot(struct race *race, int fd, unsigned slot, uint64_t *random)
{
    uint8_t content[SLOT_LEN];
    struct write *w = &race->writes[slot][race->counts[slot]++];
    *w = (struct write){.seed = next_random(random), .len = 1 + random_below(random, SLOT_LEN)};
    if (race->counts[slot] > 1)
        w->len = SLOT_LEN; /* covers what it writes over */
    fill(content, w->len, w->seed);
    w->when.called = now_ns();
    if (lseek(fd, (off_t)slot * SLOT_LEN, SEEK_SET) < 0 ||
        write(fd, content, w->len) != (ssize_t)w->len)
        return !went_wrong(race, "write");
    w->when.returned = now_ns();
    return true;
}

struct thread {
    struct race *race;
    unsigned number;
    pthread_t thread;
};

static void *write_tensors(void *arg)
{
    struct thread *self = arg;
    struct race *race = self->race;
    uint64_t *random = &race->random[self->number];
    (void)pthread_barrier_wait(&race->begin);
    for (unsigned turn = 0; turn < 2 * (SLOTS / WRITERS); turn++) {
        unsigned slot = (unsigned)random_below(random, SLOTS / WRITERS) * WRITERS + self->number;
        if (slot == 0 || slot == SLOTS - 1 || race->counts[slot] == WRITES_MAX)
            continue;
        spin_us(random_below(random, 60));
        int fd = open(race->path, O_RDWR | O_CREAT, 0644);
        if (fd < 0 && went_wrong(race, "open"))
            return NULL;
        bool good = write_slot(race, fd, slot, random);
        if (close(fd) < 0 && went_wrong(race, "close"))
            return NULL;
        if (!good)
            return NULL;
    }
    return NULL;
}

/* One descriptor, open for all of it. */
static void *write_header(void *arg)
{
    struct thread *self = arg;
    struct race *race = self->race;
    uint64_t *random = &race->random[self->number];
    (void)pthread_barrier_wait(&race->begin);
    int fd = open(race->path, O_RDWR | O_CREAT, 0644);
    if (fd < 0 && went_wrong(race, "open"))
        return NULL;
    for (unsigned turn = 0; turn < 4; turn++) {
        spin_us(random_below(random, 300));
        if (!write_slot(race, fd, turn % 2 ? SLOTS - 1 : 0, random))
            break;
    }
    (void)close(fd);
    return NULL;
}

static void *truncate_it(void *arg)
{
    struct thread *self = arg;
    struct race *race = self->race;
    uint64_t *random = &race->random[self->number];
    unsigned count = (unsigned)random_below(random, CUTS_MAX + 1);
    (void)pthread_barrier_wait(&race->begin);
    for (unsigned turn = 0; turn < count; turn++) {
        spin_us(random_below(random, 500));
        struct timed *cut = &race->cuts[race->cut_count++];
        cut->called = now_ns();
        int fd = open(race->path, O_WRONLY | O_TRUNC | O_CREAT, 0644);
        if (fd < 0 && went_wrong(race, "open with O_TRUNC"))
            return NULL;
        cut->returned = now_ns();
        (void)close(fd);
    }
    return NULL;
}

/* --- what may be left ------------------------------------------------------------------------- */

static int64_t end_of(const struct timed *when)
{
    return when->returned ? when->returned : INT64_MAX;
}

/* May a truncation come after this call, in an order that agrees with the times? Must it? */
static void look_at_cuts(const struct race *race, const struct timed *when, bool *may, bool *must)
{
    *may = *must = false;
    for (unsigned i = 0; i < race->cut_count; i++) {
        *may = *may || end_of(&race->cuts[i]) > when->called;
        *must = *must || (race->cuts[i].returned && race->cuts[i].called > end_of(when));
    }
}

static bool is_zero(const uint8_t *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (bytes[i])
            return false;
    return true;
}

static bool has(const uint8_t *bytes, const struct write *w)
{
    uint8_t content[SLOT_LEN];
    fill(content, w->len, w->seed);
    return memcmp(bytes, content, w->len) == 0 && is_zero(bytes + w->len, SLOT_LEN - w->len);
}

/* Does the slot hold what this write, the last that counts, or what was cut after it, leaves? */
static bool is_left_by(const struct race *race, const struct write *w, const uint8_t *bytes,
                       const char **why)
{
    bool may, must;
    look_at_cuts(race, &w->when, &may, &must);
    *why = must ? "is there, though it was truncated away" : "is lost, though nothing truncated it";
    return (has(bytes, w) && !must) || (is_zero(bytes, SLOT_LEN) && (may || must));
}

static void check_slot(const struct race *race, unsigned slot, const uint8_t *bytes,
                       const char *directory)
{
    unsigned count = race->counts[slot];
    const struct write *last = count ? &race->writes[slot][count - 1] : NULL;
    const char *why = "it was not written";
    bool good = !last ? is_zero(bytes, SLOT_LEN) : is_left_by(race, last, bytes, &why);
    if (!good && last &&
        !last->when.returned) /* under way when the daemon died: it need not have happened */
        good = count == 1 ? is_zero(bytes, SLOT_LEN) : is_left_by(race, last - 1, bytes, &why);
    if (!good)
        fail("race %u of seed %llu in %s: write %u to slot %u %s", race->number,
             (unsigned long long)race->options->seed, directory, count, slot, why);
}

/* The end of the last slot that is there; nothing else makes the file longer. */
static size_t expected_size(const struct race *race, const uint8_t *bytes)
{
    size_t size = 0;
    for (unsigned slot = 0; slot < SLOTS; slot++)
        for (unsigned i = 0; i < race->counts[slot]; i++)
            if (has(bytes + (size_t)slot * SLOT_LEN, &race->writes[slot][i]))
                size = (size_t)slot * SLOT_LEN + race->writes[slot][i].len;
    return size;
}

static void check_race(const struct race *race)
{
    static uint8_t bytes[SLOTS * SLOT_LEN + 1];
    memset(bytes, 0, sizeof bytes);
    int fd = open(race->path, O_RDONLY);
    ssize_t n = fd < 0 ? -1 : pread(fd, bytes, sizeof bytes, 0);
    if (n < 0)
        fail("race %u: %s cannot be read: %s", race->number, race->path, strerror(errno));
    (void)close(fd);
    for (unsigned slot = 0; slot < SLOTS; slot++)
        check_slot(race, slot, bytes + (size_t)slot * SLOT_LEN, race->path);
    if ((size_t)n != expected_size(race, bytes))
        fail("race %u of seed %llu in %s: the size is %zd, and the last slot ends at %zu",
             race->number, (unsigned long long)race->options->seed, race->path, n,
             expected_size(race, bytes));
}

/* --- many ------------------------------------------------------------------------------------- */

static struct race *do_race(const struct options *options, const char *directory, unsigned number,
                            bool is_dying)
{
    static void *(*const roles[WRITERS + 2])(void *) = {write_tensors, write_tensors, write_tensors,
                                                        write_header, truncate_it};
    struct race *race = calloc(1, sizeof *race);
    struct thread threads[WRITERS + 2];
    if (!race)
        fail("no memory");
    race->options = options;
    race->number = number;
    atomic_store(&race->is_dying, is_dying);
    (void)snprintf(race->path, sizeof race->path, "%s/race-%u", directory, number);
    (void)pthread_barrier_init(&race->begin, NULL, WRITERS + 2);
    (void)close(open(race->path, O_WRONLY | O_CREAT, 0644));
    for (unsigned i = 0; i < WRITERS + 2; i++) {
        race->random[i] = options->seed * 1000003 + number * 17 + i;
        threads[i] = (struct thread){.race = race, .number = i};
        if (pthread_create(&threads[i].thread, NULL, roles[i], &threads[i]) != 0)
            fail("no thread");
    }
    for (unsigned i = 0; i < WRITERS + 2; i++)
        (void)pthread_join(threads[i].thread, NULL);
    (void)pthread_barrier_destroy(&race->begin);
    return race;
}

/* Races until the daemon is killed under one of them, which the caller does as soon as it reads
 * "dying". */
static void race_to_death(const struct options *options, unsigned first, struct race **races,
                          unsigned count)
{
    (void)printf("dying\n");
    (void)fflush(stdout);
    for (unsigned i = 0; i < count; i++) {
        races[i] = do_race(options, options->mount, first + i, true);
        if (atomic_load(&races[i]->died))
            break;
    }
    stop_at("dead");
    for (unsigned i = 0; i < count && races[i]; i++)
        if (access(races[i]->path, F_OK) == 0 || !atomic_load(&races[i]->died))
            check_race(races[i]);
}

static void do_leg(const struct options *options, unsigned first, unsigned count)
{
    struct race *races[RACES] = {0};
    uint64_t random = options->seed ^ first;
    if (options->is_urged)
        urge_begin(options->mount);
    if (options->other && random_below(&random, 2)) {
        race_to_death(options, first, races, count);
        urge_end();
    } else {
        for (unsigned i = 0; i < count; i++) {
            races[i] = do_race(options, options->mount, first + i, false);
            check_race(races[i]);
        }
        urge_end();
        stop_at("remount");
        for (unsigned i = 0; i < count; i++)
            check_race(races[i]);
    }
    for (unsigned i = 0; i < count && races[i]; i++) {
        (void)unlink(races[i]->path);
        free(races[i]);
        if (options->other && i % 10 == 0) { /* the rule itself holds there, too */
            struct race *other = do_race(options, options->other, first + i, false);
            check_race(other);
            (void)unlink(other->path);
            free(other);
        }
    }
}

void race_run(const struct options *options)
{
    for (unsigned done = 0; done < options->runs; done += RACES)
        do_leg(options, options->first + done,
               options->runs - done < RACES ? options->runs - done : RACES);
    (void)printf("done\n");
}

/* --- header: DataStates-LLM ------------------------------------------------------------------- */

#define TENSORS 8u
#define TENSOR_LEN 65536u
#define HEADER_LEN 4096u

struct save {
    char path[4096];
    sem_t enqueued;
    struct timed cut, tensors[TENSORS];
};

/* As its host_tier.cpp does. */
static void *flush_tensors(void *arg)
{
    struct save *save = arg;
    static uint8_t content[TENSOR_LEN];
    struct stat st;
    fill(content, sizeof content, 1);
    while (sem_wait(&save->enqueued) < 0)
        ;
    for (unsigned i = 0; i < TENSORS; i++) {
        if (stat(save->path, &st) < 0)
            (void)close(open(save->path, O_WRONLY | O_CREAT | O_TRUNC, 0644));
        int fd = open(save->path, O_RDWR);
        (void)lseek(fd, HEADER_LEN + (off_t)i * TENSOR_LEN, SEEK_SET);
        save->tensors[i].called = now_ns();
        if (write(fd, content, sizeof content) != (ssize_t)sizeof content)
            fail("write: %s", strerror(errno));
        save->tensors[i].returned = now_ns();
        (void)close(fd);
    }
    return NULL;
}

/* As its checkpointing.py does. */
static void save_one(struct save *save, unsigned delay_us)
{
    pthread_t flusher;
    uint8_t header[HEADER_LEN];
    fill(header, sizeof header, 2);
    *save->tensors = save->cut = (struct timed){0};
    (void)sem_init(&save->enqueued, 0, 0);
    if (pthread_create(&flusher, NULL, flush_tensors, save) != 0)
        fail("no thread");
    (void)sem_post(&save->enqueued);
    spin_us(delay_us);
    save->cut.called = now_ns();
    int fd = open(save->path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    save->cut.returned = now_ns();
    if (fd < 0 || pwrite(fd, header, sizeof header, 0) < 0 ||
        pwrite(fd, header, 1000, HEADER_LEN + TENSORS * TENSOR_LEN) < 0)
        fail("header: %s", strerror(errno));
    (void)close(fd);
    (void)pthread_join(flusher, NULL);
}

/* Tensors that are not in the file; each must have been written before the truncation had ended,
 * and those that were written after that are there. */
static unsigned missing(const struct save *save, unsigned *explained)
{
    uint8_t content[TENSOR_LEN];
    unsigned count = 0;
    int fd = open(save->path, O_RDONLY);
    for (unsigned i = 0; i < TENSORS; i++) {
        memset(content, 0, sizeof content);
        if (pread(fd, content, sizeof content, HEADER_LEN + (off_t)i * TENSOR_LEN) < 0)
            fail("read: %s", strerror(errno));
        bool is_lost = is_zero(content, sizeof content);
        count += is_lost;
        *explained += is_lost && save->tensors[i].called < save->cut.returned;
        if (!is_lost && save->cut.called > save->tensors[i].returned)
            fail("%s: tensor %u is there, though it was truncated away", save->path, i);
    }
    (void)close(fd);
    return count;
}

void header_run(const struct options *options)
{
    unsigned wrong = 0, lost = 0, explained = 0;
    int64_t cut_ns = 0, write_ns = 0;
    struct save *save = calloc(1, sizeof *save);
    if (!save)
        fail("no memory");
    for (unsigned i = 0; i < options->runs; i++) {
        (void)snprintf(save->path, sizeof save->path, "%s/save-%u", options->mount,
                       options->first + i / 2);
        save_one(save, options->delay_us);
        unsigned n = missing(save, &explained);
        wrong += n > 0;
        lost += n;
        cut_ns += save->cut.returned - save->cut.called;
        write_ns += save->tensors[0].returned - save->cut.called;
    }
    (void)printf(
        "files %u wrong %u tensors_lost %u explained %u open_us %lld first_write_us %lld\n",
        options->runs, wrong, lost, explained, (long long)cut_ns / 1000 / options->runs,
        (long long)write_ns / 1000 / options->runs);
    free(save);
}
