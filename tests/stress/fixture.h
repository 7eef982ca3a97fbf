// SPDX-License-Identifier: Apache-2.0
/* A store, and what stands around it in a mounted filesystem: requests that wait for room, the
 * kernel's locks, chance. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "fs/fs.h"

#define WORKERS 6u
#define DIR_SHARED WORKERS /* after the directory of each worker */
#define DIRS (WORKERS + 1)

struct dir {
    uint64_t ino;
    pthread_mutex_t lock; /* names in it change one at a time, as the kernel sees to */
};

struct fixture {
    uint64_t seed;
    char path[64], stage_dir[64];
    struct store_options options;
    struct store *store;
    struct fs *fs;
    struct dir dirs[DIRS];
    pthread_mutex_t
        attrs_lock; /* xattrs of shared files change one at a time, as the kernel sees to */
    _Atomic bool stop;
    _Atomic uint64_t ops, waits;
    struct {
        pthread_mutex_t lock;
        pthread_cond_t changed;
        unsigned waiting;
        uint64_t calls;
    } room;
};

/* Says what is wrong and how to repeat it, and ends the program. */
_Noreturn void fail(const struct fixture *fixture, const char *fmt, ...) CAIRN_PRINTF(2, 3);
#define expect(fixture, expr, ...) ((expr) ? (void)0 : fail(fixture, __VA_ARGS__))

void fixture_make(struct fixture *fixture, uint64_t seed);
void fixture_remove(struct fixture *fixture);
void fixture_open(struct fixture *fixture);
void fixture_close(struct fixture *fixture);
/* Everything is sealed and durable on return. */
void fixture_drain(struct fixture *fixture);
/* Problems that fsck finds. */
int fixture_fsck(struct fixture *fixture);

/* `do r = call; while (must_repeat(world, r));`: waits for room if the call found none. */
bool must_repeat(struct fixture *fixture, int64_t r);
void wait_durable(struct fixture *fixture, uint64_t seq);

uint64_t chance(uint64_t *state); /* the next random number */
static inline uint64_t below(uint64_t *state, uint64_t n)
{
    return chance(state) % n;
}

/* Bytes that `number` determines. */
void fill_bytes(uint8_t *buf, size_t length, uint64_t number);
