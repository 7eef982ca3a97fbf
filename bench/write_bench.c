// SPDX-License-Identifier: Apache-2.0
/* One timed stream of writes: what a trainer does when it saves.
 *
 *   write_bench write PATH TOTAL BLOCK [rdwr] [inplace] [wait]   prints the seconds from open to
 *                                                         close; wait: says "ready" first, and
 *                                                         begins when stdin ends
 *   write_bench touch BYTES                               touches memory once, so that it is there
 *
 * The source is four times larger than any cache here; it is touched before the clock starts. With
 * a seed in WRITE_BENCH_SEED every run writes other bytes, so that nothing is found to be stored
 * already. */
#include "timed.h"

#include <fcntl.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#define SOURCE_LEN (256ul << 20)
#define PAGE 4096ul

static uint8_t *map_memory(size_t len)
{
    void *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        fail("mmap");
    return p;
}

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static uint8_t *make_source(void)
{
    const char *seed = getenv("WRITE_BENCH_SEED");
    uint64_t state = 88172645463325252ull + (seed ? strtoull(seed, NULL, 10) * 2654435761ull : 0);
    uint64_t *p = (uint64_t *)map_memory(SOURCE_LEN);
    for (size_t i = 0; i < SOURCE_LEN / 8; i++)
        p[i] = next_random(&state);
    return (uint8_t *)p;
}

/* Each pass over the source starts 4 KiB later, so that equal blocks do not line up. */
static double timed_write(const char *path, size_t total, size_t block, int flags, int waits)
{
    uint8_t *source = make_source();
    char byte;
    if (waits && write(STDOUT_FILENO, "ready\n", 6) != 6)
        fail("write");
    while (waits && read(STDIN_FILENO, &byte, 1) > 0)
        ;
    double begin = now();
    int fd = open(path, flags, 0644);
    if (fd < 0)
        fail(path);
    size_t at = 0, pass = 0;
    for (size_t done = 0; done < total;) {
        if (at + block > SOURCE_LEN)
            at = ++pass * PAGE;
        size_t want = total - done < block ? total - done : block;
        ssize_t n = write(fd, source + at, want);
        if (n <= 0)
            fail("write");
        done += (size_t)n;
        at += (size_t)n;
    }
    if (close(fd) < 0)
        fail("close");
    return now() - begin;
}

static void touch(size_t len)
{
    uint8_t *p = map_memory(len);
    for (size_t i = 0; i < len; i += PAGE)
        p[i] = 1;
    munmap(p, len);
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "touch") == 0) {
        touch(strtoull(argv[2], NULL, 10));
        return 0;
    }
    if (argc < 5 || strcmp(argv[1], "write") != 0) {
        fprintf(
            stderr,
            "usage: write_bench write PATH TOTAL BLOCK [rdwr] [inplace] [wait] | touch BYTES\n");
        return 2;
    }
    int flags = O_CREAT | O_WRONLY, truncate = O_TRUNC, waits = 0;
    for (int i = 5; i < argc; i++) {
        if (strcmp(argv[i], "rdwr") == 0)
            flags = O_CREAT | O_RDWR;
        else if (strcmp(argv[i], "inplace") == 0)
            truncate = 0;
        else if (strcmp(argv[i], "wait") == 0)
            waits = 1;
    }
    double seconds = timed_write(argv[2], strtoull(argv[3], NULL, 10), strtoull(argv[4], NULL, 10),
                                 flags | truncate, waits);
    printf("%.6f\n", seconds);
    return 0;
}
