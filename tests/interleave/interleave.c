// SPDX-License-Identifier: Apache-2.0
/* Calls that several threads make to one file through several descriptors: O_TRUNC while others
 * have it open, seals by each close, writeback while it goes on, deaths of the daemon, remounts.
 *
 *   script   one call at a time, each by the thread that a seeded schedule says: the order is known
 *            exactly. Every call is made on the mount and on another filesystem (ext4), and must
 *            give the same there: result, errno, bytes, size.
 *   race     threads that run freely: each owns slots of the file, and others truncate it. What is
 *            left must follow from some order that agrees with when the calls were made and
 *            returned.
 *   header   what DataStates-LLM does: one thread hands over tensors and then opens the file with
 *            O_TRUNC for header and tail, another opens, seeks, writes and closes for each tensor.
 *            Counts the files that miss a tensor, and those of them that the order of the calls
 *            explains.
 *
 * The caller (test_interleave.py) kills and mounts where the program stops: it writes a word to
 * standard output, and goes on when a line comes on standard input. */
#include "interleave.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

uint64_t random_below(uint64_t *state, uint64_t end)
{
    return next_random(state) % end;
}

void fill(uint8_t *bytes, size_t len, uint64_t seed)
{
    for (size_t at = 0; at < len; at += sizeof seed) {
        uint64_t word = next_random(&seed) | 0x0101010101010101ull;
        memcpy(bytes + at, &word, len - at < sizeof word ? len - at : sizeof word);
    }
}

int64_t now_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

void spin_us(uint64_t us)
{
    int64_t end = now_ns() + (int64_t)us * 1000;
    while (now_ns() < end)
        ;
}

void fail(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    (void)printf("wrong: ");
    (void)vprintf(fmt, ap);
    (void)printf("\n");
    (void)fflush(stdout);
    va_end(ap);
    _exit(1);
}

void stop_at(const char *what)
{
    char line[64];
    (void)printf("%s\n", what);
    (void)fflush(stdout);
    if (!fgets(line, sizeof line, stdin))
        _exit(2);
}

static struct {
    pthread_t thread;
    _Atomic bool ending, is_running;
    char path[4096];
} urge;

/* An fsync makes writeback write all that is sealed. Errors are those of a daemon that
 * was killed. */
static void *urge_on(void *arg)
{
    (void)arg;
    int fd = open(urge.path, O_RDWR | O_CREAT, 0600);
    for (uint64_t i = 0; !atomic_load(&urge.ending) && fd >= 0; i++) {
        if (pwrite(fd, &i, sizeof i, 0) < 0 || fdatasync(fd) < 0)
            break;
        (void)nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    }
    if (fd >= 0)
        (void)close(fd);
    return NULL;
}

void urge_begin(const char *directory)
{
    (void)snprintf(urge.path, sizeof urge.path, "%s/urge", directory);
    atomic_store(&urge.ending, false);
    if (pthread_create(&urge.thread, NULL, urge_on, NULL) != 0)
        fail("no thread");
    atomic_store(&urge.is_running, true);
}

void urge_end(void)
{
    if (!atomic_exchange(&urge.is_running, false))
        return;
    atomic_store(&urge.ending, true);
    (void)pthread_join(urge.thread, NULL);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(const struct options *options);
    } modes[] = {{"script", script_run}, {"race", race_run}, {"header", header_run}};
    if (argc != 8 && argc != 7) {
        (void)fprintf(stderr, "usage: interleave script|race|header SEED FIRST RUNS "
                              "DELAY_US|urge|rest MOUNT [OTHER]\n");
        return 2;
    }
    struct options options = {.seed = strtoull(argv[2], NULL, 10),
                              .first = (unsigned)strtoul(argv[3], NULL, 10),
                              .runs = (unsigned)strtoul(argv[4], NULL, 10),
                              .delay_us = (unsigned)strtoul(argv[5], NULL, 10),
                              .is_urged = strcmp(argv[5], "urge") == 0,
                              .mount = argv[6],
                              .other = argc == 8 ? argv[7] : NULL};
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
        if (strcmp(argv[1], modes[i].name) == 0) {
            modes[i].run(&options);
            return 0;
        }
    return 2;
}
