// SPDX-License-Identifier: Apache-2.0
#include "fixture.h"

#include <semaphore.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>

#include "../remove_tree.h"
#include "base/clock.h"
#include "base/lock.h"
#include "base/log.h"

/* Less than the files of the workers together, so that requests wait. */
#define STAGE_BYTES (40 * MIB)
#define CAP_BYTES (1536 * MIB)
#define WAIT_MS 20 /* for room, before a request is tried again unasked */
#define DRAIN_LIMIT_NS (300ll * 1000000000)

void fail(const struct fixture *fixture, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    (void)fprintf(stderr, "stress: FAILED, seed %llu: ", (unsigned long long)fixture->seed);
    (void)vfprintf(stderr, fmt, ap);
    (void)fprintf(stderr, "\nstress: the store is left in %s, its stage in %s\n", fixture->path,
                  fixture->stage_dir);
    va_end(ap);
    abort();
}

void fixture_make(struct fixture *fixture, uint64_t seed)
{
    *fixture = (struct fixture){.seed = seed};
    log_set_level(LOG_LEVEL_WARN);
    strcpy(fixture->path, "/tmp/cairn-stress-XXXXXX");
    strcpy(fixture->stage_dir, "/dev/shm/cairn-stress-XXXXXX");
    expect(fixture, mkdtemp(fixture->path) && mkdtemp(fixture->stage_dir), "no directories: %s",
           strerror(errno));
    fixture->options = (struct store_options){.reduce = REDUCE_FAST,
                                              .path = fixture->path,
                                              .stage_dir = fixture->stage_dir,
                                              .stage_bytes = STAGE_BYTES,
                                              .cap_bytes = CAP_BYTES,
                                              .writeback_threads = 2,
                                              .writeback_limit = 200 * MIB};
    for (unsigned i = 0; i < DIRS; i++)
        (void)pthread_mutex_init(&fixture->dirs[i].lock, NULL);
    (void)pthread_mutex_init(&fixture->attrs_lock, NULL);
    (void)pthread_mutex_init(&fixture->room.lock, NULL);
    cond_init(&fixture->room.changed);
}

void fixture_remove(struct fixture *fixture)
{
    remove_tree(fixture->path);
    remove_tree(fixture->stage_dir);
}

static void on_room(void *arg)
{
    struct fixture *fixture = arg;
    (void)pthread_mutex_lock(&fixture->room.lock);
    fixture->room.calls++;
    (void)pthread_cond_broadcast(&fixture->room.changed);
    (void)pthread_mutex_unlock(&fixture->room.lock);
}

/* The directories: made at the first opening, found at the others. */
static void find_dirs(struct fixture *fixture)
{
    static const struct fs_caller root = {.uid = 0};
    for (unsigned i = 0; i < DIRS; i++) {
        char name[16];
        const struct fs_new_inode new = {ROOT_INO, name, 0755, 0, &root};
        struct stat st;
        (void)snprintf(name, sizeof name, "d%u", i);
        int r = fs_lookup(fixture->fs, ROOT_INO, name, &st);
        if (r == -ENOENT && fixture->dirs[i].ino == 0)
            do
                r = fs_mkdir(fixture->fs, &new, &st);
            while (must_repeat(fixture, r));
        expect(fixture, r == 0, "directory %s: %s", name, strerror(-r));
        expect(fixture, fixture->dirs[i].ino == 0 || fixture->dirs[i].ino == st.st_ino,
               "directory %s is another", name);
        fixture->dirs[i].ino = st.st_ino;
    }
}

void fixture_open(struct fixture *fixture)
{
    _cleanup_free_ char *text = NULL;
    bool again;
    int r = store_open(&fixture->options, &fixture->store, &again, &text);
    expect(fixture, r == 0, "opening: %s: %s", strerror(-r), text ? text : "");
    r = store_start(fixture->store, on_room, fixture);
    expect(fixture, r == 0, "starting: %s", strerror(-r));
    fixture->fs = fs_new(fixture->store, FS_FSYNC_NVME);
    fs_update_atime(fixture->fs, true);
    find_dirs(fixture);
}

void fixture_close(struct fixture *fixture)
{
    fs_free(fixture->fs);
    store_close(fixture->store);
    fixture->fs = NULL;
    fixture->store = NULL;
}

void fixture_drain(struct fixture *fixture)
{
    int r;
    do
        r = history_seal_all(store_commit(fixture->store)->history);
    while (must_repeat(fixture, r));
    expect(fixture, r == 0, "sealing all: %s", strerror(-r));
    wait_durable(fixture, history_newest(store_commit(fixture->store)->history));
}

static void report(const char *line, bool is_problem, void *arg)
{
    (void)arg;
    if (is_problem)
        log_error("fsck: %s", line);
}

int fixture_fsck(struct fixture *fixture)
{
    return store_fsck(fixture->path, report, NULL);
}

bool must_repeat(struct fixture *fixture, int64_t r)
{
    static _Thread_local int64_t since;
    since = r != -EAGAIN ? 0 : since ? since : clock_monotonic_ns();
    room_waits_since(since);
    if (r != -EAGAIN)
        return false;
    atomic_fetch_add(&fixture->waits, 1);
    (void)pthread_mutex_lock(&fixture->room.lock);
    unsigned waiting = ++fixture->room.waiting;
    uint64_t calls = fixture->room.calls;
    (void)pthread_mutex_unlock(&fixture->room.lock);
    horizon_note_waiting(store_commit(fixture->store)->horizon, waiting);

    struct timespec until;
    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += WAIT_MS * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    (void)pthread_mutex_lock(&fixture->room.lock);
    while (fixture->room.calls == calls &&
           pthread_cond_timedwait(&fixture->room.changed, &fixture->room.lock, &until) != ETIMEDOUT)
        ;
    waiting = --fixture->room.waiting;
    (void)pthread_mutex_unlock(&fixture->room.lock);
    horizon_note_waiting(store_commit(fixture->store)->horizon, waiting);
    return true;
}

static void post(int result, void *arg)
{
    if (result == 0)
        (void)sem_post(arg);
}

void wait_durable(struct fixture *fixture, uint64_t seq)
{
    sem_t done;
    uint64_t ticket;
    (void)sem_init(&done, 0, 0);
    horizon_await(store_commit(fixture->store)->horizon, seq, post, &done, &ticket);
    int64_t since = clock_monotonic_ns();
    while (sem_trywait(&done) != 0) {
        expect(fixture, clock_monotonic_ns() - since < DRAIN_LIMIT_NS, "not durable after 300 s");
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
