// SPDX-License-Identifier: Apache-2.0
#include "world.h"

#include <ftw.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/lock.h"
#include "base/log.h"

#define STAGE_BYTES                                                                                \
    (40 * MIB) /* less than the files of the workers together, so that requests wait */
#define CAP_BYTES (1536 * MIB)
#define WAIT_MS 20 /* for room, before a request is tried again unasked */
#define DRAIN_LIMIT_NS (300ll * 1000000000)

void fail(const struct world *world, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    (void)fprintf(stderr, "stress: FAILED, seed %llu: ", (unsigned long long)world->seed);
    (void)vfprintf(stderr, fmt, ap);
    (void)fprintf(stderr, "\nstress: the store is left in %s, its stage in %s\n", world->path,
                  world->stage_dir);
    va_end(ap);
    abort();
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

void world_make(struct world *world, uint64_t seed)
{
    *world = (struct world){.seed = seed};
    log_set_level(LOG_LEVEL_WARN);
    strcpy(world->path, "/tmp/cairn-stress-XXXXXX");
    strcpy(world->stage_dir, "/dev/shm/cairn-stress-XXXXXX");
    expect(world, mkdtemp(world->path) && mkdtemp(world->stage_dir), "no folders: %s",
           strerror(errno));
    world->options = (struct store_options){.reduce = REDUCE_FAST,
                                            .path = world->path,
                                            .stage_dir = world->stage_dir,
                                            .stage_bytes = STAGE_BYTES,
                                            .cap_bytes = CAP_BYTES,
                                            .writeback_threads = 2,
                                            .writeback_limit = 200 * MIB};
    for (unsigned i = 0; i < DIRS; i++)
        (void)pthread_mutex_init(&world->dirs[i].lock, NULL);
    (void)pthread_mutex_init(&world->attrs_lock, NULL);
    (void)pthread_mutex_init(&world->room.lock, NULL);
    cond_init(&world->room.changed);
}

void world_remove(struct world *world)
{
    (void)nftw(world->path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    (void)nftw(world->stage_dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static void on_room(void *arg)
{
    struct world *world = arg;
    (void)pthread_mutex_lock(&world->room.lock);
    world->room.calls++;
    (void)pthread_cond_broadcast(&world->room.changed);
    (void)pthread_mutex_unlock(&world->room.lock);
}

/* The folders: made at the first opening, found at the others. */
static void find_dirs(struct world *world)
{
    static const struct fs_caller root = {.uid = 0};
    for (unsigned i = 0; i < DIRS; i++) {
        char name[16];
        struct stat st;
        (void)snprintf(name, sizeof name, "d%u", i);
        int r = fs_lookup(world->fs, ROOT_INO, name, &st);
        if (r == -ENOENT && world->dirs[i].ino == 0)
            do
                r = fs_mkdir(world->fs, ROOT_INO, name, 0755, &root, &st);
            while (must_repeat(world, r));
        expect(world, r == 0, "folder %s: %s", name, strerror(-r));
        expect(world, world->dirs[i].ino == 0 || world->dirs[i].ino == st.st_ino,
               "folder %s is another", name);
        world->dirs[i].ino = st.st_ino;
    }
}

void world_open(struct world *world)
{
    char *text = NULL;
    int r = store_open(&world->options, &world->store, &text);
    expect(world, r == 0, "opening: %s: %s", strerror(-r), text ? text : "");
    free(text);
    r = store_start(world->store, on_room, world);
    expect(world, r == 0, "starting: %s", strerror(-r));
    world->fs = fs_new(world->store, FS_FSYNC_NVME);
    fs_keep_atime(world->fs, true);
    find_dirs(world);
}

void world_close(struct world *world)
{
    fs_free(world->fs);
    store_close(world->store);
    world->fs = NULL;
    world->store = NULL;
}

void world_drain(struct world *world)
{
    int r;
    do
        r = store_seal_all(world->store);
    while (must_repeat(world, r));
    expect(world, r == 0, "sealing all: %s", strerror(-r));
    wait_durable(world, store_newest(world->store));
}

static void report(const char *line, bool is_problem, void *arg)
{
    (void)arg;
    if (is_problem)
        log_error("fsck: %s", line);
}

int world_fsck(struct world *world)
{
    return store_fsck(world->path, report, NULL);
}

bool must_repeat(struct world *world, int64_t r)
{
    static _Thread_local int64_t since;
    since = r != -EAGAIN ? 0 : since ? since : clock_monotonic_ns();
    store_waits_since(since);
    if (r != -EAGAIN)
        return false;
    atomic_fetch_add(&world->waits, 1);
    (void)pthread_mutex_lock(&world->room.lock);
    unsigned waiting = ++world->room.waiting;
    uint64_t calls = world->room.calls;
    (void)pthread_mutex_unlock(&world->room.lock);
    store_note_waiting(world->store, waiting);

    struct timespec until;
    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += WAIT_MS * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    (void)pthread_mutex_lock(&world->room.lock);
    while (world->room.calls == calls &&
           pthread_cond_timedwait(&world->room.changed, &world->room.lock, &until) != ETIMEDOUT)
        ;
    waiting = --world->room.waiting;
    (void)pthread_mutex_unlock(&world->room.lock);
    store_note_waiting(world->store, waiting);
    return true;
}

static void post(int result, void *arg)
{
    if (result == 0)
        (void)sem_post(arg);
}

void wait_durable(struct world *world, uint64_t seq)
{
    sem_t done;
    uint64_t ticket;
    (void)sem_init(&done, 0, 0);
    store_wait(world->store, seq, post, &done, &ticket);
    int64_t since = clock_monotonic_ns();
    while (sem_trywait(&done) != 0) {
        expect(world, clock_monotonic_ns() - since < DRAIN_LIMIT_NS, "not durable after 300 s");
        (void)usleep(500);
    }
    (void)sem_destroy(&done);
}

uint64_t chance(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

void fill_bytes(uint8_t *buf, size_t length, uint64_t number)
{
    uint64_t state = number;
    size_t i = 0;
    for (; i + 8 <= length; i += 8) {
        uint64_t v = chance(&state);
        memcpy(buf + i, &v, 8);
    }
    for (; i < length; i++)
        buf[i] = (uint8_t)chance(&state);
}
